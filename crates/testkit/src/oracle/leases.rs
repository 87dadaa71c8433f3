//! What the holder of a run may do with it.

use serde_json::{Map, Value};
use waypost_kernel::event::Change;
use waypost_kernel::lifecycle::Actor;
use waypost_kernel::request::{Ask, Finish, Note, Request, Wait};
use waypost_kernel::run::Want;
use waypost_kernel::text::MAX_PAYLOAD_BYTES;
use waypost_kernel::{Code, Refusal, Span, Time};

use waypost_store::{
    CleanupWrite, Each, FinishWrite, Held, NoteWrite, Noted, ReleaseWrite, Renewed, Repeat, Reply, Result,
    RunRow, StoreError, Swept,
};

use super::rules::intake::{
    add_members, check_key, cleaned_failure, cleaned_message, cleaned_name, cleaned_payload, cleaned_reason,
};
use super::rules::item_writes::left_to_move;
use super::state::{Entry, Patch, State};
use super::{MemoryStore, who};

/// The last day of the calendar that times are written in.
const LAST: Time = Time::from_micros(253_402_128_000_000_000);

/// For how long an equal event is a repeat.
const REPEAT_WINDOW: Span = Span::from_seconds(10);

impl MemoryStore {
    pub(crate) fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>> {
        self.verb(move |state| Ok(leases.iter().map(|held| state.renew(held)).collect()))
    }

    pub(crate) fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>> {
        self.verb(move |state| Ok(notes.into_iter().map(|write| state.note(write)).collect()))
    }

    pub(crate) fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        self.verb(move |state| Ok(finishes.iter().map(|write| state.finish(write)).collect()))
    }

    pub(crate) fn release(&self, leases: Vec<ReleaseWrite>) -> Reply<'_, Each<RunRow>> {
        self.verb(move |state| Ok(leases.iter().map(|write| state.release(write)).collect()))
    }

    pub(crate) fn require_cleanup(&self, write: CleanupWrite) -> Reply<'_, RunRow> {
        self.verb(move |state| state.require_cleanup(&write))
    }

    pub(crate) fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept> {
        self.verb(move |state| state.sweep(&by, limit))
    }
}

impl State {
    fn renew(&mut self, held: &Held) -> Result<Renewed> {
        let number = self.number_of(&held.run_id)?;
        // A heartbeat writes no event, so nobody reads its name.
        let change = self.decide(number, who(Actor::Worker, ""), Ask::Renew { token: held.token })?;
        let now = self.now;
        let run = &mut self.entry(number)?.row.run;
        *run = change.after;
        let intent = run.intent.as_ref();
        Ok(Renewed {
            expires_at: run.lease.as_ref().map_or(now, |lease| lease.until),
            now,
            intent: intent.map(|intent| intent.want.command()),
            graceful: intent.is_some_and(|intent| intent.want == Want::Cancel && intent.graceful),
        })
    }

    fn note(&mut self, write: NoteWrite) -> Result<Noted> {
        let key = match &write.repeat {
            Repeat::Key(key) => Some(key.as_str()),
            Repeat::Never | Repeat::Window => None,
        };
        check_key("key", key)?;
        let number = self.number_of(&write.held.run_id)?;
        let note = Note {
            level: write.level,
            message: cleaned_message(&write.message).into(),
            payload: cleaned_payload(write.payload),
            key: key.map(Into::into),
        };
        let by = cleaned_name(&write.by);
        let ask = Ask::Note { token: write.held.token, note: &note };
        let change = self.decide(number, who(Actor::Worker, &by), ask)?;
        let now = self.now;
        if let Some(first) = self.entry(number)?.repeated(&write.repeat, &note, now) {
            return Ok(first);
        }
        let row = self.row(number)?;
        check_room(row, &write.metadata)?;
        let lifecycle = row.lifecycle.clone();
        self.commit_with(number, change, &Patch::cleaned(&lifecycle, &write.metadata, &write.details))?;
        let event_id = format!("evt-{}", self.last_position);
        Ok(Noted { event_id, seq: self.row(number)?.run.seq, repeated: false })
    }

    fn finish(&mut self, write: &FinishWrite) -> Result<RunRow> {
        let number = self.number_of(&write.run_id)?;
        let Some(token) = write.token else { return Err(lost(self.row(number)?, &write.status)) };
        let failure = write.failure.as_ref().map(cleaned_failure);
        let reason = write.reason.as_deref().map(cleaned_reason);
        let finish = Finish {
            to: &write.status,
            failure: failure.as_ref(),
            reason: reason.as_deref(),
            retry_in: write.retry_in,
            goes_on_at: write.goes_on_at.map(whole_ms),
            brings: None,
        };
        let by = cleaned_name(&write.by);
        let row = self.row(number)?;
        let (wanted, moves) = match left_to_move(row, write) {
            [] => (Vec::new(), Change { events: Vec::new(), after: row.run.clone() }),
            writes => self.moves(number, (token, &write.by), writes)?,
        };
        let request = Request { who: who(Actor::Worker, &by), ask: Ask::Finish { token, finish } };
        let change = waypost_kernel::decide(&row.lifecycle, &moves.after, &request, self.now)?;
        let lifecycle = row.lifecycle.clone();
        let patch = Patch::cleaned(&lifecycle, &write.metadata, &write.details);
        if change.events.is_empty() && wanted.is_empty() {
            refuse_another_end(self.entry(number)?, write)?;
        } else {
            if !wanted.is_empty() {
                self.commit_items(number, &wanted, moves)?;
            }
            if !change.events.is_empty() {
                self.commit_with(number, change, &patch)?;
            }
            self.runs.entry(number).and_modify(|entry| entry.ended_with = Some(write.clone()));
        }
        Ok(self.row(number)?.clone())
    }

