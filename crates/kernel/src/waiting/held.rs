//! Why a held run waits: it was given back, or whoever had it is gone. What comes next is what a sweep would do, asked of the sweep.

use super::{Around, Reason, Waiting, at, line, of};
use crate::decide::{VACANT_FOR_LOST, decide};
use crate::fold;
use crate::lifecycle::{Actor, Lifecycle, OnStale, Phase};
use crate::request::{Ask, Request, Who};
use crate::run::{Lease, Run, Want};
use crate::time::{Span, Time};

/// What a worker may wait for that gives a run back with a time. Any other reason is found out and not said.
pub const REASONS_TO_GIVE_BACK: [Reason; 3] = [Reason::Window, Reason::Retry, Reason::Timeout];

/// Whether whoever should work a held run is gone: its lease ran out, or nobody took it up for so long that nobody may any more.
pub fn is_orphaned(lease: &Lease, now: Time) -> bool {
    if lease.is_vacant() { lease.until + VACANT_FOR_LOST < now } else { lease.is_expired(now) }
}

/// Whether a held run waits as a ready one does: it was given back, and its time has come.
pub fn is_to_be_taken(lease: &Lease, now: Time) -> bool {
    lease.is_vacant() && lease.until <= now && !is_orphaned(lease, now)
}

/// When whoever holds the run was last heard of. Every sign of life extends the lease by its length, but in a state with a deadline.
fn last_sign(lifecycle: &Lifecycle, run: &Run) -> Option<Time> {
    let lease = run.lease.as_ref().filter(|lease| !lease.is_vacant())?;
    Some(lease.until - lifecycle.state(run.state).deadline.unwrap_or(lease.length))
}

