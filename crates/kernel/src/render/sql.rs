//! A lifecycle as rows that a database's own guard looks up, and that guard: one trigger per table for all
//! lifecycles, so that adding one is data. The tables are the store's; this is what it holds them to. Rows and triggers here
//! are SQLite's ([`super::postgres`] has the others); moves and the meaning of guards are both's.
//!
//! A guard sees the row as it will be (NEW). `seq` tells an engine's write, which raises it by its events,
//! from a raw one, which does not and gets its event from the store's trigger.

use std::fmt::Write;

use crate::guard::Guard;
use crate::lifecycle::{Actor, Kind, Lifecycle, Outcome, Phase, StateId, Transition};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

/// A legal change of status. Two events: a worker that begins with its claim, or finishes without having begun, does both at
/// once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub from: StateId,
    pub to: StateId,
    pub events: u8,
    pub command: String,
    /// One bit per guard, by its place in `Guard::ALL`.
    pub guards: u32,
}

pub fn moves(lifecycle: &Lifecycle) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    let mut add = |found: Move| {
        let known =
            moves.iter().any(|it| (it.from, it.to, it.guards) == (found.from, found.to, found.guards));
        if found.from != found.to && !known {
            moves.push(found);
        }
    };
    for row in &lifecycle.transitions {
        let command = row.command.to_string();
        add(Move { from: row.from, to: row.to, events: 1, command, guards: mask(&row.guards) });
    }
    for from in lifecycle.state_ids() {
        for (first, second) in folded(lifecycle, from) {
            let guards = mask(&first.guards) | mask(&second.guards);
            let command = second.command.to_string();
            add(Move { from, to: second.to, events: 2, command, guards });
        }
    }
    moves
}

/// Two worker's moves that may be made as one: take and begin, begin and finish.
fn folded(lifecycle: &Lifecycle, from: StateId) -> Vec<(&Transition, &Transition)> {
    let waits = |id: StateId| lifecycle.kind == Kind::Run && lifecycle.state(id).deadline.is_some();
    let takes = lifecycle.transitions_from(from).filter(|row| {
        let from = lifecycle.phase(row.from);
        row.by.permits(Actor::Worker) && (from != Phase::Held || row.from == row.to) && waits(row.to)
    });
    let mut pairs: Vec<_> = takes.filter_map(|row| Some((row, lifecycle.start_edge(row.to)?))).collect();
    let begins = lifecycle.transitions_from(from).filter(|row| {
        let begins = match lifecycle.kind {
            Kind::Run => waits(from),
            Kind::Item => lifecycle.phase(from) != Phase::Held,
        };
        begins && row.by.contains(Actor::Worker) && lifecycle.phase(row.to) == Phase::Held
    });
    for first in begins {
        let ends = lifecycle.transitions_from(first.to).filter(|row| row.by.contains(Actor::Worker));
        pairs.extend(ends.map(|second| (first, second)));
    }
    pairs
}

pub(super) fn mask(guards: &[Guard]) -> u32 {
    guards.iter().fold(0, |mask, guard| mask | 1 << *guard as u32)
}

/// The rows of a lifecycle. Written once per name and version; a second time changes nothing.
pub fn definition(lifecycle: &Lifecycle) -> String {
    let (name, version) = (quoted(&lifecycle.name), lifecycle.version);
    let counted = lifecycle.items.first();
    let mut out = format!(
        "INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ({name}, {version}, {}, {}, {}, {})\n  ON CONFLICT DO NOTHING;\n",
        quoted(lifecycle.kind.name()),
        counted.map_or("NULL".into(), |kind| quoted(&kind.name)),
        counted.map_or("NULL".into(), |kind| kind.version.to_string()),
        quoted(&super::json::json(lifecycle).to_string()),
    );
    out.push_str(
        "INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES\n",
    );
    let rows = lifecycle.state_ids().map(|id| {
        let state = lifecycle.state(id);
        let outcome = state.outcome.map_or("NULL".into(), |outcome| quoted(outcome.name()));
        let initial = u8::from(lifecycle.initial.contains(&id));
        let phase = quoted(state.phase.name());
        let course = course(lifecycle, id);
        format!("  ({name}, {version}, {}, {phase}, {outcome}, {initial}, {course})", quoted(&state.name))
    });
    out.push_str(&rows.collect::<Vec<_>>().join(",\n"));
    out.push_str(
        "\n  ON CONFLICT DO NOTHING;\nINSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES\n",
    );
    let rows = moves(lifecycle).into_iter().map(|it| {
        let (src, dst) = (quoted(&lifecycle.state(it.from).name), quoted(&lifecycle.state(it.to).name));
        format!("  ({name}, {version}, {src}, {dst}, {}, {}, {})", it.guards, it.events, quoted(&it.command))
    });
    out.push_str(&rows.collect::<Vec<_>>().join(",\n"));
    out.push_str("\n  ON CONFLICT DO NOTHING;\n");
    out
}

