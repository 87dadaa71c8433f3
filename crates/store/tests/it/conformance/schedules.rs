//! Schedules: what is due, who fires it, and what is left of it.

use serde_json::json;
use waypost_kernel::{Actor, Failure, Span, Time, schedule::Running};
use waypost_store::{
    Begin, Begun, Birth, Claimed, Counts, Database, Due, DueExecution, ExecutionFilter, ExecutionRow,
    FinishWrite, Firing, ManualPlans, NewRun, Ownership, Pause, ScheduleChange, ScheduleChanged, ScheduleFilter,
    ScheduleWrite, SchedulerSign, ScopeRow,
};
use waypost_testkit::Shorthand;

use super::kit::*;

/// A definition that any server can read, and what it says beside it.
pub fn every(cadence: &str, name: &str, ids: &[&str]) -> ScheduleWrite {
    let scopes = match ids {
        [] => json!({ "kind": "shop", "handler": "shops" }),
        ids => json!({ "kind": "shop", "ids": ids }),
    };
    let definition = json!({ "name": name, "cadence": cadence, "scopes": scopes, "handler": "back-up" });
    ScheduleWrite {
        name: name.into(),
        hash: definition.to_string(),
        definition,
        folder: "/srv".into(),
        timing: cadence.into(),
        carried: true,
        kind: "shop".into(),
        ids: (!ids.is_empty()).then(|| ids.iter().map(|id| (*id).to_owned()).collect()),
    }
}

fn write(name: &str, ids: &[&str]) -> ScheduleWrite {
    every("1m", name, ids)
}

async fn put_one(store: &dyn Database) {
    assert_eq!(store.put_schedule(write("backup", &["a"])).await.unwrap(), ScheduleChanged::Added);
}

fn mine() -> Ownership {
    Ownership { carried: true, ..Ownership::default() }
}

fn listings(due: &Due) -> Vec<&str> {
    due.listings.iter().map(|it| it.schedule.as_str()).collect()
}

pub async fn who_fires_a_schedule_is_known_while_they_say_so(store: &dyn Database) {
    put_one(store).await;
    let own = ScheduleWrite { carried: false, ..write("own", &["a"]) };
    store.put_schedule(own.clone()).await.unwrap();
    let look = async |name: &str| store.schedules(ScheduleFilter::named(name)).await.unwrap().remove(0);
    let fired_by = async || (look("backup").await.fired_by, look("own").await.fired_by);
    assert_eq!(fired_by().await, (0, 0));
    let sign = |name: &str, carried: bool, hashes: &[&str]| {
        let hashes = hashes.iter().map(|hash| (*hash).to_owned()).collect();
        SchedulerSign { name: name.into(), carried, hashes, ..SchedulerSign::default() }
    };
    assert_eq!(invalid(store.scheduler_seen(sign("", true, &[])).await).0, "name");
    let own_hash = "0f".repeat(32);
    store.put_schedule(ScheduleWrite { hash: own_hash.clone(), ..own }).await.unwrap();
    store.scheduler_seen(sign("s1", true, &[])).await.unwrap();
    store.scheduler_seen(sign("s2", true, &["ab", &own_hash])).await.unwrap();
    store.scheduler_seen(sign("s3", false, &["ab"])).await.unwrap();
    assert_eq!(fired_by().await, (2, 1));
    advance(store, 40).await;
    store.scheduler_seen(sign("s1", true, &[])).await.unwrap();
    advance(store, 40).await;
    assert_eq!(fired_by().await, (1, 0), "the others are gone");
    let late = look("backup").await.overdue(store.now().await.unwrap());
    assert!(late.is_some_and(|late| late.ms() >= 80_000), "{late:?}");
    store.change_schedule(ScheduleChange::Pause("backup".into()), "ann".into()).await.unwrap();
    assert_eq!(look("backup").await.due_at, None, "a pause is not late");
}

pub async fn due(store: &dyn Database) -> Due {
    store.due(mine(), 100).await.unwrap()
}

fn birth(by: &str, plan: Time) -> Birth {
    let run = NewRun {
        idempotency_key: Some(format!("waypost:schedule:backup:shop:a:{plan}")),
        by: by.into(),
        actor: Actor::Worker,
        max_attempts: 3,
        reentrant: true,
        queue: "cron".into(),
        ..new("cron")
    };
    Birth { run, lease: Some(Span::from_seconds(600)) }
}

