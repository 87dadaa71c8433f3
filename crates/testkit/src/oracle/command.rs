//! Commands of a lifecycle by their name.

use serde_json::json;
use waypost_kernel::event::Change;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Actor, Outcome, Phase};
use waypost_kernel::request::{Ask, With};
use waypost_kernel::{Code, Refusal};
use waypost_store::{CommandWrite, NewRun, Preview, Result, RunRow, StoreError};

use super::children::{AT_ONCE, is_cancel};
use super::enqueue::Birth;
use super::rules::decisions::{Decisions, Standing};
use super::rules::intake::{check_name, check_reason};
use super::state::{Entry, Logged, Patch, State};
use super::who;

impl State {
    /// First whether there is such a run, then whether it is as the asker saw it, then what is asked.
    pub fn command(&mut self, write: &CommandWrite) -> Result<RunRow> {
        let number = self.number_of(&write.run_id)?;
        let row = self.row(number)?.clone();
        if row.tenant != write.tenant {
            return Err(StoreError::no_run(&write.run_id));
        }
        let decided = self.ordered(number, write);
        match &decided {
            Ok(None) => return Ok(row),
            Err(StoreError::Refused(refusal))
                if refusal.code == Code::InvalidTransition && self.entry(number)?.was_asked_last(write) =>
            {
                return Ok(row);
            }
            _ => {}
        }
        if write.if_seq.is_some_and(|seq| seq != row.run.seq) {
            return Err(StoreError::Changed { run_id: row.id().to_owned(), seq: row.run.seq });
        }
        if let Some((change, patch)) = decided? {
            let cancels = is_cancel(&change.events);
            let begun = match change.after.operating && !row.run.operating {
                true => {
                    let operation = operation_of(&row, write);
                    let lifecycle = self.lifecycle_of(&operation)?;
                    Some((operation, lifecycle))
                }
                false => None,
            };
            self.commit_with(number, change, &patch)?;
            if let Some((operation, lifecycle)) = begun {
                self.insert(&operation, lifecycle, Birth { actor: operation.actor, lease: None })?;
            }
            if cancels {
                self.ask_children(AT_ONCE)?;
            }
        }
        Ok(self.row(number)?.clone())
    }

