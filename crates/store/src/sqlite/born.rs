//! A new run's two rows: what stays, which is also its first event, and what moves.

use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::Time;
use waypost_kernel::event::Event;

use super::limits;
use super::moves;
use super::row::Stored;
use super::save::{refused, text};
use super::session::Tx;
use crate::codec;
use crate::error::Result;
use crate::fingerprint::fingerprint;
use crate::run::RunRow;
use crate::verbs::NewRun;

const BORN: u32 = (1 << 31) + 1;
const NOW: u32 = (1 << 31) + 2;

/// What is written as text, made before the writer's turn comes.
#[derive(Clone, Debug)]
pub struct Texts {
    input: String,
    metadata: Option<String>,
    details: Option<String>,
    carried: Option<String>,
    fingerprint: Option<String>,
}

impl Texts {
    pub fn of(new: &NewRun) -> Texts {
        let full = |map: &Map<String, Value>| Some(map).filter(|map| !map.is_empty()).map(text);
        Texts {
            input: new.input.to_string(),
            metadata: full(&new.metadata),
            details: full(&new.details),
            carried: new.carried.as_ref().map(Value::to_string),
            fingerprint: new.idempotency_key.is_some().then(|| fingerprint(new)),
        }
    }

    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    fn bytes(&self) -> usize {
        let rest = [&self.metadata, &self.details, &self.carried];
        self.input.len() + rest.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

pub fn insert(tx: &Tx<'_>, row: RunRow, texts: &Texts, event: &Event) -> Result<Stored> {
    let code = tx.code(&row.lifecycle, event.to)?;
    let rid = now(tx, code, &row)?;
    stays(tx, rid, code, &row, texts, event)?;
    let stored = Stored { rid, row: Arc::new(row), last: None, bytes: texts.bytes() };
    tx.kept.rows.borrow_mut().put(&stored);
    Ok(stored)
}

fn stays(tx: &Tx<'_>, rid: i64, code: i64, row: &RunRow, texts: &Texts, event: &Event) -> Result<()> {
    let run = &row.run;
    let position = tx.positions(1)?;
    let inserted = tx.kept_statement(
        BORN,
        || {
            "INSERT OR FAIL INTO run_born(rid, position, run_id, tenant, state, at, command, actor, who, max_attempts, reentrant, \
             schedule_at, correlation_id, idempotency_key, fingerprint, parent_run_id, retry_of, playbook, carried, effect, \
             metadata, details, input) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
             ?18, ?19, ?20, ?21, ?22, ?23)"
                .into()
        },
        |bind| {
            bind.put(rid)?;
            bind.put(position)?;
            bind.put(&*run.id)?;
            bind.put(&row.tenant)?;
            bind.put(code)?;
            bind.put(event.at.ms())?;
            bind.put(&*event.command)?;
            bind.put(event.actor.name())?;
            bind.put(&*event.by)?;
            bind.put(run.max_attempts)?;
            bind.put(run.reentrant)?;
            bind.put(row.schedule_at.map(Time::ms))?;
            bind.put(&row.correlation_id)?;
            bind.put(&row.idempotency_key)?;
            bind.put(&texts.fingerprint)?;
            bind.put(&row.parent_run_id)?;
            bind.put(&row.retry_of)?;
            bind.put(&row.playbook)?;
            bind.put(&texts.carried)?;
            bind.put(codec::effect_json(event, &row.lifecycle).map(|effect| effect.to_string()))?;
            bind.put(&texts.metadata)?;
            bind.put(&texts.details)?;
            bind.put(&texts.input)?;
            bind.execute()
        },
    );
    inserted.map(drop).map_err(|error| refused(&error))
}

/// Gives the run's place.
fn now(tx: &Tx<'_>, code: i64, row: &RunRow) -> Result<i64> {
    let run = &row.run;
    let blocked = limits::starts_aside(tx, row)?;
    let inserted = tx.kept_statement(
        NOW,
        || {
            "INSERT OR FAIL INTO run_now(state, seq, queue, priority, blocked, due_at, attempt, fence, token, claimed_by, \
             lease_ms, last_command, started_at, expires_at, concurrency_key, items) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
                .into()
        },
        |bind| {
            bind.put(code)?;
            bind.put(run.seq)?;
            bind.put(&row.queue)?;
            bind.put(row.priority)?;
            bind.put(blocked)?;
            bind.put(moves::due_at(run).map(Time::ms))?;
            bind.put(run.attempt)?;
            bind.put(run.fence)?;
            bind.put(moves::token(run))?;
            bind.put(moves::claimed_by(run))?;
            bind.put(moves::lease_ms(run))?;
            bind.put(&*run.last_command)?;
            bind.put(run.started_at.map(Time::ms))?;
            bind.put(run.expires_at.map(Time::ms))?;
            bind.put(&row.concurrency_key)?;
            bind.put(run.tallies.iter().flat_map(|tally| &tally.by_state).sum::<u32>())?;
            bind.execute()
        },
    );
    inserted.map_err(|error| refused(&error))?;
    Ok(tx.conn.last_insert_rowid())
}
