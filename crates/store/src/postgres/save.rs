//! Writing what the kernel decided: the items first (the guards of the run count them), then the runs by
//! compare-and-set, then what they leave behind in the other tables.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};
use waypost_kernel::Phase;
use waypost_kernel::event::{Change, Event};

use super::children;
use super::fault::Result;
use super::items::{self, BornItem, ItemResult};
use super::limits;
use super::operations;
use super::row::{Stored, stale_after};
use super::session::Tx;
use super::sql::{Columns, args, stamp, uuid};
use super::trail::Trail;
use crate::children::is_cancel;
use crate::codec;
use crate::details;
use crate::intake;
use crate::run::RunRow;

/// What is written with a change beside what the kernel knows: merged into the row, and kept in the event.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
    pub key: Option<String>,
}

/// A run that is about to change: as it was read, as it will be, and the events that lead there.
#[derive(Debug)]
pub struct Pending {
    pub before: Stored,
    pub row: RunRow,
    pub events: Vec<(Event, Extra)>,
    pub born: Vec<BornItem>,
    pub results: Vec<ItemResult>,
    merges: bool,
}

/// What was written, and what others were faster with.
#[derive(Debug, Default)]
pub struct Saved {
    /// With whether they are counted now.
    won: HashMap<i64, bool>,
    /// By run and seq.
    positions: HashMap<(i64, u64), i64>,
}

impl Saved {
    pub fn has(&self, rid: i64) -> bool {
        self.won.contains_key(&rid)
    }

    pub fn position(&self, rid: i64, seq: u64) -> i64 {
        self.positions.get(&(rid, seq)).copied().unwrap_or_default()
    }
}

impl Pending {
    pub fn new(before: Stored) -> Pending {
        let row = before.row.clone();
        Pending { before, row, events: Vec::new(), born: Vec::new(), results: Vec::new(), merges: false }
    }

    /// A decision on the row as it will be; the last event keeps what is merged.
    pub fn add(&mut self, change: Change, extra: Extra) {
        intake::merge_shared(&mut self.row.metadata, &extra.metadata);
        details::merge_shared(&mut self.row.details, &extra.details);
        self.merges |= !extra.metadata.is_empty() || !extra.details.is_empty();
        self.row.run = change.after;
        let last = change.events.len();
        let mut extra = Some(extra);
        for (at, event) in change.events.into_iter().enumerate() {
            let kept = if at + 1 == last { extra.take() } else { None };
            self.events.push((event, kept.unwrap_or_default()));
        }
    }

    pub fn is_changed(&self) -> bool {
        let changed = self.row.run != self.before.row.run;
        !self.events.is_empty() || !self.results.is_empty() || changed
    }

    fn moves_items(&self) -> bool {
        let moves =
            |(event, _): &(Event, Extra)| !event.effect.shifts.is_empty() || !event.effect.moved.is_empty();
        !self.born.is_empty() || !self.results.is_empty() || self.events.iter().any(moves)
    }

    /// A key's slot may be taken or come free.
    fn key_that_counts(&self) -> Option<&str> {
        let (was, is) = (self.before.row.phase(), self.row.phase());
        self.row
            .concurrency_key
            .as_deref()
            .filter(|_| was != is && [was, is].contains(&Phase::Held) || was == Phase::Ready)
    }
}

/// Writes one run; whoever was faster makes the whole be tried again.
pub async fn save_one(tx: &Tx, only: Pending) -> Result<(Stored, Saved)> {
    let saved = save(tx, std::slice::from_ref(&only)).await?;
    if only.is_changed() && !saved.has(only.before.rid) {
        return Err(lost(only.row.id()));
    }
    Ok((Stored { row: only.row, ..only.before }, saved))
}

fn lost(run_id: &str) -> super::fault::Fault {
    let words = format!("{run_id} changed each time; try again");
    super::fault::Fault::Again(crate::error::StoreError::Unavailable(words))
}

