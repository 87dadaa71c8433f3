//! Runs that name a playbook: what the playbook says of them is looked up where the run comes in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use waypost_kernel::Catalog;
use waypost_store::NewRun;
use waypost_worker::playbook::known::{self, Known, LeftOpen, NotKnown};
use waypost_worker::playbook::{self, CannotStart, Playbook, Playbooks};

use crate::answer::Result;
use crate::call::Call;
use crate::problem::{INVALID_INPUT, Problem};

/// A client that starts many runs by one name has it looked up once in this time.
const FRESH: Duration = Duration::from_secs(1);
/// Names that are remembered.
const MOST: usize = 1_000;

/// When it was looked up, and what there was.
type Found = (Instant, Catalog, Option<Arc<Playbook>>);

/// What was looked up lately, by tenant and name.
#[derive(Default)]
pub struct Lately(Mutex<HashMap<(String, String), Found>>);

impl Lately {
    fn get(&self, key: &(String, String)) -> Option<(Catalog, Option<Arc<Playbook>>)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, catalog, playbook) = known.get(key)?;
        (at.elapsed() < FRESH).then(|| (catalog.clone(), playbook.clone()))
    }

    fn put(&self, key: (String, String), catalog: Catalog, playbook: Option<Arc<Playbook>>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, (Instant::now(), catalog, playbook));
    }
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
/// `may_be_unknown`: a name that nobody has yet is taken as it is.
pub async fn filled(
    call: &Call,
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
    let key = (call.caller.tenant.clone(), name.clone());
    let (catalog, playbook) = match call.app.lately.get(&key) {
        Some(found) => found,
        None => {
            let catalog = call.store().lifecycles().await?.of_tenant(&call.caller.tenant);
            let playbook = match known(call, &catalog, &name).await {
                Ok(known) => known.playbook,
                Err(NotKnown::Unknown(_)) if may_be_unknown => None,
                Err(NotKnown::Unknown(words)) => {
                    let message =
                        format!("{words}; `\"unknown_playbook\": true` takes a name that nobody has yet");
                    return Err(Problem::field(&INVALID_INPUT, "playbook", &message));
                }
                Err(error) => return Err(problem(error)),
            };
            // Whether somebody has it matters to the next one who asks, and may change at once.
            if playbook.is_some() {
                call.app.lately.put(key, catalog.clone(), playbook.clone());
            }
            (catalog, playbook)
        }
    };
    let Some(playbook) = playbook else { return needs_lifecycle(new) };
    let new = known::fill(&playbook, &catalog, new, open).map_err(cannot_start)?;
    Ok((new, Some(playbook)))
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
        CannotStart::Key(_) => Problem::field(&INVALID_INPUT, "concurrency_key", &error.to_string()),
        CannotStart::BulkChange => Problem::field(&INVALID_INPUT, "playbook", &error.to_string()),
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
