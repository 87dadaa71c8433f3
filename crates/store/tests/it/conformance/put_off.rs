//! Schedules that fail or wait cost only themselves.

use waypost_kernel::{Span, Time};
use waypost_store::{
    Begin, Begun, Birth, Claimed, Database, Due, DueExecution, DueScope, Failed, Failing, Firing,
    ManualPlans, NewRun, Ownership, Pause, ScheduleFilter, ScheduleWrite, ScopeRow, StoreError,
};
use waypost_testkit::Shorthand;

use super::kit::*;
use super::schedules::{due, every, firing, minute, scope};

async fn add(store: &dyn Database, name: &str, ids: &[&str]) {
    store.put_schedule(every("1m", name, ids)).await.unwrap();
}

async fn told(store: &dyn Database, limit: usize) -> Due {
    store.due(Ownership { carried: true, ..Ownership::default() }, limit).await.unwrap()
}

fn planning(it: &DueScope) -> Failed {
    let what = Failing::Scope { kind: it.kind.clone(), id: it.id.clone() };
    Failed { schedule: it.schedule.clone(), what, wake_at: it.wake_at }
}

fn beginning(it: &DueExecution) -> Failed {
    let what = Failing::Execution { kind: it.kind.clone(), id: it.id.clone(), plan: it.plan };
    Failed { schedule: it.schedule.clone(), what, wake_at: it.wake_at }
}

async fn put_off(store: &dyn Database, failed: Failed) {
    store.put_off(vec![failed]).await.unwrap();
}

/// Plans by hand, a minute each, the oldest of them an hour and more ago.
async fn backfill(store: &dyn Database, name: &str, count: i64) -> Vec<Time> {
    let old = minute(store).await - Span::from_seconds(999_960);
    let plans: Vec<Time> = (0..count).map(|at| old + Span::from_seconds(60 * at)).collect();
    let manual = ManualPlans {
        schedule: name.into(),
        kind: "shop".into(),
        ids: vec!["a".into()],
        again: false,
        how: "backfill".into(),
        by: "olena".into(),
        plans: Some(plans.clone()),
    };
    assert_eq!(store.add_plans(manual).await.unwrap(), count as u64);
    plans
}

fn birth(schedule: &str, plan: Time) -> Birth {
    let Birth { run, lease } = firing("s1", None, plan).plans.remove(0).1;
    Birth { run: NewRun { idempotency_key: Some(format!("waypost:schedule:{schedule}:{plan}")), ..run }, lease }
}

fn begin(it: &DueExecution) -> Begin {
    Begin {
        schedule: it.schedule.clone(),
        kind: it.kind.clone(),
        id: it.id.clone(),
        plan: it.plan,
        birth: birth(&it.schedule, it.plan),
        by: "s1".into(),
        alone: true,
    }
}

fn fires(schedule: &str, plan: Time) -> Firing {
    let plans = vec![(plan, birth(schedule, plan))];
    Firing { schedule: schedule.into(), plans, ..firing("s1", None, plan) }
}

fn held(begun: Begun) -> Claimed {
    let Begun::Held(_, claimed) = begun else { panic!("{begun:?}") };
    *claimed
}

/// So often that it is put off for minutes: no machine is so slow that it is due again by itself.
const OFTEN: usize = 8;

// proves C11
pub async fn a_planning_that_fails_is_put_off_longer_each_time(store: &dyn Database) {
    add(store, "backup", &["a"]).await;
    for (failures, wait) in
        [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 64), (8, 128), (9, 256), (10, 300), (11, 300)]
    {
        let found = due(store).await.scopes.remove(0);
        let before = store.now().await.unwrap();
        put_off(store, planning(&found)).await;
        put_off(store, planning(&found)).await;
        let (row, after) = (scope(store).await, store.now().await.unwrap());
        assert_eq!(row.failures, failures, "who comes second writes nothing");
        let wait = Span::from_seconds(wait);
        let looked_at = row.wake_at.unwrap();
        let rounding = Span::from_ms(1);
        assert!(
            (before + wait..=after + wait + rounding).contains(&looked_at),
            "{wait} from {before}: {looked_at}"
        );
        advance(store, 300).await;
    }
    let found = due(store).await.scopes.remove(0);
    put_off(store, planning(&found)).await;
    assert!(due(store).await.scopes.is_empty());
    let plan = minute(store).await;
    let fired = store.fire(vec![fires("backup", plan)]).await.unwrap().remove(0).unwrap();
    assert_eq!((fired.map(|it| it.len()), scope(store).await.failures), (Some(1), 0), "it works again");
}

// proves C11
pub async fn those_that_fail_are_in_nobodys_way(store: &dyn Database) {
    let ids: Vec<String> = (0..20).map(|at| format!("b{at}")).collect();
    add(store, "broken", &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    add(store, "sound", &["a"]).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let found = told(store, 10).await;
        seen.extend(found.scopes.iter().map(|it| it.schedule.clone()));
        let broken = found.scopes.iter().filter(|it| it.schedule == "broken");
        store.put_off(broken.map(planning).collect()).await.unwrap();
    }
    assert!(seen.iter().any(|it| it == "sound"), "{seen:?}");
}

