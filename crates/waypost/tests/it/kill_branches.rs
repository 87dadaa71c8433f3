//! A worker is killed at every place of a run with three branches under way at once: each step is done under one key, what
//! is to be undone is, and nothing is stuck.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use waypost_kernel::Span;

use crate::support::{Shop, eventually};

const LONG: Duration = Duration::from_secs(60);
const LEASE: Span = Span::from_seconds(60);
/// What a whole run executes.
const STEPS: [&str; 9] = ["lock", "a1", "a2", "b1", "b2", "c[1]", "c[2]", "join", "cleanup: unlock"];

/// Signs, and hangs from the place on at which its worker is to be killed.
const SCRIPT: &str = r#"#!/bin/sh
echo "$WAYPOST_IDEMPOTENCY_KEY" >> ledger
until test -e go || test $(wc -l < ledger) -lt $(cat place); do sleep 0.01; done
"#;

const PLAYBOOK: &str = r#"
name = "branches"
lifecycle = "job"
step = [
  { name = "lock", exec = ["./sign.sh"] },
  { name = "a1", exec = ["./sign.sh"], needs = ["lock"] },
  { name = "a2", exec = ["./sign.sh"] },
  { name = "b1", exec = ["./sign.sh"], needs = ["lock"] },
  { name = "b2", exec = ["./sign.sh"] },
  { name = "c", exec = ["./sign.sh"], needs = ["lock"], for_each = "[1, 2]", parallel = 2 },
  { name = "join", exec = ["./sign.sh"], needs = ["a2", "b2", "c"] },
]
cleanup = [{ name = "unlock", after = "lock", exec = ["./sign.sh"] }]
"#;

// proves U5, X5
#[tokio::test]
async fn a_worker_killed_at_any_place_of_three_branches_leaves_nothing_undone() {
    kill_everywhere(Shop::new()).await;
}

// proves U5, X5
#[tokio::test]
async fn a_worker_killed_at_any_place_of_three_branches_on_postgres_leaves_nothing_undone() {
    kill_everywhere(Shop::on_postgres()).await;
}

async fn kill_everywhere(shop: Shop) {
    shop.ok(&["run", "list"]);
    for place in 1..=STEPS.len() {
        killed_at(&shop, place).await;
    }
    shop.verifies();
}

async fn killed_at(shop: &Shop, place: usize) {
    let folder = shop.path(&format!("place-{place}"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("playbook.toml"), PLAYBOOK).unwrap();
    fs::write(folder.join("sign.sh"), SCRIPT).unwrap();
    let chmod = std::process::Command::new("chmod").arg("+x").arg(folder.join("sign.sh")).status();
    assert!(chmod.unwrap().success());
    fs::write(folder.join("place"), place.to_string()).unwrap();
    let file = folder.join("playbook.toml");
    let run_id = shop.ok(&["run", "start", file.to_str().unwrap()]).trim().to_owned();
    let ledger = || fs::read_to_string(folder.join("ledger")).unwrap_or_default();
    let worker = || shop.spawn(&["worker", "--allow-commands", "--lease", "60s", "--grace", "1s"]);
    let mut first = worker();
    eventually("it has come to that place", LONG, || ledger().lines().count() >= place);
    first.kill();
    fs::write(folder.join("go"), "").unwrap();
    let store = shop.store().await;
    store.advance_clock(LEASE).await.unwrap();
    let mut second = worker();
    eventually("the next worker ends it", LONG, || shop.show(&run_id)["phase"] == "settled");
    second.kill();
    let run = shop.show(&run_id);
    assert_eq!(run["status"], "completed", "{place}: {run:#}");
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for key in ledger().lines() {
        let step = key.rsplit_once(':').unwrap().0.to_owned();
        *times.entry(step.clone()).or_default() += 1;
        keys.entry(step).or_default().insert(key.to_owned());
    }
    assert_eq!(keys.len(), STEPS.len(), "{place}: {keys:?}");
    assert!(keys.values().all(|keys| keys.len() == 1), "{place}: {keys:?}");
    // Once more at most: what was under way when the worker was killed.
    assert!(times.values().all(|times| *times <= 2), "{place}: {times:?}");
    let rows = store.items(run_id, Some("step".to_owned())).await.unwrap();
    let mut done: Vec<&str> =
        rows.iter().filter(|row| row.status == "completed").map(|row| row.key.as_str()).collect();
    let mut all = STEPS.to_vec();
    done.sort_unstable();
    all.sort_unstable();
    assert_eq!(done, all, "{place}");
}
