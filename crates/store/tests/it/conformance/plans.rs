//! Scheduled executions: the row is the claim.

use serde_json::json;
use waypost_kernel::{Actor, Failure, Span};
use waypost_store::{Claimed, Database, FinishWrite, NewRun};

use super::kit::{self, *};

fn plan(worker: &str) -> NewRun {
    NewRun {
        idempotency_key: Some("waypost:schedule:backup:global:all:2026-02-14T02:00:00Z".into()),
        by: worker.into(),
        actor: Actor::Worker,
        max_attempts: 3,
        ..new("cron")
    }
}

fn reentrant(worker: &str) -> NewRun {
    NewRun { reentrant: true, ..plan(worker) }
}

/// The schedule is named like the plan's key: another key is another schedule's plan.
async fn claim_plan(store: &dyn Database, run: NewRun) -> Option<Claimed> {
    let schedule = run.idempotency_key.clone().unwrap();
    kit::claim_plan(store, &schedule, run, Span::from_seconds(600)).await.unwrap()
}

async fn fail(store: &dyn Database, claimed: &Claimed, retry_in: Option<i64>) {
    let end = FinishWrite {
        failure: Some(Failure::new("handler_error", "exit 1")),
        retry_in: retry_in.map(Span::from_seconds),
        ..ending(claimed, "FAILED")
    };
    assert_eq!(write_finish(store, end).await.unwrap().status(), "FAILED");
}

// proves C3 and C1
pub async fn the_first_claimer_wins_and_the_others_are_silent(store: &dyn Database) {
    let won = claim_plan(store, plan("s1")).await.unwrap();
    assert_eq!((won.run.status(), won.run.run.attempt, won.fence), ("RUNNING", 1, 1));
    assert!(about(won.expires_at - won.now, 600));
    assert_eq!(won.run.object()["claimed_by"], "s1");
    let event = last_event(store, won.run.id()).await;
    assert_eq!((event.seq, event.command.as_str(), event.actor.as_str()), (1, "claim", "worker"));
    for worker in ["s2", "s1"] {
        assert!(claim_plan(store, plan(worker)).await.is_none());
    }
    let other = NewRun { idempotency_key: Some("waypost:schedule:another".into()), ..plan("s2") };
    assert!(claim_plan(store, other).await.is_some());
    let body = NewRun { input: json!({"changed": true}), ..plan("s2") };
    assert!(claim_plan(store, body).await.is_none(), "the key alone decides");
}

// proves C11 and C3
pub async fn of_sixteen_schedulers_one_wins(store: &dyn Database) {
    let claims = in_parallel(16, |at| async move { claim_plan(store, plan(&format!("s{at}"))).await });
    assert_eq!(claims.iter().flatten().count(), 1);
}

// proves C3
pub async fn a_success_never_reruns(store: &dyn Database) {
    let won = claim_plan(store, reentrant("s1")).await.unwrap();
    finish(store, &won, "SUCCESS").await.unwrap();
    advance(store, 10 * DAY).await;
    assert!(claim_plan(store, reentrant("s2")).await.is_none());
}

// proves C3 and C7
pub async fn a_failure_is_retried_when_it_is_due(store: &dyn Database) {
    let first = claim_plan(store, plan("s1")).await.unwrap();
    fail(store, &first, Some(60)).await;
    assert!(claim_plan(store, plan("s2")).await.is_none());
    advance(store, 50).await;
    assert!(claim_plan(store, plan("s2")).await.is_none());
    advance(store, 15).await;
    assert!(claim(store, "s2").await.is_none(), "a queue's workers have nothing to do with it");
    let second = claim_plan(store, plan("s2")).await.unwrap();
    assert_eq!((second.run.id(), second.run.run.attempt, second.fence), (first.run.id(), 2, 2));
    let object = second.run.object();
    assert_eq!((&object["error_code"], &object["finished_at"]), (&json!(null), &json!(null)));
    assert_eq!(code(&finish(store, &first, "SUCCESS").await), "LEASE_LOST");
    assert_eq!(finish(store, &second, "SUCCESS").await.unwrap().status(), "SUCCESS");
}

// proves C3
pub async fn attempts_come_to_an_end(store: &dyn Database) {
    for attempt in 1..=3 {
        let claimed = claim_plan(store, plan("s1")).await.unwrap();
        assert_eq!(claimed.run.run.attempt, attempt);
        fail(store, &claimed, Some(60)).await;
        advance(store, 70).await;
    }
    assert!(claim_plan(store, plan("s1")).await.is_none());
    let no_retry = NewRun { idempotency_key: Some("waypost:schedule:no-retry".into()), ..plan("s1") };
    let claimed = claim_plan(store, no_retry.clone()).await.unwrap();
    fail(store, &claimed, None).await;
    advance(store, DAY).await;
    assert!(claim_plan(store, no_retry).await.is_none(), "no retry time means never");
}

