//! Bulk changes mended by hand, with `sqlite3` and `psql`: seed 004's invariants hold whatever is written, and the counts that a run keeps of
//! its targets are right after every write.
// proves R3, R14

use std::sync::Arc;

use serde_json::json;
use waypost_kernel::{Failure, Span};
use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{
    AddTargets, Claimed, CommandWrite, Database, End, Held, Housekeeping, ItemRow, NewRun, NewTarget,
    TargetResult, Tried, WorkTargets,
};

use crate::by_hand::sqlite3;
use crate::ops::kit;

type Run<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Enough that their counts are kept.
const TARGETS: usize = 70;

async fn applying(store: &dyn Database) -> Claimed {
    let new = NewRun { lifecycle: "rule".into(), ..NewRun::default() };
    let run = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run;
    let target = |at: usize| NewTarget {
        key: format!("t{at:02}"),
        before: json!({ "unit_amount": 1_000 }),
        after: json!({ "unit_amount": 900 + at }),
        ..NewTarget::default()
    };
    let write = AddTargets {
        tenant: "default".into(),
        run_id: run.id().into(),
        by: "ann".into(),
        rows: TARGETS as u64,
        targets: (0..TARGETS).map(target).collect(),
        last: true,
        ..AddTargets::default()
    };
    store.add_targets(write).await.unwrap();
    let queue = CommandWrite {
        tenant: "default".into(),
        run_id: run.id().into(),
        name: "queue".into(),
        by: "ann".into(),
        ..CommandWrite::default()
    };
    store.command(queue).await.unwrap();
    store.claim_run(run.id().into(), "w1".into()).await.unwrap()
}

async fn work(
    store: &dyn Database,
    claimed: &Claimed,
    results: Vec<TargetResult>,
    take: usize,
) -> Vec<ItemRow> {
    let write = WorkTargets {
        held: Held { run_id: claimed.run.id().into(), token: claimed.token },
        by: "w1".into(),
        results,
        take,
        give_up_after: Span::from_seconds(3_600),
        end: End::WhenDone,
    };
    store.work_targets(write).await.unwrap().taken
}

fn tried(row: &ItemRow, tried: Tried) -> TargetResult {
    TargetResult { key: row.key.clone(), try_no: row.try_no, tried, output: None }
}

fn failed() -> Tried {
    Tried::Failed { failure: Failure::new("VALIDATION", "no") }
}

async fn counts(store: &dyn Database, id: &str) -> serde_json::Value {
    store.run("default".into(), id.into()).await.unwrap().object()["items"]["target"].clone()
}

async fn verified(store: &dyn Database) {
    assert_eq!(store.verify(Arc::new(|_, _| {})).await.unwrap().differences, Vec::<String>::new());
}

