//! What a written run leaves behind in the other tables: its events, its place in the queue, a reminder of its lease,
//! its slots.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::future::{try_join, try_join3};
use serde_json::Value;
use waypost_kernel::event::Event;
use waypost_kernel::{Phase, Run, Time};

use super::fault::Result;
use super::known::Known;
use super::limits;
use super::plain;
use super::row::Stored;
use super::save::Extra;
use super::session::Tx;
use super::sql::{Columns, args, stamp};
use crate::codec;
use crate::run::RunRow;

#[derive(Debug)]
pub struct Trail {
    known: Arc<Known>,
    now: Time,
    events: Vec<Logged>,
    ready: Vec<Ready>,
    watch: Vec<Watch>,
    entered: Vec<i64>,
    left: Vec<i64>,
    keys: BTreeSet<String>,
}

#[derive(Debug)]
struct Logged {
    rid: i64,
    src: Option<i16>,
    dst: i16,
    event: Event,
    payload: Option<String>,
    effect: Option<String>,
    key: Option<String>,
}

#[derive(Debug)]
struct Ready {
    available_at: Time,
    rid: i64,
    seq: i32,
    priority: i16,
    state: i16,
    plain: bool,
    queue: String,
}

#[derive(Debug)]
struct Watch {
    due_at: Time,
    adrift: bool,
    rid: i64,
}

impl Trail {
    pub fn new(tx: &Tx) -> Trail {
        Trail {
            known: tx.session.known(),
            now: tx.now,
            events: Vec::new(),
            ready: Vec::new(),
            watch: Vec::new(),
            entered: Vec::new(),
            left: Vec::new(),
            keys: BTreeSet::new(),
        }
    }

    /// `before` is nothing for a new run; `counted` is how its row was written.
    pub fn add(
        &mut self,
        (rid, counted): (i64, bool),
        before: Option<&Stored>,
        row: &RunRow,
        events: &[(Event, Extra)],
    ) -> Result<()> {
        for (event, extra) in events {
            self.events.push(self.logged(rid, row, event, extra)?);
        }
        let run = &row.run;
        let is = row.phase();
        if let Some(available_at) = run.available_at.filter(|_| is == Phase::Ready && !events.is_empty()) {
            let state = self.known.code(&row.lifecycle, run.state)?;
            let (seq, priority, queue) = (run.seq as i32, row.priority, row.queue.clone());
            let plain = plain::is_claimed_plainly(row);
            self.ready.push(Ready { available_at, rid, seq, priority, state, plain, queue });
        }
        self.watch.extend(reminder(rid, before.map(|before| &before.row.run), run));
        let was = before.map(|before| before.row.phase());
        if is == Phase::Held && was != Some(Phase::Held) && counted {
            self.entered.push(rid);
        }
        if is != Phase::Held {
            self.left.extend(before.filter(|before| before.counted).map(|_| rid));
            let held_back = matches!(was, Some(Phase::Held | Phase::Ready));
            self.keys.extend(row.concurrency_key.clone().filter(|_| held_back));
        }
        Ok(())
    }

    fn logged(&self, rid: i64, row: &RunRow, event: &Event, extra: &Extra) -> Result<Logged> {
        let mut effect = codec::effect_json(event, &row.lifecycle);
        codec::add_patch(&mut effect, "metadata", &extra.metadata);
        codec::add_patch(&mut effect, "details", &extra.details);
        let payload =
            event.note.as_ref().map(|note| &note.payload).filter(|payload| !codec::is_blank(payload));
        Ok(Logged {
            rid,
            src: event.from.map(|from| self.known.code(&row.lifecycle, from)).transpose()?,
            dst: self.known.code(&row.lifecycle, event.to)?,
            event: event.clone(),
            payload: payload.map(Value::to_string),
            effect: effect.map(|effect| effect.to_string()),
            key: extra.key.clone(),
        })
    }

    /// Gives the events' positions, by run and seq.
    pub async fn write(self, tx: &Tx) -> Result<HashMap<(i64, u64), i64>> {
        tx.has_written(!self.ready.is_empty() || self.watch.iter().any(|it| it.adrift));
        // Sent at once, one behind the other: the server does them in this order.
        let slots = try_join(self.leave(tx), self.enter(tx));
        let places = try_join(self.set_watch(tx), self.set_ready(tx));
        let (positions, _, _) = try_join3(self.write_events(tx), slots, places).await?;
        for key in &self.keys {
            limits::let_in(tx, key).await?;
        }
        self.bump_lanes(tx).await?;
        Ok(positions)
    }

