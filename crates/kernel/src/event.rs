//! What a decision leaves behind: events, and the row as they make it.

use crate::item::Item;
use crate::lifecycle::{Actor, StateId};
use crate::refusal::Refusal;
use crate::request::Note;
use crate::run::{Failure, Intent, Run, Text};
use crate::time::Time;

/// What is to be written, in one transaction, if the row still has the `seq` it was decided on.
/// Without events it is either a heartbeat (only the lease changes) or a repeat (nothing does).
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub events: Vec<Event>,
    pub after: Run,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub seq: u64,
    pub at: Time,
    pub command: Text,
    pub from: Option<StateId>,
    pub to: StateId,
    pub actor: Actor,
    pub by: Text,
    pub note: Option<Note>,
    pub effect: Effect,
}

/// What an event did to the row beyond what its states tell. Holds no token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    pub hold: Hold,
    /// A lease that had run out was taken over (a vacant one does not count).
    pub expired: bool,
    pub available_at: Option<Time>,
    pub expires_at: Option<Time>,
    pub failure: Option<Failure>,
    pub reason: Option<Text>,
    pub intent: Option<Intent>,
    pub requires_cleanup: Option<bool>,
    pub cleanup_failed: bool,
    pub operating: Option<bool>,
    pub resolved: bool,
    pub forced: bool,
    pub born: Option<Born>,
    /// Items that moved because their run did.
    pub shifts: Vec<Shift>,
    /// Items that were moved one by one, as they are now.
    pub moved: Vec<Moved>,
}

/// What became of the lease. That leaving a held state ends it needs no telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    #[default]
    Keep,
    Grant,
    Vacate,
}

/// What a run is born with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Born {
    pub id: Text,
    pub max_attempts: u32,
    pub reentrant: bool,
}

/// All items of one kind and state (but for those that stay), or the chosen ones, moved together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    pub kind: u8,
    pub from: StateId,
    pub to: StateId,
    pub count: u32,
    pub chosen: Option<Vec<Text>>,
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// Nothing for a new item.
    pub from: Option<StateId>,
    pub was_staying: bool,
    pub stays: bool,
    pub item: Item,
}

impl Change {
    /// What is decided next on the row that this leaves, as one change: both, or neither.
    pub fn then(self, next: impl FnOnce(&Run) -> Result<Change, Refusal>) -> Result<Change, Refusal> {
        let Change { mut events, after } = self;
        let next = next(&after)?;
        events.extend(next.events);
        Ok(Change { events, after: next.after })
    }

    /// Answered as the first time: nothing is written.
    pub fn is_repeat(&self, before: &Run) -> bool {
        self.events.is_empty() && self.after == *before
    }
}
