//! What the engine asks of PostgreSQL.
//!
//! A verb's statements stand alone: what is read may be old by the time it is written, and the write compares. A claim
//! has a transaction, because nobody else may be given what it was given.

mod arrays;
mod care;
pub mod cursors;
pub mod functions;
mod insert;
mod kept_claims;
pub mod memory;
mod queue;
pub mod rows;
mod save;
mod statement;
mod targets;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Row;
use waypost_kernel::{Catalog, Lifecycle, Time};

use crate::engine::turns::ClaimTurns;
use crate::engine::{
    Asked, Candidate, Counted, Edit, Inserted, ItemsIn, ItemsOf, NewRow, NoteKey, Overdue, Room, Saved, Scan,
    Slot, Stored, StoredItem, Targets, TargetsOf, TimeKey,
};
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::{Fault, Patience, Result as Outcome, damaged};
use crate::postgres::link::session::{PoolKind, Session, Tx};
use crate::postgres::row::is_askable;
use crate::postgres::sql::{Args, Columns, args};
use crate::rules::room::{Room as RunRoom, weight};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::{Claim, PAGE_BYTES, Parts};
use crate::tokens::random;
use arrays::Parameters;
pub use queue::Cursor;

#[derive(Debug)]
pub struct PgTx {
    session: Session,
    pool: PoolKind,
    /// The transaction, where there is one.
    open: Option<Tx>,
    now: Time,
    /// Why a transaction failed, for whoever tries it again.
    fault: Option<Fault>,
    /// Items of runs that this verb recalled.
    recalled: HashMap<i64, Vec<StoredItem>>,
    /// Runs that were read without their large parts, and about how many bytes those have.
    left_out: HashMap<i64, usize>,
    /// Gates that this transaction has entered, as tenant and queue; no tenant stands for all.
    gates: Vec<(Option<String>, String)>,
    /// Entries of `ready` that lead nowhere.
    orphans: Vec<String>,
    /// Where a claim stopped, for when it is committed.
    scanned: Option<Cursor>,
    /// Cancelled runs whose children are being told, with their entries.
    parents: HashMap<String, String>,
    /// A statement that goes with the commit.
    last: Option<(&'static str, Parameters<'static>)>,
}

impl PgTx {
    /// Statements that stand alone, with about the time that it is.
    pub async fn new(session: &Session, pool: PoolKind) -> Outcome<PgTx> {
        match session.0.memory.now() {
            Some(now) => Ok(PgTx::at(session, pool, None, now)),
            None => PgTx::fresh(session, pool).await,
        }
    }

    /// The same, with the time that it is: for what happens because of it.
    pub async fn fresh(session: &Session, pool: PoolKind) -> Outcome<PgTx> {
        let mut tx = PgTx::at(session, pool, None, Time::default());
        let rows = tx.query("SELECT waypost.now()", &[]).await?;
        let now = rows.first().map_or(Ok(None), |row| Columns(row).time(0))?.unwrap_or_default();
        session.0.memory.see_clock(now);
        tx.now = now;
        Ok(tx)
    }

    /// All statements are one transaction.
    pub async fn begin(session: &Session) -> Outcome<PgTx> {
        let tx = session.begin().await?;
        let now = tx.now;
        Ok(PgTx::at(session, PoolKind::Work, Some(tx), now))
    }

    fn at(session: &Session, pool: PoolKind, open: Option<Tx>, now: Time) -> PgTx {
        PgTx {
            session: session.clone(),
            pool,
            open,
            now,
            fault: None,
            recalled: HashMap::new(),
            left_out: HashMap::new(),
            gates: Vec::new(),
            orphans: Vec::new(),
            scanned: None,
            parents: HashMap::new(),
            last: None,
        }
    }

    /// Commits if there is a transaction. Only what is committed is answered.
    pub async fn end<T>(mut self, result: Result<T>) -> Outcome<T> {
        let outcome = self.outcome(result);
        self.close(outcome).await
    }

