//! A failed step ends its run's course for whoever writes: with `sqlite3` and `psql`, to the tables and through the
//! views, past the engine. And what got past the databases too is told by `verify`, from the log alone.
// proves X2

use std::sync::Arc;

use serde_json::Map;
use waypost_kernel::item::Role;
use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Claimed, CommandWrite, Database, Held, ItemWrite, ItemsWrite, NewItem, NewRun};

use crate::by_hand::sqlite3;
use crate::ops::kit::{self, Ops};

const PARTS: [(&str, Role); 5] = [
    ("check", Role::Step),
    ("destroy", Role::Step),
    ("report", Role::Optional),
    ("restore", Role::Cleanup),
    ("last", Role::Step),
];

async fn job(store: &dyn Database) -> String {
    let part = |(key, role): (&str, Role)| NewItem {
        kind: "step".into(),
        key: key.into(),
        name: key.into(),
        status: None,
        max_retries: 3,
        reruns: false,
        role,
        details: Map::new(),
        copied: false,
    };
    let new =
        NewRun { lifecycle: "job".into(), items: PARTS.into_iter().map(part).collect(), ..NewRun::default() };
    store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned()
}

async fn claimed(store: &dyn Database) -> Claimed {
    let id = job(store).await;
    store.claim_run(id, "w1".into()).await.unwrap()
}

async fn begin(store: &dyn Database, claimed: &Claimed, key: &str) -> String {
    let held = Held { run_id: claimed.run.id().into(), token: claimed.token };
    let item =
        ItemWrite { kind: "step".into(), key: key.into(), status: "running".into(), ..ItemWrite::default() };
    let answer = store.put_items(ItemsWrite { held, by: "w1".into(), items: vec![item] }).await;
    answer.map_or_else(|error| error.to_string(), |_| "begun".into())
}

async fn differences(store: &dyn Database) -> Vec<String> {
    store.verify(Arc::new(|_, _| {})).await.unwrap().differences
}

/// `ITEMS` is the table, `S` the column of its state; each by its key.
fn refused_after_a_failure() -> [String; 7] {
    [
        "UPDATE ITEMS SET S = 'running' WHERE key = 'destroy'",
        "UPDATE ITEMS SET S = 'running' WHERE key = 'report'",
        "UPDATE ITEMS SET S = 'running', seq = seq + 1 WHERE key = 'destroy'",
        "UPDATE ITEMS SET S = 'completed' WHERE key = 'destroy'",
        "UPDATE ITEMS SET S = 'running' WHERE key IN ('restore', 'last')",
        "UPDATE ITEMS SET role = 'cleanup' WHERE key = 'destroy'",
        "UPDATE ITEMS SET role = 'cleanup', S = 'running' WHERE key = 'destroy'",
    ]
    .map(str::to_owned)
}

async fn judge(store: &dyn Database, table: &str, run: &dyn Fn(&str) -> Result<String, String>) {
    let claimed = claimed(store).await;
    let spelt = |sql: &str| sql.replace("ITEMS", table).replace("S = ", "status = ");
    let set = |key: &str, to: &str| run(&spelt(&format!("UPDATE ITEMS SET S = '{to}' WHERE key = '{key}'")));
    set("check", "running").unwrap();
    set("check", "failed").unwrap();
    for sql in refused_after_a_failure() {
        let Err(error) = run(&spelt(&sql)) else { panic!("was accepted: {sql}") };
        // Whichever is looked at first: what a hand may not write, what is no move, or what has failed.
        let words = match &*sql {
            _ if sql.contains("role") || sql.contains("seq") => &["IMMUTABLE", "FAILURE_RECORDED"][..],
            _ if sql.contains("completed") => &["INVALID_TRANSITION", "FAILURE_RECORDED"],
            _ => &["FAILURE_RECORDED"],
        };
        assert!(words.iter().any(|word| error.contains(word)), "{sql}: {error}");
    }
    // The engine knows of it, though nobody told the run.
    let told = begin(store, &claimed, "destroy").await;
    assert!(told.contains("FAILURE_RECORDED") && told.contains("check has failed"), "{told}");
    assert_eq!(begin(store, &claimed, "restore").await, "begun");
    assert!(begin(store, &claimed, "last").await.contains("FAILURE_RECORDED"));
    set("restore", "completed").unwrap();
    set("destroy", "skipped").unwrap();
    set("last", "failed").unwrap();
    assert_eq!(differences(store).await, Vec::<String>::new());
}