    fn release(&mut self, write: &ReleaseWrite) -> Result<RunRow> {
        let number = self.number_of(&write.held.run_id)?;
        let reason = write.wait.as_ref().map(|wait| cleaned_reason(&wait.reason)).unwrap_or_default();
        let wait = write.wait.as_ref().map(|wait| Wait { until: whole_ms(wait.until), reason: &reason });
        let lease = self.row(number)?.run.lease.as_ref();
        let worker = lease.and_then(|lease| lease.worker.clone()).unwrap_or_default();
        let who = who(Actor::Worker, &worker);
        let change = self.decide(number, who, Ask::Release { token: write.held.token, wait })?;
        self.commit(number, change)?;
        Ok(self.row(number)?.clone())
    }

    fn require_cleanup(&mut self, write: &CleanupWrite) -> Result<RunRow> {
        let number = self.number_of(&write.held.run_id)?;
        let failing = write.failing.as_ref().map(|(state, failure)| (state, cleaned_failure(failure)));
        let by = cleaned_name(&write.by);
        let ask = Ask::RequireCleanup {
            token: write.held.token,
            required: write.required,
            failing: failing.as_ref().map(|(state, failure)| (state.as_str(), failure)),
        };
        let change = self.decide(number, who(Actor::Worker, &by), ask)?;
        self.commit(number, change)?;
        Ok(self.row(number)?.clone())
    }
}

impl Entry {
    /// The event that this one repeats.
    fn repeated(&self, repeat: &Repeat, note: &Note, now: Time) -> Option<Noted> {
        let first = self.events.iter().find(|it| match repeat {
            Repeat::Never => false,
            Repeat::Key(key) => it.event.note.as_ref().is_some_and(|said| said.key.as_deref() == Some(key)),
            Repeat::Window => {
                let same = |said: &Note| {
                    (said.level, &said.message, &said.payload) == (note.level, &note.message, &note.payload)
                };
                it.row.at + REPEAT_WINDOW > now && it.event.note.as_ref().is_some_and(same)
            }
        })?;
        let event_id = format!("evt-{}", first.row.position);
        Some(Noted { event_id, seq: first.row.seq, repeated: true })
    }
}

/// Databases keep milliseconds; rather late than early.
fn whole_ms(at: Time) -> Time {
    Time::from_ms(at.micros().saturating_add(999).div_euclid(1_000)).min(LAST)
}

fn lost(row: &RunRow, requested: &str) -> StoreError {
    let refusal = Refusal {
        code: Code::LeaseLost,
        message: "a finish needs the lease's token".to_owned(),
        current: row.lifecycle.state(row.run.state).name.clone(),
        requested: requested.to_owned(),
        allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
        guard: None,
        field: None,
    };
    refusal.into()
}

/// A run that has ended keeps what it ended with: whoever brings something else asks for another end.
fn refuse_another_end(entry: &Entry, again: &FinishWrite) -> Result<()> {
    let first = entry.ended_with.clone().unwrap_or_default();
    let fails = again.failure.is_some() || again.reason.is_some();
    let mut other = Vec::new();
    if fails && (&first.failure, &first.reason) != (&again.failure, &again.reason) {
        other.push("error");
    }
    if !again.metadata.is_empty() && first.metadata != again.metadata {
        other.push("metadata");
    }
    if !again.details.is_empty() && first.details != again.details {
        other.push("details");
    }
    if !again.items.is_empty() && first.items != again.items {
        other.push("items");
    }
    if other.is_empty() {
        return Ok(());
    }
    let row = &entry.row;
    Err(Refusal {
        code: Code::InvalidTransition,
        message: format!("the run ended as {} already, with other {}", row.status(), other.join(", ")),
        current: row.status().into(),
        requested: again.status.clone(),
        allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
        guard: None,
        field: None,
    }
    .into())
}

/// An event is refused if there is no room for its metadata.
fn check_room(row: &RunRow, metadata: &Map<String, Value>) -> Result<()> {
    let mut both = (*row.metadata).clone();
    if add_members(&mut both, metadata).is_empty() {
        return Ok(());
    }
    both.extend(metadata.clone());
    let bytes = Value::Object(both).to_string().len();
    let message =
        format!("would be {bytes} bytes long with what the run has; at most {MAX_PAYLOAD_BYTES} are allowed");
    Err(StoreError::invalid("metadata", message))
}
