//! Rows beside runs that somebody writes by hand: workers, playbooks, retention, tokens. What is wrong is refused where the table can tell,
//! else it stops nobody, and `verify` names it.
// proves X11

use std::sync::Arc;

use waypost_kernel::Span;
use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{
    Database, NewRun, NewToken, OfferedPlaybook, PlaybookFilter, Retention, Store, TokenChange, WorkerBeat,
};

use crate::by_hand::sqlite3;
use crate::conformance::kit::{DAY, advance, deploy, finish, held_run, put};
use crate::ops::kit;

type Run<'a> = &'a dyn Fn(&str) -> Result<String, String>;

async fn differences(store: &dyn Database) -> Vec<String> {
    store.verify(Arc::new(|_, _| {})).await.unwrap().differences
}

/// `now` is how the database writes the time.
async fn broken_rows(store: &dyn Database, run: Run<'_>, now: &str) {
    let good = WorkerBeat {
        name: "good".into(),
        queues: vec!["default".into()],
        slots: 1,
        version: "1".into(),
        ..WorkerBeat::default()
    };
    store.beat(good).await.unwrap();
    for queues in ["no list", "[1]", "{}"] {
        let sql = format!(
            "DELETE FROM workers WHERE name = 'bad'; INSERT INTO workers(name, tenant, queues, lifecycles, slots, version, by_claims, started_at, seen_at) \
             VALUES ('bad', '*', '{queues}', '[]', 1, '1', false, {now}, {now})"
        );
        run(&sql).unwrap();
        let names: Vec<_> = store.workers(None).await.unwrap().into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["good"], "{queues}");
        let run = put(store, NewRun { playbook: Some("p".into()), ..deploy() }).await;
        store.explain(vec![run]).await.unwrap();
        let [told] = &differences(store).await[..] else { panic!("{queues}: one line") };
        assert!(told.starts_with("worker \"bad\": its row cannot be used"), "{told}");
    }
    run("DELETE FROM workers WHERE name = 'bad'").unwrap();
    let by = "w".to_owned();
    let offered =
        OfferedPlaybook { tenant: "*".into(), name: "good".into(), by, ..OfferedPlaybook::default() };
    store.offer_playbooks(vec![offered]).await.unwrap();
    run(&format!("INSERT INTO playbooks(tenant, name, hash, file, text, who, offered_at) VALUES ('*', 'demo@', '1', '', 'x', 'w', {now})"))
        .unwrap();
    assert!(!store.playbooks(PlaybookFilter::default()).await.unwrap().is_empty());
    let [told] = &differences(store).await[..] else { panic!("one line") };
    assert!(told.starts_with("playbook \"demo@\": its row cannot be used"), "{told}");
    run("DELETE FROM playbooks WHERE name = 'demo@'").unwrap();
    assert_eq!(differences(store).await, Vec::<String>::new());
}