#[tokio::test]
async fn nothing_begins_by_hand_after_a_failed_step_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    judge(&store, "items", &|sql| sqlite3(&path, sql)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_begins_by_hand_after_a_failed_step_in_postgres() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    judge(&store, "waypost.items", &|sql| ops.server.psql(sql)).await;
}

/// Once a cancel or a pause is stored, nothing begins by hand either, but cleanups; what is under way may end.
async fn judge_wanted(store: &dyn Database, table: &str, run: &dyn Fn(&str) -> Result<String, String>) {
    for (name, word) in [("cancel", "CANCEL_REQUESTED"), ("pause", "PAUSE_REQUESTED")] {
        let claimed = claimed(store).await;
        let id = claimed.run.id();
        let of = match table {
            "items" => format!("run_id = '{id}'"),
            _ => format!("rid = (SELECT rid FROM waypost.runs WHERE run_id = '{id}')"),
        };
        let set = |key: &str, to: &str| {
            run(&format!("UPDATE {table} SET status = '{to}' WHERE key = '{key}' AND {of}"))
        };
        set("check", "running").unwrap();
        let asked = CommandWrite {
            tenant: "default".into(),
            run_id: id.into(),
            name: name.into(),
            by: "ann".into(),
            reason: Some("why".into()),
            ..CommandWrite::default()
        };
        store.command(asked).await.unwrap();
        for key in ["destroy", "report"] {
            let error = set(key, "running").unwrap_err();
            assert!(error.contains(word), "{name} {key}: {error}");
        }
        set("check", "completed").unwrap();
        set("restore", "running").unwrap();
        set("restore", "completed").unwrap();
    }
    assert_eq!(differences(store).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_begins_by_hand_once_a_cancel_or_a_pause_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    judge_wanted(&store, "items", &|sql| sqlite3(&path, sql)).await;
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    judge_wanted(&store, "waypost.items", &|sql| ops.server.psql(sql)).await;
}

/// Nor does a run end well whose step has failed, whether a hand or its worker told of that; it may end as failed.
async fn judge_end(store: &dyn Database, runs: &str, run: &dyn Fn(&str) -> Result<String, String>) {
    for told_by_worker in [false, true] {
        let claimed = claimed(store).await;
        assert_eq!(begin(store, &claimed, "check").await, "begun");
        let id = claimed.run.id();
        if told_by_worker {
            let held = Held { run_id: id.into(), token: claimed.token };
            let item = ItemWrite {
                kind: "step".into(),
                key: "check".into(),
                status: "failed".into(),
                ..ItemWrite::default()
            };
            store.put_items(ItemsWrite { held, by: "w1".into(), items: vec![item] }).await.unwrap();
        } else {
            let (items, of) = match runs {
                "runs" => ("items", format!("run_id = '{id}'")),
                _ => ("waypost.items", format!("rid = (SELECT rid FROM waypost.runs WHERE run_id = '{id}')")),
            };
            run(&format!("UPDATE {items} SET status = 'failed' WHERE key = 'check' AND {of}")).unwrap();
        }
        let set = |status: &str| {
            run(&format!(
                "UPDATE {runs} SET status = '{status}', finished_at = '2026-02-14T08:00:00Z' WHERE run_id = '{id}'"
            ))
        };
        let refused = set("completed").unwrap_err();
        assert!(refused.contains("FAILURE_RECORDED"), "{refused}");
        set("failed").unwrap();
        assert_eq!(store.run("default".into(), id.into()).await.unwrap().status(), "failed");
    }
    assert_eq!(differences(store).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_a_failed_step_does_not_end_well_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    judge_end(&store, "runs", &|sql| sqlite3(&path, sql)).await;
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    judge_end(&store, "waypost.board", &|sql| ops.server.psql(sql)).await;
}

/// Those who work a job from SQL, through the seed's view.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_begins_through_the_view_after_a_failed_step() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let id = job(&store).await;
    ops.psql(&format!("UPDATE ops.jobs SET status = 'running', claimed_by = 'me' WHERE id = '{id}'"));
    let set = |key: &str, to: &str| {
        format!(
            "UPDATE ops.workflow_executions SET step_status = '{to}' WHERE job_id = '{id}' AND step_key = '{key}'"
        )
    };
    ops.psql(&set("check", "running"));
    ops.psql(&set("check", "failed"));
    ops.refused(&set("destroy", "running")).is("WP409", "FAILURE_RECORDED");
    ops.refused(&set("report", "running")).is("WP409", "FAILURE_RECORDED");
    let insert = |values: &str| {
        format!(
            "INSERT INTO ops.workflow_executions(job_id, step_name, step_status, step_role) VALUES ('{id}', {values})"
        )
    };
    ops.refused(&insert("'new', 'running', NULL")).is("WP409", "FAILURE_RECORDED");
    ops.refused(&insert("'new', 'pending', 'sweeper'")).is("WP422", "step_role");
    ops.psql(&insert("'tidy', 'running', 'cleanup'"));
    ops.psql(&set("restore", "running"));
    ops.refused(&format!("UPDATE ops.jobs SET status = 'completed' WHERE id = '{id}'"))
        .is("WP409", "FAILURE_RECORDED");
    let roles = "SELECT string_agg(step_name || '=' || step_role, ',' ORDER BY step_number) FROM ops.workflow_executions";
    assert_eq!(
        ops.psql(roles),
        "check=step,destroy=step,report=optional,restore=cleanup,last=step,tidy=cleanup"
    );
    assert_eq!(ops.verify(), 1);
}

/// Two sessions at once, one of which fails a step and the other begins one: in one order or the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_begins_while_another_fails_goes_before_or_after() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let claimed = claimed(&store).await;
    ops.psql("UPDATE waypost.items SET status = 'running' WHERE key = 'check'");
    let failing = "BEGIN; UPDATE waypost.items SET status = 'failed' WHERE key = 'check'; SELECT pg_advisory_lock(1); COMMIT";
    let (holder, connection) =
        tokio_postgres::connect(&ops.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    holder.simple_query("SELECT pg_advisory_lock(1)").await.unwrap();
    std::thread::scope(|scope| {
        let fails = scope.spawn(|| ops.server.psql(failing));
        let waits = |wait: &str| {
            let sql = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = '{wait}'"
            );
            while ops.psql(&sql) == "0" {}
        };
        waits("advisory");
        let begins = scope
            .spawn(|| ops.server.psql("UPDATE waypost.items SET status = 'running' WHERE key = 'destroy'"));
        waits("transactionid");
        ops.psql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted");
        assert!(fails.join().unwrap().is_ok());
        let error = begins.join().unwrap().unwrap_err();
        assert!(error.contains("FAILURE_RECORDED"), "{error}");
    });
    assert_eq!(claimed.run.status(), "running");
    assert_eq!(differences(&store).await, Vec::<String>::new());
}

