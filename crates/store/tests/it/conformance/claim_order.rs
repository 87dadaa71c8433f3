//! Which runs are taken, and in which order.

use std::collections::BTreeSet;

use serde_json::json;
use waypost_kernel::{Span, Time};
use waypost_store::{Can, Claim, Claimed, Database, NewRun, Take};

use super::kit::*;

async fn claimed_ids(store: &dyn Database, claim: Claim) -> Vec<String> {
    let claimed = store.claim(claim).await.unwrap();
    claimed.iter().map(|it| it.run.id().to_owned()).collect()
}

async fn put_ids(store: &dyn Database, runs: Vec<NewRun>) -> Vec<String> {
    let answers = store.enqueue(runs).await.unwrap();
    answers.into_iter().map(|answer| answer.unwrap().run.id().to_owned()).collect()
}

// proves D3 and X9
pub async fn the_oldest_comes_first(store: &dyn Database) {
    let mut ids = put_ids(store, vec![deploy(), deploy(), deploy()]).await;
    advance(store, 1).await;
    ids.extend(put_ids(store, vec![deploy()]).await);
    let mut order = Vec::new();
    while let Some(claimed) = claim(store, "w1").await {
        order.push(claimed.run.id().to_owned());
    }
    assert_eq!(order, ids);
}

// proves X9
pub async fn priority_comes_before_age(store: &dyn Database) {
    let with = |priority| NewRun { priority, ..deploy() };
    let ids = put_ids(store, vec![with(0), with(-5), with(9), with(i16::MAX), with(i16::MIN)]).await;
    let order = claimed_ids(store, wants("w1", 9)).await;
    assert_eq!(order, [3, 2, 0, 1, 4].map(|at: usize| ids[at].clone()));
}

/// A claim ends before what it took takes too much memory; what it left comes with the next one, in its order.
pub async fn a_claim_has_no_more_than_fits(store: &dyn Database) {
    let large = |queue: &str| NewRun {
        input: json!("x".repeat(700_000)),
        metadata: serde_json::Map::from_iter([("a".to_owned(), json!("x".repeat(300_000)))]),
        queue: queue.into(),
        ..deploy()
    };
    let ids = put_ids(store, vec![large("a"), large("b"), large("a"), deploy(), large("b"), large("a")]).await;
    let ids: Vec<String> = [0, 1, 2, 4, 5].map(|at: usize| ids[at].clone()).into();
    let claim = |bytes| Claim { queues: vec!["a".into(), "b".into()], bytes, ..wants("w1", 9) };
    let first = store.claim(claim(Some(2_100_000))).await.unwrap();
    let names: Vec<&str> = first.iter().map(|it| it.run.id()).collect();
    assert_eq!(names, ids[..2]);
    for claimed in &first {
        assert_eq!(claimed.run.input.as_str().map(str::len), Some(700_000));
        assert_eq!(claimed.run.metadata["a"].as_str().map(str::len), Some(300_000));
    }
    assert_eq!(claimed_ids(store, claim(Some(1))).await, ids[2..3], "the first always fits");
    assert_eq!(claimed_ids(store, claim(None)).await, ids[3..]);
}

pub async fn what_was_left_behind_is_no_more_than_fits_too(store: &dyn Database) {
    let large = NewRun { input: json!("x".repeat(1_000_000)), ..job(&["a"]) };
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(held_run(store, large.clone()).await);
    }
    for claimed in &held {
        release(store, claimed).await.unwrap();
    }
    let ids: Vec<String> = held.iter().map(|claimed| claimed.run.id().to_owned()).collect();
    let bounded = Claim { bytes: Some(2_100_000), ..wants("w2", 9) };
    assert_eq!(claimed_ids(store, bounded).await, ids[..2]);
    assert_eq!(claimed_ids(store, wants("w2", 9)).await, ids[2..]);
}

// proves X9
pub async fn several_queues_are_one_order(store: &dyn Database) {
    let with = |queue: &str, priority| NewRun { queue: queue.into(), priority, ..deploy() };
    let ids = put_ids(store, vec![with("a", 1), with("b", 2), with("a", 2), with("c", 9), with("b", 1)]).await;
    let order = claimed_ids(store, Claim { queues: vec!["b".into(), "a".into()], ..wants("w1", 9) }).await;
    assert_eq!(order, [1, 2, 0, 4].map(|at: usize| ids[at].clone()));
}

