//! New runs, and rows that are born held.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use waypost_kernel::decide::{self, NewRun as Birth};
use waypost_kernel::item::Item;
use waypost_kernel::{Lifecycle, Phase, Span};

use super::open::database;
use super::row::{self, Stored};
use super::save::{self, Extra, prepare};
use super::session::Tx;
use super::{claim, items};
use crate::error::{Result, StoreError};
use crate::tokens::{fresh, random, who};
use crate::verbs::{Claimed, Each, Enqueued, NewRun};
use crate::{birth, intake};

pub fn enqueue(tx: &Tx<'_>, runs: Vec<NewRun>) -> Result<Each<Enqueued>> {
    let mut answers = Vec::with_capacity(runs.len());
    for run in runs {
        match one(tx, &run) {
            // The kernel and the checks refuse before anything is written; only the database fails halfway.
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unusable(_))) => return Err(error),
            answer => answers.push(answer),
        }
    }
    Ok(answers)
}

fn one(tx: &Tx<'_>, new: &NewRun) -> Result<Enqueued> {
    intake::check_new(new)?;
    let lifecycle = lifecycle(tx, new)?;
    let fingerprint = new.idempotency_key.is_some().then(|| crate::fingerprint::fingerprint(new));
    if let Some(known) = known(tx, new, fingerprint.as_deref())? {
        return Ok(Enqueued { run: known.row, replayed: true });
    }
    let stored = insert(tx, new, &lifecycle, fingerprint.as_deref(), None)?;
    Ok(Enqueued { run: stored.row, replayed: false })
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
        prepare(tx, "SELECT run_id, fingerprint FROM runs WHERE tenant = ?1 AND idempotency_key = ?2")?
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

fn insert(
    tx: &Tx<'_>,
    new: &NewRun,
    lifecycle: &Arc<Lifecycle>,
    fingerprint: Option<&str>,
    lease: Option<Span>,
) -> Result<Stored> {
    let first = birth::first_items(new, lifecycle)?;
    let kernel_items: Vec<Item> = first.iter().map(|(_, item)| item.clone()).collect();
    let random = random();
    let id = lifecycle.ids.as_ref().map(|ids| ids.make(tx.now, random)).unwrap_or_default();
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
    let change = decide::create(lifecycle, &birth, &who(new.actor, &new.by), tx.now)?;
    for (place, (new, item)) in first.iter().enumerate() {
        items::insert(tx, &id, lifecycle, place, (new, item), 1)?;
    }
    let row = birth::row_of(new, change.after, lifecycle.clone());
    let rid = save::insert_run(tx, &row, fingerprint)?;
    let extra = Extra { metadata: new.metadata.clone(), details: new.details.clone(), key: None };
    for event in &change.events {
        save::insert_event(tx, rid, lifecycle, event, Some(&extra))?;
    }
    Ok(Stored { rid, row })
}

/// Born held: the unique key lets one claimer win; later ones may retry or steal what is there.
pub fn claim_plan(tx: &Tx<'_>, new: &NewRun, lease: Option<Span>) -> Result<Option<Claimed>> {
    intake::check_new(new)?;
    intake::check_name("by", &new.by)?;
    if new.idempotency_key.is_none() {
        return Err(StoreError::invalid("idempotency_key", "a plan needs its unique key"));
    }
    let lifecycle = lifecycle(tx, new)?;
    if !lifecycle.initial.iter().any(|state| lifecycle.phase(*state) == Phase::Held) {
        return Err(StoreError::invalid("lifecycle", format!("a {} run is not born held", lifecycle.name)));
    }
    let Some(mut stored) = known(tx, new, None)? else {
        let stored = insert(tx, new, &lifecycle, None, lease)?;
        return claim::claimed(tx, stored.row).map(Some);
    };
    match claim::take(tx, &mut stored, &new.by, lease, fresh()) {
        Ok(()) => claim::claimed(tx, stored.row).map(Some),
        Err(StoreError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