/// However many optional ones failed before it: the look goes to the index.
#[tokio::test]
async fn the_look_for_a_failed_step_is_one_probe() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let _store = SqliteStore::open(&path).unwrap();
    let look = "EXPLAIN QUERY PLAN SELECT 1 FROM lifecycle_states f CROSS JOIN items i WHERE f.lifecycle = 'step' AND f.version = 1 \
                AND f.course = 'ends' AND i.run_id = 'x' AND i.kind = 'step' AND i.status = f.state AND i.role = 'step'";
    let plan = sqlite3(&path, look).unwrap();
    assert!(plan.contains("items_status (run_id=? AND kind=? AND status=? AND role=?)"), "{plan}");
    let ops: Ops = kit::open();
    // In an empty table the index of pages costs as much; it knows nothing of states.
    let look = "SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; DROP INDEX waypost.items_place; EXPLAIN SELECT 1 FROM waypost.items i WHERE i.rid = 1 \
                AND i.kind = 'step' AND i.status = 'failed' AND i.role = 'step'";
    let plan = ops.psql(look);
    assert!(plan.contains("items_status") && plan.contains("role = 'step'"), "{plan}");
}

/// A log that tells of it, by somebody who took the guard away.
async fn forged(
    store: &dyn Database,
    run: &dyn Fn(&str) -> Result<String, String>,
    table: &str,
    guard: &str,
) {
    let claimed = claimed(store).await;
    run(guard).unwrap();
    for (key, to) in
        [("check", "running"), ("check", "failed"), ("restore", "running"), ("destroy", "running")]
    {
        run(&format!("UPDATE {table} SET status = '{to}' WHERE key = '{key}'")).unwrap();
    }
    let seq = store.run("default".into(), claimed.run.id().into()).await.unwrap().run.seq;
    let id = claimed.run.id();
    let told = format!("{id}: event {seq} begins step destroy though check had failed before");
    assert_eq!(differences(store).await, [told]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_tells_of_a_step_that_began_after_a_failed_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    forged(&store, &|sql| sqlite3(&path, sql), "items", "DROP TRIGGER items_course").await;
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let guard = "ALTER TABLE waypost.items DISABLE TRIGGER items_move";
    forged(&store, &|sql| ops.server.psql(sql), "waypost.items", guard).await;
}
