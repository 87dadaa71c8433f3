//! New runs, and rows that are born held.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use waypost_kernel::decide::{self, NewRun as Birth};
use waypost_kernel::event::Event;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::{Lifecycle, Phase, Span};

use super::children;
use super::claim;
use super::fault::{Fault, Patience, Result};
use super::items::{self, BornItem};
use super::plain;
use super::row::{self, Stored, stale_after};
use super::save::{Extra, item_count, text};
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp, uuid};
use super::trail::Trail;
use crate::error::StoreError;
use crate::tokens::{fresh, random, who};
use crate::verbs::{Claimed, Each, Enqueued, NewRun, Take};
use crate::{birth, intake};

/// A key that others insert and take back at the same time is looked for again this often.
const ROUNDS: usize = 20;

/// Several rounds only where keys meet: whoever is faster has made the run, and the others find it.
pub async fn enqueue(session: &Session, runs: &[NewRun]) -> Result<Each<Enqueued>> {
    let mut answers: Vec<Option<Result<Enqueued, StoreError>>> = runs.iter().map(|_| None).collect();
    for (run, answer) in runs.iter().zip(&mut answers) {
        *answer = intake::check_new(run).err().map(Err);
    }
    plain::enqueue(session, runs, &mut answers).await?;
    let mut patience = Patience::default();
    for _ in 0..ROUNDS {
        let open: Vec<usize> = (0..runs.len()).filter(|at| answers[*at].is_none()).collect();
        if open.is_empty() {
            break;
        }
        match round(session, runs, &open).await {
            Ok(found) => {
                let made = found.iter().filter_map(|(_, answer)| answer.as_ref().ok()).map(|made| &made.run);
                let ready = made.filter(|row| row.phase() == Phase::Ready);
                session.0.plain.add_lanes(ready.map(|row| (row.queue.as_str(), row.priority)));
                found.into_iter().for_each(|(at, answer)| answers[at] = Some(answer));
            }
            Err(fault) => {
                if let Err(error) = patience.with(fault).await {
                    if answers.iter().all(Option::is_none) {
                        return Err(Fault::Told(error));
                    }
                    open.into_iter().for_each(|at| answers[at] = Some(Err(error.clone())));
                }
            }
        }
    }
    let late =
        || Err(StoreError::Unavailable("its key was taken and given back each time; try again".into()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(late)).collect())
}

pub type Answers = Vec<(usize, Result<Enqueued, StoreError>)>;

async fn round(session: &Session, runs: &[NewRun], open: &[usize]) -> Result<Answers> {
    let tx = session.begin().await?;
    let answers = in_round(&tx, runs, open).await;
    tx.end(answers).await
}

pub async fn in_round(tx: &Tx, runs: &[NewRun], open: &[usize]) -> Result<Answers> {
    let known = known(tx, open.iter().map(|at| &runs[*at])).await?;
    let mut answers = Answers::new();
    let mut births = Vec::new();
    let mut keys = std::collections::HashSet::new();
    for at in open {
        let new = &runs[*at];
        let Some(lifecycle) = lifecycle(tx, new).await? else {
            answers.push((*at, Err(birth::unknown_lifecycle(new, &tx.session.known().catalog))));
            continue;
        };
        let key = new.idempotency_key.as_ref().map(|key| (new.tenant.clone(), key.clone()));
        let fingerprint = key.is_some().then(|| crate::fingerprint::fingerprint(new));
        if let Some((stored, was)) = key.as_ref().and_then(|key| known.get(key)) {
            answers.push((*at, replayed(new, stored, was.as_deref(), fingerprint.as_deref())));
            continue;
        }
        // The same key twice in one list: the second finds the first in the next round.
        if key.is_some_and(|key| !keys.insert(key)) {
            continue;
        }
        match born(tx, new, &lifecycle, None) {
            Ok(birth) => births.push(Birthday { place: *at, fingerprint, ..birth }),
            Err(error) => answers.push((*at, Err(error))),
        }
    }
    let made = insert(tx, births).await?;
    answers
        .extend(made.into_iter().map(|(at, stored)| (at, Ok(Enqueued { run: stored.row, replayed: false }))));
    Ok(answers)
}