pub fn firing(by: &str, expected: Option<Time>, plan: Time) -> Firing {
    Firing {
        schedule: "backup".into(),
        kind: "shop".into(),
        id: "a".into(),
        expected,
        through: Some(plan),
        wake_at: Some(plan + Span::from_seconds(60)),
        skipped: Counts { superseded: 2, ..Counts::default() },
        plans: vec![(plan, birth(by, plan))],
        alone: true,
    }
}

/// A whole minute at or before now.
pub async fn minute(store: &dyn Database) -> Time {
    Time::from_ms(store.now().await.unwrap().seconds() / 60 * 60_000)
}

async fn fire_one(store: &dyn Database, firing: Firing) -> Option<Vec<Begun>> {
    store.fire(vec![firing]).await.unwrap().remove(0).unwrap()
}

async fn fire(store: &dyn Database, by: &str, expected: Option<Time>, plan: Time) -> Option<Claimed> {
    let begun = fire_one(store, firing(by, expected, plan)).await?;
    let [Begun::Held(at, claimed)] = begun.as_slice() else { panic!("{begun:?}") };
    assert_eq!(*at, plan);
    Some((**claimed).clone())
}

pub async fn scope(store: &dyn Database) -> ScopeRow {
    store.scopes("backup".into()).await.unwrap().remove(0)
}

fn begin(by: &str, it: &DueExecution) -> Begin {
    Begin {
        schedule: it.schedule.clone(),
        kind: it.kind.clone(),
        id: it.id.clone(),
        plan: it.plan,
        birth: birth(by, it.plan),
        by: by.into(),
        alone: true,
    }
}

/// All of it, two at a time.
async fn listed(store: &dyn Database, filter: ExecutionFilter) -> Vec<ExecutionRow> {
    let mut filter = ExecutionFilter { limit: 2, ..filter };
    let mut all = Vec::new();
    loop {
        let page = store.executions(filter.clone()).await.unwrap();
        assert!(page.executions.len() <= 2);
        all.extend(page.executions);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return all;
        }
    }
}

async fn fail(store: &dyn Database, claimed: &Claimed, retry_in: Option<i64>) {
    let end = FinishWrite {
        failure: Some(Failure::new("handler_error", "exit 1")),
        retry_in: retry_in.map(Span::from_seconds),
        ..ending(claimed, "FAILED")
    };
    write_finish(store, end).await.unwrap();
    store.wake_executions(vec![claimed.run.id().into()]).await.unwrap();
}

// proves C11 and C3
pub async fn a_planning_is_written_with_what_it_fires(store: &dyn Database) {
    put_one(store).await;
    let found = due(store).await.scopes;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].schedule.as_str(), found[0].id.as_str(), found[0].through), ("backup", "a", None));
    let plan = minute(store).await;
    let claimed = fire(store, "s1", None, plan).await.unwrap();
    assert_eq!((claimed.run.status(), claimed.run.run.attempt), ("RUNNING", 1));
    let row = scope(store).await;
    assert_eq!((row.through, row.running, row.stale), (Some(plan), 1, 0));
    assert_eq!((row.counts.won, row.counts.superseded), (1, 2));
    assert!(due(store).await.scopes.is_empty(), "not before its time");
    assert!(fire(store, "s2", None, plan).await.is_none(), "somebody else has planned");
    assert_eq!(scope(store).await.counts.superseded, 2, "and is not counted twice");
}

// proves C11
pub async fn of_sixteen_planners_one_fires(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let fired = in_parallel(16, |at| async move { fire(store, &format!("s{at}"), None, plan).await });
    assert_eq!(fired.iter().flatten().count(), 1);
    assert_eq!(listed(store, ExecutionFilter::default()).await.len(), 1);
}

