//! Signals by which a person, a shell or a service manager asks this process to end.

use tokio::signal::unix::{SignalKind, signal};

use crate::output::{ERROR, Failed, Result, reader_is_gone};

/// Returns when one of them comes. They are listened to from the first call on, so that a second one does not end the process either.
pub async fn asked_to_end() -> Result {
    let failed = |error| Failed::new(ERROR, format!("no signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    // `nohup` has it ignored, and what is ignored stays so.
    let mut hangup = match is_hangup_ignored() {
        true => None,
        false => Some(signal(SignalKind::hangup()).map_err(failed)?),
    };
    let hung_up = async {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        // The terminal is gone, and what is printed from now on goes nowhere.
        _ = hung_up => reader_is_gone(),
    }
    Ok(())
}

/// As it was when this process was started: a handler of our own is none.
fn is_hangup_ignored() -> bool {
    const SIGHUP: u32 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & (1 << (SIGHUP - 1)) != 0
}