    /// The same, of what more than the engine had a hand in.
    pub async fn close<T>(mut self, outcome: Outcome<T>) -> Outcome<T> {
        let Some(tx) = self.open.take() else { return outcome };
        let answer = match &self.last {
            Some((sql, values)) => tx.end_with(sql, &values.args(), outcome).await?,
            None => tx.end(outcome).await?,
        };
        if let Some(cursor) = self.scanned.take() {
            cursor.keep(&self.session);
        }
        Ok(answer)
    }

    /// From here on all is one transaction.
    async fn open(&mut self) -> Result<()> {
        if self.open.is_none() {
            // What was decided before counts from when it was.
            self.open = Some(self.session.begin_on(self.pool).await.map_err(Fault::into_error)?);
        }
        Ok(())
    }

    /// The transaction, for what the engine does not do.
    pub fn tx(&self) -> Outcome<&Tx> {
        self.open.as_ref().ok_or_else(|| damaged("there is no transaction"))
    }

    /// What the engine said, as whoever tries again takes it.
    pub fn outcome<T>(&mut self, result: Result<T>) -> Outcome<T> {
        result.map_err(|error| self.fault.take().unwrap_or(Fault::Told(error)))
    }

    fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether pauses and limits of a queue wait for this transaction.
    fn has_entered(&self, tenant: &str, queue: &str) -> bool {
        let is_its = |of: &Option<String>| of.as_ref().is_none_or(|of| of == tenant);
        self.gates.iter().any(|(of, name)| is_its(of) && name == queue)
    }

    fn known(&self) -> Arc<LifecycleCodes> {
        self.session.known()
    }

    /// A statement of the transaction, or one that stands alone and is tried again while others are in the way.
    async fn query(&mut self, sql: &str, values: &Args<'_>) -> Result<Vec<Row>> {
        if let Some(tx) = &self.open {
            let rows = tx.query(sql, values).await;
            return rows.map_err(|fault| self.failed(fault));
        }
        let mut patience = Patience::default();
        loop {
            match self.session.statement(self.pool, false, sql, values).await {
                Ok((rows, _)) => return Ok(rows),
                Err(fault) => patience.with(fault).await?,
            }
        }
    }

    /// The same, of a write whose answer is one row. Whoever waits for a change is told; other processes too, if a column
    /// of the answer says that there is work for them.
    async fn write(&mut self, sql: &str, values: &Args<'_>, made_ready: usize) -> Result<Row> {
        let none = || StoreError::Unavailable("no answer".into());
        if let Some(tx) = &self.open {
            let rows = tx.query(sql, values).await;
            let row = rows.map_err(|fault| self.failed(fault))?.pop().ok_or_else(none)?;
            let made_ready = self.read(Columns(&row).get(made_ready))?;
            self.has_written(made_ready);
            return Ok(row);
        }
        let mut patience = Patience::default();
        loop {
            match self.session.statement(self.pool, true, sql, values).await {
                Ok((mut rows, client)) => {
                    let row = rows.pop().ok_or_else(none)?;
                    let made_ready = self.read(Columns(&row).get(made_ready))?;
                    self.session.0.notifier.notify(made_ready, &client).await;
                    return Ok(row);
                }
                Err(fault) => patience.with(fault).await?,
            }
        }
    }

    fn failed(&mut self, fault: Fault) -> StoreError {
        let told = match &fault {
            Fault::Told(error) | Fault::Again(error) | Fault::Broken(error) => error.clone(),
        };
        self.fault = Some(fault);
        told
    }

    fn read<T>(&mut self, read: Outcome<T>) -> Result<T> {
        read.map_err(|fault| self.failed(fault))
    }

    /// The lifecycles, read again if a number is met that another process added.
    async fn known_with(&mut self, codes: impl Iterator<Item = i16>) -> Result<Arc<LifecycleCodes>> {
        let known = self.known();
        let mut codes = codes;
        if codes.all(|code| known.state(code).is_some()) {
            return Ok(known);
        }
        self.learn().await
    }

    async fn learn(&mut self) -> Result<Arc<LifecycleCodes>> {
        self.session.learned().await.map_err(Fault::into_error)
    }

