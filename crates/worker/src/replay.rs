//! Repeating a run: all of it, or what is left of it. The old run stays as it is; the new one says which it repeats, and has what the
//! old one did as copies that the store makes and its guards compare.

use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value, json};
use waypost_kernel::item::Role;
use waypost_kernel::tenant::{exactly, option_of};
use waypost_kernel::text::shell_word;
use waypost_kernel::{Catalog, Outcome, Phase};
use waypost_schema::instead_of;
use waypost_store::{ItemRow, NewItem, NewRun, PLACEHOLDER, RunRow, Store, StoreError};

use crate::playbook::known::{self, NotKnown};
use crate::playbook::{CannotStart, Playbook, Playbooks};
use crate::resolve::brought_along;
use crate::steps::{AGAIN, first_steps, is_dropped, is_finish, planned_part, was_left_out, was_not_wanted};
use crate::targets::{has_targets, without_origin};

/// From where a run is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayFrom {
    Beginning,
    /// A step, one part of it (`ship[2]`), or either by the name that people see.
    Step(String),
    /// What did not complete, and what a cleanup undid.
    Failed,
}

/// Changes an input; the playbook, if there is one, says what type a value has.
pub type Edit<'e> = dyn Fn(Option<&Playbook>, &mut Value) + Send + Sync + 'e;

/// Why a run cannot be repeated so.
#[derive(Clone, Debug)]
pub enum CannotReplay {
    /// The field that is wrong, and what is.
    Field(&'static str, String),
    Start(CannotStart),
    Store(StoreError),
}

impl fmt::Display for CannotReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotReplay::Field(field, message) => write!(f, "{field}: {message}"),
            CannotReplay::Start(error) => error.fmt(f),
            CannotReplay::Store(error) => error.fmt(f),
        }
    }
}

impl From<StoreError> for CannotReplay {
    fn from(error: StoreError) -> CannotReplay {
        CannotReplay::Store(error)
    }
}

type Result<T> = std::result::Result<T, CannotReplay>;

fn refused<T>(field: &'static str, message: impl Into<String>) -> Result<T> {
    Err(CannotReplay::Field(field, message.into()))
}

/// A request for a run like an old one. `edit` changes its input, which only a whole replay allows; it knows the playbook, if there is one.
pub async fn replay(
    store: &dyn Store,
    catalog: &Catalog,
    old: &RunRow,
    from: &ReplayFrom,
    edit: Option<&Edit<'_>>,
) -> Result<NewRun> {
    if edit.is_some() && *from != ReplayFrom::Beginning {
        return refused(
            "input",
            "what was done saw the old input: repeat the whole run, or leave the input as it was",
        );
    }
    if is_execution(old) {
        return refused("run", execution_words(old));
    }
    let playbook = definition(store, catalog, old, from).await?;
    let mut new = like(old);
    if let Some(edit) = edit {
        edit(playbook.as_ref(), &mut new.input);
    }
    if let Some(playbook) = &playbook {
        let started = playbook.new_run(catalog, &new.input).map_err(CannotReplay::Start)?;
        let inputs = started.input.as_object().cloned().unwrap_or_default();
        new.items = first_steps(playbook, &old.lifecycle, &inputs);
        new.input = started.input;
        if edit.is_some() {
            new.concurrency_key = started.concurrency_key;
        }
    }
    if *from != ReplayFrom::Beginning {
        let steps = Steps::of(store, old, playbook.as_ref()).await?;
        new.items = steps.items(from, std::mem::take(&mut new.items))?;
        new.details = decisions(old);
    }
    Ok(new)
}

/// Of a schedule: nobody but its scheduler makes one.
pub fn is_execution(run: &RunRow) -> bool {
    run.lifecycle.initial.iter().all(|state| run.lifecycle.phase(*state) == Phase::Held)
}

/// What can be asked instead of a replay.
pub fn execution_words(run: &RunRow) -> String {
    let (schedule, whose) = (shell_word(schedule_of(run)), option_of(&run.tenant));
    format!(
        "an execution is its scheduler's: `waypost run retry {}{whose}` executes its plan again once it has failed for good, \
         `waypost schedule trigger {schedule}{whose}` executes the schedule now",
        run.id()
    )
}

/// The schedule that an execution is of.
pub fn schedule_of(run: &RunRow) -> &str {
    run.input.get("job_name").and_then(Value::as_str).unwrap_or("NAME")
}

