//! What the holder of a run is told, and how it gives the run back.

use waypost_kernel::run::Want;
use waypost_kernel::{Run, Time};

use super::verbs::Held;

/// A run that its holder gives back.
#[derive(Clone, Debug)]
pub struct ReleaseWrite {
    pub held: Held,
    /// Nothing: whoever comes may take it.
    pub wait: Option<Wait>,
}

/// What a run waits for in nobody's hands: nobody takes it before.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    pub until: Time,
    /// In a word, for people and programs: [`Wait::WINDOW`], [`Wait::RETRY`], [`Wait::TIMEOUT`].
    pub reason: String,
}

impl Wait {
    pub const WINDOW: &'static str = "window";
    pub const RETRY: &'static str = "retry";
    /// What it would wait for comes after its time is over: it is looked at when that is.
    pub const TIMEOUT: &'static str = "timeout";
}

impl From<Held> for ReleaseWrite {
    fn from(held: Held) -> ReleaseWrite {
        ReleaseWrite { held, wait: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    pub expires_at: Time,
    pub now: Time,
    /// What the holder should do: `cancel`, `pause` or `fail`.
    pub intent: Option<&'static str>,
    /// The cancel is a graceful one.
    pub graceful: bool,
}

impl Renewed {
    pub fn of(run: &Run, now: Time) -> Self {
        let intent = run.intent.as_ref();
        Self {
            expires_at: run.lease.as_ref().map_or(now, |lease| lease.until),
            now,
            intent: intent.map(|intent| intent.want.command()),
            graceful: intent.is_some_and(|intent| intent.want == Want::Cancel && intent.graceful),
        }
    }
}