async fn lifecycle(tx: &Tx, new: &NewRun) -> Result<Option<Arc<Lifecycle>>> {
    let found = tx.lifecycle(&new.lifecycle, new.version).await?;
    Ok(found.filter(|lifecycle| lifecycle.kind == Kind::Run))
}

type Made = HashMap<(String, String), (Stored, Option<String>)>;

/// The runs that these keys made before, with their fingerprints.
async fn known(tx: &Tx, runs: impl Iterator<Item = &NewRun>) -> Result<Made> {
    let (tenants, keys): (Vec<&str>, Vec<&str>) =
        runs.filter_map(|run| Some((run.tenant.as_str(), run.idempotency_key.as_deref()?))).unzip();
    if keys.is_empty() {
        return Ok(Made::new());
    }
    let sql = "SELECT r.rid, r.fingerprint FROM waypost.runs r JOIN unnest($1, $2) AS u(tenant, key) ON r.tenant = u.tenant \
               AND r.idempotency_key = u.key AND r.idempotency_key IS NOT NULL";
    let rows = tx.query(sql, args![tenants, keys]).await?;
    let found = rows.iter().map(|row| Ok((Columns(row).get(0)?, Columns(row).get(1)?)));
    let prints: HashMap<i64, Option<String>> = found.collect::<Result<_>>()?;
    let rids: Vec<i64> = prints.keys().copied().collect();
    let mut made = Made::new();
    for stored in row::by_rids(tx, &rids).await? {
        let key = (stored.row.tenant.clone(), stored.row.idempotency_key.clone().unwrap_or_default());
        let print = prints.get(&stored.rid).cloned().flatten();
        made.insert(key, (stored, print));
    }
    Ok(made)
}

fn replayed(
    new: &NewRun,
    stored: &Stored,
    was: Option<&str>,
    is: Option<&str>,
) -> Result<Enqueued, StoreError> {
    if was == is {
        return Ok(Enqueued { run: stored.row.clone(), replayed: true });
    }
    let (key, run_id) = (new.idempotency_key.clone().unwrap_or_default(), stored.row.id().to_owned());
    Err(StoreError::KeyReused { key, run_id })
}

/// A run before it is written.
#[derive(Debug)]
struct Birthday {
    place: usize,
    row: crate::run::RunRow,
    events: Vec<(Event, Extra)>,
    items: Vec<BornItem>,
    fingerprint: Option<String>,
}

fn born(
    tx: &Tx,
    new: &NewRun,
    lifecycle: &Arc<Lifecycle>,
    lease: Option<Span>,
) -> Result<Birthday, StoreError> {
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
    let extra = Extra { metadata: new.metadata.clone(), details: new.details.clone(), key: None };
    let events = change.events.into_iter().map(|event| (event, extra.clone())).collect();
    let item = |(place, (new, item))| BornItem { place, new, item, seq: 1 };
    let items = first.into_iter().enumerate().map(item).collect();
    Ok(Birthday {
        place: 0,
        row: birth::row_of(new, change.after, lifecycle.clone()),
        events,
        items,
        fingerprint: None,
    })
}

/// Those that are not among the answer met a key that somebody else has.
async fn insert(tx: &Tx, births: Vec<Birthday>) -> Result<Vec<(usize, Stored)>> {
    if births.is_empty() {
        return Ok(Vec::new());
    }
    let parents: Vec<&str> = births.iter().filter_map(|it| it.row.parent_run_id.as_deref()).collect();
    children::expect(tx, &parents).await?;
    let sql = "SELECT nextval('waypost.rids') << 16 FROM generate_series(1, $1)";
    let rids = tx.query(sql, args![births.len() as i64]).await?;
    let rids = rids.iter().map(|row| Columns(row).get(0)).collect::<Result<Vec<i64>>>()?;
    let mut births: Vec<(i64, Birthday)> = rids.into_iter().zip(births).collect();
    let inserted = insert_runs(tx, &mut births).await?;
    births.sort_by_key(|(rid, _)| *rid);
    let mut trail = Trail::new(tx);
    let mut made = Vec::new();
    let mut born = Vec::new();
    for (rid, birth) in births.iter().filter(|(rid, _)| inserted.contains_key(rid)) {
        born.extend(birth.items.iter().map(|item| (*rid, &*birth.row.lifecycle, item)));
    }
    items::insert(tx, &born).await?;
    for (rid, birth) in births {
        let Some(counted) = inserted.get(&rid).copied() else { continue };
        trail.add((rid, counted), None, &birth.row, &birth.events)?;
        made.push((birth.place, Stored { rid, counted, row: birth.row }));
    }
    trail.write(tx).await?;
    Ok(made)
}

