//! A guard's name means one thing: in Rust, on SQLite and on PostgreSQL.
// proves X2

use waypost_kernel::Guard;
use waypost_kernel::guard::Facts;
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::render::sql::{self, Dialect};
use waypost_store::postgres::migration_sql;
use waypost_testkit::Postgres;

use super::{arrangements, counts, insert, item_rows, past_the_guards, quoted, shipped};

const BOTH: [bool; 2] = [false, true];
const REASONS: [Option<&str>; 6] =
    [None, Some(""), Some("  "), Some(" \t\r\n\u{b}\u{c} "), Some("a look"), Some("\n it's 'so'\t")];

/// A row, what the kernel is told of it, and its name.
struct Case {
    id: String,
    facts: Facts,
}

#[derive(Default)]
struct Table {
    cases: Vec<Case>,
    rows: Vec<String>,
    items: Vec<String>,
}

fn bits(count: u32) -> impl Iterator<Item = Vec<bool>> {
    (0..1u32 << count).map(move |bits| (0..count).map(|at| bits >> at & 1 == 1).collect())
}

/// All combinations of what a run's guards look at, for each lifecycle that counts items.
fn runs() -> Table {
    let mut table = Table::default();
    for lifecycle in shipped().iter().filter(|it| ["rule", "job"].contains(&&*it.name)) {
        let status = &lifecycle.state(lifecycle.initial[0]).name;
        let mut add = |items: &[_], reason: Option<&str>, attempt: u32, truth: &[bool]| {
            let id = format!("run {:05} of {}", table.cases.len(), lifecycle.name);
            let [resolved, forced, reentrant, operating] = *truth else { unreachable!() };
            let facts = Facts {
                has_reason: reason.is_some_and(|reason| !reason.trim().is_empty()),
                resolved,
                forced,
                attempt,
                max_attempts: 1,
                reentrant,
                operating,
                items: counts(lifecycle, items),
                ..Facts::default()
            };
            let reason = reason.map_or("NULL".into(), quoted);
            table.rows.push(format!(
                "('{id}', '{}', {}, '{status}', {reason}, {attempt}, 1, {resolved}, {forced}, {reentrant}, {operating})",
                lifecycle.name, lifecycle.version
            ));
            table.items.extend(item_rows(lifecycle, &id, items));
            table.cases.push(Case { id, facts });
        };
        for items in arrangements(lifecycle) {
            for reason in REASONS {
                for attempt in 0..3 {
                    bits(4).for_each(|truth| add(&items, reason, attempt, &truth));
                }
            }
        }
    }
    table
}

fn items() -> Table {
    let mut table = Table::default();
    for (attempt, max) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)] {
        for (discarded, reruns) in BOTH.into_iter().flat_map(|it| BOTH.map(|other| (it, other))) {
            let id = format!("item {:05}", table.cases.len());
            let facts = Facts { attempt, max_attempts: max, discarded, reruns, ..Facts::default() };
            table.rows.push(format!(
                "('{id}', 'step', 'a', 1, 'pending', {attempt}, {max}, {discarded}, {reruns})"
            ));
            table.cases.push(Case { id, facts });
        }
    }
    table
}

/// What the guards look at, on SQLite.
const TABLES: &str = "CREATE TABLE lifecycles(name text, version integer, kind text NOT NULL, items text,
  items_version integer, definition text NOT NULL, PRIMARY KEY(name, version));
CREATE TABLE lifecycle_states(lifecycle text, version integer, state text, phase text NOT NULL, outcome text,
  initial INTEGER NOT NULL, course text, PRIMARY KEY(lifecycle, version, state));
CREATE TABLE lifecycle_moves(lifecycle text, version integer, src text, dst text, guards integer,
  events integer NOT NULL, command text NOT NULL, PRIMARY KEY(lifecycle, version, src, dst, guards));
CREATE TABLE runs(run_id text PRIMARY KEY, lifecycle text NOT NULL, version integer NOT NULL, status text NOT NULL,
  reason text, attempt integer NOT NULL DEFAULT 0, max_attempts integer NOT NULL DEFAULT 1,
  resolved INTEGER NOT NULL DEFAULT false, forced INTEGER NOT NULL DEFAULT false, reentrant INTEGER NOT NULL DEFAULT false,
  operating INTEGER NOT NULL DEFAULT false);
CREATE TABLE items(run_id text, kind text, key text, version integer NOT NULL, status text NOT NULL,
  attempts integer NOT NULL DEFAULT 0, max_retries integer NOT NULL DEFAULT 3,
  discarded INTEGER NOT NULL DEFAULT false, reruns INTEGER NOT NULL DEFAULT false, PRIMARY KEY(run_id, kind, key));
CREATE INDEX items_status ON items(run_id, kind, status);
";