fn like(old: &RunRow) -> NewRun {
    NewRun {
        tenant: old.tenant.clone(),
        // The very one, though the tenant may have one of that name by now.
        lifecycle: exactly(&old.lifecycle.name),
        queue: old.queue.clone(),
        priority: old.priority,
        input: (*old.input).clone(),
        metadata: if has_targets(old) { without_origin(&old.metadata) } else { (*old.metadata).clone() },
        concurrency_key: old.concurrency_key.clone(),
        correlation_id: old.correlation_id.clone(),
        retry_of: Some(old.id().to_owned()),
        title: old.title.clone(),
        playbook: old.playbook.clone(),
        carried: old.carried.clone(),
        max_attempts: old.run.max_attempts,
        ..NewRun::default()
    }
}

/// The very version that the old run had: it brought it along, or somebody offered it. None if the run has no playbook, or, for a whole
/// replay, if nobody knows that version any more: then its worker adds the steps.
async fn definition(
    store: &dyn Store,
    catalog: &Catalog,
    old: &RunRow,
    from: &ReplayFrom,
) -> Result<Option<Playbook>> {
    if let Some(brought) = old.carried.as_ref().and_then(|carried| carried.get("playbook")) {
        let playbook = brought_along(brought, catalog);
        return playbook.map(Some).or_else(|message| refused("playbook", message));
    }
    let Some(pin) = old.playbook.as_deref().filter(|_| old.carried.is_none()) else { return Ok(None) };
    match known::find(store, &Playbooks::default(), catalog, &old.tenant, pin).await {
        Ok(known) => Ok(known.playbook.map(|playbook| (*playbook).clone()).filter(|_| pin.contains('@'))),
        Err(NotKnown::Store(error)) => Err(error.into()),
        Err(_) if *from == ReplayFrom::Beginning || !pin.contains('@') => Ok(None),
        Err(_) => {
            let name = pin.split('@').next().unwrap_or_default();
            let message = format!(
                "its version {pin} is not known any more, and another one may have other steps: \
                 repeat the whole run, or start the present version (`run start {name}`)"
            );
            refused("playbook", message)
        }
    }
}

/// What people decided stays decided; made in another run, it answers nothing that this one will ask.
fn decisions(old: &RunRow) -> Map<String, Value> {
    let Some(words) = &old.lifecycle.decisions else { return Map::new() };
    let Some(Value::Object(given)) = old.details.get(words.given()) else { return Map::new() };
    let mut given = given.clone();
    given
        .values_mut()
        .filter_map(Value::as_object_mut)
        .for_each(|it| _ = it.insert("attempt".into(), json!(0)));
    Map::from_iter([(words.given().to_owned(), Value::Object(given))])
}

/// The steps of the old run.
struct Steps<'a> {
    old: &'a RunRow,
    playbook: Option<&'a Playbook>,
    rows: Vec<ItemRow>,
}