// proves J4 and X6
pub async fn nothing_is_taken_before_its_time(store: &dyn Database) {
    let now = store.now().await.unwrap();
    let finely = now + Span::from_seconds(100) + Span::from_micros(456);
    let later = NewRun { schedule_at: Some(finely), ..deploy() };
    let run = put(store, later).await;
    assert_eq!(run.schedule_at, run.run.available_at);
    assert_eq!(run.schedule_at, Some(Time::from_ms(finely.ms())), "times are kept to the millisecond");
    assert!(claim(store, "w1").await.is_none());
    let refused = refusal(store.claim_run(run.id().into(), "w1".into()).await);
    assert_eq!(refused.code.name(), "NOT_DUE");
    advance(store, 90).await;
    assert!(claim(store, "w1").await.is_none());
    advance(store, 11).await;
    assert_eq!(claim(store, "w1").await.unwrap().run.id(), run.id());
}

// proves X9
pub async fn what_is_due_longest_comes_first(store: &dyn Database) {
    let now = store.now().await.unwrap();
    let at = |seconds| NewRun { schedule_at: Some(now + Span::from_seconds(seconds)), ..deploy() };
    let ids = put_ids(store, vec![at(60), at(30), at(90), at(-60)]).await;
    advance(store, 120).await;
    let order = claimed_ids(store, wants("w1", 9)).await;
    assert_eq!(order, [3, 1, 0, 2].map(|at: usize| ids[at].clone()));
}

pub async fn only_what_was_named_is_taken(store: &dyn Database) {
    let elsewhere = put(store, NewRun { queue: "other".into(), ..deploy() }).await;
    let change = put(store, rule(&["a"])).await;
    let build = put(store, deploy()).await;
    let only = |lifecycle: &str| Claim { lifecycles: vec![lifecycle.into()], ..wants("w1", 9) };
    assert!(claimed_ids(store, Claim { queues: Vec::new(), ..wants("w1", 9) }).await.is_empty());
    assert!(claimed_ids(store, only("agent")).await.is_empty());
    assert_eq!(claimed_ids(store, only("deploy")).await, [build.id()]);
    assert_eq!(claimed_ids(store, wants("w1", 9)).await, [change.id()]);
    let there = Claim { queues: vec!["other".into(), "none".into()], ..wants("w1", 9) };
    assert_eq!(claimed_ids(store, there).await, [elsewhere.id()]);
}

pub async fn as_many_are_taken_as_were_asked_for(store: &dyn Database) {
    put_ids(store, vec![deploy(); 5]).await;
    assert_eq!(claimed_ids(store, wants("w1", 0)).await.len(), 0);
    assert_eq!(claimed_ids(store, wants("w1", 3)).await.len(), 3);
    assert_eq!(claimed_ids(store, wants("w1", 3)).await.len(), 2);
    assert_eq!(claimed_ids(store, wants("w1", 3)).await.len(), 0);
}

// proves X5 and D4
pub async fn a_claim_grants_a_lease(store: &dyn Database) {
    put_ids(store, vec![deploy(), deploy()]).await;
    let taken = store.claim(Claim { lease: Some(Span::from_seconds(30)), ..wants("w7", 2) }).await.unwrap();
    assert_ne!(taken[0].token, taken[1].token);
    for it in &taken {
        let object = get(store, it.run.id()).await.object();
        assert_eq!(object, it.run.object());
        assert_eq!((it.run.status(), it.fence, it.run.run.attempt), ("claimed", 1, 1));
        assert_eq!((&object["claimed_by"], &object["fence"]), (&"w7".into(), &1.into()));
        assert!(about(it.expires_at - it.now, 300), "a deadline, whatever lease was asked for");
        assert_eq!(it.run.run.lease.as_ref().unwrap().until, it.expires_at);
        let event = last_event(store, it.run.id()).await;
        assert_eq!((event.command.as_str(), event.message.as_str()), ("claim", "Run claimed by worker"));
        assert_eq!((event.actor.as_str(), event.by.as_str()), ("worker", "w7"));
        assert!(!object.to_string().contains(&format!("{:x}", it.token.0)), "the token is nobody else's");
    }
}

