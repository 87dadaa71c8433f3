//! Failed targets are retried: all of a run's, or chosen ones.

use serde_json::json;
use waypost_kernel::{Actor, Failure};
use waypost_store::{CommandWrite, Database, ItemWrite, RunRow};

use super::kit::*;

/// A change of four targets: `a` applied, the rest failed.
async fn partial(store: &dyn Database) -> RunRow {
    let claimed = held_run(store, rule(&["a", "b", "c", "d"])).await;
    let begun = ["a", "b", "c", "d"].map(|key| (key, "APPLYING"));
    move_items(store, &claimed, "target", &begun).await.unwrap();
    let failed = |key| ItemWrite {
        failure: Some(Failure::new("TIMEOUT", "no answer")),
        answered: true,
        ..moving("target", key, "FAILED")
    };
    let writes = vec![moving("target", "a", "APPLIED"), failed("b"), failed("c"), failed("d")];
    write_items(store, &claimed, writes).await.unwrap();
    finish(store, &claimed, "PARTIAL").await.unwrap()
}

fn retry(run: &RunRow, chosen: Option<&[&str]>) -> CommandWrite {
    CommandWrite {
        actor: Some(Actor::Client),
        items: chosen.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
        ..asking(run.id(), "retry")
    }
}

// proves R8 and R9
pub async fn chosen_targets_are_retried(store: &dyn Database) {
    let run = partial(store).await;
    assert!(run.object()["allowed"].as_array().unwrap().contains(&json!("retry")));
    let row = store.command(retry(&run, Some(&["c", "b"]))).await.unwrap();
    assert_eq!((row.status(), row.run.attempt), ("APPLYING", 2));
    assert_eq!(items(store, row.id()).await, ["a=APPLIED", "b=QUEUED", "c=QUEUED", "d=FAILED"]);
    let object = row.object();
    assert_eq!(object["items"], json!({"target": {"APPLIED": 1, "QUEUED": 2, "FAILED": 1}}));
    assert_eq!((&object["claimed_by"], &object["finished_at"]), (&json!(null), &json!(null)));
    let targets = store.items(row.id().into(), None).await.unwrap();
    assert_eq!((targets[1].attempts, targets[1].try_no), (0, 2), "a new budget, but never an old key");
    assert_eq!((targets[1].failure.clone(), targets[1].finished_at), (None, None));
    assert_eq!(targets[3].object()["error_code"], "TIMEOUT");
}

// proves R8 and R3
pub async fn a_retried_run_is_anybodys_and_counts_all_targets(store: &dyn Database) {
    let run = partial(store).await;
    store.command(retry(&run, Some(&["b"]))).await.unwrap();
    let claimed = claim(store, "w2").await.unwrap();
    assert_eq!((claimed.run.id(), claimed.run.run.attempt), (run.id(), 2), "taking it burns no attempt");
    move_items(store, &claimed, "target", &[("b", "APPLIED")]).await.unwrap();
    assert!(refusal(finish(store, &claimed, "APPLIED").await).guard.is_some());
    assert_eq!(finish(store, &claimed, "PARTIAL").await.unwrap().status(), "PARTIAL");
    store.command(retry(&run, None)).await.unwrap();
    assert_eq!(items(store, run.id()).await, ["a=APPLIED", "b=APPLIED", "c=QUEUED", "d=QUEUED"]);
    let claimed = claim(store, "w3").await.unwrap();
    move_items(store, &claimed, "target", &[("c", "APPLIED"), ("d", "APPLIED")]).await.unwrap();
    assert_eq!(finish(store, &claimed, "APPLIED").await.unwrap().status(), "APPLIED");
}

// proves R8
pub async fn all_of_a_failed_run_is_retried(store: &dyn Database) {
    let claimed = held_run(store, rule(&["a", "b"])).await;
    move_items(store, &claimed, "target", &[("a", "FAILED"), ("b", "FAILED")]).await.unwrap();
    let run = finish(store, &claimed, "FAILED").await.unwrap();
    let row = store.command(retry(&run, None)).await.unwrap();
    assert_eq!((row.status(), row.run.failure.is_none()), ("APPLYING", true));
    assert_eq!(items(store, row.id()).await, ["a=QUEUED", "b=QUEUED"]);
}

// proves R8
pub async fn targets_that_cannot_be_retried_are_named(store: &dyn Database) {
    let run = partial(store).await;
    for chosen in [["b", "nope"], ["b", "a"]] {
        let (field, _) = invalid(store.command(retry(&run, Some(&chosen))).await);
        assert_eq!(field, "items");
    }
    assert_eq!(items(store, run.id()).await, ["a=APPLIED", "b=FAILED", "c=FAILED", "d=FAILED"]);
    assert_eq!(get(store, run.id()).await.object(), run.object());
    let refused = refusal(store.command(retry(&run, Some(&[]))).await);
    assert_eq!(refused.guard.map(waypost_kernel::Guard::name), Some("some-item-open"));
}

// proves R8
pub async fn what_was_applied_is_not_retried(store: &dyn Database) {
    let claimed = held_run(store, rule(&["a"])).await;
    move_items(store, &claimed, "target", &[("a", "APPLIED")]).await.unwrap();
    let run = finish(store, &claimed, "APPLIED").await.unwrap();
    let refused = refusal(store.command(retry(&run, None)).await);
    assert_eq!((refused.code.name(), &*refused.current), ("INVALID_TRANSITION", "APPLIED"));
    assert_eq!(refused.allowed.iter().map(|it| &**it).collect::<Vec<_>>(), ["rollback", "reconcile"]);
}

// proves X3
pub async fn a_retry_twice_is_answered_as_the_first(store: &dyn Database) {
    let run = partial(store).await;
    let first = store.command(retry(&run, Some(&["b"]))).await.unwrap();
    let again = store.command(retry(&run, Some(&["b"]))).await.unwrap();
    assert_eq!(again.object(), first.object());
    assert_eq!(items(store, run.id()).await, ["a=APPLIED", "b=QUEUED", "c=FAILED", "d=FAILED"]);
}

// proves X5
pub async fn a_retry_that_nobody_takes_is_lost_after_a_day(store: &dyn Database) {
    let run = partial(store).await;
    store.command(retry(&run, Some(&["b"]))).await.unwrap();
    advance(store, 23 * HOUR).await;
    assert!(sweep(store).await.moved.is_empty());
    advance(store, 2 * HOUR).await;
    assert_eq!(sweep(store).await.moved.len(), 1);
    assert_eq!(status(store, run.id()).await, "PARTIAL");
    assert_eq!(items(store, run.id()).await, ["a=APPLIED", "b=FAILED", "c=FAILED", "d=FAILED"]);
}