// proves C5 and C7
pub async fn a_failed_plan_is_not_stranded_by_a_newer_one(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let first = fire(store, "s1", None, plan).await.unwrap();
    fail(store, &first, Some(300)).await;
    assert!(due(store).await.executions.is_empty(), "not before its time");
    advance(store, 60).await;
    let next = plan + Span::from_seconds(60);
    let second = fire(store, "s1", Some(plan), next).await.unwrap();
    finish(store, &second, "SUCCESS").await.unwrap();
    store.wake_executions(vec![second.run.id().into()]).await.unwrap();
    advance(store, 300).await;
    let told = due(store).await.executions;
    assert_eq!(told.iter().map(|it| it.plan).collect::<Vec<_>>(), [plan]);
    assert!(due(store).await.executions.is_empty(), "others are told later");
    let again = store.begin(begin("s2", &told[0])).await.unwrap().unwrap();
    let Begun::Held(_, again) = again else { panic!("{again:?}") };
    assert_eq!((again.run.id(), again.run.run.attempt), (first.run.id(), 2));
    assert!(store.begin(begin("s3", &told[0])).await.unwrap().is_none());
    finish(store, &again, "SUCCESS").await.unwrap();
    store.wake_executions(vec![again.run.id().into()]).await.unwrap();
    due(store).await;
    let row = scope(store).await;
    assert_eq!((row.counts.won, row.counts.retried, row.counts.succeeded, row.counts.failed), (2, 1, 2, 0));
    assert_eq!((row.last_plan, row.last_status.as_deref()), (Some(next), Some("SUCCESS")));
    assert_eq!((row.last_success, row.running), (Some(next), 0));
}

// proves C4
pub async fn a_stale_execution_is_told_of_and_stolen(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let first = fire(store, "s1", None, plan).await.unwrap();
    advance(store, 601).await;
    assert_eq!(scope(store).await.stale, 1);
    let told = due(store).await.executions;
    let Begun::Held(_, second) = store.begin(begin("s2", &told[0])).await.unwrap().unwrap() else { panic!() };
    assert_eq!((second.run.id(), second.run.run.attempt), (first.run.id(), 2));
    assert_eq!(code(&finish(store, &first, "SUCCESS").await), "LEASE_LOST");
    finish(store, &second, "SUCCESS").await.unwrap();
    assert_eq!(scope(store).await.counts.stolen, 1);
}

// proves C7
pub async fn what_fails_for_good_is_counted(store: &dyn Database) {
    put_one(store).await;
    let claimed = fire(store, "s1", None, minute(store).await).await.unwrap();
    fail(store, &claimed, None).await;
    assert!(due(store).await.executions.is_empty());
    let row = scope(store).await;
    assert_eq!((row.counts.failed, row.last_status.as_deref(), row.last_success), (1, Some("FAILED"), None));
}

// proves C6
pub async fn what_must_be_alone_waits_for_the_other(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let first = fire(store, "s1", None, plan).await.unwrap();
    advance(store, 60).await;
    assert_eq!(due(store).await.scopes[0].running, Running::Planned);
    let next = plan + Span::from_seconds(60);
    assert!(fire(store, "s1", Some(plan), next).await.is_none());
    let beside = Firing { alone: false, ..firing("s1", Some(plan), next) };
    let second = fire_one(store, beside).await.unwrap();
    fail(store, &first, Some(1)).await;
    advance(store, 5).await;
    let told = due(store).await.executions;
    assert!(store.begin(begin("s1", &told[0])).await.unwrap().is_none(), "the second is under way");
    let Begun::Held(_, second) = &second[0] else { panic!() };
    finish(store, second, "SUCCESS").await.unwrap();
    advance(store, 5).await;
    let told = due(store).await.executions;
    assert!(store.begin(begin("s1", &told[0])).await.unwrap().is_some());
}

// proves C8
pub async fn a_pause_says_who_and_why_and_outlives_a_redeploy(store: &dyn Database) {
    put_one(store).await;
    let pause = Pause { by: "olena".into(), reason: "migration".into(), at: None };
    let paused = store.pause_schedule("backup".into(), Some(pause)).await.unwrap();
    assert_eq!(
        paused.paused.as_ref().map(|it| (it.by.as_str(), it.reason.as_str())),
        Some(("olena", "migration"))
    );
    let changed = every("5m", "backup", &["a", "b"]);
    assert_eq!(store.put_schedule(changed).await.unwrap(), ScheduleChanged::Changed);
    let row = store.schedules(ScheduleFilter::named("backup")).await.unwrap().remove(0).row;
    assert_eq!(row.paused.map(|it| it.by), Some("olena".into()));
    assert!(due(store).await.scopes.is_empty());
    assert!(fire(store, "s1", None, minute(store).await).await.is_none());
    assert!(store.pause_schedule("backup".into(), None).await.unwrap().paused.is_none());
    let found = due(store).await.scopes;
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|it| it.since.is_some()), "plans count from now on");
    assert!(store.pause_schedule("nope".into(), None).await.is_err());
}

