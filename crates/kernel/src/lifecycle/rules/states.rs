//! Rules about one state.

use super::{Found, closure, closure_of, is_run, name};
use crate::guard::Guard;
use crate::lifecycle::check::Resolved;
use crate::lifecycle::{Actor, Kind, Lifecycle, OnStale, Outcome, Phase, StateId, Transition};

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
    let takes_over = state.on_stale.as_ref().is_some_and(|rule| rule.value == OnStale::TakeOver);
    let wrong = [
        ("lease", state.lease.is_some(), held),
        ("deadline", state.deadline.is_some(), held),
        ("on_stale", state.on_stale.is_some(), held),
        ("max_take_overs", state.max_take_overs.is_some(), held && takes_over),
        ("ttl", state.ttl.is_some(), waits),
        ("retry", state.retry.is_some(), settled),
        ("keep", state.keep.is_some(), settled),
    ];
    let (key, ..) = wrong.into_iter().find(|(_, given, fits)| *given && !fits)?;
    Some((
        "key-phase",
        format!("`{key}` does not belong to `{}`", state.name.value),
        "of a run: lease, deadline, on_stale: held; max_take_overs: on_stale = take-over; ttl: draft, ready; \
         retry, keep: settled"
            .into(),
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

/// Time runs out whatever the guards say: a run that the engine may not end would stay for ever.
pub(super) fn engine_can_end(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let state = lifecycle.state(id);
    let command = match (state.on_stale, state.ttl) {
        (Some(on_stale), _) => on_stale.command(),
        (None, Some(_)) => "expire",
        (None, None) => return None,
    };
    let rows = move || lifecycle.transitions_from(id).filter(move |row| &*row.command == command);
    let rows = move || rows().filter(|row| row.by.contains(Actor::Engine));
    (rows().next().is_some() && !one_holds(lifecycle, command, rows, &[])).then(|| {
        let message = format!("`{command}` from `{}` may find no guard that holds", state.name);
        ("engine-edge-guarded", message, ONE_HOLDS.into())
    })
}

/// A cancel of a held run is acknowledged before it is carried out. A reason is asked for at once.
pub(super) fn cancel_can_be_done(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let rows = move || lifecycle.transitions_from(id).filter(|row| &*row.command == "cancel");
    let held = is_run(resolved) && lifecycle.phase(id) == Phase::Held;
    let asked = held && rows().any(|row| row.by.any_person());
    (asked && !one_holds(lifecycle, "cancel", rows, &[Guard::HasReason])).then(|| {
        let message = format!("`cancel` from `{}` may find no guard that holds", name(lifecycle, id));
        ("cancel-guarded", message, ONE_HOLDS.into())
    })
}

/// Whatever goes wrong, the worker has to say so: a run that it can only complete would be given back and executed
/// again without end.
pub(super) fn worker_can_fail(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    if !is_run(resolved) || lifecycle.phase(id) != Phase::Held {
        return None;
    }
    let fails = |row: &&Transition| {
        lifecycle.state(row.to).outcome.is_some_and(|outcome| Outcome::OF_A_FAILURE.contains(&outcome))
    };
    let rows = || lifecycle.own_ends(id);
    let is_free = rows().filter(fails).any(|row| row.guards.is_empty());
    let by_count = rows().any(|row| row.guards == [Guard::AllItemsOk])
        && [Guard::SomeItemFailed, Guard::NoItemOk]
            .into_iter()
            .all(|guard| rows().filter(fails).any(|row| row.guards == [guard]));
    let can_fail = is_free || by_count && items_end(lifecycle, "");
    (!can_fail).then(|| {
        let from = name(lifecycle, id);
        let failed = lifecycle.states.iter().find(|state| state.outcome == Some(Outcome::Failed));
        let to = failed.map_or(Outcome::Failed.name(), |state| &*state.name);
        let message = format!("a worker cannot end a run that fails in `{from}`");
        let mend = match rows().find(fails) {
            Some(row) => format!("leave out the guard of `{}`, or add", row.command),
            None if failed.is_none() => "declare a settled state with outcome = failed, and add".to_owned(),
            None => "add".to_owned(),
        };
        ("no-way-to-fail", message, format!(r#"{mend} ["{from}", "fail", "{to}", "worker", ""]"#))
    })
}

const ONE_HOLDS: &str = "add a row without a guard, or one each for all-items-ok, some-item-failed and \
                         no-item-ok, with items that all say on_end";

/// Whether there is a row to take whatever the items are like.
fn one_holds<'a, Rows: Iterator<Item = &'a Transition>>(
    lifecycle: &Lifecycle,
    command: &str,
    rows: impl Fn() -> Rows,
    given: &[Guard],
) -> bool {
    let by_count = [Guard::AllItemsOk, Guard::SomeItemFailed, Guard::NoItemOk]
        .into_iter()
        .all(|guard| rows().any(|row| row.guards == [guard]));
    rows().any(|row| row.guards.iter().all(|guard| given.contains(guard)))
        || by_count && items_end(lifecycle, command)
}

/// Whether no item is left open when the run ends by this command.
fn items_end(lifecycle: &Lifecycle, command: &str) -> bool {
    let Some(kind) = lifecycle.items.first() else { return false };
    kind.state_ids().all(|id| {
        let state = kind.state(id);
        let to = state.follow(command).or_else(|| state.follow("end"));
        let ends = to.is_some_and(|to| kind.phase(to) == Phase::Settled && !is_guarded(kind, id, to));
        ends || matches!(state.phase, Phase::Draft | Phase::Settled)
    })
}

/// An item whose guard does not hold stays behind. A lost lease burns no retry, so that guard always holds.
fn is_guarded(kind: &Lifecycle, from: StateId, to: StateId) -> bool {
    edge(kind, from, to).is_some_and(|row| row.guards.iter().any(|guard| *guard != Guard::AttemptsLeft))
}

/// The row that an item takes when it follows its run.
fn edge(kind: &Lifecycle, from: StateId, to: StateId) -> Option<&Transition> {
    kind.transitions_from(from).find(|row| row.to == to)
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

/// The first event of a worker is a fact: there is nobody to tell that a guard did not hold.
pub(super) fn start_is_free(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    lifecycle.state(id).deadline?;
    let row = lifecycle.start_edge(id).filter(|row| !row.guards.is_empty())?;
    let message =
        format!("`{}` begins the work of `{}` and cannot have a guard", row.command, name(lifecycle, id));
    Some(("guarded-start", message, "move the guard to `claim`, or to how the run ends".into()))
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

/// Runs count the items of a state that stay behind, not for which of their commands.
pub(super) fn follows_under_one_condition(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let state = lifecycle.state(id);
    let (when, to) = state.follows.iter().find(|(_, to)| is_guarded(lifecycle, id, *to))?;
    (state.follows.len() > 1).then(|| {
        let message = format!(
            "`{}` goes to `{}` on {when} by a guard, and follows its run elsewhere too",
            state.name,
            name(lifecycle, *to)
        );
        ("follow-guarded", message, "remove the guard, or the state's other on_… keys".into())
    })
}

/// Which of those that follow their run stay behind at its next command, nobody knows without reading them: a run only
/// counts its items. So they must not come to where one that runs again, or was discarded, is another case.
pub(super) fn follows_to_one_condition(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let asks = |row: &Transition, guard: Guard| row.guards.contains(&guard);
    let is_failed = |state: &StateId| lifecycle.state(*state).outcome == Some(Outcome::Failed);
    let failed: Vec<StateId> = lifecycle.state_ids().filter(is_failed).collect();
    let discarded = closure_of(lifecycle, &failed, |row| !asks(row, Guard::NotDiscarded));
    let tells = |to: StateId| {
        let follows = &lifecycle.state(to).follows;
        let mut rows = follows.iter().filter_map(|(_, next)| edge(lifecycle, to, *next));
        rows.any(|row| {
            asks(row, Guard::Reruns) || asks(row, Guard::NotDiscarded) && discarded[usize::from(id.0)]
        })
    };
    let state = lifecycle.state(id);
    let (when, to) = state.follows.iter().find(|(_, to)| *to != id && tells(*to))?;
    let message = format!(
        "`{}` goes to `{}` on {when}, which only some leave when their run moves on",
        state.name,
        name(lifecycle, *to)
    );
    Some((
        "follow-uncounted",
        message,
        "name another state, or remove the guard of the move from there".into(),
    ))
}

/// The worker's first event may be a write of items: what it says of them would not be so any more.
pub(super) fn start_moves_no_items(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    lifecycle.state(id).deadline?;
    let row = lifecycle.start_edge(id)?;
    let moved =
        |kind: &&std::sync::Arc<Lifecycle>| kind.states.iter().any(|it| it.follow(&row.command).is_some());
    let kind = lifecycle.items.iter().find(moved)?;
    let message = format!("`{}` begins the work, and moves each {} by itself", row.command, kind.name);
    Some((
        "start-moves-items",
        message,
        "name the command otherwise, or leave the items to the worker".into(),
    ))
}

/// What its run's command moves is not asked whether something failed before.
pub(super) fn nothing_begins_by_itself(resolved: &Resolved, id: StateId) -> Found {
    let lifecycle = &resolved.lifecycle;
    let state = lifecycle.state(id);
    let begins = |to: StateId| lifecycle.stops_run && lifecycle.begins(Some(id), to);
    let mend = "leave that move to the worker, or leave out `stops_run`";
    if lifecycle.stops_run && state.phase == Phase::Held && lifecycle.initial.contains(&id) {
        let message = format!("one is born as `{}`, begun, though one that failed stops the run", state.name);
        return Some(("begins-by-itself", message, mend.into()));
    }
    let (when, to) = state.follows.iter().find(|(_, to)| begins(*to))?;
    let message = format!(
        "`{}` begins by itself on {when}, as `{}`, though one that failed stops the run",
        state.name,
        name(lifecycle, *to)
    );
    Some(("begins-by-itself", message, mend.into()))
}
