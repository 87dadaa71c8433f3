//! Kernels that forget what is final.

use waypost_kernel::run::Want;
use waypost_kernel::{Ask, Outcome, Phase};

use crate::model::judge::{Case, Ruling, kernel};

use super::{answering, asks_claim, meeting, phase, takes_over, writes};

pub fn cancel_ignored_at_finish(case: &Case<'_>) -> Ruling {
    match case.request.ask {
        Ask::Finish { .. } => meeting(case, |run| run.intent = None),
        _ => kernel(case),
    }
}

pub fn cancel_lost_at_take_over(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if takes_over(case) {
            change.after.intent = None;
        }
    })
}

/// A dead holder counts for more than the cancel that came before.
pub fn lost_beats_cancel(case: &Case<'_>) -> Ruling {
    match case.request.ask {
        Ask::Sweep => meeting(case, |run| run.intent = None),
        _ => kernel(case),
    }
}

pub fn cancel_without_its_code(case: &Case<'_>) -> Ruling {
    answering(case, |change| change.after.failure = None)
}

pub fn recorded_failure_ignored(case: &Case<'_>) -> Ruling {
    let fails = case.run.intent.as_ref().is_some_and(|intent| intent.want == Want::Fail);
    match case.request.ask {
        Ask::Finish { .. } if fails => meeting(case, |run| run.intent = None),
        _ => kernel(case),
    }
}

/// The token that settled the run is not remembered.
pub fn replay_refused(case: &Case<'_>) -> Ruling {
    meeting(case, |run| run.ended_by = None)
}

/// The same finish again is one more event.
pub fn replay_written(case: &Case<'_>) -> Ruling {
    let ruling = kernel(case)?;
    match case.request.ask {
        Ask::Finish { .. } if ruling.is_repeat(case.run) => Ok(writes(case, "note", case.run.state)),
        _ => Ok(ruling),
    }
}

/// The token that settled the run may choose another end.
pub fn settled_rewritten(case: &Case<'_>) -> Ruling {
    let Ask::Finish { token, finish } = case.request.ask else { return kernel(case) };
    let settled = phase(case, case.run) == Phase::Settled && case.run.ended_by == Some(token);
    match case.lifecycle.state_named(finish.to).filter(|to| settled && *to != case.run.state) {
        Some(to) => Ok(writes(case, "finish", to)),
        None => kernel(case),
    }
}

/// A success is taken for a failure that is due.
pub fn success_reruns(case: &Case<'_>) -> Ruling {
    let succeeded = case.lifecycle.state(case.run.state).outcome == Some(Outcome::Succeeded);
    if !asks_claim(case) || !succeeded {
        return kernel(case);
    }
    let retried = case.lifecycle.state_ids().find(|state| case.lifecycle.state(*state).retry);
    meeting(case, |run| {
        run.state = retried.unwrap_or(run.state);
        run.available_at = Some(case.now);
    })
}

pub fn attempt_not_counted(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if asks_claim(case) {
            change.after.attempt = case.run.attempt;
        }
    })
}

pub fn take_over_burns_an_attempt(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if takes_over(case) {
            change.after.attempt = case.run.attempt + 1;
        }
    })
}

pub fn attempts_unbounded(case: &Case<'_>) -> Ruling {
    meeting(case, |run| run.max_attempts = 99)
}

/// A finish that skips the start: one event where the table has two.
pub fn finish_skips_the_start(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if change.events.len() == 2 {
            change.events.remove(0);
            change.events[0].from = Some(case.run.state);
        }
    })
}

pub fn seq_with_a_gap(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if let Some(event) = change.events.last_mut() {
            event.seq += 1;
            change.after.seq += 1;
        }
    })
}

/// The event is written, but its row is not.
pub fn row_behind_its_log(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if matches!(case.request.ask, Ask::Command { .. }) {
            change.after.intent = None;
        }
    })
}
