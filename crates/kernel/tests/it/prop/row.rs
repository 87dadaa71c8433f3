//! X2: what the database refuses never comes out of `decide`.

use waypost_kernel::guard::Facts;
use waypost_kernel::lifecycle::{Phase, Transition};
use waypost_kernel::*;

use super::world::{Taken, World};
use super::{ensure, holds_always};

pub fn check(world: &World, taken: &Taken) -> Result<(), String> {
    row(world.lifecycle, &world.run)?;
    for event in taken.events() {
        edge(world.lifecycle, event, &taken.before)?;
    }
    let last = taken.events().last().filter(|event| event.from.is_some());
    last.map_or(Ok(()), |event| guards(world.lifecycle, event, &world.run))
}

fn row(lifecycle: &Lifecycle, run: &Run) -> Result<(), String> {
    let phase = lifecycle.phase(run.state);
    ensure!((phase == Phase::Held) == run.lease.is_some(), "a lease if and only if held: {run:?}");
    ensure!(
        (phase == Phase::Settled) == run.finished_at.is_some(),
        "finished_at if and only if settled: {run:?}"
    );
    ensure!(phase != Phase::Parked || run.reason.is_some(), "parked without a reason: {run:?}");
    ensure!(phase != Phase::Held || run.started_at.is_some(), "held without started_at: {run:?}");
    ensure!(phase == Phase::Held || run.intent.is_none(), "an intent that nobody carries out: {run:?}");
    ensure!(phase == Phase::Held || !run.requires_cleanup, "cleanup that nobody does: {run:?}");
    let waits = matches!(phase, Phase::Draft | Phase::Ready | Phase::Parked);
    ensure!(waits || run.expires_at.is_none(), "a time to live that is over: {run:?}");
    let may_be_taken = phase == Phase::Ready || lifecycle.state(run.state).retry;
    ensure!(may_be_taken || run.available_at.is_none(), "nobody may take it: {run:?}");
    ensure!(phase != Phase::Ready || run.available_at.is_some(), "ready and never to be taken: {run:?}");
    let times = [Some(run.created_at), run.started_at, run.finished_at];
    ensure!(times.iter().flatten().is_sorted(), "created, started, finished: {run:?}");
    Ok(())
}

fn rows<'a>(lifecycle: &'a Lifecycle, event: &'a Event) -> impl Iterator<Item = &'a Transition> {
    let from = event.from.into_iter().flat_map(|from| lifecycle.transitions_from(from));
    from.filter(|row| row.command == event.command && row.to == event.to)
}

/// Only declared edges, by whom the table names; what an intent stands for was asked for by somebody it names.
fn edge(lifecycle: &Lifecycle, event: &Event, before: &Run) -> Result<(), String> {
    let Some(from) = event.from else {
        ensure!(event.seq == 1 && lifecycle.initial.contains(&event.to), "born elsewhere: {event:?}");
        return Ok(());
    };
    if from == event.to && &*event.command != "steal" {
        return Ok(());
    }
    ensure!(!lifecycle.is_terminal(from), "a terminal state was left: {event:?}");
    ensure!(rows(lifecycle, event).next().is_some(), "no such row: {event:?}");
    let mut same_command = lifecycle.transitions_from(from).filter(|row| row.command == event.command);
    let permitted = same_command.any(|row| row.by.permits(event.actor));
    ensure!(permitted || before.intent.is_some(), "not for {}: {event:?}", event.actor.name());
    Ok(())
}

/// The guards again, asked of the row as it was written: what a trigger sees.
fn guards(lifecycle: &Lifecycle, event: &Event, run: &Run) -> Result<(), String> {
    if event.from == Some(event.to) && &*event.command != "steal" {
        return Ok(());
    }
    let first = lifecycle.items.first().zip(run.tallies.first());
    let facts = Facts {
        has_reason: event.effect.reason.as_ref().is_some_and(|reason| !reason.trim().is_empty()),
        resolved: run.resolved,
        forced: run.forced,
        attempt: run.attempt,
        max_attempts: run.max_attempts,
        reentrant: run.reentrant,
        operating: run.operating,
        items: first.map(|(kind, tally)| tally.counts(kind)).unwrap_or_default(),
        ..Facts::default()
    };
    let holds = |row: &Transition| row.guards.iter().all(|guard| guard.holds(&facts));
    ensure!(rows(lifecycle, event).any(holds), "its guard does not hold: {event:?}\n{facts:?}");
    Ok(())
}

// proves X2
#[test]
fn every_row_and_move_is_one_that_the_database_would_take() {
    holds_always(48, check);
}