// proves C8
pub async fn the_same_definition_again_changes_nothing(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    fire(store, "s1", None, plan).await.unwrap();
    let before = scope(store).await;
    assert_eq!(store.put_schedule(write("backup", &["a"])).await.unwrap(), ScheduleChanged::Same);
    assert_eq!(scope(store).await, before);
    let moved = every("5m", "backup", &["a"]);
    assert_eq!(store.put_schedule(moved).await.unwrap(), ScheduleChanged::Changed);
    assert!(scope(store).await.since.is_some());
    assert!(store.remove_schedule("backup".into()).await.unwrap());
    assert!(!store.remove_schedule("backup".into()).await.unwrap());
    assert!(store.scopes("backup".into()).await.is_err());
}

pub async fn scopes_come_and_go(store: &dyn Database) {
    store.put_schedule(write("backup", &[])).await.unwrap();
    assert_eq!(listings(&due(store).await), ["backup"]);
    assert!(due(store).await.listings.is_empty(), "others are told later");
    let list = |ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        store.put_scopes("backup".into(), "shop".into(), ids)
    };
    list(&["a", "b"]).await.unwrap();
    assert!(due(store).await.listings.is_empty());
    let ids = |due: Due| due.scopes.into_iter().map(|it| it.id).collect::<Vec<_>>();
    let mut found = ids(due(store).await);
    found.sort();
    assert_eq!(found, ["a", "b"]);
    list(&["b", "c"]).await.unwrap();
    let mut found = ids(due(store).await);
    found.sort();
    assert_eq!(found, ["b", "c"]);
    advance(store, 61).await;
    assert_eq!(listings(&due(store).await), ["backup"], "asked for again");
    list(&["a"]).await.unwrap();
    let again = due(store).await.scopes;
    assert_eq!((again[0].id.as_str(), again[0].since.is_some()), ("a", true));
    assert!(store.put_scopes("nope".into(), "shop".into(), Vec::new()).await.is_err());
}

// proves C8
pub async fn plans_by_hand_are_marked_and_begin_once(store: &dyn Database) {
    put_one(store).await;
    let manual = ManualPlans {
        schedule: "backup".into(),
        kind: "shop".into(),
        ids: vec!["a".into()],
        again: false,
        how: "trigger".into(),
        by: "olena".into(),
        plans: None,
    };
    assert_eq!(store.add_plans(manual.clone()).await.unwrap(), 1);
    let told = due(store).await.executions;
    assert_eq!(
        (told.len(), told[0].run_id.as_deref(), told[0].manual.as_deref()),
        (1, None, Some("trigger"))
    );
    let begun = store.begin(begin("s1", &told[0])).await.unwrap().unwrap();
    assert!(store.begin(begin("s2", &told[0])).await.unwrap().is_none());
    let filter = ExecutionFilter { schedule: Some("backup".into()), ..ExecutionFilter::default() };
    let all = listed(store, filter.clone()).await;
    assert_eq!((all[0].manual.as_deref(), all[0].by.as_deref()), (Some("trigger"), Some("olena")));
    assert_eq!(all[0].run.as_ref().map(waypost_store::RunRow::id), Some(begun.run_id()));
    let old = minute(store).await - Span::from_seconds(3_600);
    let range = ManualPlans {
        plans: Some(vec![old, old + Span::from_seconds(60)]),
        again: false,
        how: "backfill".into(),
        ..manual.clone()
    };
    assert_eq!(store.add_plans(range.clone()).await.unwrap(), 2);
    assert_eq!(store.add_plans(range).await.unwrap(), 0, "there is one execution per plan");
    assert_eq!(listed(store, filter).await.len(), 3);
    let unknown = ManualPlans { schedule: "nope".into(), ..manual };
    assert!(store.add_plans(unknown).await.is_err());
}

