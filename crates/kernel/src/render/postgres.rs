//! A lifecycle for PostgreSQL: rows by number, and guards that cost a legal move nothing.
//!
//! A state's number tells its phase (`base`). The trigger on runs carries the unguarded moves as a list of numbers
//! in its condition, so that for those no function is called; everything else, and every lifecycle that was added
//! since the list was made, is judged by a function that looks the move up. So a lifecycle is data there too.

use std::fmt::Write;

use super::sql::{Dialect, all_hold, begins, course, course_ended, moves, quoted};
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
            out.push_str(&plain_ways(lifecycle, id));
        }
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

/// What the verbs in SQL do by themselves: moves of runs without items (or whose items do not follow) that nothing
/// guards and that leave no error code of their own. All else is the kernel's.
fn plain_ways(lifecycle: &Lifecycle, from: StateId) -> String {
    let mut out = String::new();
    let state = |id: StateId| {
        format!(
            "(SELECT code FROM waypost.lifecycle_states WHERE lifecycle = {} AND version = {} AND state = {})",
            quoted(&lifecycle.name),
            lifecycle.version,
            quoted(&lifecycle.state(id).name)
        )
    };
    let mut set = |column: &str, value: &str| {
        let _ = writeln!(
            out,
            "UPDATE waypost.lifecycle_states SET {column} = {value} WHERE code = {};",
            state(from)
        );
    };
    let claims: Vec<&Transition> =
        worker_rows(lifecycle, from).filter(|row| &*row.command == "claim").collect();
    if let [claim] = claims[..]
        && lifecycle.phase(from) == Phase::Ready
        && claim.guards.iter().all(|guard| *guard == Guard::HasItems)
    {
        set("claim_to", &state(claim.to));
        set("claim_needs_items", &(!claim.guards.is_empty()).to_string());
        let follows =
            lifecycle.items.iter().any(|kind| kind.states.iter().any(|it| it.follow("claim").is_some()));
        set("claim_shifts", &follows.to_string());
    }
    let start = lifecycle.start_edge(from).filter(|row| row.guards.is_empty());
    let start = start.filter(|_| lifecycle.state(from).deadline.is_some());
    if let Some(start) = start {
        set("start_to", &state(start.to));
        set("start_command", &quoted(&start.command));
    }
    let mut end = |row: &Transition, via: Option<&Transition>| {
        let _ = writeln!(
            out,
            "INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ({}, {}, {}, {}, {}) ON CONFLICT DO NOTHING;",
            state(from),
            state(row.to),
            via.map_or("NULL".into(), |via| state(via.to)),
            via.map_or("NULL".into(), |via| quoted(&via.command)),
            quoted(&row.command),
        );
    };
    if lifecycle.phase(from) == Phase::Held {
        plain_ends(lifecycle, from).for_each(|row| end(row, None));
        if let Some(start) = start {
            plain_ends(lifecycle, start.to).for_each(|row| end(row, Some(start)));
        }
    }
    out
}

fn worker_rows(lifecycle: &Lifecycle, from: StateId) -> impl Iterator<Item = &Transition> {
    lifecycle.transitions_from(from).filter(|row| row.by.contains(Actor::Worker) && row.from != row.to)
}

/// The first command that leads to each settled state, if nothing guards it and it brings no error code.
fn plain_ends(lifecycle: &Lifecycle, from: StateId) -> impl Iterator<Item = &Transition> {
    worker_rows(lifecycle, from).filter(move |row| {
        let first = worker_rows(lifecycle, from).find(|other| other.to == row.to);
        let end = lifecycle.state(row.to);
        first == Some(*row)
            && end.phase == Phase::Settled
            && !end.retry
            && row.guards.is_empty()
            && lifecycle.code_of(&row.command).is_none()
    })
}

