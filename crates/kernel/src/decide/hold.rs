//! What the holder of a run may do with it. Every write needs the lease's token; without it, `LEASE_LOST`.

use std::sync::Arc;

use super::Draft;
use super::command::{carry_out, in_words};
use crate::event::{Change, Effect, Hold};
use crate::lifecycle::{Actor, Lifecycle, Outcome, Phase, StateId, Transition};
use crate::refusal::{Code, Refusal};
use crate::request::{Finish, Note, Wait, Who};
use crate::run::{Failure, Intent, Run, Token, Want};
use crate::tally::Tally;
use crate::time::Time;
use crate::waiting::{REASONS_TO_GIVE_BACK, Reason};

/// The lease counts until somebody else has it: one that ran out but was not taken is still its holder's.
pub(crate) fn check_lease(draft: &Draft<'_>, token: Token) -> Result<(), Refusal> {
    let held = draft.run.lease.as_ref().is_some_and(|lease| !lease.is_vacant() && lease.token == token);
    if held && draft.phase() == Phase::Held {
        return Ok(());
    }
    Err(draft.refusal(Code::LeaseLost, "the lease is not yours (any more)".to_owned()))
}

pub(super) fn renew(mut draft: Draft<'_>, token: Token) -> Result<Change, Refusal> {
    check_lease(&draft, token)?;
    extend(&mut draft);
    draft.done()
}

/// Never shortens, and leaves a deadline alone.
pub(crate) fn extend(draft: &mut Draft<'_>) {
    let fixed = draft.lifecycle.state(draft.after.state).deadline.is_some();
    if let Some(lease) = draft.after.lease.as_mut().filter(|_| !fixed) {
        lease.until = lease.until.max(draft.now + lease.length);
    }
}

pub(super) fn note(mut draft: Draft<'_>, token: Token, note: &Note) -> Result<Change, Refusal> {
    check_lease(&draft, token)?;
    match begin_edge(&draft) {
        Some(row) => start(&mut draft, row, Some(note)),
        None => draft.push("note".into(), draft.after.state, Actor::Worker, Effect::default(), Some(note)),
    }
    extend(&mut draft);
    draft.done()
}

/// Only a state with a deadline waits for its holder to begin.
pub(crate) fn begin_edge<'a>(draft: &Draft<'a>) -> Option<&'a Transition> {
    let lifecycle = draft.lifecycle;
    lifecycle.state(draft.after.state).deadline?;
    lifecycle.start_edge(draft.after.state)
}

/// From a deadline to a lease: it runs from now.
pub(crate) fn start(draft: &mut Draft<'_>, row: &Transition, note: Option<&Note>) {
    draft.make(row, Actor::Worker, Effect::default(), note);
    if let Some(lease) = &mut draft.after.lease {
        lease.until = draft.now + lease.length;
    }
}

pub(super) fn finish(mut draft: Draft<'_>, token: Token, finish: &Finish<'_>) -> Result<Change, Refusal> {
    let Some(to) = draft.lifecycle.state_named(finish.to) else {
        let names: Vec<&str> = draft.lifecycle.states.iter().map(|state| &*state.name).collect();
        let message = format!("status: there is no {:?}; allowed: {}", finish.to, names.join(", "));
        return Err(Refusal { field: Some("status"), ..draft.refusal(Code::InvalidInput, message) });
    };
    if draft.phase() != Phase::Held && draft.run.ended_by == Some(token) {
        // The same again is answered as the first time; another end is not this lease's to choose any more.
        return if to == draft.run.state { draft.done() } else { Err(draft.no_such_move(finish.to)) };
    }
    check_lease(&draft, token)?;
    let leaves = draft.lifecycle.phase(to) != Phase::Held;
    if leaves && draft.run.requires_cleanup {
        return Err(draft.refusal(Code::CleanupOwed, "run the cleanup first".to_owned()));
    }
    let parks = draft.lifecycle.phase(to) == Phase::Parked;
    let expires_at = finish.goes_on_at.filter(|_| parks);
    let effect = Effect { expires_at, ..finish_effect(&draft, finish) };
    let row = match edge(&draft, to, &effect)? {
        Some(row) => row,
        None => {
            let begin = begin_edge(&draft).ok_or_else(|| draft.no_such_move(finish.to))?;
            start(&mut draft, begin, None);
            edge(&draft, to, &effect)?.ok_or_else(|| draft.no_such_move(finish.to))?
        }
    };
    let failure = effect.failure.clone().or_else(|| {
        // Most ends have no code, and need no words.
        let words =
            |code| Failure::new(code, &in_words(&row.command, draft.who.by, effect.reason.as_deref()));
        draft.lifecycle.code_of(&row.command).map(words)
    });
    draft.make(row, Actor::Worker, Effect { failure, ..effect }, None);
    if leaves {
        draft.after.ended_by = Some(token);
        draft.after.ended_with = finish.brings;
    } else {
        extend(&mut draft);
    }
    draft.done()
}