// proves C8
pub async fn whoever_applies_or_resumes_a_schedule_ends_its_waits(store: &dyn Database) {
    add(store, "backup", &["a"]).await;
    backfill(store, "backup", 1).await;
    let fail = async || {
        for _ in 0..OFTEN {
            advance(store, 300).await;
            let found = due(store).await;
            assert_eq!((found.scopes.len(), found.executions.len()), (1, 1));
            put_off(store, planning(&found.scopes[0])).await;
            put_off(store, beginning(&found.executions[0])).await;
        }
        advance(store, 2).await;
        let found = due(store).await;
        assert_eq!((found.scopes.len(), found.executions.len()), (0, 0));
    };
    let is_told = async || {
        let found = due(store).await;
        assert_eq!((found.scopes.len(), found.executions.len()), (1, 1));
    };
    fail().await;
    add(store, "backup", &["a"]).await;
    is_told().await;
    fail().await;
    let pause = Pause { by: "olena".into(), reason: "broken".into(), at: None };
    store.pause_schedule("backup".into(), Some(pause)).await.unwrap();
    store.pause_schedule("backup".into(), None).await.unwrap();
    is_told().await;
}

// proves C8
pub async fn a_plan_that_cannot_begin_waits_by_itself(store: &dyn Database) {
    add(store, "backup", &["a"]).await;
    let plans = backfill(store, "backup", 2).await;
    let told = async || due(store).await.executions;
    for _ in 0..OFTEN {
        advance(store, 300).await;
        let first = told().await;
        assert_eq!(first.iter().map(|it| it.plan).collect::<Vec<_>>(), plans[..1], "the oldest of its scope");
        let mut unfit = begin(&first[0]);
        unfit.birth.run.lifecycle = "nothing".into();
        assert!(store.begin(unfit).await.is_err());
        put_off(store, beginning(&first[0])).await;
        put_off(store, beginning(&first[0])).await;
    }
    advance(store, 2).await;
    let next = told().await;
    assert_eq!(next.iter().map(|it| it.plan).collect::<Vec<_>>(), plans[1..], "others of its scope go on");
    let claimed = held(store.begin(begin(&next[0])).await.unwrap().unwrap());
    finish(store, &claimed, "SUCCESS").await.unwrap();
    advance(store, 300).await;
    let again = told().await;
    assert_eq!(again.iter().map(|it| it.plan).collect::<Vec<_>>(), plans[..1], "and it is not lost");
    assert!(store.begin(begin(&again[0])).await.unwrap().is_some());
}

// proves C3 and X2
pub async fn a_key_that_somebody_else_has_is_not_taken_for_the_plans(store: &dyn Database) {
    add(store, "backup", &["a"]).await;
    let plan = minute(store).await;
    let key = format!("backup:{plan}");
    let stranger = put(store, NewRun { idempotency_key: Some(key.clone()), ..deploy() }).await;
    let queued =
        |key: &str| Birth { run: NewRun { idempotency_key: Some(key.into()), ..deploy() }, lease: None };
    let mut held = birth("backup", plan);
    held.run.idempotency_key = Some(key.clone());
    for birth in [held, queued(&key)] {
        let firing = Firing { plans: vec![(plan, birth)], ..fires("backup", plan) };
        let refused = store.fire(vec![firing]).await.unwrap().remove(0).unwrap_err();
        assert!(
            matches!(&refused, StoreError::KeyReused { run_id, .. } if run_id == stranger.id()),
            "{refused}"
        );
    }
    let is = store.run("default".into(), stranger.id().into()).await.unwrap();
    assert_eq!((is.status(), is.run.attempt), ("queued", 0), "it is as it was");
    let another = Firing { plans: vec![(plan, queued("another"))], ..fires("backup", plan) };
    let fired = store.fire(vec![another]).await.unwrap().remove(0).unwrap();
    assert_eq!(fired.map(|it| it.len()), Some(1), "the plan is still to be begun");
}

/// More of them than one tick looks at, each of them older than anything else.
const BACKLOG: i64 = 700;

