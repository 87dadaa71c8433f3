//! Guards: named conditions on a move, each with one meaning in Rust and the same in SQL (`render::sql`).
//! They look at the row as it will be after the move, which is what a database's trigger sees as NEW.

use crate::lifecycle::Kind;
use crate::tally::Counts;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    HasReason,
    ResolvedOrForced,
    HasItems,
    SomeItemOpen,
    AllItemsOk,
    SomeItemFailed,
    NoItemOk,
    AttemptsLeft,
    Reentrant,
    NoOperation,
    NotDiscarded,
    Reruns,
}

/// What guards look at. Runs and items fill in what they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub has_reason: bool,
    pub resolved: bool,
    pub forced: bool,
    /// The attempt that the move leads into (a run's), or the retries used after it (an item's).
    pub attempt: u32,
    pub max_attempts: u32,
    pub reentrant: bool,
    pub operating: bool,
    pub discarded: bool,
    pub reruns: bool,
    pub items: Counts,
}

impl Guard {
    pub const ALL: [Guard; 12] = [
        Guard::HasReason,
        Guard::ResolvedOrForced,
        Guard::HasItems,
        Guard::SomeItemOpen,
        Guard::AllItemsOk,
        Guard::SomeItemFailed,
        Guard::NoItemOk,
        Guard::AttemptsLeft,
        Guard::Reentrant,
        Guard::NoOperation,
        Guard::NotDiscarded,
        Guard::Reruns,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Guard::HasReason => "has-reason",
            Guard::ResolvedOrForced => "resolved-or-forced",
            Guard::HasItems => "has-items",
            Guard::SomeItemOpen => "some-item-open",
            Guard::AllItemsOk => "all-items-ok",
            Guard::SomeItemFailed => "some-item-failed",
            Guard::NoItemOk => "no-item-ok",
            Guard::AttemptsLeft => "attempts-left",
            Guard::Reentrant => "reentrant",
            Guard::NoOperation => "no-operation",
            Guard::NotDiscarded => "not-discarded",
            Guard::Reruns => "reruns",
        }
    }

    /// For people: what has to be so.
    pub fn meaning(self) -> &'static str {
        match self {
            Guard::HasReason => "a reason is given",
            Guard::ResolvedOrForced => "resolutions are saved, or the move is forced",
            Guard::HasItems => "the run has at least one item",
            Guard::SomeItemOpen => "at least one item is left to work on",
            Guard::AllItemsOk => "no item is open, none failed and at least one succeeded",
            Guard::SomeItemFailed => "no item is open, some failed and some succeeded",
            Guard::NoItemOk => "no item is open and none succeeded",
            Guard::AttemptsLeft => "an attempt (for an item: a retry) is left",
            Guard::Reentrant => "the job allows a stale execution to be taken up again",
            Guard::NoOperation => "no rollback or reconciliation of the run is under way",
            Guard::NotDiscarded => "the item was not discarded",
            Guard::Reruns => "the step is named by a cleanup's `after`",
        }
    }

    /// Whether it can be asked of a run, or of an item.
    pub fn is_about(self, kind: Kind) -> bool {
        match self {
            Guard::AttemptsLeft => true,
            Guard::NotDiscarded | Guard::Reruns => kind == Kind::Item,
            _ => kind == Kind::Run,
        }
    }

    pub fn holds(self, facts: &Facts) -> bool {
        let Counts { total, open, ok, failed } = facts.items;
        match self {
            Guard::HasReason => facts.has_reason,
            Guard::ResolvedOrForced => facts.resolved || facts.forced,
            Guard::HasItems => total > 0,
            Guard::SomeItemOpen => open > 0,
            Guard::AllItemsOk => open == 0 && failed == 0 && ok > 0,
            Guard::SomeItemFailed => open == 0 && failed > 0 && ok > 0,
            Guard::NoItemOk => open == 0 && ok == 0,
            Guard::AttemptsLeft => facts.attempt <= facts.max_attempts,
            Guard::Reentrant => facts.reentrant,
            Guard::NoOperation => !facts.operating,
            Guard::NotDiscarded => !facts.discarded,
            Guard::Reruns => facts.reruns,
        }
    }
}
