//! What time does.

use serde_json::json;
use waypost_kernel::Span;
use waypost_store::{Database, NewRun, Pause, Swept, Take};
use waypost_testkit::Shorthand;

use super::kit::*;

pub async fn nothing_due_is_nothing_written(store: &dyn Database) {
    put(store, deploy()).await;
    held_run(store, deploy()).await;
    begun_run(store, deploy()).await;
    let before = store.feed(Some(0), 500).await.unwrap().events.len();
    for _ in 0..3 {
        assert_eq!(sweep(store).await, Swept::default());
    }
    assert_eq!(store.feed(Some(0), 500).await.unwrap().events.len(), before);
}

// proves D7
pub async fn a_claim_that_was_not_begun_is_cancelled(store: &dyn Database) {
    let asked = NewRun { metadata: map(json!({"kept": 1})), ..deploy() };
    let claimed = held_run(store, asked).await;
    advance(store, 290).await;
    assert!(sweep(store).await.moved.is_empty());
    advance(store, 15).await;
    assert_eq!(sweep(store).await.moved, [(claimed.run.id().to_owned(), "expire".to_owned())]);
    let row = get(store, claimed.run.id()).await;
    assert_eq!((row.status(), &row.object()["error_code"]), ("cancelled", &json!("EXPIRED")));
    let metadata = json!(row.metadata);
    assert_eq!(metadata["kept"], 1);
    assert_eq!(metadata["cancelled_by"], "system");
    assert_eq!(metadata["original_worker"], "w1");
    assert_eq!(metadata["claimed_at"], waypost_store::iso(row.run.started_at.unwrap()));
    assert!(metadata["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    let event = last_event(store, row.id()).await;
    assert_eq!((event.actor.as_str(), event.by.as_str(), event.level.as_str()), ("engine", "sweeper", "warn"));
    assert_eq!(code(&note(store, &claimed, "hello?").await), "LEASE_LOST");
}

// proves D7
pub async fn a_run_whose_worker_died_is_lost(store: &dyn Database) {
    let asked = NewRun { items: vec![item("step", "a"), item("step", "b")], ..deploy() };
    let claimed = begun_run(store, asked).await;
    move_items(store, &claimed, "step", &[("a", "running")]).await.unwrap();
    advance(store, 50).await;
    assert!(sweep(store).await.moved.is_empty());
    advance(store, 15).await;
    assert_eq!(sweep(store).await.moved, [(claimed.run.id().to_owned(), "lose".to_owned())]);
    let row = get(store, claimed.run.id()).await;
    assert_eq!((row.status(), &row.object()["error_code"]), ("failed", &json!("WORKER_LOST")));
    assert_eq!(row.metadata.get("cancelled_by"), None);
    assert_eq!(items(store, row.id()).await, ["a=failed", "b=skipped"]);
}

// proves A7 and X11
pub async fn a_time_to_live_ends(store: &dyn Database) {
    let mortal = put(store, NewRun { ttl: Some(Span::from_seconds(100)), ..deploy() }).await;
    let agent = put(store, new("agent")).await;
    let preview = put(store, new("rule")).await;
    advance(store, 70).await;
    assert_eq!(sweep(store).await.moved, [(agent.id().to_owned(), "expire".to_owned())]);
    let row = get(store, agent.id()).await;
    assert_eq!((row.status(), &row.object()["error_code"]), ("failed", &json!("UPSTREAM_UNAVAILABLE")));
    advance(store, 40).await;
    assert_eq!(sweep(store).await.moved.len(), 1);
    assert_eq!(status(store, mortal.id()).await, "cancelled");
    advance(store, 7 * DAY).await;
    assert_eq!(sweep(store).await.moved.len(), 1);
    assert_eq!(get(store, preview.id()).await.object()["error_code"], "EXPIRED");
}

pub async fn a_claimed_run_no_longer_expires(store: &dyn Database) {
    let run = put(store, NewRun { ttl: Some(Span::from_seconds(100)), ..deploy() }).await;
    let claimed = store.claim_run(run.id().into(), Take { lease: Some(Span::from_seconds(1_000)), .."w1".into() }).await.unwrap();
    note(store, &claimed, "begun").await.unwrap();
    advance(store, 200).await;
    assert!(sweep(store).await.moved.is_empty());
    assert_eq!(get(store, run.id()).await.run.expires_at, None);
}

pub async fn as_many_are_swept_as_were_asked_for_oldest_first(store: &dyn Database) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(begun_run(store, deploy()).await.run.id().to_owned());
        advance(store, 1).await;
    }
    advance(store, 100).await;
    let first = store.sweep("a".into(), 2).await.unwrap();
    assert!(first.more);
    let second = store.sweep("b".into(), 3).await.unwrap();
    assert!(!second.more);
    let moved: Vec<String> = first.moved.into_iter().chain(second.moved).map(|(id, _)| id).collect();
    assert_eq!(moved, ids);
    assert_eq!(sweep(store).await, Swept::default());
}

