//! A child that is born while its parent is being cancelled: whichever commits first, it is asked, or came after the cancel.
// proves J6

use std::time::Duration;

use waypost_store::postgres::client;
use waypost_store::{CommandWrite, Housekeeping, NewRun, Store};

use super::{assert_clean, deploy, open};

const STATUS: &str = "SELECT s.state FROM waypost.runs r JOIN waypost.lifecycle_states s ON s.code = r.state WHERE r.parent_run_id IS NOT NULL";

fn child_of(parent: &str) -> String {
    format!("SELECT waypost.enqueue_one('deploy', 'default', p_parent_run_id := '{parent}')")
}

#[tokio::test]
async fn a_child_that_is_not_yet_committed_is_asked_once_it_is() {
    let (store, database) = open().await;
    let parent = store.enqueue(vec![deploy()]).await.unwrap().remove(0).unwrap().run.id().to_owned();
    let giver = client(&database.url()).await.unwrap();
    giver.batch_execute(&format!("BEGIN; {}", child_of(&parent))).await.unwrap();
    let cancel = CommandWrite {
        tenant: "default".into(),
        run_id: parent,
        name: "cancel".into(),
        by: "me".into(),
        ..CommandWrite::default()
    };
    // It waits for nobody.
    let cancelled = tokio::time::timeout(Duration::from_secs(20), store.command(cancel)).await;
    assert_eq!(cancelled.unwrap().unwrap().status(), "cancelled");
    assert_eq!(store.sweep("sweeper".into(), 10).await.unwrap().moved, [], "nobody sees the child yet");
    giver.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.sweep("sweeper".into(), 10).await.unwrap().moved.len(), 1);
    assert_eq!(database.psql(STATUS).unwrap(), "cancelled");
    assert_eq!(database.psql("SELECT count(*) FROM waypost.cancelled_parents").unwrap(), "0");
    assert_clean(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_comes_during_a_cancel_comes_after_it() {
    let (store, database) = open().await;
    let parent = store.enqueue(vec![deploy()]).await.unwrap().remove(0).unwrap().run.id().to_owned();
    let canceller = client(&database.url()).await.unwrap();
    // Two sessions of SQL, and then a store beside one: each waits for the cancel's end.
    canceller
        .batch_execute(&format!("BEGIN; SELECT waypost.leave_behind('{parent}', 'cancel')"))
        .await
        .unwrap();
    let giver = client(&database.url()).await.unwrap();
    let by_sql = tokio::spawn({
        let sql = child_of(&parent);
        async move { giver.batch_execute(&sql).await }
    });
    let by_store = tokio::spawn({
        let (store, run) = (store.clone(), NewRun { parent_run_id: Some(parent.clone()), ..deploy() });
        async move { store.enqueue(vec![run]).await }
    });
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while database.psql(waiting).unwrap() != "2" {}
    canceller.batch_execute("COMMIT").await.unwrap();
    by_sql.await.unwrap().unwrap();
    by_store.await.unwrap().unwrap().remove(0).unwrap();
    assert_eq!(database.psql(STATUS).unwrap(), "queued\nqueued");
    assert_clean(&store).await;
}
