//! PostgreSQL's guard judges every pair of states as the lifecycles' moves say, for a superuser too.
// proves X2

use waypost_kernel::Guard;
use waypost_kernel::guard::Facts;
use waypost_kernel::lifecycle::{Kind, Lifecycle, StateId};
use waypost_kernel::render::sql::{self, Dialect, moves};
use waypost_testkit::Postgres;

use super::{ITEM_COLUMNS, arrangements, counts, insert, item_rows, quoted, shipped, tables};

const ACCEPTED: &str = "WP200";
const REFUSED: &str = "WP409";

/// Does one thing after another, undoes each, and notes what became of it.
const JUDGE: &str = "DO $judge$
DECLARE it record;
BEGIN
  FOR it IN SELECT place, sql FROM waypost.cases ORDER BY place LOOP
    BEGIN
      EXECUTE it.sql;
      RAISE EXCEPTION 'undo' USING ERRCODE = 'WP200';
    EXCEPTION WHEN OTHERS THEN
      UPDATE waypost.cases SET verdict = SQLSTATE WHERE place = it.place;
    END;
  END LOOP;
END $judge$;
SELECT verdict FROM waypost.cases ORDER BY place;
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

/// `rise`: by how much the write raises `seq`. Items have no such condition.
fn is_legal(lifecycle: &Lifecycle, from: StateId, to: StateId, rise: Option<i64>, facts: &Facts) -> bool {
    moves(lifecycle).iter().any(|it| {
        let enough = rise.is_none_or(|rise| rise >= i64::from(it.events) || rise == 0 && it.events == 1);
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
                self.runs.push(format!("('{id}', '{}', {}, '{status}')", lifecycle.name, lifecycle.version));
                self.items.extend(item_rows(lifecycle, &id, items));
            }
            let items = counts(lifecycle, items);
            for (from, to) in pairs(lifecycle) {
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
                    let sql = format!(
                        "UPDATE waypost.runs SET status = '{}', seq = seq + {rise}, reason = {}, resolved = {given}, \
                         attempt = {}, max_attempts = 1, reentrant = {given}, operating = {} WHERE run_id = '{}'",
                        lifecycle.state(to).name,
                        if given { "'a look'" } else { "NULL" },
                        facts.attempt,
                        facts.operating,
                        run_id(lifecycle, from, at)
                    );
                    let legal = is_legal(lifecycle, from, to, Some(rise), &facts);
                    self.cases.push(Case { sql, legal });
                }
            }
        }
    }

    fn add_item(&mut self, kind: &Lifecycle) {
        for from in kind.state_ids() {
            let status = &kind.state(from).name;
            let (id, name, version) = (run_id(kind, from, 0), &kind.name, kind.version);
            self.items.push(format!("('{id}', '{name}', 'a', {version}, '{status}')"));
        }
        for (from, to) in pairs(kind) {
            for bits in 0..8 {
                let (attempt, discarded, reruns) = (3 + (bits & 1), bits & 2 != 0, bits & 4 != 0);
                let facts = Facts { attempt, max_attempts: 3, discarded, reruns, ..Facts::default() };
                let sql = format!(
                    "UPDATE waypost.items SET status = '{}', attempts = {attempt}, max_retries = 3, \
                     discarded = {discarded}, reruns = {reruns} WHERE run_id = '{}'",
                    kind.state(to).name,
                    run_id(kind, from, 0)
                );
                self.cases.push(Case { sql, legal: is_legal(kind, from, to, None, &facts) });
            }
        }
    }

    /// A row may begin in an initial state of a version that is known, and nowhere else.
    fn add_births(&mut self, lifecycle: &Lifecycle) {
        let known =
            lifecycle.state_ids().map(|id| (&*lifecycle.state(id).name, lifecycle.initial.contains(&id)));
        for (status, initial) in known.chain([("nonsense", false), ("", false)]) {
            for version in [lifecycle.version, lifecycle.version + 1] {
                let row = match lifecycle.kind {
                    Kind::Run => "runs(run_id, lifecycle, version, status) VALUES ('born'",
                    Kind::Item => "items(run_id, key, kind, version, status) VALUES ('born', 'a'",
                };
                let sql = format!("INSERT INTO waypost.{row}, '{}', {version}, '{status}')", lifecycle.name);
                self.cases.push(Case { sql, legal: initial && version == lifecycle.version });
            }
        }
    }

    fn script(&self) -> String {
        let dialect = Dialect::Postgres;
        let mut script = format!("BEGIN;\n{}{}", tables(dialect), sql::guard(dialect));
        shipped().iter().for_each(|lifecycle| script += &sql::definition(lifecycle, dialect));
        for switch in ["DISABLE", "ENABLE"] {
            for table in ["runs", "items"] {
                script += &format!("ALTER TABLE {table} {switch} TRIGGER USER;\n");
            }
            if switch == "DISABLE" {
                script += &insert("runs(run_id, lifecycle, version, status)", &self.runs);
                script += &insert(ITEM_COLUMNS, &self.items);
            }
        }
        script += "CREATE TABLE cases(place integer PRIMARY KEY, sql text NOT NULL, verdict text);\n";
        let cases = self.cases.iter().enumerate();
        let rows: Vec<String> = cases.map(|(at, case)| format!("({at}, {})", quoted(&case.sql))).collect();
        script += &insert("cases(place, sql)", &rows);
        script + "COMMIT;\nANALYZE;\n" + JUDGE
    }
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
    let postgres = Postgres::start().unwrap();
    let said = postgres.psql(&plan.script()).unwrap();
    let verdicts: Vec<&str> = said.lines().collect();
    assert_eq!(verdicts.len(), plan.cases.len());
    for (case, verdict) in plan.cases.iter().zip(verdicts) {
        let expected = if case.legal { ACCEPTED } else { REFUSED };
        assert_eq!(verdict, expected, "{}", case.sql);
    }
    let legal = plan.cases.iter().filter(|case| case.legal).count();
    assert!(legal > 1_000 && plan.cases.len() - legal > 5_000, "{legal} of {}", plan.cases.len());
}