/// In the order of their keys: two lists with the same keys would wait for each other.
async fn insert_runs(tx: &Tx, births: &mut [(i64, Birthday)]) -> Result<HashMap<i64, bool>> {
    births.sort_by(|one, other| {
        (&one.1.row.tenant, &one.1.row.idempotency_key)
            .cmp(&(&other.1.row.tenant, &other.1.row.idempotency_key))
    });
    let known = tx.session.known();
    let codes = births.iter().map(|(_, it)| known.code(&it.row.lifecycle, it.row.run.state));
    let codes = codes.collect::<Result<Vec<_>>>()?;
    macro_rules! column {
        ($row:ident: $value:expr) => {
            births
                .iter()
                .map(|(_, it)| {
                    let $row = &it.row;
                    $value
                })
                .collect::<Vec<_>>()
        };
    }
    let rows = tx
        .query(
            INSERT,
            args![
                births.iter().map(|(rid, _)| *rid).collect::<Vec<_>>(),
                codes,
                column!(row: row.run.id.as_ref()),
                column!(row: row.tenant.as_str()),
                column!(row: row.queue.as_str()),
                column!(row: row.priority),
                column!(row: row.run.attempt as i32),
                column!(row: row.run.max_attempts as i32),
                column!(row: row.run.fence as i32),
                column!(row: row.run.lease.as_ref().map(|lease| uuid(lease.token))),
                column!(row: row.run.lease.as_ref().and_then(|lease| lease.worker.as_deref())),
                column!(row: row.run.lease.as_ref().map(|lease| lease.length.ms())),
                column!(row: stale_after(&row.run).map(stamp)),
                column!(row: row.run.last_command.as_ref()),
                column!(row: row.run.reentrant),
                column!(row: stamp(row.run.created_at)),
                column!(row: row.run.started_at.map(stamp)),
                column!(row: row.schedule_at.map(stamp)),
                column!(row: row.run.available_at.map(stamp)),
                column!(row: row.run.expires_at.map(stamp)),
                column!(row: row.concurrency_key.as_deref()),
                column!(row: row.correlation_id.as_deref()),
                column!(row: row.idempotency_key.as_deref()),
                births.iter().map(|(_, it)| it.fingerprint.as_deref()).collect::<Vec<_>>(),
                column!(row: row.parent_run_id.as_deref()),
                column!(row: row.retry_of.as_deref()),
                column!(row: row.playbook.as_deref()),
                column!(row: row.carried.as_ref().map(Value::to_string)),
                column!(row: item_count(row)),
                column!(row: row.input.to_string()),
                column!(row: text(&row.metadata)),
                column!(row: text(&row.details)),
            ],
        )
        .await?;
    rows.iter().map(|row| Ok((Columns(row).get(0)?, Columns(row).get(1)?))).collect()
}

const INSERT: &str = "INSERT INTO waypost.runs(rid, state, run_id, tenant, queue, priority, attempt, max_attempts, fence, lease_token, claimed_by, \
  lease_ms, stale_after, last_command, reentrant, queued_at, started_at, schedule_at, available_at, expires_at, concurrency_key, \
  correlation_id, idempotency_key, fingerprint, parent_run_id, retry_of, playbook, carried, item_count, input, metadata, details, seq, counted) \
  SELECT u.rid, u.state, u.run_id, u.tenant, u.queue, u.priority, u.attempt, u.max_attempts, u.fence, u.lease_token, u.claimed_by, \
  u.lease_ms, u.stale_after, u.last_command, u.reentrant, u.queued_at, u.started_at, u.schedule_at, u.available_at, u.expires_at, u.concurrency_key, \
  u.correlation_id, u.idempotency_key, u.fingerprint, u.parent_run_id, u.retry_of, u.playbook, u.carried::json, u.item_count, u.input::json, \
  u.metadata::jsonb, u.details::jsonb, 1, u.state / 1000 = 3 AND (u.concurrency_key IS NOT NULL \
    OR EXISTS (SELECT 1 FROM waypost.queues q WHERE q.name = u.queue AND q.at_most IS NOT NULL)) \
  FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, \
    $27, $28, $29, $30, $31, $32) AS u(rid, state, run_id, tenant, queue, priority, attempt, max_attempts, fence, lease_token, claimed_by, \
    lease_ms, stale_after, last_command, reentrant, queued_at, started_at, schedule_at, available_at, expires_at, concurrency_key, \
    correlation_id, idempotency_key, fingerprint, parent_run_id, retry_of, playbook, carried, item_count, input, metadata, details) \
  ON CONFLICT DO NOTHING RETURNING rid, counted";

