//! The loop on a real store with real processes: what fires, how it ends, what is left of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use waypost_store::{CommandWrite, Filter, Pause};
use waypost_testkit::Shorthand;
use waypost_worker::{Context, Handlers, Outcome, Stage as Shutdown};

use super::stage::Stage;

/// On the model, whose clock stands still, or where it does not matter how often.
const MINUTELY: &str = "cadence = \"1m\"\n";
/// Its latest plan is long ago, and the next one far away: it fires once.
const ONCE: &str = "cron = \"0 0 1 1 *\"\nfirst = \"latest\"\n";

// proves C3 and C9
#[tokio::test]
async fn a_command_is_executed_with_its_plan_and_its_result_is_kept() {
    let stage = Stage::new();
    let script = r#"cat > input.json; echo "{\"output\": {\"rows_affected\": 7, \"at\": \"$1\"}}" > "$WAYPOST_OUTPUT""#;
    let exec = json!(["sh", "-c", script, "sh", "{{ inputs.plan_time }}"]);
    stage.apply(&format!("{ONCE}exec = {exec}")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let run = stage.only().await;
    assert_eq!(
        (&run["status"], &run["attempt"], &run["lifecycle"]),
        (&json!("SUCCESS"), &json!(1), &json!("cron"))
    );
    let metadata = &run["metadata"];
    assert_eq!(
        (&metadata["rows_affected"], &metadata["result"]["at"]),
        (&json!(7), &run["input"]["plan_time"])
    );
    assert!(metadata["duration_ms"].is_u64(), "{metadata}");
    let input: Value =
        serde_json::from_slice(&std::fs::read(stage.folder.path().join("input.json")).unwrap()).unwrap();
    assert_eq!(
        (&input["input"]["job_name"], &input["input"]["scope_kind"]),
        (&json!("job"), &json!("global"))
    );
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.only().await["seq"], run["seq"], "once");
}

// proves C7
#[tokio::test]
async fn a_failure_is_retried_after_its_wait_until_attempts_are_over() {
    let stage = Stage::new();
    let job = "max_attempts = 2\nbackoff = [\"5m\"]\ncatch_up = \"latest_only\"\nmax_lateness = \"1s\"";
    stage
        .apply(&format!("cron = \"0 0 1 1 *\"\nfirst = \"latest\"\n{job}\nexec = [\"sh\", \"-c\", \"echo no >&2; exit 3\"]"))
        .await;
    let manual = waypost_store::ManualPlans {
        schedule: "job".into(),
        kind: "global".into(),
        ids: vec!["global".into()],
        again: false,
        how: "trigger".into(),
        by: "olena".into(),
        plans: None,
    };
    stage.store.add_plans(manual).await.unwrap();
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let run = stage.only().await;
    assert_eq!((&run["status"], &run["error_code"]), (&json!("FAILED"), &json!("handler_error")));
    assert_eq!((&run["error_msg"], &run["input"]["manual"]), (&json!("EXIT_3: no"), &json!("trigger")));
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.only().await["attempt"], 1, "not before its time");
    stage.advance(301).await;
    stage.tick(&mut scheduler).await;
    stage.advance(100_000).await;
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.only().await["attempt"], 2);
    let scope = stage.scope().await;
    assert_eq!((scope.counts.won, scope.counts.retried, scope.counts.failed), (1, 1, 1));
    assert_eq!(scope.counts.late, 1, "the plan of January is long gone");
}

