//! The engine's primitives on this database. None of them waits: the writer's thread has the file to itself, so what was
//! decided on is what is written, and no write loses a race.

mod claims;
mod events;
mod insert;
mod moves;
mod overdue;
mod save;
mod scan;
pub mod slots;
mod targets;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rusqlite::{Row, params};
use serde_json::Value;
use waypost_kernel::{Catalog, Lifecycle, Time};

use crate::engine::turns::ClaimTurns;
use crate::engine::{
    self, Asked, Candidate, Counted, Edit, Inserted, ItemsIn, ItemsOf, NewRow, NoteKey, Overdue, Room, Saved,
    Scan, Slot, Stored, StoredItem, Targets, TargetsOf, TimeKey,
};
use crate::rules::item_writes::failed_states;
use crate::rules::replay::Written;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::{Claim, Repeat};
use crate::sqlite::link::fault::{self, Fault};
use crate::sqlite::link::session::Tx;
use crate::sqlite::log;
use crate::sqlite::row;

/// A transaction as the engine sees it.
pub struct Primitives<'t, 'c>(pub(super) &'t Tx<'c>);

impl<'c> Tx<'c> {
    pub fn engine(&self) -> Primitives<'_, 'c> {
        Primitives(self)
    }
}

/// What a verb answers: its future never waits, so one look at it is enough.
pub fn ready<T>(verb: impl Future<Output = Result<T>>) -> fault::Result<T> {
    match pin!(verb).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Ok(answer?),
        Poll::Pending => {
            Err(StoreError::Unavailable("the writer does not wait, and a verb did".into()).into())
        }
    }
}

impl engine::Tx for Primitives<'_, '_> {
    type Cursor = scan::Cursor;
    const IS_ONE_WRITE: bool = true;

    fn now(&self) -> Time {
        self.0.now
    }

