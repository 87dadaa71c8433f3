//! Ends: once, by who holds the run, and the same again is answered as the first time.
// proves D8, X3, X5, X8

use waypost_store::postgres::PostgresStore;
use waypost_store::{FinishWrite, Store};

use super::kit::open;

#[test]
fn the_same_finish_again_is_answered_and_another_is_refused() {
    let ops = open();
    let run_id = ops.running();
    let finish =
        |status: &str| format!("SELECT ops.finish_run('{run_id}', '{status}', '{{\"exit_code\": 0}}')");
    assert_eq!(ops.psql(&finish("success")), "success");
    let events = ops.events(&run_id);
    assert_eq!(ops.psql(&finish("success")), "success");
    assert_eq!(ops.events(&run_id), events, "nothing was written");
    ops.refused(&finish("failed")).is("WP409", "INVALID_TRANSITION: no failed from success");
    ops.refused(&finish("cancelled")).is("WP409", "INVALID_TRANSITION");
    assert_eq!(ops.verify(), 1);
}

/// The same status with other metadata is another finish, and says so; metadata that is not sent again claims nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finish_that_brings_other_metadata_is_another_one() {
    let ops = open();
    let (run_id, token) = ops.fenced();
    let finish = |metadata: &str| {
        format!("SELECT ops.finish_run('{run_id}', 'failed', '{metadata}', p_lease_token := '{token}')")
    };
    let first = r#"{"exit_code": 1, "ä": {"b": [1.5, null, "x\n\"y\""], "a": true}}"#;
    assert_eq!(ops.psql(&finish(first)), "failed");
    let events = ops.events(&run_id);
    let again = r#"{"ä": {"a": true, "b": [1.5, null, "x\n\"y\""]}, "exit_code": 1}"#;
    assert_eq!(ops.psql(&finish(again)), "failed", "in any order");
    assert_eq!(ops.psql(&finish("{}")), "failed");
    for other in [r#"{"exit_code": 2}"#, r#"{"exit_code": 1}"#, r#"{"error": "another"}"#] {
        ops.refused(&finish(other)).is("WP409", "INVALID_TRANSITION");
        assert!(ops.refused(&finish(other)).message.contains("with other metadata"), "{other}");
    }
    assert_eq!(ops.events(&run_id), events, "nothing was written");
    // The engine knows it by the same digest.
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let sent = |metadata: &str| {
        let write = FinishWrite {
            run_id: run_id.clone(),
            token: waypost_store::codec::token_from(&token),
            by: "fenced".into(),
            status: "failed".into(),
            metadata: serde_json::from_str(metadata).unwrap(),
            ..FinishWrite::default()
        };
        store.finish(vec![write])
    };
    sent(again).await.unwrap().remove(0).unwrap();
    let refused = sent(r#"{"exit_code": 2}"#).await.unwrap().remove(0).unwrap_err().to_string();
    assert!(refused.contains("with other metadata"), "{refused}");
    assert_eq!(ops.verify(), 1);
}