    /// The position is drawn here, after the transaction has written: a reader that sees a gap counts on it.
    async fn write_events(&self, tx: &Tx) -> Result<HashMap<(i64, u64), i64>> {
        if self.events.is_empty() {
            return Ok(HashMap::new());
        }
        macro_rules! column {
            ($($value:tt)+) => { self.events.iter().map($($value)+).collect::<Vec<_>>() };
        }
        let rows = tx
            .query(
                "INSERT INTO waypost.events(rid, seq, at, src, dst, command, actor, who, level, message, payload, effect, key) \
                 SELECT rid, seq, at, src, dst, command, actor, who, level, message, payload::jsonb, effect::json, key \
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
                   AS u(rid, seq, at, src, dst, command, actor, who, level, message, payload, effect, key) \
                 RETURNING rid, seq, position",
                args![
                    column!(|it| it.rid),
                    column!(|it| it.event.seq as i32),
                    column!(|it| stamp(it.event.at)),
                    column!(|it| it.src),
                    column!(|it| it.dst),
                    column!(|it| &*it.event.command),
                    column!(|it| it.event.actor.name()),
                    column!(|it| &*it.event.by),
                    column!(|it| it.event.note.as_ref().map(|note| note.level.name())),
                    column!(|it| it.event.note.as_ref().map(|note| &*note.message)),
                    column!(|it| it.payload.as_deref()),
                    column!(|it| it.effect.as_deref()),
                    column!(|it| it.key.as_deref()),
                ],
            )
            .await?;
        let place = |row| {
            let columns = Columns(row);
            Ok(((columns.get(0)?, u64::from(columns.get::<i32>(1)?.unsigned_abs())), columns.get(2)?))
        };
        rows.iter().map(place).collect()
    }

    async fn leave(&self, tx: &Tx) -> Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        tx.run("DELETE FROM waypost.holders WHERE rid = ANY ($1)", args![self.left]).await.map(drop)
    }

    async fn enter(&self, tx: &Tx) -> Result<()> {
        if self.entered.is_empty() {
            return Ok(());
        }
        tx.run(limits::ENTER, args![self.entered]).await.map(drop)
    }

    /// One row for all leases that end at the same time; what is adrift is looked for one by one.
    async fn set_watch(&self, tx: &Tx) -> Result<()> {
        if self.watch.is_empty() {
            return Ok(());
        }
        tx.run(
            "WITH u AS (SELECT * FROM unnest($1, $2, $3) AS u(due_at, adrift, rid)) \
             INSERT INTO waypost.watch(due_at, adrift, rids) \
             SELECT due_at, false, array_agg(rid ORDER BY rid) FROM u WHERE NOT adrift GROUP BY due_at \
             UNION ALL SELECT due_at, true, ARRAY[rid] FROM u WHERE adrift",
            args![
                self.watch.iter().map(|it| stamp(it.due_at)).collect::<Vec<_>>(),
                self.watch.iter().map(|it| it.adrift).collect::<Vec<_>>(),
                self.watch.iter().map(|it| it.rid).collect::<Vec<_>>(),
            ],
        )
        .await
        .map(drop)
    }

    async fn set_ready(&self, tx: &Tx) -> Result<()> {
        if self.ready.is_empty() {
            return Ok(());
        }
        tx.run(
            "WITH u AS (SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7) AS u(available_at, rid, seq, priority, state, queue, plain)), \
             opened AS (INSERT INTO waypost.lanes(queue, priority) SELECT DISTINCT u.queue, u.priority FROM u WHERE NOT EXISTS \
               (SELECT 1 FROM waypost.lanes l WHERE l.queue = u.queue AND l.priority = u.priority)) \
             INSERT INTO waypost.ready(available_at, rid, seq, priority, state, queue, plain) \
             SELECT available_at, rid, seq, priority, state, queue, plain FROM u",
            args![
                self.ready.iter().map(|it| stamp(it.available_at)).collect::<Vec<_>>(),
                self.ready.iter().map(|it| it.rid).collect::<Vec<_>>(),
                self.ready.iter().map(|it| it.seq).collect::<Vec<_>>(),
                self.ready.iter().map(|it| it.priority).collect::<Vec<_>>(),
                self.ready.iter().map(|it| it.state).collect::<Vec<_>>(),
                self.ready.iter().map(|it| it.queue.as_str()).collect::<Vec<_>>(),
                self.ready.iter().map(|it| it.plain).collect::<Vec<_>>(),
            ],
        )
        .await
        .map(drop)
    }

    /// What is put where claimers may have been already makes them look from the beginning. Comes last: the row is
    /// locked until the commit.
    async fn bump_lanes(&self, tx: &Tx) -> Result<()> {
        let behind: BTreeSet<(&str, i16)> = self
            .ready
            .iter()
            .filter(|it| it.available_at < self.now)
            .map(|it| (it.queue.as_str(), it.priority))
            .collect();
        limits::bump_lanes(tx, &behind).await
    }
}

/// A new lease, or one that now ends sooner, gets a reminder; a heartbeat does not: the old one is looked at when it is
/// due, and set again.
fn reminder(rid: i64, before: Option<&Run>, after: &Run) -> Option<Watch> {
    let lease = after.lease.as_ref()?;
    let known = before.and_then(|before| before.lease.as_ref());
    let is_watched = known.is_some_and(|known| known.token == lease.token && known.until <= lease.until);
    (!is_watched).then(|| Watch { due_at: lease.until, adrift: lease.is_vacant(), rid })
}
