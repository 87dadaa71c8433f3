//! The best due runs of one queue, taken in one statement up to the first that needs a decision.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Instant;

use waypost_kernel::{Lease, Run, Span};

use super::super::fault::{Fault, Result};
use super::super::known::Known;
use super::super::marks::{End, Lane, Place, Start};
use super::super::row::{json, shared_object};
use super::super::session::Session;
use super::super::sql::{Columns, args, stamp, uuid};
use super::{Lanes, MOST};
use crate::run::RunRow;
use crate::tokens::fresh;
use crate::verbs::{Claim, Claimed};

/// How far a claim came without a decision.
pub enum Taken {
    All(Vec<Claimed>),
    /// There may be more, or something has to be decided first.
    Some(Vec<Claimed>),
}

pub async fn claim(session: &Session, claim: &Claim) -> Result<Taken> {
    let nothing = Taken::Some(Vec::new());
    let [queue] = &claim.queues[..] else { return Ok(nothing) };
    if claim.tenant.is_some() {
        return Ok(nothing);
    }
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
            "SELECT * FROM waypost.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            args![
                claim.worker.as_str(),
                queue.as_str(),
                lanes.rows,
                lanes.lanes.iter().map(|(_, revision)| revision).sum::<i64>(),
                lanes.lanes.iter().map(|(priority, _)| *priority).collect::<Vec<_>>(),
                looks.starts.iter().map(|(_, _, start)| stamp(start.place.0)).collect::<Vec<_>>(),
                looks.starts.iter().map(|(_, _, start)| start.place.1).collect::<Vec<_>>(),
                wanted,
                claim.can.as_ref().map(|can| can.playbooks.iter().map(String::as_str).collect::<Vec<_>>()),
                claim.can.as_ref().is_some_and(|can| can.carried),
                claim.lease.filter(|lease| *lease > Span::ZERO).map(Span::ms),
                (0..limit).map(|_| uuid(fresh())).collect::<Vec<_>>(),
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
    session.0.plain.remember(met.taken.iter().map(|((_, rid), it)| (*rid, &it.run)));
    met.taken.sort_by_key(|(place, claimed)| (std::cmp::Reverse(claimed.run.priority), *place));
    let taken: Vec<Claimed> = met.taken.into_iter().map(|(_, claimed)| *claimed).collect();
    let enough = taken.len() >= claim.limit || is_complete && (!taken.is_empty() || !worth_it);
    Ok(if enough { Taken::All(taken) } else { Taken::Some(taken) })
}

#[derive(Default)]
struct Met {
    count: usize,
    left: usize,
    taken: Vec<(Place, Box<Claimed>)>,
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
        self.taken.push((place, Box::new(claimed)));
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
        let wanted = claim.kind();
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
        tallies: lifecycle.no_items.clone(),
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
        input: json(columns.get(25)?).into(),
        metadata: shared_object(columns.get(26)?),
        details: shared_object(columns.get(27)?),
    };
    Ok(Some(Claimed { run: row, token, fence, expires_at: until, now: columns.time(1)?.unwrap_or_default() }))
}