/// What a state of a kind that stops its run means to the run's course: to come there `'begins'` work (unless it was
/// begun before), or `'ends'` the course.
pub(super) fn course(lifecycle: &Lifecycle, id: StateId) -> &'static str {
    let state = lifecycle.state(id);
    match state.outcome {
        _ if !lifecycle.stops_run => "NULL",
        Some(Outcome::Failed) => "'ends'",
        Some(Outcome::Succeeded) => "'begins'",
        _ if state.phase == Phase::Held => "'begins'",
        _ => "NULL",
    }
}

/// Whether a move from OLD to NEW begins the work of an item whose kind stops its run ([`Lifecycle::begins`]).
pub(super) fn begins(dialect: Dialect) -> String {
    let schema = schema(dialect);
    format!(
        "EXISTS (SELECT 1 FROM {schema}lifecycle_states n CROSS JOIN {schema}lifecycle_states o
    WHERE n.lifecycle = NEW.kind AND n.version = NEW.version AND n.state = NEW.status AND n.course = 'begins'
      AND o.lifecycle = NEW.kind AND o.version = NEW.version AND o.state = OLD.status
      AND CASE o.phase WHEN 'held' THEN false WHEN 'settled' THEN n.phase = 'held' ELSE true END)"
    )
}

fn schema(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "",
        Dialect::Postgres => "waypost.",
    }
}

/// Whether an item of NEW's run and kind has ended the course. Those that the same event moved came in its order, which
/// the engine has looked at.
pub(super) fn course_ended(dialect: Dialect) -> String {
    let schema = schema(dialect);
    let run = match dialect {
        Dialect::Sqlite => "run_id",
        Dialect::Postgres => "rid",
    };
    format!(
        "EXISTS (SELECT 1 FROM {schema}lifecycle_states f CROSS JOIN {schema}items i WHERE f.lifecycle = NEW.kind AND f.version = NEW.version
      AND f.course = 'ends' AND i.{run} = NEW.{run} AND i.kind = NEW.kind AND i.status = f.state AND i.role = 'step'
      AND (i.seq <> NEW.seq OR NEW.seq = OLD.seq))"
    )
}

/// Whether NEW, a new item that does not start where its kind does, is the copy of one that was done or skipped in the run that its
/// own run repeats ([`crate::item::Item::may_be_copied`]). It comes with its run, and nothing that it gave is another's.
pub(super) fn is_copy(dialect: Dialect) -> String {
    let schema = schema(dialect);
    let (done, left_out) = (quoted(Outcome::Succeeded.name()), quoted(Outcome::Skipped.name()));
    let (own, old, not, null) = match dialect {
        Dialect::Sqlite => ("r.run_id = NEW.run_id", "c.run_id = o.run_id", "NEW.reruns = 0", "'null'"),
        Dialect::Postgres => ("r.rid = NEW.rid", "c.rid = o.rid", "NOT NEW.reruns", "'null'::jsonb"),
    };
    format!(
        "NEW.seq = 1 AND NEW.role <> 'cleanup' AND {not} AND EXISTS (
    SELECT 1 FROM {schema}runs r CROSS JOIN {schema}runs o CROSS JOIN {schema}items c CROSS JOIN {schema}lifecycle_states s
    WHERE {own} AND o.run_id = r.retry_of AND o.tenant = r.tenant AND o.playbook IS NOT DISTINCT FROM r.playbook
      AND o.finished_at IS NOT NULL AND {old} AND c.kind = NEW.kind
      AND c.key = NEW.key AND c.status = NEW.status AND coalesce(c.output, {null}) = coalesce(NEW.output, {null})
      AND s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status AND s.outcome IN ({done}, {left_out})
      AND EXISTS (SELECT 1 FROM {schema}lifecycle_states f WHERE f.lifecycle = NEW.kind AND f.version = NEW.version AND f.course = 'ends'))"
    )
}

