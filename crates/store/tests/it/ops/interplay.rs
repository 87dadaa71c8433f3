//! Callers in SQL and the engine at work on the same runs.
// proves D5, D7, D8, X5, X7, X8

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, json};
use waypost_kernel::Span;
use waypost_store::postgres::PostgresStore;
use waypost_store::{Claim, Claimed, CommandWrite, FinishWrite, Held, Housekeeping, NewItem, NewRun, Store};

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
        role: waypost_kernel::item::Role::Step,
        details: Map::new(),
        copied: false,
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

fn keyed(key: &str) -> NewRun {
    let (lifecycle, queue) = ("deploy".into(), "ops".into());
    NewRun { lifecycle, queue, concurrency_key: Some(key.into()), ..NewRun::default() }
}

/// Whoever ends a run, the next one of its key is let in.
#[tokio::test]
async fn a_keys_slot_is_given_back_by_sql() {
    let (ops, store) = both().await;
    store.enqueue(vec![keyed("host-1"); 4]).await.unwrap();
    let end = |claimed: &Claimed, status: &str| {
        let token = waypost_store::codec::token_text(claimed.token);
        let sql =
            format!("SELECT ops.finish_run('{}', '{status}', p_lease_token := '{token}')", claimed.run.id());
        ops.psql(&sql)
    };
    let first = claim(&store).await.unwrap();
    assert!(claim(&store).await.is_none(), "one at a time");
    assert_eq!(end(&first, "success"), "success");
    let second = claim(&store).await.unwrap();
    assert!(claim(&store).await.is_none());
    // One that waits leaves, and nobody is let in for it.
    let waits = ops.psql("SELECT max(run_id) FROM ops.runs WHERE status = 'queued'");
    assert_eq!(ops.psql(&format!("SELECT ops.finish_run('{waits}', 'cancelled')")), "cancelled");
    assert!(claim(&store).await.is_none());
    // A person's cancel of one that was not begun.
    let asked = format!("SELECT ops.finish_run('{}', 'cancelled')", second.run.id());
    assert_eq!(ops.psql(&asked), "cancelled");
    let last = claim(&store).await.unwrap();
    assert_eq!(end(&last, "failed"), "failed");
    assert!(claim(&store).await.is_none());
    let left = "SELECT (SELECT count(*) FROM waypost.holders), (SELECT count(*) FROM waypost.blocked a JOIN waypost.runs r USING (rid, seq))";
    assert_eq!(ops.psql(left), "0|0");
    assert_eq!(ops.verify(), 4);
}

/// Sessions of `ops` and a store end runs of the same keys: no two of a key are held, and nobody waits for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_from_both_sides_never_let_two_of_a_key_in() {
    const RUNS: u64 = 90;
    let (ops, store) = both().await;
    store.enqueue((0..RUNS).map(|at| keyed(&format!("host-{}", at % 3))).collect()).await.unwrap();
    let held = Arc::new(Mutex::new(BTreeSet::new()));
    let ended = Arc::new(AtomicU64::new(0));
    let workers = (0..6).map(|at| {
        let (store, held, ended, url) = (store.clone(), held.clone(), ended.clone(), ops.server.url());
        tokio::spawn(async move {
            let client = waypost_store::postgres::client(&url).await.unwrap();
            while ended.load(Ordering::Acquire) < RUNS {
                let Some(claimed) = claim(&store).await else {
                    store.changed(Duration::from_millis(5)).await;
                    continue;
                };
                let key = claimed.run.concurrency_key.clone().unwrap();
                assert!(held.lock().unwrap().insert(key.clone()), "two of {key}");
                let of_key = "SELECT count(*) FROM waypost.runs WHERE state / 1000 = 3 AND concurrency_key =";
                let count = client.query_typed_one(&format!("{of_key} '{key}'"), &[]).await.unwrap();
                assert_eq!(count.get::<_, i64>(0), 1, "{key}");
                held.lock().unwrap().remove(&key);
                if at % 2 == 0 {
                    let token = waypost_store::codec::token_text(claimed.token);
                    let sql = format!(
                        "SELECT ops.finish_run('{}', 'success', p_lease_token := '{token}')",
                        claimed.run.id()
                    );
                    client.batch_execute(&sql).await.unwrap();
                } else {
                    let end = FinishWrite {
                        run_id: claimed.run.id().into(),
                        token: Some(claimed.token),
                        by: "engine-1".into(),
                        status: "success".into(),
                        ..FinishWrite::default()
                    };
                    store.finish(vec![end]).await.unwrap().remove(0).unwrap();
                }
                ended.fetch_add(1, Ordering::AcqRel);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.holders"), "0");
    assert_eq!(ops.verify(), RUNS);
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
    let reason = ops.one(&run_id, "metadata->>'reason'");
    assert_eq!(reason, "Stale run (claimed for >5 minutes without events)", "the seed's words");
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
