//! Commands of a lifecycle by their name.

use waypost_kernel::lifecycle::Actor;
use waypost_kernel::request::Ask;
use waypost_kernel::text::{MAX_NAME_BYTES, refuse_text};

use super::state::{Patch, State};
use crate::children::{AT_ONCE, is_cancel};
use crate::chosen::chosen;
use crate::error::{Result, StoreError};
use crate::intake::check_reason;
use crate::resolutions::Decisions;
use crate::run::RunRow;
use crate::tokens::who;
use crate::verbs::CommandWrite;

impl State {
    pub fn command(&mut self, write: &CommandWrite) -> Result<RunRow> {
        check_reason(write.reason.as_deref())?;
        refuse_text("by", &write.by, MAX_NAME_BYTES)
            .map_err(|error| StoreError::invalid("by", error.message))?;
        let number = self.number_of(&write.run_id)?;
        if self.row(number)?.tenant != write.tenant {
            return Err(StoreError::no_run(&write.run_id));
        }
        write.check_seq(&self.row(number)?.run)?;
        let chosen = match &write.items {
            Some(keys) => {
                let entry = self.entry(number)?;
                let find = |_: &str, key: &str| {
                    Ok(entry.items.iter().find(|item| item.kind == 0 && *item.key == *key).cloned())
                };
                Some(chosen(&entry.row.lifecycle, &entry.row.run, &write.name, keys, find)?)
            }
            None => None,
        };
        let row = self.row(number)?.clone();
        let decisions = Decisions::of(&row, write, self.now)?;
        let with = write.with(chosen.as_deref(), decisions.is_complete);
        let who = who(write.actor.unwrap_or(Actor::Operator), &write.by);
        let change = self.decide(number, who, Ask::Command { name: &write.name, with })?;
        if !change.events.is_empty() {
            let details = decisions.patch(&row, &change);
            let cancels = is_cancel(&change.events);
            self.commit_with(number, change, &Patch { details, ..Patch::default() })?;
            if cancels {
                self.ask_children(AT_ONCE)?;
            }
        }
        Ok(self.row(number)?.clone())
    }
}
