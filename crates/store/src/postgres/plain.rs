//! Whole batches in one round trip, where nothing needs a decision that depends on what others do meanwhile: `verbs.sql`
//! makes the moves, by the tables that the kernel rendered. What is not plain is left to the general way, which reads,
//! decides and writes.
//!
//! A finish is decided here, on the row as the claim gave it; the write counts only if that is still its seq.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;
use tokio_postgres::Row;
use waypost_kernel::decide::{self, NewRun as Birth};
use waypost_kernel::event::{Change, Effect};
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::request::Finish;
use waypost_kernel::tally::Tally;
use waypost_kernel::{Actor, Ask, Lease, Lifecycle, Phase, Request, Run, Span, Time};

use super::fault::{Fault, Result};
use super::known::Known;
use super::marks::{End, Lane, Place, Start};
use super::row::{json, object};
use super::save::text;
use super::session::Session;
use super::sql::{Columns, args, stamp, time};
use crate::error::StoreError;
use crate::run::RunRow;
use crate::tokens::{fresh, random, who};
use crate::verbs::{Claim, Claimed, Enqueued, FinishWrite, NewRun};
use crate::{birth, codec, intake};

/// One call's share: the events of a statement are counted with 16 bits.
const MOST: usize = 16_000;
/// Claimed rows that are remembered for their finish.
const REMEMBERED: usize = 20_000;

/// What the hot path remembers. All of it may be forgotten or wrong: the database compares.
#[derive(Debug, Default)]
pub struct Plain(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    /// The database's clock as it was last seen, and when that was.
    clock: Option<(Instant, Time)>,
    lanes: HashMap<String, Lanes>,
    /// Lanes that are known to be there.
    opened: HashSet<(String, i16)>,
    claimed: HashMap<String, (i64, RunRow)>,
    claimed_before: HashMap<String, (i64, RunRow)>,
}

/// A queue's lanes, best priority first, each with its revision.
#[derive(Clone, Debug, Default)]
struct Lanes {
    rows: i64,
    lanes: Vec<(i16, i64)>,
}

impl Plain {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_clock(&self, now: Time) {
        self.memory().clock = Some((Instant::now(), now));
    }

    /// What the database's clock says now, about.
    fn now(&self) -> Option<Time> {
        let (seen, now) = self.memory().clock?;
        Some(now + Span::from_ms(seen.elapsed().as_millis() as i64))
    }

    /// Rows of queue, priority, revision and how many they stand for, as just read.
    pub fn set_lanes(&self, queues: &[&str], rows: &[Row]) -> Result<()> {
        let mut found: HashMap<String, Lanes> =
            queues.iter().map(|queue| ((*queue).to_owned(), Lanes::default())).collect();
        for row in rows {
            let columns = Columns(row);
            let lanes = found.entry(columns.get(0)?).or_default();
            lanes.rows += columns.get::<i64>(3)?;
            lanes.lanes.push((columns.get(1)?, columns.get(2)?));
        }
        self.memory().lanes.extend(found);
        Ok(())
    }

    fn lanes(&self, queue: &str) -> Option<Lanes> {
        self.memory().lanes.get(queue).cloned()
    }

    /// After a commit that made them, or found them made.
    pub fn add_lanes<'a>(&self, lanes: impl Iterator<Item = (&'a str, i16)>) {
        let mut memory = self.memory();
        for (queue, priority) in lanes {
            if memory.opened.len() < MOST
                && !memory.opened.iter().any(|(name, level)| (name.as_str(), *level) == (queue, priority))
            {
                memory.opened.insert((queue.to_owned(), priority));
            }
        }
    }

    fn lanes_opened(&self) -> HashSet<(String, i16)> {
        self.memory().opened.clone()
    }

    fn remember(&self, claims: &[(i64, &RunRow)]) {
        let mut memory = self.memory();
        if memory.claimed.len() + claims.len() > REMEMBERED {
            memory.claimed_before = std::mem::take(&mut memory.claimed);
        }
        for (rid, row) in claims {
            memory.claimed.insert(row.id().to_owned(), (*rid, (*row).clone()));
        }
    }

    fn recall(&self, writes: &[FinishWrite]) -> Vec<Option<(i64, RunRow)>> {
        let mut memory = self.memory();
        let mut take = |id: &str| memory.claimed.remove(id).or_else(|| memory.claimed_before.remove(id));
        writes.iter().map(|write| take(&write.run_id)).collect()
    }
}

