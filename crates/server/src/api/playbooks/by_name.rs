//! Runs that name a playbook: what the playbook says of them is looked up where the run comes in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use waypost_kernel::{Catalog, Phase};
use waypost_store::{NewRun, OfferedPlaybook, PlaybookRow, RunRow, StoreError};
use waypost_worker::playbook::known::{self, Known, LeftOpen, NotKnown};
use waypost_worker::playbook::{self, CannotStart, Playbook, Playbooks};
use waypost_worker::targets::{asked_about, preview_of, with_origin};

use crate::answer::Result;
use crate::call::Call;
use crate::problem::{INVALID_INPUT, Problem};

/// How long what was read of a version serves.
const FRESH: Duration = Duration::from_secs(1);
/// Names that are remembered.
const MOST: usize = 1_000;

/// Names that runs are started by. However many ask for one at once, two look it up in turn: whoever came before a look-up began needs none
/// of its own, and nobody misses what was offered before it asked.
#[derive(Default)]
pub struct Lookups(Mutex<HashMap<(String, String), Slot>>);

/// Held by whoever looks up.
type Slot = Arc<tokio::sync::Mutex<Option<Found>>>;

struct Found {
    began: Instant,
    offered: Option<Offered>,
}

#[derive(Clone)]
struct Offered {
    row: OfferedPlaybook,
    read_at: Instant,
    /// None: a handler that is compiled into a worker.
    definition: Option<(Catalog, Arc<Playbook>)>,
}

impl Lookups {
    fn slot(&self, key: (String, String)) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MOST && !slots.contains_key(&key) {
            slots.clear();
        }
        slots.entry(key).or_default().clone()
    }
}

/// What the caller's tenant means by a name; none if nobody has it.
async fn look_up(
    call: &Call,
    name: &str,
    asked_at: Instant,
) -> std::result::Result<Option<Offered>, NotKnown> {
    let tenant = &call.caller.tenant;
    let slot = call.app.lookups.slot((tenant.clone(), name.to_owned()));
    let mut last = slot.lock().await;
    if let Some(found) = last.as_ref().filter(|found| found.began >= asked_at) {
        return Ok(found.offered.clone());
    }
    let began = Instant::now();
    let known = last.take().and_then(|found| found.offered).filter(|it| it.read_at.elapsed() < FRESH);
    let row = known::offered_as(call.store(), tenant, name, known.is_some()).await?;
    let is_same =
        |it: &Offered, row: &OfferedPlaybook| (&it.row.tenant, &it.row.hash) == (&row.tenant, &row.hash);
    let offered = match (row, known) {
        (None, _) => None,
        (Some(row), Some(known)) if is_same(&known, &row.offered) => Some(known),
        (Some(row), None) => Some(read(call, row).await?),
        (Some(_), Some(_)) => match known::offered_as(call.store(), tenant, name, false).await? {
            Some(row) => Some(read(call, row).await?),
            None => None,
        },
    };
    *last = Some(Found { began, offered: offered.clone() });
    Ok(offered)
}

async fn read(call: &Call, row: PlaybookRow) -> std::result::Result<Offered, NotKnown> {
    let read_at = Instant::now();
    let catalog = call.store().lifecycles().await?.of_tenant(&call.caller.tenant);
    let Known { mut offered, playbook, .. } = Known::of_row(row, &catalog)?;
    offered.text.clear();
    Ok(Offered { row: offered, read_at, definition: playbook.map(|playbook| (catalog, playbook)) })
}

pub async fn known(call: &Call, catalog: &Catalog, asked: &str) -> std::result::Result<Known, NotKnown> {
    known::find(call.store(), &Playbooks::default(), catalog, &call.caller.tenant, asked).await
}

pub fn problem(error: NotKnown) -> Problem {
    match error {
        NotKnown::Store(error) => error.into(),
        NotKnown::Unknown(words) | NotKnown::Unsound(words) => {
            Problem::field(&INVALID_INPUT, "playbook", &words)
        }
    }
}

