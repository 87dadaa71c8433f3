//! Targets: counted rightly, none forgotten, none tried twice for one answer.

use waypost_kernel::item::{Item, Role};
use waypost_kernel::{Guard, Outcome, Phase};

use crate::model::action::{Action, Answer, Report};
use crate::model::store;

use super::{Faults, Law, Step};

pub fn check(step: &Step<'_>, faults: &mut Faults) {
    let Some(kind) = step.setup.lifecycle.items.first() else { return };
    let items = &step.after.items;
    for (at, counted) in step.run.tallies[0].by_state.iter().enumerate() {
        let there = items.iter().filter(|item| usize::from(item.state.0) == at).count();
        faults.unless(Law::Tally, there == *counted as usize);
    }
    let phase = |phase| items.iter().filter(|item| kind.phase(item.state) == phase).count();
    let came_out =
        |outcome| items.iter().filter(|item| kind.state(item.state).outcome == Some(outcome)).count();
    let open = phase(Phase::Ready) + phase(Phase::Held) + phase(Phase::Parked);
    if step.phase(step.run.state) == Phase::Settled {
        faults.unless(Law::Open, open == 0);
        let guarded =
            step.setup.lifecycle.transitions.iter().any(|row| row.guards.contains(&Guard::AllItemsOk));
        let succeeded =
            step.setup.lifecycle.state(step.run.state).outcome == Some(Outcome::Succeeded) && guarded;
        let clean =
            open + came_out(Outcome::Failed) == 0 && (items.is_empty() || came_out(Outcome::Succeeded) > 0);
        faults.unless(Law::Applied, !succeeded || clean || step.run.operating);
    }
    faults.unless(Law::Lost, !step.granted() || phase(Phase::Held) == 0);
    tries(step, faults);
    course(step, faults);
}

/// What was not under way before a step that failed is not begun after it; and the run does not end well.
fn course(step: &Step<'_>, faults: &mut Faults) {
    let Some(kind) = step.setup.lifecycle.items.first() else { return };
    // What was still under way when a run ended failed with it, and ended nothing.
    let held = step.was_phase() == Some(Phase::Held);
    if !held || store::ended_by(step.setup, step.before).next().is_none() {
        return;
    }
    let waits = |item: &Item| matches!(kind.phase(item.state), Phase::Ready | Phase::Parked);
    let works = |item: &Item| {
        let done = kind.state(item.state).outcome == Some(Outcome::Succeeded);
        done || kind.phase(item.state) == Phase::Held
    };
    for (was, item) in step.before.items.iter().zip(&step.after.items) {
        let begins = item.role != Role::Cleanup && waits(was) && works(item);
        faults.unless(Law::Course, !begins);
    }
    let ended = step.setup.lifecycle.state(step.run.state).outcome;
    faults.unless(Law::Failed, ended != Some(Outcome::Succeeded));
}

/// `try_no` rises by one, for the target that was answered, and attempts stay within their budget.
fn tries(step: &Step<'_>, faults: &mut Faults) {
    let late = matches!(step.action, Action::Held(_, Report::Target(_, Answer::AgainLate)));
    faults.unless(Law::Tries, !late || !step.writes());
    for (at, (was, item)) in step.before.items.iter().zip(&step.after.items).enumerate() {
        let answered = matches!(step.action, Action::Held(_, Report::Target(of, answer))
            if of == at && !matches!(answer, Answer::Begin | Answer::AgainLate));
        let rose = item.try_no.checked_sub(was.try_no);
        let fits = rose == Some(0) || answered && rose == Some(1);
        faults.unless(Law::Tries, fits && item.attempts <= item.max_retries);
    }
}