// proves C3, C4 and X5
pub async fn a_stale_execution_is_stolen(store: &dyn Database) {
    let first = claim_plan(store, reentrant("s1")).await.unwrap();
    advance(store, 590).await;
    assert!(claim_plan(store, reentrant("s2")).await.is_none());
    advance(store, 15).await;
    assert!(sweep(store).await.moved.is_empty(), "the next scheduler's");
    assert!(claim(store, "w1").await.is_none());
    let second = claim_plan(store, reentrant("s2")).await.unwrap();
    assert_eq!((second.run.id(), second.run.run.attempt, second.fence), (first.run.id(), 2, 2));
    assert_ne!(second.token, first.token);
    assert_eq!(last_event(store, first.run.id()).await.command, "steal");
    assert_eq!(code(&renew(store, &first).await), "LEASE_LOST");
    assert_eq!(code(&finish(store, &first, "SUCCESS").await), "LEASE_LOST");
    assert_eq!(code(&finish(store, &second, "SUCCESS").await), "OK");
}

// proves C4
pub async fn a_holder_does_not_steal_from_itself(store: &dyn Database) {
    let claimed = claim_plan(store, reentrant("s1")).await.unwrap();
    assert_eq!(code(&finish(store, &claimed, "RUNNING").await), "INVALID_TRANSITION");
    assert_eq!(get(store, claimed.run.id()).await.run.attempt, 1);
}

// proves C4
pub async fn heartbeats_keep_thieves_away(store: &dyn Database) {
    let claimed = claim_plan(store, reentrant("s1")).await.unwrap();
    for _ in 0..5 {
        advance(store, 500).await;
        renew(store, &claimed).await.unwrap();
        assert!(claim_plan(store, reentrant("s2")).await.is_none());
    }
}

// proves C4
pub async fn a_theft_at_the_last_attempt_fails_the_row(store: &dyn Database) {
    let once = NewRun { max_attempts: 1, ..reentrant("s1") };
    let claimed = claim_plan(store, once.clone()).await.unwrap();
    advance(store, 601).await;
    assert!(claim_plan(store, once).await.is_none());
    assert_eq!(sweep(store).await.moved.len(), 1);
    let row = get(store, claimed.run.id()).await;
    assert_eq!((row.status(), &row.object()["error_code"]), ("FAILED", &json!("stale_timeout")));
}

// proves C4
pub async fn without_re_entry_a_stale_execution_fails_for_good(store: &dyn Database) {
    let claimed = claim_plan(store, plan("s1")).await.unwrap();
    advance(store, 601).await;
    assert!(claim_plan(store, plan("s2")).await.is_none());
    assert_eq!(sweep(store).await.moved, [(claimed.run.id().to_owned(), "lose".to_owned())]);
    let row = get(store, claimed.run.id()).await;
    assert_eq!((row.status(), row.run.available_at), ("FAILED", None));
    advance(store, DAY).await;
    assert!(claim_plan(store, plan("s2")).await.is_none());
}

// proves C7
pub async fn a_shutdown_burns_no_attempt(store: &dyn Database) {
    let first = claim_plan(store, plan("s1")).await.unwrap();
    release(store, &first).await.unwrap();
    let second = claim_plan(store, plan("s2")).await.unwrap();
    assert_eq!((second.run.id(), second.run.run.attempt, second.fence), (first.run.id(), 1, 2));
}

// proves C7
pub async fn canceled_is_never_retried(store: &dyn Database) {
    let claimed = claim_plan(store, plan("s1")).await.unwrap();
    command(store, claimed.run.id(), "cancel").await.unwrap();
    advance(store, 601).await;
    sweep(store).await;
    let row = get(store, claimed.run.id()).await;
    assert_eq!((row.status(), &row.object()["error_code"]), ("FAILED", &json!("canceled")));
    assert!(claim_plan(store, plan("s2")).await.is_none());
}

// proves C3
pub async fn a_plan_is_taken_by_its_id(store: &dyn Database) {
    let first = claim_plan(store, plan("s1")).await.unwrap();
    let id = || first.run.id().to_owned();
    assert_eq!(code(&store.claim_run(id(), "s2".into()).await), "LEASE_HELD");
    fail(store, &first, Some(60)).await;
    assert_eq!(code(&store.claim_run(id(), "s2".into()).await), "NOT_DUE");
    advance(store, 70).await;
    assert_eq!(store.claim_run(id(), "s2".into()).await.unwrap().run.run.attempt, 2);
}

pub async fn a_plan_without_a_key_or_of_another_kind_is_refused(store: &dyn Database) {
    let keyless = NewRun { idempotency_key: None, ..plan("s1") };
    let lease = Span::from_seconds(600);
    let (field, _) = invalid(kit::claim_plan(store, "backup", keyless, lease).await);
    assert_eq!(field, "idempotency_key");
    let nameless = plan("");
    assert_eq!(code(&kit::claim_plan(store, "backup", nameless, lease).await), "INVALID_INPUT");
    let ready = NewRun { lifecycle: "deploy".into(), ..plan("s1") };
    assert_eq!(code(&kit::claim_plan(store, "backup", ready, lease).await), "INVALID_INPUT");
}