    /// What a command comes to. None: nothing that is not so already.
    fn ordered(&mut self, number: u64, write: &CommandWrite) -> Result<Option<(Change, Patch)>> {
        let row = self.row(number)?.clone();
        check_name("by", &write.by)?;
        check_reason(write.reason.as_deref())?;
        let chosen = match &write.items {
            Some(keys) => Some(self.entry(number)?.chosen(&write.name, keys)?),
            None => None,
        };
        let decisions = Decisions::of(&row, write, self.now)?;
        if decisions.standing == Standing::Known && !write.force {
            return Ok(None);
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
        let leads = row.lifecycle.phase(change.after.state);
        let waits = Preview::of(&row.details).is_some_and(|preview| !preview.ready);
        if waits && row.phase() == Phase::Draft && leads != Phase::Draft && leads != Phase::Settled {
            return Err(not_gathered(&row));
        }
        if change.events.is_empty() {
            return Ok(None);
        }
        if change.after.operating && !row.run.operating {
            check_applied(&row, &write.name, chosen.as_deref().unwrap_or_default())?;
        }
        let details = decisions.patch(&row, &change);
        Ok(Some((change, Patch { details, ..Patch::default() })))
    }
}

impl State {
    /// A proposal's approval is its application too, if it names a playbook, and its entry in the inbox follows what people decide.
    pub fn command_on_proposal(&mut self, write: &CommandWrite) -> Result<RunRow> {
        let again = |state: &State| {
            let row = state.row(state.number_of(&write.run_id).ok()?).ok()?;
            let is_under_way = &*row.lifecycle.name == "proposal" && &*row.run.last_command == "apply";
            (is_under_way && row.tenant == write.tenant && write.name == "approve").then(|| row.clone())
        };
        self.check_only_one(write)?;
        let row = match self.command(write) {
            Err(refused @ StoreError::Refused(_)) => return again(self).ok_or(refused),
            decided => decided?,
        };
        let entrys = match (&*row.lifecycle.name, write.name.as_str()) {
            ("proposal", "approve") => "process",
            ("proposal", "reject") => "reject",
            _ => return Ok(row),
        };
        if let Some(entry) = row.metadata.get("inbox_id").and_then(|id| id.as_str()) {
            let entry = CommandWrite {
                tenant: row.tenant.clone(),
                run_id: entry.to_owned(),
                name: entrys.to_owned(),
                actor: Some(Actor::Engine),
                by: write.by.clone(),
                reason: write.reason.clone(),
                ..CommandWrite::default()
            };
            match self.command(&entry) {
                Ok(_) | Err(StoreError::Refused(_) | StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if write.name == "approve" && row.playbook.is_some() {
            return self.command(&CommandWrite { name: "apply".to_owned(), if_seq: None, ..write.clone() });
        }
        Ok(row)
    }
}

impl State {
    /// No two proposals are approved that were made for one revision of one thing: tried first, and then looked who else is.
    fn check_only_one(&self, write: &CommandWrite) -> Result<()> {
        let known = self.number_of(&write.run_id).and_then(|number| self.row(number));
        if known.is_ok_and(|row| &*row.lifecycle.name != "proposal") {
            return Ok(());
        }
        let mut tried = self.clone();
        let Ok(row) = tried.command(write) else { return Ok(()) };
        let Some(about) = revision(&row).filter(|_| is_approved(&row)) else { return Ok(()) };
        let others = self.runs.values().map(|entry| &entry.row).filter(|other| other.id() != row.id());
        let is_same = |other: &RunRow| {
            other.tenant == row.tenant && is_approved(other) && revision(other).as_ref() == Some(&about)
        };
        let (target, base) = &about;
        match others.into_iter().find(|other| is_same(other)) {
            None => Ok(()),
            Some(other) => Err(StoreError::Outdated(format!(
                "{} was approved before, and was made for the same revision {base} of {target}",
                other.id()
            ))),
        }
    }
}

fn is_approved(row: &RunRow) -> bool {
    let is_under_way = row.phase() == Phase::Held || row.outcome() == Some(Outcome::Succeeded);
    &*row.lifecycle.name == "proposal" && is_under_way
}

/// What a proposal is about, and which revision of that.
fn revision(row: &RunRow) -> Option<(String, String)> {
    let text = |name: &str| match row.metadata.get(name)? {
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    Some((text("target")?, text("base_revision")?))
}

/// The run that carries out an operation on this one.
fn operation_of(row: &RunRow, write: &CommandWrite) -> NewRun {
    let kind = row.lifecycle.items.first();
    let applied = kind.map_or(0, |kind| row.run.tallies[0].counts(kind).ok);
    let mut input = json!({ "operation": write.name, "count": applied });
    if let Some(keys) = &write.items {
        input["targets"] = json!(keys);
    }
    if let Some(reason) = &write.reason {
        input["reason"] = json!(reason);
    }
    NewRun {
        tenant: row.tenant.clone(),
        lifecycle: "operation".into(),
        queue: row.queue.clone(),
        priority: row.priority,
        input,
        concurrency_key: match row.lifecycle.transitions.iter().any(|edge| *edge.command == *write.name) {
            true => row.concurrency_key.clone(),
            false => None,
        },
        correlation_id: row.correlation_id.clone(),
        parent_run_id: Some(row.id().into()),
        title: Some(match &row.title {
            Some(title) => format!("{} of {title}", write.name),
            None => write.name.clone(),
        }),
        playbook: row.playbook.clone(),
        carried: row.carried.clone(),
        by: write.by.clone(),
        ..NewRun::default()
    }
}

fn check_applied(row: &RunRow, command: &str, items: &[Item]) -> Result<()> {
    for item in items {
        let state = row.lifecycle.items[usize::from(item.kind)].state(item.state);
        if state.outcome != Some(Outcome::Succeeded) {
            let message = format!("{:?} is {} and no {command} is for it", item.key, state.name);
            return Err(StoreError::invalid("items", message));
        }
    }
    Ok(())
}

fn not_gathered(row: &RunRow) -> StoreError {
    let rows = Preview::of(&row.details).map_or(0, |preview| preview.rows);
    Refusal {
        code: Code::InvalidTransition,
        message: format!("its preview is not complete: {rows} rows are gathered so far"),
        current: row.status().into(),
        requested: String::new(),
        allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
        guard: None,
        field: None,
    }
    .into()
}

impl Entry {
    /// Whether a person's last request of this run was this one, and the run has gone where it is offered no more.
    fn was_asked_last(&self, write: &CommandWrite) -> bool {
        let lifecycle = &self.row.lifecycle;
        let is_it = |command: &str| command == write.name;
        let offered = lifecycle.transitions_from(self.row.run.state).any(|row| is_it(&row.command));
        let known = lifecycle.transitions.iter().any(|row| is_it(&row.command));
        let by_people = |it: &&Logged| matches!(it.event.actor, Actor::Client | Actor::Operator);
        let Some(last) = self.events.iter().rev().find(by_people) else { return false };
        let event = &last.event;
        let wanted = event.effect.intent.as_ref().and_then(|intent| intent.reason.as_deref());
        let reason = event.effect.reason.as_deref().or(wanted);
        let operates = lifecycle.operations.iter().any(|(operation, _)| is_it(operation));
        known
            && !offered
            && !operates
            && write.items.is_none()
            && write.resolutions.is_empty()
            && is_it(&event.command)
            && *event.by == *write.by
            && reason == write.reason.as_deref()
    }

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
                let words =
                    if item.discarded { "was discarded".to_owned() } else { format!("is {}", state.name) };
                return Err(invalid(format!("{key:?} {words} and no {command} is for it")));
            }
            if chosen.iter().all(|known| known.key != item.key) {
                chosen.push(item.clone());
            }
        }
        Ok(chosen)
    }
}
