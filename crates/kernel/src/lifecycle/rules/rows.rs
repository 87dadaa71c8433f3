//! Rules about one transition.

use super::{Found, is_run, name};
use crate::guard::Guard;
use crate::lifecycle::check::Resolved;
use crate::lifecycle::{Actor, OnStale, Phase, Transition};

pub(super) fn claim_shape(resolved: &Resolved, row: &Transition) -> Found {
    let lifecycle = &resolved.lifecycle;
    let fits = row.by.contains(Actor::Worker)
        && !row.by.any_person()
        && !row.by.contains(Actor::Engine)
        && lifecycle.phase(row.from) == Phase::Ready
        && lifecycle.phase(row.to) == Phase::Held;
    (is_run(resolved) && &*row.command == "claim" && !fits).then(|| {
        (
            "claim-shape",
            "claim leads a worker, and nobody else, from a ready state into a held one".into(),
            "use another command for this move".into(),
        )
    })
}

pub(super) fn steal_shape(resolved: &Resolved, row: &Transition) -> Found {
    let lifecycle = &resolved.lifecycle;
    let fits = row.from == row.to && lifecycle.state(row.from).on_stale == Some(OnStale::Steal);
    (is_run(resolved) && &*row.command == "steal" && !fits).then(|| {
        (
            "steal-shape",
            "steal stays in a held state with on_stale = steal".into(),
            "use another command for this move".into(),
        )
    })
}

pub(super) fn no_idle_loop(_: &Resolved, row: &Transition) -> Found {
    (row.from == row.to && &*row.command != "steal").then(|| {
        (
            "idle-loop",
            "a move must lead somewhere else".into(),
            "remove the row; progress inside a state is an event".into(),
        )
    })
}

pub(super) fn worker_holds(resolved: &Resolved, row: &Transition) -> Found {
    let lifecycle = &resolved.lifecycle;
    let from = lifecycle.state(row.from);
    let fits = match from.phase {
        Phase::Held => true,
        Phase::Ready => &*row.command == "claim",
        Phase::Settled => from.retry && &*row.command == "retry" && lifecycle.phase(row.to) == Phase::Held,
        Phase::Draft | Phase::Parked => false,
    };
    (is_run(resolved) && row.by.contains(Actor::Worker) && !fits).then(|| {
        let message = format!("a worker has no lease in `{}`", from.name);
        (
            "worker-without-lease",
            message,
            "workers move held runs, claim ready ones, and retry where retry = true".into(),
        )
    })
}

/// A client's or operator's command on a held run is stored and carried out by its holder, so it has to be
/// one of the two that a holder understands.
pub(super) fn people_ask(resolved: &Resolved, row: &Transition) -> Found {
    let lifecycle = &resolved.lifecycle;
    let fits = match &*row.command {
        "cancel" => lifecycle.phase(row.to) == Phase::Settled,
        "pause" => lifecycle.phase(row.to) == Phase::Parked,
        _ => false,
    };
    (is_run(resolved) && lifecycle.phase(row.from) == Phase::Held && row.by.any_person() && !fits).then(
        || {
            let message = format!("`{}` would take a held run from its worker", row.command);
            (
                "held-for-people",
                message,
                "people may ask `cancel` (into settled) or `pause` (into parked) of a held run".into(),
            )
        },
    )
}