// proves C5
pub async fn a_plan_that_failed_for_good_is_executed_again(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let claimed = fire(store, "s1", None, plan).await.unwrap();
    let again = ManualPlans {
        schedule: "backup".into(),
        kind: "shop".into(),
        ids: vec!["a".into()],
        plans: Some(vec![plan]),
        again: true,
        how: "backfill".into(),
        by: "olena".into(),
    };
    assert_eq!(store.add_plans(again.clone()).await.unwrap(), 0, "it is under way");
    let end = FinishWrite { failure: Some(Failure::new("handler_error", "exit 1")), ..ending(&claimed, "FAILED") };
    write_finish(store, end).await.unwrap();
    due(store).await;
    let without = ManualPlans { again: false, ..again.clone() };
    assert_eq!(store.add_plans(without).await.unwrap(), 0, "it has its execution");
    assert_eq!(store.add_plans(again.clone()).await.unwrap(), 1);
    let told = due(store).await.executions;
    assert_eq!((told.len(), told[0].plan, told[0].run_id.as_deref()), (1, plan, None));
    let mut begin = begin("s2", &told[0]);
    begin.birth.run.idempotency_key = Some("waypost:schedule:again".into());
    let begun = store.begin(begin).await.unwrap().unwrap();
    assert_ne!(begun.run_id(), claimed.run.id(), "another run, the same plan");
    let Begun::Held(_, second) = begun else { panic!("{begun:?}") };
    finish(store, &second, "SUCCESS").await.unwrap();
    advance(store, 700).await;
    due(store).await;
    assert_eq!(store.add_plans(again).await.unwrap(), 0, "a success never reruns");
    let filter = ExecutionFilter { schedule: Some("backup".into()), ..ExecutionFilter::default() };
    let all = listed(store, filter).await;
    let run = all[0].run.as_ref().unwrap();
    assert_eq!((all.len(), all[0].by.as_deref(), run.status()), (1, Some("olena"), "SUCCESS"));
    let most = claimed.run.run.max_attempts + run.run.max_attempts;
    assert_eq!((run.run.attempt, all[0].attempt, all[0].max_attempts), (1, 2, most), "those of both runs");
}

// proves C8
pub async fn a_schedule_that_is_removed_leaves_nothing_behind(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let claimed = fire(store, "s1", None, plan).await.unwrap();
    let manual = ManualPlans {
        schedule: "backup".into(),
        kind: "shop".into(),
        ids: vec!["a".into()],
        how: "trigger".into(),
        by: "olena".into(),
        ..ManualPlans::default()
    };
    advance(store, 5).await;
    assert_eq!(store.add_plans(manual).await.unwrap(), 1);
    assert!(store.remove_schedule("backup".into()).await.unwrap());
    let filter = ExecutionFilter { schedule: Some("backup".into()), ..ExecutionFilter::default() };
    let all = listed(store, filter).await;
    assert_eq!((all.len(), all[0].plan), (1, plan), "what waited is gone, what was begun is history");
    assert_eq!(renew(store, &claimed).await.unwrap().intent, Some("cancel"));
    // Its holder dies: nobody would steal it any more, and it ends all the same.
    advance(store, 700).await;
    sweep(store).await;
    let row = get(store, claimed.run.id()).await;
    let failure = row.run.failure.clone().unwrap();
    assert_eq!((row.status(), &*failure.code), ("FAILED", "canceled"));
    assert_eq!(&*failure.message, "the schedule backup was removed");
    // The same name is another schedule's, with plans of its own.
    put_one(store).await;
    assert!(due(store).await.executions.is_empty());
}

// proves C10
pub async fn the_engines_own_schedules_stay(store: &dyn Database) {
    let refused = store.remove_schedule("waypost.prune".into()).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be removed; pause it instead"), "{refused}");
    let put = ScheduleChange::Put(write("waypost.prune", &["b"]));
    let refused = store.change_schedule(put, "ann".into()).await.unwrap_err().to_string();
    assert!(refused.contains("names that begin with \"waypost.\" are the engine's"), "{refused}");
}

