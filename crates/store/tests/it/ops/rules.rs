//! Seed 004's tables, asked and written to in SQL as its services would.
// proves R3, R8, R14

use serde_json::json;
use waypost_store::postgres::PostgresStore;
use waypost_store::{AddTargets, NewRun, NewTarget, Store};

use super::kit::{Ops, open};

impl Ops {
    fn rule(&self, targets: &[(&str, i64)]) -> String {
        let id = self.psql(
            "INSERT INTO ops.rule_runs(\"ruleId\", metadata, \"correlationId\")
               VALUES ('spring-sale', '{\"actor\": \"ann\", \"source\": \"api\"}', 'req-1') RETURNING id",
        );
        for (key, amount) in targets {
            self.psql(&format!(
                "INSERT INTO ops.rule_targets(\"ruleRunId\", id, \"beforeJson\", \"afterJson\")
                   VALUES ('{id}', '{key}', '{{\"unit_amount\": 1000}}', '{{\"unit_amount\": {amount}}}')"
            ));
        }
        id
    }

    fn set_rule(&self, id: &str, status: &str) -> String {
        self.psql(&format!("UPDATE ops.rule_runs SET status = '{status}' WHERE id = '{id}' RETURNING status"))
    }

    fn set_target(&self, id: &str, key: &str, set: &str) -> String {
        self.psql(&format!(
            "UPDATE ops.rule_targets SET {set} WHERE \"ruleRunId\" = '{id}' AND id = '{key}' RETURNING status"
        ))
    }

    fn targets(&self, id: &str) -> String {
        self.psql(&format!(
            "SELECT string_agg(id || '=' || status, ' ' ORDER BY id) FROM ops.rule_targets WHERE \"ruleRunId\" = '{id}'"
        ))
    }

    /// One applied and two failed, by hand.
    fn partial(&self) -> String {
        let id = self.rule(&[("a", 900), ("b", 0), ("c", 800)]);
        self.set_rule(&id, "QUEUED");
        assert_eq!(self.set_rule(&id, "APPLYING"), "APPLYING");
        for key in ["a", "b", "c"] {
            self.set_target(&id, key, "status = 'APPLYING'");
        }
        self.set_target(&id, "a", "status = 'APPLIED'");
        self.set_target(
            &id,
            "b",
            "status = 'FAILED', \"errorCode\" = 'TIMEOUT', \"errorMessage\" = 'too slow'",
        );
        self.set_target(&id, "c", "status = 'FAILED', \"errorCode\" = 'VALIDATION'");
        assert_eq!(self.set_rule(&id, "PARTIAL"), "PARTIAL");
        id
    }
}

// proves R1
#[test]
fn a_second_run_of_a_rule_is_not_queued_by_hand_while_one_is() {
    let ops = open();
    let (one, other) = (ops.rule(&[("a", 900)]), ops.rule(&[("a", 800)]));
    assert_eq!(ops.set_rule(&one, "QUEUED"), "QUEUED");
    let queue = format!("UPDATE ops.rule_runs SET status = 'QUEUED' WHERE id = '{other}'");
    ops.refused(&queue).is("WP409", "INVALID_TRANSITION");
    assert_eq!(ops.set_rule(&one, "APPLYING"), "APPLYING");
    ops.refused(&queue).is("WP409", &one);
    ops.set_target(&one, "a", "status = 'APPLYING'");
    ops.set_target(&one, "a", "status = 'APPLIED'");
    assert_eq!(ops.set_rule(&one, "APPLIED"), "APPLIED");
    assert_eq!(ops.set_rule(&other, "QUEUED"), "QUEUED");
}