/// `unchecked` takes the table's rule away, as whoever owns it can.
async fn retention_out_of_range(store: &dyn Database, run: Run<'_>, unchecked: &str) {
    let claimed = held_run(store, deploy()).await;
    finish(store, &claimed, "success").await.unwrap();
    put(store, deploy()).await;
    let too_long = Retention {
        lifecycle: "deploy".into(),
        success: Some(Span::from_ms(i64::MAX / 1_000)),
        ..Retention::default()
    };
    let refused = store.put_retention(vec![too_long]).await.unwrap_err().to_string();
    assert!(refused.contains("retention") && refused.contains("100 years"), "{refused}");
    for ms in ["0", "-1", "9223372036854775807"] {
        let refused = run(&format!("INSERT INTO retention(lifecycle, success_ms) VALUES ('deploy', {ms})"));
        assert!(refused.unwrap_err().contains("100 years"), "{ms}");
    }
    run(unchecked).unwrap();
    for ms in ["0", "-1", "9223372036854775807"] {
        run(&format!(
            "DELETE FROM retention; INSERT INTO retention(lifecycle, success_ms) VALUES ('deploy', {ms})"
        ))
        .unwrap();
        assert_eq!(store.prune(10).await.unwrap().runs, 0, "{ms}: as its lifecycle says");
        let rules = store.retention(None).await.unwrap();
        assert_eq!((rules.len(), rules[0].success), (1, None), "{ms}");
        let [told] = &differences(store).await[..] else { panic!("{ms}: one line") };
        assert!(told.starts_with("retention of \"deploy\""), "{told}");
    }
    advance(store, 31 * DAY).await;
    assert_eq!(store.prune(10).await.unwrap().runs, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_broken_row_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let run = |sql: &str| sqlite3(&path, sql);
    broken_rows(&store, &run, "unixepoch() * 1000").await;
    for sql in [
        "UPDATE workers SET slots = 'many'",
        "UPDATE workers SET seen_at = 'yesterday'",
        "UPDATE playbooks SET offered_at = 'yesterday'",
        "UPDATE playbooks SET text = x'00ff'",
    ] {
        assert!(run(sql).unwrap_err().contains("cannot store"), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_broken_row_stops_nobody() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let run = |sql: &str| ops.server.psql(&format!("SET search_path = waypost; {sql}"));
    broken_rows(&store, &run, "now()").await;
    for sql in ["UPDATE workers SET seen_at = 'infinity'", "UPDATE playbooks SET offered_at = '-infinity'"] {
        assert!(run(sql).unwrap_err().contains("check constraint"), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_retention_by_hand_breaks_no_prune() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let run = |sql: &str| {
        sqlite3(&path, &format!("PRAGMA ignore_check_constraints = {}; {sql}", sql.contains("DELETE")))
    };
    retention_out_of_range(&store, &run, "SELECT 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_retention_by_hand_breaks_no_prune() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let run = |sql: &str| ops.server.psql(&format!("SET search_path = waypost; {sql}"));
    let unchecked = "ALTER TABLE retention DROP CONSTRAINT \"RANGE: runs are kept for 1 ms to 100 years\"";
    retention_out_of_range(&store, &run, unchecked).await;
}

async fn token(store: &dyn Database, id: &str) {
    let new = NewToken {
        id: id.into(),
        digest: "d".into(),
        name: "n".into(),
        role: "viewer".into(),
        tenant: "default".into(),
        by: "kim".into(),
        lasts: None,
    };
    store.change_token(TokenChange::Issue(new), "kim".into()).await.unwrap();
}

/// Rights are given by `waypost token`, which writes who gave them; hands may only take them away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_hands_give_no_rights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    token(&store, "t1").await;
    let run = |sql: &str| sqlite3(&path, sql);
    for sql in [
        "INSERT INTO tokens(id, digest, name, role, tenant, created_at, created_by) VALUES ('x', 'd', 'n', 'admin', '*', 1, 'me')",
        "INSERT OR REPLACE INTO tokens SELECT id, digest, name, 'admin', '*', created_at, created_by, NULL, NULL, NULL, NULL FROM tokens",
        "UPDATE tokens SET role = 'admin'",
        "UPDATE tokens SET tenant = '*'",
        "UPDATE tokens SET digest = 'e'",
    ] {
        assert!(run(sql).unwrap_err().contains("BY_HAND"), "{sql}");
    }
    run("UPDATE tokens SET revoked_at = 1, revoked_by = 'me'").unwrap();
    assert!(run("UPDATE tokens SET revoked_at = NULL").unwrap_err().contains("BY_HAND"));
    assert!(store.tokens(None).await.unwrap()[0].revoked_at.is_some());
    token(&store, "t2").await;
    // Past the guard it is shown as it is, and named.
    run("DROP TRIGGER by_hand_token_move; UPDATE tokens SET role = 'root' WHERE id = 't2'").unwrap();
    assert_eq!(store.tokens(None).await.unwrap().len(), 2);
    assert_eq!(differences(&store).await, ["token \"t2\": \"root\" is no role"]);
}