// proves D4 and D7
pub async fn a_claim_may_begin_the_work(store: &dyn Database) {
    let lease = Some(Span::from_seconds(30));
    put_ids(store, vec![deploy(), deploy()]).await;
    let starting = Claim { lease, start: true, ..wants("w7", 1) };
    let first = store.claim(starting.clone()).await.unwrap().remove(0);
    let rest = store.claim(Claim { start: false, ..starting.clone() }).await.unwrap().remove(0);
    // What another has claimed and given back without beginning.
    release(store, &rest).await.unwrap();
    let second = store.claim(starting).await.unwrap().remove(0);
    let other = put(store, deploy()).await;
    let by_id = Take { lease, start: true, .."w7".into() };
    let third = store.claim_run(other.id().into(), by_id).await.unwrap();
    for (it, fence, taken) in [(&first, 1, "claim"), (&second, 2, "take-over"), (&third, 1, "claim")] {
        assert_eq!(get(store, it.run.id()).await.object(), it.run.object());
        assert_eq!((it.run.status(), it.fence, it.run.run.attempt), ("running", fence, 1));
        assert!(about(it.expires_at - it.now, 30), "the lease, and no deadline any more");
        let events = store.events(it.run.id().into(), 0, 100).await.unwrap();
        let [.., before, last] = &events[..] else { panic!("{events:?}") };
        assert_eq!((before.command.as_str(), last.command.as_str()), (taken, "start"));
        assert_eq!((last.message.as_str(), last.by.as_str()), ("Run started by w7", "w7"));
        assert_eq!((last.from.as_deref(), last.to.as_str()), (Some("claimed"), "running"));
        assert_eq!(before.at, last.at);
        assert_eq!(finish(store, it, "success").await.unwrap().status(), "success");
    }
    let job = put(store, job(&["a"])).await;
    let started = store.claim_run(job.id().into(), Take { start: true, .."w7".into() }).await.unwrap();
    assert_eq!(last_event(store, job.id()).await.command, "claim", "nothing waits to be begun here");
    assert_eq!(started.run.status(), "running");
}

// proves X5
pub async fn what_was_left_behind_comes_before_what_is_new(store: &dyn Database) {
    let urgent = put(store, NewRun { priority: 9, ..job(&["a"]) }).await;
    let first = held_run(store, job(&["a"])).await;
    let second = held_run(store, job(&["a"])).await;
    release(store, &second).await.unwrap();
    advance(store, 1).await;
    release(store, &first).await.unwrap();
    let order = claimed_ids(store, wants("w2", 9)).await;
    assert_eq!(order, [second.run.id(), first.run.id(), urgent.id()]);
}

pub async fn a_worker_has_a_name(store: &dyn Database) {
    let run = put(store, deploy()).await;
    for worker in ["", "a\0b", &"w".repeat(256)] {
        assert_eq!(code(&store.claim(wants(worker, 1)).await), "INVALID_INPUT");
        let taken = store.claim_run(run.id().into(), worker.into()).await;
        assert_eq!(code(&taken), "INVALID_INPUT");
    }
    assert_eq!(status(store, run.id()).await, "queued");
}

pub async fn a_run_is_taken_by_its_id(store: &dyn Database) {
    put(store, deploy()).await;
    let wanted = put(store, deploy()).await;
    let taken = store.claim_run(wanted.id().into(), "w1".into()).await.unwrap();
    assert_eq!((taken.run.id(), taken.run.status()), (wanted.id(), "claimed"));
    let refused = refusal(store.claim_run(wanted.id().into(), "w2".into()).await);
    assert_eq!((refused.code.name(), &*refused.current), ("LEASE_HELD", "claimed"));
    assert_eq!(code(&store.claim_run("run-none".into(), "w1".into()).await), "NOT_FOUND");
}

// proves D3 and X5
pub async fn sixteen_claimers_share_a_thousand_runs(store: &dyn Database) {
    let ids: BTreeSet<String> = put_ids(store, vec![deploy(); 1_000]).await.into_iter().collect();
    let taken = in_parallel(16, |at| async move {
        let mut taken = Vec::new();
        loop {
            let got = claimed_ids(store, wants(&format!("w{at}"), 1 + at % 7)).await;
            if got.is_empty() {
                return taken;
            }
            taken.extend(got);
        }
    });
    let all: Vec<String> = taken.into_iter().flatten().collect();
    assert_eq!(all.len(), 1_000, "none twice");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), ids, "none lost");
}

