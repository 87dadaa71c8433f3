//! Commands of a lifecycle by their name.

use waypost_kernel::lifecycle::{Actor, Phase};
use waypost_kernel::request::{Ask, With};
use waypost_kernel::run::Text;
use waypost_kernel::text::{MAX_NAME_BYTES, refuse_text};

use super::state::{Entry, State, asked_by};
use crate::error::{Result, StoreError};
use crate::intake::check_reason;
use crate::run::RunRow;
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
        let chosen = match &write.items {
            Some(keys) => Some(self.entry(number)?.chosen(&write.name, keys)?),
            None => None,
        };
        let with = With {
            reason: write.reason.as_deref(),
            force: write.force,
            resolved: write.resolved,
            graceful: write.graceful,
            chosen: chosen.as_deref(),
            ..With::default()
        };
        let who = asked_by(write.actor.unwrap_or(Actor::Operator), &write.by);
        let change = self.decide(number, who, Ask::Command { name: &write.name, with })?;
        if !change.events.is_empty() {
            self.commit(number, change)?;
        }
        Ok(self.row(number)?.clone())
    }
}

impl Entry {
    /// The kernel counts on chosen items to be there, and to be such as follow the command.
    fn chosen(&self, command: &str, keys: &[String]) -> Result<Vec<Text>> {
        let invalid = |message: String| StoreError::invalid("items", message);
        let lifecycle = &self.row.lifecycle;
        let kind = lifecycle.items.first().ok_or_else(|| invalid(format!("{} has none", lifecycle.name)))?;
        let follows = kind.states.iter().filter(|state| state.follow(command).is_some()).count();
        if follows > 1 {
            return Err(invalid(format!("they cannot be chosen for {command}")));
        }
        let run = &self.row.run;
        let moves = follows == 1
            && lifecycle.phase(run.state) != Phase::Held
            && lifecycle.transitions_from(run.state).any(|row| &*row.command == command);
        let mut chosen: Vec<Text> = Vec::with_capacity(keys.len());
        for key in keys {
            let item = self.items.iter().find(|item| item.kind == 0 && *item.key == **key);
            let item = item.ok_or_else(|| invalid(format!("there is no {} {key:?}", kind.name)))?;
            let state = kind.state(item.state);
            if moves && (state.follow(command).is_none() || item.stays(kind)) {
                return Err(invalid(format!("{key:?} is {} and no {command} is for it", state.name)));
            }
            if !chosen.contains(&item.key) {
                chosen.push(item.key.clone());
            }
        }
        Ok(chosen)
    }
}
