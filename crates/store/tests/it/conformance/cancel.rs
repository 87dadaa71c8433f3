//! Cancel is a stored intent, and final.

use serde_json::json;
use waypost_kernel::Actor;
use waypost_store::{CommandWrite, Database, CleanupWrite, StoreError};

use super::kit::*;

// proves X8 and D8
pub async fn what_nobody_holds_is_cancelled_at_once(store: &dyn Database) {
    let run = put(store, deploy()).await;
    let because = CommandWrite { reason: Some("wrong branch".into()), ..asking(run.id(), "cancel") };
    let row = store.command(because).await.unwrap();
    let object = row.object();
    assert_eq!((row.status(), &object["error_code"]), ("cancelled", &json!("CANCELLED")));
    assert_eq!(object["error_msg"], "wrong branch");
    let event = last_event(store, row.id()).await;
    assert_eq!((event.command.as_str(), event.actor.as_str(), event.by.as_str()), ("cancel", "operator", "ann"));
    assert!(claim(store, "w1").await.is_none());
}

// proves X8 and D8
pub async fn what_nobody_began_is_cancelled_at_once(store: &dyn Database) {
    let claimed = held_run(store, deploy()).await;
    assert_eq!(command(store, claimed.run.id(), "cancel").await.unwrap().status(), "cancelled");
    assert_eq!(code(&note(store, &claimed, "begun").await), "LEASE_LOST");
}

// proves X8
pub async fn a_holder_is_told_and_may_end_no_other_way(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let row = command(store, claimed.run.id(), "cancel").await.unwrap();
    assert_eq!((row.status(), &row.object()["cancel_requested"]), ("running", &json!(true)));
    assert_eq!(renew(store, &claimed).await.unwrap().intent, Some("cancel"));
    assert_eq!(code(&note(store, &claimed, "stopping").await), "OK", "it may still say how it went");
    for status in ["success", "failed"] {
        assert_eq!(code(&finish(store, &claimed, status).await), "CANCEL_REQUESTED");
    }
    let row = finish(store, &claimed, "cancelled").await.unwrap();
    assert_eq!((row.status(), &row.object()["error_code"]), ("cancelled", &json!("CANCELLED")));
    assert_eq!(row.object()["intent"], json!(null));
}

// proves X8
pub async fn a_cancel_is_final_even_if_the_holder_dies(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    command(store, claimed.run.id(), "cancel").await.unwrap();
    advance(store, 61).await;
    assert_eq!(sweep(store).await.moved.len(), 1);
    let row = get(store, claimed.run.id()).await;
    assert_eq!((row.status(), &row.object()["error_code"]), ("cancelled", &json!("CANCELLED")));
    let taken = held_run(store, job(&["s"])).await;
    command(store, taken.run.id(), "cancel").await.unwrap();
    advance(store, 61).await;
    assert!(claim(store, "w2").await.is_none(), "nobody goes on with it");
    sweep(store).await;
    assert_eq!(status(store, taken.run.id()).await, "cancelled");
}

// proves X8
pub async fn an_expired_or_vacant_run_is_cancelled_at_once(store: &dyn Database) {
    let vacant = held_run(store, job(&["s"])).await;
    release(store, &vacant).await.unwrap();
    assert_eq!(command(store, vacant.run.id(), "cancel").await.unwrap().status(), "cancelled");
    let expired = held_run(store, job(&["s"])).await;
    advance(store, 61).await;
    assert_eq!(command(store, expired.run.id(), "cancel").await.unwrap().status(), "cancelled");
}

// proves X3
pub async fn a_cancel_twice_is_answered_as_the_first(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let queued = put(store, deploy()).await;
    for id in [claimed.run.id(), queued.id()] {
        let first = command(store, id, "cancel").await.unwrap();
        assert_eq!(command(store, id, "cancel").await.unwrap().object(), first.object());
    }
}

// proves X3
pub async fn a_cancel_of_what_is_done_is_refused(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    finish(store, &claimed, "success").await.unwrap();
    let refused = refusal(command(store, claimed.run.id(), "cancel").await);
    assert_eq!((refused.code.name(), &*refused.current), ("INVALID_TRANSITION", "success"));
    assert_eq!((refused.requested.as_str(), refused.allowed.len()), ("cancel", 0));
}

// proves A7
pub async fn an_agents_cancel_is_a_failure(store: &dyn Database) {
    let run = put(store, new("agent")).await;
    let row = command(store, run.id(), "cancel").await.unwrap();
    assert_eq!((row.status(), &row.object()["error_code"]), ("failed", &json!("CANCELLED")));
}

