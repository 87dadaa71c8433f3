//! One key, one run.

use std::collections::BTreeSet;

use serde_json::json;
use waypost_kernel::Time;
use waypost_store::{Database, NewRun, StoreError};

use super::kit::*;

fn keyed() -> NewRun {
    NewRun { idempotency_key: Some("k1".into()), input: json!({"a": 1, "b": [2]}), ..deploy() }
}

// proves X7 and D5
pub async fn the_same_key_and_body_is_the_same_run(store: &dyn Database) {
    let first = try_put(store, keyed()).await.unwrap();
    let second = try_put(store, keyed()).await.unwrap();
    assert_eq!((first.replayed, second.replayed), (false, true));
    assert_eq!(first.run.object(), second.run.object());
    assert_eq!(events(store, first.run.id()).await.len(), 1);
}

// proves X7
pub async fn the_same_key_with_another_body_is_refused(store: &dyn Database) {
    let first = put(store, keyed()).await;
    let others = [
        NewRun { lifecycle: "agent".into(), ..keyed() },
        NewRun { version: Some(1), ..keyed() },
        NewRun { status: Some("queued".into()), ..keyed() },
        NewRun { queue: "other".into(), ..keyed() },
        NewRun { priority: 1, ..keyed() },
        NewRun { input: json!({"a": 1, "b": [3]}), ..keyed() },
        NewRun { metadata: map(json!({"a": 1})), ..keyed() },
        NewRun { schedule_at: Some(Time::from_ms(1)), ..keyed() },
        NewRun { concurrency_key: Some("c".into()), ..keyed() },
        NewRun { correlation_id: Some("c".into()), ..keyed() },
        NewRun { title: Some("t".into()), ..keyed() },
        NewRun { playbook: Some("p".into()), ..keyed() },
        NewRun { carried: Some(json!({})), ..keyed() },
        NewRun { parent_run_id: Some(first.id().into()), ..keyed() },
        NewRun { items: vec![item("step", "s")], ..keyed() },
    ];
    for other in others {
        let expected = StoreError::KeyReused { key: "k1".into(), run_id: first.id().into() };
        let answer = try_put(store, other.clone()).await.map(|it| it.run.id().to_owned());
        assert_eq!(answer, Err(expected), "{other:?}");
    }
}

// proves X7
pub async fn who_asks_and_how_its_members_are_ordered_is_no_other_body(store: &dyn Database) {
    let first = put(store, keyed()).await;
    let input = serde_json::from_str(r#"{"b": [2], "a": 1}"#).unwrap();
    let again = NewRun { input, by: "another".into(), ..keyed() };
    assert_eq!(put(store, again).await.id(), first.id());
}

// proves X7
pub async fn keys_are_per_tenant(store: &dyn Database) {
    let here = put(store, keyed()).await;
    let there = put(store, NewRun { tenant: "other".into(), input: json!(1), ..keyed() }).await;
    assert_ne!(here.id(), there.id());
    assert_eq!(code(&store.run(TENANT.into(), there.id().into()).await), "NOT_FOUND");
}

pub async fn a_key_of_the_engines_own_is_refused(store: &dyn Database) {
    let taken = NewRun { idempotency_key: Some("waypost:schedule:backup:global:global:2026-02-14".into()), ..keyed() };
    let refused = try_put(store, taken).await.unwrap_err().to_string();
    assert!(refused.contains("idempotency_key: begins with \"waypost:\""), "{refused}");
    let others = NewRun { idempotency_key: Some("waypost".into()), ..keyed() };
    assert!(try_put(store, others).await.is_ok());
}

// proves X7 and X3
pub async fn a_replay_answers_with_the_run_as_it_is_now(store: &dyn Database) {
    let claimed = begun_run(store, keyed()).await;
    finish(store, &claimed, "success").await.unwrap();
    let again = try_put(store, keyed()).await.unwrap();
    assert_eq!((again.replayed, again.run.status()), (true, "success"));
    assert_eq!(again.run.id(), claimed.run.id());
}

pub async fn a_refused_run_leaves_its_key_free(store: &dyn Database) {
    let broken = NewRun { status: Some("nowhere".into()), ..keyed() };
    assert_eq!(code(&try_put(store, broken).await), "INVALID_INPUT");
    assert!(!try_put(store, keyed()).await.unwrap().replayed);
}

pub async fn a_key_twice_in_one_list_makes_one_run(store: &dyn Database) {
    let other = NewRun { priority: 3, ..keyed() };
    let answers = store.enqueue(vec![keyed(), keyed(), other]).await.unwrap();
    let replayed: Vec<Option<bool>> =
        answers.iter().map(|answer| answer.as_ref().ok().map(|it| it.replayed)).collect();
    assert_eq!(replayed, [Some(false), Some(true), None]);
}

// proves X7
pub async fn sixty_four_that_race_make_one_run(store: &dyn Database) {
    let answers = in_parallel(64, |_| async { try_put(store, keyed()).await.unwrap() });
    let ids: BTreeSet<&str> = answers.iter().map(|answer| answer.run.id()).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1);
}