pub async fn what_is_left_to_workers_does_not_stand_in_the_way(store: &dyn Database) {
    for _ in 0..5 {
        held_run(store, job(&["s"])).await;
    }
    advance(store, 1).await;
    let lost = begun_run(store, deploy()).await;
    advance(store, 100).await;
    let swept = store.sweep("a".into(), 1).await.unwrap();
    assert_eq!(swept, Swept { moved: vec![(lost.run.id().to_owned(), "lose".to_owned())], more: false });
}

// proves D7
pub async fn many_sweepers_end_a_run_once(store: &dyn Database) {
    for _ in 0..20 {
        begun_run(store, deploy()).await;
    }
    advance(store, 61).await;
    let swept = in_parallel(8, |at| async move { store.sweep(format!("s{at}"), 100).await.unwrap() });
    assert_eq!(swept.iter().map(|it| it.moved.len()).sum::<usize>(), 20);
}

// proves X5 and X8
pub async fn a_lost_run_that_requires_its_cleanup_gets_it(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let require_cleanup = |claimed: &waypost_store::Claimed, required| waypost_store::CleanupWrite {
        held: held(claimed),
        by: "w1".into(),
        required,
        failing: None,
    };
    store.require_cleanup(require_cleanup(&claimed, true)).await.unwrap();
    advance(store, 61).await;
    assert_eq!(sweep(store).await.moved.len(), 1);
    let row = get(store, claimed.run.id()).await;
    assert_eq!((row.status(), &row.object()["intent"]), ("running", &json!("fail")));
    let second = claim(store, "w2").await.unwrap();
    store.require_cleanup(require_cleanup(&second, false)).await.unwrap();
    assert_eq!(code(&finish(store, &second, "success").await), "FAILURE_RECORDED");
    let row = finish(store, &second, "failed").await.unwrap();
    assert_eq!(row.object()["error_code"], "WORKER_LOST");
}

// proves X9
pub async fn a_run_that_was_given_back_is_not_lost_in_a_paused_queue(store: &dyn Database) {
    let claimed = begun_run(store, job(&["a"])).await;
    release(store, &claimed).await.unwrap();
    let pause = Pause { by: "ann".into(), reason: "a freeze".into(), at: None };
    store.pause_queue(QUEUE.into(), Some(pause)).await.unwrap();
    for _ in 0..5 {
        advance(store, 20 * HOUR).await;
        assert_eq!(sweep(store).await.moved, []);
    }
    store.pause_queue(QUEUE.into(), None).await.unwrap();
    assert_eq!(sweep(store).await.moved, []);
    let next = claim(store, "w2").await.expect("it waited");
    assert_eq!(next.run.id(), claimed.run.id());
    release(store, &next).await.unwrap();
    advance(store, 25 * HOUR).await;
    assert_eq!(sweep(store).await.moved.len(), 1, "in a queue that is open the time counts");
}
