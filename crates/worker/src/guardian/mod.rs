//! A small process between a worker and a command: when the worker dies, by whatever cause, the command and
//! all that it started die with it.
//!
//! It leads the command's process group and reads a pipe that only the worker can write. The pipe brings the
//! command's standard input and then nothing more: its end is the worker's. Descendants that leave the group
//! (`setsid`) or lose their parent become the guardian's own children, so that it finds those too. If the guardian itself
//! is killed, the worker ends the group and finds the others by their environment.

mod family;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

pub(crate) use family::end_marked;

/// What a command left behind may take this long to end: `tee` in a shell's pipe. Nobody looks after it later.
const LINGER: Duration = Duration::from_secs(2);

/// More than a run's input and metadata can be.
const MAX_INPUT_BYTES: u64 = 16 * 1024 * 1024;

const LENGTH_BYTES: usize = size_of::<u64>();

/// As shells say it.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Program and arguments by which a program with the subcommand `guardian` reaches [`main`].
pub fn this_program() -> Vec<OsString> {
    // The running file itself, even after an upgrade has replaced it on disk.
    let itself = Path::new("/proc/self/exe");
    let program = if itself.exists() { itself.into() } else { std::env::current_exe().unwrap_or_default() };
    vec![program.into(), "guardian".into(), "--".into()]
}

/// What precedes the command's input on the pipe.
pub(crate) fn announce(input: &[u8]) -> [u8; LENGTH_BYTES] {
    (input.len() as u64).to_be_bytes()
}

/// Guards one command, given as its words, and exits as it does: its code, or 128 + the signal's number.
pub fn main(command: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command: Vec<OsString> = command.into_iter().collect();
    let guarded = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(guard(&command)));
    guarded.map_or_else(
        |error| {
            let program = command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            let _ = writeln!(io::stderr(), "waypost: cannot start {program}: {error}");
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            ExitCode::from(if is_missing { NOT_FOUND } else { CANNOT_EXECUTE })
        },
        ExitCode::from,
    )
}

async fn guard(command: &[OsString]) -> io::Result<u8> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command"));
    };
    let mut signals = Signals::take()?;
    family::adopt_orphans();
    let (input, mut worker_gone) = listen();
    let Ok(input) = input.await else {
        return Err(io::Error::new(
            io::ErrorKind::BrokenPipe,
            "this is for workers to start, and the worker is gone",
        ));
    };
    let child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn()?;
    let leader = Pid::from_child(&child);
    feed(child, input);
    let code = loop {
        if let Some(code) = family::reap(Some(leader)).ended {
            break code;
        }
        tokio::select! {
            _ = &mut worker_gone => family::end_all_and_self(),
            _ = signals.child.recv() => {}
        }
    };
    let linger_until = Instant::now() + LINGER;
    while family::reap(None).any_left {
        tokio::select! {
            _ = &mut worker_gone => family::end_all_and_self(),
            _ = signals.child.recv() => {}
            () = sleep_until(linger_until) => break,
        }
    }
    family::end_descendants();
    Ok(code)
}

/// Taken so that they do not end this process; the command gets them as usual, since handlers are not
/// inherited. A worker that wants the guardian to end closes the pipe.
struct Signals {
    child: Signal,
    _ignored: Vec<Signal>,
}

impl Signals {
    fn take() -> io::Result<Signals> {
        let ignored =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        let ignored = ignored.into_iter().map(signal).collect::<io::Result<_>>()?;
        Ok(Signals { child: signal(SignalKind::child())?, _ignored: ignored })
    }
}

/// A thread that reads the worker's pipe: first the command's input, then until its end.
fn listen() -> (oneshot::Receiver<Vec<u8>>, oneshot::Receiver<()>) {
    let (give_input, input) = oneshot::channel();
    let (hold, worker_gone) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut pipe = io::stdin().lock();
        if let Ok(bytes) = read_input(&mut pipe) {
            let _ = give_input.send(bytes);
            // Nothing more is sent: this returns when the worker is gone.
            let _ = io::copy(&mut pipe, &mut io::sink());
        }
        drop(hold);
    });
    (input, worker_gone)
}

fn read_input(pipe: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; LENGTH_BYTES];
    pipe.read_exact(&mut length)?;
    let length = u64::from_be_bytes(length);
    if length > MAX_INPUT_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more input than any run has"));
    }
    let mut input = vec![0; length as usize];
    pipe.read_exact(&mut input)?;
    Ok(input)
}

/// A command that reads none of its input is not an error.
fn feed(mut child: Child, input: Vec<u8>) {
    std::thread::spawn(move || {
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(&input);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_read_to_its_announced_length_and_no_further() {
        for input in [&b""[..], b"{}", &[7; 100_000]] {
            let sent = [&announce(input)[..], input, b"more"].concat();
            let mut pipe = &sent[..];
            assert_eq!(read_input(&mut pipe).ok().as_deref(), Some(input));
            assert_eq!(pipe, b"more");
        }
        let endless = [&u64::MAX.to_be_bytes()[..], b"x"].concat();
        for cut in [&b""[..], b"\0\0", &[0, 0, 0, 0, 0, 0, 0, 9, 1], &endless] {
            assert!(read_input(&mut &cut[..]).is_err(), "{cut:?}");
        }
    }
}
