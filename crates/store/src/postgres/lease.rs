//! What holders write: heartbeats, events, ends.

use std::collections::{HashMap, HashSet};

use waypost_kernel::request::{Finish, Note};
use waypost_kernel::{Actor, Ask, Request};

use super::batch::{Decided, Entry, each};
use super::fault::Result;
use super::plain;
use super::puts;
use super::row::{self, Stored};
use super::save::{self, Extra, Pending};
use super::session::{Line, Session, Tx};
use super::sql::{Columns, args, stamp};
use crate::codec;
use crate::details;
use crate::error::StoreError;
use crate::intake;
use crate::item_writes::left_to_move;
use crate::run::RunRow;
use crate::tokens::who;
use crate::verbs::{Each, FinishWrite, Held, NoteWrite, Noted, OweWrite, Renewed, Repeat};

const WINDOW: waypost_kernel::Span = waypost_kernel::Span::from_seconds(10);

/// Decides and keeps it to be written; a repeat leaves nothing.
fn decided(tx: &Tx, pending: &mut Pending, by: &str, ask: Ask<'_>, extra: Extra) -> Result<(), StoreError> {
    let by = intake::cleaned_name(by);
    let request = Request { who: who(Actor::Worker, &by), ask };
    let change = waypost_kernel::decide(&pending.row.lifecycle, &pending.row.run, &request, tx.now)?;
    if !change.is_repeat(&pending.row.run) {
        pending.add(change, extra);
    }
    Ok(())
}

struct Renew<'a>(&'a Held);

impl Entry for Renew<'_> {
    type Answer = Renewed;
    type Seen = ();

    fn run_id(&self) -> &str {
        &self.0.run_id
    }

    async fn see(_: &Tx, _: &[(usize, &Self, &Stored)]) -> Result<()> {
        Ok(())
    }

    fn decide(
        &self,
        tx: &Tx,
        _: usize,
        (): &(),
        pending: &mut Pending,
    ) -> Result<Decided<Renewed>, StoreError> {
        decided(tx, pending, "", Ask::Renew { token: self.0.token }, Extra::default())?;
        Ok(Decided::Now(Renewed::of(&pending.row.run, tx.now)))
    }
}

/// Over connections of their own: work that waits must not cost anybody a lease.
pub async fn renew(session: &Session, leases: &[Held]) -> Result<Each<Renewed>> {
    each(session, Line::Beat, &leases.iter().map(Renew).collect::<Vec<_>>()).await
}

/// A worker's words are cleaned and cut, never refused: an event is not lost because of what it carries.
struct Speak<'a> {
    write: &'a NoteWrite,
    note: Note,
}

impl Entry for Speak<'_> {
    type Answer = Noted;
    /// Events that entries repeat.
    type Seen = HashMap<usize, (i64, u64)>;

    fn run_id(&self) -> &str {
        &self.write.held.run_id
    }

    fn check(&self) -> Result<(), StoreError> {
        match &self.write.repeat {
            Repeat::Key(key) => intake::check_name("key", key),
            Repeat::Window | Repeat::Never => Ok(()),
        }
    }

    async fn see(tx: &Tx, entries: &[(usize, &Self, &Stored)]) -> Result<Self::Seen> {
        repeated(tx, entries).await
    }

    fn decide(
        &self,
        tx: &Tx,
        place: usize,
        seen: &Self::Seen,
        pending: &mut Pending,
    ) -> Result<Decided<Noted>, StoreError> {
        let ask = Ask::Note { token: self.write.held.token, note: &self.note };
        // The lease comes first: a repeat is only answered to the run's holder.
        let by = intake::cleaned_name(&self.write.by);
        let request = Request { who: who(Actor::Worker, &by), ask };
        let change = waypost_kernel::decide(&pending.row.lifecycle, &pending.row.run, &request, tx.now)?;
        if let Some((position, seq)) = seen.get(&place) {
            return Ok(Decided::Now(noted(*position, *seq, true)));
        }
        if let Some(seq) = self.said_before(pending) {
            return Ok(Decided::At(seq, |position, seq| noted(position, seq, true)));
        }
        let metadata = intake::cleaned_patch(&self.write.metadata);
        let key = self.note.key.as_deref().map(str::to_owned);
        pending.add(change, Extra { metadata, details: details::cleaned(&self.write.details), key });
        Ok(Decided::At(pending.row.run.seq, |position, seq| noted(position, seq, false)))
    }
}

