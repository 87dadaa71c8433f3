//! Items moved by hand, with `sqlite3` and `psql`: each pair of states is judged as the item's own table in SPEC.md says, a legal move gets
//! its event, and what the log tells of an item cannot be written beside it.
// proves X2

use std::sync::Arc;

use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Database, NewItem, NewRun};

use crate::by_hand::sqlite3;
use crate::ops::kit;
use crate::tables::{ITEMS, is_declared, way};

type Run<'a> = &'a dyn Fn(&str) -> Result<String, String>;

fn item(kind: &str, key: &str) -> NewItem {
    NewItem {
        kind: kind.into(),
        key: key.into(),
        name: key.into(),
        status: None,
        max_retries: 3,
        reruns: true,
        role: waypost_kernel::item::Role::Step,
        details: serde_json::Map::new(),
        copied: false,
    }
}

/// A new run with one item of a kind, in its first state.
async fn run_with(store: &dyn Database, kind: &str) -> String {
    let (lifecycle, items) = match kind {
        "target" => ("rule", vec![item(kind, "it")]),
        "task" => ("job", vec![item("step", "first"), item(kind, "it")]),
        _ => ("job", vec![item(kind, "it")]),
    };
    let new = NewRun { lifecycle: lifecycle.into(), items, ..NewRun::default() };
    store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned()
}

fn of(items: &str, id: &str) -> String {
    match items {
        "items" => format!("run_id = '{id}' AND key = 'it'"),
        _ => format!("rid = (SELECT rid FROM waypost.runs WHERE run_id = '{id}') AND key = 'it'"),
    }
}

async fn judge_all_pairs(store: &dyn Database, items: &str, run: Run<'_>) {
    let mut judged = 0;
    for table in &ITEMS {
        let (kind, states) = table;
        for (from, _) in *states {
            for (to, _) in states.iter().filter(|(to, _)| to != from) {
                let id = run_with(store, kind).await;
                let set =
                    |to: &str| run(&format!("UPDATE {items} SET status = '{to}' WHERE {}", of(items, &id)));
                for step in way(table, from) {
                    set(step).unwrap_or_else(|error| panic!("{kind} on its way to {from}: {error}"));
                }
                let before = store.events(id.clone(), 0, 100).await.unwrap().len();
                let answer = set(to);
                let declared = is_declared(&ITEMS, kind, from, to);
                assert_eq!(answer.is_ok(), declared, "{kind} {from} → {to}: {answer:?}");
                let said = answer.err().unwrap_or_default();
                // What would begin after a failure is refused for that as well.
                let words = ["INVALID_TRANSITION", "FAILURE_RECORDED"];
                assert!(
                    declared || words.iter().any(|word| said.contains(word)),
                    "{kind} {from} → {to}: {said}"
                );
                let status = run(&format!("SELECT status FROM {items} WHERE {}", of(items, &id))).unwrap();
                assert_eq!(status, if declared { *to } else { *from });
                let after = store.events(id, 0, 100).await.unwrap().len();
                assert_eq!(after - before, usize::from(declared), "{kind} {from} → {to}: its events");
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 30 + 12 + 30);
    verified(store).await;
}

async fn verified(store: &dyn Database) {
    assert_eq!(store.verify(Arc::new(|_, _| {})).await.unwrap().differences, Vec::<String>::new());
}

/// What a hand may not do to an item, in each of the states that it is brought to.
const REFUSED: &[(&[&str], &[&str])] = &[
    (
        &[],
        &[
            "UPDATE ITEMS SET seq = seq + 1",
            "UPDATE ITEMS SET seq = seq + 1, status = 'running'",
            "UPDATE ITEMS SET seq = 1",
            "UPDATE ITEMS SET attempts = 1",
            "UPDATE ITEMS SET status = 'running', attempts = 1",
            "UPDATE ITEMS SET status = 'running', try_no = 9",
            "UPDATE ITEMS SET try_no = 9",
            "UPDATE ITEMS SET max_retries = 9",
            "UPDATE ITEMS SET status = 'running', max_retries = 9",
            "UPDATE ITEMS SET discarded = TRUE",
            "UPDATE ITEMS SET reruns = FALSE",
            "UPDATE ITEMS SET stays = TRUE",
            "UPDATE ITEMS SET role = 'cleanup'",
            "UPDATE ITEMS SET key = 'other'",
            "UPDATE ITEMS SET kind = 'task'",
            "UPDATE ITEMS SET version = 2",
            "UPDATE ITEMS SET place = 7",
            "UPDATE ITEMS SET name = 'other'",
            "UPDATE ITEMS SET progress = 50",
            "UPDATE ITEMS SET error_code = 'X'",
            "UPDATE ITEMS SET not_before = '2099-01-01T00:00:00Z'",
            "UPDATE ITEMS SET started_at = '2020-01-01T00:00:00Z'",
            "UPDATE ITEMS SET finished_at = '2020-01-01T00:00:00Z'",
            "UPDATE ITEMS SET output = '{}'",
            "UPDATE ITEMS SET details = '{\"a\": 1}'",
            "UPDATE ITEMS SET status = 'completed'",
            "UPDATE ITEMS SET status = 'paused'",
            "UPDATE ITEMS SET status = 'nonsense'",
            "DELETE FROM ITEMS",
            "INSERT INTO ITEMS SELECT * FROM ITEMS LIMIT 0",
        ],
    ),
    (
        &["running", "completed"],
        &[
            "UPDATE ITEMS SET finished_at = NULL",
            "UPDATE ITEMS SET finished_at = '2020-01-01T00:00:00Z'",
            "UPDATE ITEMS SET progress = 1",
            "UPDATE ITEMS SET error_code = 'X'",
            "UPDATE ITEMS SET error_msg = 'x'",
            "UPDATE ITEMS SET output = '{}'",
            "UPDATE ITEMS SET status = 'failed'",
            "DELETE FROM ITEMS",
        ],
    ),
];

async fn refuse_the_rest(store: &dyn Database, items: &str, run: Run<'_>) {
    for (way, statements) in REFUSED {
        let id = run_with(store, "step").await;
        for step in *way {
            run(&format!("UPDATE {items} SET status = '{step}' WHERE {}", of(items, &id))).unwrap();
        }
        let row = || run(&format!("SELECT * FROM {items} WHERE {}", of(items, &id))).unwrap();
        let before = (row(), store.events(id.clone(), 0, 100).await.unwrap());
        for sql in *statements {
            // SQLite judges rows, and an insert of none has none.
            if sql.starts_with("INSERT") && items == "items" {
                continue;
            }
            let Err(said) = run(&sql.replace("ITEMS", items)) else { panic!("was accepted: {sql}") };
            let words = ["IMMUTABLE", "INVALID_TRANSITION", "SETTLED", "APPEND_ONLY"];
            assert!(words.iter().any(|word| said.contains(word)), "{sql}: {said}");
        }
        assert_eq!((row(), store.events(id, 0, 100).await.unwrap()), before);
    }
    verified(store).await;
}

#[tokio::test]
async fn all_pairs_of_an_items_states_are_judged_by_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    judge_all_pairs(&store, "items", &|sql| sqlite3(&path, sql)).await;
    refuse_the_rest(&store, "items", &|sql| sqlite3(&path, sql)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pairs_of_an_items_states_are_judged_by_postgres() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    judge_all_pairs(&store, "waypost.items", &|sql| ops.server.psql(sql)).await;
    refuse_the_rest(&store, "waypost.items", &|sql| ops.server.psql(sql)).await;
}
