//! Tenants are apart, and take turns.

use std::collections::BTreeMap;

use waypost_store::{Claim, Claimed, Database, NewRun, Setting, Who};

use super::kit::*;

fn of(tenant: &str) -> NewRun {
    NewRun { tenant: tenant.into(), ..deploy() }
}

async fn put_many(store: &dyn Database, run: NewRun, count: usize) {
    for answer in store.enqueue(vec![run; count]).await.unwrap() {
        answer.unwrap();
    }
}

async fn set(store: &dyn Database, tenant: &str, setting: Setting) {
    store.configure(setting, Who::new(tenant, "ann", None)).await.unwrap();
}

fn tenants(claimed: &[Claimed]) -> Vec<&str> {
    claimed.iter().map(|it| it.run.tenant.as_str()).collect()
}

/// Whose runs claims of so many take, one after the other.
async fn turns(store: &dyn Database, limit: usize, claims: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for _ in 0..claims {
        let claimed = store.claim(wants("w1", limit)).await.unwrap();
        taken.extend(tenants(&claimed).into_iter().map(str::to_owned));
    }
    taken
}

fn count(taken: &[String], tenant: &str) -> usize {
    taken.iter().filter(|it| *it == tenant).count()
}

// proves X9 and U14
pub async fn who_has_little_is_served_whatever_another_has_waiting(store: &dyn Database) {
    put_many(store, of("a"), 300).await;
    put_many(store, of("b"), 10).await;
    let taken = turns(store, 1, 20).await;
    assert_eq!((count(&taken, "a"), count(&taken, "b")), (10, 10), "{taken:?}");
    assert_eq!(turns(store, 1, 3).await, ["a"; 3], "who is alone has all turns");
}

// proves X9 and U14
pub async fn a_claim_of_many_goes_round_too(store: &dyn Database) {
    put_many(store, of("a"), 300).await;
    put_many(store, of("b"), 10).await;
    let taken = turns(store, 7, 3).await;
    assert_eq!(taken.len(), 21);
    assert!(count(&taken[..20], "b") >= 9, "{taken:?}");
    assert_eq!(count(&taken, "b"), 10);
    assert_eq!(turns(store, 100, 4).await.len(), 289, "all that is left");
}

// proves X9
pub async fn three_take_turns_across_queues(store: &dyn Database) {
    for tenant in ["a", "b", TENANT] {
        for queue in ["x", "y"] {
            put_many(store, NewRun { queue: queue.into(), ..of(tenant) }, 2).await;
        }
    }
    let both = |limit| Claim { queues: vec!["x".into(), "y".into()], ..wants("w1", limit) };
    let mut taken = Vec::new();
    for limit in [1, 1, 2, 5, 3] {
        taken.extend(store.claim(both(limit)).await.unwrap());
    }
    for round in tenants(&taken).chunks(3) {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert_eq!(round, ["a", "b", TENANT], "{:?}", tenants(&taken));
    }
    let mut last: BTreeMap<&str, _> = BTreeMap::new();
    for claimed in &taken {
        let at = (claimed.run.run.available_at, claimed.run.queue.clone());
        let before = last.insert(claimed.run.tenant.as_str(), at.clone());
        assert!(before.is_none_or(|before| before.0 <= at.0), "of a tenant the earliest");
    }
}

// proves X9
pub async fn a_hundred_are_each_served_once_in_a_hundred(store: &dyn Database) {
    let names: Vec<String> = (0..100).map(|at| format!("t{at:02}")).collect();
    for name in &names {
        store.enqueue(vec![of(name), of(name), of(name)]).await.unwrap();
    }
    let mut taken = turns(store, 1, 10).await;
    taken.extend(turns(store, 45, 2).await);
    taken.sort_unstable();
    assert_eq!(taken, names);
    let mut rest = turns(store, 50, 4).await;
    rest.sort_unstable();
    assert!(rest.chunks(2).zip(&names).all(|(two, name)| two == [name.as_str(); 2]), "{rest:?}");
}

