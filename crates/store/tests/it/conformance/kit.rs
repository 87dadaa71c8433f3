//! Short words for what the tests ask of a store.

use std::future::Future;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use waypost_kernel::request::Level;
use waypost_kernel::{Phase, Refusal, Span, Time};
use waypost_store::{
    Begin, Begun, Birth, Claim, Claimed, CommandWrite, Database, Enqueued, EventRow, Filter, FinishWrite,
    Firing, Held, ItemRow, ItemWrite, ItemsWrite, NewItem, NewRun, NoteWrite, Noted, ReleaseWrite, Repeat,
    Result, RunRow, ScheduleWrite, StoreError, Swept, Wait,
};

use super::schedules::every;

/// What a scheduler does about a schedule's only plan: it fires it, or if that was done, takes up the execution. The run's key
/// begins with `waypost:schedule:`, as a scheduler's do: by that databases know runs that have an execution.
pub async fn claim_plan(
    store: &dyn Database,
    schedule: &str,
    run: NewRun,
    lease: Span,
) -> Result<Option<Claimed>> {
    let write = ScheduleWrite { carried: false, ..every("1m", schedule, &["a"]) };
    let (schedule, kind, id) = (write.name.clone(), write.kind.clone(), "a".to_owned());
    store.put_schedule(write).await?;
    let (plan, by) = (Time::from_ms(1_771_034_400_000), run.by.clone());
    let birth = Birth { run, lease: Some(lease) };
    let firing = Firing {
        schedule: schedule.clone(),
        kind: kind.clone(),
        id: id.clone(),
        through: Some(plan),
        wake_at: Some(plan),
        plans: vec![(plan, birth.clone())],
        ..Firing::default()
    };
    let begun = match store.fire(vec![firing]).await?.remove(0)? {
        Some(mut begun) => begun.pop(),
        None => store.begin(Begin { schedule, kind, id, plan, birth, by, alone: false }).await?,
    };
    Ok(begun.map(|begun| match begun {
        Begun::Held(_, claimed) => *claimed,
        Begun::Queued(..) => panic!("{begun:?} has a lease"),
    }))
}

pub const TENANT: &str = "default";
pub const QUEUE: &str = "default";
pub const HOUR: i64 = 3_600;
pub const DAY: i64 = 24 * HOUR;

pub fn new(lifecycle: &str) -> NewRun {
    NewRun { lifecycle: lifecycle.into(), ..NewRun::default() }
}

pub fn deploy() -> NewRun {
    new("deploy")
}

pub fn item(kind: &str, key: &str) -> NewItem {
    NewItem::new(kind, key)
}

pub fn job(steps: &[&str]) -> NewRun {
    NewRun { items: steps.iter().map(|key| item("step", key)).collect(), ..new("job") }
}

/// Queued at once.
pub fn rule(targets: &[&str]) -> NewRun {
    let target = |key: &&str| NewItem { status: Some("QUEUED".into()), ..item("target", key) };
    NewRun { status: Some("QUEUED".into()), items: targets.iter().map(target).collect(), ..new("rule") }
}

pub fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("no object: {other}"),
    }
}

pub async fn try_put(store: &dyn Database, new: NewRun) -> Result<Enqueued> {
    store.enqueue(vec![new]).await.unwrap().pop().unwrap()
}

pub async fn put(store: &dyn Database, new: NewRun) -> RunRow {
    try_put(store, new).await.unwrap().run
}

pub fn wants(worker: &str, limit: usize) -> Claim {
    Claim { worker: worker.into(), queues: vec![QUEUE.into()], limit, ..Claim::default() }
}

pub async fn claim(store: &dyn Database, worker: &str) -> Option<Claimed> {
    store.claim(wants(worker, 1)).await.unwrap().pop()
}

/// A new run, held by `w1`.
pub async fn held_run(store: &dyn Database, new: NewRun) -> Claimed {
    let run = put(store, new).await;
    store.claim_run(run.id().into(), "w1".into()).await.unwrap()
}

