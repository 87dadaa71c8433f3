//! Steps that a run has from the one that it repeats: who else would write one is refused by the tables' guards, and what was forged past
//! them is found by `verify`.
// proves U3 and X2

use serde_json::json;
use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Database, ItemWrite, NewItem, NewRun};

use crate::by_hand::sqlite3;
use crate::conformance::kit::{finish, held_run, item, job, moving, new, put, write_items};
use crate::ops::kit;

/// The old run and the one that repeats it: `scan` is done in both, `ship` failed in the old one.
async fn repeated(store: &dyn Database) -> (String, String) {
    let claimed = held_run(store, job(&["scan", "ship"])).await;
    let done = ItemWrite { output: Some(json!({"image": "i7"})), ..moving("step", "scan", "completed") };
    write_items(store, &claimed, vec![done, moving("step", "ship", "failed")]).await.unwrap();
    finish(store, &claimed, "failed").await.unwrap();
    let old = claimed.run.id().to_owned();
    let items = vec![NewItem { copied: true, ..item("step", "scan") }, item("step", "ship")];
    let new = put(store, NewRun { retry_of: Some(old.clone()), items, ..new("job") }).await;
    (old, new.id().to_owned())
}

async fn differences(store: &dyn Database) -> Vec<String> {
    store.verify(std::sync::Arc::new(|_, _| {})).await.unwrap().differences
}

/// `open` takes the refusal of hands away, so that what is left is the rule of births; `off` takes all guards away. `insert` writes a step of the
/// new run that is done: its key, and its output. `renamed` makes the old run one of another playbook.
async fn attack(
    store: &dyn Database,
    run: &dyn Fn(&str) -> Result<String, String>,
    (open, off): (&str, &str),
    insert: &dyn Fn(&str, &str, &str) -> String,
    output: &dyn Fn(&str, &str) -> String,
    renamed: &dyn Fn(&str) -> String,
) {
    let (old, repeats) = repeated(store).await;
    assert_eq!(differences(store).await, Vec::<String>::new());
    run(open).unwrap();
    // Not there, failed there, and with another output.
    for (key, said) in [("none", "1"), ("ship", "null"), ("scan", "{\"image\": \"forged\"}")] {
        let refused = run(&insert(&repeats, key, said)).unwrap_err();
        assert!(refused.contains("INVALID_TRANSITION") || refused.contains("constraint"), "{key}: {refused}");
    }
    let other = NewRun { retry_of: Some(old.clone()), playbook: Some("other".into()), ..new("job") };
    let other = put(store, other).await;
    let refused = run(&insert(other.id(), "scan", "{\"image\": \"i7\"}")).unwrap_err();
    assert!(refused.contains("INVALID_TRANSITION"), "a step of another playbook: {refused}");
    run(off).unwrap();
    run(&output(&old, "{\"image\": \"i8\"}")).unwrap();
    let told =
        format!("{repeats}: step scan was completed from the beginning, and is no copy of one in {old}");
    assert_eq!(differences(store).await, [told]);
    // The same output, of a run that did something else.
    run(&output(&old, "{\"image\":\"i7\"}")).unwrap();
    assert_eq!(differences(store).await, Vec::<String>::new());
    run(&renamed(&old)).unwrap();
    let told = format!(
        "{repeats}: step scan was completed from the beginning, and {old} is a run of another playbook or lifecycle"
    );
    assert_eq!(differences(store).await, [told]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_nobody_forges_a_step_that_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let run = |sql: &str| sqlite3(&path, sql);
    let names = run(
        "SELECT 'DROP TRIGGER ' || name || ';' FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'items' AND name <> 'by_hand_item'",
    );
    let insert = |new: &str, key: &str, said: &str| {
        format!(
            "INSERT OR ABORT INTO items(run_id, kind, key, version, place, seq, name, status, output) \
             VALUES ('{new}', 'step', '{key}', 1, 9, 1, 'x', 'completed', '{said}')"
        )
    };
    let output = |old: &str, said: &str| {
        format!("UPDATE items SET output = '{said}' WHERE run_id = '{old}' AND key = 'scan'")
    };
    let renamed = |old: &str| {
        format!("DROP TRIGGER run_born_update; UPDATE run_born SET playbook = 'other' WHERE run_id = '{old}'")
    };
    attack(&store, &run, ("DROP TRIGGER by_hand_item", &names.unwrap()), &insert, &output, &renamed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_nobody_forges_a_step_that_is_done() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let run = |sql: &str| ops.server.psql(sql);
    let insert = |new: &str, key: &str, said: &str| {
        format!(
            "INSERT INTO waypost.items(rid, kind, key, version, place, seq, name, status, output) \
             SELECT rid, 'step', '{key}', 1, 9, 1, 'x', 'completed', '{said}'::jsonb FROM waypost.runs WHERE run_id = '{new}'"
        )
    };
    let output = |old: &str, said: &str| {
        format!(
            "UPDATE waypost.items SET output = '{said}' WHERE key = 'scan' AND rid = (SELECT rid FROM waypost.runs WHERE run_id = '{old}')"
        )
    };
    let open = "ALTER TABLE waypost.items DISABLE TRIGGER items_born";
    let off = "ALTER TABLE waypost.items DISABLE TRIGGER USER";
    let renamed = |old: &str| {
        format!(
            "ALTER TABLE waypost.runs DISABLE TRIGGER USER; UPDATE waypost.runs SET playbook = 'other' WHERE run_id = '{old}'"
        )
    };
    attack(&store, &run, (open, off), &insert, &output, &renamed).await;
}