    /// Runs `r` that a condition finds. Those of a lifecycle that this binary cannot read are left out.
    async fn select(&mut self, condition: &str, values: &Args<'_>) -> Result<Vec<Stored>> {
        let found = self.query(&format!("SELECT {} {condition}", *rows::SELECTED), values).await?;
        self.runs_of(&found, 0).await
    }

    async fn runs_of(&mut self, found: &[Row], from: usize) -> Result<Vec<Stored>> {
        let codes: Outcome<Vec<i16>> = found.iter().map(|row| Columns(row).get::<i16>(from + 1)).collect();
        let codes = self.read(codes)?;
        let known = self.known_with(codes.into_iter()).await?;
        let read: Outcome<Vec<Option<Stored>>> =
            found.iter().map(|row| rows::run(&known, row, from)).collect();
        Ok(self.read(read)?.into_iter().flatten().collect())
    }

    /// The same, as many as a page has room for, and at least one.
    async fn select_page(&mut self, condition: &str, values: &Args<'_>) -> Result<Vec<Stored>> {
        let found = self.query(&format!("SELECT {} {condition}", *rows::SMALL), values).await?;
        for row in &found {
            let read = rows::left_out(row, 0).and_then(|bytes| Ok((Columns(row).get(0)?, bytes)));
            let (rid, bytes) = self.read(read)?;
            self.left_out.extend(bytes.map(|bytes| (rid, bytes)));
        }
        let mut read = self.runs_of(&found, 0).await?;
        drop(found);
        self.fill_in(&mut read, true).await?;
        Ok(read)
    }

    /// Gives runs the parts that were left out because they are large, a few at a time. `is_page`: as many of the runs as a page has
    /// room for; the others are dropped.
    async fn fill_in(&mut self, found: &mut Vec<Stored>, is_page: bool) -> Result<()> {
        let mut room = if is_page { RunRoom::of_a_page() } else { RunRoom::unbounded() };
        let mut parts: HashMap<i64, Row> = HashMap::new();
        for at in 0..found.len() {
            let rid = found[at].rid;
            if self.left_out.contains_key(&rid) {
                parts = self.parts_from(&found[at..]).await?;
            }
            if let Some(row) = parts.remove(&rid) {
                let stored = &mut found[at];
                let set = rows::set_parts(Arc::make_mut(&mut stored.row), Parts::ALL, &row);
                self.read(set)?;
                stored.bytes = rows::texts(&row).map(weight).sum();
            }
            if !room.has_weight(found[at].weight()) {
                found.truncate(at);
                break;
            }
        }
        Ok(())
    }

    /// The parts that were left out of the next of these runs.
    async fn parts_from(&mut self, found: &[Stored]) -> Result<HashMap<i64, Row>> {
        let mut bytes = 0;
        let mut rids = Vec::new();
        for stored in found {
            let Some(more) = self.left_out.get(&stored.rid) else { continue };
            bytes += more;
            if bytes > PAGE_BYTES && !rids.is_empty() {
                break;
            }
            rids.push(stored.rid);
        }
        rids.iter().for_each(|rid| _ = self.left_out.remove(rid));
        let parts = rows::selecting_parts(Parts::ALL);
        let sql = format!("SELECT {parts} FROM waypost.runs r WHERE r.rid = ANY ($1)");
        let rows = self.query(&sql, args![rids]).await?;
        let read: Outcome<HashMap<i64, Row>> =
            rows.into_iter().map(|row| Ok((Columns(&row).get(0)?, row))).collect();
        self.read(read)
    }

    /// After the commit whoever waits for a change is told; other processes too, if there is work for them.
    fn has_written(&self, made_ready: bool) {
        if let Some(tx) = &self.open {
            tx.has_written(made_ready);
        }
    }
}

impl crate::engine::Tx for PgTx {
    type Cursor = Cursor;

    fn now(&self) -> Time {
        self.now
    }

