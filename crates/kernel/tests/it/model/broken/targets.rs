//! Kernels that lose sight of a run's targets.

use waypost_kernel::tally::Tally;
use waypost_kernel::{Ask, Change, Outcome, Phase};

use crate::model::judge::{Case, ItemCase, Ruling, kernel, kernel_items};

use super::{answering, meeting, phase, takes_over};

fn stay_behind(case: &Case<'_>, change: &mut Change) {
    change.events.iter_mut().for_each(|event| event.effect.shifts.clear());
    change.after.tallies.clone_from(&case.run.tallies);
}

/// A lost lease's targets stay under way.
pub fn lost_targets_stay(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if takes_over(case) {
            stay_behind(case, change);
        }
    })
}

/// A run that ends does not take its open targets along.
pub fn end_leaves_targets_open(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if phase(case, &change.after) == Phase::Settled {
            stay_behind(case, change);
        }
    })
}

/// Whatever the targets came to, the guard believes what the worker says.
pub fn guard_skipped(case: &Case<'_>) -> Ruling {
    let Ask::Finish { finish, .. } = case.request.ask else { return kernel(case) };
    let to = case.lifecycle.state_named(finish.to).map(|to| case.lifecycle.state(to));
    let kind = &case.lifecycle.items[0];
    let ok = kind.states.iter().position(|state| state.outcome == Some(Outcome::Succeeded));
    let Some(ok) = ok.filter(|_| to.is_some_and(|to| to.outcome == Some(Outcome::Succeeded))) else {
        return kernel(case);
    };
    let total = case.run.tallies[0].by_state.iter().sum();
    let mut ruling = meeting(case, |run| {
        run.tallies[0] = Tally::new(kind);
        run.tallies[0].by_state[ok] = total;
    });
    ruling.iter_mut().for_each(|change| change.after.tallies.clone_from(&case.run.tallies));
    ruling
}

/// Items move, their count does not.
pub fn tally_forgotten(case: &ItemCase<'_>) -> Ruling {
    let mut ruling = kernel_items(case);
    ruling.iter_mut().for_each(|change| change.after.tallies.clone_from(&case.run.tallies));
    ruling
}

/// Nobody looks whether a step failed before.
pub fn begins_after_a_failure(case: &ItemCase<'_>) -> Ruling {
    let mut run = case.run.clone();
    run.intent = None;
    let mut ruling =
        kernel_items(&ItemCase { run: &run, failed: Vec::new(), asks: case.asks.clone(), ..case.clone() });
    ruling.iter_mut().for_each(|change| {
        change.after.intent = change.after.intent.take().or_else(|| case.run.intent.clone());
    });
    ruling
}

/// The step's failure is written, but nobody notes that the run fails with it.
pub fn failure_not_recorded(case: &ItemCase<'_>) -> Ruling {
    let mut ruling = kernel_items(case);
    ruling.iter_mut().for_each(|change| {
        change.after.intent.clone_from(&case.run.intent);
        change.events.iter_mut().for_each(|event| event.effect.intent = None);
    });
    ruling
}
