//! Callers in SQL and the engine at work on the same runs.
// proves D5, D7, D8, X5, X7, X8

use serde_json::{Map, json};
use waypost_kernel::Span;
use waypost_store::postgres::PostgresStore;
use waypost_store::{Admin, Claim, Claimed, CommandWrite, FinishWrite, Held, Leases, NewItem, NewRun, Queue};

use super::kit::{Ops, open};

async fn both() -> (Ops, PostgresStore) {
    let ops = open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    (ops, store)
}

async fn claim(store: &PostgresStore) -> Option<Claimed> {
    let claim = Claim { worker: "engine-1".into(), queues: vec!["ops".into()], limit: 1, ..Claim::default() };
    store.claim(claim).await.unwrap().pop()
}

#[tokio::test]
async fn what_sql_queued_an_engines_worker_claims_and_sql_finishes_with_its_token() {
    let (ops, store) = both().await;
    let run_id = ops.queue();
    let claimed = claim(&store).await.unwrap();
    assert_eq!((claimed.run.id(), claimed.run.input["git_ref"].as_str()), (&*run_id, Some("main")));
    let token = waypost_store::codec::token_text(claimed.token);
    ops.refused(&format!("SELECT ops.finish_run('{run_id}', 'success')"))
        .is("WP410", "was not claimed through");
    ops.psql(&format!(
        "SELECT ops.append_event('{run_id}', 'info', 'from a hook', p_lease_token := '{token}')"
    ));
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success', p_lease_token := '{token}')"));
    let again = FinishWrite {
        run_id: run_id.clone(),
        token: Some(claimed.token),
        by: "engine-1".into(),
        status: "success".into(),
        ..FinishWrite::default()
    };
    assert_eq!(
        store.finish(vec![again]).await.unwrap().remove(0).unwrap().status(),
        "success",
        "the same again"
    );
    assert_eq!(ops.verify(), 1);
}

#[tokio::test]
async fn what_the_engine_queued_sql_claims_but_for_what_it_could_not_end() {
    let (ops, store) = both().await;
    let step = NewItem {
        kind: "step".into(),
        key: "build".into(),
        name: "build".into(),
        status: None,
        max_retries: 3,
        reruns: false,
        details: Map::new(),
    };
    let plain = NewRun { lifecycle: "deploy".into(), queue: "ops".into(), ..NewRun::default() };
    let with_steps = NewRun { items: vec![step], ..plain.clone() };
    let keyed = NewRun { concurrency_key: Some("host-1".into()), ..plain.clone() };
    let answers = store.enqueue(vec![with_steps, keyed, plain]).await.unwrap();
    let ids: Vec<String> = answers.into_iter().map(|answer| answer.unwrap().run.id().to_owned()).collect();
    let claim_by_sql = || ops.psql("SELECT run_id FROM ops.claim_next_run('w')");
    assert_eq!([claim_by_sql(), claim_by_sql()], [&ids[2], ""]);
    let theirs = [claim(&store).await.unwrap(), claim(&store).await.unwrap()];
    assert_eq!(theirs.map(|claimed| claimed.run.id().to_owned()), ids[..2], "none is forgotten");
    assert_eq!(ops.verify(), 3);
}

