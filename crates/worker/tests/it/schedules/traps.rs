//! Where schedulers like this one broke.

use serde_json::json;
use waypost_testkit::Shorthand;
use waypost_worker::{Context, Handlers, Outcome};

use super::stage::Stage;
use crate::support;

const HOURS: i64 = 3_600;

fn quick() -> Handlers {
    Handlers::default().with("job", |_: Context| async { Outcome::done() })
}

// proves C5
#[tokio::test]
async fn seventy_two_hours_down_are_one_row_or_a_window_and_the_rest_is_counted() {
    let mut stage = Stage::model();
    stage.handlers = quick();
    stage.apply("cadence = \"1m\"\nhandler = \"job\"").await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    stage.advance(72 * HOURS).await;
    for _ in 0..5 {
        stage.tick(&mut scheduler).await;
    }
    assert_eq!((stage.executions().await.len(), stage.scope().await.counts.superseded), (2, 72 * 60 - 1));

    let mut stage = Stage::model();
    stage.handlers = quick();
    let every =
        "catch_up = \"every_plan\"\ncatch_up_window = \"1h\"\nmax_plans_per_tick = 7\noverlap = \"allow\"";
    stage.apply(&format!("cadence = \"1m\"\n{every}\nhandler = \"job\"")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    stage.advance(72 * HOURS).await;
    let mut begun = Vec::new();
    for _ in 0..12 {
        let before = stage.executions().await.len();
        stage.tick(&mut scheduler).await;
        begun.push(stage.executions().await.len() - before);
    }
    assert!(begun.iter().all(|count| *count <= 7), "{begun:?}");
    let made_up: usize = begun.iter().sum();
    assert!((59..=61).contains(&made_up), "an hour of minutes: {begun:?}");
    let counts = stage.scope().await.counts;
    assert_eq!(counts.outside_window + made_up as u64, 72 * 60, "{counts:?}");
}

// proves C4 and X5
#[tokio::test]
async fn a_command_that_outlives_its_lease_is_killed() {
    let stage = Stage::new();
    let exec = json!(["sh", "-c", "trap '' TERM; echo $$ >> pids; exec sleep 600"]);
    let times = "run_timeout = \"9m\"\nstale_timeout = \"10m\"\nheartbeat = \"1s\"";
    stage.apply(&format!("cron = \"0 0 1 1 *\"\nfirst = \"latest\"\n{times}\nexec = {exec}")).await;
    let (mut first, mut second) = (stage.scheduler("s1").await, stage.scheduler("s2").await);
    let pids = async |count: usize| {
        support::eventually("they have begun", async || {
            let text = std::fs::read_to_string(stage.folder.path().join("pids")).ok()?;
            let pids: Vec<_> = text
                .lines()
                .map(|line| rustix::process::Pid::from_raw(line.parse().unwrap()).unwrap())
                .collect();
            (pids.len() == count).then_some(pids)
        })
        .await
    };
    first.run_once().await.unwrap();
    let held = pids(1).await;
    stage.advance(601).await;
    second.run_once().await.unwrap();
    let both = pids(2).await;
    support::until_gone(&held).await;
    first.settle().await;
    assert_eq!(first.summary().lost, 1);
    assert!(support::is_alive(both[1]), "the second one goes on");
    let run = stage.only().await;
    assert_eq!(
        (&run["status"], &run["attempt"], &run["claimed_by"]),
        (&json!("RUNNING"), &json!(2), &json!("s2"))
    );
    drop(second);
    support::until_gone(&both).await;
}

// proves C5
#[tokio::test]
async fn a_schedule_that_is_removed_and_applied_again_fires_no_plan_twice() {
    let mut stage = Stage::model();
    stage.handlers = quick();
    let lines = "cron = \"0 0 1 1 *\"\nfirst = \"latest\"\nhandler = \"job\"";
    stage.apply(lines).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.executions().await.len(), 1);
    assert!(stage.store.remove_schedule("job".into()).await.unwrap());
    stage.apply(lines).await;
    for _ in 0..3 {
        stage.advance(60).await;
        stage.tick(&mut scheduler).await;
    }
    assert_eq!((stage.executions().await.len(), stage.scope().await.counts.won), (1, 0));
}