/// The worker carries out what people ask of it; without a row of its own it could neither obey nor finish.
pub(super) fn holder_obeys(resolved: &Resolved, row: &Transition) -> Found {
    let asked =
        matches!(&*row.command, "cancel" | "pause") && resolved.lifecycle.phase(row.from) == Phase::Held;
    (is_run(resolved) && asked && row.by.any_person() && !row.by.contains(Actor::Worker)).then(|| {
        let message =
            format!("people may ask `{}`, but the worker that holds the run may not do it", row.command);
        ("holder-cannot-obey", message, format!(r#"write "{}, worker""#, row.by))
    })
}

pub(super) fn engine_sweeps(resolved: &Resolved, row: &Transition) -> Found {
    let from = resolved.lifecycle.state(row.from);
    let stale = from.on_stale.map(OnStale::command)?;
    (is_run(resolved) && row.by.contains(Actor::Engine) && &*row.command != stale).then(|| {
        let message =
            format!("the engine never makes this move: of a held `{}` it knows `{stale}` alone", from.name);
        ("held-for-engine", message, format!("name it `{stale}`, or leave it to the worker"))
    })
}

/// A request that is sent twice because its answer was lost must not be the next step.
pub(super) fn repeat_stays(resolved: &Resolved, row: &Transition) -> Found {
    let lifecycle = &resolved.lifecycle;
    let mut onward = lifecycle.transitions_from(row.to);
    let again =
        onward.any(|next| next.command == row.command && next.by.any_person() && next.from != row.from);
    (is_run(resolved) && row.by.any_person() && again).then(|| {
        let message = format!(
            "`{}` leads on from `{}` too: sent twice by mistake, it would move the run twice",
            row.command,
            name(lifecycle, row.to)
        );
        ("repeat-moves-on", message, "name the second step otherwise".into())
    })
}

pub(super) fn settled_stays(resolved: &Resolved, row: &Transition) -> Found {
    let lifecycle = &resolved.lifecycle;
    let operation = lifecycle.operations.iter().any(|(command, _)| *command == row.command);
    let asked = row.by.any_person() || row.by.contains(Actor::Worker) && lifecycle.state(row.from).retry;
    let fits = if row.by.contains(Actor::Engine) { operation } else { asked };
    (is_run(resolved) && lifecycle.phase(row.from) == Phase::Settled && !fits).then(|| {
        let message = format!(
            "`{}` is settled: `{}` may not leave it by itself",
            name(lifecycle, row.from),
            row.command
        );
        (
            "settled-exit",
            message,
            "leave it to client or operator, declare retry = true (worker), or name it under operations (engine)".into(),
        )
    })
}

pub(super) fn guard_belongs(resolved: &Resolved, row: &Transition) -> Found {
    let from = resolved.lifecycle.phase(row.from);
    let unasked = row.by.contains(Actor::Worker) && !row.by.any_person() && from != Phase::Held;
    if is_run(resolved) && row.guards.contains(&Guard::HasReason) && (unasked || &*row.command == "steal") {
        let message = format!("nobody gives a reason for `{}`, so it would never be made", row.command);
        return Some((
            "guard-misplaced",
            message,
            "leave `has-reason` to moves that people or a finish make".into(),
        ));
    }
    let resumes = resolved.lifecycle.phase(row.to) == Phase::Ready;
    if is_run(resolved) && row.guards.contains(&Guard::ResolvedOrForced) && !resumes {
        let message =
            format!("only a run that goes on keeps its resolutions, and `{}` leads elsewhere", row.command);
        let mend = "leave `resolved-or-forced` to a move into a ready state".into();
        return Some(("guard-misplaced", message, mend));
    }
    let guard = row.guards.iter().find(|guard| !guard.is_about(resolved.lifecycle.kind))?;
    let message = format!(
        "`{}` says nothing about {}",
        guard.name(),
        if is_run(resolved) { "a run" } else { "an item" }
    );
    Some(("guard-misplaced", message, format!("it means: {}", guard.meaning())))
}

pub(super) fn items_declared(resolved: &Resolved, row: &Transition) -> Found {
    let counts =
        [Guard::HasItems, Guard::SomeItemOpen, Guard::AllItemsOk, Guard::SomeItemFailed, Guard::NoItemOk];
    let guard = row.guards.iter().find(|guard| counts.contains(guard))?;
    (is_run(resolved) && resolved.lifecycle.items.is_empty()).then(|| {
        let message = format!("`{}` counts items, but the lifecycle has none", guard.name());
        ("guard-without-items", message, r#"add items = ["target"] (or "step", "task")"#.into())
    })
}

pub(super) fn decisions_declared(resolved: &Resolved, row: &Transition) -> Found {
    let asks = is_run(resolved) && row.guards.contains(&Guard::ResolvedOrForced);
    (asks && resolved.lifecycle.decisions.is_none()).then(|| {
        let message = "`resolved-or-forced` asks for decisions, but the lifecycle has none".into();
        let mend = r#"add decisions = { waiting = "…", asked = "…", given = "…" }"#.into();
        ("guard-without-decisions", message, mend)
    })
}