/// What a guard's name means, as an expression over NEW.
pub fn condition(guard: Guard, kind: Kind, dialect: Dialect) -> String {
    let truth = |column: &str| match dialect {
        Dialect::Sqlite => format!("NEW.{column} = 1"),
        Dialect::Postgres => format!("NEW.{column}"),
    };
    match guard {
        // What Rust's trim takes away, as far as every encoding has it; by itself SQL takes spaces only.
        Guard::HasReason => match dialect {
            Dialect::Sqlite => "trim(coalesce(NEW.reason, ''), char(9, 10, 11, 12, 13, 32)) <> ''".into(),
            Dialect::Postgres => r"btrim(coalesce(NEW.reason, ''), E'\t\n\x0B\f\r ') <> ''".into(),
        },
        Guard::ResolvedOrForced => format!("({} OR {})", truth("resolved"), truth("forced")),
        Guard::HasItems => items(ANY, dialect),
        Guard::SomeItemOpen => items(OPEN, dialect),
        Guard::AllItemsOk => format!(
            "(NOT {} AND NOT {} AND {})",
            items(OPEN, dialect),
            items(&outcome(Outcome::Failed), dialect),
            items(&outcome(Outcome::Succeeded), dialect)
        ),
        Guard::SomeItemFailed => {
            format!(
                "(NOT {} AND {} AND {})",
                items(OPEN, dialect),
                items(&outcome(Outcome::Failed), dialect),
                items(&outcome(Outcome::Succeeded), dialect)
            )
        }
        Guard::NoItemOk => {
            format!("(NOT {} AND NOT {})", items(OPEN, dialect), items(&outcome(Outcome::Succeeded), dialect))
        }
        Guard::AttemptsLeft if kind == Kind::Item => "NEW.attempts <= NEW.max_retries".into(),
        Guard::AttemptsLeft => "NEW.attempt <= NEW.max_attempts".into(),
        Guard::Reentrant => truth("reentrant"),
        Guard::NoOperation => format!("NOT ({})", truth("operating")),
        Guard::NotDiscarded => format!("NOT ({})", truth("discarded")),
        Guard::Reruns => truth("reruns"),
    }
}

const ANY: &str = "true";
const OPEN: &str = "i.phase IN ('ready', 'held', 'parked')";

fn outcome(outcome: Outcome) -> String {
    format!("i.outcome = {}", quoted(outcome.name()))
}

fn items(which: &str, dialect: Dialect) -> String {
    let schema = schema(dialect);
    format!("EXISTS (SELECT 1 FROM {schema}counted_items i WHERE i.run_id = NEW.run_id AND {which})")
}

/// The items that a run's guards count, by meaning. The states come first: with an index on (run, kind, status)
/// each is one probe, however many items there are.
const COUNTED_ITEMS: &str = "CREATE VIEW counted_items AS SELECT r.run_id, s.phase, s.outcome FROM runs r
  CROSS JOIN lifecycles l CROSS JOIN lifecycle_states s CROSS JOIN items i
  WHERE l.name = r.lifecycle AND l.version = r.version AND s.lifecycle = l.items AND s.version = l.items_version
    AND i.run_id = r.run_id AND i.kind = s.lifecycle AND i.status = s.state;
";

/// All guards of a move `m` hold.
pub(super) fn all_hold(kind: Kind, dialect: Dialect) -> String {
    let mut out = String::from("(m.guards = 0 OR (");
    let known: Vec<Guard> = Guard::ALL.into_iter().filter(|guard| guard.is_about(kind)).collect();
    for (at, guard) in known.iter().enumerate() {
        if at > 0 {
            out.push_str("\n        AND ");
        }
        let _ =
            write!(out, "(m.guards & {} = 0 OR {})", 1u32 << *guard as u32, condition(*guard, kind, dialect));
    }
    out.push_str("))");
    out
}

