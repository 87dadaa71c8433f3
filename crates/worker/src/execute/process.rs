//! One child process, the leader of a process group of its own, and everything that it starts.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::guardian;
use crate::lease::{BootTime, Lease};

/// For a guardian to kill what it guards, once told.
const GUARDIAN_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Process {
    child: Child,
    group: Option<Pid>,
    is_guarded: bool,
    /// The signal that ended the leader.
    ended_by: Option<i32>,
    /// From then on the group's number may be somebody else's.
    is_reaped: bool,
    /// Writes the standard input, and tells a guardian how long the lease lasts until it is dropped.
    feeder: Option<JoinHandle<()>>,
    children: tokio::signal::unix::Signal,
}

pub(crate) struct Started {
    pub process: Process,
    pub out: ChildStdout,
    pub err: ChildStderr,
}

impl Process {
    /// `prepare` sets folder and environment.
    pub fn start(
        command: &[String],
        guardian: Option<&[OsString]>,
        input: Vec<u8>,
        lease: Option<&Arc<Lease>>,
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<Started> {
        // Before the child is: its end must not be missed.
        let children = signal(SignalKind::child())?;
        let is_guarded = guardian.is_some();
        let words = guardian.unwrap_or_default().iter().cloned().chain(command.iter().map(OsString::from));
        let words: Vec<OsString> = words.collect();
        let (program, arguments) =
            words.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
        let mut spawning = Command::new(program);
        spawning.args(arguments).process_group(0);
        spawning.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A guardian that is killed guards nothing; it ends by itself when its input is closed.
        spawning.kill_on_drop(!is_guarded);
        if is_guarded {
            spawning.arg0("waypost");
        }
        prepare(&mut spawning);
        let mut child = spawning.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (Some(stdin), Some(out), Some(err)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the child has no pipes"));
        };
        let feeder = Some(match is_guarded {
            true => tokio::spawn(feed_guardian(stdin, input, lease.cloned())),
            false => tokio::spawn(feed(stdin, input)),
        });
        Ok(Started {
            process: Process { child, group, is_guarded, ended_by: None, is_reaped: false, feeder, children },
            out,
            err,
        })
    }

    /// Returns when the leader has ended. It stays unreaped, so that its group's number is not given to others
    /// and the group can still be killed. May be dropped and asked again.
    pub async fn ended(&mut self) {
        let Some(pid) = self.group else { return };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(pid), look) {
                Ok(None) => {
                    self.children.recv().await;
                }
                Ok(Some(status)) => {
                    self.ended_by = status.terminating_signal();
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// If somebody killed the guardian, ends what it guarded: nobody else will, and none of it may outlive the try.
    /// `entry` is in the environment of all of it. Only after [`Process::ended`]. A guardian tells a signal that ended
    /// the command by its exit code, so that one which a signal ended was killed itself.
    pub async fn stand_in(&mut self, entry: String) {
        if !self.is_cut_off() {
            return;
        }
        self.signal(Signal::KILL);
        let _ = tokio::task::spawn_blocking(move || guardian::end_marked(entry.as_bytes())).await;
    }

    /// Whether the guardian ended, and not by itself: somebody killed it, or it killed the whole group since the lease's time was
    /// over. Only after [`Process::ended`].
    pub fn is_cut_off(&self) -> bool {
        self.is_guarded && self.ended_by.is_some()
    }

    /// Asks the whole group to end, and kills it when the lease says so.
    pub async fn stop(&mut self, lease: &Lease, grace: Duration) {
        self.signal(Signal::TERM);
        tokio::select! {
            () = self.ended() => return,
            () = lease.kill_due(grace) => {}
        }
        if self.is_guarded {
            // Only the guardian also finds those that left the group.
            self.close_input();
            if timeout(GUARDIAN_PATIENCE, self.ended()).await.is_ok() {
                return;
            }
        }
        self.signal(Signal::KILL);
        self.ended().await;
    }

    /// Kills what is left of the group and takes the leader's status. Only after [`Process::ended`].
    pub async fn reap(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.close_input();
        let status = self.child.wait().await;
        self.is_reaped = true;
        status
    }

    fn close_input(&mut self) {
        if let Some(feeder) = self.feeder.take() {
            feeder.abort();
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // No such group: all of it ended already.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// A child that reads none of its input is not an error.
async fn feed(mut stdin: ChildStdin, input: Vec<u8>) {
    let _ = stdin.write_all(&input).await;
    let _ = stdin.flush().await;
}

/// From then on it is told of each later end, until the pipe is closed.
async fn feed_guardian(mut stdin: ChildStdin, input: Vec<u8>, lease: Option<Arc<Lease>>) {
    let mut killed_at = lease.as_ref().map_or(BootTime::NEVER, |lease| lease.killed_at());
    let mut message = guardian::announce(killed_at, &input);
    message.extend(input);
    while stdin.write_all(&message).await.is_ok() && stdin.flush().await.is_ok() {
        killed_at = match &lease {
            Some(lease) => lease.killed_later_than(killed_at).await,
            None => std::future::pending().await,
        };
        message = killed_at.to_bytes().to_vec();
    }
    // It has ended, or somebody killed it.
}

/// Dropped before its end, as when a worker gives up: nobody would look after it.
impl Drop for Process {
    fn drop(&mut self) {
        self.close_input();
        if !self.is_guarded && !self.is_reaped {
            self.signal(Signal::KILL);
        }
    }
}