pub(super) fn held(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> Option<Waiting> {
    let lease = run.lease.as_ref()?;
    let waiting = if is_orphaned(lease, around.now) {
        orphaned(lifecycle, run, lease, around)
    } else if is_to_be_taken(lease, around.now) {
        to_be_taken(lifecycle, run, lease, around)?
    } else if lease.is_vacant() {
        given_back(run, lease.until, around)
    } else {
        return None;
    };
    let text = match wanted(run) {
        Some(wanted) => format!("{wanted}; {}", waiting.text),
        None => waiting.text,
    };
    Some(Waiting { text, ..waiting })
}

/// What somebody asked for of a run that is held, and who is to do it until when.
pub fn asked(lifecycle: &Lifecycle, run: &Run) -> Option<String> {
    let wanted = wanted(run)?;
    let lease = run.lease.as_ref().filter(|_| lifecycle.phase(run.state) == Phase::Held);
    let Some((lease, worker)) = lease.and_then(|lease| Some((lease, lease.worker.as_ref()?))) else {
        return Some(wanted);
    };
    let sign = at(last_sign(lifecycle, run)?);
    let then = swept(lifecycle, run, lease.until + Span::from_ms(1));
    let then = then.unwrap_or_else(|| "another worker takes it over".to_owned());
    Some(format!(
        "{wanted}; its worker {worker}, last heard of at {sign}, is to do it; if it is silent until {}, {then}",
        at(lease.until)
    ))
}

/// What a sweep does with it. None: it leaves it to workers.
fn swept(lifecycle: &Lifecycle, run: &Run, now: Time) -> Option<String> {
    let who = Who { actor: Actor::Engine, by: "", fresh: fold::UNKNOWN };
    let change = match decide(lifecycle, run, &Request { who, ask: Ask::Sweep }, now) {
        Ok(change) => change,
        Err(refusal) => return Some(format!("the engine cannot end it: {}", refusal.message)),
    };
    let state = change.events.last().map(|_| lifecycle.state(change.after.state))?;
    let does = match state.phase {
        Phase::Settled => format!("ends it as {}", state.name),
        Phase::Held => "leaves its cleanup to the next worker".to_owned(),
        Phase::Ready => "queues it again".to_owned(),
        Phase::Parked | Phase::Draft => format!("takes it to {}", state.name),
    };
    Some(format!("the next sweep of any worker or server {does}"))
}

/// What somebody asked for and nobody has done yet.
fn wanted(run: &Run) -> Option<String> {
    let intent = run.intent.as_ref()?;
    let wanted = match (intent.want, &intent.failure) {
        (Want::Fail, Some(failure)) => format!("failed with {}", failure.code),
        (want, _) => format!("{} asked by {}", want.command(), intent.by),
    };
    let cleanup = if run.requires_cleanup { ", to be cleaned up first" } else { "" };
    Some(format!("{wanted}{cleanup}"))
}

/// Nobody takes it before then. Its worker said in a word what it waits for.
fn given_back(run: &Run, until: Time, around: &Around<'_>) -> Waiting {
    let since = around.moved_at.or(run.started_at).unwrap_or(run.created_at);
    let said = run.reason.as_deref().and_then(Reason::named);
    match said {
        Some(Reason::Window) => {
            of(Reason::Window, since, format!("its maintenance window opens at {}", at(until)))
        }
        Some(Reason::Timeout) => {
            let text = format!(
                "its time (timeout) is over at {}, before its window opens or its next try is due",
                at(until)
            );
            of(Reason::Timeout, since, text)
        }
        _ => of(Reason::Retry, since, format!("it is tried again at {}", at(until))),
    }
}

/// It waits for a place and a worker as a ready run does, and for those of its key that somebody has.
fn to_be_taken(lifecycle: &Lifecycle, run: &Run, lease: &Lease, around: &Around<'_>) -> Option<Waiting> {
    let waiting = line::in_line(lifecycle, run, around, lease.until)?;
    // In a paused queue the time does not count.
    let is_kept = matches!(waiting.reason, Reason::SlotsBusy | Reason::NotTaken | Reason::QueuePaused);
    let text = match is_kept {
        true => waiting.text,
        false => {
            let end = at(lease.until + VACANT_FOR_LOST);
            format!("{}; if nobody takes it before {end}, the engine gives it up", waiting.text)
        }
    };
    Some(Waiting { text, ..waiting })
}

fn orphaned(lifecycle: &Lifecycle, run: &Run, lease: &Lease, around: &Around<'_>) -> Waiting {
    let sign = at(last_sign(lifecycle, run).unwrap_or(lease.until));
    let gone = match &lease.worker {
        Some(worker) if lifecycle.state(run.state).deadline.is_some() => {
            format!("its worker {worker} took it at {sign} and did not begin")
        }
        Some(worker) => format!("its worker {worker} gave no sign of life since {sign}"),
        None => format!("nobody took it since {sign}"),
    };
    let (next, hint) = next(lifecycle, run, lease, around);
    Waiting { hint, ..of(Reason::Orphaned, lease.until, format!("{gone}; {next}")) }
}

/// What becomes of it, and what to do about that.
fn next(lifecycle: &Lifecycle, run: &Run, lease: &Lease, around: &Around<'_>) -> (String, Option<String>) {
    if let Some(swept) = swept(lifecycle, run, around.now) {
        return (swept, None);
    }
    if lifecycle.state(run.state).on_stale == Some(OnStale::Steal) {
        return ("its schedule takes it up again".to_owned(), None);
    }
    if around.pause.is_some() {
        let next = format!("queue {} is paused, and nobody takes it over before that ends", around.queue);
        return (next, Some(around.resume_the_queue()));
    }
    let others = around.workers.iter().filter(|worker| lease.worker.as_deref() != Some(&*worker.name));
    match others.into_iter().any(|worker| worker.serves(lifecycle, run, around)) {
        true => ("the next free worker takes it over".to_owned(), None),
        false => ("no live worker can take it over".to_owned(), Some(around.start_a_worker(run))),
    }
}
