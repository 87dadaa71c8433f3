//! What a reader of the log learns of projected runs.

use waypost_kernel::Time;

/// Runs of projected lifecycles that moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projected {
    /// Each once, in the order of their first events.
    pub runs: Vec<MovedRun>,
    /// The position to go on after: a reader who does misses no event.
    pub position: u64,
    /// There is more to look at now.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedRun {
    pub tenant: String,
    pub run_id: String,
    /// When it first moved after the position that was asked about.
    pub at: Time,
}

/// A run that a reader of the log has left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftRun {
    /// Empty if the run was pruned meanwhile.
    pub tenant: String,
    pub run_id: String,
}

/// A place in the log: of whose run, and in which state that left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step<S> {
    pub position: u64,
    pub state: S,
    pub rid: i64,
    pub at: Time,
}
