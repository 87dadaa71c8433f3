//! What is wrong with one schedule costs that schedule alone.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use tokio::sync::{Notify, watch};
use waypost_kernel::lifecycle::SHIPPED;
use waypost_kernel::{Catalog, Span};
use waypost_store::{ManualPlans, NewRun};
use waypost_testkit::Shorthand;
use waypost_worker::schedules::{Scheduler, SchedulerOptions};
use waypost_worker::{Context, Handlers, Outcome, Stage as Shutdown};

use super::stage::Stage;
use crate::support;

const MINUTELY: &str = "cadence = \"1m\"\n";
const ONCE: &str = "cron = \"0 0 1 1 *\"\nfirst = \"latest\"\n";

/// The reader takes it, and no store does: the name is longer than a run may have.
fn refused() -> String {
    format!("run = {{ lifecycle = \"job\", playbook = \"{}\" }}", "x".repeat(1_000))
}

fn shipped() -> Catalog {
    Catalog::shipped().unwrap()
}

/// A lifecycle that is not shipped, as its file says it.
fn shipit() -> String {
    let (_, source) = SHIPPED.iter().find(|(name, _)| *name == "deploy").unwrap();
    source.replacen("\"deploy\"", "\"shipit\"", 1)
}

fn by_hand(schedule: &str, times: Option<Vec<waypost_kernel::Time>>) -> ManualPlans {
    ManualPlans {
        schedule: schedule.into(),
        kind: "global".into(),
        ids: vec!["global".into()],
        again: false,
        how: "trigger".into(),
        by: "olena".into(),
        plans: times,
    }
}

/// A schedule with an execution each minute of the model, whose clock stands still meanwhile.
async fn a_good_one(stage: &mut Stage) -> Arc<AtomicU32> {
    let begun = Arc::new(AtomicU32::new(0));
    let counted = begun.clone();
    stage.handlers = Handlers::default().with("good", move |_: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Outcome::done() }
    });
    let lines = format!("{MINUTELY}overlap = \"allow\"\nhandler = \"good\"");
    stage.apply_as("good", &lines, &shipped()).await;
    begun
}

// proves C8 and C11
#[tokio::test]
async fn a_plan_by_hand_that_is_refused_stops_nobody() {
    let mut stage = Stage::model();
    let begun = a_good_one(&mut stage).await;
    stage.apply(&format!("{ONCE}max_lateness = \"1s\"\n{}", refused())).await;
    stage.store.add_plans(by_hand("job", None)).await.unwrap();
    let mut scheduler = stage.scheduler("s1").await;
    for minutes in 1..=5 {
        stage.tick(&mut scheduler).await;
        assert_eq!(begun.load(Ordering::SeqCst), minutes);
        stage.advance(60).await;
    }
    let waits = stage.executions().await;
    assert!(waits.len() == 1 && waits[0].run.is_none(), "it is not lost: {waits:?}");
    stage
        .apply(&format!("{ONCE}max_lateness = \"1s\"\nrun = {{ lifecycle = \"deploy\", exec = [\"true\"] }}"))
        .await;
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.only().await["status"], "queued", "as soon as it is mended");
}

// proves C11
#[tokio::test]
async fn scopes_that_cannot_be_fired_starve_nobody() {
    let mut stage = Stage::model();
    let ids: Vec<String> = (0..20).map(|at| format!("shop{at}")).collect();
    stage
        .apply(&format!("{MINUTELY}scopes = {{ kind = \"shop\", ids = {} }}\n{}", json!(ids), refused()))
        .await;
    stage.advance(1).await;
    let begun = a_good_one(&mut stage).await;
    let options = SchedulerOptions { slots: 4, ..stage.options("s1") };
    let mut scheduler = Scheduler::new(stage.store.clone(), options).await.unwrap();
    let mut ticks = 0;
    while begun.load(Ordering::SeqCst) == 0 {
        stage.tick(&mut scheduler).await;
        ticks += 1;
        assert!(ticks < 10, "what failed is first in line each time");
    }
    let scopes = stage.store.scopes("job".into()).await.unwrap();
    assert!(scopes.iter().all(|it| it.through.is_none()), "no plan of theirs is skipped");
    assert!(scopes.iter().any(|it| it.failures > 0));
}

