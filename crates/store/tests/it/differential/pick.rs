//! Requests that make sense: what the table has from where a run or an item is. Now and then, any.

use serde_json::json;
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::{Actor, Lifecycle, Outcome, Phase};
use waypost_kernel::{Failure, Span};
use waypost_store::{ItemRow, ItemWrite, RunRow};

use super::op::{Command, ItemMove, Pick};

pub const KEYS: [&str; 5] = ["a", "b", "c", "d", "new"];

fn one_of(mut sensible: Vec<String>, all: Vec<String>, pick: Pick) -> String {
    if sensible.is_empty() || pick.any {
        sensible = all;
    }
    sensible.get(usize::from(pick.at) % sensible.len().max(1)).cloned().unwrap_or_default()
}

fn states(lifecycle: &Lifecycle) -> Vec<String> {
    lifecycle.states.iter().map(|state| state.name.to_string()).collect()
}

/// A state that the holder may finish in, or through one that it begins.
pub fn pick_end(row: &RunRow, pick: Pick) -> String {
    let lifecycle = &row.lifecycle;
    let begun = lifecycle.start_edge(row.run.state).map_or(row.run.state, |start| start.to);
    let ends = lifecycle.transitions_from(begun).filter(|it| it.by.contains(Actor::Worker));
    let names = ends.map(|it| lifecycle.state(it.to).name.to_string()).collect();
    one_of(names, states(lifecycle), pick)
}

pub fn allowed(row: &RunRow) -> Vec<String> {
    waypost_kernel::allowed(&row.lifecycle, &row.run).iter().map(ToString::to_string).collect()
}

pub fn pick_command(row: &RunRow, asked: &Command) -> String {
    let (lifecycle, pick) = (&row.lifecycle, asked.name);
    if asked.ended {
        return one_of(allowed(row), Vec::new(), Pick { any: false, ..pick });
    }
    let operations = || lifecycle.operations.iter();
    let offered = operations().filter(|(_, states)| states.contains(&row.run.state));
    let moves = lifecycle.transitions_from(row.run.state).map(|it| &it.command);
    let names = moves.chain(offered.map(|(name, _)| name)).map(ToString::to_string).collect();
    let all = lifecycle.commands().into_iter().chain(operations().map(|(name, _)| name.clone()));
    one_of(names, all.map(|name| name.to_string()).collect(), pick)
}

/// Who may give this command here, people rather than the engine.
pub fn pick_actor(row: &RunRow, name: &str, asked: &Command) -> Option<Actor> {
    let moves: Vec<_> =
        row.lifecycle.transitions_from(row.run.state).filter(|it| &*it.command == name).collect();
    match asked.fitting {
        true if moves.iter().any(|it| it.by.any_person()) => asked.actor.filter(|actor| actor.is_person()),
        true if moves.iter().any(|it| it.by.contains(Actor::Engine)) => Some(Actor::Engine),
        _ => asked.actor,
    }
}

/// Whether a command of the run moves its items, so that some of them can be chosen.
pub fn moves_items(row: &RunRow, name: &str) -> bool {
    let kind = row.lifecycle.items.first();
    kind.is_some_and(|kind| kind.states.iter().filter(|state| state.follow(name).is_some()).count() == 1)
}

/// An item that is open comes to its end; one that is done stays.
pub fn done_item(row: &RunRow, item: &ItemRow, failing: bool) -> ItemWrite {
    let kind = row.lifecycle.items.iter().find(|kind| *kind.name == *item.kind);
    let wanted = if failing { Outcome::Failed } else { Outcome::Succeeded };
    let end = kind.and_then(|kind| {
        let open = kind.state_named(&item.status).is_some_and(|state| kind.phase(state) != Phase::Settled);
        kind.states.iter().find(|state| open && state.outcome == Some(wanted))
    });
    let status = end.map_or(item.status.clone(), |state| state.name.to_string());
    ItemWrite {
        kind: item.kind.clone(),
        key: item.key.clone(),
        status,
        answered: true,
        ..ItemWrite::default()
    }
}

/// The item as failed, if its kind knows that.
pub fn failed_item(lifecycle: &Lifecycle, there: &[ItemRow], asked: &ItemMove) -> ItemWrite {
    let kind = lifecycle.items.get(usize::from(asked.kind));
    let failed = kind.and_then(|kind| kind.states.iter().find(|it| it.outcome == Some(Outcome::Failed)));
    let write = pick_item(lifecycle, there, asked);
    ItemWrite { status: failed.map_or(write.status.clone(), |state| state.name.to_string()), ..write }
}

pub fn pick_item(lifecycle: &Lifecycle, there: &[ItemRow], asked: &ItemMove) -> ItemWrite {
    let kind = lifecycle.items.get(usize::from(asked.kind));
    let kind_name = kind.map_or("none".into(), |kind| kind.name.to_string());
    let key = KEYS[usize::from(asked.key) % KEYS.len()];
    let item = there.iter().find(|item| item.kind == kind_name && item.key == key);
    let state = kind.map(|kind| {
        let from = item.and_then(|item| kind.state_named(&item.status)).unwrap_or(kind.initial[0]);
        let moves = kind.transitions_from(from).filter(|it| it.by.contains(Actor::Worker));
        one_of(moves.map(|it| kind.state(it.to).name.to_string()).collect(), states(kind), asked.state)
    });
    ItemWrite {
        kind: kind_name,
        key: key.into(),
        status: state.unwrap_or_default(),
        progress: asked.progress,
        failure: asked.retry.then(|| Failure::new("TIMEOUT", "words")),
        retry_in: asked.retry.then_some(Span::from_seconds(100)),
        answered: asked.answered,
        output: asked.output.then(|| json!({"made": asked.key})),
        role: Role::ALL[usize::from(asked.role) % Role::ALL.len()],
        ..ItemWrite::default()
    }
}
