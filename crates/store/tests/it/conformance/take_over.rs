//! A worker died: who goes on, and when it is enough.

use waypost_kernel::Span;
use waypost_store::{Database, NewRun, Take};

use super::kit::*;

// proves X5 and A5
pub async fn an_expired_run_goes_on_with_the_next_worker(store: &dyn Database) {
    let first = held_run(store, job(&["a", "b"])).await;
    move_items(store, &first, "step", &[("a", "completed"), ("b", "running")]).await.unwrap();
    assert!(claim(store, "w2").await.is_none());
    advance(store, 61).await;
    assert!(sweep(store).await.moved.is_empty(), "the next worker's, not the engine's");
    let second = claim(store, "w2").await.unwrap();
    assert_eq!((second.run.id(), second.run.status()), (first.run.id(), "running"));
    let run = &second.run.run;
    assert_eq!((run.attempt, run.take_overs, run.fence), (1, 1, 2));
    assert_eq!(items(store, first.run.id()).await, ["a=completed", "b=pending"]);
    let event = last_event(store, first.run.id()).await;
    assert_eq!((event.command.as_str(), event.level.as_str()), ("take-over", "warn"));
    assert_eq!((event.actor.as_str(), event.by.as_str()), ("worker", "w2"));
}

// proves R2
pub async fn a_crash_leaves_no_target_stuck(store: &dyn Database) {
    let first = held_run(store, rule(&["a", "b", "c"])).await;
    move_items(store, &first, "target", &[("a", "APPLIED"), ("b", "APPLYING")]).await.unwrap();
    advance(store, 61).await;
    let second = claim(store, "w2").await.unwrap();
    assert_eq!(items(store, second.run.id()).await, ["a=APPLIED", "b=QUEUED", "c=QUEUED"]);
    let rows = store.items(second.run.id().into(), None).await.unwrap();
    assert_eq!((rows[1].try_no, rows[1].attempts), (1, 0), "the answer is unknown: the same key again");
    move_items(store, &second, "target", &[("b", "APPLIED"), ("c", "APPLIED")]).await.unwrap();
    assert_eq!(finish(store, &second, "APPLIED").await.unwrap().status(), "APPLIED");
}

// proves X5
pub async fn five_expired_leases_are_taken_over_and_the_sixth_is_lost(store: &dyn Database) {
    let first = held_run(store, job(&["s"])).await;
    for count in 1..=5 {
        advance(store, 61).await;
        assert!(sweep(store).await.moved.is_empty());
        let next = claim(store, &format!("w{count}")).await.unwrap();
        assert_eq!((next.run.run.take_overs, next.fence), (count, u64::from(count) + 1));
    }
    advance(store, 61).await;
    assert!(claim(store, "w9").await.is_none());
    assert_eq!(sweep(store).await.moved, [(first.run.id().to_owned(), "lose".to_owned())]);
    let row = get(store, first.run.id()).await;
    assert_eq!((row.status(), &row.object()["error_code"]), ("failed", &"WORKER_LOST".into()));
    assert_eq!(last_event(store, row.id()).await.level, "error");
}

// proves X5
pub async fn a_vacant_lease_waits_a_day(store: &dyn Database) {
    let left = held_run(store, job(&["s"])).await;
    release(store, &left).await.unwrap();
    advance(store, 23 * HOUR).await;
    assert!(sweep(store).await.moved.is_empty());
    let next = claim(store, "w2").await.unwrap();
    release(store, &next).await.unwrap();
    advance(store, 25 * HOUR).await;
    assert!(claim(store, "w3").await.is_none());
    assert_eq!(sweep(store).await.moved, [(left.run.id().to_owned(), "lose".to_owned())]);
    assert_eq!(status(store, left.run.id()).await, "failed");
}

// proves X5 and D7
pub async fn what_is_lost_when_its_lease_ends_is_not_taken_over(store: &dyn Database) {
    let begun = begun_run(store, deploy()).await;
    let waiting = held_run(store, deploy()).await;
    advance(store, 301).await;
    assert!(claim(store, "w2").await.is_none());
    for it in [&begun, &waiting] {
        let refused = refusal(store.claim_run(it.run.id().into(), "w2".into()).await);
        assert_eq!(refused.code.name(), "LEASE_HELD");
    }
}

// proves U12, X5
pub async fn a_lost_worker_costs_an_attempt_where_there_are_some(store: &dyn Database) {
    let first = begun_run(store, NewRun { max_attempts: 3, ..deploy() }).await;
    for lost in 1..=2 {
        advance(store, 61).await;
        assert!(sweep(store).await.moved.is_empty(), "the next worker's, not the engine's");
        let next = claim(store, &format!("w{lost}")).await.unwrap();
        assert_eq!((next.run.status(), next.run.run.attempt, next.run.run.take_overs), ("running", 1, lost));
    }
    advance(store, 61).await;
    assert!(claim(store, "w9").await.is_none());
    assert_eq!(sweep(store).await.moved, [(first.run.id().to_owned(), "lose".to_owned())]);
    assert_eq!(get(store, first.run.id()).await.object()["error_code"], "WORKER_LOST");
}

// proves X5
pub async fn one_run_is_taken_over_by_its_id(store: &dyn Database) {
    let first = held_run(store, job(&["s"])).await;
    let id = first.run.id().to_owned();
    assert_eq!(code(&store.claim_run(id.clone(), "w2".into()).await), "LEASE_HELD");
    advance(store, 61).await;
    let length = Some(Span::from_seconds(200));
    let second = store.claim_run(id, Take { lease: length, .."w2".into() }).await.unwrap();
    assert!(about(second.expires_at - second.now, 200));
    assert_eq!(second.run.run.take_overs, 1);
}

// proves X5
pub async fn one_of_many_takes_over(store: &dyn Database) {
    let first = held_run(store, job(&["s"])).await;
    advance(store, 61).await;
    let taken = in_parallel(16, |at| async move { claim(store, &format!("w{at}")).await });
    let won: Vec<_> = taken.into_iter().flatten().collect();
    assert_eq!(won.len(), 1);
    assert_eq!((won[0].run.id(), won[0].fence), (first.run.id(), 2));
}

// proves X5
pub async fn the_oldest_expired_lease_is_taken_first(store: &dyn Database) {
    let first = held_run(store, job(&["s"])).await;
    advance(store, 5).await;
    let second = held_run(store, job(&["s"])).await;
    advance(store, 5).await;
    renew(store, &first).await.unwrap();
    advance(store, 100).await;
    let order = [claim(store, "w2").await.unwrap(), claim(store, "w2").await.unwrap()];
    assert_eq!(order.map(|it| it.run.id().to_owned()), [second.run.id(), first.run.id()]);
}