fn noted(position: i64, seq: u64, repeated: bool) -> Noted {
    Noted { event_id: format!("evt-{position}"), seq, repeated }
}

impl<'a> Speak<'a> {
    fn new(write: &'a NoteWrite) -> Speak<'a> {
        let NoteWrite { level, message, payload, repeat, .. } = write;
        let key = match repeat {
            Repeat::Key(key) => Some(key.as_str().into()),
            Repeat::Window | Repeat::Never => None,
        };
        let message = intake::cleaned_message(message).into();
        let note = Note { level: *level, message, payload: intake::cleaned_payload(payload.clone()), key };
        Speak { write, note }
    }

    /// By an earlier entry of the same list.
    fn said_before(&self, pending: &Pending) -> Option<u64> {
        let same = |said: &Note| match &self.write.repeat {
            Repeat::Never => false,
            Repeat::Key(_) => said.key == self.note.key,
            Repeat::Window => {
                (said.level, &said.message, &said.payload)
                    == (self.note.level, &self.note.message, &self.note.payload)
            }
        };
        let said = |(event, _): &&(waypost_kernel::Event, Extra)| event.note.as_ref().is_some_and(same);
        pending.events.iter().find(said).map(|(event, _)| event.seq)
    }
}

async fn repeated(tx: &Tx, entries: &[(usize, &Speak<'_>, &Stored)]) -> Result<HashMap<usize, (i64, u64)>> {
    let asked: Vec<_> = entries.iter().filter(|(_, it, _)| it.write.repeat != Repeat::Never).collect();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    let payload = |note: &Note| (!codec::is_blank(&note.payload)).then(|| note.payload.to_string());
    let rows = tx
        .query(
            "SELECT u.place, e.position, e.seq FROM unnest($1, $2, $3, $4, $5, $6) AS u(place, rid, key, level, message, payload) \
             CROSS JOIN LATERAL (SELECT e.position, e.seq FROM waypost.events e WHERE e.rid = u.rid AND CASE WHEN u.key IS NOT NULL THEN e.key = u.key \
               ELSE e.at > $7 AND e.level = u.level AND e.message = u.message AND e.payload IS NOT DISTINCT FROM u.payload::jsonb END \
               ORDER BY e.seq LIMIT 1) e",
            args![
                asked.iter().map(|(at, _, _)| *at as i32).collect::<Vec<_>>(),
                asked.iter().map(|(_, _, stored)| stored.rid).collect::<Vec<_>>(),
                asked.iter().map(|(_, it, _)| it.note.key.as_deref()).collect::<Vec<_>>(),
                asked.iter().map(|(_, it, _)| it.note.level.name()).collect::<Vec<_>>(),
                asked.iter().map(|(_, it, _)| &*it.note.message).collect::<Vec<_>>(),
                asked.iter().map(|(_, it, _)| payload(&it.note)).collect::<Vec<_>>(),
                stamp(tx.now - WINDOW),
            ],
        )
        .await?;
    let place = |row| {
        let columns = Columns(row);
        Ok((
            columns.get::<i32>(0)? as usize,
            (columns.get(1)?, u64::from(columns.get::<i32>(2)?.unsigned_abs())),
        ))
    };
    rows.iter().map(place).collect()
}

pub async fn note(session: &Session, notes: &[NoteWrite]) -> Result<Each<Noted>> {
    each(session, Line::Work, &notes.iter().map(Speak::new).collect::<Vec<_>>()).await
}

struct End<'a>(&'a FinishWrite);

impl Entry for End<'_> {
    type Answer = RunRow;
    type Seen = puts::Items;

    fn run_id(&self) -> &str {
        &self.0.run_id
    }

    async fn see(tx: &Tx, entries: &[(usize, &Self, &Stored)]) -> Result<puts::Items> {
        puts::see(tx, entries.iter().map(|(_, end, stored)| (*stored, end.0.items.as_slice()))).await
    }

    fn decide(
        &self,
        tx: &Tx,
        _: usize,
        known: &puts::Items,
        pending: &mut Pending,
    ) -> Result<Decided<RunRow>, StoreError> {
        let write = self.0;
        let failure = write.failure.as_ref().map(intake::cleaned_failure);
        let reason = write.reason.as_deref().map(intake::cleaned_reason);
        let finish = Finish {
            to: &write.status,
            failure: failure.as_ref(),
            reason: reason.as_deref(),
            retry_in: write.retry_in,
        };
        let token = write.token.unwrap_or(waypost_kernel::fold::UNKNOWN);
        let metadata = intake::cleaned_patch(&write.metadata);
        let extra = Extra { metadata, details: details::cleaned(&write.details), key: None };
        let ask = Ask::Finish { token, finish };
        let writes = left_to_move(&pending.row, write);
        if writes.is_empty() {
            decided(tx, pending, &write.by, ask, extra)?;
            return Ok(Decided::Now(pending.row.clone()));
        }
        // Both are decided before either is kept: a refusal of one leaves nothing of the other.
        let moves = puts::decide_moves((token, &write.by), writes, tx.now, known, pending)?;
        let by = intake::cleaned_name(&write.by);
        let request = Request { who: who(Actor::Worker, &by), ask };
        let end = waypost_kernel::decide(&pending.row.lifecycle, &moves.change.after, &request, tx.now)?;
        moves.add_to(pending);
        pending.add(end, extra);
        Ok(Decided::Now(pending.row.clone()))
    }
}

pub async fn finish(session: &Session, finishes: &[FinishWrite]) -> Result<Each<RunRow>> {
    let mut answers: Vec<Option<Result<RunRow, StoreError>>> = finishes.iter().map(|_| None).collect();
    plain::finish(session, finishes, &mut answers).await?;
    let mut left: Vec<usize> = (0..finishes.len()).filter(|at| answers[*at].is_none()).collect();
    while !left.is_empty() {
        // One that moves items has to see what an earlier one left of them.
        let mut runs = HashSet::new();
        let (now, later): (Vec<usize>, _) = left.into_iter().partition(|at: &usize| {
            let write = &finishes[*at];
            runs.insert(write.run_id.as_str()) || write.items.is_empty()
        });
        left = later;
        let ends: Vec<End<'_>> = now.iter().map(|at| End(&finishes[*at])).collect();
        let found = match together(session, &ends).await {
            Ok(found) => found,
            Err(fault) if now.len() == finishes.len() => return Err(fault),
            // Some are written: their answers are not lost over the others.
            Err(fault) => vec![Err(fault.told()); ends.len()],
        };
        now.into_iter().zip(found).for_each(|(at, answer)| answers[at] = Some(answer));
    }
    let lost = || Err(StoreError::Unavailable("the finish was given up".into()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect())
}

/// What the database refuses of one that moves items must not fail its neighbours.
async fn together(session: &Session, ends: &[End<'_>]) -> Result<Each<RunRow>> {
    match each(session, Line::Work, ends).await {
        Err(_) if ends.len() > 1 && ends.iter().any(|end| !end.0.items.is_empty()) => {
            let mut answers = Vec::new();
            for end in ends {
                let one = each(session, Line::Work, std::slice::from_ref(end)).await;
                answers.extend(one.unwrap_or_else(|fault| vec![Err(fault.told())]));
            }
            Ok(answers)
        }
        answers => answers,
    }
}

struct Release<'a>(&'a Held);

impl Entry for Release<'_> {
    type Answer = RunRow;
    type Seen = ();

    fn run_id(&self) -> &str {
        &self.0.run_id
    }

    async fn see(_: &Tx, _: &[(usize, &Self, &Stored)]) -> Result<()> {
        Ok(())
    }

    fn decide(
        &self,
        tx: &Tx,
        _: usize,
        (): &(),
        pending: &mut Pending,
    ) -> Result<Decided<RunRow>, StoreError> {
        let by = pending.row.run.lease.as_ref().and_then(|lease| lease.worker.clone()).unwrap_or_default();
        decided(tx, pending, &by, Ask::Release { token: self.0.token }, Extra::default())?;
        Ok(Decided::Now(pending.row.clone()))
    }
}

pub async fn release(session: &Session, leases: &[Held]) -> Result<Each<RunRow>> {
    each(session, Line::Work, &leases.iter().map(Release).collect::<Vec<_>>()).await
}

pub async fn owe(session: &Session, write: &OweWrite) -> Result<RunRow> {
    let tx = session.begin().await?;
    let owed = async {
        let mut pending = Pending::new(row::by_id(&tx, &write.held.run_id).await?);
        let failing =
            write.failing.as_ref().map(|(to, failure)| (to.as_str(), intake::cleaned_failure(failure)));
        let failing = failing.as_ref().map(|(to, failure)| (*to, failure));
        let ask = Ask::Owe { token: write.held.token, owes: write.owes, failing };
        decided(&tx, &mut pending, &write.by, ask, Extra::default())?;
        Ok(save::save_one(&tx, pending).await?.0.row)
    };
    let owed = owed.await;
    tx.end(owed).await
}
