//! Rollbacks and reconciliations: runs of their own that work on another one.

use serde_json::json;
use waypost_store::{Claimed, CommandWrite, Database, Filter, NewRun, RollBackTargets, RunRow, Setting};

use super::kit::*;

async fn applied(store: &dyn Database) -> RunRow {
    let claimed = held_run(store, rule(&["a", "b"])).await;
    move_items(store, &claimed, "target", &[("a", "APPLIED"), ("b", "FAILED")]).await.unwrap();
    finish(store, &claimed, "PARTIAL").await.unwrap()
}

/// The run that a command of this one began.
pub async fn operation(store: &dyn Database, parent: &RunRow) -> String {
    let of_parent = |run: &&RunRow| run.parent_run_id.as_deref() == Some(parent.id());
    runs_of(store, "operation").await.iter().find(of_parent).unwrap().id().to_owned()
}

// proves R10
pub async fn a_command_begins_an_operation_in_the_same_write(store: &dyn Database) {
    let parent = applied(store).await;
    let chosen = |keys: &[&str]| CommandWrite {
        items: Some(keys.iter().map(|key| (*key).to_owned()).collect()),
        reason: Some("wrong prices".into()),
        ..asking(parent.id(), "rollback")
    };
    for (keys, words) in [(["b"], "FAILED"), (["nobody"], "nobody")] {
        let (field, message) = invalid(store.command(chosen(&keys)).await);
        assert!(field == "items" && message.contains(words), "{message}");
    }
    assert_eq!(runs_of(store, "operation").await.len(), 0, "nothing was begun");
    store.command(chosen(&["a"])).await.unwrap();
    let begun = get(store, &operation(store, &parent).await).await;
    assert_eq!((begun.status(), begun.parent_run_id.as_deref()), ("queued", Some(parent.id())));
    assert_eq!((&begun.queue, &begun.playbook, &begun.tenant), (&parent.queue, &parent.playbook, &parent.tenant));
    let input = json!({ "operation": "rollback", "count": 1, "targets": ["a"], "reason": "wrong prices" });
    assert_eq!(*begun.input, input);
    assert_eq!(code(&command(store, parent.id(), "reconcile").await), "INVALID_TRANSITION");
    assert_eq!(runs_of(store, "operation").await.len(), 1, "a refused command begins nothing");
}

async fn runs_of(store: &dyn Database, lifecycle: &str) -> Vec<RunRow> {
    let filter = Filter {
        tenant: TENANT.into(),
        lifecycle: Some(lifecycle.into()),
        limit: 100,
        ..Filter::default()
    };
    store.runs(filter).await.unwrap().runs
}

// proves R10
pub async fn another_tenants_run_is_not_operated_on(store: &dyn Database) {
    let parent = applied(store).await;
    let forged = NewRun {
        tenant: "acme".into(),
        parent_run_id: Some(parent.id().into()),
        ..new("operation")
    };
    // A server refuses such a parent at once.
    let Ok(made) = try_put(store, forged).await else { return };
    let run = made.run;
    let claimed = store.claim_run(run.id().into(), "w1".into()).await.unwrap();
    let write = RollBackTargets { held: held(&claimed), by: "w1".into(), keys: vec!["a".into()] };
    assert_eq!(code(&store.roll_back_targets(write).await), "NOT_FOUND");
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
    let claimed = store.claim_run(operation(store, &parent).await, "w1".into()).await.unwrap();
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
        let run = get(store, &operation(store, &parent).await).await;
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

// proves R1, R2
pub async fn a_run_that_is_taken_up_again_waits_for_a_slot_of_its_key(store: &dyn Database) {
    let keyed = |targets: &[&str]| NewRun { concurrency_key: Some("rule:prices".into()), ..rule(targets) };
    let partial = |claimed: Claimed| async move {
        move_items(store, &claimed, "target", &[("a", "APPLIED"), ("b", "FAILED")]).await.unwrap();
        finish(store, &claimed, "PARTIAL").await.unwrap()
    };
    let first = partial(held_run(store, keyed(&["a", "b"])).await).await;
    let second = partial(held_run(store, keyed(&["a", "b"])).await).await;
    let third = held_run(store, keyed(&["a", "b"])).await;
    for run in [&first, &second] {
        command(store, run.id(), "retry").await.unwrap();
    }
    let claim = |run: &RunRow| store.claim_run(run.id().to_owned(), "w1".into());
    assert_eq!(code(&claim(&first).await), "NOT_DUE", "the third has the key");
    partial(third).await;
    let first = claim(&first).await.unwrap();
    assert_eq!(code(&claim(&second).await), "NOT_DUE", "the first has the key");
    store.configure(Setting::KeyLimit("rule:prices".into(), Some(2)), "kim".into()).await.unwrap();
    claim(&second).await.unwrap();
    finish(store, &first, "PARTIAL").await.unwrap();
}

// proves R1, R10
pub async fn a_rollback_has_the_key_of_its_run_and_a_reconciliation_has_none(store: &dyn Database) {
    let keyed = || NewRun { concurrency_key: Some("rule:prices".into()), ..rule(&["a"]) };
    let claimed = held_run(store, keyed()).await;
    move_items(store, &claimed, "target", &[("a", "APPLIED")]).await.unwrap();
    let parent = finish(store, &claimed, "APPLIED").await.unwrap();
    command(store, parent.id(), "reconcile").await.unwrap();
    let reconciliation = operation(store, &parent).await;
    assert_eq!(get(store, &reconciliation).await.concurrency_key, None);
    let compares = store.claim_run(reconciliation, "w1".into()).await.unwrap();
    let other = held_run(store, keyed()).await;
    finish(store, &compares, "completed").await.unwrap();
    command(store, parent.id(), "rollback").await.unwrap();
    let rollback = operation(store, &parent).await;
    assert_eq!(get(store, &rollback).await.concurrency_key.as_deref(), Some("rule:prices"));
    assert_eq!(code(&store.claim_run(rollback.clone(), "w1".into()).await), "NOT_DUE", "another run changes the same");
    move_items(store, &other, "target", &[("a", "APPLIED")]).await.unwrap();
    finish(store, &other, "APPLIED").await.unwrap();
    store.claim_run(rollback, "w1".into()).await.unwrap();
    let waits = put(store, keyed()).await;
    assert_eq!(code(&store.claim_run(waits.id().into(), "w1".into()).await), "NOT_DUE", "the rollback changes the same");
}
