//! PostgreSQL goes away under load, its connections are cut, workers freeze past their leases: nothing is lost, nothing
//! is done twice, and the log agrees in the end.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use waypost_store::{Database, NewRun, StoreError};
use waypost_testkit::Cluster;

use crate::support::{Running, Shop, eventually};

const SOON: Duration = Duration::from_secs(60);
const DRAINED: Duration = Duration::from_secs(180);

/// `./scripts/soak postgres-crash` and `postgres-cut` ask for more.
fn rounds() -> usize {
    std::env::var("WAYPOST_ROUNDS").map_or(3, |text| text.parse().unwrap())
}

fn worker(shop: &Shop) -> Running {
    shop.spawn(&["worker", "--allow-commands", "--slots", "4", "--lease", "5s", "--grace", "1s"])
}

/// Of the demo's lifecycle, where a claim whose answer was lost ends after 2 s, not after 5 min. Each run writes its id down and takes a moment, so that some are always under way.
fn new_run(shop: &Shop) -> NewRun {
    let script = "echo $WAYPOST_RUN_ID >> \"$0\"; sleep 0.05";
    let ledger = shop.path("ledger");
    NewRun {
        lifecycle: "demo".into(),
        carried: Some(json!({ "command": ["sh", "-c", script, ledger.to_str().unwrap()] })),
        ..NewRun::default()
    }
}

/// Enqueues until it is answered: a key makes asking again harmless.
async fn enqueue(store: &dyn Database, new: &NewRun, key: String) -> String {
    let run = NewRun { idempotency_key: Some(key), ..new.clone() };
    loop {
        match store.enqueue(vec![run.clone()]).await.map(|mut answers| answers.remove(0)) {
            Ok(Ok(answer)) => return answer.run.id().to_owned(),
            Ok(Err(StoreError::Unavailable(_))) | Err(StoreError::Unavailable(_)) => {
                store.changed(Duration::from_millis(50)).await;
            }
            Ok(Err(error)) | Err(error) => panic!("{error}"),
        }
    }
}

/// All that was answered is there and settled, nothing ran twice, the log agrees. Says how they ended.
fn ends(shop: &Shop, ids: &[String]) -> BTreeMap<String, usize> {
    eventually("every run ends", DRAINED, || {
        let ran = shop.run(&["queue", "stats", "-o", "json"]);
        let Ok(stats) = serde_json::from_str::<Value>(&ran.out) else { return false };
        stats.as_array().unwrap().iter().all(|queue| queue["ready"] == 0 && queue["held"] == 0)
    });
    let runs = shop.runs();
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for run in &runs {
        assert_eq!(run["phase"], "settled", "{run:#}");
        *ends.entry(run["error_code"].as_str().unwrap_or("success").to_owned()).or_default() += 1;
    }
    for id in ids {
        assert!(runs.iter().any(|run| run["run_id"] == id.as_str()), "{id} was answered and is not there");
    }
    assert_eq!(runs.len(), ids.len(), "each key made one run");
    let mut worked: BTreeMap<String, usize> = BTreeMap::new();
    for line in fs::read_to_string(shop.path("ledger")).unwrap().lines() {
        *worked.entry(line.to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = worked.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "a run of this lifecycle is begun once: {twice:?}");
    shop.verifies();
    ends
}

/// `disturb` happens again and again while runs come in and are worked.
async fn under_load(shop: &Shop, mut disturb: impl FnMut()) -> Vec<String> {
    let store = shop.store().await;
    store.add_lifecycle(include_str!("../../src/demo/demo.toml").to_owned(), "tests".into()).await.unwrap();
    let workers: Vec<Running> = (0..3).map(|_| worker(shop)).collect();
    let new = new_run(shop);
    let mut ids = Vec::new();
    for round in 0..rounds() {
        for number in 0..20 {
            ids.push(enqueue(&*store, &new, format!("{round}-{number}")).await);
        }
        let worked = || fs::read_to_string(shop.path("ledger")).map_or(0, |text| text.lines().count());
        let before = worked();
        eventually("runs are worked", SOON, || worked() > before || worked() == ids.len());
        disturb();
        for number in 20..30 {
            ids.push(enqueue(&*store, &new, format!("{round}-{number}")).await);
        }
    }
    let found = ends(shop, &ids);
    println!("{} rounds, {} runs ended: {found:?}; verify is clean", rounds(), ids.len());
    drop(workers);
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_under_load_loses_nothing() {
    let cluster = Cluster::start().unwrap();
    let shop = Shop::at(&cluster.url());
    shop.ok(&["migrate"]);
    under_load(&shop, || {
        cluster.stop_immediately().unwrap();
        cluster.start_again().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_under_load_lose_nothing() {
    let shop = Shop::on_postgres();
    under_load(&shop, || {
        shop.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
    })
    .await;
}

/// A worker that is stopped past its lease and goes on: its run is another's, or lost; what it writes is refused, and its
/// children end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_worker_wakes_to_a_lost_lease() {
    for (lifecycle, then) in [("deploy", "failed"), ("job", "completed")] {
        let shop = Shop::on_postgres();
        let go = shop.path("go");
        // Whoever works it waits for the file; the frozen one's would write down that it went on.
        let script = format!(
            "echo $$ >> {0}; while ! [ -e {1} ]; do sleep 0.05; done; echo done >> {0}",
            shop.path("steps").display(),
            go.display()
        );
        let run_id = shop.queue(&["--lifecycle", lifecycle], &script);
        let steps = || fs::read_to_string(shop.path("steps")).unwrap_or_default();
        let frozen = shop.spawn(&["worker", "--allow-commands", "--lease", "2s"]);
        eventually("the run is under way", SOON, || steps().lines().count() == 1);
        frozen.signal("STOP");
        let other = shop.spawn(&["worker", "--allow-commands", "--lease", "2s"]);
        if lifecycle == "deploy" {
            eventually("it is lost", SOON, || shop.show(&run_id)["error_code"] == "WORKER_LOST");
        } else {
            eventually("it is taken over", SOON, || steps().lines().count() == 2);
        }
        let fence = shop.show(&run_id)["fence"].clone();
        frozen.signal("CONT");
        let first: String = steps().lines().next().unwrap().to_owned();
        eventually("the frozen worker's child is ended", SOON, || {
            !fs::exists(format!("/proc/{first}/fd")).unwrap_or(false)
        });
        fs::write(&go, "").unwrap();
        eventually("the run ends", SOON, || shop.show(&run_id)["phase"] == "settled");
        let run = shop.show(&run_id);
        assert_eq!((&run["status"], &run["fence"]), (&json!(then), &fence), "{run:#}");
        let dones = steps().lines().filter(|line| *line == "done").count();
        assert_eq!(dones, usize::from(lifecycle == "job"), "only the one with the lease went on");
        shop.verifies();
        drop((frozen, other));
    }
}
