//! Settled runs leave when their time is over.

use waypost_kernel::Span;
use waypost_store::{Claimed, Database, NewRun, Pruned, Retention};

use super::kit::*;

async fn finished(store: &dyn Database, status: &str) -> Claimed {
    let claimed = begun_run(store, deploy()).await;
    finish(store, &claimed, status).await.unwrap();
    claimed
}

/// A store may keep the run of the newest event a little longer, lest its position be given out again: here
/// another one has it.
async fn prune(store: &dyn Database, limit: usize) -> Pruned {
    put(store, deploy()).await;
    store.prune(limit).await.unwrap()
}

async fn is_gone(store: &dyn Database, claimed: &Claimed) -> bool {
    code(&store.run(TENANT.into(), claimed.run.id().into()).await) == "NOT_FOUND"
}

// proves X11
pub async fn successes_stay_a_month_and_failures_three(store: &dyn Database) {
    let good = finished(store, "success").await;
    let bad = finished(store, "failed").await;
    let cancelled = finished(store, "cancelled").await;
    advance(store, 29 * DAY).await;
    assert_eq!(prune(store, 100).await, Pruned::default());
    advance(store, 2 * DAY).await;
    assert_eq!(prune(store, 100).await, Pruned { runs: 1, events: 4, more: false });
    assert!(is_gone(store, &good).await);
    advance(store, 58 * DAY).await;
    assert_eq!(prune(store, 100).await.runs, 0);
    advance(store, 2 * DAY).await;
    assert_eq!(prune(store, 100).await.runs, 2);
    assert!(is_gone(store, &bad).await && is_gone(store, &cancelled).await);
}

// proves X11
pub async fn an_installation_says_how_long_a_lifecycles_runs_stay(store: &dyn Database) {
    let rule = |success: Option<i64>, failure: Option<i64>| Retention {
        lifecycle: "deploy".into(),
        success: success.map(Span::from_seconds),
        failure: failure.map(Span::from_seconds),
    };
    for bad in [rule(Some(0), None), rule(None, Some(-1))] {
        assert!(store.put_retention(vec![bad]).await.is_err());
    }
    assert_eq!(store.retention(None).await.unwrap(), []);
    let other = Retention { lifecycle: "agent".into(), ..rule(Some(DAY), None) };
    let said = vec![other.clone(), rule(Some(2 * DAY), Some(200 * DAY))];
    for _ in 0..2 {
        store.put_retention(said.iter().rev().cloned().collect()).await.unwrap();
    }
    assert_eq!(store.retention(None).await.unwrap(), said);
    assert_eq!(store.retention(Some("agent".into())).await.unwrap(), [other]);
    let good = finished(store, "success").await;
    let bad = finished(store, "failed").await;
    advance(store, DAY).await;
    assert_eq!(prune(store, 100).await.runs, 0);
    advance(store, DAY + HOUR).await;
    assert_eq!(prune(store, 100).await.runs, 1);
    assert!(is_gone(store, &good).await);
    advance(store, 100 * DAY).await;
    assert_eq!(prune(store, 100).await.runs, 0, "its lifecycle would have let it go");
    store.put_retention(Vec::new()).await.unwrap();
    assert_eq!(prune(store, 100).await.runs, 1);
    assert!(is_gone(store, &bad).await);
}

// proves X11
pub async fn what_is_not_settled_stays(store: &dyn Database) {
    put(store, deploy()).await;
    held_run(store, deploy()).await;
    begun_run(store, deploy()).await;
    let parked = held_run(store, job(&["a"])).await;
    let end = waypost_store::FinishWrite { reason: Some("why".into()), ..ending(&parked, "paused") };
    write_finish(store, end).await.unwrap();
    advance(store, 1_000 * DAY).await;
    assert_eq!(prune(store, 100).await, Pruned::default());
}

// proves X11
pub async fn small_batches_oldest_first(store: &dyn Database) {
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(finished(store, "success").await);
        advance(store, 1).await;
    }
    advance(store, 31 * DAY).await;
    assert_eq!(prune(store, 0).await, Pruned { more: true, ..Pruned::default() });
    let first = prune(store, 2).await;
    assert_eq!((first.runs, first.more), (2, true));
    assert!(is_gone(store, &runs[0]).await && is_gone(store, &runs[1]).await);
    assert!(!is_gone(store, &runs[2]).await);
    assert_eq!(prune(store, 3).await.runs, 3);
    assert_eq!(prune(store, 3).await, Pruned::default());
}

// proves X11 and X4
pub async fn events_leave_with_their_run(store: &dyn Database) {
    let kept = finished(store, "failed").await;
    let gone = finished(store, "success").await;
    advance(store, 31 * DAY).await;
    prune(store, 100).await;
    assert_eq!(code(&store.events(gone.run.id().into(), 0, 10).await), "NOT_FOUND");
    let left = store.feed(Some(0), 500).await.unwrap().events;
    assert_eq!(left.len(), events(store, kept.run.id()).await.len() + 1);
}

// proves X4
pub async fn no_position_comes_again(store: &dyn Database) {
    finished(store, "success").await;
    let last = store.feed(Some(0), 500).await.unwrap().events.last().unwrap().position;
    advance(store, 31 * DAY).await;
    store.prune(100).await.unwrap();
    let next = put(store, deploy()).await;
    assert!(last_event(store, next.id()).await.position > last);
}

// proves X11 and X7
pub async fn a_key_is_free_when_its_run_has_left(store: &dyn Database) {
    let keyed = || NewRun { idempotency_key: Some("k".into()), ..deploy() };
    let first = begun_run(store, keyed()).await;
    finish(store, &first, "success").await.unwrap();
    assert!(try_put(store, keyed()).await.unwrap().replayed);
    advance(store, 31 * DAY).await;
    prune(store, 100).await;
    assert!(!try_put(store, keyed()).await.unwrap().replayed);
}

// proves X11 and R10
pub async fn a_run_under_operation_stays(store: &dyn Database) {
    let claimed = held_run(store, rule(&["a"])).await;
    move_items(store, &claimed, "target", &[("a", "APPLIED")]).await.unwrap();
    finish(store, &claimed, "APPLIED").await.unwrap();
    command(store, claimed.run.id(), "rollback").await.unwrap();
    advance(store, 31 * DAY).await;
    assert_eq!(prune(store, 100).await.runs, 0);
}