/// And a finish through the engine is known in SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finish_through_the_engine_is_known_in_sql() {
    let ops = open();
    let (run_id, token) = ops.fenced();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let write = FinishWrite {
        run_id: run_id.clone(),
        token: waypost_store::codec::token_from(&token),
        by: "fenced".into(),
        status: "success".into(),
        metadata: serde_json::from_str(r#"{"image": "app:1", "took": {"s": 12}}"#).unwrap(),
        ..FinishWrite::default()
    };
    store.finish(vec![write]).await.unwrap().remove(0).unwrap();
    let finish = |metadata: &str| {
        format!("SELECT ops.finish_run('{run_id}', 'success', '{metadata}', p_lease_token := '{token}')")
    };
    assert_eq!(ops.psql(&finish(r#"{"took": {"s": 12}, "image": "app:1"}"#)), "success");
    assert!(ops.refused(&finish(r#"{"image": "app:2"}"#)).message.contains("with other metadata"));
    assert_eq!(ops.verify(), 1);
}

#[test]
fn metadata_is_merged_member_by_member() {
    let ops = open();
    ops.psql(
        r#"SELECT ops.queue_run('p', 'e', 's', 'r', '{"keep": 1, "change": {"old": true}, "null": null}')"#,
    );
    let run_id = ops.psql("SELECT run_id FROM ops.claim_next_run('w')");
    ops.psql(&format!(r#"SELECT ops.finish_run('{run_id}', 'failed', '{{"change": 2, "new": [null]}}')"#));
    let metadata = r#"{"new": [null], "keep": 1, "null": null, "change": 2}"#;
    assert_eq!(ops.one(&run_id, "metadata"), metadata);
    assert_eq!(ops.verify(), 1);
}

// proves D8: the seed's own failure says what went wrong wherever runs are listed
#[test]
fn a_failure_is_told_from_its_metadata() {
    let ops = open();
    for (metadata, told) in [
        (
            r#"{"exit_code": 1, "error": "Docker build failed", "stderr": "no Dockerfile"}"#,
            "EXIT_1|Docker build failed",
        ),
        (r#"{"error": "Max retries exceeded", "retry_count": 3}"#, "FAILED|Max retries exceeded"),
        (r#"{"error_code": "NO_DISK", "stderr": "full"}"#, "NO_DISK|full"),
        ("{}", "FAILED|"),
    ] {
        let run_id = ops.running();
        ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'failed', '{metadata}')"));
        assert_eq!(ops.one(&run_id, "error_code, error_msg"), told, "{metadata}");
    }
    let run_id = ops.running();
    ops.psql(&format!(
        r#"SELECT ops.finish_run('{run_id}', 'success', '{{"error": "none", "exit_code": 0}}')"#
    ));
    assert_eq!(ops.one(&run_id, "error_code IS NULL, error_msg IS NULL"), "t|t");
    let by_hand = ops.running();
    ops.psql(&format!(
        r#"UPDATE ops.runs SET status = 'failed', metadata = metadata || '{{"error": "by hand"}}' WHERE run_id = '{by_hand}'"#
    ));
    assert_eq!(ops.one(&by_hand, "error_code, error_msg"), "FAILED|by hand");
    assert_eq!(ops.verify(), 6);
}

#[test]
fn a_run_that_was_never_begun_is_begun_and_finished_at_once() {
    let ops = open();
    let run_id = ops.claimed();
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success')"));
    assert_eq!(
        ops.events(&run_id),
        [
            "info Run queued",
            "info Run claimed by worker",
            "info Run started by worker-001",
            "info Run finished: success"
        ]
    );
    assert_eq!(ops.verify(), 1);
}

#[test]
fn what_nobody_holds_has_no_worker() {
    let ops = open();
    let run_id = ops.queue();
    for sql in [
        format!("SELECT ops.append_event('{run_id}', 'info', 'hello')"),
        format!("SELECT ops.finish_run('{run_id}', 'success')"),
        format!("SELECT * FROM ops.heartbeat('{run_id}')"),
    ] {
        let refused = ops.refused(&sql);
        refused.is("WP409", "nobody holds it");
        assert!(refused.hint.contains("ops.claim_next_run"), "{refused:?}");
    }
}

#[test]
fn without_a_token_only_runs_of_claim_next_run_are_written() {
    let ops = open();
    let (run_id, token) = ops.fenced();
    for sql in [
        format!("SELECT ops.append_event('{run_id}', 'info', 'hello')"),
        format!("SELECT ops.append_event('{run_id}', 'info', 'hello', p_worker_id := 'fenced')"),
        format!("SELECT ops.finish_run('{run_id}', 'success')"),
        format!("SELECT * FROM ops.heartbeat('{run_id}')"),
    ] {
        let refused = ops.refused(&sql);
        refused.is("WP410", "was not claimed through ops.claim_next_run");
        assert!(refused.hint.contains("p_lease_token"), "{refused:?}");
    }
    let undashed = token.replace('-', "");
    ops.psql(&format!("SELECT ops.append_event('{run_id}', 'info', 'hello', p_lease_token := '{token}')"));
    ops.psql(&format!("SELECT * FROM ops.heartbeat('{run_id}', 'fenced', '{undashed}')"));
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success', '{{}}', 'fenced', '{undashed}')"));
    assert_eq!(ops.status(&run_id), "success");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_token_has_to_be_the_leases() {
    let ops = open();
    let (fenced, token) = ops.fenced();
    let open_one = ops.running();
    let strange = "0123456789abcdef0123456789abcdef";
    for (run_id, token) in [(&fenced, strange), (&open_one, strange), (&open_one, &*token)] {
        for sql in [
            format!("SELECT ops.append_event('{run_id}', 'info', 'hello', p_lease_token := '{token}')"),
            format!("SELECT ops.finish_run('{run_id}', 'success', p_lease_token := '{token}')"),
            format!("SELECT ops.finish_run('{run_id}', 'cancelled', p_lease_token := '{token}')"),
            format!("SELECT * FROM ops.heartbeat('{run_id}', p_lease_token := '{token}')"),
        ] {
            ops.refused(&sql).is("WP410", "LEASE_LOST");
        }
    }
    let finish =
        |status: &str| format!("SELECT ops.finish_run('{fenced}', '{status}', p_lease_token := '{token}')");
    ops.psql(&finish("failed"));
    assert_eq!(ops.psql(&finish("failed")), "failed", "the token that ended it is remembered");
    ops.refused(&finish("success")).is("WP409", "INVALID_TRANSITION");
    let other = format!("SELECT ops.finish_run('{fenced}', 'failed', p_lease_token := '{strange}')");
    ops.refused(&other).is("WP410", "LEASE_LOST");
}

#[test]
fn a_worker_that_says_who_it_is_has_to_be_the_holder() {
    let ops = open();
    let run_id = ops.running();
    for sql in [
        format!("SELECT ops.append_event('{run_id}', 'info', 'hello', p_worker_id := 'worker-002')"),
        format!("SELECT ops.finish_run('{run_id}', 'cancelled', p_worker_id := 'worker-002')"),
        format!("SELECT * FROM ops.heartbeat('{run_id}', 'worker-002')"),
    ] {
        ops.refused(&sql).is("WP410", "is held by worker-001");
    }
    ops.psql(&format!(
        "SELECT ops.finish_run('{run_id}', 'cancelled', '{{\"reason\": \"rolled back\"}}', 'worker-001')"
    ));
    assert_eq!(ops.one(&run_id, "status, error_code, error_msg"), "cancelled|CANCELLED|rolled back");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_cancel_that_came_first_is_final() {
    let ops = open();
    let run_id = ops.running();
    let cancel = format!("SELECT ops.finish_run('{run_id}', 'cancelled')");
    assert_eq!(ops.psql(&cancel), "running");
    assert_eq!(ops.psql(&cancel), "running", "asked for twice is asked for once");
    assert_eq!(ops.events(&run_id).iter().filter(|event| event.contains("asked to cancel")).count(), 1);
    let refused = ops.refused(&format!("SELECT ops.finish_run('{run_id}', 'success')"));
    refused.is("WP412", "CANCEL_REQUESTED");
    ops.psql(&format!("SELECT ops.append_event('{run_id}', 'info', 'cleaning up')"));
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'cancelled', p_worker_id := 'worker-001')"));
    assert_eq!(ops.psql(&cancel), "cancelled", "and now it is answered so");
    ops.refused(&format!("SELECT ops.finish_run('{run_id}', 'success')")).is("WP409", "INVALID_TRANSITION");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_cancel_of_a_run_whose_lease_ran_out_waits_for_nobody() {
    let ops = open();
    let run_id = ops.running();
    ops.clock("2 hours");
    assert_eq!(ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'cancelled')")), "cancelled");
    ops.refused(&format!("SELECT ops.append_event('{run_id}', 'info', 'too late')"))
        .is("WP410", "LEASE_LOST");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn what_takes_the_engine_is_left_to_it() {
    let ops = open();
    let run_id = ops.claimed();
    // As a worker of waypost's own would have added it.
    ops.psql(&format!(
        "SET session_replication_role = replica; \
         INSERT INTO waypost.items(rid, kind, key, version, place, seq, name, status) SELECT rid, 'step', 'build', 1, 0, 1, 'build', 'pending' \
         FROM waypost.runs WHERE run_id = '{run_id}'; UPDATE waypost.runs SET item_count = 1 WHERE run_id = '{run_id}'"
    ));
    for sql in [
        format!("SELECT ops.finish_run('{run_id}', 'success')"),
        format!("SELECT ops.finish_run('{run_id}', 'cancelled')"),
    ] {
        ops.refused(&sql).is("WP501", "its items have to follow");
    }
    assert_eq!(ops.status(&run_id), "claimed", "nothing was half written");
    assert_eq!(ops.events(&run_id).len(), 2);
}