// proves R1 and R3
pub async fn a_cancelled_change_counts_what_was_applied(store: &dyn Database) {
    let claimed = held_run(store, rule(&["a", "b", "c"])).await;
    move_items(store, &claimed, "target", &[("a", "APPLIED"), ("b", "APPLYING")]).await.unwrap();
    command(store, claimed.run.id(), "cancel").await.unwrap();
    let row = release(store, &claimed).await.unwrap();
    assert_eq!(row.status(), "PARTIAL", "a release carries the cancel out");
    assert_eq!(items(store, row.id()).await, ["a=APPLIED", "b=FAILED", "c=FAILED"]);
    let rows = store.items(row.id().into(), None).await.unwrap();
    assert_eq!(rows[2].object()["error_code"], "CANCELLED");
    let queued = put(store, rule(&["a"])).await;
    assert_eq!(command(store, queued.id(), "cancel").await.unwrap().status(), "FAILED");
    assert_eq!(items(store, queued.id()).await, ["a=FAILED"]);
}

// proves X8 and J5
pub async fn a_dead_holders_cleanup_is_anothers(store: &dyn Database) {
    let claimed = held_run(store, job(&["s"])).await;
    let require_cleanup = |claimed: &waypost_store::Claimed, required| CleanupWrite {
        held: held(claimed),
        by: "w1".into(),
        required,
        failing: None,
    };
    store.require_cleanup(require_cleanup(&claimed, true)).await.unwrap();
    command(store, claimed.run.id(), "cancel").await.unwrap();
    advance(store, 61).await;
    assert!(sweep(store).await.moved.is_empty());
    let second = claim(store, "w2").await.unwrap();
    assert_eq!(renew(store, &second).await.unwrap().intent, Some("cancel"));
    store.require_cleanup(require_cleanup(&second, false)).await.unwrap();
    let row = finish(store, &second, "cancelled").await.unwrap();
    assert_eq!((row.status(), &row.object()["error_code"]), ("cancelled", &json!("CANCELLED")));
}

pub async fn only_who_may_commands(store: &dyn Database) {
    let run = put(store, deploy()).await;
    let as_actor = |actor| CommandWrite { actor: Some(actor), ..asking(run.id(), "cancel") };
    assert_eq!(code(&store.command(as_actor(Actor::Worker)).await), "ACTOR_NOT_ALLOWED");
    assert_eq!(code(&store.command(as_actor(Actor::Engine)).await), "ACTOR_NOT_ALLOWED");
    assert_eq!(code(&command(store, run.id(), "expire").await), "ACTOR_NOT_ALLOWED");
    assert_eq!(code(&command(store, run.id(), "promote").await), "INVALID_TRANSITION");
    let elsewhere = CommandWrite { tenant: "other".into(), ..asking(run.id(), "cancel") };
    assert_eq!(code(&store.command(elsewhere).await), "NOT_FOUND");
    assert_eq!(code(&command(store, "run-none", "cancel").await), "NOT_FOUND");
    assert_eq!(code(&store.command(as_actor(Actor::Client)).await), "OK");
}

// proves X8
pub async fn of_a_finish_and_a_cancel_that_race_one_wins(store: &dyn Database) {
    for _ in 0..50 {
        let claimed = begun_run(store, deploy()).await;
        let answers = in_parallel(2, |at| {
            let claimed = &claimed;
            async move {
                match at {
                    0 => code(&finish(store, claimed, "success").await),
                    _ => code(&command(store, claimed.run.id(), "cancel").await),
                }
            }
        });
        let row = get(store, claimed.run.id()).await;
        match answers[..] {
            ["OK", "INVALID_TRANSITION"] => assert_eq!(row.status(), "success"),
            ["CANCEL_REQUESTED", "OK"] => {
                assert_eq!(row.object()["cancel_requested"], true);
                assert_eq!(finish(store, &claimed, "cancelled").await.unwrap().status(), "cancelled");
            }
            _ => panic!("{answers:?} leaves it {}", row.status()),
        }
    }
}

pub async fn a_command_may_insist_on_what_was_seen(store: &dyn Database) {
    let claimed = held_run(store, deploy()).await;
    let insisting = |seq| CommandWrite { if_seq: Some(seq), ..asking(claimed.run.id(), "cancel") };
    let expected = StoreError::Changed { run_id: claimed.run.id().into(), seq: 2 };
    assert_eq!(store.command(insisting(1)).await.map(|_| ()), Err(expected));
    assert_eq!(status(store, claimed.run.id()).await, "claimed");
    assert_eq!(store.command(insisting(2)).await.unwrap().status(), "cancelled");
}

// proves X3
pub async fn a_cancel_again_is_answered_whatever_it_insists_on(store: &dyn Database) {
    let run = put(store, deploy()).await;
    let insisting = || CommandWrite { if_seq: Some(1), ..asking(run.id(), "cancel") };
    let first = store.command(insisting()).await.unwrap();
    assert_eq!(store.command(insisting()).await.unwrap().object(), first.object());
    let other = CommandWrite { if_seq: Some(1), ..asking(run.id(), "retry") };
    assert_eq!(code(&store.command(other).await), "PRECONDITION_FAILED");
}