// proves D10
#[tokio::test]
async fn a_lifecycle_that_is_added_later_is_learned() {
    let stage = Stage::new();
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let mut catalog = shipped();
    catalog.add(&shipit()).unwrap();
    let run = "run = { lifecycle = \"shipit\", exec = [\"true\"] }";
    stage.apply_as("early", &format!("{ONCE}{run}"), &catalog).await;
    stage.tick(&mut scheduler).await;
    assert!(stage.executions_of("early").await.is_empty(), "nobody knows it yet");
    support::store(stage.folder.path()).add_lifecycle(shipit(), "tests".into()).await.unwrap();
    stage.apply_as("later", &format!("{ONCE}{run}"), &catalog).await;
    stage.advance(2).await;
    for _ in 0..2 {
        stage.tick(&mut scheduler).await;
    }
    for name in ["later", "early"] {
        let all = stage.executions_of(name).await;
        assert_eq!(all.len(), 1, "{name}");
        assert_eq!(all[0].run.as_ref().unwrap().lifecycle.name.as_ref(), "shipit");
    }
}

// proves C11
#[tokio::test]
async fn what_one_process_cannot_read_is_left_to_those_that_can() {
    let stage = Stage::new();
    let mut old = stage.scheduler("old").await;
    let mut catalog = shipped();
    catalog.add(&shipit()).unwrap();
    let run = "run = { lifecycle = \"shipit\", exec = [\"true\"] }";
    stage.apply_as("job", &format!("{ONCE}{run}"), &catalog).await;
    for _ in 0..3 {
        stage.tick(&mut old).await;
    }
    let before = stage.scope().await;
    assert_eq!((before.failures, before.through), (0, None), "nothing of it is put off");
}

// proves C11
#[tokio::test]
async fn whoever_lists_scopes_and_hangs_stalls_neither_others_nor_a_shutdown() {
    let mut stage = Stage::model();
    let begun = a_good_one(&mut stage).await;
    stage
        .apply(&format!("{ONCE}scopes = {{ kind = \"shop\", handler = \"shops\" }}\nexec = [\"true\"]"))
        .await;
    let asked = Arc::new(Notify::new());
    let mut options = stage.options("s1");
    let (tell, times) = (asked.clone(), Arc::new(AtomicU32::new(0)));
    let counted = times.clone();
    let hangs = move || {
        tell.notify_one();
        counted.fetch_add(1, Ordering::SeqCst);
        pending::<Result<Vec<String>, String>>()
    };
    options.providers.insert("shops".into(), Arc::new(hangs));
    let mut scheduler = Scheduler::new(stage.store.clone(), options.clone()).await.unwrap();
    scheduler.run_once().await.unwrap();
    asked.notified().await;
    for minutes in 1..=3 {
        stage.advance(60).await;
        scheduler.run_once().await.unwrap();
        while begun.load(Ordering::SeqCst) <= minutes {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(times.load(Ordering::SeqCst), 1, "one at a time");
    let (stop, told) = watch::channel(Shutdown::Working);
    let running = tokio::spawn(scheduler.run(told));
    stop.send_replace(Shutdown::Draining);
    running.await.unwrap();
}

// proves C3
#[tokio::test]
async fn no_client_has_a_key_of_a_plan() {
    for what in ["run = { lifecycle = \"deploy\", exec = [\"true\"] }", "exec = [\"true\"]"] {
        let stage = Stage::model();
        stage.apply(&format!("{MINUTELY}catch_up = \"every_plan\"\noverlap = \"allow\"\n{what}")).await;
        let now = stage.now().await;
        let latest = now - Span::from_micros(now.micros().rem_euclid(60_000_000));
        let key = format!("waypost:schedule:job:global:global:{latest}");
        let taken = NewRun {
            idempotency_key: Some(key.clone()),
            lifecycle: "deploy".into(),
            by: "mallory".into(),
            ..NewRun::default()
        };
        let refused = stage.store.enqueue(vec![taken]).await.unwrap().remove(0).unwrap_err();
        assert!(refused.to_string().contains("idempotency_key: begins with \"waypost:\""), "{refused}");
        let mut scheduler = stage.scheduler("s1").await;
        stage.tick(&mut scheduler).await;
        let all = stage.executions().await;
        let [execution] = &*all else { panic!("{all:?}") };
        assert_eq!(execution.plan, latest);
        assert_eq!(execution.run.as_ref().unwrap().idempotency_key, Some(key));
    }
}
