//! Seed 002's table from psql: claim, heartbeat, finish, retry, steal, by the seed's own statements.
// proves C1, C3, C4, C9

use super::kit::{Ops, open};

const PLAN: &str = "2026-02-14 02:00+00";

fn claim(ops: &Ops, runner: &str) -> Option<(String, String)> {
    let sql = format!(
        "SELECT id || ' ' || lease_token FROM ops.claim_cron_execution('rollup', '{PLAN}', '{runner}', '10 minutes')"
    );
    let found = ops.psql(&sql);
    found.split_once(' ').map(|(id, token)| (id.to_owned(), token.to_owned()))
}

/// The seed's shape of a live write; gives how many rows it matched.
fn live(ops: &Ops, (id, token): &(String, String), set: &str) -> String {
    ops.psql(&format!(
        "WITH w AS (UPDATE ops.sys_cron_executions SET {set} WHERE id = '{id}' AND lease_token = '{token}' AND status = 'RUNNING' RETURNING 1) \
         SELECT count(*) FROM w"
    ))
}

fn one(ops: &Ops, column: &str) -> String {
    ops.psql(&format!("SELECT {column} FROM ops.sys_cron_executions"))
}

#[test]
fn one_claims_a_plan_and_the_others_get_no_row() {
    let ops = open();
    let held = claim(&ops, "s1").unwrap();
    assert_eq!(claim(&ops, "s2"), None);
    assert_eq!(
        one(&ops, "status || attempt || max_attempts || runner_id || scope_kind || scope_id"),
        "RUNNING13s1globalglobal"
    );
    assert_eq!(
        live(&ops, &held, "heartbeat_at = now(), stale_after = waypost.now() + interval '20 minutes'"),
        "1"
    );
    assert_eq!(one(&ops, "stale_after > waypost.now() + interval '19 minutes'"), "t");
    let end = "status = 'SUCCESS', finished_at = now(), duration_ms = 12, rows_affected = 7, result = '{\"rows\": 7}'";
    assert_eq!(live(&ops, &held, end), "1");
    assert_eq!(live(&ops, &held, end), "0", "it is no longer RUNNING");
    assert_eq!(one(&ops, "status || duration_ms || rows_affected || result"), "SUCCESS127{\"rows\": 7}");
    ops.clock("40 days");
    assert_eq!(claim(&ops, "s2"), None, "a success never reruns");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_runner_that_lost_its_lease_writes_nothing() {
    let ops = open();
    let first = claim(&ops, "s1").unwrap();
    ops.clock("9 minutes");
    assert_eq!(claim(&ops, "s2"), None);
    ops.clock("11 minutes");
    let second = claim(&ops, "s2").unwrap();
    assert_eq!((&first.0, one(&ops, "attempt")), (&second.0, "2".to_owned()));
    assert_ne!(first.1, second.1, "the token is rotated");
    assert_eq!(live(&ops, &first, "stale_after = waypost.now() + interval '1 hour'"), "0");
    assert_eq!(live(&ops, &first, "status = 'SUCCESS'"), "0");
    assert_eq!(
        live(&ops, &second, "status = 'FAILED', error_code = 'run_timeout', error_msg = repeat('é', 5000)"),
        "1"
    );
    assert_eq!(one(&ops, "error_code || ' ' || length(error_msg)"), "run_timeout 4000");
    assert_eq!(claim(&ops, "s3"), None, "no retry time means never");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_failure_is_retried_when_it_is_due_and_attempts_come_to_an_end() {
    let ops = open();
    for attempt in 1..=3 {
        let held = claim(&ops, "s1").unwrap();
        assert_eq!(one(&ops, "attempt"), attempt.to_string());
        assert_eq!(
            live(&ops, &held, "status = 'FAILED', next_retry_at = waypost.now() + interval '1 minute'"),
            "1"
        );
        assert_eq!(claim(&ops, "s1"), None);
        ops.clock(&format!("{} minutes", 2 * attempt));
    }
    assert_eq!(claim(&ops, "s1"), None);
    assert_eq!(one(&ops, "status || error_code || (next_retry_at IS NULL)"), "FAILEDhandler_errortrue");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn the_seeds_checks_and_its_unique_key_hold() {
    let ops = open();
    let insert = |columns: &str, values: &str| {
        format!(
            "INSERT INTO ops.sys_cron_executions(job_name, plan_time, {columns}) VALUES ('j', '{PLAN}', {values})"
        )
    };
    ops.psql(&insert("status", "'RUNNING'"));
    let twice = ops.refused(&insert("status", "'RUNNING'"));
    twice.is("23505", "uq_sys_cron_execution");
    for (columns, values, sqlstate, words) in [
        ("scope_id, status", "'a', 'STALE'", "23514", "chk_sys_cron_status"),
        ("scope_id, status, attempt", "'a', 'RUNNING', 0", "23514", "chk_sys_cron_attempt"),
        ("scope_id, status, attempt, max_attempts", "'a', 'RUNNING', 4, 3", "23514", "chk_sys_cron_attempt"),
        ("scope_id, status, duration_ms", "'a', 'RUNNING', -1", "23514", "chk_sys_cron_duration"),
        ("scope_id, status", "'a', 'SUCCESS'", "WP409", "begins as RUNNING"),
    ] {
        ops.refused(&insert(columns, values)).is(sqlstate, words);
    }
    let update = |set: &str| format!("UPDATE ops.sys_cron_executions SET {set}");
    ops.refused(&update("stale_after = NULL")).is("23514", "chk_sys_cron_stale_after");
    ops.refused(&update("plan_time = now()")).is("WP409", "IMMUTABLE");
    ops.refused(&update("attempt = attempt + 1, lease_token = gen_random_uuid()"))
        .is("WP409", "INVALID_TRANSITION");
    ops.psql(&update("status = 'SUCCESS'"));
    ops.refused(&update("status = 'RUNNING', stale_after = now()")).is("WP409", "INVALID_TRANSITION");
    ops.refused("DELETE FROM ops.sys_cron_executions").is("WP405", "");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn the_guides_statements_run() {
    let ops = open();
    let guide = include_str!("../../../../../docs/schedules.md");
    for block in guide.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        ops.psql(block);
    }
    assert_eq!(one(&ops, "status || rows_affected"), "SUCCESS7");
    assert_eq!(ops.verify(), 1);
}
