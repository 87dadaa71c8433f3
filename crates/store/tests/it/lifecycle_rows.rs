//! Hands on the rows by which a database judges moves: they are refused, and what went past the guards is found.
// proves X2, X4

use std::path::Path;
use std::sync::Arc;

use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::{SqliteStore, backup, doctor, put_guards_back};
use waypost_store::{Database, Verified};

use crate::by_hand::sqlite3;
use crate::conformance::kit::{deploy, finish, held_run};
use crate::ops::kit;

type Run<'a> = &'a dyn Fn(&str) -> Result<String, String>;

async fn verified(store: &dyn Database) -> Verified {
    store.verify(Arc::new(|_, _| {})).await.unwrap()
}

async fn failed_run(store: &dyn Database) -> String {
    let claimed = held_run(store, deploy()).await;
    finish(store, &claimed, "failed").await.unwrap();
    claimed.run.id().to_owned()
}

const MOVE: &str = "INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) \
                    VALUES ('deploy', 1, 'failed', 'success', 0, 1, 'hack')";

fn all_are_refused(run: Run<'_>, tables: &[&str]) {
    for table in tables {
        for sql in
            [format!("DELETE FROM {table}"), format!("INSERT INTO {table} SELECT * FROM {table} LIMIT 1")]
        {
            let refused = run(&sql).unwrap_err();
            assert!(refused.contains("IMMUTABLE"), "{sql}: {refused}");
        }
    }
    for sql in [
        MOVE,
        "UPDATE lifecycle_moves SET dst = 'success' WHERE dst = 'cancelled'",
        "UPDATE lifecycle_states SET phase = 'ready' WHERE state = 'failed'",
        "UPDATE lifecycles SET source = replace(source, 'failed', 'success')",
        "UPDATE lifecycles SET definition = '{}'",
    ] {
        let refused = run(sql).unwrap_err();
        assert!(refused.contains("IMMUTABLE"), "{sql}: {refused}");
    }
}

/// `past` takes the guards of lifecycles away for a statement. `hacked` moves a failed run to success.
async fn what_went_past_is_found(
    store: &dyn Database,
    run: Run<'_>,
    past: &dyn Fn(&str) -> String,
    hacked: &str,
) {
    let id = failed_run(store).await;
    run(&past(MOVE)).unwrap();
    let told = verified(store).await.differences;
    assert!(
        told.iter().any(|line| line.contains("a move that it does not have: failed to success by hack")),
        "{told:?}"
    );
    run(hacked).unwrap();
    run(&past("DELETE FROM lifecycle_moves WHERE command = 'hack'")).unwrap();
    let told = verified(store).await.differences;
    let words =
        format!("{id}: event 5 is hack from failed to success, which is no move of deploy (version 1)");
    assert_eq!(told, [words], "changed back, and found by the log");
    run(&past("UPDATE lifecycles SET source = replace(source, '\"cancel\",   \"cancelled\"', '\"cancel\",   \"success\"') WHERE name = 'deploy'")).unwrap();
    let told = verified(store).await.differences;
    assert!(
        told.iter()
            .any(|line| line.contains("deploy (version 1): its text is not the one that waypost ships")),
        "{told:?}"
    );
    assert!(told.iter().any(|line| line.contains("its definition is not what its text says")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_lifecycle_stays_as_it_was_added() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let run = |sql: &str| sqlite3(&path, sql);
    all_are_refused(
        &run,
        &["lifecycles", "lifecycle_states", "lifecycle_moves", "state_codes", "starts", "steps"],
    );
    let dropped = run(
        "SELECT group_concat('DROP TRIGGER ' || name, '; ') FROM sqlite_master WHERE name GLOB 'by_hand_lifecycle*'",
    );
    run(&dropped.unwrap()).unwrap();
    let hacked = "UPDATE runs SET status = 'success' WHERE status = 'failed'";
    what_went_past_is_found(&store, &run, &str::to_owned, hacked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_lifecycle_stays_as_it_was_added() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let run = |sql: &str| ops.server.psql(&format!("SET search_path = waypost; {sql}"));
    all_are_refused(&run, &["lifecycle_states", "lifecycle_moves", "lifecycle_transitions"]);
    for table in ["lifecycles", "lifecycle_moves"] {
        assert!(run(&format!("DELETE FROM {table}")).unwrap_err().contains("IMMUTABLE"));
        assert!(run(&format!("TRUNCATE {table}")).unwrap_err().contains("cannot be deleted"));
    }
    let codes = "UPDATE lifecycle_moves m SET src_code = s.code, dst_code = d.code FROM lifecycle_states s, lifecycle_states d \
      WHERE m.command = 'hack' AND s.lifecycle = 'deploy' AND s.state = 'failed' AND d.lifecycle = 'deploy' AND d.state = 'success'; \
      INSERT INTO lifecycle_transitions SELECT s.code, 99, d.code, 'hack', '{operator}', 0, NULL FROM lifecycle_states s, lifecycle_states d \
      WHERE s.lifecycle = 'deploy' AND s.state = 'failed' AND d.lifecycle = 'deploy' AND d.state = 'success'";
    let past = |sql: &str| {
        let more = if sql == MOVE {
            codes.to_owned()
        } else {
            "DELETE FROM lifecycle_transitions WHERE command = 'hack'".to_owned()
        };
        format!("BEGIN; SET LOCAL session_replication_role = replica; {sql}; {more}; COMMIT")
    };
    let hacked = "UPDATE board SET status = 'success' WHERE status = 'failed'";
    what_went_past_is_found(&store, &run, &past, hacked).await;
}

fn guards(path: &Path) -> String {
    let found = doctor(path).unwrap();
    let row = found.iter().find(|it| it.what == "guards").expect("doctor looks at the guards");
    row.found.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_that_were_taken_away_are_told_and_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!((guards(&path), verified(&store).await.unguarded), ("in force".to_owned(), Vec::new()));
    let changed = "DROP TRIGGER by_hand_event; DROP TRIGGER by_hand_item; \
                   CREATE TRIGGER by_hand_item BEFORE INSERT ON items BEGIN SELECT 1; END";
    sqlite3(&path, changed).unwrap();
    assert_eq!(guards(&path), "by_hand_event is missing, by_hand_item is another");
    assert_eq!(
        verified(&store).await.unguarded,
        ["guard by_hand_event is missing", "guard by_hand_item is another"]
    );
    let copy = folder.path().join("copy.db");
    backup::backup(&path, &copy, &|_, _| {}).unwrap();
    assert_eq!(guards(&copy), "in force", "a copy has them again");
    put_guards_back(&path).unwrap();
    assert_eq!((guards(&path), verified(&store).await.unguarded), ("in force".to_owned(), Vec::new()));
}