/// Where a held run ends if its items alone say as what: the first of its worker's ways out whose guards hold, once the items that
/// follow have followed. A cancel that came first has ways of its own.
pub fn counted_end(lifecycle: &Lifecycle, run: &Run, who: &Who<'_>, now: Time) -> Option<StateId> {
    let draft = Draft::new(lifecycle, run, who, now);
    let is_cancelled = run.intent.as_ref().is_some_and(|intent| intent.want == Want::Cancel);
    let ends = |row: &&Transition| {
        lifecycle.phase(row.to) == Phase::Settled
            && row.by.contains(Actor::Worker)
            && (&*row.command == "cancel") == is_cancelled
    };
    let mut rows = lifecycle.transitions_from(run.state).filter(ends);
    rows.find(|row| draft.failing_guard(row, &Effect::default()).is_none()).map(|row| row.to)
}

/// What an earlier intent says about the end stands; what the finish brings fills the gaps.
fn finish_effect(draft: &Draft<'_>, finish: &Finish<'_>) -> Effect {
    let intent = draft.run.intent.as_ref();
    let cancelled = intent
        .filter(|intent| intent.want == Want::Cancel)
        .and_then(|intent| draft.failure_of(intent.want.command(), &intent.in_words()));
    let recorded = intent.and_then(|intent| intent.failure.clone());
    Effect {
        failure: cancelled.or(recorded).or_else(|| finish.failure.cloned()),
        reason: finish.reason.map(Into::into).or_else(|| intent.and_then(|intent| intent.reason.clone())),
        available_at: finish.retry_in.map(|wait| draft.now + wait),
        ..Effect::default()
    }
}

/// The worker's edge to a state by name. A stored intent narrows where a run may still go: a cancel that came
/// first is final, and so is a failure that was recorded before its cleanup, unless the guards leave no way there.
fn edge<'a>(draft: &Draft<'a>, to: StateId, effect: &Effect) -> Result<Option<&'a Transition>, Refusal> {
    let intent = draft.run.intent.as_ref().filter(|_| draft.lifecycle.phase(to) != Phase::Held);
    let mut rows: Vec<&Transition> =
        rows_to(draft, to).filter(|row| row.by.contains(Actor::Worker)).collect();
    match intent.map(|intent| (intent.want, intent.to)) {
        Some((Want::Cancel, _)) => {
            rows.retain(|row| &*row.command == "cancel");
            if rows.is_empty() && begin_edge(draft).is_none() {
                return Err(
                    draft.refusal(Code::CancelRequested, "a cancel came first: finish as that".into())
                );
            }
        }
        Some((Want::Fail, Some(recorded))) => {
            // Whoever's row it is: the intent stands for it.
            let lead: Vec<&Transition> = rows_to(draft, recorded).collect();
            let closed = lead.iter().all(|row| draft.failing_guard(row, effect).is_some());
            if recorded == to && rows.is_empty() {
                rows = lead;
            } else if recorded != to && (lead.is_empty() || !closed) {
                return Err(
                    draft.refusal(Code::FailureRecorded, "a failure came first: finish as that".into())
                );
            }
        }
        _ => {}
    }
    if rows.is_empty() {
        return Ok(None);
    }
    // Only the first command that leads there: a guard that fails must not fall through to another meaning.
    let command = rows[0].command.clone();
    draft.first_that_holds(rows.into_iter().filter(|row| row.command == command), effect).map(Some)
}

/// The ways there from where the run now is. Staying is a heartbeat's, not a finish's.
fn rows_to<'a>(draft: &Draft<'a>, to: StateId) -> impl Iterator<Item = &'a Transition> + use<'a> {
    let rows = draft.lifecycle.transitions_from(draft.after.state);
    rows.filter(move |row| row.to == to && row.from != row.to)
}