/// The guards of runs and items, and the function that makes the list of unguarded moves anew.
pub fn guard() -> String {
    format!(
        "CREATE VIEW waypost.counted_items AS SELECT r.run_id, s.phase, s.outcome FROM waypost.runs r
  JOIN waypost.lifecycle_states own ON own.code = r.state
  JOIN waypost.lifecycles l ON l.name = own.lifecycle AND l.version = own.version
  JOIN waypost.lifecycle_states s ON s.lifecycle = l.items AND s.version = l.items_version
  JOIN waypost.items i ON i.rid = r.rid AND i.kind = s.lifecycle AND i.status = s.state;
{}{}
CREATE FUNCTION waypost.judge_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $guard$
DECLARE
  was waypost.lifecycle_states;
  will waypost.lifecycle_states;
BEGIN
  IF NEW.fence < OLD.fence OR NEW.seq < OLD.seq THEN
    RAISE EXCEPTION 'IMMUTABLE: fence and seq only rise' USING ERRCODE = 'WP409', HINT = 'Leave both alone: they are the engine''s.';
  END IF;
  IF NEW.state = OLD.state THEN
    -- What the engine keeps beside a settled run raises seq. What follows a legal move by hand has its event already.
    IF (NEW.seq = OLD.seq OR NEW.finished_at <> OLD.finished_at OR NEW.started_at IS DISTINCT FROM OLD.started_at
        OR NEW.error_code IS DISTINCT FROM OLD.error_code OR NEW.error_msg IS DISTINCT FROM OLD.error_msg
        OR NEW.metadata <> OLD.metadata OR NEW.details <> OLD.details OR NEW.attempt <> OLD.attempt)
      AND NOT EXISTS (SELECT 1 FROM waypost.events e WHERE e.rid = OLD.rid AND e.seq = OLD.seq + 1 AND e.seq = NEW.seq AND e.who = 'by hand') THEN
      RAISE EXCEPTION 'SETTLED: %, a finished run, cannot be rewritten', OLD.run_id USING ERRCODE = 'WP409';
    END IF;
    RETURN NULL;
  END IF;
  IF NOT EXISTS (SELECT 1 FROM waypost.lifecycle_moves m WHERE m.src_code = OLD.state AND m.dst_code = NEW.state
      AND (NEW.seq >= OLD.seq + m.events OR NEW.seq = OLD.seq AND m.events = 1)
      AND {}) THEN
    SELECT * INTO was FROM waypost.lifecycle_states s WHERE s.code = OLD.state;
    SELECT * INTO will FROM waypost.lifecycle_states s WHERE s.code = NEW.state;
    RAISE EXCEPTION 'INVALID_TRANSITION: % has no such move from % to %, or its guard does not hold', was.lifecycle, was.state,
        coalesce(will.state, NEW.state::text) USING ERRCODE = 'WP409', HINT = 'Allowed from there: '
        || coalesce((SELECT string_agg(DISTINCT m.dst, ', ') FROM waypost.lifecycle_moves m WHERE m.src_code = OLD.state AND m.events = 1), 'nothing');
  END IF;
  IF NEW.seq = OLD.seq THEN
    PERFORM waypost.moved_by_hand(OLD, NEW);
  END IF;
  RETURN NULL;
END $guard$;
CREATE FUNCTION waypost.judge_birth() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
BEGIN
  IF NEW.seq <> 1 OR NOT EXISTS (SELECT 1 FROM waypost.lifecycle_states s WHERE s.code = NEW.state AND s.initial) THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: a run does not start there' USING ERRCODE = 'WP409';
  END IF;
  RETURN NULL;
END $guard$;
CREATE FUNCTION waypost.list_moves() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
DECLARE
  moves text;
  births text;
BEGIN
  SELECT coalesce(string_agg((m.events * 100000000::bigint + m.src_code * 10000 + m.dst_code)::text, ',' ORDER BY m.src_code, m.dst_code, m.events), '')
    INTO moves FROM waypost.lifecycle_moves m WHERE m.guards = 0 AND m.src_code IS NOT NULL;
  SELECT coalesce(string_agg(s.code::text, ',' ORDER BY s.code), '') INTO births FROM waypost.lifecycle_states s WHERE s.initial AND s.code IS NOT NULL;
  EXECUTE format($make$CREATE OR REPLACE TRIGGER runs_move AFTER UPDATE ON waypost.runs FOR EACH ROW WHEN (CASE WHEN NEW.state = OLD.state
      THEN OLD.finished_at IS NOT NULL OR NEW.fence < OLD.fence OR NEW.seq < OLD.seq
      ELSE NEW.fence < OLD.fence OR NOT ((NEW.seq - OLD.seq) * 100000000::bigint + OLD.state::int * 10000 + NEW.state = ANY ('{{%s}}'::bigint[])) END)
    EXECUTE FUNCTION waypost.judge_run()$make$, moves);
  EXECUTE format($make$CREATE OR REPLACE TRIGGER runs_birth AFTER INSERT ON waypost.runs FOR EACH ROW WHEN (NEW.seq <> 1 OR NOT (NEW.state = ANY ('{{%s}}'::smallint[])))
    EXECUTE FUNCTION waypost.judge_birth()$make$, births);
END $guard$;
",
        item_guard(),
        super::stays::view(Dialect::Postgres),
        all_hold(Kind::Run, Dialect::Postgres)
    )
}

