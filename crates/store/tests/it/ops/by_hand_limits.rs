//! What an UPDATE by hand may say: what the engine would take from anybody else, and no more.
// proves X2, J2, J3

use serde_json::{Value, json};
use waypost_store::postgres::PostgresStore;
use waypost_store::{CommandWrite, Store};

use super::kit::{Ops, open};
use crate::conformance::kit::{asking, map};

impl Ops {
    /// Lets a paused job go on by hand, with these members of its details.
    fn resolve(&self, id: &str, details: &Value) -> Result<String, String> {
        self.server.psql(&format!(
            "UPDATE waypost.board SET status = 'pending', resolved = true, details = '{details}' WHERE run_id = '{id}'"
        ))
    }
}

const GIVEN: &str = "maintenance_blocker_resolutions";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_by_hand_is_one_that_a_command_would_bring() {
    let ops = open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let id = ops.paused_job();
    for given in [
        json!({"esx-1": null, "esx-2": null}),
        json!({"esx-1": "nonsense", "esx-2": "x"}),
        json!({"esx-1": "skip", "esx-2": {}}),
        json!({"esx-1": "skip", "esx-2": 7}),
        json!({"esx-1": "skip", "esx-2": {"decision": ["x"]}}),
        json!({"esx-1": "skip", "esx-2": " "}),
        json!({"esx-1": "skip", "esx-2": "x".repeat(256)}),
        json!({"esx-1": "skip", "esx-2": "x", "esx-9": "x"}),
    ] {
        let command = CommandWrite { resolutions: map(given.clone()), ..asking(&id, "resume") };
        assert!(store.command(command).await.is_err(), "{given}");
        let error = ops.resolve(&id, &json!({ GIVEN: given })).unwrap_err();
        assert!(error.contains("INVALID_INPUT: details.maintenance_blocker_resolutions"), "{given}: {error}");
        let set = format!("details = details || '{}'", json!({ GIVEN: given }));
        ops.set_job_refused(&id, &set).is("WP422", "INVALID_INPUT: details.maintenance_blocker_resolutions");
    }
    // Some are decided now, and the others with the move; what is kept of them is what a command keeps.
    assert_eq!(
        ops.set_job(&id, &format!(r#"details = details || '{{"{GIVEN}": {{"esx-1": "skip"}}}}'"#)),
        "paused"
    );
    ops.resolve(&id, &json!({ GIVEN: {"esx-2": "x"} })).unwrap();
    let kept = ops.of_job(
        &id,
        "status, details #>> '{maintenance_blocker_resolutions,esx-1,decision}', details #> '{maintenance_blocker_resolutions,esx-2,attempt}', \
         details -> 'awaiting_blocker_resolution'",
    );
    assert_eq!(kept, "pending|skip|1|false");
    ops.verify();
}

#[test]
fn what_is_asked_stays_while_a_run_waits() {
    let ops = open();
    let id = ops.paused_job();
    for other in [
        json!({"current_blockers": {}}),
        json!({"current_blockers": null}),
        json!({"current_blockers": {"esx-9": {}}, GIVEN: {"esx-9": "skip"}}),
    ] {
        let error = ops.resolve(&id, &other).unwrap_err();
        assert!(error.contains("IMMUTABLE: details.current_blockers"), "{other}: {error}");
        let set = format!("details = details || '{other}'");
        let refused = ops.set_job_refused(&id, &set);
        assert!(["WP409", "WP422"].contains(&refused.sqlstate.as_str()), "{refused:?}");
    }
    ops.set_job_refused(&id, r#"details = details || '{"awaiting_blocker_resolution": false}'"#)
        .is("WP409", "IMMUTABLE: details.awaiting_blocker_resolution");
    let error = ops.resolve(&id, &json!({})).unwrap_err();
    assert!(error.contains("waits for decisions about esx-1, esx-2"), "{error}");
    assert_eq!(ops.of_job(&id, "status"), "paused");
    ops.verify();
}

/// The holder of a run that goes on being held is who it was.
#[test]
fn a_move_by_hand_takes_no_lease_away() {
    let ops = open();
    let run_id = ops.claimed();
    let of = |what: &str| ops.psql(&format!("SELECT {what} FROM waypost.runs WHERE run_id = '{run_id}'"));
    let lease = of("lease_token, claimed_by, lease_ms, fence");
    let start = "state = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND state = 'running')";
    for other in [
        "lease_token = '00000000-0000-4000-8000-000000000002', claimed_by = 'thief'",
        "lease_token = '00000000-0000-4000-8000-000000000002'",
        "claimed_by = 'thief'",
        "claimed_by = NULL",
        "lease_ms = 5",
    ] {
        ops.refused(&format!("UPDATE waypost.runs SET {start}, {other} WHERE run_id = '{run_id}'"))
            .is("WP409", "IMMUTABLE");
    }
    ops.refused(&format!(
        "UPDATE waypost.board SET status = 'running', claimed_by = 'thief' WHERE run_id = '{run_id}'"
    ))
    .is("WP409", "IMMUTABLE");
    assert_eq!(of("lease_token, claimed_by, lease_ms, fence"), lease);
    ops.psql(&format!("UPDATE waypost.runs SET {start} WHERE run_id = '{run_id}'"));
    assert_eq!(of("lease_token, claimed_by, lease_ms, fence"), lease);
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success', p_worker_id := 'worker-001')"));
    ops.verify();
}

const NEVER: [&str; 4] = ["infinity", "-infinity", "10000-01-01", "0044-03-15 BC"];

#[test]
fn times_that_hands_give_are_of_the_years_1_to_9999() {
    let ops = open();
    let ready = ops.queue();
    for at in NEVER {
        let begins = "UPDATE waypost.board SET status = 'claimed', claimed_by = 'w'";
        ops.refused(&format!("{begins}, stale_after = '{at}' WHERE run_id = '{ready}'"))
            .is("WP422", "INVALID_INPUT: stale_after: is ");
    }
    ops.psql("SELECT ops.claim_next_run('w')");
    let starts = "UPDATE waypost.board SET status = 'running'";
    ops.psql("SELECT ops.claim_cron_execution('nightly', '2026-01-01', 's')");
    let cron = "UPDATE ops.sys_cron_executions SET";
    for at in NEVER {
        for (sql, field) in [
            (format!("UPDATE waypost.runs SET stale_after = '{at}' WHERE run_id = '{ready}'"), "stale_after"),
            (format!("{starts}, stale_after = '{at}' WHERE run_id = '{ready}'"), "stale_after"),
            (
                format!(
                    "INSERT INTO ops.sys_cron_executions(job_name, plan_time, status) VALUES ('x', '{at}', 'RUNNING')"
                ),
                "plan_time",
            ),
            (
                format!(
                    "INSERT INTO ops.sys_cron_executions(job_name, plan_time, status, stale_after) VALUES ('x', now(), 'RUNNING', '{at}')"
                ),
                "stale_after",
            ),
            (format!("SELECT ops.claim_cron_execution('x', '{at}', 's')"), "plan_time"),
            (format!("{cron} stale_after = '{at}'"), "stale_after"),
            (format!("{cron} status = 'FAILED', next_retry_at = '{at}'"), "next_retry_at"),
            (format!("INSERT INTO ops.jobs(job_type, schedule_at) VALUES ('x', '{at}')"), "schedule_at"),
        ] {
            ops.refused(&sql).is("WP422", &format!("INVALID_INPUT: {field}: is "));
        }
    }
    ops.refused("SELECT ops.claim_cron_execution('x', now(), 's', '300000 years')")
        .is("WP422", "INVALID_INPUT: p_stale");
    assert_eq!(ops.psql("SELECT count(*) FROM ops.sys_cron_executions"), "1");
    ops.psql(&format!("UPDATE waypost.runs SET stale_after = '9999-12-31' WHERE run_id = '{ready}'"));
    ops.verify();
}

#[test]
fn the_board_and_the_table_take_no_more_than_a_command() {
    let ops = open();
    let run_id = ops.running();
    let failed =
        "(SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND state = 'failed')";
    let table = format!(
        "UPDATE waypost.runs SET state = {failed}, lease_token = NULL, stale_after = NULL, finished_at = now()"
    );
    let deep = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    for (set, words) in [
        ("metadata = '[1]'".to_owned(), "metadata: is of type array"),
        ("details = '[]'".to_owned(), "details: is of type array"),
        (
            "metadata = jsonb_build_object('x', repeat('x', 3000000))".to_owned(),
            "metadata: is 3000009 bytes long",
        ),
        (
            "details = jsonb_build_object('x', repeat('x', 3000000))".to_owned(),
            "details: is 3000009 bytes long",
        ),
        ("metadata = '{\"x\": 1e400}'".to_owned(), "metadata: has a number out of range"),
        (format!("metadata = '{{\"x\": {deep}}}'"), "metadata: is nested deeper than 64 levels"),
        ("error_code = repeat('x', 100000)".to_owned(), "error_code: is 100000 bytes long"),
        ("error_code = ''".to_owned(), "error_code: is empty"),
        (
            "error_code = 'X', error_msg = repeat('x', 2000000)".to_owned(),
            "error_msg: is 2000000 characters long",
        ),
        ("reason = repeat('x', 2000000)".to_owned(), "reason: is 2000000 characters long"),
    ] {
        for into in ["UPDATE waypost.board SET status = 'failed'", &table] {
            ops.refused(&format!("{into}, {set} WHERE run_id = '{run_id}'"))
                .is("WP422", &format!("INVALID_INPUT: {words}"));
        }
    }
    ops.psql(&format!(
        "UPDATE waypost.board SET status = 'failed', error_code = 'X', error_msg = repeat('y', 4000), metadata = '{{\"a\": 1}}' WHERE run_id = '{run_id}'"
    ));
    ops.verify();
}
