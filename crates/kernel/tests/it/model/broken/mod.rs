//! Broken kernels: the real one, with what it is asked or what it answers bent. None of them is a hook in the
//! kernel; each is a mistake that a store, or a next version of `decide`, could make.

pub mod ends;
pub mod fences;
pub mod targets;
pub mod time;

use waypost_kernel::event::Effect;
use waypost_kernel::{Actor, Ask, Change, Event, Phase, Run, StateId, Token};

use super::judge::{Case, Ruling, kernel};

/// The same request meets another row.
fn meeting(case: &Case<'_>, bend: impl FnOnce(&mut Run)) -> Ruling {
    let mut run = case.run.clone();
    bend(&mut run);
    kernel(&Case { run: &run, ..case.clone() })
}

/// What the kernel answers, bent before it is written.
fn answering(case: &Case<'_>, bend: impl FnOnce(&mut Change)) -> Ruling {
    let mut ruling = kernel(case);
    if let Some(change) = ruling.as_mut().ok().filter(|change| !change.is_repeat(case.run)) {
        bend(change);
    }
    ruling
}

fn asks_claim(case: &Case<'_>) -> bool {
    matches!(case.request.ask, Ask::Claim { .. })
}

fn phase(case: &Case<'_>, run: &Run) -> Phase {
    case.lifecycle.phase(run.state)
}

/// A claim that finds the run held: a take-over, or cron's steal.
fn takes_over(case: &Case<'_>) -> bool {
    asks_claim(case) && phase(case, case.run) == Phase::Held
}

/// The token that would be accepted now.
fn current(run: &Run, otherwise: Token) -> Token {
    run.lease.as_ref().map_or(otherwise, |lease| lease.token)
}

/// One further event, however it came about.
fn writes(case: &Case<'_>, command: &str, to: StateId) -> Change {
    let mut after = case.run.clone();
    after.seq += 1;
    after.state = to;
    let event = Event {
        seq: after.seq,
        at: case.now,
        command: command.into(),
        from: Some(case.run.state),
        to,
        actor: Actor::Worker,
        by: case.request.who.by.into(),
        note: None,
        effect: Effect::default(),
    };
    Change { events: vec![event], after }
}