/// A new run whose worker has begun.
pub async fn begun_run(store: &dyn Database, new: NewRun) -> Claimed {
    let claimed = held_run(store, new).await;
    note(store, &claimed, "begun").await.unwrap();
    claimed
}

pub fn held(claimed: &Claimed) -> Held {
    Held { run_id: claimed.run.id().into(), token: claimed.token }
}

pub fn saying(claimed: &Claimed, message: &str) -> NoteWrite {
    NoteWrite {
        held: held(claimed),
        by: "w1".into(),
        level: Level::Info,
        message: message.into(),
        payload: Value::Object(Map::new()),
        repeat: Repeat::Never,
        metadata: Map::new(),
        details: Map::new(),
    }
}

pub async fn write_note(store: &dyn Database, note: NoteWrite) -> Result<Noted> {
    store.note(vec![note]).await.unwrap().pop().unwrap()
}

pub async fn note(store: &dyn Database, claimed: &Claimed, message: &str) -> Result<Noted> {
    write_note(store, saying(claimed, message)).await
}

pub fn ending(claimed: &Claimed, status: &str) -> FinishWrite {
    FinishWrite {
        run_id: claimed.run.id().into(),
        token: Some(claimed.token),
        by: "w1".into(),
        status: status.into(),
        ..FinishWrite::default()
    }
}

pub async fn write_finish(store: &dyn Database, finish: FinishWrite) -> Result<RunRow> {
    store.finish(vec![finish]).await.unwrap().pop().unwrap()
}

pub async fn finish(store: &dyn Database, claimed: &Claimed, status: &str) -> Result<RunRow> {
    write_finish(store, ending(claimed, status)).await
}

pub async fn renew(store: &dyn Database, claimed: &Claimed) -> Result<waypost_store::Renewed> {
    store.renew(vec![held(claimed)]).await.unwrap().pop().unwrap()
}

pub async fn release(store: &dyn Database, claimed: &Claimed) -> Result<RunRow> {
    store.release(vec![held(claimed).into()]).await.unwrap().pop().unwrap()
}

/// Gives the run back until the clock has gone on so far.
pub async fn wait(store: &dyn Database, claimed: &Claimed, seconds: i64) -> Result<RunRow> {
    let wait = Wait { until: claimed.now + Span::from_seconds(seconds), reason: Wait::WINDOW.to_owned() };
    let write = ReleaseWrite { held: held(claimed), wait: Some(wait) };
    store.release(vec![write]).await.unwrap().pop().unwrap()
}

pub fn asking(run_id: &str, name: &str) -> CommandWrite {
    CommandWrite {
        tenant: TENANT.into(),
        run_id: run_id.into(),
        name: name.into(),
        by: "ann".into(),
        ..CommandWrite::default()
    }
}

pub async fn command(store: &dyn Database, run_id: &str, name: &str) -> Result<RunRow> {
    store.command(asking(run_id, name)).await
}

pub fn moving(kind: &str, key: &str, status: &str) -> ItemWrite {
    ItemWrite { kind: kind.into(), key: key.into(), status: status.into(), ..ItemWrite::default() }
}

pub async fn write_items(
    store: &dyn Database,
    claimed: &Claimed,
    items: Vec<ItemWrite>,
) -> Result<Vec<ItemRow>> {
    store.put_items(ItemsWrite { held: held(claimed), by: "w1".into(), items }).await
}

pub async fn move_items(
    store: &dyn Database,
    claimed: &Claimed,
    kind: &str,
    moves: &[(&str, &str)],
) -> Result<Vec<ItemRow>> {
    let items = moves.iter().map(|(key, status)| moving(kind, key, status)).collect();
    write_items(store, claimed, items).await
}

/// `["a=pending", …]`
pub async fn items(store: &dyn Database, run_id: &str) -> Vec<String> {
    let rows = store.items(run_id.into(), None).await.unwrap();
    rows.iter().map(|row| format!("{}={}", row.key, row.status)).collect()
}

