//! A command's processes: found, reaped, ended. By the guardian, whose descendants they are, and by the worker if
//! somebody killed the guardian.

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
        for pid in descendants(&[getpid()]) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// For a worker whose guardian was killed: ends what it guarded, also outside of its group. Who has lost its parent and
/// left the group has nothing in common with the others any more but its environment, in which an entry that no other
/// command has says whose it is. Only who threw that away as well is not found.
pub(crate) fn end_marked(entry: &[u8]) {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let marked = marked(entry);
        if marked.is_empty() {
            return;
        }
        for pid in descendants(&marked).into_iter().chain(marked) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whose environment has the entry. Of who has ended there is none to read.
fn marked(entry: &[u8]) -> Vec<Pid> {
    let has_entry = |pid: &Pid| {
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
        environment.is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|it| it == entry))
    };
    processes().filter(|pid| *pid != getpid()).filter(has_entry).collect()
}

fn processes() -> impl Iterator<Item = Pid> {
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| Pid::from_raw(name.to_str()?.parse().ok()?))
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
fn descendants(of: &[Pid]) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for pid in processes() {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
        if let Some(parent) = stat.ok().as_deref().and_then(parent_of) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = of.to_vec();
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

    /// Of two commands that differ in nothing else, in a group and a session of its own.
    #[test]
    fn who_has_the_entry_is_ended_and_nobody_else() {
        let start = |value: &str| {
            let mut command = std::process::Command::new("setsid");
            command.args(["--wait", "sleep", "300"]).env("WAYPOST_TEST_MARK", value);
            command.spawn().expect("setsid starts")
        };
        let (mut own, mut other) = (start("a b=c"), start("a b=cc"));
        // Read from /proc, it is there once the program runs.
        while marked(b"WAYPOST_TEST_MARK=a b=c").is_empty() {
            std::thread::yield_now();
        }
        end_marked(b"WAYPOST_TEST_MARK=a b=c");
        assert!(own.wait().is_ok_and(|status| !status.success()));
        assert!(other.try_wait().is_ok_and(|ended| ended.is_none()), "another's is left alone");
        end_marked(b"WAYPOST_TEST_MARK=a b=cc");
        assert!(other.wait().is_ok_and(|status| !status.success()));
    }

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
