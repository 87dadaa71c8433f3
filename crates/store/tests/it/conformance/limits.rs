//! Limits and pauses: they make work wait, never fail.

use waypost_store::{Claim, Database, NewRun, Pause};
use waypost_testkit::Shorthand;

use super::kit::*;

fn keyed(key: &str) -> NewRun {
    NewRun { concurrency_key: Some(key.into()), ..deploy() }
}

async fn taken(store: &dyn Database) -> usize {
    store.claim(wants("w1", 99)).await.unwrap().len()
}

// proves X9
pub async fn a_queue_holds_no_more_than_its_limit(store: &dyn Database) {
    store.limit_queue(QUEUE, Some(2)).await.unwrap();
    store.enqueue(vec![deploy(); 4]).await.unwrap();
    let held = store.claim(wants("w1", 99)).await.unwrap();
    assert_eq!(held.len(), 2);
    assert_eq!(taken(store).await, 0);
    note(store, &held[0], "begun").await.unwrap();
    assert_eq!(taken(store).await, 0, "begun is held as well");
    finish(store, &held[0], "failed").await.unwrap();
    assert_eq!(taken(store).await, 1, "the slot is free again");
}

// proves X9
pub async fn a_queues_limit_is_its_own_and_can_go(store: &dyn Database) {
    store.limit_queue(QUEUE, Some(1)).await.unwrap();
    let elsewhere = NewRun { queue: "other".into(), ..deploy() };
    store.enqueue(vec![deploy(), deploy(), elsewhere.clone(), elsewhere]).await.unwrap();
    let both = Claim { queues: vec![QUEUE.into(), "other".into()], ..wants("w1", 99) };
    assert_eq!(store.claim(both).await.unwrap().len(), 3);
    store.limit_queue(QUEUE, None).await.unwrap();
    assert_eq!(taken(store).await, 1);
}

pub async fn a_limit_of_none_lets_nothing_through(store: &dyn Database) {
    store.limit_queue(QUEUE, Some(0)).await.unwrap();
    store.limit_key("k", Some(0)).await.unwrap();
    store.enqueue(vec![deploy(), keyed("k")]).await.unwrap();
    assert_eq!(taken(store).await, 0);
    store.limit_queue(QUEUE, None).await.unwrap();
    assert_eq!(taken(store).await, 1);
}

// proves X9 and A7
pub async fn a_key_is_held_once(store: &dyn Database) {
    store.enqueue(vec![keyed("a"), keyed("a"), keyed("b"), deploy()]).await.unwrap();
    let held = store.claim(wants("w1", 99)).await.unwrap();
    assert_eq!(held.len(), 3);
    assert_eq!(taken(store).await, 0);
    let first = held.iter().find(|it| it.run.concurrency_key.as_deref() == Some("a")).unwrap();
    command(store, first.run.id(), "cancel").await.unwrap();
    assert_eq!(taken(store).await, 1);
}

// proves X9
pub async fn a_keys_limit_can_be_raised(store: &dyn Database) {
    store.limit_key("a", Some(3)).await.unwrap();
    store.enqueue(vec![keyed("a"); 5]).await.unwrap();
    let held = store.claim(wants("w1", 99)).await.unwrap();
    assert_eq!(held.len(), 3);
    store.limit_key("a", None).await.unwrap();
    for it in &held[..2] {
        command(store, it.run.id(), "cancel").await.unwrap();
    }
    assert_eq!(taken(store).await, 0, "one is held, and one is the limit again");
    command(store, held[2].run.id(), "cancel").await.unwrap();
    assert_eq!(taken(store).await, 1);
}

// proves X9
pub async fn a_key_counts_in_all_queues(store: &dyn Database) {
    store.enqueue(vec![keyed("a"), NewRun { queue: "other".into(), ..keyed("a") }]).await.unwrap();
    let both = Claim { queues: vec![QUEUE.into(), "other".into()], ..wants("w1", 99) };
    assert_eq!(store.claim(both.clone()).await.unwrap().len(), 1);
    assert_eq!(store.claim(both).await.unwrap().len(), 0);
}

