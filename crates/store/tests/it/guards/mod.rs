//! The databases' own guard, held against the kernel: on SQLite as it is built in, and on a real PostgreSQL.
// proves X2

mod meaning;
mod pairs;

use std::sync::Arc;

use waypost_kernel::lifecycle::{Lifecycle, Phase, StateId};
use waypost_kernel::render::sql::Dialect;
use waypost_kernel::tally::{Counts, Tally};
use waypost_kernel::{Catalog, Outcome};

/// What the guard and its look-ups need of the tables; the words are good for both dialects.
fn tables(dialect: Dialect) -> String {
    let (begin, truth) = match dialect {
        Dialect::Sqlite => ("", "INTEGER"),
        Dialect::Postgres => ("CREATE SCHEMA waypost; SET search_path = waypost;\n", "boolean"),
    };
    format!(
        "{begin}CREATE TABLE lifecycles(name text, version integer, kind text NOT NULL, items text,
  items_version integer, definition text NOT NULL, PRIMARY KEY(name, version));
CREATE TABLE lifecycle_states(lifecycle text, version integer, state text, phase text NOT NULL, outcome text,
  initial {truth} NOT NULL, PRIMARY KEY(lifecycle, version, state));
CREATE TABLE lifecycle_moves(lifecycle text, version integer, src text, dst text, guards integer,
  events integer NOT NULL, command text NOT NULL, PRIMARY KEY(lifecycle, version, src, dst, guards));
CREATE TABLE runs(run_id text PRIMARY KEY, lifecycle text NOT NULL, version integer NOT NULL, status text NOT NULL,
  seq bigint NOT NULL DEFAULT 9, reason text, attempt integer NOT NULL DEFAULT 0,
  max_attempts integer NOT NULL DEFAULT 1, resolved {truth} NOT NULL DEFAULT false,
  forced {truth} NOT NULL DEFAULT false, reentrant {truth} NOT NULL DEFAULT false,
  operating {truth} NOT NULL DEFAULT false);
CREATE TABLE items(run_id text, kind text, key text, version integer NOT NULL, status text NOT NULL,
  attempts integer NOT NULL DEFAULT 0, max_retries integer NOT NULL DEFAULT 3,
  discarded {truth} NOT NULL DEFAULT false, reruns {truth} NOT NULL DEFAULT false, PRIMARY KEY(run_id, kind, key));
CREATE INDEX items_status ON items(run_id, kind, status);
"
    )
}

fn shipped() -> Vec<Arc<Lifecycle>> {
    Catalog::shipped().unwrap().iter().cloned().collect()
}

type Meaning = (Phase, Option<Outcome>);

const OPEN: Meaning = (Phase::Ready, None);
const OK: Meaning = (Phase::Settled, Some(Outcome::Succeeded));
const FAILED: Meaning = (Phase::Settled, Some(Outcome::Failed));
const REVERTED: Meaning = (Phase::Settled, Some(Outcome::Reverted));
const SKIPPED: Meaning = (Phase::Settled, Some(Outcome::Skipped));
const DRAFT: Meaning = (Phase::Draft, None);

/// Items of a run, by meaning. A kind takes part in those for which it has states.
const ARRANGEMENTS: &[&[Meaning]] = &[
    &[],
    &[OPEN],
    &[(Phase::Held, None)],
    &[(Phase::Parked, None)],
    &[OK],
    &[FAILED],
    &[OK, FAILED],
    &[OK, OPEN],
    &[FAILED, OPEN],
    &[OK, FAILED, OPEN],
    &[REVERTED],
    &[REVERTED, FAILED],
    &[OK, REVERTED],
    &[SKIPPED],
    &[OK, SKIPPED],
    &[DRAFT],
    &[DRAFT, OK],
];

/// All arrangements that a run of this lifecycle can have.
fn arrangements(lifecycle: &Lifecycle) -> Vec<Vec<StateId>> {
    let state_of = |(phase, outcome): &Meaning| {
        let kind = lifecycle.items.first()?;
        kind.state_ids().find(|id| (kind.state(*id).phase, kind.state(*id).outcome) == (*phase, *outcome))
    };
    ARRANGEMENTS.iter().filter_map(|wanted| wanted.iter().map(state_of).collect()).collect()
}

/// As the kernel counts them.
fn counts(lifecycle: &Lifecycle, items: &[StateId]) -> Counts {
    let Some(kind) = lifecycle.items.first() else { return Counts::default() };
    let mut tally = Tally::new(kind);
    items.iter().for_each(|state| tally.add(*state, 1));
    tally.counts(kind)
}

/// The rows of a run's items. One of a kind that guards do not count stands among them where the lifecycle has
/// such, and one of another run.
fn item_rows(lifecycle: &Lifecycle, run_id: &str, items: &[StateId]) -> Vec<String> {
    let row = |run_id: &str, kind: &Lifecycle, key: usize, state: StateId| {
        format!("('{run_id}', '{}', '{key}', {}, '{}')", kind.name, kind.version, kind.state(state).name)
    };
    let mut rows = Vec::new();
    for (at, kind) in lifecycle.items.iter().enumerate() {
        match at {
            0 => rows.extend(items.iter().enumerate().map(|(key, state)| row(run_id, kind, key, *state))),
            _ => rows.push(row(run_id, kind, 0, kind.initial[0])),
        }
        rows.push(row(&format!("not {run_id}"), kind, 0, kind.initial[0]));
    }
    rows
}

fn insert(into: &str, rows: &[String]) -> String {
    format!("INSERT INTO {into} VALUES\n{};\n", rows.join(",\n"))
}

const ITEM_COLUMNS: &str = "items(run_id, kind, key, version, status)";

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
