//! Rules about one state.

use super::{Found, closure, is_run, name};
use crate::lifecycle::check::Resolved;
use crate::lifecycle::{Actor, Kind, OnStale, Phase, StateId};

pub(super) fn reachable(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let reached = closure(lifecycle, &lifecycle.initial)[usize::from(id.0)];
    (!reached).then(|| {
        let message = format!("no run can ever be `{}`", name(lifecycle, id));
        ("unreachable-state", message, "add a transition that leads there, or remove the state".into())
    })
}

pub(super) fn settles(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let reached = closure(lifecycle, &[id]);
    let ends =
        lifecycle.state_ids().any(|to| reached[usize::from(to.0)] && lifecycle.phase(to) == Phase::Settled);
    (!ends).then(|| {
        let message = format!("a run that is `{}` can never finish", name(lifecycle, id));
        ("dead-end", message, "add a transition towards a settled state".into())
    })
}

pub(super) fn outcome_iff_settled(resolved: &Resolved, id: StateId) -> Found {
    let state = resolved.lifecycle.state(id);
    match (state.phase, state.outcome) {
        (Phase::Settled, None) => Some((
            "settled-without-outcome",
            format!("`{}` is settled but does not say how it counts", state.name),
            "add outcome = succeeded, partial, failed, cancelled, skipped or reverted".into(),
        )),
        (Phase::Settled, Some(_)) | (_, None) => None,
        (phase, Some(_)) => Some((
            "key-phase",
            format!("`{}` is {} and cannot have an outcome", state.name, phase.name()),
            "only a settled state has an outcome".into(),
        )),
    }
}

pub(super) fn keys_fit_the_phase(resolved: &Resolved, id: StateId) -> Found {
    let state = &resolved.drafts[usize::from(id.0)];
    let run = is_run(resolved);
    let held = run && state.phase == Phase::Held;
    let waits = run && matches!(state.phase, Phase::Draft | Phase::Ready);
    let settled = run && state.phase == Phase::Settled;
    let wrong = [
        ("lease", state.lease.is_some(), held),
        ("deadline", state.deadline.is_some(), held),
        ("on_stale", state.on_stale.is_some(), held),
        ("max_take_overs", state.max_take_overs.is_some(), held),
        ("ttl", state.ttl.is_some(), waits),
        ("retry", state.retry.is_some(), settled),
        ("keep", state.keep.is_some(), settled),
        ("on_…", !state.follows.is_empty(), !run),
    ];
    let (key, ..) = wrong.into_iter().find(|(_, given, fits)| *given && !fits)?;
    Some((
        "key-phase",
        format!("`{key}` does not belong to `{}`", state.name.value),
        "lease, deadline, on_stale: held; ttl: draft, ready; retry, keep: settled; on_…: items only".into(),
    ))
}

pub(super) fn held_has_a_stale_rule(resolved: &Resolved, id: StateId) -> Found {
    let state = resolved.lifecycle.state(id);
    let missing = match resolved.lifecycle.kind {
        Kind::Run => state.on_stale.is_none(),
        Kind::Item => state.follow("lost").is_none(),
    };
    (state.phase == Phase::Held && missing).then(|| {
        let message = format!("`{}` is held but does not say what a lost lease means", state.name);
        (
            "held-without-stale-rule",
            message,
            "add on_stale = expire, lose, steal or take-over (an item: on_lost = STATE)".into(),
        )
    })
}

pub(super) fn held_has_one_length(resolved: &Resolved, id: StateId) -> Found {
    let state = resolved.lifecycle.state(id);
    let lengths = usize::from(state.lease.is_some()) + usize::from(state.deadline.is_some());
    (is_run(resolved) && state.phase == Phase::Held && lengths != 1).then(|| {
        let message = format!("`{}` is held and needs either a lease or a deadline", state.name);
        (
            "held-length",
            message,
            r#"add lease = "60s" (renewed by heartbeats) or deadline = "5m" (fixed)"#.into(),
        )
    })
}

pub(super) fn stale_edge_exists(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let on_stale = lifecycle.state(id).on_stale?;
    let has = |command: &str, actor: Actor, stays: bool| {
        lifecycle.transitions_from(id).any(|row| {
            &*row.command == command
                && row.by.contains(actor)
                && if stays { row.to == id } else { lifecycle.phase(row.to) == Phase::Settled }
        })
    };
    let missing = if !has(on_stale.command(), Actor::Engine, false) {
        format!(r#"["{}", "{}", SETTLED, "engine", ""]"#, name(lifecycle, id), on_stale.command())
    } else if on_stale == OnStale::Steal && !has("steal", Actor::Worker, true) {
        format!(r#"["{0}", "steal", "{0}", "worker", "attempts-left"]"#, name(lifecycle, id))
    } else {
        return None;
    };
    let message = format!(
        "`{}` says on_stale = {}, but the move is not in the table",
        name(lifecycle, id),
        on_stale.name()
    );
    Some(("stale-edge-missing", message, format!("add {missing}")))
}

pub(super) fn ready_can_be_claimed(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let claimed = lifecycle.transitions_from(id).any(|row| &*row.command == "claim");
    (is_run(resolved) && lifecycle.phase(id) == Phase::Ready && !claimed).then(|| {
        let message = format!("`{}` is ready, but no worker can claim it", name(lifecycle, id));
        (
            "ready-without-claim",
            message,
            r#"add a row with the command "claim" by worker into a held state"#.into(),
        )
    })
}

pub(super) fn ttl_can_expire(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let expires = lifecycle.transitions_from(id).any(|row| {
        &*row.command == "expire"
            && row.by.contains(Actor::Engine)
            && lifecycle.phase(row.to) == Phase::Settled
    });
    (lifecycle.state(id).ttl.is_some() && !expires).then(|| {
        let message = format!("`{}` has a ttl, but nothing happens when it runs out", name(lifecycle, id));
        (
            "ttl-without-expire",
            message,
            r#"add a row with the command "expire" by engine into a settled state"#.into(),
        )
    })
}

pub(super) fn retry_can_be_claimed(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let retried =
        lifecycle.transitions_from(id).any(|row| &*row.command == "retry" && row.by.contains(Actor::Worker));
    (lifecycle.state(id).retry && !retried).then(|| {
        let message = format!("`{}` says retry = true, but no worker can take it up", name(lifecycle, id));
        (
            "retry-edge-missing",
            message,
            r#"add a row with the command "retry" by worker into a held state"#.into(),
        )
    })
}

pub(super) fn one_start(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let starts = lifecycle.transitions_from(id).filter(|row| {
        row.to != id && row.by.contains(Actor::Worker) && lifecycle.phase(row.to) == Phase::Held
    });
    (is_run(resolved) && lifecycle.phase(id) == Phase::Held && starts.count() > 1).then(|| {
        let message = format!(
            "`{}` leads into several held states, so a first event would be ambiguous",
            name(lifecycle, id)
        );
        ("ambiguous-start", message, "leave one worker's row from held to held".into())
    })
}

pub(super) fn follows_an_edge(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let state = lifecycle.state(id);
    let (when, to) = state
        .follows
        .iter()
        .find(|(_, to)| *to != id && !lifecycle.transitions_from(id).any(|row| row.to == *to))?;
    let message =
        format!("`{}` goes to `{}` on {when}, which is no transition", state.name, name(lifecycle, *to));
    Some(("follow-edge-missing", message, "add the row, or name a state that the table leads to".into()))
}