// proves X9
pub async fn priority_comes_before_turns_and_each_has_its_own(store: &dyn Database) {
    for tenant in ["a", "b", "c"] {
        put_many(store, of(tenant), 4).await;
    }
    // Whoever has urgent work again and again must not send the others back to the same tenant.
    let mut taken = Vec::new();
    for _ in 0..6 {
        put_many(store, NewRun { priority: 9, ..of("a") }, 1).await;
        let urgent = claim(store, "w1").await.unwrap();
        assert_eq!((urgent.run.priority, urgent.run.tenant.as_str()), (9, "a"));
        taken.extend(turns(store, 1, 1).await);
    }
    assert!(["a", "b", "c"].iter().all(|tenant| count(&taken, tenant) == 2), "{taken:?}");
    put_many(store, NewRun { priority: 9, ..of("b") }, 2).await;
    put_many(store, NewRun { priority: 9, ..of("c") }, 1).await;
    let claimed = store.claim(wants("w1", 6)).await.unwrap();
    assert_eq!(claimed.iter().filter(|it| it.run.priority == 9).count(), 3);
    assert!(claimed[..3].iter().all(|it| it.run.priority == 9), "the urgent ones first");
}

// proves X9
pub async fn claimers_of_other_queues_do_not_take_a_tenants_turn(store: &dyn Database) {
    for (queue, tenants) in [("x", ["a", "b"]), ("y", ["a", "z"])] {
        for tenant in tenants {
            put_many(store, NewRun { queue: queue.into(), ..of(tenant) }, 4).await;
        }
    }
    let only = |queue: &str| Claim { queues: vec![queue.into()], ..wants("w1", 1) };
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.extend(store.claim(only("x")).await.unwrap());
        store.claim(only("y")).await.unwrap();
    }
    let taken: Vec<String> = tenants(&taken).into_iter().map(str::to_owned).collect();
    assert_eq!((count(&taken, "a"), count(&taken, "b")), (2, 2), "{taken:?}");
}

// proves U14
pub async fn a_claim_for_one_takes_its_own_in_their_order(store: &dyn Database) {
    put_many(store, NewRun { priority: 5, ..of("a") }, 20).await;
    put_many(store, of("z"), 20).await;
    put_many(store, NewRun { priority: -1, ..of("b") }, 2).await;
    put_many(store, NewRun { priority: 3, ..of("b") }, 2).await;
    let own = Claim { tenant: Some("b".into()), ..wants("w1", 9) };
    let claimed = store.claim(own).await.unwrap();
    assert_eq!(tenants(&claimed), ["b"; 4]);
    assert_eq!(claimed.iter().map(|it| it.run.priority).collect::<Vec<_>>(), [3, 3, -1, -1]);
    let nobodys = Claim { tenant: Some("c".into()), ..wants("w1", 9) };
    assert!(store.claim(nobodys).await.unwrap().is_empty());
}

// proves U14 and X9
pub async fn pauses_and_limits_of_a_queue_are_one_tenants(store: &dyn Database) {
    put_many(store, of("a"), 5).await;
    put_many(store, of("b"), 3).await;
    set(store, "a", Setting::PauseQueue(QUEUE.into())).await;
    assert_eq!(turns(store, 1, 1).await, ["b"]);
    let paused = store.queues(None).await.unwrap();
    let is_paused: Vec<_> = paused.iter().map(|row| (row.tenant.as_str(), row.paused.is_some())).collect();
    assert_eq!(is_paused, [("a", true), ("b", false)]);
    let own = store.queues(Some("b".into())).await.unwrap();
    assert_eq!((own.len(), own[0].ready, own[0].held), (1, 2, 1));
    set(store, "a", Setting::ResumeQueue(QUEUE.into())).await;
    set(store, "a", Setting::QueueLimit(QUEUE.into(), Some(1))).await;
    let claimed = store.claim(wants("w1", 9)).await.unwrap();
    let mut taken = tenants(&claimed);
    taken.sort_unstable();
    assert_eq!(taken, ["a", "b", "b"], "a full queue of one is nobody else's");
    assert!(claim(store, "w1").await.is_none());
    let first = claimed.iter().find(|it| it.run.tenant == "a").unwrap();
    finish(store, first, "failed").await.unwrap();
    assert_eq!(turns(store, 9, 1).await, ["a"]);
    let every = store.configure(Setting::PauseQueue(QUEUE.into()), Who::new("*", "ann", None)).await;
    // A server is told by a header.
    assert!(["tenant", "Waypost-Tenant"].contains(&&*invalid(every).0));
}