/// A claim of it needs no decision: nothing guards it, no items follow, no slot is counted.
pub fn is_claimed_plainly(row: &RunRow) -> bool {
    let lifecycle = &row.lifecycle;
    let claims = || {
        let rows = lifecycle.transitions_from(row.run.state);
        rows.filter(|it| &*it.command == "claim" && it.by.contains(Actor::Worker) && it.from != it.to)
    };
    row.phase() == Phase::Ready
        && row.concurrency_key.is_none()
        && has_no_items(&row.run)
        && claims().count() == 1
        && claims().all(|claim| claim.guards.is_empty())
}

fn has_no_items(run: &Run) -> bool {
    run.tallies.iter().all(|tally| tally.by_state.iter().all(|count| *count == 0))
}

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
            Enqueued { run, replayed: false }
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
    row: RunRow,
    effect: Option<Value>,
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
    let mut effect = codec::effect_json(event, &lifecycle);
    codec::add_patch(&mut effect, "metadata", &new.metadata);
    let state = known.code(&lifecycle, change.after.state).ok()?;
    let row = birth::row_of(new, change.after, lifecycle);
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
    Some((alike, Born { row, effect }))
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
                column!(it: text(&it.row.metadata)),
                column!(it: it.effect.as_ref().map(Value::to_string)),
            ],
        )
        .await?;
    session.0.bell.ring(true, &client).await;
    let row = rows.first().ok_or_else(|| super::fault::damaged("no answer"))?;
    Ok(time(Columns(row).get(0)?))
}

/// How far a claim came without a decision.
pub enum Taken {
    All(Vec<Claimed>),
    /// There may be more, or something has to be decided first.
    Some(Vec<Claimed>),
}

pub async fn claim(session: &Session, claim: &Claim) -> Result<Taken> {
    let nothing = Taken::Some(Vec::new());
    let [queue] = &claim.queues[..] else { return Ok(nothing) };
    let limit = claim.limit.min(MOST);
    let Some(lanes) = session.0.plain.lanes(queue).filter(|lanes| !lanes.lanes.is_empty()) else {
        return Ok(nothing);
    };
    let known = session.known();
    let wanted = (!claim.lifecycles.is_empty())
        .then(|| known.codes(|lifecycle, _| claim.lifecycles.iter().any(|name| **name == *lifecycle.name)));
    let looks = Looks::new(session, claim, queue, &lanes);
    let (rows, _client) = session
        .statement(
            "SELECT * FROM waypost.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            args![
                claim.worker.as_str(),
                queue.as_str(),
                lanes.rows,
                lanes.lanes.iter().map(|(_, revision)| revision).sum::<i64>(),
                lanes.lanes.iter().map(|(priority, _)| *priority).collect::<Vec<_>>(),
                looks.starts.iter().map(|(_, _, start)| stamp(start.place.0)).collect::<Vec<_>>(),
                looks.starts.iter().map(|(_, _, start)| start.place.1).collect::<Vec<_>>(),
                wanted,
                claim.lease.filter(|lease| *lease > Span::ZERO).map(Span::ms),
                limit as i32,
            ],
        )
        .await?;
    let mut met = Met::default();
    for row in &rows {
        let columns = Columns(row);
        match columns.get::<Option<i64>>(0)? {
            None => return Ok(nothing),
            Some(0) => met.count = columns.get::<i32>(6)?.unsigned_abs() as usize,
            Some(rid) => met.add(rid, &columns, &known, claim, queue)?,
        }
    }
    let exhausted = met.count < limit;
    let is_complete = met.left == 0 && met.count == met.taken.len();
    let worth_it = looks.end(session, &met, exhausted);
    session.0.plain.remember(&met.taken.iter().map(|((_, rid), it)| (*rid, &it.run)).collect::<Vec<_>>());
    met.taken.sort_by_key(|(place, claimed)| (std::cmp::Reverse(claimed.run.priority), *place));
    let taken: Vec<Claimed> = met.taken.into_iter().map(|(_, claimed)| claimed).collect();
    let enough = taken.len() >= claim.limit || is_complete && (!taken.is_empty() || !worth_it);
    Ok(if enough { Taken::All(taken) } else { Taken::Some(taken) })
}

#[derive(Default)]
struct Met {
    count: usize,
    left: usize,
    taken: Vec<(Place, Claimed)>,
    /// By priority: up to where everything is gone, and whether something stays.
    places: HashMap<i16, (Option<Place>, bool)>,
}

