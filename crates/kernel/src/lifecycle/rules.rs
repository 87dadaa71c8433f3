//! The rules that make a lifecycle safe to run. Each is a few lines that look at the resolved whole.

mod rows;
mod states;

use super::check::Resolved;
use super::decisions;
use super::{Actor, Actors, Kind, Lifecycle, Phase, StateId, Transition};
use waypost_schema::Problem;

type Found = Option<(&'static str, String, String)>;
type StateRule = fn(&Resolved, StateId) -> Found;
type RowRule = fn(&Resolved, &Transition) -> Found;

const STATE_RULES: [StateRule; 20] = [
    states::reachable,
    states::settles,
    states::outcome_iff_settled,
    states::keys_fit_the_phase,
    states::held_has_a_stale_rule,
    states::held_has_one_length,
    states::stale_edge_exists,
    states::ready_can_be_claimed,
    states::ttl_can_expire,
    states::engine_can_end,
    states::cancel_can_be_done,
    states::worker_can_fail,
    states::retry_can_be_claimed,
    states::one_start,
    states::start_is_free,
    states::follows_an_edge,
    states::follows_under_one_condition,
    states::follows_to_one_condition,
    states::start_moves_no_items,
    states::nothing_begins_by_itself,
];
const ROW_RULES: [RowRule; 12] = [
    rows::claim_shape,
    rows::steal_shape,
    rows::no_idle_loop,
    rows::worker_holds,
    rows::people_ask,
    rows::holder_obeys,
    rows::engine_sweeps,
    rows::repeat_stays,
    rows::settled_stays,
    rows::guard_belongs,
    rows::items_declared,
    rows::decisions_declared,
];

/// Those that look at a state alone.
const ALONE: [StateRule; 4] = [
    states::outcome_iff_settled,
    states::keys_fit_the_phase,
    states::held_has_a_stale_rule,
    states::held_has_one_length,
];

/// What is wrong with states by themselves, whatever is wrong elsewhere.
pub fn broken_alone(resolved: &Resolved) -> Vec<Problem> {
    let found = resolved.lifecycle.state_ids().flat_map(|id| {
        let line = resolved.state_lines[usize::from(id.0)];
        ALONE.into_iter().filter_map(move |rule| {
            let (rule, message, hint) = rule(resolved, id)?;
            Some(Problem { line, rule, message, hint, ..Problem::default() })
        })
    });
    found.collect()
}

pub fn broken(resolved: &Resolved) -> Vec<Problem> {
    let lifecycle = &resolved.lifecycle;
    let mut problems = Vec::new();
    let mut note = |line: usize, found: Found| {
        problems.extend(found.map(|(rule, message, hint)| Problem {
            line,
            rule,
            message,
            hint,
            ..Problem::default()
        }));
    };
    for id in lifecycle.state_ids() {
        for rule in STATE_RULES {
            note(resolved.state_lines[usize::from(id.0)], rule(resolved, id));
        }
    }
    for (at, row) in lifecycle.transitions.iter().enumerate() {
        let line = resolved.transition_lines[at];
        for rule in ROW_RULES {
            note(line, rule(resolved, row));
        }
        note(line, repeats(resolved, at));
    }
    note(resolved.initial_line, initial_fits(lifecycle));
    for ((command, states), line) in lifecycle.operations.iter().zip(&resolved.operation_lines) {
        note(*line, operation_fits(lifecycle, command, states));
    }
    problems.extend(decisions::can_be_asked(lifecycle, resolved.decisions_line));
    problems
}

fn name(lifecycle: &Lifecycle, id: StateId) -> &str {
    &lifecycle.state(id).name
}

fn is_run(resolved: &Resolved) -> bool {
    resolved.lifecycle.kind == Kind::Run
}

/// What can be reached from these states by the transitions.
fn closure(lifecycle: &Lifecycle, start: &[StateId]) -> Vec<bool> {
    closure_of(lifecycle, start, |_| true)
}

/// What can be reached by some of them.
fn closure_of(lifecycle: &Lifecycle, start: &[StateId], counts: impl Fn(&Transition) -> bool) -> Vec<bool> {
    let mut reached = vec![false; lifecycle.states.len()];
    let mut todo = start.to_vec();
    while let Some(id) = todo.pop() {
        if !std::mem::replace(&mut reached[usize::from(id.0)], true) {
            todo.extend(lifecycle.transitions_from(id).filter(|row| counts(row)).map(|row| row.to));
        }
    }
    reached
}

/// Of two rows for the same command the first whose guards hold is taken, so the second needs a guard that
/// the first has not. A worker's finish names its state too: there the order says nothing.
fn repeats(resolved: &Resolved, at: usize) -> Found {
    let lifecycle = &resolved.lifecycle;
    let row = &lifecycle.transitions[at];
    let finishes = row.by.contains(Actor::Worker) && lifecycle.phase(row.from) == Phase::Held;
    let earlier = lifecycle.transitions[..at]
        .iter()
        .filter(|other| other.from == row.from && other.command == row.command)
        .find(|other| other.guards.iter().all(|guard| row.guards.contains(guard)))?;
    let what = format!("`{}` from `{}`", row.command, name(lifecycle, row.from));
    if row.guards.iter().all(|guard| earlier.guards.contains(guard)) {
        let message = format!("{what} stands twice with the same guard");
        return Some((
            "duplicate-transition",
            message,
            "remove one row, or tell them apart by a guard".into(),
        ));
    }
    let covered = Actor::ALL.into_iter().all(|actor| !row.by.contains(actor) || earlier.by.permits(actor));
    (covered && is_run(resolved) && !finishes).then(|| {
        let message = format!("{what} never gets here: an earlier row asks for less");
        ("shadowed-transition", message, "move the row with more guards up".into())
    })
}

fn operation_fits(lifecycle: &Lifecycle, command: &str, states: &[StateId]) -> Found {
    let shape = |message: String, mend: &str| Some(("operation-shape", message, mend.to_owned()));
    if states.is_empty() {
        return shape(
            format!("operation `{command}` is never offered"),
            "name the settled states it works on",
        );
    }
    if let Some(state) = states.iter().find(|state| lifecycle.phase(**state) != Phase::Settled) {
        let message = format!(
            "operation `{command}` is offered in `{}`, which is not settled",
            name(lifecycle, *state)
        );
        return shape(message, "an operation works on a settled run");
    }
    let engine = Actors::default().with(Actor::Engine);
    let asked = lifecycle.transitions.iter().find(|row| &*row.command == command && row.by != engine);
    asked.and_then(|row| {
        let message = format!("`{command}` is an operation and {}'s move in the table", row.by);
        shape(message, "leave that row to the engine, or name the operation otherwise")
    })
}

fn initial_fits(lifecycle: &Lifecycle) -> Found {
    let Some(first) = lifecycle.initial.first() else {
        return Some((
            "no-initial",
            "`initial` is empty".into(),
            "name the state that a new run starts in".into(),
        ));
    };
    for id in &lifecycle.initial {
        if matches!(lifecycle.phase(*id), Phase::Parked | Phase::Settled) {
            let message = format!("a run cannot start as `{}`", name(lifecycle, *id));
            return Some(("initial-phase", message, "start in a draft, ready or held state".into()));
        }
        let folded = lifecycle.transitions_from(*first).any(|row| row.to == *id && row.by.any_person());
        if id != first && !folded {
            let message = format!(
                "nobody can move `{}` to `{}`, so no run may start there",
                name(lifecycle, *first),
                name(lifecycle, *id)
            );
            return Some((
                "initial-fold",
                message,
                "further initial states must be one client's move from the first".into(),
            ));
        }
    }
    None
}
