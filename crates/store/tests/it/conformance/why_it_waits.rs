//! Why runs wait, and who works.

use waypost_kernel::Span;
use waypost_kernel::waiting::{Reason, Waiting};
use waypost_store::{Can, Claim, Database, Filter, NewRun, RunRow, Setting, WorkerBeat};

use super::kit::*;

fn worker(name: &str, slots: u64) -> WorkerBeat {
    WorkerBeat {
        name: name.into(),
        queues: vec![QUEUE.into()],
        can: Some(Can { playbooks: vec!["build".into()], carried: false }),
        slots,
        version: "1".into(),
        ..WorkerBeat::default()
    }
}

fn build() -> NewRun {
    NewRun { playbook: Some("build".into()), ..deploy() }
}

async fn why(store: &dyn Database, row: &RunRow) -> Option<Waiting> {
    let row = store.run(row.tenant.clone(), row.id().into()).await.unwrap();
    store.explain(vec![row]).await.unwrap().remove(0).waiting().cloned()
}

async fn reason(store: &dyn Database, row: &RunRow) -> Option<Reason> {
    why(store, row).await.map(|waiting| waiting.reason)
}

// proves U2: a draft that the engine sends on waits for a process that does
pub async fn what_nobody_acknowledges_says_so(store: &dyn Database) {
    let run = put(store, NewRun { lifecycle: "agent".into(), ..NewRun::default() }).await;
    assert_eq!(reason(store, &run).await, None, "it takes seconds");
    advance(store, 6).await;
    let waiting = why(store, &run).await.unwrap();
    assert_eq!(waiting.reason, Reason::Unacknowledged);
    assert!(waiting.text.contains("acknowledged"), "{}", waiting.text);
}

// proves U2
pub async fn each_reason_is_told_and_the_first_that_applies(store: &dyn Database) {
    let run = put(store, build()).await;
    assert_eq!(reason(store, &run).await, Some(Reason::NoWorker), "nobody works its queue");
    let other = WorkerBeat { queues: vec!["other".into()], ..worker("elsewhere", 1) };
    store.beat(other).await.unwrap();
    assert_eq!(reason(store, &run).await, Some(Reason::NoWorker), "nor does one of another queue");
    let can = Some(Can { playbooks: vec!["test".into()], carried: true });
    store.beat(WorkerBeat { can, ..worker("unfit", 1) }).await.unwrap();
    let waiting = why(store, &run).await.unwrap();
    assert_eq!(waiting.reason, Reason::NoPlaybook);
    assert!(waiting.text.contains("has build"), "{}", waiting.text);
    store.beat(worker("w", 1)).await.unwrap();
    assert_eq!(why(store, &run).await, None, "it is about to be taken");
    let held = store.claim(wants("w", 1)).await.unwrap().remove(0);
    assert_eq!(why(store, &run).await, None, "it is worked");
    let [first, second] = [put(store, build()).await, put(store, build()).await];
    let texts = [why(store, &first).await.unwrap(), why(store, &second).await.unwrap()];
    assert!(texts.iter().all(|it| it.reason == Reason::SlotsBusy), "{texts:?}");
    assert!(texts[0].text.ends_with("it is next") && texts[1].text.ends_with("1 before it"), "{texts:?}");
    store.configure(Setting::QueueLimit(QUEUE.into(), Some(1)), "kim".into()).await.unwrap();
    let waiting = why(store, &first).await.unwrap();
    assert_eq!(waiting.reason, Reason::QueueLimit);
    assert!(waiting.text.contains(held.run.id()), "who holds it: {}", waiting.text);
    let frozen = waypost_store::Who::new(TENANT, "kim", Some("freeze".into()));
    store.configure(Setting::PauseQueue(QUEUE.into()), frozen).await.unwrap();
    let waiting = why(store, &first).await.unwrap();
    assert_eq!(waiting.reason, Reason::QueuePaused);
    assert!(waiting.text.contains("kim") && waiting.text.ends_with("freeze"), "{}", waiting.text);
    assert_eq!(waiting.hint.as_deref(), Some("waypost queue resume default"));
}

// proves U2
pub async fn a_key_that_is_held_is_told_with_its_holder(store: &dyn Database) {
    let keyed = || NewRun { concurrency_key: Some("prod".into()), ..build() };
    store.beat(worker("w", 4)).await.unwrap();
    let first = put(store, keyed()).await;
    store.claim(wants("w", 1)).await.unwrap();
    let second = put(store, keyed()).await;
    let waiting = why(store, &second).await.unwrap();
    assert_eq!(waiting.reason, Reason::KeyLimit);
    assert!(waiting.text.contains("prod") && waiting.text.contains(first.id()), "{}", waiting.text);
    store.configure(Setting::KeyLimit("prod".into(), Some(2)), "kim".into()).await.unwrap();
    assert_eq!(reason(store, &second).await, None);
}