/// Runs of others are left alone: they keep their place, their attempts and their log, and hold nobody up.
pub async fn a_claimer_takes_only_what_it_can_execute(store: &dyn Database) {
    let of = |playbook: Option<&str>, carried: bool| NewRun {
        playbook: playbook.map(str::to_owned),
        carried: carried.then(|| json!({ "command": ["true"] })),
        ..deploy()
    };
    let mut ids = Vec::new();
    for new in [
        of(Some("b@2"), false),
        of(None, false),
        of(Some("a@1"), false),
        of(None, true),
        of(Some("a@1"), true),
        of(Some("a"), false),
    ] {
        ids.push(put(store, new).await.id().to_owned());
    }
    let who = |worker: &str, playbooks: &[&str], carried: bool| {
        let playbooks = playbooks.iter().map(|name| (*name).to_owned()).collect();
        Claim { can: Some(Can { playbooks, carried }), ..wants(worker, 9) }
    };
    let taken = |claims: &[Claimed]| claims.iter().map(|it| it.run.id().to_owned()).collect::<Vec<_>>();
    let nobody = store.claim(who("w0", &["c@3"], false)).await.unwrap();
    assert!(nobody.is_empty(), "{nobody:?}");
    let first = store.claim(Claim { limit: 1, ..who("w1", &["a", "a@1"], false) }).await.unwrap();
    assert_eq!(taken(&first), [ids[2].clone()]);
    let rest = store.claim(who("w1", &["a", "a@1"], false)).await.unwrap();
    assert_eq!(taken(&rest), [ids[4].clone(), ids[5].clone()]);
    // A lease that is given back is theirs who can, too.
    assert!(release(store, &first[0]).await.is_ok());
    assert_eq!(taken(&store.claim(who("w2", &["b@2"], true)).await.unwrap()), [ids[0].clone(), ids[3].clone()]);
    let again = store.claim(who("w3", &["a@1"], false)).await.unwrap();
    assert_eq!(taken(&again), [ids[2].clone()]);
    assert_eq!(get(store, &ids[1]).await.run.seq, 1, "nobody touched it");
    assert_eq!(taken(&store.claim(wants("w4", 9)).await.unwrap()), [ids[1].clone()]);
    check(store).await;
}

// proves X4
pub async fn a_claim_that_is_sent_again_brings_the_same_runs(store: &dyn Database) {
    // What came last is taken first.
    let runs = (0..3).map(|priority| NewRun { priority, ..deploy() });
    put_ids(store, runs.collect()).await;
    let asked = Claim { idempotency_key: Some("c1".into()), ..wants("w7", 2) };
    let first = store.claim(asked.clone()).await.unwrap();
    let again = store.claim(asked.clone()).await.unwrap();
    let leases = |claims: &[Claimed]| -> Vec<_> {
        claims.iter().map(|it| (it.run.id().to_owned(), it.token.0, it.fence)).collect()
    };
    assert_eq!((first.len(), leases(&again)), (2, leases(&first)), "in the same order");
    // Another worker's key, and another key, are other claims.
    let other = store.claim(Claim { worker: "w8".into(), ..asked.clone() }).await.unwrap();
    assert_eq!(other.len(), 1);
    assert!(store.claim(Claim { idempotency_key: Some("c2".into()), ..asked.clone() }).await.unwrap().is_empty());
    // What is not held any more is not given again.
    finish(store, &first[0], "success").await.unwrap();
    let left = store.claim(asked.clone()).await.unwrap();
    assert_eq!(leases(&left), leases(&first[1..]));
    finish(store, &first[1], "success").await.unwrap();
    put(store, deploy()).await;
    assert_eq!(store.claim(asked.clone()).await.unwrap().len(), 1, "all are done with: it is a new claim");
    let wrong = Claim { idempotency_key: Some(String::new()), ..asked };
    assert_eq!(store.claim(wrong).await.unwrap_err().code(), "INVALID_INPUT");
}