// proves C6
pub async fn the_end_of_an_execution_wakes_what_waits_for_it(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let now = store.now().await.unwrap();
    let soon = Firing { wake_at: Some(now + Span::from_ms(900)), ..firing("s1", None, plan) };
    let begun = fire_one(store, soon).await.unwrap();
    let Begun::Held(_, claimed) = &begun[0] else { panic!("{begun:?}") };
    assert!(due(store).await.scopes.is_empty());
    finish(store, claimed, "SUCCESS").await.unwrap();
    store.wake_executions(vec![claimed.run.id().to_owned()]).await.unwrap();
    let woken = due(store).await.scopes;
    assert_eq!((woken.len(), woken[0].running), (1, Running::Nothing));
}

// proves D10 and C3
pub async fn a_firing_may_queue_a_run_in_the_same_transaction(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let run = NewRun { idempotency_key: Some(format!("waypost:schedule:backup:shop:a:{plan}")), ..deploy() };
    let firing = Firing { plans: vec![(plan, Birth { run, lease: None })], ..firing("s1", None, plan) };
    let begun = fire_one(store, firing.clone()).await.unwrap();
    assert!(matches!(&begun[0], Begun::Queued(at, _) if *at == plan));
    assert!(fire_one(store, firing).await.is_none());
    advance(store, 60).await;
    assert_ne!(due(store).await.scopes[0].running, Running::Nothing, "it waits for a worker");
    let claimed = claim(store, "w1").await.unwrap();
    assert_eq!(claimed.run.id(), begun[0].run_id());
    finish(store, &claimed, "success").await.unwrap();
    advance(store, 10).await;
    assert_eq!(due(store).await.scopes[0].running, Running::Nothing);
    assert_eq!(scope(store).await.counts.succeeded, 1);
}

// proves X2
pub async fn who_may_not_execute_a_schedule_is_not_told_of_it(store: &dyn Database) {
    put_one(store).await;
    let own = ScheduleWrite { carried: false, ..write("own", &["a"]) };
    store.put_schedule(own).await.unwrap();
    let names = |due: Due| due.scopes.into_iter().map(|it| it.schedule).collect::<Vec<_>>();
    assert_eq!(names(due(store).await), ["backup"]);
    let hash = write("own", &["a"]).hash;
    let its = Ownership { hashes: vec![hash.clone()], ..Ownership::default() };
    assert_eq!(names(store.due(its.clone(), 100).await.unwrap()), ["own"]);
    let not_now = Ownership { except: vec![hash], ..its };
    assert!(names(store.due(not_now, 100).await.unwrap()).is_empty(), "it cannot execute it just now");
    assert!(names(store.due(Ownership::default(), 100).await.unwrap()).is_empty());
}

// proves C10
pub async fn history_leaves_with_its_runs(store: &dyn Database) {
    put_one(store).await;
    let plan = minute(store).await;
    let claimed = fire(store, "s1", None, plan).await.unwrap();
    finish(store, &claimed, "SUCCESS").await.unwrap();
    put(store, deploy()).await;
    advance(store, 31 * DAY).await;
    due(store).await;
    store.prune(10).await.unwrap();
    assert!(listed(store, ExecutionFilter::default()).await.is_empty());
}

// proves C8 and C10
pub async fn executions_are_listed_page_by_page_and_by_what_they_are(store: &dyn Database) {
    store.put_schedule(write("backup", &["a", "b"])).await.unwrap();
    store.put_schedule(write("audit", &["a"])).await.unwrap();
    let old = minute(store).await - Span::from_seconds(3_600);
    let plans = |schedule: &str, ids: &[&str], count: i64| ManualPlans {
        schedule: schedule.into(),
        kind: "shop".into(),
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        again: false,
        how: "backfill".into(),
        by: "olena".into(),
        plans: Some((0..count).map(|n| old + Span::from_seconds(60 * n)).collect()),
    };
    store.add_plans(plans("backup", &["a", "b"], 3)).await.unwrap();
    store.add_plans(plans("audit", &["a"], 1)).await.unwrap();
    let minutes = |it: &ExecutionRow| (it.plan - old).ms() / 60_000;
    let names = |all: &[ExecutionRow]| -> Vec<String> {
        all.iter().map(|it| format!("{}{} {}", minutes(it), it.id, it.schedule)).collect()
    };
    let all = listed(store, ExecutionFilter::default()).await;
    let expected = ["2a backup", "2b backup", "1a backup", "1b backup", "0a audit", "0a backup", "0b backup"];
    assert_eq!(names(&all), expected);
    let of_b =
        ExecutionFilter { id: Some("b".into()), kind: Some("shop".into()), ..ExecutionFilter::default() };
    assert_eq!(names(&listed(store, of_b).await), ["2b backup", "1b backup", "0b backup"]);
    let told = due(store).await.executions;
    let first = told.iter().find(|it| it.schedule == "audit").unwrap();
    let begun = store.begin(begin("s1", first)).await.unwrap().unwrap();
    let running = ExecutionFilter { status: Some("RUNNING".into()), ..ExecutionFilter::default() };
    assert_eq!(names(&listed(store, running).await), ["0a audit"]);
    let that =
        ExecutionFilter { run_id: Some(begun.run_id().into()), limit: 1, ..ExecutionFilter::default() };
    assert_eq!(names(&store.executions(that).await.unwrap().executions), ["0a audit"]);
    let wrong = ExecutionFilter { cursor: Some("x".into()), limit: 1, ..ExecutionFilter::default() };
    assert!(store.executions(wrong).await.is_err());
}