// proves U2: what waits for a key that is held is passed over, whether a claim has met it or not
pub async fn who_waits_for_a_key_is_in_nobodys_way(store: &dyn Database) {
    let keyed = || NewRun { concurrency_key: Some("prod".into()), ..build() };
    store.beat(worker("w", 1)).await.unwrap();
    let held = put(store, keyed()).await;
    let unmet = put(store, keyed()).await;
    let claimed = store.claim(wants("w", 1)).await.unwrap().remove(0);
    assert_eq!(claimed.run.id(), held.id());
    put(store, keyed()).await;
    let [first, second] = [put(store, build()).await, put(store, build()).await];
    let says = async |row: &RunRow, end: &str| {
        let waiting = why(store, row).await.unwrap();
        assert!(waiting.text.ends_with(end), "{end}: {}", waiting.text);
    };
    assert_eq!(reason(store, &unmet).await, Some(Reason::KeyLimit));
    says(&first, "it is next").await;
    says(&second, "1 before it").await;
    store.configure(Setting::KeyLimit("prod".into(), Some(2)), "kim".into()).await.unwrap();
    says(&first, "1 before it").await;
    says(&second, "2 before it").await;
    store.configure(Setting::KeyLimit("prod".into(), Some(3)), "kim".into()).await.unwrap();
    says(&first, "2 before it").await;
    let row = store.run(TENANT.into(), second.id().into()).await.unwrap();
    assert_eq!(store.explain(vec![row]).await.unwrap()[0].queue_position, Some(4));
}

// proves U2
pub async fn what_is_for_later_or_for_people_says_so(store: &dyn Database) {
    let now = store.now().await.unwrap();
    let later = put(store, NewRun { schedule_at: Some(now + Span::from_seconds(HOUR)), ..build() }).await;
    assert_eq!(reason(store, &later).await, Some(Reason::Scheduled));
    let claimed = begun_run(store, job(&["a"])).await;
    advance(store, 60).await;
    let mut paused = ending(&claimed, "paused");
    paused.reason = Some("look at esx2".into());
    let parked = write_finish(store, paused).await.unwrap();
    let waiting = why(store, &parked).await.unwrap();
    assert_eq!(waiting.reason, Reason::Person);
    assert!(waiting.text.ends_with("look at esx2"), "{}", waiting.text);
    assert!(waiting.since >= now + Span::from_seconds(59), "since it was parked: {}", waiting.since);
    let draft = put(store, new("rule")).await;
    assert_eq!(reason(store, &draft).await, Some(Reason::Person), "a draft");
    let proposal = put(store, new("proposal")).await;
    assert_eq!(why(store, &proposal).await.unwrap().text, "waits for a decision", "nothing is sent on");
    let done = command(store, later.id(), "cancel").await.unwrap();
    assert_eq!(why(store, &done).await, None, "what has ended waits for nothing");
}

// proves U2
pub async fn a_run_whose_worker_is_gone_is_orphaned(store: &dyn Database) {
    let claimed = begun_run(store, job(&["a"])).await;
    assert_eq!(reason(store, &claimed.run).await, None);
    advance(store, 120).await;
    let waiting = why(store, &claimed.run).await.unwrap();
    assert_eq!(waiting.reason, Reason::Orphaned);
    assert!(waiting.text.contains("its worker w1 gave no sign of life since"), "{}", waiting.text);
    assert!(waiting.since < store.now().await.unwrap());
    let other = begun_run(store, job(&["a"])).await;
    release(store, &other).await.unwrap();
    assert_eq!(reason(store, &other.run).await, Some(Reason::NoWorker), "given back, and nobody is there");
    let taker = WorkerBeat { can: None, ..worker("w2", 3) };
    store.beat(taker).await.unwrap();
    assert_eq!(why(store, &other.run).await, None, "it is about to be taken");
    let waiting = why(store, &claimed.run).await.unwrap();
    assert!(waiting.text.contains("the next free worker takes it over"), "{}", waiting.text);
}

// proves U2: who let a lease run out is no free slot for others, though it was seen a moment ago
pub async fn who_let_a_lease_run_out_is_gone(store: &dyn Database) {
    store.beat(worker("w", 1)).await.unwrap();
    let short = Claim { lease: Some(Span::from_seconds(2)), start: true, ..wants("w", 1) };
    put(store, build()).await;
    store.claim(short).await.unwrap().remove(0);
    let other = put(store, build()).await;
    assert_eq!(reason(store, &other).await, Some(Reason::SlotsBusy));
    advance(store, 3).await;
    assert_eq!(reason(store, &other).await, Some(Reason::NoWorker));
    store.beat(worker("w", 1)).await.unwrap();
    assert_eq!(reason(store, &other).await, Some(Reason::SlotsBusy), "it is there after all");
}

pub async fn workers_list_no_more_than_whoever_explains_can_hold(store: &dyn Database) {
    let queues: Vec<_> = (0..900).map(|at| format!("a-queue-of-rather-many-characters-fifty-six-of-them-{at:05}")).collect();
    let many = |at: i32| WorkerBeat { queues: queues.clone(), ..worker(&format!("w{at}"), 1) };
    for at in (0..19).chain(0..19) {
        store.beat(many(at)).await.unwrap();
    }
    let refused = store.beat(many(19)).await.unwrap_err();
    assert!(refused.to_string().contains("up to 1048576"), "{refused}");
    store.beat(WorkerBeat { tenant: Some("bank".into()), ..many(19) }).await.unwrap();
}