/// Writes what has changed; those that lost the race are not among what was saved.
pub async fn save(tx: &Tx, pending: &[Pending]) -> Result<Saved> {
    let changed: Vec<&Pending> = pending.iter().filter(|it| it.is_changed()).collect();
    if changed.is_empty() {
        return Ok(Saved::default());
    }
    let keys: BTreeSet<&str> = changed.iter().filter_map(|it| it.key_that_counts()).collect();
    limits::lock_keys(tx, keys).await?;
    let with_items: Vec<&Pending> = changed.iter().filter(|it| it.moves_items()).copied().collect();
    let missed = hold_still(tx, &with_items).await?;
    let changed: Vec<&Pending> = changed.into_iter().filter(|it| !missed.contains(&it.before.rid)).collect();
    let still: Vec<&Pending> = with_items.into_iter().filter(|it| !missed.contains(&it.before.rid)).collect();
    items::write(tx, &still).await?;
    // All writers lock in this order; the log has the order in which it was decided.
    let mut in_order = changed.clone();
    in_order.sort_by_key(|it| it.before.rid);
    let won = update(tx, &in_order).await?;
    let mut trail = Trail::new(tx);
    for it in &changed {
        if let Some(counted) = won.get(&it.before.rid) {
            trail.add((it.before.rid, *counted), Some(&it.before), &it.row, &it.events)?;
        }
    }
    let positions = trail.write(tx).await?;
    let ended: Vec<&RunRow> = changed
        .iter()
        .filter(|it| won.contains_key(&it.before.rid) && it.before.row.phase() != Phase::Settled)
        .map(|it| &it.row)
        .collect();
    operations::after_moves(tx, &ended).await?;
    let is_cancelled = |it: &&&Pending| {
        won.contains_key(&it.before.rid) && is_cancel(it.events.iter().map(|(event, _)| event))
    };
    let cancelled: Vec<&str> = changed.iter().filter(is_cancelled).map(|it| it.row.id()).collect();
    children::left_behind(tx, &cancelled).await?;
    Ok(Saved { won, positions })
}

/// Runs whose items are about to be written are locked first, if they still are what they were: what was written to
/// items cannot be taken back for one run of many. Gives those that are not.
async fn hold_still(tx: &Tx, pending: &[&Pending]) -> Result<HashSet<i64>> {
    if pending.is_empty() {
        return Ok(HashSet::new());
    }
    let rids: Vec<i64> = pending.iter().map(|it| it.before.rid).collect();
    let rows = tx
        .query(
            "SELECT r.rid FROM waypost.runs r JOIN unnest($1, $2, $3, $4) AS u(rid, seq, stale_after, counted) ON u.rid = r.rid \
             WHERE r.seq = u.seq AND r.stale_after IS NOT DISTINCT FROM u.stale_after AND r.counted = u.counted \
             ORDER BY r.rid FOR UPDATE OF r",
            args![
                rids,
                pending.iter().map(|it| it.before.row.run.seq as i32).collect::<Vec<_>>(),
                pending.iter().map(|it| stale_after(&it.before.row.run).map(stamp)).collect::<Vec<_>>(),
                pending.iter().map(|it| it.before.counted).collect::<Vec<_>>(),
            ],
        )
        .await?;
    let mut missed: HashSet<i64> = pending.iter().map(|it| it.before.rid).collect();
    for row in &rows {
        missed.remove(&Columns(row).get::<i64>(0)?);
    }
    Ok(missed)
}

