//! The rules that make a lifecycle safe to run. Each is a few lines that look at the resolved whole.

mod rows;
mod states;

use super::check::Resolved;
use super::problem::Problem;
use super::{Kind, Lifecycle, Phase, StateId, Transition};

type Found = Option<(&'static str, String, String)>;
type StateRule = fn(&Resolved, StateId) -> Found;
type RowRule = fn(&Resolved, &Transition) -> Found;

const STATE_RULES: [StateRule; 12] = [
    states::reachable,
    states::settles,
    states::outcome_iff_settled,
    states::keys_fit_the_phase,
    states::held_has_a_stale_rule,
    states::held_has_one_length,
    states::stale_edge_exists,
    states::ready_can_be_claimed,
    states::ttl_can_expire,
    states::retry_can_be_claimed,
    states::one_start,
    states::follows_an_edge,
];
const ROW_RULES: [RowRule; 8] = [
    rows::claim_shape,
    rows::steal_shape,
    rows::no_idle_loop,
    rows::worker_holds,
    rows::people_ask,
    rows::settled_stays,
    rows::guard_belongs,
    rows::items_declared,
];

pub fn broken(resolved: &Resolved) -> Vec<Problem> {
    let lifecycle = &resolved.lifecycle;
    let mut problems = Vec::new();
    let mut note = |line: usize, found: Found| {
        problems.extend(found.map(|(rule, message, mend)| Problem { line, rule, message, mend }));
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
        let misplaced = states.iter().find(|state| lifecycle.phase(**state) != Phase::Settled);
        note(
            *line,
            misplaced.map(|state| {
                let message = format!(
                    "operation `{command}` is offered in `{}`, which is not settled",
                    name(lifecycle, *state)
                );
                ("operation-shape", message, "an operation works on a settled run".into())
            }),
        );
    }
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
    let mut reached = vec![false; lifecycle.states.len()];
    let mut todo = start.to_vec();
    while let Some(id) = todo.pop() {
        if !std::mem::replace(&mut reached[usize::from(id.0)], true) {
            todo.extend(lifecycle.transitions_from(id).map(|row| row.to));
        }
    }
    reached
}

fn repeats(resolved: &Resolved, at: usize) -> Found {
    let rows = &resolved.lifecycle.transitions;
    let same = |other: &&Transition| {
        let row = &rows[at];
        other.from == row.from && other.command == row.command && other.guards == row.guards
    };
    rows[..at].iter().find(same).map(|row| {
        let message = format!(
            "`{}` from `{}` stands twice with the same guard",
            row.command,
            name(&resolved.lifecycle, row.from)
        );
        ("duplicate-transition", message, "remove one row, or tell them apart by a guard".into())
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
