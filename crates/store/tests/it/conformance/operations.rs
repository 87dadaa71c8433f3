//! Rollbacks and reconciliations: runs of their own that work on another one.

use serde_json::json;
use waypost_store::{Database, NewRun, RunRow};

use super::kit::*;

async fn applied(store: &dyn Database) -> RunRow {
    let claimed = held_run(store, rule(&["a", "b"])).await;
    move_items(store, &claimed, "target", &[("a", "APPLIED"), ("b", "FAILED")]).await.unwrap();
    finish(store, &claimed, "PARTIAL").await.unwrap()
}

fn operation(parent: &RunRow) -> NewRun {
    NewRun { parent_run_id: Some(parent.id().into()), ..new("operation") }
}

// proves R10
pub async fn one_operation_is_under_way_at_a_time(store: &dyn Database) {
    let parent = applied(store).await;
    assert_eq!(parent.object()["allowed"], json!(["retry", "rollback", "reconcile"]));
    let row = command(store, parent.id(), "rollback").await.unwrap();
    assert_eq!((row.status(), row.run.operating), ("PARTIAL", true));
    assert_eq!(row.object()["allowed"], json!([]));
    for name in ["rollback", "reconcile", "retry"] {
        let refused = refusal(command(store, parent.id(), name).await);
        assert_eq!(refused.guard.map(waypost_kernel::Guard::name), Some("no-operation"), "{name}");
    }
}

// proves R10 and R11
pub async fn an_operation_that_settles_frees_its_parent(store: &dyn Database) {
    let parent = applied(store).await;
    command(store, parent.id(), "reconcile").await.unwrap();
    let claimed = held_run(store, operation(&parent)).await;
    assert!(get(store, parent.id()).await.run.operating);
    finish(store, &claimed, "completed").await.unwrap();
    let row = get(store, parent.id()).await;
    assert!(!row.run.operating);
    assert_eq!(row.object()["allowed"], json!(["retry", "rollback", "reconcile"]));
    let event = last_event(store, parent.id()).await;
    assert_eq!((event.command.as_str(), event.actor.as_str()), ("operation", "engine"));
}

// proves R10
pub async fn however_an_operation_ends_its_parent_is_free(store: &dyn Database) {
    for end in ["cancel", "lose"] {
        let parent = applied(store).await;
        command(store, parent.id(), "rollback").await.unwrap();
        let run = put(store, operation(&parent)).await;
        if end == "cancel" {
            command(store, run.id(), "cancel").await.unwrap();
        } else {
            let claimed = store.claim_run(run.id().into(), "w1".into()).await.unwrap();
            release(store, &claimed).await.unwrap();
            advance(store, 25 * HOUR).await;
            sweep(store).await;
        }
        assert!(!get(store, parent.id()).await.run.operating, "{end}");
    }
}

// proves R10
pub async fn a_child_that_is_no_operation_leaves_its_parent_alone(store: &dyn Database) {
    let parent = applied(store).await;
    command(store, parent.id(), "rollback").await.unwrap();
    let child = NewRun { parent_run_id: Some(parent.id().into()), ..deploy() };
    let claimed = begun_run(store, child).await;
    finish(store, &claimed, "success").await.unwrap();
    assert!(get(store, parent.id()).await.run.operating);
    let orphan = NewRun { parent_run_id: Some("rule-gone".into()), ..new("operation") };
    let claimed = held_run(store, orphan).await;
    assert_eq!(finish(store, &claimed, "partial").await.unwrap().status(), "partial");
}

// proves R10
pub async fn operations_are_for_what_was_applied(store: &dyn Database) {
    let queued = put(store, rule(&["a"])).await;
    let build = put(store, deploy()).await;
    for id in [queued.id(), build.id()] {
        assert_eq!(code(&command(store, id, "rollback").await), "INVALID_TRANSITION");
    }
    let claimed = store.claim_run(queued.id().into(), "w1".into()).await.unwrap();
    move_items(store, &claimed, "target", &[("a", "FAILED")]).await.unwrap();
    finish(store, &claimed, "FAILED").await.unwrap();
    assert_eq!(code(&command(store, queued.id(), "rollback").await), "INVALID_TRANSITION");
}
