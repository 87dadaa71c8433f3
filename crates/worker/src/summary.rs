//! What a worker did.

use waypost_kernel::Outcome;

/// How this worker's part in a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Succeeded,
    Failed,
    Cancelled,
    Parked,
    /// Given back unharmed at shutdown.
    Released,
    /// Given back until a time before which there is nothing to do.
    Waits,
    /// The lease went to somebody else, or could not be confirmed in time; nothing more was written.
    Lost,
    /// Nothing here may execute it; given back at once.
    LeftAlone,
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            End::Succeeded => Outcome::Succeeded.name(),
            End::Failed => Outcome::Failed.name(),
            End::Cancelled => Outcome::Cancelled.name(),
            End::Parked => "waits for a person",
            End::Released => "given back",
            End::Waits => "given back until later",
            End::Lost => "lost",
            End::LeftAlone => "left alone",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub claimed: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub parked: u64,
    /// Those that wait for a time included.
    pub released: u64,
    pub lost: u64,
    pub left_alone: u64,
}

impl Summary {
    pub(crate) fn count(&mut self, end: End) {
        let counter = match end {
            End::Succeeded => &mut self.succeeded,
            End::Failed => &mut self.failed,
            End::Cancelled => &mut self.cancelled,
            End::Parked => &mut self.parked,
            End::Released | End::Waits => &mut self.released,
            End::Lost => &mut self.lost,
            End::LeftAlone => &mut self.left_alone,
        };
        *counter += 1;
    }
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.claimed += other.claimed;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.parked += other.parked;
        self.released += other.released;
        self.lost += other.lost;
        self.left_alone += other.left_alone;
    }
}