    async fn lifecycle(
        &mut self,
        names: &[Cow<'_, str>],
        version: Option<u32>,
    ) -> Result<Option<Arc<Lifecycle>>> {
        let find = |catalog: &Catalog| names.iter().find_map(|name| catalog.find(name, version).cloned());
        match find(&self.known().catalog) {
            Some(found) => Ok(Some(found)),
            None => Ok(find(&self.learn().await?.catalog)),
        }
    }

    fn catalog(&self) -> Catalog {
        self.known().catalog.clone()
    }

    /// Many who write one run at the same time would else lose against each other again and again. The second round comes at
    /// once: mostly what was remembered was old.
    async fn before_round(&mut self, turn: usize) {
        if turn > 1 {
            let most = 1u64 << turn.min(6);
            tokio::time::sleep(Duration::from_millis(random() as u64 % most)).await;
        }
    }

    fn remembers_items(&self) -> bool {
        true
    }

    fn as_stored(&self, value: &mut Value) {
        crate::postgres::row::as_stored(value);
    }

    async fn runs(&mut self, ids: &[&str]) -> Result<Vec<Stored>> {
        let mut found = Vec::with_capacity(ids.len());
        let mut missing: Vec<&str> = Vec::new();
        for id in ids.iter().copied().filter(|id| is_askable(id)) {
            // What a transaction has locked it reads itself.
            match Some(id).filter(|_| !self.is_open()).and_then(|id| self.session.0.memory.take(id)) {
                Some(row) => {
                    self.recalled.insert(row.stored.rid, row.items);
                    found.push(Stored { recalled: true, ..row.stored });
                }
                None => missing.push(id),
            }
        }
        if !missing.is_empty() {
            let read = self.select("FROM waypost.runs r WHERE r.run_id = ANY ($1)", args![missing]).await?;
            read.iter().for_each(|stored| _ = self.recalled.remove(&stored.rid));
            found.extend(read);
        }
        Ok(found)
    }

    async fn runs_with_keys(&mut self, keys: &[(&str, &str)]) -> Result<Vec<(Stored, Option<String>)>> {
        let (tenants, keys): (Vec<&str>, Vec<&str>) = keys.iter().copied().unzip();
        let sql = "SELECT r.rid, r.fingerprint FROM unnest($1, $2) AS u(tenant, key) CROSS JOIN LATERAL (SELECT r.rid, r.fingerprint \
                   FROM waypost.runs r WHERE r.tenant = u.tenant AND r.idempotency_key = u.key AND r.idempotency_key IS NOT NULL OFFSET 0) r";
        let rows = self.query(sql, args![tenants, keys]).await?;
        let prints: Outcome<HashMap<i64, Option<String>>> =
            rows.iter().map(|row| Ok((Columns(row).get(0)?, Columns(row).get(1)?))).collect();
        let mut prints = self.read(prints)?;
        let rids: Vec<i64> = prints.keys().copied().collect();
        let found = self.select("FROM waypost.runs r WHERE r.rid = ANY ($1)", args![rids]).await?;
        Ok(found
            .into_iter()
            .map(|stored| {
                let print = prints.remove(&stored.rid).flatten();
                (stored, print)
            })
            .collect())
    }

    async fn items(&mut self, asks: &[ItemsOf<'_>]) -> Result<Vec<StoredItem>> {
        care::items(self, asks).await
    }

    async fn targets(&mut self, ask: &TargetsOf<'_>) -> Result<Targets> {
        targets::targets(self, ask).await
    }

    async fn items_in(&mut self, ask: &ItemsIn<'_>) -> Result<Vec<(usize, StoredItem)>> {
        targets::items_in(self, ask).await
    }

    async fn last_asked(&mut self, stored: &Stored) -> Result<Option<Asked>> {
        care::last_asked(self, stored.rid).await
    }

    async fn noted(&mut self, asks: &[NoteKey<'_>]) -> Result<Vec<Option<(i64, u64)>>> {
        care::noted(self, asks).await
    }

    async fn insert(&mut self, new_rows: Vec<NewRow>) -> Result<Vec<Inserted>> {
        insert::insert(self, new_rows).await
    }

    async fn save(&mut self, edits: Vec<Edit>) -> Result<Vec<Saved>> {
        save::save(self, edits).await
    }

    async fn scan(&mut self, claim: &Claim) -> Result<Scan<Cursor>> {
        queue::scan(self, claim).await
    }

    async fn candidates(
        &mut self,
        cursor: &mut Cursor,
        claim: &Claim,
        limit: usize,
    ) -> Result<Vec<Candidate>> {
        queue::candidates(self, cursor, claim, limit).await
    }

    async fn free_slots(&mut self, keys: Vec<Slot>, counted: Counted) -> Result<BTreeMap<Slot, i64>> {
        queue::free_slots(self, keys, counted).await
    }

    fn room_of<'c>(&self, cursor: &'c mut Cursor, lane: usize) -> &'c mut Room {
        cursor.room_of(lane)
    }

    fn turn_goes_on(&mut self, cursor: &mut Cursor, row: &RunRow) {
        cursor.turn_goes_on(row);
    }

    fn turns<'c>(&self, cursor: &'c mut Cursor) -> Option<&'c mut ClaimTurns> {
        cursor.turns.as_mut()
    }

    fn leave(&mut self, cursor: &mut Cursor, candidate: &Candidate, closes: bool) {
        cursor.leave(candidate, closes);
    }

    async fn set_aside(&mut self, _: &mut Cursor, candidates: &[Candidate]) -> Result<usize> {
        queue::set_aside(self, candidates).await?;
        Ok(candidates.len())
    }

    async fn end_scan(&mut self, cursor: Cursor) -> Result<()> {
        self.scanned = Some(cursor);
        queue::drop_orphans(self).await
    }

    async fn recall_claim(&mut self, worker: &str, key: &str) -> Result<Vec<(Stored, u64)>> {
        kept_claims::recall_claim(self, worker, key).await
    }

    async fn keep_claim(&mut self, worker: &str, key: &str, taken: &[(i64, u64)], until: Time) -> Result<()> {
        kept_claims::keep_claim(self, worker, key, taken, until);
        Ok(())
    }

    async fn room(&mut self, tenant: &str, queue: &str) -> Result<Room> {
        self.open().await?;
        let open = queue::open_queues(self, Some(tenant), &[queue], None).await?;
        Ok(open.rooms.first().copied().unwrap_or(Room::Any))
    }

    async fn overdue(&mut self, what: Overdue<'_>, after: TimeKey, limit: usize) -> Result<Vec<Stored>> {
        care::overdue(self, what, after, limit).await
    }

    async fn let_in_all(&mut self) -> Result<()> {
        care::let_in_all(self).await
    }

    async fn cancelled_parent(&mut self, except: &[String]) -> Result<Option<(String, bool)>> {
        care::cancelled_parent(self, except).await
    }

    async fn children_told(&mut self, parent: &str) -> Result<()> {
        // If nobody has cancelled it again meanwhile: that is another row.
        let Some(entry) = self.parents.remove(parent) else { return Ok(()) };
        let sql = "DELETE FROM waypost.cancelled_parents WHERE run_id = $1 AND ctid = $2::text::tid";
        self.query(sql, args![parent, entry]).await.map(drop)
    }

    async fn children(&mut self, parent: &str, after: i64, limit: usize) -> Result<Vec<Stored>> {
        let condition = "FROM waypost.runs r WHERE r.parent_run_id = $1 AND r.state < 5000 AND r.rid > $2 ORDER BY r.rid LIMIT $3";
        self.select_page(condition, args![parent, after, limit as i64]).await
    }

    async fn lock_children(&mut self, parent: &str, lifecycle: &str) -> Result<Vec<(String, u64)>> {
        care::lock_children(self, parent, lifecycle).await
    }

    async fn live_of_rule(&mut self, tenant: &str, lifecycle: &str, rule: &str) -> Result<Vec<String>> {
        care::live_of_rule(self, tenant, lifecycle, rule).await
    }
}