// proves X9
pub async fn what_waits_for_its_key_holds_up_nothing_else(store: &dyn Database) {
    let blocked = NewRun { priority: 9, ..keyed("a") };
    store.enqueue(vec![keyed("a")]).await.unwrap();
    assert_eq!(taken(store).await, 1);
    store.enqueue(vec![blocked; 20]).await.unwrap();
    let free = put(store, deploy()).await;
    assert_eq!(claim(store, "w2").await.unwrap().run.id(), free.id());
}

// proves X9
pub async fn a_run_by_its_id_waits_for_limits_too(store: &dyn Database) {
    store.enqueue(vec![keyed("a")]).await.unwrap();
    assert_eq!(taken(store).await, 1);
    let waiting = put(store, keyed("a")).await;
    let refused = refusal(store.claim_run(waiting.id().into(), "w1".into()).await);
    assert!(refused.code.is_retryable(), "{refused}");
    assert_eq!(status(store, waiting.id()).await, "queued");
}

// proves X9
pub async fn a_crash_frees_the_slot(store: &dyn Database) {
    store.limit_queue(QUEUE, Some(1)).await.unwrap();
    let lost = begun_run(store, keyed("a")).await;
    let next = put(store, keyed("a")).await;
    assert_eq!(taken(store).await, 0);
    advance(store, 61).await;
    sweep(store).await;
    assert_eq!(status(store, lost.run.id()).await, "failed");
    assert_eq!(claim(store, "w2").await.unwrap().run.id(), next.id());
}

// proves X9 and X5
pub async fn a_taken_over_run_keeps_its_slot(store: &dyn Database) {
    store.limit_queue(QUEUE, Some(1)).await.unwrap();
    let asked = NewRun { concurrency_key: Some("a".into()), ..job(&["s"]) };
    let first = held_run(store, asked).await;
    put(store, job(&["s"])).await;
    advance(store, 61).await;
    let second = claim(store, "w2").await.unwrap();
    assert_eq!(second.run.id(), first.run.id());
    assert!(claim(store, "w3").await.is_none());
}

// proves X9
pub async fn a_paused_queue_gives_nothing_out(store: &dyn Database) {
    let left = held_run(store, job(&["s"])).await;
    release(store, &left).await.unwrap();
    let ready = put(store, deploy()).await;
    let pause = Pause { by: "ann".into(), reason: "deploy freeze".into(), at: None };
    let row = store.pause_queue(QUEUE.into(), Some(pause)).await.unwrap();
    assert_eq!((row.ready, row.held), (2, 0));
    let paused = row.paused.unwrap();
    assert_eq!((paused.by.as_str(), paused.reason.as_str()), ("ann", "deploy freeze"));
    assert!(about(store.now().await.unwrap() - paused.at.unwrap(), 0));
    assert_eq!(taken(store).await, 0);
    for id in [left.run.id(), ready.id()] {
        let refused = refusal(store.claim_run(id.into(), "w1".into()).await);
        assert!(refused.code.is_retryable(), "{refused}");
    }
    assert_eq!(store.pause_queue(QUEUE.into(), None).await.unwrap().paused, None);
    assert_eq!(taken(store).await, 2);
}

pub async fn who_holds_goes_on_in_a_paused_queue(store: &dyn Database) {
    let claimed = held_run(store, deploy()).await;
    let pause = Pause { by: "ann".into(), reason: String::new(), at: None };
    store.pause_queue(QUEUE.into(), Some(pause)).await.unwrap();
    note(store, &claimed, "begun").await.unwrap();
    assert_eq!(finish(store, &claimed, "success").await.unwrap().status(), "success");
    assert_eq!(put(store, deploy()).await.status(), "queued");
}
