//! SQLite's group commit: whoever fails halfway is undone alone, whether it came first in its transaction or later.
// proves X3

use rusqlite::Connection;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Claim, Claimed, FinishWrite, Housekeeping, NewRun, RunRow, Store, StoreError};

async fn held(store: &SqliteStore, limit: usize) -> Vec<Claimed> {
    let run = NewRun { lifecycle: "deploy".into(), by: "client".into(), ..NewRun::default() };
    store.enqueue(vec![run; limit]).await.unwrap();
    let claim = Claim { worker: "w".into(), queues: vec!["default".into()], limit, ..Claim::default() };
    store.claim(claim).await.unwrap()
}

fn finish(claimed: &Claimed, status: &str) -> FinishWrite {
    FinishWrite {
        run_id: claimed.run.id().to_owned(),
        token: Some(claimed.token),
        by: "w".into(),
        status: status.into(),
        ..FinishWrite::default()
    }
}

async fn now(store: &SqliteStore, claimed: &Claimed) -> RunRow {
    store.run("default".into(), claimed.run.id().to_owned()).await.unwrap()
}

/// Somebody took the moves to `failed` away: the file refuses what the kernel allows, after the row before was written.
fn without_failures(path: &std::path::Path) {
    let sql = "DELETE FROM steps WHERE step / 4 % 1048576 IN \
               (SELECT code FROM state_codes WHERE lifecycle = 'deploy' AND state = 'failed')";
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("DROP TRIGGER by_hand_steps_delete").unwrap();
    assert!(conn.execute(sql, []).unwrap() > 0);
}

#[tokio::test]
async fn who_fails_halfway_is_undone_and_neighbours_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let runs = held(&store, 6).await;
    let ([one, other], halves, refused) = (&[&runs[0], &runs[1]], &runs[2..4], &runs[4..]);
    without_failures(&path);

    // Alone, so first of its group; then between two others.
    let first = store.finish(vec![finish(&halves[0], "success"), finish(&refused[0], "failed")]).await;
    let (before, second, after) = tokio::join!(
        store.finish(vec![finish(one, "success")]),
        store.finish(vec![finish(&halves[1], "success"), finish(&refused[1], "failed")]),
        store.finish(vec![finish(other, "success")])
    );
    for refused in [first, second] {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, StoreError::Unavailable(_)), "{refused}");
    }
    for finished in [before, after] {
        assert_eq!(finished.unwrap().remove(0).unwrap().status(), "success");
    }
    for half in halves {
        assert_eq!(now(&store, half).await.status(), "claimed", "undone with the one that was refused");
        assert_eq!(store.finish(vec![finish(half, "success")]).await.unwrap().len(), 1);
        assert_eq!(now(&store, half).await.status(), "success");
    }
    let found = store.verify(std::sync::Arc::new(|_, _| {})).await.unwrap();
    assert_eq!(found.differences, Vec::<String>::new());
}
