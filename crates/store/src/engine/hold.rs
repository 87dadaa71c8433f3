//! What holders write: heartbeats, events, ends.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::event::Change;
use waypost_kernel::request::{self, Finish, Note};
use waypost_kernel::{Actor, Ask, Code, Event, Failure, Refusal, Request, Span, Token, fold};

use super::batch::{Decided, Entry, each};
use super::edit::{Edit, Extra, Stored};
use super::items::{self, Items};
use super::tx::{NoteKey, Tx};
use crate::rules::item_writes::left_to_move;
use crate::rules::{details, finish, intake, metadata};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::{
    CleanupWrite, Each, FinishWrite, Held, NoteWrite, Noted, ReleaseWrite, Renewed, Repeat,
};
use crate::tokens::who;

/// For how long an event with the same words counts as a repeat.
const WINDOW: Span = Span::from_seconds(10);

/// Decides and keeps it to be written; a repeat leaves nothing.
fn decide<T: Tx>(tx: &T, edit: &mut Edit, by: &str, ask: Ask<'_>, extra: Extra) -> Result<()> {
    let change = asked(tx, edit, by, ask)?;
    if !change.is_repeat(edit.run()) {
        edit.add(change, extra);
    }
    Ok(())
}

/// Whoever calls this has cleaned the worker's name. It is not refused: what the worker brings must not be lost over it.
fn asked<T: Tx>(tx: &T, edit: &Edit, by: &str, ask: Ask<'_>) -> Result<Change> {
    let request = Request { who: who(Actor::Worker, by), ask };
    Ok(waypost_kernel::decide(&edit.row().lifecycle, edit.run(), &request, tx.now())?)
}

struct Renew<'a>(&'a Held);

impl Entry for Renew<'_> {
    type Answer = Renewed;
    type Seen = ();

    fn run_id(&self) -> &str {
        &self.0.run_id
    }

    async fn look_up<T: Tx>(_: &mut T, _: &[(usize, &Self, &Stored)]) -> Result<()> {
        Ok(())
    }

    fn decide<T: Tx>(&self, tx: &T, _: usize, (): &(), edit: &mut Edit) -> Result<Decided<Renewed>> {
        decide(tx, edit, "", Ask::Renew { token: self.0.token }, Extra::default())?;
        Ok(Decided::Now(Renewed::of(edit.run(), tx.now())))
    }
}

pub(crate) async fn renew<T: Tx>(tx: &mut T, leases: &[Held]) -> Result<Each<Renewed>> {
    each(tx, &leases.iter().map(Renew).collect::<Vec<_>>()).await
}

/// A worker's words are cleaned and cut, never refused: an event is not lost because of what it carries.
struct WriteNote<'a> {
    write: &'a NoteWrite,
    by: String,
    note: Note,
}

impl Entry for WriteNote<'_> {
    type Answer = Noted;
    /// Position and seq of the events that entries repeat.
    type Seen = HashMap<usize, (i64, u64)>;

    fn run_id(&self) -> &str {
        &self.write.held.run_id
    }

    fn check(&self) -> Result<()> {
        match &self.write.repeat {
            Repeat::Key(key) => intake::check_name("key", key),
            Repeat::Window | Repeat::Never => Ok(()),
        }
    }

    async fn look_up<T: Tx>(tx: &mut T, entries: &[(usize, &Self, &Stored)]) -> Result<Self::Seen> {
        let since = tx.now() - WINDOW;
        let asked = entries.iter().filter(|(_, it, _)| it.write.repeat != Repeat::Never);
        let (places, asks): (Vec<usize>, Vec<NoteKey<'_>>) = asked
            .map(|(place, it, stored)| {
                let (rid, last) = (stored.rid, stored.last);
                (*place, NoteKey { rid, note: &it.note, repeat: &it.write.repeat, last, since })
            })
            .unzip();
        if asks.is_empty() {
            return Ok(HashMap::new());
        }
        let found = tx.noted(&asks).await?;
        Ok(places.into_iter().zip(found).filter_map(|(place, found)| Some((place, found?))).collect())
    }

    fn decide<T: Tx>(
        &self,
        tx: &T,
        place: usize,
        seen: &Self::Seen,
        edit: &mut Edit,
    ) -> Result<Decided<Noted>> {
        // The lease comes first: a repeat is only answered to the run's holder.
        let ask = Ask::Note { token: self.write.held.token, note: &self.note };
        let change = asked(tx, edit, &self.by, ask)?;
        if let Some((position, seq)) = seen.get(&place) {
            return Ok(Decided::Now(noted(*position, *seq, true)));
        }
        if let Some(seq) = self.written_before(edit) {
            return Ok(Decided::At(seq, |position, seq| noted(position, seq, true)));
        }
        metadata::check_room(&edit.row().metadata, &self.write.metadata)?;
        let metadata = metadata::cleaned(&self.write.metadata).0;
        let key = self.note.key.as_deref().map(str::to_owned);
        let details = details::cleaned(&edit.row().lifecycle, &self.write.details);
        edit.add(change, Extra { metadata, details, key });
        Ok(Decided::At(edit.run().seq, |position, seq| noted(position, seq, false)))
    }
}