pub async fn get(store: &dyn Database, run_id: &str) -> RunRow {
    let row = store.run(TENANT.into(), run_id.into()).await.unwrap();
    // A server says with each run why it waits, which is no part of the row.
    RunRow { waits: None, ..row }
}

/// None of a lifecycle that is not there. A server tells who mistyped its name.
pub async fn found(store: &dyn Database, filter: Filter) -> Vec<RunRow> {
    match store.runs(filter).await {
        Err(StoreError::Invalid { field, .. }) if field == "lifecycle" => Vec::new(),
        page => page.unwrap().runs,
    }
}

pub async fn status(store: &dyn Database, run_id: &str) -> String {
    get(store, run_id).await.status().to_owned()
}

pub async fn events(store: &dyn Database, run_id: &str) -> Vec<EventRow> {
    let mut all: Vec<EventRow> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.seq);
        let page = store.events(run_id.into(), after, 500).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

pub async fn commands(store: &dyn Database, run_id: &str) -> Vec<String> {
    events(store, run_id).await.into_iter().map(|event| event.command).collect()
}

pub async fn last_event(store: &dyn Database, run_id: &str) -> EventRow {
    events(store, run_id).await.pop().unwrap()
}

pub async fn advance(store: &dyn Database, seconds: i64) {
    store.advance_clock(Span::from_seconds(seconds)).await.unwrap();
}

pub async fn sweep(store: &dyn Database) -> Swept {
    store.sweep("sweeper".into(), 100).await.unwrap()
}

/// The code of a refusal or error; `OK` if there is none.
pub fn code<T>(answer: &Result<T>) -> &'static str {
    answer.as_ref().err().map_or("OK", StoreError::code)
}

pub fn refusal<T: std::fmt::Debug>(answer: Result<T>) -> Refusal {
    match answer {
        Err(StoreError::Refused(refusal)) => *refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// The field that is wrong, and what is said about it.
pub fn invalid<T: std::fmt::Debug>(answer: Result<T>) -> (String, String) {
    match answer {
        Err(StoreError::Invalid { field, message }) => (field, message),
        other => panic!("taken as valid: {other:?}"),
    }
}

/// About as long as expected: a real clock goes on while a test runs.
pub fn about(span: Span, seconds: i64) -> bool {
    (span.ms() - seconds * 1_000).abs() < 5_000
}

/// Each on a thread of its own, all at once.
pub fn in_parallel<T: Send, F: Future<Output = T>>(tasks: usize, work: impl Fn(usize) -> F + Sync) -> Vec<T> {
    let (handle, work) = (Handle::current(), &work);
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..tasks)
            .map(|at| (handle.clone(), at))
            .map(|(handle, at)| scope.spawn(move || handle.block_on(work(at))))
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What holds of every store after every test.
pub async fn check(store: &dyn Database) {
    let verified = store.verify(std::sync::Arc::new(|_, _| {})).await.unwrap();
    assert_eq!(verified.differences, Vec::<String>::new());
    let filter = Filter {
        tenant: TENANT.into(),
        limit: 500,
        include: waypost_store::Parts::ALL,
        ..Default::default()
    };
    for row in store.runs(filter).await.unwrap().runs {
        let events = events(store, row.id()).await;
        assert!(events.iter().map(|event| event.seq).eq(1..=row.run.seq), "{}: a gap", row.id());
        let chain = events.windows(2).all(|two| two[1].from.as_deref() == Some(&two[0].to));
        assert!(chain && events[0].from.is_none(), "{}: its events do not join", row.id());
        assert_eq!(events.last().unwrap().to, row.status());
        assert_eq!(row.run.lease.is_some(), row.phase() == Phase::Held, "{}: lease", row.id());
        assert_eq!(row.run.finished_at.is_some(), row.phase() == Phase::Settled, "{}: finished_at", row.id());
    }
}
