//! A lifecycle for PostgreSQL: rows by number, and what guards mean there. The functions that look them up are the store's.
//!
//! A state's number tells its phase (`base`).

use std::fmt::Write;

use super::sql::{self, Dialect, course, mask, moves, quoted};
use crate::decide::DEFAULT_LEASE;
use crate::guard::Guard;
use crate::lifecycle::{Actor, Kind, Lifecycle, Outcome, Phase, StateId, Transition};
use crate::time::Span;

/// The first number of a state's kind; there is room for a thousand.
pub fn base(phase: Phase, outcome: Option<Outcome>) -> i16 {
    match (phase, outcome) {
        (Phase::Draft, _) => 1_000,
        (Phase::Ready, _) => 2_000,
        (Phase::Held, _) => 3_000,
        (Phase::Parked, _) => 4_000,
        (Phase::Settled, Some(Outcome::Succeeded)) => 5_000,
        (Phase::Settled, _) => 6_000,
    }
}

/// The rows of a lifecycle that is not there yet.
pub fn definition(lifecycle: &Lifecycle) -> String {
    let (name, version) = (quoted(&lifecycle.name), lifecycle.version);
    let counted = lifecycle.items.first();
    let mut out = format!(
        "INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ({name}, {version}, {}, {}, {}, {});\n",
        quoted(lifecycle.kind.name()),
        counted.map_or("NULL".into(), |kind| quoted(&kind.name)),
        counted.map_or("NULL".into(), |kind| kind.version.to_string()),
        quoted(&super::json::json(lifecycle).to_string()),
    );
    for id in lifecycle.state_ids() {
        out.push_str(&state_row(lifecycle, id));
    }
    for it in moves(lifecycle) {
        let _ = writeln!(
            out,
            "INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ({name}, {version}, {}, {}, {}, {}, {});",
            quoted(&lifecycle.state(it.from).name),
            quoted(&lifecycle.state(it.to).name),
            it.guards,
            it.events,
            quoted(&it.command),
        );
    }
    if lifecycle.kind == Kind::Run {
        for id in lifecycle.state_ids() {
            out.push_str(&verbs_ways(lifecycle, id));
        }
        transition_rows(lifecycle, &mut out);
        let _ = writeln!(
            out,
            "UPDATE waypost.lifecycle_moves m SET src_code = a.code, dst_code = b.code FROM waypost.lifecycle_states a, waypost.lifecycle_states b
  WHERE m.lifecycle = {name} AND m.version = {version} AND a.lifecycle = m.lifecycle AND a.version = m.version AND a.state = m.src
    AND b.lifecycle = m.lifecycle AND b.version = m.version AND b.state = m.dst;"
        );
    }
    out
}

fn state_row(lifecycle: &Lifecycle, id: StateId) -> String {
    let state = lifecycle.state(id);
    let base = base(state.phase, state.outcome);
    let code = match lifecycle.kind {
        Kind::Item => "NULL::smallint".into(),
        Kind::Run => format!(
            "coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN {base} AND {}), {} - 1) + 1",
            base + 999,
            base
        ),
    };
    let ms = |span: Option<Span>| span.map_or("NULL".into(), |span| span.ms().to_string());
    let held = state.phase == Phase::Held;
    format!(
        "INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {code};\n",
        quoted(&lifecycle.name),
        lifecycle.version,
        quoted(&state.name),
        quoted(state.phase.name()),
        state.outcome.map_or("NULL".into(), |outcome| quoted(outcome.name())),
        lifecycle.initial.contains(&id),
        if held { ms(Some(state.lease.unwrap_or(DEFAULT_LEASE))) } else { "NULL".into() },
        ms(state.deadline),
        lifecycle.transitions_from(id).any(|row| &*row.command == "expire"),
        ms(state.ttl),
        ms(state.keep),
        course(lifecycle, id),
    )
}

/// Where a claim and a holder's first own event lead, if the verbs in SQL can make that move by themselves.
fn verbs_ways(lifecycle: &Lifecycle, from: StateId) -> String {
    let mut out = String::new();
    let mut set = |column: &str, value: &str| {
        let _ = writeln!(
            out,
            "UPDATE waypost.lifecycle_states SET {column} = {value} WHERE code = {};",
            code_of(lifecycle, from)
        );
    };
    let claims: Vec<&Transition> =
        worker_rows(lifecycle, from).filter(|row| &*row.command == "claim").collect();
    if let [claim] = claims[..]
        && lifecycle.phase(from) == Phase::Ready
        && claim.guards.iter().all(|guard| *guard == Guard::HasItems)
    {
        set("claim_to", &code_of(lifecycle, claim.to));
        set("claim_needs_items", &(!claim.guards.is_empty()).to_string());
        let follows =
            lifecycle.items.iter().any(|kind| kind.states.iter().any(|it| it.follow("claim").is_some()));
        set("claim_shifts", &follows.to_string());
    }
    let start = lifecycle.start_edge(from).filter(|row| row.guards.is_empty());
    let start = start.filter(|_| lifecycle.state(from).deadline.is_some());
    if let Some(start) = start {
        set("start_to", &code_of(lifecycle, start.to));
        set("start_command", &quoted(&start.command));
    }
    out
}

fn worker_rows(lifecycle: &Lifecycle, from: StateId) -> impl Iterator<Item = &Transition> {
    lifecycle.transitions_from(from).filter(|row| row.by.contains(Actor::Worker) && row.from != row.to)
}

/// The table as it was declared: who may do what, in its order, and the error code that it leaves.
fn transition_rows(lifecycle: &Lifecycle, out: &mut String) {
    for (place, row) in lifecycle.transitions.iter().enumerate() {
        let _ = writeln!(
            out,
            "INSERT INTO waypost.lifecycle_transitions(src, place, dst, command, actors, guards, error_code) VALUES ({}, {place}, {}, {}, '{{{}}}', {}, {});",
            code_of(lifecycle, row.from),
            code_of(lifecycle, row.to),
            quoted(&row.command),
            row.by.names().join(","),
            mask(&row.guards),
            lifecycle.code_of(&row.command).map_or("NULL".into(), quoted),
        );
    }
}

/// The number of a state, which the database gave it.
fn code_of(lifecycle: &Lifecycle, id: StateId) -> String {
    format!(
        "(SELECT code FROM waypost.lifecycle_states WHERE lifecycle = {} AND version = {} AND state = {})",
        quoted(&lifecycle.name),
        lifecycle.version,
        quoted(&lifecycle.state(id).name)
    )
}

/// What a text of the store's needs to know of guards: each name in it stands for an expression.
pub fn conditions() -> [(&'static str, String); 5] {
    let course_ended = sql::course_ended(Dialect::Postgres);
    [
        ("run_guards_hold", sql::all_hold(Kind::Run, Dialect::Postgres)),
        ("item_guards_hold", sql::all_hold(Kind::Item, Dialect::Postgres)),
        ("item_begins", sql::begins(Dialect::Postgres)),
        ("item_is_copy", sql::is_copy(Dialect::Postgres)),
        ("course_ended", course_ended.replace("NEW.", "p_item.").replace("OLD.seq", "p_seq")),
    ]
}

/// Which items stay when their run's command makes their state follow.
pub fn items_stay() -> String {
    super::stays::view(Dialect::Postgres)
}