// proves C5
pub async fn plans_that_wait_delay_no_retry_and_no_end(store: &dyn Database) {
    for name in ["paused", "busy", "backup"] {
        add(store, name, &["a"]).await;
    }
    let pause = Pause { by: "olena".into(), reason: "migration".into(), at: None };
    store.pause_schedule("paused".into(), Some(pause)).await.unwrap();
    let plan = minute(store).await;
    let fire = async |name: &str| {
        let fired = store.fire(vec![fires(name, plan)]).await.unwrap().remove(0).unwrap().unwrap();
        held(fired.into_iter().next().unwrap())
    };
    let _under_way = fire("busy").await;
    let waiting = backfill(store, "busy", BACKLOG).await;
    backfill(store, "paused", BACKLOG).await;
    let claimed = fire("backup").await;
    finish(store, &claimed, "SUCCESS").await.unwrap();
    store.wake_executions(vec![claimed.run.id().into()]).await.unwrap();
    let found = told(store, 2).await;
    let waits: Vec<_> =
        found.executions.iter().map(|it| (it.schedule.as_str(), it.plan, it.is_running)).collect();
    assert_eq!(waits, [("busy", waiting[0], true)], "one of its scope, and nothing of what is paused");
    assert!(!found.more || !found.scopes.is_empty(), "there is nothing else to look at");
    let row = scope(store).await;
    assert_eq!((row.last_plan, row.last_status.as_deref()), (Some(plan), Some("SUCCESS")));
    assert!(store.begin(begin(&found.executions[0])).await.unwrap().is_none(), "one is under way");
    advance(store, 1).await;
    let found = told(store, 2).await;
    let plans: Vec<Time> = found.executions.iter().map(|it| it.plan).collect();
    assert_eq!(plans, waiting[..1], "it keeps its place");
}

// proves C5 and C8
pub async fn what_a_pause_kept_back_begins_when_it_is_resumed(store: &dyn Database) {
    add(store, "backup", &["a"]).await;
    let plan = minute(store).await;
    let fired = store.fire(vec![fires("backup", plan)]).await.unwrap().remove(0).unwrap().unwrap();
    let claimed = held(fired.into_iter().next().unwrap());
    let pause = Pause { by: "olena".into(), reason: "migration".into(), at: None };
    store.pause_schedule("backup".into(), Some(pause)).await.unwrap();
    let waiting = backfill(store, "backup", 1).await;
    let end =
        waypost_store::FinishWrite { retry_in: Some(Span::from_seconds(1)), ..ending(&claimed, "FAILED") };
    write_finish(store, end).await.unwrap();
    store.wake_executions(vec![claimed.run.id().into()]).await.unwrap();
    for _ in 0..3 {
        advance(store, 2).await;
        assert!(due(store).await.executions.is_empty());
    }
    store.pause_schedule("backup".into(), None).await.unwrap();
    let mut plans: Vec<Time> = due(store).await.executions.iter().map(|it| it.plan).collect();
    plans.sort();
    assert_eq!(plans, [waiting[0], plan]);
}

pub async fn plans_of_a_scope_that_is_no_longer_listed_begin_too(store: &dyn Database) {
    add(store, "backup", &["a", "b"]).await;
    let plans = backfill(store, "backup", 1).await;
    add(store, "backup", &["b"]).await;
    let found = due(store).await.executions;
    assert_eq!(found.iter().map(|it| (it.id.as_str(), it.plan)).collect::<Vec<_>>(), [("a", plans[0])]);
    assert!(store.begin(begin(&found[0])).await.unwrap().is_some());
    let filter = ScheduleFilter::named("backup");
    assert_eq!(store.schedules(filter).await.unwrap()[0].scopes, 1, "it rests beside those that are listed");
    let scopes: Vec<ScopeRow> = store.scopes("backup".into()).await.unwrap();
    assert_eq!(scopes.iter().map(|it| it.retired).collect::<Vec<_>>(), [true, false]);
}

pub async fn plans_that_may_run_beside_each_other_do_not_wait_for_a_second(store: &dyn Database) {
    add(store, "backup", &["a"]).await;
    let plans = backfill(store, "backup", 3).await;
    for plan in plans {
        let found = due(store).await.executions;
        assert_eq!(found.iter().map(|it| it.plan).collect::<Vec<_>>(), [plan]);
        let beside = Begin { alone: false, ..begin(&found[0]) };
        assert!(store.begin(beside).await.unwrap().is_some());
    }
    assert!(due(store).await.executions.is_empty());
}

pub async fn a_listing_that_fails_is_put_off_longer_each_time(store: &dyn Database) {
    let listed: ScheduleWrite = every("1m", "backup", &[]);
    store.put_schedule(listed.clone()).await.unwrap();
    for _ in 0..OFTEN {
        advance(store, 300).await;
        let found = due(store).await.listings.remove(0);
        let failed = Failed { schedule: found.schedule, what: Failing::Listing, wake_at: found.wake_at };
        put_off(store, failed.clone()).await;
        put_off(store, failed).await;
    }
    advance(store, 30).await;
    assert!(due(store).await.listings.is_empty(), "two minutes by now");
    advance(store, 100).await;
    assert_eq!(due(store).await.listings.len(), 1);
    store.put_scopes("backup".into(), "shop".into(), vec!["a".into()]).await.unwrap();
    advance(store, 30).await;
    assert!(due(store).await.listings.is_empty(), "each minute again");
    advance(store, 30).await;
    assert_eq!(due(store).await.listings.len(), 1);
    advance(store, 20).await;
    let again = due(store).await.listings;
    assert_eq!(again.len(), 1, "whoever was told has not come back");
}
