//! The guardian's descendants: found, reaped, ended.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, kill_process_group, wait};

/// Processes that cannot be killed (another user's, or stuck in the kernel) are left after this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Descendants whose parent ends become this process's children instead of init's.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    {
        // Kernels before 3.4 cannot; then the group is all there is to find.
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
    }
}

pub(super) struct Reaped {
    /// The leader's exit code, 128 + n for a signal.
    pub ended: Option<u8>,
    pub any_left: bool,
}

/// Takes the status of every child that has ended.
pub(super) fn reap(leader: Option<Pid>) -> Reaped {
    let mut ended = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid) == leader => {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                let code = status.exit_status().or(signal).and_then(|code| u8::try_from(code).ok());
                ended = Some(code.unwrap_or(u8::MAX));
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Reaped { ended, any_left: true },
            Err(_) => return Reaped { ended, any_left: false },
        }
    }
}

/// Kills whatever descends from this process. Again and again, since each may start another meanwhile, and
/// grandchildren become children only when their parent ends.
pub(super) fn end_descendants() {
    let deadline = Instant::now() + PATIENCE;
    while reap(None).any_left && Instant::now() < deadline {
        for pid in descendants(getpid()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The worker is gone: nobody is left to tell.
pub(super) fn end_all_and_self() -> ! {
    end_descendants();
    // Only a group of our own: started by hand, this would be the terminal's.
    if getpgrp() == getpid() {
        let _ = kill_process_group(getpgrp(), Signal::KILL);
    }
    std::process::exit(i32::from(u8::MAX));
}

/// Children, their children and so on, nearest first.
fn descendants(of: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let stat = pid.and_then(|_| std::fs::read_to_string(entry.path().join("stat")).ok());
        if let (Some(pid), Some(parent)) = (pid, stat.as_deref().and_then(parent_of)) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![of];
    while let Some(parent) = open.pop() {
        let next = children.remove(&parent).unwrap_or_default();
        open.extend(&next);
        found.extend(next);
    }
    found
}

/// `pid (name) state parent …`; the name may hold anything, parentheses too.
fn parent_of(stat: &str) -> Option<Pid> {
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_whatever_the_name() {
        for (stat, parent) in [
            ("42 (sh) S 7 42 42 0 -1", Pid::from_raw(7)),
            ("42 (a) S 1 (b) R 9) T 8 1", Pid::from_raw(8)),
            ("1 (init) S 0 1 1", None),
            ("", None),
            ("42 (sh)", None),
        ] {
            assert_eq!(parent_of(stat), parent, "{stat}");
        }
    }
}