#[test]
fn a_rule_is_run_from_sql_alone() {
    let ops = open();
    let id = ops.rule(&[("a", 900), ("b", 0)]);
    assert_eq!(ops.targets(&id), "a=PREVIEW b=PREVIEW");
    let of =
        |expression: &str| ops.psql(&format!("SELECT {expression} FROM ops.rule_runs WHERE id = '{id}'"));
    assert_eq!(
        of("status, \"ruleId\", metadata ->> 'actor', \"correlationId\", targets"),
        "PREVIEW|spring-sale|ann|req-1|2"
    );
    assert_eq!(ops.set_rule(&id, "QUEUED"), "QUEUED");
    assert_eq!(ops.targets(&id), "a=QUEUED b=QUEUED");
    assert_eq!(ops.set_rule(&id, "APPLYING"), "APPLYING");
    // What is done was begun.
    ops.refused(&format!(
        "UPDATE ops.rule_targets SET status = 'APPLIED' WHERE \"ruleRunId\" = '{id}' AND id = 'a'"
    ))
    .is("WP409", "INVALID_TRANSITION");
    for key in ["a", "b"] {
        ops.set_target(&id, key, "status = 'APPLYING'");
        ops.set_target(&id, key, "status = 'APPLIED'");
    }
    assert_eq!(ops.set_rule(&id, "APPLIED"), "APPLIED");
    assert_eq!(of("\"queuedAt\" <= \"startedAt\" AND \"startedAt\" <= \"finishedAt\""), "t");
    // Reconciliation: what is applied, and what it should be; 0 is a price.
    let applied = format!(
        "SELECT string_agg(id || ' ' || unit_amount, ', ' ORDER BY id) FROM ops.rule_targets WHERE \"ruleRunId\" = '{id}' AND status = 'APPLIED' AND \"appliedAt\" IS NOT NULL"
    );
    assert_eq!(ops.psql(&applied), "a 900, b 0");
    assert_eq!(ops.psql(&format!("SELECT (\"afterJson\" ->> 'unit_amount')::int FROM ops.rule_targets WHERE \"ruleRunId\" = '{id}' AND id = 'b'")), "0");
    assert_eq!(
        ops.psql(&format!(
            "SELECT \"eventKey\" FROM ops.rule_targets WHERE \"ruleRunId\" = '{id}' AND id = 'a'"
        )),
        format!("{id}:a:apply:1")
    );
    // The seed's state check: an applied run has no failed target.
    let check = "SELECT count(*) FROM ops.rule_runs r JOIN ops.rule_targets t ON t.\"ruleRunId\" = r.id WHERE r.status = 'APPLIED' AND t.status = 'FAILED'";
    assert_eq!(ops.psql(check), "0");
    let invariants = "SELECT count(*) FROM ops.rule_targets WHERE attempts < 0 OR attempts > 3 AND status <> 'FAILED' OR status = 'APPLIED' AND \"appliedAt\" IS NULL";
    assert_eq!(ops.psql(invariants), "0");
}

#[test]
fn dead_letters_are_found_and_retried_in_sql() {
    let ops = open();
    let id = ops.partial();
    let report = "SELECT string_agg(\"errorCode\" || ' ' || n, ', ' ORDER BY \"errorCode\") FROM (SELECT \"errorCode\", count(*) AS n FROM ops.rule_targets WHERE status = 'FAILED' GROUP BY 1) f";
    assert_eq!(ops.psql(report), "TIMEOUT 1, VALIDATION 1");
    // Chosen ones: the run goes on with them.
    assert_eq!(ops.set_target(&id, "b", "status = 'QUEUED'"), "QUEUED");
    assert_eq!(ops.psql(&format!("SELECT status FROM ops.rule_runs WHERE id = '{id}'")), "APPLYING");
    assert_eq!(ops.targets(&id), "a=APPLIED b=QUEUED c=FAILED");
    ops.set_target(&id, "b", "status = 'APPLYING'");
    ops.set_target(&id, "b", "status = 'APPLIED'");
    // One failed in an earlier pass: it is not APPLIED.
    ops.refused(&format!("UPDATE ops.rule_runs SET status = 'APPLIED' WHERE id = '{id}'"))
        .is("WP409", "INVALID_TRANSITION");
    ops.set_rule(&id, "PARTIAL");
    // All of them, with the run.
    assert_eq!(ops.set_rule(&id, "APPLYING"), "APPLYING");
    assert_eq!(ops.targets(&id), "a=APPLIED b=APPLIED c=QUEUED");
    ops.set_target(&id, "c", "status = 'APPLYING'");
    ops.set_target(&id, "c", "status = 'APPLIED'");
    assert_eq!(ops.set_rule(&id, "APPLIED"), "APPLIED");
    let two = ops.partial();
    let both = format!(
        "UPDATE ops.rule_targets SET status = 'QUEUED' WHERE \"ruleRunId\" = '{two}' AND status = 'FAILED' RETURNING id"
    );
    assert_eq!(ops.psql(&both).lines().count(), 2);
    assert_eq!(ops.targets(&two), "a=APPLIED b=QUEUED c=QUEUED");
}