/// SQLite's guard of both tables: refuses a change of status that no lifecycle declares.
pub fn guard() -> String {
    let (runs, items) = (sqlite("runs", Kind::Run), sqlite("items", Kind::Item));
    format!("{COUNTED_ITEMS}{runs}{items}{}", super::stays::view(Dialect::Sqlite))
}

/// A trigger's program takes room for all that it might do, each time it is looked at. So the one that sees every
/// move only looks for an unguarded row; what has none is handed to a view, whose own trigger knows all guards.
/// The trigger that sees the moves of runs is the store's own: it knows how their states are kept.
fn sqlite(table: &str, kind: Kind) -> String {
    let name = match kind {
        Kind::Run => "lifecycle",
        Kind::Item => "kind",
    };
    let columns = judged_columns(kind);
    let judge = format!(
        "CREATE VIEW {table}_judged AS SELECT NULL AS src, NULL AS dst, NULL AS rise, {empty} WHERE false;
CREATE TRIGGER {table}_judge INSTEAD OF INSERT ON {table}_judged WHEN NOT EXISTS (
    SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = NEW.{name} AND m.version = NEW.version
      AND m.src = NEW.src AND m.dst = NEW.dst{judged}
      AND {guards})
BEGIN
  SELECT RAISE(ABORT, 'INVALID_TRANSITION: the lifecycle has no such move, or its guard does not hold');
END;
",
        empty = columns.iter().map(|column| format!("NULL AS {column}")).collect::<Vec<_>>().join(", "),
        judged = match kind {
            Kind::Run => "\n      AND NEW.rise >= m.events",
            Kind::Item => "",
        },
        guards = all_hold(kind, Dialect::Sqlite),
    );
    match kind {
        Kind::Run => judge,
        Kind::Item => judge + &sqlite_item_moves(table, name, columns),
    }
}

fn sqlite_item_moves(table: &str, name: &str, columns: &[&str]) -> String {
    let values: Vec<String> = columns.iter().map(|column| format!("NEW.{column}")).collect();
    format!(
        "CREATE TRIGGER {table}_move BEFORE UPDATE OF status ON {table} WHEN NEW.status <> OLD.status AND NOT EXISTS (
    SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = OLD.{name} AND m.version = OLD.version
      AND m.src = OLD.status AND m.dst = NEW.status AND m.guards = 0)
BEGIN
  INSERT INTO {table}_judged(src, dst, rise, {into}) VALUES (OLD.status, NEW.status, 1, {values});
END;
CREATE TRIGGER {table}_course BEFORE UPDATE OF status ON {table} WHEN NEW.status <> OLD.status AND NEW.role <> 'cleanup' AND {begins}
BEGIN
  SELECT RAISE(ABORT, 'FAILURE_RECORDED: a step of the run has failed; nothing begins after it but cleanups') WHERE {ended};
END;
CREATE TRIGGER {table}_birth BEFORE INSERT ON {table} WHEN NOT EXISTS (
    SELECT 1 FROM lifecycle_states s WHERE s.lifecycle = NEW.{name} AND s.version = NEW.version AND s.state = NEW.status AND s.initial = 1)
BEGIN
  SELECT RAISE(ABORT, 'INVALID_TRANSITION: the lifecycle does not start there, and it is no copy of one that ended well') WHERE NOT ({copied});
END;
",
        into = columns.join(", "),
        values = values.join(", "),
        begins = begins(Dialect::Sqlite),
        ended = course_ended(Dialect::Sqlite),
        copied = is_copy(Dialect::Sqlite),
    )
}

/// What the guards look at.
fn judged_columns(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Run => &[
            "run_id",
            "lifecycle",
            "version",
            "reason",
            "resolved",
            "forced",
            "attempt",
            "max_attempts",
            "reentrant",
            "operating",
        ],
        Kind::Item => &["kind", "version", "attempts", "max_retries", "discarded", "reruns"],
    }
}

pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