#[tokio::test]
async fn one_key_is_one_run_from_both_sides() {
    let (ops, store) = both().await;
    let by_sql = ops.psql("SELECT run_id FROM ops.queue_run('p', 'e', 's', 'r', '{\"a\": [1, 2.5]}', 'k')");
    let new = |sha: &str| NewRun {
        lifecycle: "deploy".into(),
        queue: "ops".into(),
        input: json!({"project_id": "p", "env": "e", "git_sha": sha, "git_ref": "r"}),
        metadata: json!({"a": [1, 2.5]}).as_object().unwrap().clone(),
        idempotency_key: Some("k".into()),
        ..NewRun::default()
    };
    let answers = store.enqueue(vec![new("s"), new("other")]).await.unwrap();
    let known = answers[0].as_ref().unwrap();
    assert_eq!((known.run.id(), known.replayed), (&*by_sql, true));
    assert_eq!(answers[1].as_ref().unwrap_err().code(), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(ops.verify(), 1);
}

#[tokio::test]
async fn what_sql_claimed_and_never_began_is_cancelled_after_five_minutes() {
    let (ops, store) = both().await;
    let run_id = ops.claimed();
    store.advance_clock(Span::from_seconds(4 * 60)).await.unwrap();
    ops.psql(&format!("SELECT * FROM ops.heartbeat('{run_id}')"));
    assert_eq!(store.sweep("sweeper".into(), 100).await.unwrap().moved, []);
    store.advance_clock(Span::from_seconds(90)).await.unwrap();
    store.sweep("sweeper".into(), 100).await.unwrap();
    let row = ops.one(&run_id, "status, metadata->>'cancelled_by', metadata->>'original_worker', claimed_by");
    assert_eq!(row, "cancelled|system|worker-001|worker-001");
    ops.refused(&format!("SELECT ops.append_event('{run_id}', 'info', 'late')"))
        .is("WP410", "it is cancelled");
    ops.refused(&format!("SELECT ops.finish_run('{run_id}', 'success')")).is("WP410", "it is cancelled");
    assert_eq!(ops.verify(), 1);
}

#[tokio::test]
async fn what_sql_began_and_forgot_is_lost_after_an_hour() {
    let (ops, store) = both().await;
    let run_id = ops.running();
    store.advance_clock(Span::from_seconds(50 * 60)).await.unwrap();
    ops.psql(&format!("SELECT * FROM ops.heartbeat('{run_id}')"));
    store.advance_clock(Span::from_seconds(50 * 60)).await.unwrap();
    assert_eq!(store.sweep("sweeper".into(), 100).await.unwrap().moved, [], "the heartbeat counts");
    store.advance_clock(Span::from_seconds(11 * 60)).await.unwrap();
    store.sweep("sweeper".into(), 100).await.unwrap();
    assert_eq!(ops.one(&run_id, "status, error_code"), "failed|WORKER_LOST");
    assert_eq!(ops.verify(), 1);
}

#[tokio::test]
async fn a_cancel_reaches_the_holder_whoever_asks_and_whoever_holds() {
    let (ops, store) = both().await;
    let by_sql = ops.running();
    let cancel = CommandWrite {
        tenant: "default".into(),
        run_id: by_sql.clone(),
        name: "cancel".into(),
        by: "ann".into(),
        ..CommandWrite::default()
    };
    store.command(cancel).await.unwrap();
    assert_eq!(ops.psql(&format!("SELECT cancel_requested FROM ops.heartbeat('{by_sql}')")), "t");
    ops.psql(&format!("SELECT ops.finish_run('{by_sql}', 'cancelled', p_worker_id := 'worker-001')"));
    assert_eq!(ops.one(&by_sql, "status, error_msg"), "cancelled|cancel by ann");

    ops.queue();
    let claimed = claim(&store).await.unwrap();
    let held = Held { run_id: claimed.run.id().into(), token: claimed.token };
    let token = waypost_store::codec::token_text(claimed.token);
    ops.psql(&format!(
        "SELECT ops.append_event('{}', 'info', 'begun', p_lease_token := '{token}')",
        held.run_id
    ));
    assert_eq!(ops.psql(&format!("SELECT ops.finish_run('{}', 'cancelled')", held.run_id)), "running");
    let renewed = store.renew(vec![held]).await.unwrap().remove(0).unwrap();
    assert_eq!(renewed.intent, Some("cancel"));
    assert_eq!(ops.verify(), 2);
}

/// A cancel that nobody carried out is carried out when the lease is over.
#[tokio::test]
async fn a_cancel_outlives_its_holder() {
    let (ops, store) = both().await;
    let run_id = ops.running();
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'cancelled', '{{\"reason\": \"enough\"}}')"));
    store.advance_clock(Span::from_seconds(2 * 3_600)).await.unwrap();
    store.sweep("sweeper".into(), 100).await.unwrap();
    assert_eq!(ops.one(&run_id, "status, error_msg"), "cancelled|enough");
    assert_eq!(ops.verify(), 1);
}