fn set_up_sqlite(runs: &Table, items: &Table) -> String {
    let view = sql::guard();
    let (view, _) = view.split_once(";\n").unwrap();
    assert!(view.starts_with("CREATE VIEW"), "{view}");
    let mut script = format!("{TABLES}{view};\n");
    shipped().iter().for_each(|lifecycle| script += &sql::definition(lifecycle));
    let columns = "runs(run_id, lifecycle, version, status, reason, attempt, max_attempts, resolved, forced, \
                   reentrant, operating)";
    script += &insert(columns, &runs.rows);
    script += &insert("items(run_id, kind, key, version, status)", &runs.items);
    let columns = "items(run_id, kind, key, version, status, attempts, max_retries, discarded, reruns)";
    script += &insert(columns, &items.rows);
    script
}

/// The store's own schema. Items have their names as keys: they belong to no run.
fn set_up_postgres(runs: &Table, items: &Table) -> String {
    let columns = "v(name, kind, key, version, status, attempts, max_retries, discarded, reruns)";
    format!(
        "BEGIN;\n{}SET session_replication_role = replica;
INSERT INTO waypost.items(rid, kind, key, version, place, seq, name, status, attempts, max_retries, discarded, reruns)
  SELECT 0, kind, name, version, 0, 9, name, status, attempts, max_retries, discarded, reruns FROM (VALUES {}) {columns};
COMMIT;\n",
        past_the_guards(&runs.rows, &runs.items),
        items.rows.join(",\n")
    )
}

fn guards_of(kind: Kind) -> Vec<Guard> {
    Guard::ALL.into_iter().filter(|guard| guard.is_about(kind)).collect()
}

/// Each row's answers, one column per guard. The alias makes a trigger's text good in a query.
fn query(kind: Kind, dialect: Dialect) -> String {
    let (table, only) = match kind {
        Kind::Run => ("runs", "run %"),
        Kind::Item => ("items", "item %"),
    };
    let schema = if dialect == Dialect::Postgres { "waypost." } else { "" };
    let name = if dialect == Dialect::Postgres && kind == Kind::Item { "key" } else { "run_id" };
    let conditions = guards_of(kind).into_iter().map(|guard| sql::condition(guard, kind, dialect));
    let columns = conditions.collect::<Vec<_>>().join(",\n  ");
    format!(
        "SELECT {name},\n  {columns}\nFROM {schema}{table} AS NEW WHERE {name} LIKE '{only}' ORDER BY {name};\n"
    )
}

/// Holds a database's answers, `id|answer|…` by line, against the kernel's; gives the number of comparisons.
fn compare(database: &str, kind: Kind, cases: &[Case], answers: &[Vec<String>]) -> usize {
    assert_eq!(cases.len(), answers.len(), "{database}: rows");
    let guards = guards_of(kind);
    for (case, answer) in cases.iter().zip(answers) {
        assert_eq!((&case.id, guards.len() + 1), (&answer[0], answer.len()), "{database}");
        for (guard, said) in guards.iter().zip(&answer[1..]) {
            let said = match said.as_str() {
                "t" | "1" => true,
                "f" | "0" => false,
                other => panic!("{database}, {}: {guard:?} is {other:?}, not a truth", case.id),
            };
            assert_eq!(
                said,
                guard.holds(&case.facts),
                "{database}, {}: {guard:?} of {:?}",
                case.id,
                case.facts
            );
        }
    }
    cases.len() * guards.len()
}

fn ask_sqlite(database: &rusqlite::Connection, kind: Kind) -> Vec<Vec<String>> {
    let mut query = database.prepare(&query(kind, Dialect::Sqlite)).unwrap();
    let columns = query.column_count();
    let text = |value: rusqlite::types::Value| match value {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        other => format!("{other:?}"),
    };
    let rows = query.query_map([], |row| (0..columns).map(|at| row.get(at).map(text)).collect()).unwrap();
    rows.map(Result::unwrap).collect()
}

fn ask_postgres(database: &Postgres, kind: Kind) -> Vec<Vec<String>> {
    let said = database.psql(&query(kind, Dialect::Postgres)).unwrap();
    said.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

#[test]
fn every_guard_means_the_same_in_rust_and_sql() {
    let tables = [(Kind::Run, runs()), (Kind::Item, items())];
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite.execute_batch(&set_up_sqlite(&tables[0].1, &tables[1].1)).unwrap();
    let postgres = Postgres::with_schema(&migration_sql()).unwrap();
    postgres.psql(&set_up_postgres(&tables[0].1, &tables[1].1)).unwrap();
    let mut compared = 0;
    for (kind, table) in &tables {
        compared += compare("SQLite", *kind, &table.cases, &ask_sqlite(&sqlite, *kind));
        compared += compare("PostgreSQL", *kind, &table.cases, &ask_postgres(&postgres, *kind));
        for guard in guards_of(*kind) {
            let held = table.cases.iter().filter(|case| guard.holds(&case.facts)).count();
            assert!(held > 0 && held < table.cases.len(), "{guard:?} was never, or always, so");
        }
    }
    assert!(compared > 100_000, "{compared}");
}