/// `runs` and `items` are where a hand writes, `kept` is where counts are kept.
async fn judge(store: &dyn Database, (runs, items, kept): (&str, &str, &str), run: Run<'_>) {
    let claimed = applying(store).await;
    let id = claimed.run.id().to_owned();
    let of = |key: &str| match items {
        "items" => format!("run_id = '{id}' AND key = '{key}'"),
        _ => format!("rid = (SELECT rid FROM waypost.runs WHERE run_id = '{id}') AND key = '{key}'"),
    };
    let refused = |sql: &str| run(sql).expect_err(sql);
    let set_run = |status: &str| {
        format!(
            "UPDATE {runs} SET status = '{status}', finished_at = '2099-01-01T00:00:00.000Z' WHERE run_id = '{id}'"
        )
    };
    // Some are open: no end is true.
    for status in ["APPLIED", "PARTIAL", "ROLLED_BACK", "QUEUED", "PREVIEW"] {
        let said = refused(&set_run(status));
        assert!(said.contains("INVALID_TRANSITION") || said.contains("SHAPE"), "{status}: {said}");
    }
    let taken = work(store, &claimed, Vec::new(), TARGETS).await;
    let mut results: Vec<TargetResult> = taken.iter().skip(2).map(|row| tried(row, Tried::Applied)).collect();
    results.push(tried(&taken[0], failed()));
    work(store, &claimed, results, 0).await;
    assert_eq!(counts(store, &id).await, json!({ "APPLIED": 68, "FAILED": 1, "APPLYING": 1 }));
    let kept = format!("SELECT count(*) FROM {kept} WHERE tally IS NOT NULL");
    assert_eq!(run(&kept).unwrap(), "1");
    // By hand: the counts follow, and what the worker brings next is decided on them.
    run(&format!("UPDATE {items} SET status = 'FAILED', error_code = 'TIMEOUT' WHERE {}", of("t01")))
        .unwrap();
    assert_eq!(counts(store, &id).await, json!({ "APPLIED": 68, "FAILED": 2 }));
    let lost = format!("SELECT key FROM {items} WHERE in_doubt");
    assert_eq!(run(&lost).unwrap(), "t01", "it was outside, and nobody knows what came of it");
    verified(store).await;
    assert!(refused(&set_run("APPLIED")).contains("INVALID_TRANSITION"), "APPLIED with a failed target");
    for (sql, word) in [
        (format!("UPDATE {items} SET status = 'APPLIED' WHERE {}", of("t00")), "INVALID_TRANSITION"),
        (format!("UPDATE {items} SET status = 'QUEUED' WHERE {}", of("t05")), "INVALID_TRANSITION"),
        (format!("UPDATE {items} SET finished_at = NULL WHERE {}", of("t05")), "SETTLED"),
        (format!("UPDATE {items} SET attempts = 9 WHERE {}", of("t00")), "IMMUTABLE"),
        (format!("UPDATE {items} SET throttled = 9 WHERE {}", of("t00")), "IMMUTABLE"),
        (format!("UPDATE {items} SET in_doubt = NOT in_doubt WHERE {}", of("t00")), "IMMUTABLE"),
        (format!("DELETE FROM {items} WHERE {}", of("t00")), "APPEND_ONLY"),
    ] {
        assert!(refused(&sql).contains(word), "{sql}");
    }
    work(store, &claimed, Vec::new(), 0).await;
    let row = store.run("default".into(), id.clone()).await.unwrap();
    assert_eq!(row.status(), "PARTIAL", "the worker's next word ends it as it is counted");
    verified(store).await;
    for status in ["APPLIED", "FAILED", "QUEUED", "PREVIEW", "ROLLED_BACK"] {
        assert!(run(&set_run(status)).is_err(), "{status}");
    }
    let times = format!(
        "SELECT count(*) FROM {runs} WHERE run_id = '{id}' AND queued_at <= started_at AND started_at <= finished_at"
    );
    assert_eq!(run(&times).unwrap(), "1");
    let applied = format!(
        "SELECT count(*) FROM {items} WHERE status = 'APPLIED' AND finished_at IS NULL OR attempts > max_retries OR attempts < 0"
    );
    assert_eq!(run(&applied).unwrap(), "0");
}

#[tokio::test]
async fn the_file_keeps_seed_004s_invariants() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    judge(&store, ("runs", "items", "run_now"), &|sql| sqlite3(&path, sql)).await;
    let again = SqliteStore::open(&path).unwrap();
    verified(&again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_seed_004s_invariants() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    judge(&store, ("waypost.board", "waypost.items", "waypost.runs"), &|sql| ops.server.psql(sql)).await;
    let again = PostgresStore::open(&ops.server.url()).await.unwrap();
    verified(&again).await;
}

/// What is kept and wrong is found.
#[tokio::test]
async fn counts_that_were_forged_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let claimed = applying(&store).await;
    drop(store);
    let forged = json!([["target", "QUEUED", 69, 0], ["target", "APPLIED", 1, 0]]).to_string();
    let sql = "DROP TRIGGER by_hand_move; DROP TRIGGER run_now_move;";
    sqlite3(&path, &format!("{sql} UPDATE run_now SET tally = '{forged}'")).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let told = store.verify(Arc::new(|_, _| {})).await.unwrap().differences;
    assert!(told.len() == 1 && told[0].contains(claimed.run.id()), "{told:?}");
}
