//! New runs, and rows that are born held.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use waypost_kernel::decide::{self, NewRun as Birth};
use waypost_kernel::item::Item;
use waypost_kernel::{Actor, Lifecycle, Phase, Run, Span};

use super::born::Texts;
use super::claim::Taken;
use super::open::database;
use super::row::{self, Stored};
use super::save::prepare;
use super::session::Tx;
use super::{born, claim, items};
use crate::error::{Result, StoreError};
use crate::run::{self, RunRow};
use crate::tokens::{fresh, who};
use crate::verbs::{Each, NewRun, Take};
use crate::{birth, intake};

/// A request for a run, checked and written out before the writer's turn comes.
#[derive(Debug)]
pub struct Asked {
    new: NewRun,
    texts: Texts,
}

impl Asked {
    pub fn of(new: NewRun) -> Result<Asked> {
        intake::check_new(&new)?;
        let texts = Texts::of(&new);
        Ok(Asked { new, texts })
    }
}

/// A run, and whether its key was known.
pub type Queued = (Arc<RunRow>, bool);

pub fn enqueue(tx: &Tx<'_>, runs: Vec<Result<Asked>>) -> Result<Each<Queued>> {
    let mut answers = Vec::with_capacity(runs.len());
    for run in runs {
        match run.and_then(|asked| one(tx, asked)) {
            // The kernel and the checks refuse before anything is written; only the database fails halfway.
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unusable(_))) => return Err(error),
            answer => answers.push(answer),
        }
    }
    Ok(answers)
}

fn one(tx: &Tx<'_>, asked: Asked) -> Result<Queued> {
    let lifecycle = lifecycle(tx, &asked.new)?;
    if let Some(known) = known(tx, &asked.new, asked.texts.fingerprint())? {
        return Ok((known.row, true));
    }
    Ok((insert(tx, asked, &lifecycle, None)?.row, false))
}

fn lifecycle(tx: &Tx<'_>, new: &NewRun) -> Result<Arc<Lifecycle>> {
    let found = match new.version {
        Some(version) => tx.lifecycle(&new.lifecycle, version).ok(),
        None => tx.latest(&new.lifecycle),
    };
    found
        .filter(|lifecycle| lifecycle.kind == waypost_kernel::lifecycle::Kind::Run)
        .ok_or_else(|| birth::unknown_lifecycle(new, &tx.catalog()))
}

/// The run that this key made before, if its body was the same.
fn known(tx: &Tx<'_>, new: &NewRun, fingerprint: Option<&str>) -> Result<Option<Stored>> {
    let Some(key) = &new.idempotency_key else { return Ok(None) };
    let found: Option<(String, Option<String>)> =
        prepare(tx, "SELECT run_id, fingerprint FROM run_born WHERE tenant = ?1 AND idempotency_key = ?2")?
            .query_row(params![new.tenant, key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(|error| database(&error))?;
    match found {
        None => Ok(None),
        Some((run_id, stored)) if fingerprint.is_some() && stored.as_deref() != fingerprint => {
            Err(StoreError::KeyReused { key: key.clone(), run_id })
        }
        Some((run_id, _)) => row::by_id(tx, &run_id).map(Some),
    }
}

fn insert(tx: &Tx<'_>, asked: Asked, lifecycle: &Arc<Lifecycle>, lease: Option<Span>) -> Result<Stored> {
    let Asked { new, texts } = asked;
    let first = birth::first_items(&new, lifecycle)?;
    let kernel_items: Vec<Item> = first.iter().map(|(_, item)| item.clone()).collect();
    let id = lifecycle.ids.as_ref().map(|ids| ids.make(tx.now, tx.random_rising())).unwrap_or_default();
    let birth = Birth {
        id: &id,
        state: new.status.as_deref(),
        available_at: new.schedule_at,
        ttl: new.ttl,
        lease,
        max_attempts: new.max_attempts,
        reentrant: new.reentrant,
        note: None,
        items: &kernel_items,
    };
    // Only a worker's run is born with a lease.
    let who = if new.actor == Actor::Worker { who(new.actor, &new.by) } else { tx.who(new.actor, &new.by) };
    let change = decide::create(lifecycle, &birth, &who, tx.now)?;
    for (place, (new, item)) in first.iter().enumerate() {
        items::insert(tx, &id, lifecycle, place, (new, item), 1)?;
    }
    // A run is born with one event.
    born::insert(tx, row_of(new, change.after, lifecycle.clone()), &texts, &change.events[0])
}

/// As `birth::row_of`, without copying what was asked for.
fn row_of(new: NewRun, run: Run, lifecycle: Arc<Lifecycle>) -> RunRow {
    RunRow {
        run,
        lifecycle,
        tenant: new.tenant,
        queue: new.queue,
        priority: new.priority,
        schedule_at: new.schedule_at,
        concurrency_key: new.concurrency_key,
        correlation_id: new.correlation_id,
        idempotency_key: new.idempotency_key,
        parent_run_id: new.parent_run_id,
        retry_of: new.retry_of,
        playbook: new.playbook,
        carried: new.carried,
        input: new.input.into(),
        metadata: run::shared(new.metadata),
        details: run::shared(new.details),
    }
}

/// Born held: the unique key lets one claimer win; later ones may retry or steal what is there.
pub fn claim_plan(tx: &Tx<'_>, asked: Asked, lease: Option<Span>) -> Result<Option<Taken>> {
    let lifecycle = born_held(tx, &asked.new)?;
    let Some(mut stored) = known(tx, &asked.new, None)? else {
        return insert(tx, asked, &lifecycle, lease).map(|stored| Some(Taken::of(tx, stored)));
    };
    match claim::take(tx, &mut stored, &Take { worker: asked.new.by.clone(), lease, start: false }, fresh()) {
        Ok(()) => Ok(Some(Taken::of(tx, stored))),
        Err(StoreError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn born_held(tx: &Tx<'_>, new: &NewRun) -> Result<Arc<Lifecycle>> {
    intake::check_name("by", &new.by)?;
    if new.idempotency_key.is_none() {
        return Err(StoreError::invalid("idempotency_key", "a plan needs its unique key"));
    }
    let lifecycle = lifecycle(tx, new)?;
    if !lifecycle.initial.iter().any(|state| lifecycle.phase(*state) == Phase::Held) {
        return Err(StoreError::invalid("lifecycle", format!("a {} run is not born held", lifecycle.name)));
    }
    Ok(lifecycle)
}

/// A run of a plan that is born held; one that has its key already is not taken in its place.
pub fn new_held(tx: &Tx<'_>, asked: Asked, lease: Option<Span>) -> Result<Taken> {
    let lifecycle = born_held(tx, &asked.new)?;
    refuse_known(tx, &asked.new)?;
    insert(tx, asked, &lifecycle, lease).map(|stored| Taken::of(tx, stored))
}

/// The same, for a queue.
pub fn new_queued(tx: &Tx<'_>, asked: Asked) -> Result<Arc<RunRow>> {
    let lifecycle = lifecycle(tx, &asked.new)?;
    refuse_known(tx, &asked.new)?;
    insert(tx, asked, &lifecycle, None).map(|stored| stored.row)
}

fn refuse_known(tx: &Tx<'_>, new: &NewRun) -> Result<()> {
    match known(tx, new, None)? {
        None => Ok(()),
        Some(stored) => Err(StoreError::KeyReused {
            key: new.idempotency_key.clone().unwrap_or_default(),
            run_id: stored.row.id().to_owned(),
        }),
    }
}
