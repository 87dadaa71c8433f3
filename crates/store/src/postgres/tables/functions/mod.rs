//! The two functions that write runs, rendered from the table of columns. What is the same for all runs of a call is
//! sent once: an array of one stands for as many as there are runs.

use std::fmt::Write;

use super::rows;
use crate::columns::{COLUMNS, RunColumn};

/// What an event's row has beside the run's own columns. Of two moves at once, `via` is the state between them.
pub const EVENT_COLUMNS: [(&str, &str); 11] = [
    ("src", "smallint"),
    ("via", "smallint"),
    ("via_command", "text"),
    ("command", "text"),
    ("actor", "text"),
    ("who", "text"),
    ("level", "text"),
    ("message", "text"),
    ("payload", "jsonb"),
    ("effect", "json"),
    ("key", "text"),
];

/// Columns that a save sets as they are; metadata and details get members, not wholes.
pub fn moving() -> impl Iterator<Item = &'static RunColumn> {
    COLUMNS.iter().filter(|column| column.moves())
}

/// A column's type as a parameter.
fn sent(kind: &str) -> &str {
    if cast(kind).is_empty() { kind } else { "text" }
}

fn value(column: &RunColumn) -> String {
    folded(column.name, column.kind.postgres())
}

/// A value of the row at hand, or the one that stands for all, as the table has it.
fn folded(name: &str, kind: &str) -> String {
    format!("coalesce(u.{name}{}, c_{name})", cast(kind))
}

/// JSON is sent as text.
fn cast(kind: &str) -> &'static str {
    match kind {
        "json" => "::json",
        "jsonb" => "::jsonb",
        _ => "",
    }
}

/// The parts of a function that has these columns as parameters.
struct Parts {
    parameters: String,
    constants: String,
    arrays: String,
    names: String,
}

fn parts<'a>(columns: impl Iterator<Item = (&'a str, &'a str)>) -> Parts {
    let mut parts = Parts {
        parameters: String::new(),
        constants: String::new(),
        arrays: String::new(),
        names: String::new(),
    };
    for (name, kind) in columns {
        let _ = write!(parts.parameters, ", p_{name} {}[]", sent(kind));
        let _ = writeln!(
            parts.constants,
            "  c_{name} {kind} := CASE cardinality(p_{name}) WHEN 1 THEN p_{name}[1]{} END;",
            cast(kind)
        );
        let _ = write!(parts.arrays, ", p_{name}");
        let _ = write!(parts.names, ", {name}");
    }
    parts
}

/// A text with its names in braces filled in; other braces stay.
fn filled(text: &str, parts: &[(&str, &str)]) -> String {
    parts.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// The indexes are taken whatever the planner thinks of the tables' sizes, and plans are made once.
pub const SETTINGS: &str = "SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET enable_seqscan = off SET enable_hashjoin = off \
  SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off";

pub fn save() -> String {
    let columns = std::iter::once(("state", "smallint"))
        .chain(moving().map(|column| (column.name, column.kind.postgres())))
        .chain([("item_count", "int"), ("metadata", "text"), ("details", "text")])
        .chain(EVENT_COLUMNS);
    let Parts { parameters, constants, arrays, names } = parts(columns);
    let sets: String = moving().map(|column| format!(", {} = {}", column.name, value(column))).collect();
    let told: String =
        EVENT_COLUMNS.iter().map(|(name, kind)| format!(", {} AS e_{name}", folded(name, kind))).collect();
    let item_count = folded("item_count", "int");
    filled(
        include_str!("save.sql"),
        &[
            ("parameters", &parameters),
            ("settings", SETTINGS),
            ("constants", &constants),
            ("state", &folded("state", "smallint")),
            ("sets", &sets),
            ("item_count", &item_count),
            ("arrays", &arrays),
            ("names", &names),
            ("told", &told),
        ],
    )
}

/// One column of one run as a list.
fn single(column: &RunColumn) -> String {
    let cast = if column.kind.is_json() { "::text" } else { "" };
    format!(", p_{name} => ARRAY[p_run.{name}{cast}]", name = column.name)
}

/// The same for one run that the caller has locked, in SQL: its row as it was and as it will be.
pub fn save_one() -> String {
    let columns: String = moving().map(single).collect();
    let event = EVENT_COLUMNS.iter().map(|(name, _)| match *name {
        "src" => ", p_src => ARRAY[p_was.state]".to_owned(),
        "payload" => ", p_payload => ARRAY[p_payload::text]".to_owned(),
        "effect" => ", p_effect => ARRAY[waypost.effect(p_effect, v_metadata, v_details)::text]".to_owned(),
        name => format!(", p_{name} => ARRAY[p_{name}]"),
    });
    let event: String = event.collect();
    filled(include_str!("save_one.sql"), &[("columns", &columns), ("event", &event)])
}

/// Columns that a new run brings.
pub fn new_run_columns() -> impl Iterator<Item = &'static RunColumn> {
    COLUMNS.iter().filter(|column| column.name != "queued_at")
}

/// What a birth's event and its key need beside the run's own columns.
pub const BIRTH_COLUMNS: [(&str, &str); 7] = [
    ("state", "smallint"),
    ("item_count", "int"),
    ("fingerprint", "text"),
    ("command", "text"),
    ("actor", "text"),
    ("who", "text"),
    ("effect", "json"),
];

/// One new run, in SQL.
pub fn insert_one() -> String {
    let columns: String = new_run_columns().map(single).collect();
    filled(include_str!("insert_one.sql"), &[("columns", &columns)])
}

pub fn insert() -> String {
    let columns = BIRTH_COLUMNS
        .into_iter()
        .chain(new_run_columns().map(|column| (column.name, column.kind.postgres())));
    let Parts { parameters, constants, arrays, names } = parts(columns);
    let into: String = new_run_columns().map(|column| format!(", {}", column.name)).collect();
    let values: String = new_run_columns().map(|column| format!(", {}", value(column))).collect();
    let own = BIRTH_COLUMNS.map(|(name, kind)| (name, folded(name, kind)));
    let mut parts: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    parts.extend([("arrays", &*arrays), ("names", &*names), ("into", &into), ("values", &values)]);
    let statement = filled(include_str!("born.sql"), &parts);
    let (born, if_free) =
        (filled(&statement, &[("conflict", "")]), filled(&statement, &[("conflict", IF_FREE)]));
    parts.extend([("parameters", &*parameters), ("settings", SETTINGS), ("constants", &constants)]);
    parts.extend([("born", &*born), ("born_if_free", &if_free)]);
    filled(include_str!("insert.sql"), &parts)
}

const IF_FREE: &str =
    "\n        ON CONFLICT (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING";

/// What a claim reads of its queues.
pub fn pick() -> String {
    let outputs: String = COLUMNS
        .iter()
        .map(|column| format!(", o_{} {}", column.name, sent(column.kind.postgres())))
        .collect();
    let parts = [("outputs", &*outputs), ("settings", SETTINGS), ("selected", rows::SMALL.as_str())];
    filled(include_str!("pick.sql"), &parts)
}
