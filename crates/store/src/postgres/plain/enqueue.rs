//! New runs that are alike, in one statement.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use waypost_kernel::decide::{self, NewRun as Birth};
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::{Lifecycle, Time};

use super::super::fault::{Fault, Result, damaged};
use super::super::known::Known;
use super::super::save::text;
use super::super::session::Session;
use super::super::sql::{Columns, args, time};
use super::{MOST, is_claimed_plainly};
use crate::error::StoreError;
use crate::run::RunRow;
use crate::tokens::{random, who};
use crate::verbs::{Enqueued, NewRun};
use crate::{birth, codec};

/// Runs that are alike in all that has a column, but for id, input and metadata.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Alike<'a> {
    state: i16,
    tenant: &'a str,
    queue: &'a str,
    priority: i16,
    max_attempts: i32,
    actor: &'static str,
    by: &'a str,
}

pub async fn enqueue(
    session: &Session,
    runs: &[NewRun],
    answers: &mut [Option<Result<Enqueued, StoreError>>],
) -> Result<()> {
    let plain = &session.0.plain;
    let Some(now) = plain.now() else { return Ok(()) };
    let known = session.known();
    let opened = plain.lanes_opened();
    let has_lane = |new: &NewRun| {
        opened.iter().any(|(queue, priority)| (queue, *priority) == (&new.queue, new.priority))
    };
    let mut groups: HashMap<Alike<'_>, Vec<(usize, Born)>> = HashMap::new();
    for (at, new) in runs.iter().enumerate().filter(|(at, _)| answers[*at].is_none()) {
        if !brings_nothing_special(new) || !has_lane(new) {
            continue;
        }
        if let Some((alike, born)) = born(new, &known, now) {
            groups.entry(alike).or_default().push((at, born));
        }
    }
    for (alike, mut group) in groups {
        while !group.is_empty() {
            let rest = group.split_off(group.len().min(MOST));
            let written = insert_born(session, alike, &group).await;
            answer_born(group, &written.map_err(Fault::told), answers);
            group = rest;
        }
    }
    Ok(())
}

fn answer_born(
    group: Vec<(usize, Born)>,
    written: &Result<Time, StoreError>,
    answers: &mut [Option<Result<Enqueued, StoreError>>],
) {
    for (place, born) in group {
        let mut run = born.row;
        answers[place] = Some(written.clone().map(|at| {
            run.run.created_at = at;
            run.run.available_at = Some(at);
            Enqueued { run: *run, replayed: false }
        }));
    }
}

fn brings_nothing_special(new: &NewRun) -> bool {
    let texts = [
        &new.idempotency_key,
        &new.concurrency_key,
        &new.correlation_id,
        &new.parent_run_id,
        &new.retry_of,
        &new.playbook,
    ];
    texts.iter().all(|text| text.is_none())
        && new.schedule_at.is_none()
        && new.ttl.is_none()
        && new.carried.is_none()
        && new.items.is_empty()
        && new.details.is_empty()
        && !new.reentrant
}

/// A run before it is written, and its columns.
struct Born {
    row: Box<RunRow>,
    metadata: String,
    effect: Option<String>,
}

/// Nothing: the general way says why, or does more.
fn born<'a>(new: &'a NewRun, known: &Known, now: Time) -> Option<(Alike<'a>, Born)> {
    let lifecycle: Arc<Lifecycle> = match new.version {
        Some(version) => known.catalog.get(&new.lifecycle, version).cloned()?,
        None => known.catalog.latest(&new.lifecycle).cloned()?,
    };
    let id = lifecycle.ids.as_ref().filter(|_| lifecycle.kind == Kind::Run)?.make(now, random());
    let birth =
        Birth { id: &id, state: new.status.as_deref(), max_attempts: new.max_attempts, ..Birth::default() };
    let change = decide::create(&lifecycle, &birth, &who(new.actor, &new.by), now).ok()?;
    let [event] = &change.events[..] else { return None };
    let metadata = text(&new.metadata);
    let effect = match codec::effect_json(event, &lifecycle) {
        // Mostly there is nothing else, and what is written out already need not be copied first.
        None => (!new.metadata.is_empty()).then(|| format!("{{\"metadata\":{metadata}}}")),
        mut effect => {
            codec::add_patch(&mut effect, "metadata", &new.metadata);
            effect.as_ref().map(Value::to_string)
        }
    };
    let state = known.code(&lifecycle, change.after.state).ok()?;
    let row = Box::new(birth::row_of(new, change.after, lifecycle));
    if !is_claimed_plainly(&row) || row.run.expires_at.is_some() || row.run.seq != 1 {
        return None;
    }
    let alike = Alike {
        state,
        tenant: &new.tenant,
        queue: &new.queue,
        priority: new.priority,
        max_attempts: row.run.max_attempts as i32,
        actor: new.actor.name(),
        by: &new.by,
    };
    Some((alike, Born { row, metadata, effect }))
}

/// Gives their instant.
async fn insert_born(session: &Session, alike: Alike<'_>, group: &[(usize, Born)]) -> Result<Time> {
    macro_rules! column {
        ($it:ident: $value:expr) => {
            group.iter().map(|(_, $it)| $value).collect::<Vec<_>>()
        };
    }
    let (rows, client) = session
        .statement(
            "SELECT at FROM waypost.enqueue_alike($1, true, $2, $3, $4, $5, $6, $7, $8, $9::text[]::json[], $10::text[]::jsonb[], $11::text[]::json[])",
            args![
                alike.state,
                alike.tenant,
                alike.queue,
                alike.priority,
                alike.max_attempts,
                alike.actor,
                alike.by,
                column!(it: it.row.id()),
                column!(it: it.row.input.to_string()),
                column!(it: it.metadata.as_str()),
                column!(it: it.effect.as_deref()),
            ],
        )
        .await?;
    session.0.bell.ring(true, &client).await;
    let row = rows.first().ok_or_else(|| damaged("no answer"))?;
    Ok(time(Columns(row).get(0)?))
}
