//! PostgreSQL's guard judges every pair of states as the lifecycles' moves say, for a superuser too.
// proves X2

use waypost_kernel::guard::Facts;
use waypost_kernel::lifecycle::{Kind, Lifecycle, Phase, StateId};
use waypost_kernel::render::sql::moves;
use waypost_kernel::{Guard, Outcome};
use waypost_store::postgres::migration_sql;
use waypost_testkit::Postgres;

use super::{arrangements, counts, insert, item_rows, past_the_guards, quoted, shipped};

const ACCEPTED: &str = "WP200";
/// By the guard, or, where a reason is missing, by the table itself.
const REFUSED: [&str; 2] = ["WP409", "23514"];

/// Does one thing after another, undoes each, and notes what became of it.
const JUDGE: &str = "DO $judge$
DECLARE it record;
BEGIN
  FOR it IN SELECT place, sql FROM cases ORDER BY place LOOP
    BEGIN
      EXECUTE it.sql;
      RAISE EXCEPTION 'undo' USING ERRCODE = 'WP200';
    EXCEPTION WHEN OTHERS THEN
      UPDATE cases SET verdict = SQLSTATE WHERE place = it.place;
    END;
  END LOOP;
END $judge$;
SELECT verdict FROM cases ORDER BY place;
";

struct Case {
    sql: String,
    legal: bool,
}

#[derive(Default)]
struct Plan {
    runs: Vec<String>,
    items: Vec<String>,
    cases: Vec<Case>,
}

fn holds(mask: u32, facts: &Facts) -> bool {
    Guard::ALL.into_iter().filter(|guard| mask >> *guard as u32 & 1 == 1).all(|guard| guard.holds(facts))
}

/// `rise`: by how much the write raises `seq`. Two moves of an item at once are one event.
fn is_legal(lifecycle: &Lifecycle, from: StateId, to: StateId, rise: i64, facts: &Facts) -> bool {
    moves(lifecycle).iter().any(|it| {
        let events = if lifecycle.kind == Kind::Item { 1 } else { i64::from(it.events) };
        let enough = rise >= events || rise == 0 && it.events == 1;
        (it.from, it.to) == (from, to) && enough && holds(it.guards, facts)
    })
}

fn pairs(lifecycle: &Lifecycle) -> Vec<(StateId, StateId)> {
    let others =
        |from: StateId| lifecycle.state_ids().filter(move |to| *to != from).map(move |to| (from, to));
    lifecycle.state_ids().flat_map(others).collect()
}

impl Plan {
    /// Every pair, with all that a person could give and with nothing, with each arrangement of items.
    fn add_run(&mut self, lifecycle: &Lifecycle) {
        for (at, items) in arrangements(lifecycle).iter().enumerate() {
            for from in lifecycle.state_ids() {
                let (id, status) = (run_id(lifecycle, from, at), &lifecycle.state(from).name);
                self.runs.push(run_row(&id, lifecycle, status));
                self.items.extend(item_rows(lifecycle, &id, items));
            }
            let has_failed = lifecycle.items.first().is_some_and(|kind| {
                let failed = |state: &StateId| kind.state(*state).outcome == Some(Outcome::Failed);
                kind.stops_run && items.iter().any(failed)
            });
            let items = counts(lifecycle, items);
            for (from, to) in pairs(lifecycle) {
                // After a failed step nobody says by hand that all went well.
                let is_late = has_failed
                    && lifecycle.state(to).outcome == Some(Outcome::Succeeded)
                    && lifecycle.phase(from) != Phase::Settled;
                for (rise, given) in [-1, 0, 1, 2].into_iter().flat_map(|rise| [(rise, true), (rise, false)])
                {
                    let facts = Facts {
                        has_reason: given,
                        resolved: given,
                        attempt: if given { 1 } else { 2 },
                        max_attempts: 1,
                        reentrant: given,
                        operating: !given,
                        items,
                        ..Facts::default()
                    };
                    let id = run_id(lifecycle, from, at);
                    let reason = if given { "'a look'" } else { "NULL" };
                    let sql = format!(
                        "UPDATE waypost.runs SET {}, seq = seq + {rise}, reason = {reason}, resolved = {given}, \
                         attempt = {}, max_attempts = 1, reentrant = {given}, operating = {} WHERE run_id = '{id}'",
                        shape(lifecycle, to),
                        facts.attempt,
                        facts.operating,
                    );
                    // Of the board, what a person may give: the rest is as the run has it.
                    if rise == 0 {
                        let name = &lifecycle.state(to).name;
                        let by_board = Facts { attempt: 0, reentrant: false, operating: false, ..facts };
                        let sql = format!(
                            "UPDATE waypost.board SET status = '{name}', reason = {reason}, resolved = {given} WHERE run_id = '{id}'"
                        );
                        let legal = is_legal(lifecycle, from, to, 0, &by_board) && !is_late;
                        self.cases.push(Case { sql, legal });
                    }
                    let legal = is_legal(lifecycle, from, to, rise, &facts) && !(rise == 0 && is_late);
                    self.cases.push(Case { sql, legal });
                }
            }
        }
    }