    async fn lifecycle(
        &mut self,
        names: &[Cow<'_, str>],
        version: Option<u32>,
    ) -> Result<Option<Arc<Lifecycle>>> {
        Ok(self.0.first_lifecycle(names, version))
    }

    fn catalog(&self) -> Catalog {
        self.0.catalog()
    }

    fn random_for_id(&self) -> u128 {
        self.0.random_rising()
    }

    async fn runs(&mut self, ids: &[&str]) -> Result<Vec<Stored>> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.extend(row::find(self.0, id)?);
        }
        Ok(found)
    }

    async fn runs_with_keys(&mut self, keys: &[(&str, &str)]) -> Result<Vec<(Stored, Option<String>)>> {
        let sql = "SELECT run_id, fingerprint FROM run_born WHERE tenant = ?1 AND idempotency_key = ?2";
        let mut found = Vec::with_capacity(keys.len());
        for (tenant, key) in keys {
            let known: Option<(String, Option<String>)> = self
                .0
                .find(sql, params![tenant, key], |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(Fault::from)?;
            let Some((run_id, fingerprint)) = known else { continue };
            found.extend(row::find(self.0, &run_id)?.map(|stored| (stored, fingerprint)));
        }
        Ok(found)
    }

    async fn items(&mut self, asks: &[ItemsOf<'_>]) -> Result<Vec<StoredItem>> {
        let mut found = Vec::new();
        for ItemsOf { stored, names, failed } in asks {
            let id = stored.row.id();
            for (kind, key) in names {
                let named = "WHERE run_id = ?1 AND kind = ?2 AND key = ?3";
                found.extend(row::items(self.0, stored, named, params![id, kind, key])?);
            }
            for kind in failed.iter().map(|at| &stored.row.lifecycle.items[usize::from(*at)]) {
                for state in failed_states(kind) {
                    let one = "WHERE run_id = ?1 AND kind = ?2 AND status = ?3 AND role = 'step' LIMIT 1";
                    found.extend(row::items(self.0, stored, one, params![id, &*kind.name, state])?);
                }
            }
        }
        Ok(found)
    }

    async fn targets(&mut self, ask: &TargetsOf<'_>) -> Result<Targets> {
        Ok(targets::targets(self.0, ask)?)
    }

    async fn items_in(&mut self, ask: &ItemsIn<'_>) -> Result<Vec<(usize, StoredItem)>> {
        Ok(targets::items_in(self.0, ask)?)
    }

    async fn last_asked(&mut self, stored: &Stored) -> Result<Option<Asked>> {
        let is_persons = |event: &Written| matches!(&*event.actor, "client" | "operator");
        let found = log::of(self.0, stored)?.into_iter().rev().find(is_persons);
        Ok(found.map(|event| {
            let effect = event.effect.unwrap_or_default();
            let reason = [&effect["reason"], &effect["intent"]["reason"]].into_iter().find_map(Value::as_str);
            Asked { command: event.command, by: event.by, reason: reason.map(str::to_owned) }
        }))
    }

    async fn noted(&mut self, asks: &[NoteKey<'_>]) -> Result<Vec<Option<(i64, u64)>>> {
        let by_key = "SELECT position, seq FROM run_events WHERE rid = ?1 AND key = ?2";
        let mut found = Vec::with_capacity(asks.len());
        for ask in asks {
            found.push(match ask.repeat {
                Repeat::Never => None,
                Repeat::Key(key) => {
                    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
                    self.0.find(by_key, params![ask.rid, key], read).map_err(Fault::from)?
                }
                Repeat::Window => log::same_note(self.0, ask.last, ask.since, ask.note)?,
            });
        }
        Ok(found)
    }

    async fn insert(&mut self, new_rows: Vec<NewRow>) -> Result<Vec<Inserted>> {
        new_rows.into_iter().map(|new_row| Ok(insert::insert(self.0, new_row)?)).collect()
    }

    async fn save(&mut self, edits: Vec<Edit>) -> Result<Vec<Saved>> {
        edits.into_iter().map(|edit| Ok(save::save(self.0, edit)?)).collect()
    }

    async fn scan(&mut self, claim: &Claim) -> Result<Scan<scan::Cursor>> {
        Ok(scan::begin(self.0, claim)?)
    }

    async fn candidates(
        &mut self,
        cursor: &mut scan::Cursor,
        claim: &Claim,
        limit: usize,
    ) -> Result<Vec<Candidate>> {
        Ok(cursor.next(self.0, claim, limit)?)
    }

    async fn free_slots(&mut self, keys: Vec<Slot>, counted: Counted) -> Result<BTreeMap<Slot, i64>> {
        let mut free = BTreeMap::new();
        for slot in keys {
            let slots = slots::free_slots(self.0, &slot.0, &slot.1, counted)?;
            free.insert(slot, slots);
        }
        Ok(free)
    }

    fn room_of<'c>(&self, cursor: &'c mut scan::Cursor, lane: usize) -> &'c mut Room {
        cursor.room_of(lane)
    }

    fn turn_goes_on(&mut self, cursor: &mut scan::Cursor, row: &RunRow) {
        cursor.turn_goes_on(row);
    }

    fn turns<'c>(&self, cursor: &'c mut scan::Cursor) -> Option<&'c mut ClaimTurns> {
        cursor.turns.as_mut()
    }

    fn leave(&mut self, cursor: &mut scan::Cursor, candidate: &Candidate, closes: bool) {
        self.0.cache.rows.borrow_mut().put(candidate.stored.clone());
        if closes {
            cursor.close(candidate.lane);
        }
    }

    async fn set_aside(&mut self, cursor: &mut scan::Cursor, candidates: &[Candidate]) -> Result<usize> {
        Ok(cursor.set_aside(self.0, candidates)?)
    }

    async fn end_scan(&mut self, cursor: scan::Cursor) -> Result<()> {
        cursor.keep_turns(self.0);
        Ok(())
    }

    async fn room(&mut self, tenant: &str, queue: &str) -> Result<Room> {
        Ok(scan::room(self.0, tenant, queue)?)
    }

    async fn overdue(&mut self, what: Overdue<'_>, after: TimeKey, limit: usize) -> Result<Vec<Stored>> {
        Ok(overdue::overdue(self.0, what, after, limit)?)
    }

    async fn recall_claim(&mut self, worker: &str, key: &str) -> Result<Vec<(Stored, u64)>> {
        Ok(claims::recall_claim(self.0, worker, key)?)
    }

    async fn keep_claim(&mut self, worker: &str, key: &str, taken: &[(i64, u64)], until: Time) -> Result<()> {
        Ok(claims::keep_claim(self.0, worker, key, taken, until)?)
    }

    async fn let_in_all(&mut self) -> Result<()> {
        claims::forget_claims(self.0)?;
        Ok(slots::let_in_all(self.0)?)
    }

    /// Nobody else writes meanwhile: all children are there, and no parent is met twice.
    async fn cancelled_parent(&mut self, _: &[String]) -> Result<Option<(String, bool)>> {
        Ok(overdue::cancelled_parent(self.0)?.map(|parent| (parent, true)))
    }

    async fn children_told(&mut self, parent: &str) -> Result<()> {
        Ok(overdue::children_told(self.0, parent)?)
    }

    async fn children(&mut self, parent: &str, after: i64, limit: usize) -> Result<Vec<Stored>> {
        Ok(overdue::children(self.0, parent, after, limit)?)
    }

    async fn lock_children(&mut self, parent: &str, lifecycle: &str) -> Result<Vec<(String, u64)>> {
        Ok(overdue::open_children(self.0, parent, lifecycle)?)
    }

    async fn live_of_rule(&mut self, tenant: &str, lifecycle: &str, rule: &str) -> Result<Vec<String>> {
        Ok(overdue::live_of_rule(self.0, tenant, lifecycle, rule)?)
    }
}