fn noted(position: i64, seq: u64, repeated: bool) -> Noted {
    Noted { event_id: format!("evt-{position}"), seq, repeated }
}

impl<'a> WriteNote<'a> {
    fn new(write: &'a NoteWrite) -> WriteNote<'a> {
        let NoteWrite { level, message, payload, repeat, .. } = write;
        let key = match repeat {
            Repeat::Key(key) => Some(key.as_str().into()),
            Repeat::Window | Repeat::Never => None,
        };
        let message = intake::cleaned_message(message).into();
        let note = Note { level: *level, message, payload: intake::cleaned_payload(payload.clone()), key };
        WriteNote { write, by: intake::cleaned_name(&write.by), note }
    }

    /// By an earlier entry of the same list.
    fn written_before(&self, edit: &Edit) -> Option<u64> {
        let same = |known: &Note| match &self.write.repeat {
            Repeat::Never => false,
            Repeat::Key(_) => known.key == self.note.key,
            Repeat::Window => {
                (known.level, &known.message, &known.payload)
                    == (self.note.level, &self.note.message, &self.note.payload)
            }
        };
        let is_same = |(event, _): &&(Event, Extra)| event.note.as_ref().is_some_and(same);
        edit.events.iter().find(is_same).map(|(event, _)| event.seq)
    }
}

pub(crate) async fn note<T: Tx>(tx: &mut T, notes: &[NoteWrite]) -> Result<Each<Noted>> {
    each(tx, &notes.iter().map(WriteNote::new).collect::<Vec<_>>()).await
}

/// A finish, cleaned before its turn comes: what a worker brings is cut, never refused.
#[derive(Debug)]
pub(crate) struct CleanedFinish {
    write: FinishWrite,
    metadata: Map<String, Value>,
    /// Of its metadata, what not even the event has room for.
    left_out: Vec<String>,
    /// See [`finish::brings`].
    brings: Option<Token>,
}

impl CleanedFinish {
    /// The same finish again is answered as the first time; one that brings something else is another finish.
    fn refuse_another(&self, row: &RunRow) -> Result<()> {
        let other = finish::differences(row.run.ended_with, self.brings);
        if other.is_empty() {
            return Ok(());
        }
        Err(Refusal {
            code: Code::InvalidTransition,
            message: format!("the run ended as {} already, with other {}", row.status(), other.join(", ")),
            current: row.status().into(),
            requested: self.write.status.clone(),
            allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
            guard: None,
            field: None,
        }
        .into())
    }

    pub fn of(mut write: FinishWrite) -> CleanedFinish {
        let brings = finish::brings(&write);
        write.by = intake::cleaned_name(&write.by);
        write.failure = write.failure.as_ref().map(intake::cleaned_failure);
        write.reason = write.reason.as_deref().map(intake::cleaned_reason);
        let (metadata, left_out) = metadata::cleaned(&write.metadata);
        CleanedFinish { write, metadata, left_out, brings }
    }
}

impl Entry for &CleanedFinish {
    type Answer = Arc<RunRow>;
    type Seen = Items;

    fn run_id(&self) -> &str {
        &self.write.run_id
    }

    async fn look_up<T: Tx>(tx: &mut T, entries: &[(usize, &Self, &Stored)]) -> Result<Items> {
        items::look_up(
            tx,
            entries.iter().map(|(_, end, stored)| (*stored, left_to_move(&stored.row, &end.write))),
        )
        .await
    }

