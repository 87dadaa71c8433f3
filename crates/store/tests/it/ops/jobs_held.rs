//! Jobs of SQL's that the engine's workers hold, and the other way round.
// proves J2, J6, X8

use serde_json::{Map, json};
use waypost_store::postgres::PostgresStore;
use waypost_store::{Claim, Claimed, FinishWrite, Housekeeping, ItemWrite, ItemsWrite, Store};

use super::kit::{Ops, open};

async fn both() -> (Ops, PostgresStore) {
    let ops = open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    (ops, store)
}

async fn claim(store: &PostgresStore, queue: &str) -> Option<Claimed> {
    let claim = Claim { worker: "engine-1".into(), queues: vec![queue.into()], limit: 1, ..Claim::default() };
    store.claim(claim).await.unwrap().pop()
}

async fn finish(store: &PostgresStore, claimed: &Claimed, status: &str) -> waypost_store::Result<String> {
    let write = FinishWrite {
        run_id: claimed.run.id().into(),
        token: Some(claimed.token),
        by: "engine-1".into(),
        status: status.into(),
        ..FinishWrite::default()
    };
    store.finish(vec![write]).await.unwrap().remove(0).map(|row| row.status().to_owned())
}

#[tokio::test]
async fn a_worker_is_asked_and_its_steps_are_its_own() {
    let (ops, store) = both().await;
    let id = ops.job();
    ops.set_job(&id, r#"details = '{"seen": true}'"#);
    let claimed = claim(&store, "default").await.expect("other details lost its place in the queue");
    assert_eq!((claimed.run.id(), &claimed.run.details["seen"]), (&*id, &json!(true)));
    for status in ["completed", "failed"] {
        ops.set_job_refused(&id, &format!("status = '{status}'")).is("WP410", "is held by engine-1");
    }
    ops.refused("UPDATE ops.workflow_executions SET step_status = 'running'")
        .is("WP410", "is held by engine-1");
    ops.refused(&format!("INSERT INTO ops.job_tasks(job_id, task_name) VALUES ('{id}', 't')"))
        .is("WP410", "LEASE_LOST");
    ops.set_job_refused(&id, "status = 'paused'").is("WP409", "needs a reason");
    assert_eq!(
        ops.set_job(&id, r#"status = 'paused', details = details || '{"pause_reason": "lunch"}'"#),
        "running"
    );
    assert_eq!(ops.of_job(&id, "pause_requested, cancel_requested"), "t|f");
    assert_eq!(finish(&store, &claimed, "paused").await.unwrap(), "paused");
    assert_eq!(ops.of_job(&id, "details ->> 'pause_reason'"), "lunch");
    assert_eq!(ops.verify(), 1);
}

#[tokio::test]
async fn a_cancel_of_a_held_job_is_its_workers_to_carry_out() {
    let (ops, store) = both().await;
    let id = ops.job();
    let claimed = claim(&store, "default").await.unwrap();
    assert_eq!(
        ops.set_job(&id, r#"status = 'cancelled', details = details || '{"cancel_reason": "stop"}'"#),
        "running"
    );
    assert_eq!(ops.of_job(&id, "cancel_requested"), "t");
    ops.set_job_refused(&id, r#"status = 'paused', details = details || '{"pause_reason": "x"}'"#)
        .is("WP412", "CANCEL_REQUESTED");
    assert!(finish(&store, &claimed, "completed").await.is_err());
    assert_eq!(finish(&store, &claimed, "cancelled").await.unwrap(), "cancelled");
    assert_eq!(
        (ops.of_job(&id, "error_code, error_msg"), ops.steps(&id)),
        ("CANCELLED|stop".into(), "run=skipped".into())
    );
    assert_eq!(ops.verify(), 1);
}

/// What somebody works from SQL is nobody else's, until the hour is over.
#[tokio::test]
async fn a_job_begun_in_sql_has_one_executor() {
    let (ops, store) = both().await;
    let id = ops.begun_job();
    assert!(claim(&store, "default").await.is_none());
    assert!(store.claim_run(id.clone(), "engine-1".into()).await.is_err());
    ops.set_job_refused(&id, "status = 'running', claimed_by = 'other'").is("WP409", "IMMUTABLE");
    let again = ops.psql(&format!("UPDATE ops.jobs SET status = 'running', claimed_by = 'other' WHERE id = '{id}' AND status = 'pending' RETURNING id"));
    assert_eq!(again, "");
    ops.clock("61 minutes");
    let taken = claim(&store, "default").await.expect("its executor is gone");
    assert_eq!((taken.run.id(), taken.run.run.fence), (&*id, 2));
    ops.set_job_refused(&id, "status = 'completed'").is("WP410", "engine-1");
    assert_eq!(ops.verify(), 1);
}

/// What the engine's steps look like: order, host context, blockers, how long it took.
// proves J1
#[tokio::test]
async fn steps_of_a_playbook_are_shown_in_its_order() {
    let (ops, store) = both().await;
    let id = ops.psql(r#"INSERT INTO ops.jobs(job_type, input) VALUES ('update', '{"cluster_id": "c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}') RETURNING id"#);
    let claimed = claim(&store, "default").await.unwrap();
    let item = |key: &str, status: &str, details: serde_json::Value| ItemWrite {
        kind: "step".into(),
        key: key.into(),
        status: status.into(),
        details: details.as_object().cloned().unwrap_or_else(Map::new),
        ..ItemWrite::default()
    };
    let host = json!({"name": "esx-2", "id": "d0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "management_ip": "10.0.0.2", "server_id": "no uuid"});
    let pause = json!({"pause_reason": "USB", "awaiting_blocker_resolution": true, "current_blockers": {"esx-2": {}}});
    let items = vec![
        item("cleanup: HA", "pending", json!({"order": 3})),
        item(
            "update[2]",
            "running",
            json!({"order": 2, "of": "update", "number": 2, "item": host, "does": "./update esx-2", "pause": pause}),
        ),
        item("update[1]", "pending", json!({"order": 2, "of": "update", "number": 1, "item": "esx-1"})),
        item("scan", "completed", json!({"order": 0})),
    ];
    let held = waypost_store::Held { run_id: id.clone(), token: claimed.token };
    store.put_items(ItemsWrite { held, by: "engine-1".into(), items }).await.unwrap();
    assert_eq!(ops.steps(&id), "scan=completed update[1]=pending update[2]=running cleanup: HA=pending");
    let shown = ops.psql("SELECT step_number, host_id, server_id IS NULL, cluster_id, workflow_type, step_details ->> 'host_name', step_details ->> 'management_ip',
      step_details ->> 'current_step', step_details -> 'awaiting_resolution', step_details -> 'current_blockers', step_started_at IS NOT NULL, created_at > (SELECT created_at FROM ops.jobs)
      FROM ops.workflow_executions WHERE step_key = 'update[2]'");
    assert_eq!(
        shown,
        r#"3|d0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11|t|c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11|update|esx-2|10.0.0.2|./update esx-2|true|{"esx-2": {}}|t|t"#
    );
    assert_eq!(
        ops.psql(
            "SELECT step_details ->> 'host_name' FROM ops.workflow_executions WHERE step_key = 'update[1]'"
        ),
        "esx-1"
    );
    assert_eq!(ops.psql("SELECT (step_details -> 'duration_ms')::int >= 0, step_details -> 'progress_pct' FROM ops.workflow_executions WHERE step_key = 'scan'"), "t|100");
    assert_eq!(ops.verify(), 1);
}

/// The same of ops.runs: other metadata of a queued run keep its place in the queue.
// proves D3
#[tokio::test]
async fn a_queued_run_with_other_metadata_is_still_claimed() {
    let (ops, store) = both().await;
    let run_id = ops.queue();
    ops.psql("UPDATE ops.runs SET metadata = metadata || '{\"ticket\": 7}'");
    assert_eq!(claim(&store, "ops").await.map(|claimed| claimed.run.id().to_owned()), Some(run_id));
    assert_eq!(ops.verify(), 1);
}

/// A cancel in SQL leaves the children to any process's sweep.
// proves J6
#[tokio::test]
async fn a_cancel_in_sql_goes_down_to_children() {
    let (ops, store) = both().await;
    let parent = ops.job();
    let insert = |parent: &str| {
        format!("INSERT INTO ops.jobs(job_type, parent_job_id) VALUES ('scan', '{parent}') RETURNING id")
    };
    let child = ops.psql(&insert(&parent));
    let grandchild = ops.psql(&insert(&child));
    let alone = ops.job();
    ops.set_job(&alone, "status = 'cancelled'");
    ops.set_job(&parent, "status = 'cancelled'");
    assert_eq!(ops.psql("SELECT string_agg(run_id, ' ') FROM waypost.cancelled_parents"), parent);
    store.sweep("sweeper".into(), 10).await.unwrap();
    for id in [&child, &grandchild] {
        assert_eq!(ops.of_job(id, "status, error_code"), "cancelled|CANCELLED");
    }
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.cancelled_parents"), "0");
    assert_eq!(ops.verify(), 4);
}