/// A run by a playbook's name, with what the playbook says of it. One that brings its playbook along says so itself.
/// `asked_at`: what was offered before counts. `may_be_unknown`: a name that nobody has yet is taken as it is.
pub async fn filled(
    call: &Call,
    asked_at: Instant,
    new: NewRun,
    open: LeftOpen,
    may_be_unknown: bool,
) -> Result<(NewRun, Option<Arc<Playbook>>)> {
    let name = new.playbook.clone().filter(|_| new.carried.is_none());
    let needs_lifecycle = |new: NewRun| match open.lifecycle {
        true => {
            let message = "is missing: name one, or a playbook that is known here, which has its own";
            Err(Problem::field(&INVALID_INPUT, "lifecycle", message))
        }
        false => Ok((new, None)),
    };
    let Some(name) = name else { return needs_lifecycle(new) };
    if is_operation(call, &new).await? {
        return Ok((new, None));
    }
    let definition = match look_up(call, &name, asked_at).await.map_err(problem)? {
        Some(Offered { row, definition: None, .. }) if open.lifecycle => {
            let message = known::of_handler(call.store(), &call.caller.tenant, &row).await?;
            return Err(Problem::field(&INVALID_INPUT, "lifecycle", &message));
        }
        Some(offered) => offered.definition,
        None if may_be_unknown => None,
        None => {
            let words =
                known::unknown(call.store(), &Playbooks::default(), &call.caller.tenant, &name).await?;
            let message = format!("{words}; `\"unknown_playbook\": true` takes a name that nobody has yet");
            return Err(Problem::field(&INVALID_INPUT, "playbook", &message));
        }
    };
    let Some((catalog, playbook)) = definition else { return needs_lifecycle(new) };
    let new = known::fill(&playbook, &catalog, new, open).map_err(cannot_start)?;
    Ok((with_origin(new, playbook.rule.is_some(), "api"), Some(playbook)))
}

/// Whether it is an operation on a run of the same playbook, such as workers and command lines ask for from elsewhere: there is nothing to fill in,
/// and its input is not the playbook's.
async fn is_operation(call: &Call, new: &NewRun) -> Result<bool> {
    let Some(about) = asked_about(new) else { return Ok(false) };
    match call.store().run(new.tenant.clone(), about.to_owned()).await {
        Ok(run) => Ok(run.playbook == new.playbook),
        Err(StoreError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What parts of lists are for is what they were for in the run that is repeated.
pub async fn with_parts(call: &Call, new: &mut NewRun) -> Result<()> {
    known::recall_parts(call.store(), new).await.map_err(|error| match error {
        NotKnown::Store(error) => error.into(),
        error => Problem::field(&INVALID_INPUT, "items", &error.to_string()),
    })
}

/// A bulk change by name: a run of its own gathers the targets, on a worker that has the playbook. Whoever repeats one says which targets it
/// has: all over again (`replay`), or those that a reconciliation found changed.
pub async fn gathered(call: &Call, run: &RunRow, playbook: Option<&Playbook>) -> Result<()> {
    let is_bulk = playbook.is_some_and(|playbook| playbook.rule.is_some());
    if is_bulk && run.phase() == Phase::Draft && run.carried.is_none() && run.retry_of.is_none() {
        call.store().enqueue(vec![preview_of(run, &call.caller.by(None))]).await?.remove(0)?;
    }
    Ok(())
}

/// All that is wrong with the inputs, each with its name and what is allowed.
pub fn cannot_start(error: CannotStart) -> Problem {
    match error {
        CannotStart::Inputs(problems) => {
            let detail = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            let errors: Vec<Value> = problems
                .iter()
                .map(|it| {
                    let at = if it.input.is_empty() { String::new() } else { format!("/{}", it.input) };
                    json!({ "pointer": format!("/input{at}"), "detail": format!("{}; {}", it.message, it.mend) })
                })
                .collect();
            Problem::new(&INVALID_INPUT, detail).with("errors", errors).with("field", "input")
        }
        CannotStart::OtherLifecycle { .. } | CannotStart::UnknownLifecycle(_) => {
            Problem::field(&INVALID_INPUT, "lifecycle", &error.to_string())
        }
        CannotStart::Items(message) => Problem::field(&INVALID_INPUT, "items", &message),
        CannotStart::Key(_) => Problem::field(&INVALID_INPUT, "concurrency_key", &error.to_string()),
    }
}

/// What would become of a request; nothing is written.
pub async fn preview(call: &Call, new: &NewRun, playbook: Option<&Playbook>) -> Result<Value> {
    let known = call.store().dry_run(new.clone()).await?;
    let catalog = call.store().lifecycles().await?.of_tenant(&new.tenant);
    let lifecycle = match new.version {
        Some(version) => catalog.get(&new.lifecycle, version),
        None => catalog.latest(&new.lifecycle),
    };
    let Some(lifecycle) = lifecycle else {
        return Err(Problem::field(&INVALID_INPUT, "lifecycle", &format!("there is no {:?}", new.lifecycle)));
    };
    let mut plan = playbook::preview(new, lifecycle, playbook);
    plan["run_id"] = json!(known);
    Ok(plan)
}