// proves U14 and X9
pub async fn a_key_is_one_tenants(store: &dyn Database) {
    let keyed = |tenant: &str| NewRun { concurrency_key: Some("k".into()), ..of(tenant) };
    put_many(store, keyed("a"), 3).await;
    put_many(store, keyed("b"), 3).await;
    let claimed = store.claim(wants("w1", 9)).await.unwrap();
    let mut taken = tenants(&claimed);
    taken.sort_unstable();
    assert_eq!(taken, ["a", "b"], "each has one slot of its own");
    assert!(claim(store, "w1").await.is_none());
    set(store, "b", Setting::KeyLimit("k".into(), Some(2))).await;
    assert_eq!(turns(store, 9, 1).await, ["b"]);
    let first = claimed.iter().find(|it| it.run.tenant == "a").unwrap();
    finish(store, first, "failed").await.unwrap();
    assert_eq!(turns(store, 9, 1).await, ["a"], "its end lets in its own");
    set(store, "a", Setting::KeyLimit("k".into(), Some(0))).await;
    sweep(store).await;
    assert!(claim(store, "w1").await.is_none());
}

// proves X9
pub async fn who_waits_for_a_key_does_not_lose_its_turn(store: &dyn Database) {
    let keyed = |tenant: &str| NewRun { concurrency_key: Some("k".into()), ..of(tenant) };
    put_many(store, keyed("a"), 4).await;
    put_many(store, of("a"), 2).await;
    put_many(store, of("b"), 6).await;
    let claimed = store.claim(wants("w1", 4)).await.unwrap();
    let taken: Vec<String> = tenants(&claimed).into_iter().map(str::to_owned).collect();
    assert_eq!((count(&taken, "a"), count(&taken, "b")), (2, 2), "{taken:?}");
}

// proves X9
pub async fn what_is_left_behind_in_a_paused_queue_is_one_tenants(store: &dyn Database) {
    let mut ids = Vec::new();
    for tenant in ["a", "b"] {
        let claimed = held_run(store, NewRun { items: vec![item("step", "s")], tenant: tenant.into(), ..new("job") }).await;
        release(store, &claimed).await.unwrap();
        ids.push(claimed.run.id().to_owned());
    }
    set(store, "a", Setting::PauseQueue(QUEUE.into())).await;
    let claimed = store.claim(wants("w2", 9)).await.unwrap();
    assert_eq!(claimed.iter().map(|it| it.run.id()).collect::<Vec<_>>(), [&ids[1]]);
}

// proves U14
pub async fn who_holds_is_told_by_tenant(store: &dyn Database) {
    put_many(store, of("a"), 2).await;
    put_many(store, of("b"), 1).await;
    store.claim(wants("w1", 9)).await.unwrap();
    let all = store.holders(None).await.unwrap();
    let seen: Vec<_> = all.iter().map(|it| (it.worker.as_str(), it.tenant.as_str(), it.held)).collect();
    assert_eq!(seen, [("w1", "a", 2), ("w1", "b", 1)]);
    assert_eq!(store.holders(Some("b".into())).await.unwrap(), all[1..]);
}

// proves X9 and U14
pub async fn several_claimers_at_once_serve_all(store: &dyn Database) {
    put_many(store, of("a"), 200).await;
    put_many(store, of("b"), 10).await;
    let taken: Vec<String> = in_parallel(4, |at| async move {
        let mut taken = Vec::new();
        for _ in 0..10 {
            let claimed = store.claim(wants(&format!("w{at}"), 1)).await.unwrap();
            taken.extend(tenants(&claimed).into_iter().map(str::to_owned));
        }
        taken
    })
    .concat();
    assert_eq!(taken.len(), 40);
    assert_eq!(count(&taken, "b"), 10, "all of them within the first forty");
}
