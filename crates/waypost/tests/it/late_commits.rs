//! Clients that commit late, beside readers that must not pass what is not committed yet: six read the feed, six follow the
//! stream of two servers. Each sees every event, once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use waypost_store::{Database, NewRun};

use crate::support::Shop;

const READERS: usize = 6;
const LATE: usize = 4;
/// Without anything, not even a heartbeat.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a transaction stays open at most, if nobody else commits meanwhile.
const LATENESS: Duration = Duration::from_millis(200);

/// `./scripts/soak late-commits` asks for more.
fn seconds() -> u64 {
    std::env::var("WAYPOST_LATE_SECONDS").map_or(3, |text| text.parse().unwrap())
}

fn new_run() -> NewRun {
    NewRun { lifecycle: "deploy".into(), ..NewRun::default() }
}

/// Queues runs in transactions that end after others, which began later, have ended.
async fn commit_late(url: String, commits: Arc<watch::Sender<u64>>, at: usize, until: Instant) -> usize {
    let client = waypost_store::postgres::client(&url).await.unwrap();
    let mut seen = commits.subscribe();
    let mut written = 0;
    while Instant::now() < until {
        client.batch_execute("BEGIN; SELECT ops.queue_run('shop', 'prod', 'abc', 'main')").await.unwrap();
        let patience = 2 + at as u64 * 3;
        let goal = *seen.borrow_and_update() + patience;
        let _ = timeout(LATENESS, seen.wait_for(|commits| *commits >= goal)).await;
        client.batch_execute("SELECT ops.queue_run('shop', 'prod', 'abc', 'main'); COMMIT").await.unwrap();
        commits.send_modify(|commits| *commits += 1);
        written += 2;
    }
    written
}

/// Queues runs that are there at once.
async fn commit_early(store: Arc<dyn Database>, commits: Arc<watch::Sender<u64>>, until: Instant) {
    while Instant::now() < until {
        store.enqueue(vec![new_run()]).await.unwrap().remove(0).unwrap();
        commits.send_modify(|commits| *commits += 1);
    }
}

/// Whether the last one is there: what comes later is known by then.
fn has_all(seen: &[u64], last: &watch::Receiver<u64>) -> bool {
    let last = *last.borrow();
    last > 0 && seen.last().is_some_and(|newest| *newest >= last)
}

/// Positions in the feed, up to the last one.
async fn read_feed(store: Arc<dyn Database>, last: watch::Receiver<u64>) -> Vec<u64> {
    let (mut seen, mut position) = (Vec::new(), 0);
    while !has_all(&seen, &last) {
        let feed = store.feed(Some(position), 50).await.unwrap();
        position = feed.position;
        if feed.events.is_empty() {
            store.changed(Duration::from_millis(20)).await;
        }
        seen.extend(feed.events.iter().map(|event| event.position));
    }
    seen
}

/// The same over HTTP, as it is sent.
async fn follow(address: String, last: watch::Receiver<u64>) -> Vec<u64> {
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let head = format!("GET /v1/events/stream?after=0 HTTP/1.1\r\nhost: {address}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let (mut seen, mut text, mut chunk) = (Vec::new(), String::new(), vec![0; 64 * 1_024]);
    while !has_all(&seen, &last) {
        let read = timeout(SILENCE, socket.read(&mut chunk)).await.expect("something is sent").unwrap();
        assert_ne!(read, 0, "the server goes on");
        text.push_str(std::str::from_utf8(&chunk[..read]).expect("ASCII is sent"));
        while let Some((block, rest)) = text.split_once("\n\n") {
            let id = block.lines().find_map(|line| line.strip_prefix("id: "));
            seen.extend(id.map(|id| id.parse::<u64>().unwrap()));
            text = rest.to_owned();
        }
    }
    seen
}

// proves X6 and X11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_readers_sees_every_event_of_clients_that_commit_late() {
    let shop = Shop::on_postgres();
    let servers = [(); 2].map(|()| shop.serve(&["serve", "--no-worker"]));
    let (end, last) = watch::channel(0);
    let mut readers = Vec::new();
    for at in 0..READERS {
        readers.push(tokio::spawn(read_feed(shop.store().await, last.clone())));
        let address = servers[at % 2].1.strip_prefix("http://").unwrap().to_owned();
        readers.push(tokio::spawn(follow(address, last.clone())));
    }
    let until = Instant::now() + Duration::from_secs(seconds());
    let commits = Arc::new(watch::channel(0).0);
    let store = shop.store().await;
    let early = tokio::spawn(commit_early(store.clone(), commits.clone(), until));
    let late: Vec<_> = (0..LATE)
        .map(|at| tokio::spawn(commit_late(shop.database_url(), commits.clone(), at, until)))
        .collect();
    early.await.unwrap();
    let mut written = 0;
    for task in late {
        written += task.await.unwrap();
    }
    // The last one is committed after all others.
    let run = store.enqueue(vec![new_run()]).await.unwrap().remove(0).unwrap().run;
    end.send_replace(store.events(run.id().to_owned(), 0, 1).await.unwrap()[0].position);
    let stored: BTreeSet<u64> = shop
        .psql("SELECT position FROM waypost.log")
        .lines()
        .map(|line| line.trim().parse().unwrap())
        .collect();
    for (at, reader) in readers.into_iter().enumerate() {
        let seen = reader.await.unwrap();
        let distinct: BTreeSet<u64> = seen.iter().copied().collect();
        assert_eq!(distinct, stored, "reader {at} missed some");
        assert_eq!(distinct.len(), seen.len(), "reader {at} saw some twice");
    }
    assert!(written > 0 && stored.len() > written);
    println!(
        "{READERS} readers of the feed and {READERS} of two servers' streams beside {LATE} clients that commit late, {} s: \
         {} events, {written} of them late, none missed, none twice",
        seconds(),
        stored.len()
    );
}

/// A number that was drawn and taken back stands before an event; whoever begins to read now knows that it stays so, and is
/// not held up by those who write later.
#[tokio::test]
async fn what_was_committed_before_a_reader_began_is_there_at_once() {
    let shop = Shop::on_postgres();
    let queued = "SELECT ops.queue_run('shop', 'prod', 'abc', 'main')";
    shop.psql(&format!("BEGIN; {queued}; ROLLBACK"));
    let writer = shop.store().await;
    let run = writer.enqueue(vec![new_run()]).await.unwrap().remove(0).unwrap().run;
    let reader = shop.store().await;
    let begun = reader.feed(None, 0).await.unwrap().position;
    let late = waypost_store::postgres::client(&shop.database_url()).await.unwrap();
    late.batch_execute(&format!("BEGIN; {queued}")).await.unwrap();
    let feed = reader.feed(Some(0), 50).await.unwrap();
    let seen: Vec<&str> = feed.events.iter().map(|event| event.run_id.as_str()).collect();
    assert_eq!(seen, [run.id()], "all up to {begun}");
}
