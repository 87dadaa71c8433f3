//! Children of runs that are cancelled: a cancel goes down to the runs that a run has brought forth.

use waypost_kernel::event::Event;
use waypost_kernel::lifecycle::{Actor, Phase};
use waypost_kernel::request::{Ask, With};
use waypost_kernel::run::Want;
use waypost_store::Result;

use super::state::{Entry, State};
use super::who;

/// A command asks as many at once; the rest is the sweep's.
pub(super) const AT_ONCE: usize = 1_000;

/// Whether what happened is a cancel, asked for or carried out.
pub(super) fn is_cancel(events: &[Event]) -> bool {
    events.iter().any(|event| &*event.command == Want::Cancel.command())
}

impl State {
    /// Its children are to be asked, if it has any.
    pub fn leave_behind(&mut self, parent: u64) {
        if !self.children(parent).is_empty() {
            self.cancelled_parents.insert(parent);
        }
    }

    /// Asks the children of all parents that were left behind, and theirs. Gives those that were; whether that was all.
    pub fn ask_children(&mut self, limit: usize) -> Result<(Vec<String>, bool)> {
        let mut asked = Vec::new();
        while let Some(parent) = self.cancelled_parents.first().copied() {
            for child in self.children(parent) {
                let intent = self.row(parent)?.run.intent.as_ref();
                let graceful = intent.is_some_and(|intent| intent.graceful);
                let with = With { reason: Some("its parent is cancelled"), graceful, ..With::default() };
                let ask = Ask::Command { name: Want::Cancel.command(), with };
                let is_open = self.row(child)?.phase() != Phase::Settled;
                let change = self.decide(child, who(Actor::Operator, "parent"), ask);
                let Some(change) = change.ok().filter(|change| is_open && !change.events.is_empty()) else {
                    continue;
                };
                if asked.len() >= limit {
                    return Ok((asked, false));
                }
                self.commit(child, change)?;
                asked.push(self.row(child)?.id().to_owned());
            }
            self.cancelled_parents.remove(&parent);
        }
        Ok((asked, true))
    }

    /// None of a run that has left.
    fn children(&self, parent: u64) -> Vec<u64> {
        let Ok(parent) = self.row(parent) else { return Vec::new() };
        let is_child = |entry: &Entry| {
            entry.row.parent_run_id.as_deref() == Some(parent.id()) && entry.row.tenant == parent.tenant
        };
        self.runs.iter().filter(|(_, entry)| is_child(entry)).map(|(number, _)| *number).collect()
    }
}