impl Steps<'_> {
    async fn of<'a>(store: &dyn Store, old: &'a RunRow, playbook: Option<&'a Playbook>) -> Result<Steps<'a>> {
        let Some(kind) = old.lifecycle.counted_items().filter(|kind| kind.stops_run) else {
            return refused(
                "from",
                format!("a {} run has no steps: repeat the whole run", old.lifecycle.name),
            );
        };
        if old.phase() != Phase::Settled {
            let message =
                format!("the run is {}: it can be repeated from a step once it has ended", old.status());
            return refused("from", message);
        }
        let mut rows = store.items(old.id().to_owned(), Some(kind.name.to_string())).await?;
        rows.retain(|row| row.key != PLACEHOLDER && !is_dropped(row));
        if rows.is_empty() {
            return refused("from", "the run came to no step: repeat the whole run");
        }
        Ok(Steps { old, playbook, rows })
    }

    /// The new run's items: those that it has from the old one, and what is left. `planned` are those that are known from the playbook.
    fn items(&self, from: &ReplayFrom, planned: Vec<NewItem>) -> Result<Vec<NewItem>> {
        let copied = match from {
            ReplayFrom::Step(step) => self.kept_from(step)?,
            _ => self.all_done()?,
        };
        let goes_on = self.goes_on_after_a_finish(&copied);
        let mut items = Vec::new();
        let mut seen = HashSet::new();
        for new in planned {
            seen.insert(new.key.clone());
            items.push(NewItem { copied: copied.contains(new.key.as_str()), ..new });
        }
        // The parts of a list that an earlier step answered, where some of them are done; the others keep their numbers.
        for row in self.rows.iter().filter(|row| !seen.contains(&row.key) && row.role != Role::Cleanup) {
            let is_copied = copied.contains(row.key.as_str());
            let of = step_of(row);
            let has_copied =
                || self.rows.iter().any(|it| step_of(it) == of && copied.contains(it.key.as_str()));
            let is_known = self.playbook.is_none() || goes_on.contains(row.key.as_str());
            if is_copied || (of != row.key && has_copied()) || is_known {
                items.push(NewItem { copied: is_copied, ..self.as_new(row) });
            }
        }
        for item in items.iter_mut().filter(|item| goes_on.contains(item.key.as_str())) {
            item.details.insert(AGAIN.to_owned(), json!(true));
        }
        // A run lists its steps in their order, whatever order they became known in.
        let place = |item: &NewItem| self.rows.iter().position(|row| row.key == item.key);
        items.sort_by_key(|item| (self.order(&item.key), place(item).unwrap_or(usize::MAX)));
        let is_none_done = items.iter().all(|item| !item.copied);
        match from {
            ReplayFrom::Step(step) if is_none_done && self.waits(step)? => {
                refused("from", format!("nothing before {step:?} is done: repeat the whole run"))
            }
            _ => Ok(items),
        }
    }

    /// One of the copies said that nothing more was needed: what had begun by then, and did not complete, is what is left.
    fn goes_on_after_a_finish(&self, copied: &HashSet<&str>) -> HashSet<&str> {
        let is_copied = |row: &&ItemRow| copied.contains(row.key.as_str());
        if !self.rows.iter().filter(is_copied).any(is_finish) {
            return HashSet::new();
        }
        let is_left =
            |row: &&ItemRow| row.started_at.is_some() && !is_copied(row) && row.role != Role::Cleanup;
        self.rows.iter().filter(is_left).map(|row| row.key.as_str()).collect()
    }

    /// Whether anything comes before a step.
    fn waits(&self, step: &str) -> Result<bool> {
        let key = self.key_of(step)?;
        Ok(match self.playbook.and_then(|playbook| playbook.step(key)) {
            Some(step) => !step.before.is_empty(),
            None => self.rows.first().is_some_and(|row| step_of(row) != key),
        })
    }

    fn as_new(&self, row: &ItemRow) -> NewItem {
        NewItem {
            kind: row.kind.clone(),
            key: row.key.clone(),
            name: row.name.clone(),
            status: None,
            max_retries: row.max_retries,
            reruns: row.reruns,
            role: row.role,
            details: planned_part(row),
            copied: false,
        }
    }

    /// Where a step stands in the playbook, steps before cleanups; where that is not known, in the old run.
    fn order(&self, key: &str) -> usize {
        let row = self.rows.iter().position(|row| row.key == key);
        let ordered = row.and_then(|at| self.rows[at].details.get("order")).and_then(Value::as_u64);
        let planned = || self.playbook.and_then(|it| it.steps.iter().position(|step| step.key == key));
        let cleanup = || self.playbook.map_or(usize::MAX, |it| it.steps.len());
        ordered.map(|at| at as usize).or_else(planned).or(row).unwrap_or_else(cleanup)
    }

    /// What a copy can be made of: it is done or was left out, and nothing undid it.
    fn may_be_copied(&self, row: &ItemRow) -> bool {
        let kind = self.old.lifecycle.counted_items();
        let state = kind.and_then(|kind| kind.state_named(&row.status).map(|state| kind.state(state)));
        let ended = match state.and_then(|state| state.outcome) {
            Some(Outcome::Succeeded) => true,
            Some(Outcome::Skipped) => was_left_out(row),
            _ => false,
        };
        ended && !row.reruns && row.role != Role::Cleanup
    }

    /// Where others are to follow it, a step that says that nothing more is needed is asked again.
    fn is_done(&self, row: &ItemRow) -> bool {
        self.may_be_copied(row) && !is_finish(row)
    }

    fn all_done(&self) -> Result<HashSet<&str>> {
        if self.old.outcome() == Some(Outcome::Succeeded) {
            return refused("from", "nothing of the run failed: repeat the whole run, or from a step");
        }
        // What was left out by its `when` is asked again: it may have been because of what failed.
        let is_kept = |row: &&ItemRow| self.may_be_copied(row) && !was_not_wanted(row);
        Ok(self.rows.iter().filter(is_kept).map(|row| row.key.as_str()).collect())
    }

    /// What stays as it is when a step runs again: all that is done and does not wait for it. What the step itself waits for must be done, or
    /// may fail and runs again.
    fn kept_from(&self, step: &str) -> Result<HashSet<&str>> {
        let key = self.key_of(step)?;
        let whole = self.rows.iter().find(|row| row.key == key).map_or(key, step_of);
        let number = |row: &ItemRow| row.details.get("number").and_then(Value::as_u64);
        let asked = self.rows.iter().find(|row| row.key == key && key != whole).and_then(number);
        // Parts that may be under way at once do not wait for one another.
        let is_parallel = self.playbook.and_then(|it| it.step(whole)).is_some_and(|step| step.parallel > 1);
        let mut kept = HashSet::new();
        for row in self.rows.iter().filter(|row| row.role != Role::Cleanup) {
            let place = match step_of(row) == whole {
                true if asked.is_some() && is_parallel && number(row) != asked => Place::Beside,
                true if asked.is_some_and(|asked| number(row) < Some(asked)) => Place::Before,
                true => Place::After,
                false => self.place(step_of(row), whole),
            };
            let is_done = self.is_done(row) && !(was_not_wanted(row) && self.sees_anew(row, whole));
            match place {
                Place::Before | Place::Beside if is_done => _ = kept.insert(row.key.as_str()),
                Place::Before if row.role == Role::Step && !row.reruns => {
                    let message = format!(
                        "{step:?} waits for {:?}, which is {}: replay from there, or what failed",
                        row.key, row.status
                    );
                    return refused("from", message);
                }
                _ => {}
            }
        }
        Ok(kept)
    }

    /// Where a step is, seen from the one that a replay begins with. Without a playbook steps follow each other.
    fn place(&self, step: &str, from: &str) -> Place {
        let places = self.playbook.map(|playbook| {
            let at = |key: &str| playbook.steps.iter().position(|step| step.key == key);
            let waits = |one: usize, other: usize| playbook.steps[one].before.binary_search(&other).is_ok();
            at(step).zip(at(from)).map(|(step, from)| (waits(from, step), waits(step, from)))
        });
        match places.unwrap_or_else(|| {
            let at = |key: &str| self.rows.iter().position(|row| step_of(row) == key);
            Some((at(step) < at(from), at(step) >= at(from)))
        }) {
            Some((true, _)) => Place::Before,
            Some((_, true)) => Place::After,
            _ => Place::Beside,
        }
    }

    /// Whether something that a step's `when` saw is not kept: what it was left out for may be otherwise then.
    fn sees_anew(&self, row: &ItemRow, from: &str) -> bool {
        let Some(step) = self.playbook.and_then(|playbook| playbook.step(step_of(row))) else { return false };
        let all = self.playbook.map(|playbook| playbook.steps.as_slice()).unwrap_or_default();
        let before: Vec<&str> = step.before.iter().map(|at| all[*at].key.as_str()).collect();
        let is_anew =
            |row: &&ItemRow| before.contains(&step_of(row)) && (step_of(row) == from || !self.is_done(row));
        self.rows.iter().any(|row| is_anew(&row))
    }

    /// By its key, or by the name that people see.
    fn key_of<'s>(&'s self, step: &'s str) -> Result<&'s str> {
        let of_playbook = self.playbook.is_some_and(|playbook| playbook.step(step).is_some());
        let by_key = self.rows.iter().any(|row| row.key == step && row.role != Role::Cleanup);
        if of_playbook || by_key {
            return Ok(step);
        }
        if let Some(row) = self.rows.iter().find(|row| row.name == step && row.role != Role::Cleanup) {
            return Ok(&row.key);
        }
        let mut keys: Vec<&str> =
            self.rows.iter().filter(|row| row.role != Role::Cleanup).map(|row| row.key.as_str()).collect();
        let planned = self.playbook.into_iter().flat_map(|it| &it.steps).map(|step| step.key.as_str());
        keys.extend(planned);
        let mut known = HashSet::new();
        keys.retain(|key| known.insert(*key));
        refused("from", format!("the run has no step {step:?}; {}", instead_of(step, &keys)))
    }
}

/// What a step is to the one that a replay begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// That one waits for it.
    Before,
    /// It is that one, or waits for it.
    After,
    /// Neither waits for the other.
    Beside,
}

/// The step that an item is, or is a part of.
fn step_of(row: &ItemRow) -> &str {
    row.details.get("of").and_then(Value::as_str).unwrap_or(&row.key)
}