// proves C7
#[tokio::test]
async fn a_panic_is_a_failure_of_its_own_code() {
    let mut stage = Stage::new();
    stage.handlers = Handlers::default().with("job", |context: Context| async move {
        assert!(context.attempt > 1, "meant to panic");
        Outcome::done()
    });
    stage.apply(&format!("{ONCE}handler = \"job\"")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let run = stage.only().await;
    assert_eq!((&run["status"], &run["error_code"]), (&json!("FAILED"), &json!("handler_panic")));
}

// proves C9
#[tokio::test]
async fn an_oversize_result_is_cut_and_the_success_stays() {
    let mut stage = Stage::new();
    stage.handlers = Handlers::default().with("job", |_: Context| async {
        Outcome { output: json!({ "text": "é".repeat(100_000) }), ..Outcome::done() }
    });
    stage.apply(&format!("{ONCE}handler = \"job\"")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let run = stage.only().await;
    assert_eq!((&run["status"], &run["metadata"]["result"]["cut"]), (&json!("SUCCESS"), &json!(true)));
    assert!(run["metadata"]["result"].to_string().len() <= 16 * 1024);
}

// proves C7
#[tokio::test]
async fn an_execution_that_takes_too_long_is_killed() {
    let stage = Stage::new();
    let exec = json!(["sh", "-c", "trap '' TERM; echo $$ > pid; exec sleep 600"]);
    let times = "run_timeout = \"500ms\"\nstale_timeout = \"20s\"\nheartbeat = \"1s\"";
    stage.apply(&format!("{ONCE}{times}\nexec = {exec}")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let run = stage.only().await;
    assert_eq!((&run["status"], &run["error_code"]), (&json!("FAILED"), &json!("run_timeout")));
    let pid = std::fs::read_to_string(stage.folder.path().join("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    crate::support::until_gone(&[pid]).await;
}

/// A handler that waits to be told, and counts.
fn waiting(begun: &Arc<AtomicU32>, go: &Arc<Notify>) -> Handlers {
    let (begun, go) = (begun.clone(), go.clone());
    Handlers::default().with("job", move |context: Context| {
        let (begun, go) = (begun.clone(), go.clone());
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            tokio::select! {
                () = go.notified() => Outcome::done(),
                () = context.stopped() => Outcome::fail("STOPPED", "told to stop"),
            }
        }
    })
}

async fn until(is: impl Fn() -> bool) {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
    while !is() {
        looks.tick().await;
    }
}

// proves C4 and X5
#[tokio::test]
async fn a_stolen_execution_stops_its_first_holder_which_writes_nothing() {
    let (begun, go) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let mut stage = Stage::new();
    stage.handlers = waiting(&begun, &go);
    let times = "run_timeout = \"5m\"\nstale_timeout = \"10m\"\nheartbeat = \"9m\"";
    stage.apply(&format!("cron = \"0 0 1 1 *\"\nfirst = \"latest\"\n{times}\nhandler = \"job\"")).await;
    let (mut first, mut second) = (stage.scheduler("s1").await, stage.scheduler("s2").await);
    assert_eq!(first.run_once().await.unwrap().begun, 2, "the pruning too");
    until(|| begun.load(Ordering::SeqCst) == 1).await;
    stage.advance(601).await;
    second.run_once().await.unwrap();
    until(|| begun.load(Ordering::SeqCst) == 2).await;
    first.settle().await;
    assert_eq!(first.summary().lost, 1);
    go.notify_waiters();
    second.settle().await;
    let run = stage.only().await;
    assert_eq!((&run["status"], &run["attempt"], &run["fence"]), (&json!("SUCCESS"), &json!(2), &json!(2)));
    assert_eq!(stage.scope().await.counts.stolen, 1);
}

// proves C7
#[tokio::test]
async fn a_shutdown_gives_the_execution_back_and_burns_no_attempt() {
    let (begun, go) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let mut stage = Stage::new();
    stage.handlers = waiting(&begun, &go);
    stage.apply("cron = \"0 0 1 1 *\"\nfirst = \"latest\"\nhandler = \"job\"").await;
    let (stop, told) = watch::channel(Shutdown::Working);
    let running = tokio::spawn(stage.scheduler("s1").await.run(told));
    until(|| begun.load(Ordering::SeqCst) == 1).await;
    stop.send_replace(Shutdown::Draining);
    assert_eq!(running.await.unwrap().released, 1);
    assert_eq!(stage.only().await["status"], "RUNNING");
    let mut second = stage.scheduler("s2").await;
    second.run_once().await.unwrap();
    until(|| begun.load(Ordering::SeqCst) == 2).await;
    go.notify_waiters();
    second.settle().await;
    let run = stage.only().await;
    assert_eq!((&run["status"], &run["attempt"]), (&json!("SUCCESS"), &json!(1)));
}

// proves C7 and X8
#[tokio::test]
async fn a_cancelled_execution_is_stopped_and_never_retried() {
    let (begun, go) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let mut stage = Stage::new();
    stage.handlers = waiting(&begun, &go);
    stage.apply("cron = \"0 0 1 1 *\"\nfirst = \"latest\"\nhandler = \"job\"").await;
    let mut scheduler = stage.scheduler("s1").await;
    scheduler.run_once().await.unwrap();
    until(|| begun.load(Ordering::SeqCst) == 1).await;
    let run_id = stage.only().await["run_id"].as_str().unwrap().to_owned();
    let cancel = CommandWrite {
        tenant: "default".into(),
        run_id,
        name: "cancel".into(),
        by: "olena".into(),
        ..CommandWrite::default()
    };
    stage.store.command(cancel).await.unwrap();
    scheduler.settle().await;
    let run = stage.only().await;
    assert_eq!((&run["status"], &run["error_code"]), (&json!("FAILED"), &json!("canceled")));
    stage.advance(1_800).await;
    stage.tick(&mut scheduler).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

// proves D10
#[tokio::test]
async fn a_schedule_may_queue_a_run_with_its_plan_in_the_key() {
    let stage = Stage::new();
    stage
        .apply(&format!("{ONCE}run = {{ lifecycle = \"deploy\", exec = [\"true\"], input = {{ a = 1 }} }}"))
        .await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let run = stage.only().await;
    assert_eq!(
        (&run["lifecycle"], &run["status"], &run["input"]["a"]),
        (&json!("deploy"), &json!("queued"), &json!(1))
    );
    let plan = run["metadata"]["schedule"]["plan_time"].as_str().unwrap().to_owned();
    assert_eq!(run["idempotency_key"], json!(format!("waypost:schedule:job:global:global:{plan}")));
}

// proves C6
#[tokio::test]
async fn overlapping_plans_are_skipped_and_counted() {
    let (begun, go) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let mut stage = Stage::model();
    stage.handlers = waiting(&begun, &go);
    stage.apply(&format!("{MINUTELY}handler = \"job\"")).await;
    let mut scheduler = stage.scheduler("s1").await;
    scheduler.run_once().await.unwrap();
    until(|| begun.load(Ordering::SeqCst) == 1).await;
    stage.advance(180).await;
    scheduler.run_once().await.unwrap();
    assert_eq!((stage.scope().await.counts.overlap, begun.load(Ordering::SeqCst)), (3, 1));
    go.notify_waiters();
    scheduler.settle().await;
    stage.advance(60).await;
    scheduler.run_once().await.unwrap();
    until(|| begun.load(Ordering::SeqCst) == 2).await;
}

// proves C8
#[tokio::test]
async fn what_a_pause_left_out_is_counted_and_not_made_up_for() {
    let stage = Stage::model();
    stage.apply(&format!("{MINUTELY}catch_up = \"every_plan\"\nexec = [\"true\"]")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let pause = Pause { by: "olena".into(), reason: "migration".into(), at: None };
    stage.store.pause_schedule("job".into(), Some(pause)).await.unwrap();
    stage.advance(600).await;
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.executions().await.len(), 1);
    stage.store.pause_schedule("job".into(), None).await.unwrap();
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.executions().await.len(), 1);
    assert_eq!(stage.scope().await.counts.paused, 10);
    stage.advance(60).await;
    stage.tick(&mut scheduler).await;
    assert_eq!(stage.executions().await.len(), 2);
}

#[tokio::test]
async fn scopes_come_from_a_query_or_from_code() {
    let mut stage = Stage::new();
    let sql = "SELECT value FROM json_each('[\\\"a\\\", \\\"b\\\", 3]')";
    stage.apply(&format!("{ONCE}scopes = {{ kind = \"shop\", sql = \"{sql}\" }}\nexec = [\"true\"]")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    stage.tick(&mut scheduler).await;
    let ids = |all: Vec<waypost_store::ExecutionRow>| {
        let mut ids: Vec<String> = all.into_iter().map(|it| it.id).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(stage.executions().await), ["3", "a", "b"]);
    let writes = "sql = \"DELETE FROM schedules\"";
    let refused = stage.store.ask_scopes("DELETE FROM schedules".into()).await;
    assert!(refused.is_err(), "{writes}");

    stage = Stage::new();
    stage
        .apply(&format!("{ONCE}scopes = {{ kind = \"shop\", handler = \"shops\" }}\nexec = [\"true\"]"))
        .await;
    let mut options = stage.options("s1");
    let list = || async { Ok(vec!["x".to_owned(), "y".to_owned(), "x".to_owned()]) };
    options.providers.insert("shops".into(), Arc::new(list));
    let mut scheduler =
        waypost_worker::schedules::Scheduler::new(stage.store.clone(), options).await.unwrap();
    stage.tick(&mut scheduler).await;
    stage.tick(&mut scheduler).await;
    assert_eq!(ids(stage.executions().await), ["x", "y"]);
}

// proves C10
#[tokio::test]
async fn pruning_is_a_schedule_itself() {
    let stage = Stage::model();
    stage.apply(&format!("{MINUTELY}exec = [\"true\"]")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    stage.advance(31 * 86_400).await;
    stage.tick(&mut scheduler).await;
    stage.advance(600).await;
    stage.tick(&mut scheduler).await;
    let oldest = stage.executions().await.into_iter().map(|it| it.plan).min().unwrap();
    assert!(stage.now().await - oldest < waypost_kernel::Span::from_seconds(86_400));
    let pruned = stage.store.scopes("waypost.prune".into()).await.unwrap().remove(0);
    assert!(pruned.counts.won >= 2, "{pruned:?}");
    let shown = stage
        .store
        .runs(Filter {
            tenant: "default".into(),
            limit: 500,
            include: waypost_store::Parts::ALL,
            ..Filter::default()
        })
        .await
        .unwrap();
    assert!(!shown.runs.is_empty());
    assert!(shown.runs.iter().all(|run| run.input["job_name"] == "job"), "its runs are in nobody's way");
}

// proves X2
#[tokio::test]
async fn what_was_applied_is_left_alone_by_those_who_run_their_own_only() {
    let stage = Stage::new();
    stage.apply(&format!("{MINUTELY}exec = [\"true\"]")).await;
    let options = waypost_worker::schedules::SchedulerOptions { carried: false, ..stage.options("s1") };
    let mut scheduler =
        waypost_worker::schedules::Scheduler::new(stage.store.clone(), options).await.unwrap();
    stage.tick(&mut scheduler).await;
    assert!(stage.executions().await.is_empty());
}

// proves C9
#[tokio::test]
async fn scopes_and_executions_may_be_requests() {
    use crate::http::server::{Said, Server};
    let stage = Stage::new();
    let server =
        Server::start(vec![Said::json(200, "[\"a\"]"), Said::json(200, "{\"rows_affected\": 3}")]).await;
    let scopes = format!(
        "scopes = {{ kind = \"shop\", http = {{ method = \"GET\", url = \"{}\" }} }}",
        server.url("/shops")
    );
    let action = format!("http = {{ url = \"{}{{{{ inputs.scope_id }}}}\" }}", server.url("/rollup/"));
    stage.apply(&format!("{ONCE}{scopes}\n{action}")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    stage.tick(&mut scheduler).await;
    let run = stage.only().await;
    assert_eq!(
        (&run["status"], &run["metadata"]["rows_affected"]),
        (&json!("SUCCESS"), &json!(3)),
        "{run:#}"
    );
    assert!(server.heard().await.head.starts_with("GET /shops "));
    let fired = server.heard().await;
    assert!(fired.head.starts_with("POST /rollup/a "), "{}", fired.head);
    let key = run["idempotency_key"].as_str().unwrap();
    assert!(fired.head.contains(key), "{} in {}", key, fired.head);
}