    fn decide<T: Tx>(
        &self,
        tx: &T,
        _: usize,
        known: &Items,
        edit: &mut Edit,
    ) -> Result<Decided<Self::Answer>> {
        let write = &self.write;
        let finish = Finish {
            to: &write.status,
            failure: write.failure.as_ref(),
            reason: write.reason.as_deref(),
            retry_in: write.retry_in,
            goes_on_at: write.goes_on_at.map(intake::whole_ms),
            brings: self.brings,
        };
        let token = write.token.unwrap_or(fold::UNKNOWN);
        let ask = Ask::Finish { token, finish };
        // Which members the engine owns, and how long each may be, the run's lifecycle says.
        let mut details = details::cleaned(&edit.row().lifecycle, &write.details);
        metadata::note_left_out(&mut details, self.left_out.clone());
        let extra = Extra { metadata: self.metadata.clone(), details, ..Extra::default() };
        let writes = left_to_move(edit.row(), write);
        if writes.is_empty() {
            let change = asked(tx, edit, &write.by, ask)?;
            match change.is_repeat(edit.run()) {
                true => self.refuse_another(edit.row())?,
                false => edit.add(change, extra),
            }
            return Ok(Decided::Now(edit.stored.row.clone()));
        }
        // Both are decided before either is kept: a refusal of one leaves nothing of the other.
        let moves = items::decide(tx, (token, &write.by), writes, known, edit)?;
        let request = Request { who: who(Actor::Worker, &write.by), ask };
        let end = waypost_kernel::decide(&edit.row().lifecycle, &moves.change.after, &request, tx.now())?;
        moves.add_to(edit);
        edit.add(end, extra);
        Ok(Decided::Now(edit.stored.row.clone()))
    }
}

pub(crate) async fn finish<T: Tx>(tx: &mut T, finishes: &[CleanedFinish]) -> Result<Each<Arc<RunRow>>> {
    let ends: Vec<&CleanedFinish> = finishes.iter().collect();
    if finishes.iter().all(|end| end.write.items.is_empty()) {
        return each(tx, &ends).await;
    }
    in_turns(tx, ends).await
}

/// A write of items has to see what an earlier one of the same run left of them.
pub(super) async fn in_turns<T: Tx, E: Entry>(tx: &mut T, entries: Vec<E>) -> Result<Each<E::Answer>> {
    let mut answers: Vec<Option<Result<E::Answer>>> = entries.iter().map(|_| None).collect();
    let mut left: Vec<(usize, E)> = entries.into_iter().enumerate().collect();
    while !left.is_empty() {
        let mut runs = HashSet::new();
        let firsts: Vec<bool> =
            left.iter().map(|(_, entry)| runs.insert(entry.run_id().to_owned())).collect();
        let mut firsts = firsts.into_iter();
        let (now, later): (Vec<_>, Vec<_>) = left.into_iter().partition(|_| firsts.next() == Some(true));
        let (places, entries): (Vec<usize>, Vec<E>) = now.into_iter().unzip();
        match each(tx, &entries).await {
            Ok(found) => places.into_iter().zip(found).for_each(|(at, answer)| answers[at] = Some(answer)),
            // Some are written: they are answered although the others failed.
            Err(error) if !T::IS_ONE_WRITE && answers.iter().any(Option::is_some) => {
                places.into_iter().for_each(|at| answers[at] = Some(Err(error.clone())));
            }
            Err(error) => return Err(error),
        }
        left = later;
    }
    let lost = || Err(StoreError::Unavailable("the write was given up".into()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect())
}

struct Release<'a>(&'a ReleaseWrite);

impl Entry for Release<'_> {
    type Answer = Arc<RunRow>;
    type Seen = ();

    fn run_id(&self) -> &str {
        &self.0.held.run_id
    }

    async fn look_up<T: Tx>(_: &mut T, _: &[(usize, &Self, &Stored)]) -> Result<()> {
        Ok(())
    }

    fn decide<T: Tx>(&self, tx: &T, _: usize, (): &(), edit: &mut Edit) -> Result<Decided<Self::Answer>> {
        let reason = self.0.wait.as_ref().map(|wait| intake::cleaned_reason(&wait.reason));
        let wait = self.0.wait.as_ref().zip(reason.as_deref());
        let wait = wait.map(|(wait, reason)| request::Wait { until: intake::whole_ms(wait.until), reason });
        let by = edit.run().lease.as_ref().and_then(|lease| lease.worker.clone()).unwrap_or_default();
        let by = intake::cleaned_name(&by);
        decide(tx, edit, &by, Ask::Release { token: self.0.held.token, wait }, Extra::default())?;
        Ok(Decided::Now(edit.stored.row.clone()))
    }
}

pub(crate) async fn release<T: Tx>(tx: &mut T, leases: &[ReleaseWrite]) -> Result<Each<Arc<RunRow>>> {
    each(tx, &leases.iter().map(Release).collect::<Vec<_>>()).await
}

/// From now on the run requires its cleanup, or no longer does.
struct RequireCleanup<'a> {
    write: &'a CleanupWrite,
    by: String,
    failing: Option<(&'a str, Failure)>,
}

impl Entry for RequireCleanup<'_> {
    type Answer = Arc<RunRow>;
    type Seen = ();

    fn run_id(&self) -> &str {
        &self.write.held.run_id
    }

    async fn look_up<T: Tx>(_: &mut T, _: &[(usize, &Self, &Stored)]) -> Result<()> {
        Ok(())
    }

    fn decide<T: Tx>(&self, tx: &T, _: usize, (): &(), edit: &mut Edit) -> Result<Decided<Self::Answer>> {
        let failing = self.failing.as_ref().map(|(status, failure)| (*status, failure));
        let ask =
            Ask::RequireCleanup { token: self.write.held.token, required: self.write.required, failing };
        decide(tx, edit, &self.by, ask, Extra::default())?;
        Ok(Decided::Now(edit.stored.row.clone()))
    }
}

pub(crate) async fn require_cleanup<T: Tx>(tx: &mut T, write: &CleanupWrite) -> Result<Arc<RunRow>> {
    let failing = write.failing.as_ref();
    let failing = failing.map(|(status, failure)| (status.as_str(), intake::cleaned_failure(failure)));
    let mut answers =
        each(tx, &[RequireCleanup { write, by: intake::cleaned_name(&write.by), failing }]).await?;
    answers.pop().unwrap_or_else(|| Err(StoreError::no_run(&write.held.run_id)))
}
