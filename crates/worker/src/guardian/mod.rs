//! A small process between a worker and a command: when the worker dies, by whatever cause, the command and
//! all that it started die with it. So they do when the run's lease is about to run out and the worker, stopped or asleep,
//! does nothing about it: another worker may begin then.
//!
//! It leads the command's process group and reads a pipe that only the worker can write. The pipe brings the
//! command's standard input and until when it may run, and then each later time: its end is the worker's. Descendants that leave the group
//! (`setsid`) or lose their parent become the guardian's own children, so that it finds those too. If the guardian itself
//! is killed, the worker ends the group and finds the others by their environment.

mod alarm;
mod family;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::lease::BootTime;
use alarm::Alarm;

pub(crate) use family::end_marked;

/// What a command left behind may take this long to end: `tee` in a shell's pipe. Nobody looks after it later.
const LINGER: Duration = Duration::from_secs(2);

/// More than a run's input and metadata can be.
const MAX_INPUT_BYTES: u64 = 16 * 1024 * 1024;

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

/// What precedes the command's input on the pipe. What follows it are later ends, as [`BootTime::to_bytes`] has them.
pub(crate) fn announce(ends_at: BootTime, input: &[u8]) -> Vec<u8> {
    [ends_at.to_bytes(), (input.len() as u64).to_be_bytes()].concat()
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
    let Ok((input, mut permit)) = Permit::read(io::stdin().as_fd().try_clone_to_owned()?).await else {
        return Err(io::Error::new(
            io::ErrorKind::BrokenPipe,
            "this is for workers to start, and the worker is gone",
        ));
    };
    // It may have been stopped since it was told.
    if permit.has_ended() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the run's lease is over"));
    }
    let child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn()?;
    let leader = Pid::from_child(&child);
    feed(child, input);
    let code = loop {
        if let Some(code) = family::reap(Some(leader)).ended {
            break code;
        }
        tokio::select! {
            biased;
            () = permit.ended() => family::end_all_and_self(),
            _ = signals.child.recv() => {}
        }
    };
    let linger_until = Instant::now() + LINGER;
    while family::reap(None).any_left {
        tokio::select! {
            biased;
            () = permit.ended() => family::end_all_and_self(),
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

/// Until when the command may run: as long as the worker is there, and as long as its lease, as far as that was told.
struct Permit {
    pipe: pipe::Receiver,
    /// What was read of the next end.
    part: Vec<u8>,
    ends_at: BootTime,
    alarm: Alarm,
}

impl Permit {
    /// The command's input, and until when it may run at first.
    async fn read(pipe: OwnedFd) -> io::Result<(Vec<u8>, Permit)> {
        let (mut pipe, alarm) = (pipe::Receiver::from_owned_fd(pipe)?, Alarm::new()?);
        let (ends_at, input) = read_input(&mut pipe).await?;
        Ok((input, Permit { pipe, part: Vec::new(), ends_at, alarm }))
    }

    async fn ended(&mut self) {
        while !self.has_ended() {
            tokio::select! {
                () = self.alarm.rings(self.ends_at) => {}
                _ = self.pipe.readable() => {}
            }
        }
    }

    /// What the worker said while this process was stopped counts before the clock does.
    fn has_ended(&mut self) -> bool {
        let is_there = self.hear();
        !is_there || self.ends_at.has_come()
    }

    /// Whether the worker is there.
    fn hear(&mut self) -> bool {
        loop {
            let mut bytes = [0; BootTime::BYTES];
            let rest = &mut bytes[self.part.len()..];
            // Tokio asks the pipe only once it has heard that there is something, and the alarm may be heard first.
            let read = self.pipe.try_read(rest).or_else(|error| match error.kind() {
                io::ErrorKind::WouldBlock => Ok(rustix::io::read(&self.pipe, &mut *rest)?),
                _ => Err(error),
            });
            match read {
                Ok(0) => return false,
                Ok(count) => self.part.extend_from_slice(&rest[..count]),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            if let Ok(whole) = self.part.as_slice().try_into() {
                self.ends_at = BootTime::from_bytes(whole);
                self.part.clear();
            }
        }
    }
}

async fn read_input(pipe: &mut (impl AsyncRead + Unpin)) -> io::Result<(BootTime, Vec<u8>)> {
    let mut ends_at = [0; BootTime::BYTES];
    pipe.read_exact(&mut ends_at).await?;
    let length = pipe.read_u64().await?;
    if length > MAX_INPUT_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more input than any run has"));
    }
    let mut input = vec![0; length as usize];
    pipe.read_exact(&mut input).await?;
    Ok((BootTime::from_bytes(ends_at), input))
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

    #[tokio::test]
    async fn input_is_read_to_its_announced_length_and_no_further() {
        let ends_at = BootTime::now();
        for input in [&b""[..], b"{}", &[7; 100_000]] {
            let sent = [&announce(ends_at, input)[..], input, b"more"].concat();
            let mut pipe = &sent[..];
            assert_eq!(read_input(&mut pipe).await.ok(), Some((ends_at, input.to_vec())));
            assert_eq!(pipe, b"more");
        }
        let endless = [&ends_at.to_bytes()[..], &u64::MAX.to_be_bytes(), b"x"].concat();
        let short = [&ends_at.to_bytes()[..], &[0, 0, 0, 0, 0, 0, 0, 9, 1]].concat();
        for cut in [&b""[..], b"\0\0", &short[..8], &short, &endless] {
            assert!(read_input(&mut &cut[..]).await.is_err(), "{cut:?}");
        }
    }
}
