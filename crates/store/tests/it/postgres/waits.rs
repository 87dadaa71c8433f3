//! Nobody waits for somebody else's open transaction who does not have to, and those who have to leave connections to the others.

use std::time::Duration;

use tokio::time::timeout;
use waypost_store::postgres::{PostgresStore, client};
use waypost_store::{CommandWrite, Filter, Housekeeping, NewRun, Parts, Store, StoreError};

use super::{deploy, open, wants};

const SOON: Duration = Duration::from_secs(60);
const QUEUED: &str = "SELECT ops.queue_run('shop', 'prod', 'abc', 'main')";

// proves X4
#[tokio::test]
async fn a_reader_begins_while_somebody_writes_without_an_end_and_misses_nothing() {
    let (store, database) = open().await;
    store.enqueue(vec![deploy(); 3]).await.unwrap();
    let before = store.enqueue(vec![deploy()]).await.unwrap().remove(0).unwrap().run;
    store.sweep("s".into(), 10).await.unwrap();
    let late = client(&database.url()).await.unwrap();
    late.batch_execute(&format!("BEGIN; {QUEUED}")).await.unwrap();
    let after = store.enqueue(vec![deploy()]).await.unwrap().remove(0).unwrap().run;
    let begun = timeout(SOON, store.feed(None, 0)).await.expect("it does not wait").unwrap().position;
    let feed = store.feed(Some(begun), 50).await.unwrap().events;
    assert!(feed.is_empty(), "what comes after the late one waits for it: {feed:?}");
    let seen = store.feed(Some(0), 50).await.unwrap().events;
    assert_eq!(seen.last().unwrap().run_id, before.id(), "what came before it is there");
    late.batch_execute("COMMIT").await.unwrap();
    let now = store.enqueue(vec![deploy()]).await.unwrap().remove(0).unwrap().run;
    let mut position = begun;
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some(now.id()) {
        let page = store.feed(Some(position), 50).await.unwrap();
        position = page.position;
        seen.extend(page.events.into_iter().map(|event| event.run_id));
    }
    assert_eq!((seen.len(), seen[1].as_str()), (3, after.id()), "the late one, and those after it: {seen:?}");
}

// proves X4
#[tokio::test]
async fn a_process_that_begins_while_somebody_writes_waits_for_nobody() {
    // More than are looked through.
    const EVENTS: usize = 10_500;
    let (store, database) = open().await;
    for _ in 0..EVENTS / 500 {
        store.enqueue(vec![deploy(); 500]).await.unwrap();
    }
    store.sweep("s".into(), 10).await.unwrap();
    let late = client(&database.url()).await.unwrap();
    late.batch_execute(&format!("BEGIN; {QUEUED}")).await.unwrap();
    store.enqueue(vec![deploy()]).await.unwrap();
    let begins = PostgresStore::open(&database.url()).await.unwrap();
    let begun = begins.feed(None, 0).await.expect("it does not wait for an end").position;
    late.batch_execute("COMMIT").await.unwrap();
    let mut seen = 0;
    while seen < 2 {
        seen += begins.feed(Some(begun), 50).await.unwrap().events.len();
    }
    assert_eq!(seen, 2, "the late one and the one after it");
}

#[tokio::test]
async fn commands_that_wait_for_one_key_leave_connections_to_the_others() {
    const CANCELS: usize = 30;
    let (store, database) = open().await;
    let keyed = || NewRun { concurrency_key: Some("K".into()), ..deploy() };
    let runs = store.enqueue((0..CANCELS).map(|_| keyed()).collect()).await.unwrap();
    let stranger = client(&database.url()).await.unwrap();
    stranger.batch_execute("SELECT pg_advisory_lock(waypost.slot(false, 'default', 'K'))").await.unwrap();
    let cancels: Vec<_> = runs
        .into_iter()
        .map(|run| {
            let store = store.clone();
            let command = CommandWrite {
                tenant: "default".into(),
                run_id: run.unwrap().run.id().to_owned(),
                name: "cancel".into(),
                by: "me".into(),
                ..CommandWrite::default()
            };
            tokio::spawn(async move { store.command(command).await })
        })
        .collect();
    // All of this while they wait: at most four of the ten connections are theirs.
    let filter = Filter { tenant: "default".into(), limit: 1, include: Parts::NONE, ..Filter::default() };
    for _ in 0..20 {
        store.runs(filter.clone()).await.unwrap();
        store.enqueue(vec![NewRun { queue: "other".into(), ..deploy() }]).await.unwrap().remove(0).unwrap();
        store.claim(wants("w", 1)).await.unwrap();
        let work = store.pools().into_iter().find(|pool| pool.name == "work").unwrap();
        assert_eq!(work.waiting, 0, "{work:?}");
    }
    let mut ends = Vec::new();
    for cancel in cancels {
        ends.push(timeout(SOON, cancel).await.expect("nobody waits for ever").unwrap());
    }
    let refused = ends.iter().filter(|end| matches!(end, Err(StoreError::Unavailable(_)))).count();
    assert_eq!(refused, CANCELS, "they are told that others were in the way");
    stranger.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
}
