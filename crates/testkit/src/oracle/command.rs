//! Commands of a lifecycle by their name.

use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Actor, Phase};
use waypost_kernel::request::{Ask, With};
use waypost_store::{CommandWrite, Result, RunRow, StoreError};

use super::children::{AT_ONCE, is_cancel};
use super::rules::decisions::{Decisions, Standing};
use super::rules::intake::{check_name, check_reason};
use super::state::{Entry, Patch, State};
use super::who;

impl State {
    /// First whether there is such a run, then whether it is as the asker saw it, then what is asked.
    pub fn command(&mut self, write: &CommandWrite) -> Result<RunRow> {
        let number = self.number_of(&write.run_id)?;
        let row = self.row(number)?.clone();
        if row.tenant != write.tenant {
            return Err(StoreError::no_run(&write.run_id));
        }
        if write.if_seq.is_some_and(|seq| seq != row.run.seq) {
            return Err(StoreError::Changed { run_id: row.id().to_owned(), seq: row.run.seq });
        }
        check_name("by", &write.by)?;
        check_reason(write.reason.as_deref())?;
        let chosen = match &write.items {
            Some(keys) => Some(self.entry(number)?.chosen(&write.name, keys)?),
            None => None,
        };
        let decisions = Decisions::of(&row, write, self.now)?;
        if decisions.standing == Standing::Known && !write.force {
            return Ok(row);
        }
        let with = With {
            reason: write.reason.as_deref(),
            force: write.force,
            resolved: decisions.standing == Standing::Everything,
            partly: matches!(decisions.standing, Standing::Something | Standing::Known),
            graceful: write.graceful,
            chosen: chosen.as_deref(),
            ..With::default()
        };
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

impl Entry {
    /// The items that a command names, each once: they must be there, and be such as the command is for.
    fn chosen(&self, command: &str, keys: &[String]) -> Result<Vec<Item>> {
        let (lifecycle, state) = (&self.row.lifecycle, self.row.run.state);
        let invalid = |message: String| StoreError::invalid("items", message);
        let kind =
            lifecycle.items.first().ok_or_else(|| invalid(format!("a {} run has none", lifecycle.name)))?;
        // What would not move at all is refused for that; here it is about which of them do.
        let moves = kind.states.iter().any(|state| state.follow(command).is_some())
            && lifecycle.phase(state) != Phase::Held
            && lifecycle.transitions_from(state).any(|row| &*row.command == command);
        let mut chosen: Vec<Item> = Vec::new();
        for key in keys {
            let item = self.items.iter().find(|item| item.kind == 0 && *item.key == **key);
            let item = item.ok_or_else(|| invalid(format!("there is no {} {key:?}", kind.name)))?;
            let state = kind.state(item.state);
            if moves && (state.follow(command).is_none() || item.stays(kind)) {
                return Err(invalid(format!("{key:?} is {} and no {command} is for it", state.name)));
            }
            if chosen.iter().all(|known| known.key != item.key) {
                chosen.push(item.clone());
            }
        }
        Ok(chosen)
    }
}
