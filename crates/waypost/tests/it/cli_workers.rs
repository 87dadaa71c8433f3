//! Several worker processes on one database: every run is worked once.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use waypost_store::NewRun;

use crate::support::Shop;

const BATCH: usize = 500;

/// `./scripts/soak claim-10000` and `claim-20000` ask for more.
fn size() -> usize {
    std::env::var("WAYPOST_CLAIMS").map_or(600, |text| text.parse().unwrap())
}

async fn enqueue(shop: &Shop, count: usize) -> Vec<String> {
    shop.ok(&["run", "list"]);
    let store = shop.store().await;
    let script = "echo $WAYPOST_RUN_ID >> \"$0\"";
    let ledger = shop.path("ledger");
    let new = NewRun {
        lifecycle: "deploy".into(),
        carried: Some(json!({ "command": ["sh", "-c", script, ledger.to_str().unwrap()] })),
        ..NewRun::default()
    };
    let mut ids = Vec::new();
    while ids.len() < count {
        let batch = vec![new.clone(); BATCH.min(count - ids.len())];
        for answer in store.enqueue(batch).await.unwrap() {
            ids.push(answer.unwrap().run.id().to_owned());
        }
    }
    ids
}

#[tokio::test]
async fn four_processes_with_four_slots_work_every_run_once() {
    every_run_once(&Shop::new(), 4).await;
}

// proves D3
#[tokio::test]
async fn eight_processes_on_postgres_work_every_run_once() {
    every_run_once(&Shop::on_postgres(), 8).await;
}

async fn every_run_once(shop: &Shop, processes: usize) {
    let ids = enqueue(shop, size()).await;
    let args = ["worker", "--until-idle", "--allow-commands", "--slots", "4"];
    let mut workers: Vec<_> = (0..processes).map(|_| shop.spawn(&args)).collect();
    for worker in &mut workers {
        assert_eq!(worker.end(), Some(0));
    }
    let mut worked: BTreeMap<String, usize> = BTreeMap::new();
    for line in fs::read_to_string(shop.path("ledger")).unwrap().lines() {
        *worked.entry(line.to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = worked.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "worked more than once: {twice:?}");
    let lost: Vec<_> = ids.iter().filter(|id| !worked.contains_key(*id)).collect();
    assert!(lost.is_empty(), "never worked: {lost:?}");
    let unfinished = shop.runs().into_iter().filter(|run| run["status"] != "success");
    assert_eq!(unfinished.collect::<Vec<_>>(), Vec::<Value>::new());
    assert_eq!(shop.runs().len(), ids.len(), "a list is as long as it was asked to be");
    shop.verifies();
    println!(
        "{} runs, {processes} processes with 4 slots each: none twice, none lost; verify is clean",
        ids.len()
    );
}