/// A heartbeat does not raise `seq`, so the lease's end is compared too: nobody loses a run that was renewed meanwhile.
const UPDATE: &str = "UPDATE waypost.runs r SET state = u.state, seq = u.seq, attempt = u.attempt, take_overs = u.take_overs, \
  fence = u.fence, lease_token = u.lease_token, claimed_by = u.claimed_by, lease_ms = u.lease_ms, stale_after = u.stale_after, \
  ended_by = u.ended_by, last_command = u.last_command, intent = u.intent::jsonb, owes_cleanup = u.owes_cleanup, \
  cleanup_failed = u.cleanup_failed, operating = u.operating, resolved = u.resolved, forced = u.forced, reason = u.reason, \
  error_code = u.error_code, error_msg = u.error_msg, started_at = u.started_at, finished_at = u.finished_at, \
  available_at = u.available_at, expires_at = u.expires_at, item_count = u.item_count, \
  metadata = coalesce(u.metadata::jsonb, r.metadata), details = coalesce(u.details::jsonb, r.details), \
  counted = CASE WHEN u.state / 1000 <> 3 THEN false WHEN r.state / 1000 = 3 THEN r.counted ELSE r.concurrency_key IS NOT NULL \
    OR EXISTS (SELECT 1 FROM waypost.queues q WHERE q.name = r.queue AND q.at_most IS NOT NULL) END \
  FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, \
    $25, $26, $27, $28, $29, $30, $31) \
    AS u(rid, was_seq, was_stale_after, was_counted, state, seq, attempt, take_overs, fence, lease_token, claimed_by, lease_ms, \
    stale_after, ended_by, last_command, intent, owes_cleanup, cleanup_failed, operating, resolved, forced, reason, error_code, \
    error_msg, started_at, finished_at, available_at, expires_at, item_count, metadata, details) \
  WHERE r.rid = u.rid AND r.seq = u.was_seq AND r.stale_after IS NOT DISTINCT FROM u.was_stale_after AND r.counted = u.was_counted \
  RETURNING r.rid, r.counted";

async fn update(tx: &Tx, changed: &[&Pending]) -> Result<HashMap<i64, bool>> {
    let known = tx.session.known();
    let codes = changed
        .iter()
        .map(|it| known.code(&it.row.lifecycle, it.row.run.state))
        .collect::<Result<Vec<_>>>()?;
    macro_rules! column {
        (|$it:ident| $value:expr) => {
            changed.iter().map(|$it| $value).collect::<Vec<_>>()
        };
        ($run:ident: $value:expr) => {
            changed
                .iter()
                .map(|it| {
                    let $run = &it.row.run;
                    $value
                })
                .collect::<Vec<_>>()
        };
    }
    let rows = tx
        .query(
            UPDATE,
            args![
                column!(|it| it.before.rid),
                column!(|it| it.before.row.run.seq as i32),
                column!(|it| stale_after(&it.before.row.run).map(stamp)),
                column!(|it| it.before.counted),
                codes,
                column!(run: run.seq as i32),
                column!(run: run.attempt as i32),
                column!(run: run.take_overs as i32),
                column!(run: run.fence as i32),
                column!(run: run.lease.as_ref().map(|lease| uuid(lease.token))),
                column!(run: run.lease.as_ref().and_then(|lease| lease.worker.as_deref())),
                column!(run: run.lease.as_ref().map(|lease| lease.length.ms())),
                column!(run: stale_after(run).map(stamp)),
                column!(run: run.ended_by.map(uuid)),
                column!(run: &*run.last_command),
                column!(|it| it.row.run.intent.as_ref().map(|it2| codec::intent_json(
                    it2,
                    &it.row.lifecycle
                )
                .to_string())),
                column!(run: run.owes_cleanup),
                column!(run: run.cleanup_failed),
                column!(run: run.operating),
                column!(run: run.resolved),
                column!(run: run.forced),
                column!(run: run.reason.as_deref()),
                column!(run: run.failure.as_ref().map(|failure| &*failure.code)),
                column!(run: run.failure.as_ref().map(|failure| &*failure.message)),
                column!(run: run.started_at.map(stamp)),
                column!(run: run.finished_at.map(stamp)),
                column!(run: run.available_at.map(stamp)),
                column!(run: run.expires_at.map(stamp)),
                column!(|it| item_count(&it.row)),
                column!(|it| it.merges.then(|| text(&it.row.metadata))),
                column!(|it| it.merges.then(|| text(&it.row.details))),
            ],
        )
        .await?;
    rows.iter().map(|row| Ok((Columns(row).get(0)?, Columns(row).get(1)?))).collect()
}

pub fn item_count(row: &RunRow) -> i32 {
    row.run.tallies.iter().flat_map(|tally| &tally.by_state).sum::<u32>() as i32
}

pub fn text(map: &Map<String, Value>) -> String {
    if map.is_empty() { "{}".into() } else { serde_json::to_string(map).unwrap_or_else(|_| "{}".into()) }
}
