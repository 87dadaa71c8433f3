//! Children of runs that are cancelled.

use waypost_kernel::lifecycle::{Actor, Phase};

use super::state::{Entry, State};
use crate::children::{Asked, PARENT};
use crate::error::Result;
use crate::tokens::who;

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
                let request = Asked::by(self.row(parent)?);
                let is_open = self.row(child)?.phase() != Phase::Settled;
                let change = self.decide(child, who(Actor::Operator, PARENT), request.ask());
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
        let is_child = |entry: &Entry| entry.row.parent_run_id.as_deref() == Some(parent.id());
        self.runs.iter().filter(|(_, entry)| is_child(entry)).map(|(number, _)| *number).collect()
    }
}