// proves U2
pub async fn a_page_is_explained_at_once(store: &dyn Database) {
    for at in 0..30 {
        put(store, NewRun { queue: format!("q{}", at % 3), ..build() }).await;
    }
    let queues = (0..3).map(|at| format!("q{at}")).collect::<Vec<_>>();
    store.beat(WorkerBeat { queues: queues.clone(), ..worker("w", 1) }).await.unwrap();
    store.claim(Claim { queues, ..wants("w", 1) }).await.unwrap();
    let page = store.runs(Filter { tenant: TENANT.into(), limit: 100, ..Filter::default() }).await.unwrap();
    let explained = store.explain(page.runs).await.unwrap();
    let waiting: Vec<_> = explained.iter().filter_map(RunRow::waiting).collect();
    assert_eq!(waiting.len(), 29, "all but the one that is held");
    assert!(waiting.iter().all(|it| it.reason == Reason::SlotsBusy), "{waiting:?}");
    assert_eq!(waiting.iter().filter(|it| it.text.ends_with("it is next")).count(), 3, "one of each queue");
}

// proves U2 and U14
pub async fn a_tenants_own_workers_and_those_of_all_count(store: &dyn Database) {
    let run = put(store, NewRun { tenant: "shop".into(), ..build() }).await;
    store.beat(WorkerBeat { tenant: Some("bank".into()), ..worker("theirs", 1) }).await.unwrap();
    let waiting = why(store, &run).await.unwrap();
    assert_eq!(waiting.reason, Reason::NoWorker, "another tenant's worker");
    assert!(waiting.hint.unwrap().ends_with("--tenant shop"));
    store.beat(worker("all", 1)).await.unwrap();
    assert_eq!(reason(store, &run).await, None);
    let names = |rows: Vec<waypost_store::WorkerRow>| rows.into_iter().map(|it| it.name).collect::<Vec<_>>();
    assert_eq!(names(store.workers(None).await.unwrap()), ["all", "theirs"]);
    assert_eq!(names(store.workers(Some("bank".into())).await.unwrap()), ["theirs"]);
    assert!(store.workers(Some("shop".into())).await.unwrap().is_empty());
}

// proves U2
pub async fn workers_are_known_by_their_signs_of_life(store: &dyn Database) {
    store.beat(worker("w", 4)).await.unwrap();
    let began = store.workers(None).await.unwrap().remove(0);
    assert_eq!((began.slots, began.busy, began.tenant.as_str()), (Some(4), 0, "*"));
    advance(store, 20).await;
    store.beat(worker("w", 4)).await.unwrap();
    let row = store.workers(None).await.unwrap().remove(0);
    assert_eq!(row.started_at, began.started_at);
    assert!(row.seen_at > began.seen_at && row.is_live(store.now().await.unwrap()));
    // What its claims tell does not replace what it said.
    let told = WorkerBeat { slots: 1, by_claims: true, ..worker("w", 1) };
    store.beat(told.clone()).await.unwrap();
    assert_eq!(store.workers(None).await.unwrap().remove(0).slots, Some(4));
    store.beat(WorkerBeat { name: "curl".into(), ..told }).await.unwrap();
    put(store, deploy()).await;
    store.claim(wants("curl", 1)).await.unwrap();
    let curl = store.workers(None).await.unwrap().remove(0);
    assert_eq!((curl.name.as_str(), curl.slots, curl.busy), ("curl", Some(2), 1), "one free beside the held");
    advance(store, 60).await;
    let run = put(store, build()).await;
    assert_eq!(reason(store, &run).await, Some(Reason::NoWorker), "silent for a minute");
    store.remove_worker("w".into(), None).await.unwrap();
    store.remove_worker("w".into(), None).await.unwrap();
    advance(store, 700).await;
    let left = store.workers(None).await.unwrap();
    assert_eq!(left.len(), 1, "who holds a run is there for as long as it does: {left:?}");
    assert_eq!((left[0].name.as_str(), left[0].slots), ("curl", None));
}

pub async fn a_sign_of_life_that_is_wrong_is_refused(store: &dyn Database) {
    for bad in [
        WorkerBeat { name: String::new(), ..worker("w", 1) },
        WorkerBeat { name: "a\0".into(), ..worker("w", 1) },
        WorkerBeat { tenant: Some("a/b".into()), ..worker("w", 1) },
        WorkerBeat { queues: vec!["q\0".into()], ..worker("w", 1) },
        WorkerBeat { only: Some("x".repeat(10_000)), ..worker("w", 1) },
        WorkerBeat { slots: 0, ..worker("w", 1) },
    ] {
        assert!(matches!(store.beat(bad.clone()).await, Err(waypost_store::StoreError::Invalid { .. })), "{bad:?}");
    }
    assert!(store.workers(None).await.unwrap().is_empty());
}