// proves C10
pub async fn a_schedule_is_shown_with_the_sum_of_its_scopes(store: &dyn Database) {
    put_one(store).await;
    store.put_schedule(write("audit", &["a", "b"])).await.unwrap();
    let plan = minute(store).await;
    let claimed = fire(store, "s1", None, plan).await.unwrap();
    let page =
        |after: Option<&str>, limit| ScheduleFilter { after: after.map(Into::into), limit, ..ScheduleFilter::default() };
    let look = store.schedules(page(Some("audit"), 10)).await.unwrap().remove(0);
    assert_eq!((look.row.name.as_str(), look.scopes, look.running, look.stale), ("backup", 1, 1, 0));
    assert_eq!((look.counts.won, look.counts.superseded, look.last_success), (1, 2, None));
    finish(store, &claimed, "SUCCESS").await.unwrap();
    store.wake_executions(vec![claimed.run.id().into()]).await.unwrap();
    due(store).await;
    let one = ScheduleFilter { limit: 10, ..ScheduleFilter::named("backup") };
    let look = store.schedules(one).await.unwrap().remove(0);
    assert_eq!((look.last_plan, look.last_status.as_deref()), (Some(plan), Some("SUCCESS")));
    assert_eq!((look.last_success, look.running, look.counts.succeeded), (Some(plan), 0, 1));
    let names: Vec<String> =
        store.schedules(page(None, 1)).await.unwrap().into_iter().map(|look| look.row.name).collect();
    assert_eq!(names, ["audit"]);
}

// proves C11
pub async fn many_are_fired_at_once_and_each_is_answered_by_itself(store: &dyn Database) {
    store.put_schedule(write("backup", &["a", "b", "c", "d"])).await.unwrap();
    let plan = minute(store).await;
    let of = |id: &str| {
        let key = Some(format!("waypost:schedule:backup:shop:{id}:{plan}"));
        let run = NewRun { idempotency_key: key, ..birth("s1", plan).run };
        let plans = vec![(plan, Birth { run, ..birth("s1", plan) })];
        Firing { id: id.into(), plans, ..firing("s1", None, plan) }
    };
    let late = Firing { expected: Some(plan), ..of("b") };
    let mut unfit = of("c");
    unfit.plans[0].1.run.lifecycle = "nothing".into();
    let answers = store.fire(vec![of("a"), late, unfit, of("x"), of("d"), of("a")]).await.unwrap();
    let begun: Vec<Option<usize>> =
        answers.iter().map(|it| it.as_ref().ok().and_then(|it| it.as_ref().map(Vec::len))).collect();
    assert_eq!(begun, [Some(1), None, None, None, Some(1), None]);
    assert!(answers[2].is_err(), "it says what is wrong with it");
    let all = listed(store, ExecutionFilter::default()).await;
    assert_eq!(all.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["a", "d"]);
    let through =
        |scopes: Vec<ScopeRow>| scopes.iter().map(|it| it.through == Some(plan)).collect::<Vec<_>>();
    assert_eq!(through(store.scopes("backup".into()).await.unwrap()), [true, false, false, true]);
    let ids = all.iter().map(|it| it.run.as_ref().unwrap().id().to_owned()).collect();
    store.wake_executions(ids).await.unwrap();
    assert!(due(store).await.executions.is_empty(), "they are held");
}
