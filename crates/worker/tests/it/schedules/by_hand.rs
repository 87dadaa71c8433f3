//! Plans that somebody asks for.

use waypost_kernel::Span;
use waypost_store::MAX_MANUAL;
use waypost_worker::schedules::{Asked, add_plans, again};

use super::stage::Stage;

// proves C8
#[tokio::test]
async fn a_range_with_too_many_plans_is_refused_whatever_the_timing_is() {
    for timing in ["cadence = \"1m\"", "cron = \"* * * * *\""] {
        let stage = Stage::new();
        stage.apply(&format!("{timing}\nexec = [\"true\"]")).await;
        let now = stage.now().await;
        let last = now - Span::from_micros(now.micros().rem_euclid(60_000_000));
        let ask = |minutes: usize| {
            let from = last - Span::from_seconds(60 * minutes as i64);
            add_plans(&*stage.store, "job", Asked::Range(from, last), Vec::new(), false, "olena".into())
        };
        let refused = ask(MAX_MANUAL).await.unwrap_err().to_string();
        assert!(refused.contains("at most 10000 plans at once"), "{timing}: {refused}");
        assert_eq!(stage.executions().await.len(), 0, "{timing}: all or none");
        assert_eq!(ask(MAX_MANUAL - 1).await.unwrap(), MAX_MANUAL as u64, "{timing}");
    }
}

// proves C8
#[tokio::test]
async fn plan_times_that_are_none_are_refused_with_words() {
    let stage = Stage::new();
    stage.apply("cadence = \"1h\"\nexec = [\"true\"]").await;
    let now = stage.now().await;
    let hour = now - Span::from_micros(now.micros().rem_euclid(3_600_000_000));
    let ask =
        |time| add_plans(&*stage.store, "job", Asked::Times(vec![time]), Vec::new(), false, "olena".into());
    let ahead = ask(hour + Span::from_seconds(3_600)).await.unwrap_err().to_string();
    assert!(ahead.contains("plan_times") && ahead.contains("lies ahead"), "{ahead}");
    let off = ask(hour - Span::from_seconds(600)).await.unwrap_err().to_string();
    let before = hour - Span::from_seconds(3_600);
    assert!(
        off.contains("job has no plan at") && off.contains(&format!("around it are {before} and {hour}")),
        "{off}"
    );
    assert_eq!(stage.executions().await.len(), 0);
    assert_eq!(ask(hour).await.unwrap(), 1);
}

// proves C5
#[tokio::test]
async fn a_run_that_failed_for_good_is_executed_again_with_its_plan_time() {
    let stage = Stage::new();
    stage.apply("cadence = \"1h\"\nbackoff = []\nexec = [\"sh\", \"-c\", \"test -e mended\"]").await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let failed = stage.only().await;
    assert_eq!(failed["status"], "FAILED");
    let run_id = failed["run_id"].as_str().unwrap().to_owned();
    std::fs::write(stage.folder.path().join("mended"), "").unwrap();
    assert_eq!(again(&*stage.store, &run_id, "olena".into()).await.unwrap(), Some(1));
    stage.tick(&mut scheduler).await;
    let done = stage.only().await;
    assert_eq!(
        (&done["status"], &done["input"]["plan_time"]),
        (&"SUCCESS".into(), &failed["input"]["plan_time"])
    );
    let success = done["run_id"].as_str().unwrap().to_owned();
    assert_eq!(again(&*stage.store, &success, "olena".into()).await.unwrap(), Some(0));
}

// proves C6: what waits for the one before it begins when that ends, not a tick later
#[tokio::test]
async fn a_cadence_of_a_second_catches_up() {
    let stage = Stage::new();
    let lines = "cadence = \"1s\"\ncatch_up = \"every_plan\"\nexec = [\"true\"]";
    stage.apply(lines).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    stage.advance(40).await;
    let (stop, stopped) = tokio::sync::watch::channel(waypost_worker::Stage::Working);
    let running = tokio::spawn(scheduler.run(stopped));
    let behind = crate::support::eventually("it has caught up", async || {
        let last = stage.scope().await.last_success?;
        Some(stage.now().await - last).filter(|lag| *lag < Span::from_seconds(5))
    });
    behind.await;
    stop.send(waypost_worker::Stage::Draining).unwrap();
    running.await.unwrap();
}

/// Thousands of plans of a backfill wait, and one of them runs: the schedule's own plan is not skipped for it, and comes next.
// proves C6, C8
#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_does_not_keep_the_schedules_own_plans_from_being_executed() {
    for overlap in ["skip", "queue"] {
        for stage in [Stage::new(), Stage::model()] {
            let waits = "exec = [\"sh\", \"-c\", \"until test -e go; do sleep 0.005; done\"]";
            stage
                .apply(&format!("cadence = \"1h\"\nfirst = \"next\"\noverlap = \"{overlap}\"\n{waits}"))
                .await;
            let mut scheduler = stage.scheduler("s1").await;
            scheduler.run_once().await.unwrap();
            let now = stage.now().await;
            let asked = Asked::Range(now - Span::from_seconds(50 * 3_600), now);
            let added =
                add_plans(&*stage.store, "job", asked, Vec::new(), false, "olena".into()).await.unwrap();
            assert!(added >= 50, "{added}");
            scheduler.run_once().await.unwrap();
            let begun = async || {
                let all = stage.executions().await;
                let begun = all.into_iter().filter(|it| it.run.is_some());
                begun.map(|it| it.manual).collect::<Vec<_>>()
            };
            assert_eq!(begun().await, [Some("backfill".to_owned())], "{overlap}");
            stage.advance(3_600).await;
            scheduler.run_once().await.unwrap();
            assert_eq!(begun().await.len(), 1, "{overlap}: one at a time");
            std::fs::write(stage.folder.path().join("go"), "").unwrap();
            scheduler.settle().await;
            scheduler.run_once().await.unwrap();
            scheduler.settle().await;
            let all = begun().await;
            assert_eq!(all.len(), 2, "{overlap}");
            assert!(
                all.contains(&None),
                "{overlap}: its own plan comes before the next of the backfill: {all:?}"
            );
            assert_eq!(stage.scope().await.counts.overlap, 0, "{overlap}: none was skipped");
        }
    }
}

/// What queues runs has those of a backfill behind its own.
// proves C8
#[tokio::test]
async fn runs_of_a_backfill_come_after_those_of_the_schedule_itself() {
    let stage = Stage::new();
    stage
        .apply("cadence = \"1h\"\noverlap = \"allow\"\nrun = { lifecycle = \"deploy\", exec = [\"true\"], priority = 5 }")
        .await;
    let mut scheduler = stage.scheduler("s1").await;
    scheduler.run_once().await.unwrap();
    let now = stage.now().await;
    let asked = Asked::Range(now - Span::from_seconds(3 * 3_600), now - Span::from_seconds(3_600));
    add_plans(&*stage.store, "job", asked, Vec::new(), false, "olena".into()).await.unwrap();
    scheduler.run_once().await.unwrap();
    let all = stage.executions().await;
    let queued = all.iter().filter_map(|it| Some((it.manual.is_some(), it.run.as_ref()?.priority)));
    let queued: Vec<(bool, i16)> = queued.collect();
    assert!(queued.contains(&(false, 5)) && queued.contains(&(true, 4)), "{queued:?}");
}
