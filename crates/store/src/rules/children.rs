//! A cancel of a run also cancels its children (J6). The parent's move leaves its id behind in the same
//! transaction; the command that made it, or any process's sweep, asks the children, which do the same to theirs.

use waypost_kernel::event::Event;
use waypost_kernel::request::{Ask, With};
use waypost_kernel::run::Want;

use crate::seam::run::RunRow;

/// How many are asked in one transaction; the rest is left to the sweep.
pub const AT_ONCE: usize = 1_000;

/// Whether what happened is a cancel, asked for or carried out.
pub fn is_cancel<'e>(events: impl IntoIterator<Item = &'e Event>) -> bool {
    events.into_iter().any(|event| &*event.command == Want::Cancel.command())
}

/// Who asks.
pub const PARENT: &str = "parent";

/// The cancel that a parent's children are asked for.
pub struct CancelRequest {
    graceful: bool,
}

impl CancelRequest {
    pub fn by(parent: &RunRow) -> CancelRequest {
        let graceful = parent.run.intent.as_ref().is_some_and(|intent| intent.graceful);
        CancelRequest { graceful }
    }

    pub fn ask(&self) -> Ask<'static> {
        let with =
            With { reason: Some("its parent is cancelled"), graceful: self.graceful, ..With::default() };
        Ask::Command { name: Want::Cancel.command(), with }
    }
}
