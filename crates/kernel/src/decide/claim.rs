//! Taking a run: a ready one, one that is left vacant, one whose lease ran out, one that is due for a retry.

use super::{Draft, VACANT_FOR_LOST, hold};
use crate::event::{Change, Effect, Hold};
use crate::lifecycle::{Actor, OnStale, Phase};
use crate::refusal::{Code, Refusal};
use crate::run::{Lease, Want};
use crate::time::{Span, Time};

/// Workers that die in a run's required cleanup, where its state has no rule of its own for take-overs.
const MAX_CLEANUP_TAKE_OVERS: u32 = 5;

pub(super) fn claim(mut draft: Draft<'_>, asked: Option<Span>, start: bool) -> Result<Change, Refusal> {
    let state = draft.lifecycle.state(draft.run.state);
    let command = match (draft.phase(), &draft.run.lease) {
        (Phase::Ready, _) => "claim",
        (Phase::Settled, _) if state.retry && draft.run.available_at.is_some() => "retry",
        (Phase::Held, Some(lease)) => {
            if lease.token == draft.who.fresh && !lease.is_vacant() {
                return draft.done();
            }
            match may_take(&draft, lease) {
                Some(Take::Over { expired }) => return take_over(draft, asked, expired, start),
                Some(Take::Steal) => "steal",
                None if lease.is_vacant() && lease.until > draft.now => {
                    return Err(draft.refusal(Code::NotDue, "it waits for its time".to_owned()));
                }
                None => {
                    let message = "another worker holds it, or the engine has yet to end it".to_owned();
                    return Err(draft.refusal(Code::LeaseHeld, message));
                }
            }
        }
        _ => return Err(draft.no_such_move("claim")),
    };
    if command != "steal" && !is_due(&draft) {
        return Err(draft.refusal(Code::NotDue, "it may not be taken yet".to_owned()));
    }
    let effect = Effect::hold(Hold::Grant);
    let row = draft.pick(command, Actor::Worker, &effect)?;
    draft.make(row, Actor::Worker, effect, None);
    granted(draft, asked, start)
}

/// The lease and, if the claimer is about to work, the beginning: were that a write of its own, a worker that is killed in
/// between would leave a run that looks as if it had not begun.
fn granted(mut draft: Draft<'_>, asked: Option<Span>, start: bool) -> Result<Change, Refusal> {
    draft.grant(asked);
    if let Some(begin) = hold::begin_edge(&draft).filter(|_| start) {
        hold::start(&mut draft, begin, None);
    }
    draft.done()
}

enum Take {
    Over { expired: bool },
    Steal,
}

/// What has outlived its time is the sweeper's, also before it came by.
fn is_due(draft: &Draft<'_>) -> bool {
    let (run, now) = (draft.run, draft.now);
    let expires = draft.lifecycle.transitions_from(run.state).any(|row| &*row.command == "expire");
    run.available_at.is_some_and(|at| at <= now) && !(expires && run.expires_at.is_some_and(|at| at <= now))
}

fn may_take(draft: &Draft<'_>, lease: &Lease) -> Option<Take> {
    if lease.is_vacant() {
        let may = lease.until <= draft.now && !is_abandoned(lease, draft.now);
        return may.then_some(Take::Over { expired: false });
    }
    if !lease.is_expired(draft.now) {
        return None;
    }
    if may_take_over(draft) {
        return Some(Take::Over { expired: true });
    }
    may_steal(draft).then_some(Take::Steal)
}

/// Whether an expired lease is the next worker's rather than the engine's.
pub(super) fn may_take_over(draft: &Draft<'_>) -> bool {
    let run = draft.run;
    let state = draft.lifecycle.state(run.state);
    let limit = match (&run.intent, run.requires_cleanup) {
        (Some(_), false) => 0,
        (Some(intent), true) if intent.want != Want::Pause && state.on_stale != Some(OnStale::TakeOver) => {
            MAX_CLEANUP_TAKE_OVERS
        }
        // Who asked for several attempts loses one with a worker, and not the run.
        _ if state.on_stale == Some(OnStale::Lose) => run.max_attempts.saturating_sub(run.attempt),
        _ => state.max_take_overs,
    };
    run.take_overs < limit
}

pub(super) fn may_steal(draft: &Draft<'_>) -> bool {
    let run = draft.run;
    draft.lifecycle.state(run.state).on_stale == Some(OnStale::Steal)
        && run.intent.is_none()
        && draft.pick("steal", Actor::Worker, &Effect::default()).is_ok()
}

pub(super) fn is_abandoned(lease: &Lease, now: Time) -> bool {
    lease.until + VACANT_FOR_LOST < now
}

/// The same attempt goes on under a new lease: items that were under way go back to where they can be begun.
fn take_over(
    mut draft: Draft<'_>,
    asked: Option<Span>,
    expired: bool,
    start: bool,
) -> Result<Change, Refusal> {
    let shifts = draft.shifts_on("take-over", Some("lost"), None);
    draft.stay("take-over", Actor::Worker, Effect { expired, shifts, ..Effect::hold(Hold::Grant) });
    granted(draft, asked, start)
}
