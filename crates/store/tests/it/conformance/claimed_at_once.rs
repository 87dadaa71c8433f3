//! A run that comes in and is claimed in one transaction; and one that would come in.

use waypost_kernel::{Phase, Span};
use waypost_store::{
    CommandWrite, CommandedClaim, Database, EnqueuedClaim, FinishWrite, NewItem, NewRun, StoreError, Take,
};
use waypost_testkit::Shorthand;

use super::kit::*;

async fn start(store: &dyn Database, new: NewRun) -> EnqueuedClaim {
    let take = Take { worker: "w1".into(), lease: Some(Span::from_seconds(60)), start: true };
    store.enqueue_claimed(new, take).await.unwrap()
}

/// One that other workers wait for is not seen by them, and its log is that of any other.
// proves U9
pub async fn nobody_else_can_take_it_first(store: &dyn Database) {
    for new in [deploy(), job(&["build"])] {
        let EnqueuedClaim { enqueued, claimed } = start(store, new).await;
        let claimed = claimed.expect("a lease");
        assert!(!enqueued.replayed);
        assert_eq!(enqueued.run.id(), claimed.run.id());
        assert_eq!(enqueued.run.status(), "running", "it has begun");
        assert_eq!(claimed.run.run.lease.as_ref().unwrap().worker.as_deref(), Some("w1"));
        assert!(claim(store, "w2").await.is_none(), "there is nothing for others");
        let events = store.events(claimed.run.id().into(), 0, 10).await.unwrap();
        assert_eq!((events[0].command.as_str(), events[0].from.as_deref()), ("create", None));
        assert_eq!((events[1].command.as_str(), events[1].by.as_str()), ("claim", "w1"));
        note(store, &claimed, "it is mine").await.unwrap();
    }
}

// proves U9
pub async fn without_room_it_waits_like_any_other(store: &dyn Database) {
    store.limit_queue(QUEUE, Some(1)).await.unwrap();
    let first = start(store, deploy()).await.claimed.expect("a lease");
    let EnqueuedClaim { enqueued, claimed } = start(store, deploy()).await;
    assert!(claimed.is_none(), "the queue is at its limit");
    assert_eq!(enqueued.run.status(), "queued");
    finish(store, &first, "failed").await.unwrap();
    assert_eq!(claim(store, "w2").await.unwrap().run.id(), enqueued.run.id(), "its turn comes");
    let keyed = || NewRun { queue: "other".into(), concurrency_key: Some("k".into()), ..deploy() };
    assert!(start(store, keyed()).await.claimed.is_some());
    assert!(start(store, keyed()).await.claimed.is_none(), "one at a time");
    let later =
        NewRun { schedule_at: Some(store.now().await.unwrap() + Span::from_seconds(HOUR)), ..deploy() };
    assert!(start(store, later).await.claimed.is_none(), "it is not due");
}

// proves U9 and X7
pub async fn a_known_key_gives_its_run_and_nobody_elses_lease(store: &dyn Database) {
    let keyed = || NewRun { idempotency_key: Some("k".into()), ..deploy() };
    let first = start(store, keyed()).await;
    let again = store.enqueue_claimed(keyed(), "w2".into()).await.unwrap();
    assert!(again.enqueued.replayed && again.claimed.is_none());
    assert_eq!(again.enqueued.run.id(), first.enqueued.run.id());
    let other = NewRun { priority: 3, ..keyed() };
    let refused = store.enqueue_claimed(other, "w1".into()).await;
    assert!(matches!(refused, Err(StoreError::KeyReused { .. })), "{refused:?}");
}