impl Met {
    fn add(
        &mut self,
        rid: i64,
        columns: &Columns<'_>,
        known: &Known,
        claim: &Claim,
        queue: &str,
    ) -> Result<()> {
        let place = (columns.time(2)?.unwrap_or_default(), rid);
        if columns.token(3)?.is_none() {
            self.left += 1;
            // Its lane is not told, and its place bounds them all.
            self.places.values_mut().for_each(|(_, stopped)| *stopped = true);
            return Ok(());
        }
        let Some(claimed) = claimed(columns, known, claim, queue)? else { return Ok(()) };
        let (furthest, _) = self.places.entry(claimed.run.priority).or_insert((None, self.left > 0));
        *furthest = (*furthest).max(Some(place));
        self.taken.push((place, claimed));
        Ok(())
    }
}

/// The claimer's marks for one queue's lanes.
struct Looks {
    began: Instant,
    starts: Vec<(Lane, i64, Start)>,
}

impl Looks {
    fn new(session: &Session, claim: &Claim, queue: &str, lanes: &Lanes) -> Looks {
        let began = Instant::now();
        let mut wanted = claim.lifecycles.clone();
        wanted.sort_unstable();
        let mut marks = session.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let start = |(priority, revision): &(i16, i64)| {
            let lane = Lane { queue: queue.to_owned(), priority: *priority, wanted: wanted.clone() };
            let start = marks.start(&lane, *revision, began);
            (lane, *revision, start)
        };
        Looks { began, starts: lanes.lanes.iter().map(start).collect() }
    }

    /// Sets the marks. Says whether a look from the beginning might find more and is worth its price.
    fn end(self, session: &Session, met: &Met, exhausted: bool) -> bool {
        let now = Instant::now();
        let mut marks = session.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worth_it = false;
        for (lane, revision, start) in self.starts {
            let (place, stopped) = met.places.get(&lane.priority).copied().unwrap_or((None, met.left > 0));
            worth_it |= !start.is_full && marks.may_look_again(&lane, now);
            if (exhausted || place.is_some()) && !stopped {
                marks.set(lane, revision, End { start, place, stopped, exhausted, began: self.began });
            }
        }
        worth_it
    }
}

fn claimed(columns: &Columns<'_>, known: &Known, claim: &Claim, queue: &str) -> Result<Option<Claimed>> {
    let Some((lifecycle, state)) = known.state(columns.get(5)?) else { return Ok(None) };
    let number = |at: usize| Ok::<u32, Fault>(columns.get::<i32>(at)?.unsigned_abs());
    let (flags, fence) = (columns.get::<i32>(12)?, u64::from(number(7)?));
    let (token, until) =
        (columns.token(3)?.unwrap_or(waypost_kernel::fold::UNKNOWN), columns.time(4)?.unwrap_or_default());
    let run = Run {
        id: columns.get::<&str>(17)?.into(),
        state: *state,
        seq: u64::from(number(6)?),
        attempt: number(8)?,
        max_attempts: number(9)?,
        take_overs: 0,
        fence,
        lease: Some(Lease {
            token,
            worker: Some(claim.worker.as_str().into()),
            length: Span::from_ms(columns.get(13)?),
            until,
        }),
        ended_by: None,
        last_command: "claim".into(),
        intent: None,
        owes_cleanup: flags & 8 != 0,
        cleanup_failed: flags & 16 != 0,
        operating: flags & 32 != 0,
        reentrant: flags & 1 != 0,
        reason: None,
        resolved: flags & 2 != 0,
        forced: flags & 4 != 0,
        failure: None,
        created_at: columns.time(14)?.unwrap_or_default(),
        started_at: columns.time(15)?,
        finished_at: None,
        available_at: None,
        expires_at: None,
        tallies: lifecycle.items.iter().map(|kind| Tally::new(kind)).collect(),
    };
    let row = RunRow {
        run,
        lifecycle: lifecycle.clone(),
        tenant: columns.get(18)?,
        queue: queue.to_owned(),
        priority: columns.get(10)?,
        schedule_at: columns.time(16)?,
        concurrency_key: None,
        correlation_id: columns.get(19)?,
        idempotency_key: columns.get(20)?,
        parent_run_id: columns.get(21)?,
        retry_of: columns.get(22)?,
        playbook: columns.get(23)?,
        carried: columns.get::<Option<&str>>(24)?.map(json),
        input: json(columns.get(25)?),
        metadata: object(columns.get(26)?),
        details: object(columns.get(27)?),
    };
    Ok(Some(Claimed { run: row, token, fence, expires_at: until, now: columns.time(1)?.unwrap_or_default() }))
}

/// Ends that are alike but for the run.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SameEnd {
    src: i16,
    via: Option<i16>,
    dst: i16,
    start: Option<String>,
    command: String,
    by: String,
    failure: Option<(String, String)>,
    effect: Option<String>,
}

struct Ending {
    place: usize,
    rid: i64,
    seq: i32,
    row: RunRow,
}