    fn add_item(&mut self, kind: &Lifecycle) {
        for from in kind.state_ids() {
            let status = &kind.state(from).name;
            let (id, name, version) = (run_id(kind, from, 0), &kind.name, kind.version);
            let deploy = shipped().into_iter().find(|lifecycle| lifecycle.kind == Kind::Run).unwrap();
            self.runs.push(run_row(&id, &deploy, &deploy.state(deploy.initial[0]).name));
            self.items.push(format!("('{id}', '{name}', 'a', {version}, '{status}')"));
        }
        for (from, to) in pairs(kind) {
            for bits in 0..16 {
                let (attempt, discarded, reruns) = (3 + (bits & 1), bits & 2 != 0, bits & 4 != 0);
                let rise = i64::from(bits >> 3);
                let facts = Facts { attempt, max_attempts: 3, discarded, reruns, ..Facts::default() };
                let sql = format!(
                    "UPDATE waypost.items SET status = '{}', attempts = {attempt}, max_retries = 3, \
                     discarded = {discarded}, reruns = {reruns}, seq = seq + {rise} WHERE rid = (SELECT rid FROM waypost.runs WHERE run_id = '{}')",
                    kind.state(to).name,
                    run_id(kind, from, 0)
                );
                self.cases.push(Case { sql, legal: is_legal(kind, from, to, rise, &facts) });
            }
        }
    }

    /// A row may begin in an initial state of a version that is known, and nowhere else.
    fn add_births(&mut self, lifecycle: &Lifecycle) {
        let known =
            lifecycle.state_ids().map(|id| (&*lifecycle.state(id).name, lifecycle.initial.contains(&id)));
        for (status, initial) in known.chain([("nonsense", false), ("", false)]) {
            for version in [lifecycle.version, lifecycle.version + 1] {
                let sql = match lifecycle.kind {
                    Kind::Run => format!(
                        "INSERT INTO waypost.runs(run_id, state, seq, queued_at, tenant, queue, last_command, lease_token, stale_after, finished_at, reason) \
                         SELECT 'born', s.code, 1, now(), 'default', 'default', 'create', CASE WHEN s.phase = 'held' THEN gen_random_uuid() END, \
                         CASE WHEN s.phase = 'held' THEN now() END, CASE WHEN s.phase = 'settled' THEN now() END, 'a look' \
                         FROM (SELECT code, phase FROM waypost.lifecycle_states WHERE lifecycle = '{name}' AND version = {version} AND state = '{status}' \
                         UNION ALL SELECT 2999, 'ready' LIMIT 1) s",
                        name = lifecycle.name
                    ),
                    Kind::Item => format!(
                        "INSERT INTO waypost.items(rid, key, kind, version, status, place, seq, name) \
                         VALUES (1, 'a', '{}', {version}, '{status}', 0, 1, 'a')",
                        lifecycle.name
                    ),
                };
                self.cases.push(Case { sql, legal: initial && version == lifecycle.version });
            }
        }
    }

    fn script(&self) -> String {
        let mut script = format!("BEGIN;\n{}", past_the_guards(&self.runs, &self.items));
        // What the engine writes is judged too: here it is written by hand.
        for (table, who_writes) in [("runs", "own"), ("runs", "born"), ("items", "own"), ("items", "born")] {
            script += &format!("ALTER TABLE waypost.{table} DISABLE TRIGGER {table}_{who_writes};\n");
        }
        script += "CREATE TABLE cases(place integer PRIMARY KEY, sql text NOT NULL, verdict text);\n";
        let cases = self.cases.iter().enumerate();
        let rows: Vec<String> = cases.map(|(at, case)| format!("({at}, {})", quoted(&case.sql))).collect();
        script += &insert("cases(place, sql)", &rows);
        script + "COMMIT;\nANALYZE;\n" + JUDGE
    }
}

fn run_row(id: &str, lifecycle: &Lifecycle, status: &str) -> String {
    let of = (&lifecycle.name, lifecycle.version);
    format!("('{id}', '{}', {}, '{status}', NULL::text, 0, 1, false, false, false, false)", of.0, of.1)
}

/// A state by its number, with what it asks for.
fn shape(lifecycle: &Lifecycle, to: StateId) -> String {
    let state = lifecycle.state(to);
    let lease = match state.phase {
        Phase::Held => "coalesce(lease_token, gen_random_uuid()), stale_after = coalesce(stale_after, now())",
        _ => "NULL, stale_after = NULL",
    };
    let end = if state.phase == Phase::Settled { "coalesce(finished_at, now())" } else { "NULL" };
    format!(
        "state = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = '{}' AND version = {} AND state = '{}'), \
         lease_token = {lease}, finished_at = {end}",
        lifecycle.name, lifecycle.version, state.name
    )
}

fn run_id(lifecycle: &Lifecycle, from: StateId, arrangement: usize) -> String {
    format!("{} {} {arrangement}", lifecycle.name, lifecycle.state(from).name)
}

#[test]
fn postgres_refuses_all_pairs_that_no_lifecycle_declares() {
    let mut plan = Plan::default();
    for lifecycle in shipped() {
        match lifecycle.kind {
            Kind::Run => plan.add_run(&lifecycle),
            Kind::Item => plan.add_item(&lifecycle),
        }
        plan.add_births(&lifecycle);
    }
    let postgres = Postgres::with_schema(&migration_sql()).unwrap();
    let said = postgres.psql(&plan.script()).unwrap();
    let verdicts: Vec<&str> = said.lines().collect();
    assert_eq!(verdicts.len(), plan.cases.len());
    for (case, verdict) in plan.cases.iter().zip(verdicts) {
        let fits = if case.legal { verdict == ACCEPTED } else { REFUSED.contains(&verdict) };
        assert!(fits, "{verdict}: {}", case.sql);
    }
    let legal = plan.cases.iter().filter(|case| case.legal).count();
    assert!(legal > 1_000 && plan.cases.len() - legal > 5_000, "{legal} of {}", plan.cases.len());
}