/// Nobody takes a run between the command that lets it go on and the claim of whoever gave it.
// proves U9
pub async fn a_command_and_the_claim_after_it_are_one(store: &dyn Database) {
    let take = |worker: &str| Take { worker: worker.into(), lease: Some(Span::from_seconds(60)), start: true };
    let paused = held_run(store, job(&["build"])).await;
    write_finish(store, FinishWrite { reason: Some("look".into()), ..ending(&paused, "paused") }).await.unwrap();
    let resume = || CommandWrite { force: true, ..asking(paused.run.id(), "resume") };
    let CommandedClaim { run, claimed } = store.command_claimed(resume(), take("w9")).await.unwrap();
    let claimed = claimed.expect("a lease");
    assert_eq!((run.status(), claimed.run.run.lease.as_ref().unwrap().worker.as_deref()), ("running", Some("w9")));
    assert!(claim(store, "w2").await.is_none(), "there is nothing for others");
    let again = store.command_claimed(resume(), take("w9")).await.unwrap();
    assert_eq!(again.claimed.map(|it| it.token), Some(claimed.token), "asked again, it has the same lease");
    let other = store.command_claimed(resume(), take("w2")).await.unwrap();
    assert!(other.claimed.is_none(), "nobody else has");
    // Where there is nothing to claim, the command alone is carried out; a refused one claims nothing.
    let ended = store.command_claimed(asking(put(store, deploy()).await.id(), "cancel"), take("w9")).await.unwrap();
    assert!(ended.claimed.is_none() && ended.run.status() == "cancelled");
    let queued = put(store, deploy()).await;
    let refused = store.command_claimed(asking(queued.id(), "resume"), take("w9")).await;
    assert_eq!(code(&refused), "INVALID_TRANSITION");
    assert_eq!(claim(store, "w2").await.unwrap().run.id(), queued.id());
    let nameless = store.command_claimed(asking(queued.id(), "cancel"), take("")).await;
    assert!(matches!(nameless, Err(StoreError::Invalid { .. })), "{nameless:?}");
    assert_eq!(get(store, queued.id()).await.phase(), Phase::Held, "nothing was done");
}

// proves U1
pub async fn a_dry_run_refuses_what_a_start_refuses_and_writes_nothing(store: &dyn Database) {
    let keyed = |key: &str| NewRun { idempotency_key: Some(key.into()), ..deploy() };
    let made = put(store, keyed("k")).await;
    let copy = NewItem { copied: true, ..item("step", "a") };
    let asked = [
        new("nothing"),
        NewRun { version: Some(99), ..deploy() },
        NewRun { status: Some("running".into()), ..deploy() },
        NewRun { queue: String::new(), ..deploy() },
        NewRun { items: vec![item("step", "a"), item("step", "a")], ..new("job") },
        NewRun { items: vec![item("target", "a")], ..new("job") },
        NewRun { items: vec![copy.clone()], ..new("job") },
        NewRun { items: vec![copy], retry_of: Some("none".into()), ..new("job") },
        NewRun { priority: 3, ..keyed("k") },
        NewRun { idempotency_key: Some("waypost:x".into()), ..deploy() },
    ];
    for new in asked {
        let words = |error: StoreError| error.to_string();
        let expected = try_put(store, new.clone()).await.map(|_| ()).map_err(words);
        let dry = store.dry_run(new.clone()).await.map(|_| ()).map_err(words);
        assert!(expected.is_err(), "{new:?}");
        assert_eq!(dry, expected, "{new:?}");
    }
    assert_eq!(store.dry_run(keyed("k")).await.unwrap().as_deref(), Some(made.id()));
    assert_eq!(store.dry_run(keyed("another")).await.unwrap(), None);
    assert_eq!(store.dry_run(job(&["a"])).await.unwrap(), None);
    let all =
        store.runs(waypost_store::Filter { tenant: TENANT.into(), limit: 10, ..Default::default() }).await;
    assert_eq!(all.unwrap().runs.len(), 1, "nothing was written");
}

/// The answer may have been lost: without the lease nobody could work the run before that ends.
// proves U9 and X7
pub async fn whoever_asks_again_has_the_same_lease_while_it_lasts(store: &dyn Database) {
    let keyed = || NewRun { idempotency_key: Some("k".into()), ..deploy() };
    let first = start(store, keyed()).await.claimed.expect("a lease");
    let again = start(store, keyed()).await;
    let lease = again.claimed.expect("the same lease");
    assert!(again.enqueued.replayed);
    assert_eq!((lease.token, lease.fence, lease.run.id()), (first.token, first.fence, first.run.id()));
    finish(store, &lease, "success").await.unwrap();
    assert!(start(store, keyed()).await.claimed.is_none(), "it has ended");
    let other = || NewRun { idempotency_key: Some("k2".into()), ..deploy() };
    start(store, other()).await.claimed.expect("a lease");
    advance(store, 61).await;
    assert!(start(store, other()).await.claimed.is_none(), "the lease is over");
}