pub async fn finish(
    session: &Session,
    writes: &[FinishWrite],
    answers: &mut [Option<Result<RunRow, StoreError>>],
) -> Result<()> {
    let plain = &session.0.plain;
    let Some(now) = plain.now() else { return Ok(()) };
    let known = session.known();
    let mut groups: HashMap<SameEnd, Vec<Ending>> = HashMap::new();
    for (place, (write, held)) in writes.iter().zip(plain.recall(writes)).enumerate() {
        let Some((rid, row)) = held else { continue };
        let seq = row.run.seq as i32;
        if let Some((end, row)) = ended(write, row, &known, now) {
            groups.entry(end).or_default().push(Ending { place, rid, seq, row });
        }
    }
    for (end, group) in groups {
        write_ends(session, &end, group, answers).await?;
    }
    Ok(())
}

/// What the kernel makes of a finish, if it is plain: a settled run that brings along no more than its failure.
fn ended(write: &FinishWrite, mut row: RunRow, known: &Known, now: Time) -> Option<(SameEnd, RunRow)> {
    let special = write.retry_in.is_some()
        || write.reason.is_some()
        || !write.metadata.is_empty()
        || !write.details.is_empty()
        || row.concurrency_key.is_some()
        || row.parent_run_id.is_some()
        || !has_no_items(&row.run);
    if special {
        return None;
    }
    let failure = write.failure.as_ref().map(intake::cleaned_failure);
    let finish = Finish { to: &write.status, failure: failure.as_ref(), reason: None, retry_in: None };
    let by = intake::cleaned_name(&write.by);
    let ask = Ask::Finish { token: write.token?, finish };
    let request = Request { who: waypost_kernel::Who { actor: Actor::Worker, by: &by, fresh: fresh() }, ask };
    let lifecycle = row.lifecycle.clone();
    let change = waypost_kernel::decide(&lifecycle, &row.run, &request, now).ok()?;
    let code = |state| known.code(&lifecycle, state).ok();
    let (start, last) = match &change.events[..] {
        [last] => (None, last),
        [start, last] if start.effect == Effect::default() && start.note.is_none() => (Some(start), last),
        _ => return None,
    };
    let only_fails = Effect { failure: last.effect.failure.clone(), ..Effect::default() } == last.effect;
    if !only_fails || lifecycle.phase(change.after.state) != Phase::Settled {
        return None;
    }
    let end = SameEnd {
        src: code(row.run.state)?,
        via: match start {
            Some(start) => Some(code(start.to)?),
            None => None,
        },
        dst: code(last.to)?,
        start: start.map(|start| start.command.to_string()),
        command: last.command.to_string(),
        by: by.clone(),
        failure: change.after.failure.as_ref().map(|it| (it.code.to_string(), it.message.to_string())),
        effect: codec::effect_json(last, &lifecycle).map(|effect| effect.to_string()),
    };
    let Change { after, .. } = change;
    row.run = after;
    Some((end, row))
}

async fn write_ends(
    session: &Session,
    end: &SameEnd,
    group: Vec<Ending>,
    answers: &mut [Option<Result<RunRow, StoreError>>],
) -> Result<()> {
    let mut group = group;
    while !group.is_empty() {
        let rest = group.split_off(group.len().min(MOST));
        let written = session
            .statement(
                "SELECT at, rids FROM waypost.settle_alike($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::json)",
                args![
                    group.iter().map(|it| it.rid).collect::<Vec<_>>(),
                    group.iter().map(|it| it.seq).collect::<Vec<_>>(),
                    end.src,
                    end.via,
                    end.dst,
                    end.start.as_deref(),
                    end.command.as_str(),
                    end.by.as_str(),
                    end.failure.as_ref().map(|(code, _)| code.as_str()),
                    end.failure.as_ref().map(|(_, message)| message.as_str()),
                    end.effect.as_deref(),
                ],
            )
            .await;
        match written {
            Ok((rows, client)) => {
                session.0.bell.ring(false, &client).await;
                let Some(row) = rows.first() else { return Ok(()) };
                let (at, rids): (Time, Vec<i64>) = (time(Columns(row).get(0)?), Columns(row).get(1)?);
                let done: HashSet<i64> = rids.into_iter().collect();
                for mut ending in group.into_iter().filter(|it| done.contains(&it.rid)) {
                    ending.row.run.finished_at = Some(at);
                    answers[ending.place] = Some(Ok(ending.row));
                }
            }
            Err(fault) => {
                let error = fault.told();
                group.into_iter().for_each(|it| answers[it.place] = Some(Err(error.clone())));
            }
        }
        group = rest;
    }
    Ok(())
}
