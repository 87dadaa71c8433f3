//! The databases' own guard, held against the kernel: on SQLite as it is built in, and on a real PostgreSQL.
// proves X2

mod meaning;
mod pairs;

use std::sync::Arc;

use waypost_kernel::lifecycle::{Lifecycle, Phase, StateId};
use waypost_kernel::tally::{Counts, Tally};
use waypost_kernel::{Catalog, Outcome};

/// Rows of runs as (run_id, lifecycle, version, status, reason, attempt, max_attempts, resolved, forced, reentrant,
/// operating) and of items as (run_id, kind, key, version, status), written past PostgreSQL's guards. What a state asks
/// for is there; an item of a run that is none belongs to nobody.
fn past_the_guards(runs: &[String], items: &[String]) -> String {
    format!(
        "SET session_replication_role = replica;
INSERT INTO waypost.runs(run_id, state, seq, queued_at, tenant, queue, last_command, lease_token, stale_after, finished_at, available_at, reason,
    attempt, max_attempts, resolved, forced, reentrant, operating)
  SELECT v.run_id, s.code, 9, now(), 'default', 'default', 'create', CASE WHEN s.phase = 'held' THEN gen_random_uuid() END,
    CASE WHEN s.phase = 'held' THEN now() END, CASE WHEN s.phase = 'settled' THEN now() END, now(),
    CASE WHEN s.phase = 'parked' THEN coalesce(v.reason, 'a look') ELSE v.reason END, v.attempt, v.max_attempts, v.resolved, v.forced,
    v.reentrant, v.operating
  FROM (VALUES {}) v(run_id, lifecycle, version, status, reason, attempt, max_attempts, resolved, forced, reentrant, operating)
  JOIN waypost.lifecycle_states s ON s.lifecycle = v.lifecycle AND s.version = v.version AND s.state = v.status;
ANALYZE waypost.runs;
INSERT INTO waypost.items(rid, kind, key, version, place, seq, name, status)
  SELECT coalesce(r.rid, -row_number() OVER ()), v.kind, v.key, v.version, 0, 9, v.key, v.status
  FROM (VALUES {}) v(run_id, kind, key, version, status) LEFT JOIN waypost.runs r ON r.run_id = v.run_id;
ANALYZE waypost.items;
RESET session_replication_role;
",
        runs.join(",\n"),
        items.join(",\n")
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

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
