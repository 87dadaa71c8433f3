//! Whether a process is still there, and still the same one.

use std::fs;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A killed group is gone at once; its parent may take a moment to notice.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// A number comes back for another process; number and start do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pid: u32,
    started: u64,
}

impl Identity {
    /// Nothing: no such process, or a system that does not tell.
    pub fn of(pid: u32) -> Option<Identity> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name, in parentheses, may hold anything; the start is the 22nd field, 20th after it.
        let (_, fields) = stat.rsplit_once(')')?;
        let started = fields.split_whitespace().nth(19)?.parse().ok()?;
        Some(Identity { pid, started })
    }

    pub fn is_alive(self) -> bool {
        Identity::of(self.pid) == Some(self)
    }

    pub async fn ends(self) -> bool {
        let ends_at = Instant::now() + PATIENCE;
        while self.is_alive() {
            if Instant::now() >= ends_at {
                return false;
            }
            sleep(LOOK).await;
        }
        true
    }
}