#[test]
fn what_the_seed_forbids_is_refused_in_sql() {
    let ops = open();
    let id = ops.partial();
    let rule = |set: &str| format!("UPDATE ops.rule_runs SET {set} WHERE id = '{id}'");
    let target = |key: &str, set: &str| {
        format!("UPDATE ops.rule_targets SET {set} WHERE \"ruleRunId\" = '{id}' AND id = '{key}'")
    };
    let preview = ops.rule(&[]);
    for (sql, sqlstate, words) in [
        ("INSERT INTO ops.rule_runs(status) VALUES ('APPLYING')".to_owned(), "WP409", "INVALID_TRANSITION"),
        ("INSERT INTO ops.rule_runs(status) VALUES ('QUEUED')".to_owned(), "WP409", "INVALID_TRANSITION"),
        (
            format!("UPDATE ops.rule_runs SET status = 'QUEUED' WHERE id = '{preview}'"),
            "WP409",
            "INVALID_TRANSITION",
        ),
        (
            format!("UPDATE ops.rule_runs SET status = 'APPLYING' WHERE id = '{preview}'"),
            "WP409",
            "INVALID_TRANSITION",
        ),
        (rule("status = 'APPLIED'"), "WP409", "INVALID_TRANSITION"),
        (rule("status = 'ROLLED_BACK'"), "WP409", "INVALID_TRANSITION"),
        (rule("\"ruleId\" = 'other'"), "WP409", "IMMUTABLE"),
        (target("a", "status = 'QUEUED'"), "WP409", "INVALID_TRANSITION"),
        (target("a", "status = 'APPLYING'"), "WP409", "INVALID_TRANSITION"),
        (target("b", "status = 'APPLIED'"), "WP409", "INVALID_TRANSITION"),
        (target("b", "attempts = 1"), "WP409", "IMMUTABLE"),
        (target("b", "\"afterJson\" = '{}'"), "WP409", "IMMUTABLE"),
        (
            format!("INSERT INTO ops.rule_targets(\"ruleRunId\", id) VALUES ('{id}', 'late')"),
            "WP409",
            "INVALID_TRANSITION",
        ),
        (
            "INSERT INTO ops.rule_targets(\"ruleRunId\", id) VALUES ('rule-gone', 'x')".to_owned(),
            "WP404",
            "NOT_FOUND",
        ),
        (format!("DELETE FROM ops.rule_targets WHERE \"ruleRunId\" = '{id}'"), "WP405", "APPEND_ONLY"),
        (format!("DELETE FROM ops.rule_runs WHERE id = '{id}'"), "WP405", "APPEND_ONLY"),
    ] {
        ops.refused(&sql).is(sqlstate, words);
    }
    // A rollback, by hand: its targets first, then it.
    assert_eq!(ops.set_target(&id, "a", "status = 'ROLLED_BACK'"), "ROLLED_BACK");
    assert_eq!(ops.set_rule(&id, "ROLLED_BACK"), "ROLLED_BACK");
    ops.refused(&rule("status = 'APPLYING'")).is("WP409", "INVALID_TRANSITION");
    ops.refused(&target("b", "status = 'QUEUED'")).is("WP409", "INVALID_TRANSITION");
}

// What a playbook gathers is the amount itself; the seed's services read `unit_amount` of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_engine_gathered_is_read_as_the_seed_reads_it() {
    let ops = open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let new = NewRun { lifecycle: "rule".into(), ..NewRun::default() };
    let run = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run;
    let amounts = [json!(11), json!(0), json!(12.5), json!("9.99"), json!({ "unit_amount": 7 }), json!(null)];
    let targets = amounts.into_iter().enumerate().map(|(n, after)| {
        let key = format!("t{n}");
        NewTarget { key, before: json!(10), after, ..NewTarget::default() }
    });
    let add = AddTargets {
        tenant: "default".into(),
        run_id: run.id().into(),
        by: "ann".into(),
        rows: 6,
        targets: targets.collect(),
        last: true,
        ..AddTargets::default()
    };
    store.add_targets(add).await.unwrap();
    let id = run.id();
    assert_eq!(ops.set_rule(id, "QUEUED"), "QUEUED");
    assert_eq!(ops.set_rule(id, "APPLYING"), "APPLYING");
    for n in 0..6 {
        ops.set_target(id, &format!("t{n}"), "status = 'APPLYING'");
        ops.set_target(id, &format!("t{n}"), "status = 'APPLIED'");
    }
    assert_eq!(ops.set_rule(id, "APPLIED"), "APPLIED");
    // The seed's reconciliation: the applied targets of a run, and what is expected of each.
    let expected = format!(
        "SELECT string_agg(id || '=' || coalesce(\"afterJson\" ->> 'unit_amount', '-') || '/' || coalesce(unit_amount::text, '-'), ' ' ORDER BY id)
           FROM ops.rule_targets WHERE \"ruleRunId\" = '{id}' AND status = 'APPLIED'"
    );
    assert_eq!(ops.psql(&expected), "t0=11/11 t1=0/0 t2=12.5/12.5 t3=9.99/- t4=7/7 t5=-/-");
    let changed = format!(
        "SELECT count(*) FROM ops.rule_targets WHERE \"ruleRunId\" = '{id}' AND (\"beforeJson\" ->> 'unit_amount')::numeric = 10"
    );
    assert_eq!(ops.psql(&changed), "6");
}