/// With a wait nobody takes it before that is over, unless it is needed for a cleanup.
pub(super) fn release(mut draft: Draft<'_>, token: Token, wait: Option<Wait<'_>>) -> Result<Change, Refusal> {
    check_lease(&draft, token)?;
    wait.map_or(Ok(()), |wait| check_reason(&draft, wait.reason))?;
    let requires_cleanup = draft.run.requires_cleanup || leaves_cleanups(&draft);
    if let Some(intent) = draft.run.intent.as_ref().filter(|_| !requires_cleanup)
        && carry_out(&mut draft, intent, Actor::Worker)
    {
        return draft.done();
    }
    let shifts = draft.shifts_on("release", Some("lost"), None);
    let wait = wait.filter(|wait| draft.run.intent.is_none() && wait.until > draft.now);
    let effect = Effect {
        shifts,
        available_at: wait.map(|wait| wait.until),
        reason: wait.map(|wait| wait.reason.into()),
        ..Effect::hold(Hold::Vacate)
    };
    let until = effect.available_at.unwrap_or(draft.now);
    draft.stay("release", Actor::Worker, effect);
    draft.vacate(until);
    draft.done()
}

/// A failed step ends the course of its run, but for the cleanups: while there are items that have not ended, another worker does
/// those that are.
fn leaves_cleanups(draft: &Draft<'_>) -> bool {
    let fails = draft.run.intent.as_ref().is_some_and(|intent| intent.want == Want::Fail);
    let is_open = |(kind, tally): (&Arc<Lifecycle>, &Tally)| {
        let mut open = kind.state_ids().filter(|state| kind.phase(*state) != Phase::Settled);
        kind.stops_run && open.any(|state| tally.in_state(state) > 0)
    };
    fails && draft.lifecycle.items.iter().zip(draft.run.tallies.iter()).any(is_open)
}

/// What the run waits for is shown as said by its worker, so that it can say no more than it knows.
fn check_reason(draft: &Draft<'_>, reason: &str) -> Result<(), Refusal> {
    let names = REASONS_TO_GIVE_BACK.map(Reason::name);
    if names.contains(&reason) {
        return Ok(());
    }
    let message = format!("reason: there is no {reason:?}; allowed: {}", names.join(", "));
    Err(Refusal { field: Some("reason"), ..draft.refusal(Code::InvalidInput, message) })
}

/// A failure that is known before the run can end as that. The first word stands: a cancel, or the failure that was
/// recorded before.
pub(crate) fn failing(draft: &Draft<'_>, to: StateId, failure: &Failure) -> Option<Intent> {
    let stands = draft.run.intent.as_ref().is_some_and(|intent| intent.want != Want::Pause);
    (!stands).then(|| Intent {
        want: Want::Fail,
        by: draft.who.by.into(),
        reason: None,
        to: Some(to),
        failure: Some(failure.clone()),
        graceful: false,
    })
}

pub(super) fn require_cleanup(
    mut draft: Draft<'_>,
    token: Token,
    required: bool,
    failing: Option<(&str, &Failure)>,
) -> Result<Change, Refusal> {
    check_lease(&draft, token)?;
    let mut intent = None;
    if let Some((state, failure)) = failing {
        let Some(to) = draft.lifecycle.state_named(state) else {
            let message = format!("failing: there is no state {state:?}");
            return Err(Refusal { field: Some("failing"), ..draft.refusal(Code::InvalidInput, message) });
        };
        let leads = draft.lifecycle.transitions_from(draft.run.state).any(|row| {
            let end = draft.lifecycle.state(to);
            let fails = end.phase == Phase::Settled && end.outcome != Some(Outcome::Succeeded);
            row.to == to && row.by.contains(Actor::Worker) && fails
        });
        if !leads {
            return Err(draft.no_such_move(state));
        }
        intent = self::failing(&draft, to, failure);
    }
    if required != draft.run.requires_cleanup || intent.is_some() {
        draft.stay(
            "require-cleanup",
            Actor::Worker,
            Effect { requires_cleanup: Some(required), intent, ..Effect::default() },
        );
    }
    extend(&mut draft);
    draft.done()
}