/// Born held: the unique key lets one claimer win; later ones may retry or steal what is there.
pub async fn claim_plan(session: &Session, new: &NewRun, lease: Option<Span>) -> Result<Option<Claimed>> {
    intake::check_new(new)?;
    intake::check_name("by", &new.by)?;
    if new.idempotency_key.is_none() {
        return Err(StoreError::invalid("idempotency_key", "a plan needs its unique key").into());
    }
    let tx = session.begin().await?;
    let taken = plan(&tx, new, lease).await;
    let now = tx.now;
    match tx.end(taken).await {
        Ok(run) => run.map(|run| claim::claimed(now, run)).transpose(),
        Err(Fault::Told(StoreError::Refused(_))) => Ok(None),
        Err(fault) => Err(fault),
    }
}

pub async fn plan(tx: &Tx, new: &NewRun, lease: Option<Span>) -> Result<Option<crate::run::RunRow>> {
    let lifecycle = born_held(tx, new).await?;
    if let Some((stored, _)) = known(tx, [new].into_iter()).await?.into_values().next() {
        let how = Take { worker: new.by.clone(), lease, start: false };
        return claim::take(tx, stored, &how, fresh()).await.map(Some);
    }
    let birth = born(tx, new, &lifecycle, lease)?;
    match insert(tx, vec![birth]).await?.pop() {
        Some((_, stored)) => Ok(Some(stored.row)),
        // Somebody was faster: what is there now is looked at again.
        None => Err(Fault::Again(StoreError::Unavailable("its key was taken meanwhile; try again".into()))),
    }
}

async fn born_held(tx: &Tx, new: &NewRun) -> Result<Arc<Lifecycle>> {
    let Some(lifecycle) = lifecycle(tx, new).await? else {
        return Err(birth::unknown_lifecycle(new, &tx.session.known().catalog).into());
    };
    if !lifecycle.initial.iter().any(|state| lifecycle.phase(*state) == Phase::Held) {
        return Err(
            StoreError::invalid("lifecycle", format!("a {} run is not born held", lifecycle.name)).into()
        );
    }
    Ok(lifecycle)
}

/// New ones of many, with keys of their own. A run that has a key already is not taken in its place.
pub async fn new_held(tx: &Tx, news: &[(&NewRun, Option<Span>)]) -> Result<Vec<crate::run::RunRow>> {
    if news.is_empty() {
        return Ok(Vec::new());
    }
    refuse_known(tx, news.iter().map(|(new, _)| *new)).await?;
    let mut births = Vec::new();
    for (place, (new, lease)) in news.iter().enumerate() {
        intake::check_new(new)?;
        let lifecycle = born_held(tx, new).await?;
        births.push(Birthday { place, ..born(tx, new, &lifecycle, *lease)? });
    }
    let count = births.len();
    let mut made = insert(tx, births).await?;
    if made.len() < count {
        let error = StoreError::Unavailable("a key was taken meanwhile; try again".into());
        return Err(Fault::Again(error));
    }
    made.sort_by_key(|(place, _)| *place);
    Ok(made.into_iter().map(|(_, stored)| stored.row).collect())
}

pub async fn refuse_known(tx: &Tx, news: impl Iterator<Item = &NewRun>) -> Result<()> {
    match known(tx, news).await?.into_iter().next() {
        None => Ok(()),
        Some(((_, key), (stored, _))) => {
            Err(StoreError::KeyReused { key, run_id: stored.row.id().to_owned() }.into())
        }
    }
}