/// Items keep their states' names, and their run's event tells of their moves.
fn item_guard() -> String {
    format!(
        "-- Whether another one has failed that ends the course of this one's run. Looked up by index, however many there are.
CREATE FUNCTION waypost.course_ended(p_item waypost.items, p_seq int) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
  SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $guard$
BEGIN
  RETURN {};
END $guard$;
CREATE OR REPLACE FUNCTION waypost.items_move() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NOT EXISTS (SELECT 1 FROM waypost.lifecycle_states s WHERE s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status AND s.initial) THEN
      RAISE EXCEPTION 'INVALID_TRANSITION: a % does not start as %', NEW.kind, NEW.status USING ERRCODE = 'WP409';
    END IF;
  ELSIF NOT EXISTS (
    SELECT 1 FROM waypost.lifecycle_moves m WHERE m.lifecycle = OLD.kind AND m.version = OLD.version
      AND m.src = OLD.status AND m.dst = NEW.status
      AND {}) THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: % has no such move from % to %, or its guard does not hold', OLD.kind, OLD.status, NEW.status
      USING ERRCODE = 'WP409';
  ELSIF NEW.role <> 'cleanup' AND {} THEN
    IF NEW.seq = OLD.seq THEN
      -- By hand: whoever fails another one at this moment goes before or after this.
      PERFORM 1 FROM waypost.runs r WHERE r.rid = NEW.rid FOR UPDATE;
    END IF;
    IF waypost.course_ended(NEW, OLD.seq) THEN
      RAISE EXCEPTION 'FAILURE_RECORDED: a % of the run has failed; nothing begins after it but cleanups', NEW.kind
        USING ERRCODE = 'WP409', HINT = 'End the run as failed.';
    END IF;
  END IF;
  RETURN NEW;
END $guard$;
CREATE FUNCTION waypost.item_owned() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
BEGIN
  RAISE EXCEPTION 'IMMUTABLE: an item stays its run''s, and what it is to it' USING ERRCODE = 'WP409';
END $guard$;
CREATE TRIGGER items_own BEFORE UPDATE OF rid, kind, key, version, role ON waypost.items FOR EACH ROW
  WHEN (NEW.rid <> OLD.rid OR NEW.kind <> OLD.kind OR NEW.key <> OLD.key OR NEW.version <> OLD.version OR NEW.role <> OLD.role)
  EXECUTE FUNCTION waypost.item_owned();
CREATE TRIGGER items_move BEFORE UPDATE OF status ON waypost.items FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status)
  EXECUTE FUNCTION waypost.items_move();
CREATE TRIGGER items_birth BEFORE INSERT ON waypost.items FOR EACH ROW EXECUTE FUNCTION waypost.items_move();
",
        course_ended(Dialect::Postgres).replace("NEW.", "p_item.").replace("OLD.seq", "p_seq"),
        all_hold(Kind::Item, Dialect::Postgres),
        begins(Dialect::Postgres),
    )
}
