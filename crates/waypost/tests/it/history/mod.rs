//! Several servers on one database, clients over HTTP and in SQL, and faults: every answer is recorded, and in the end the
//! answers, the tables and what readers saw have to agree.
//!
//! `./scripts/soak history` runs the same for longer, with more of everything.

mod check;
mod clients;
mod drain;
mod plan;
mod readers;
mod record;
mod shared;
mod stage;
mod tables;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinHandle, block_in_place};

use check::{Finding, check, known};
use readers::Reader;
use record::{Ask, History, Reading, Seen};
use shared::Shared;
use stage::{Stage, torment};

/// Violations that are printed of each check.
const EXAMPLES: usize = 5;
/// The shortest id of a run has this many characters, and no other word of a violation does.
const RUN_ID: usize = 36;

struct Size {
    seed: u64,
    seconds: u64,
    servers: usize,
    producers: usize,
    workers: usize,
    /// Of the feed, and half as many streams.
    readers: usize,
}

impl Size {
    fn read() -> Size {
        let number = |name: &str, otherwise: u64| {
            std::env::var(format!("WAYPOST_HISTORY_{name}")).map_or(otherwise, |text| text.parse().unwrap())
        };
        let count = |name, otherwise| usize::try_from(number(name, otherwise)).unwrap();
        Size {
            seed: number("SEED", 1),
            seconds: number("SECONDS", 6),
            servers: count("SERVERS", 2),
            producers: count("PRODUCERS", 3),
            workers: count("WORKERS", 8),
            readers: count("READERS", 4),
        }
    }
}

/// Everybody who asks, until it is over.
fn clients(shared: &Arc<Shared>, stage: &Arc<Stage>, size: &Size) -> Vec<JoinHandle<()>> {
    let mut all = Vec::new();
    let mut start =
        |client: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| all.push(tokio::spawn(client));
    for number in 0..size.producers {
        start(Box::pin(clients::produce(shared.clone(), number)));
    }
    for number in 0..size.workers {
        start(Box::pin(clients::work(shared.clone(), number)));
    }
    start(Box::pin(clients::cancel(shared.clone(), 0)));
    start(Box::pin(clients::govern_limit(shared.clone())));
    start(Box::pin(clients::cancel_parents(shared.clone())));
    start(Box::pin(clients::race_limits(shared.clone())));
    start(Box::pin(clients::govern_keys(shared.clone())));
    start(Box::pin(clients::govern_pauses(shared.clone())));
    start(Box::pin(clients::govern_lifecycles(shared.clone())));
    start(Box::pin(clients::monitor(shared.clone())));
    start(Box::pin(torment(stage.clone(), shared.clone())));
    if shared.database_url.is_some() {
        for number in 0..4 {
            start(Box::pin(clients::queue_late(shared.clone(), number)));
        }
        for number in 0..2 {
            start(Box::pin(clients::work_in_sql(shared.clone(), number)));
            start(Box::pin(clients::begin_by_hand(shared.clone(), number)));
        }
    }
    all
}

fn readers(shared: &Arc<Shared>, last: &watch::Sender<Option<u64>>, count: usize) -> Vec<JoinHandle<Seen>> {
    let feeds = (0..count).map(|number| (Reading::Feed, number));
    let streams = (0..count.div_ceil(2)).map(|number| (Reading::Stream, number));
    let read = |(how, number)| tokio::spawn(Reader::new(shared, last.subscribe(), how, number).read());
    feeds.chain(streams).map(read).collect()
}

async fn record(size: &Size, on_postgres: bool) -> History {
    let stage = Arc::new(block_in_place(|| Stage::new(on_postgres, size.servers)));
    let store = stage.shop.store().await;
    store.add_lifecycle(plan::lifecycle(1), "tests".into()).await.unwrap();
    drop(store);
    let url = stage.cluster.as_ref().map(waypost_testkit::Cluster::url);
    let shared = Arc::new(Shared::new(size.seed, size.seconds, stage.addresses.clone(), url));
    let (last, _) = watch::channel(None);
    let reading = readers(&shared, &last, size.readers);
    let asking = clients(&shared, &stage, size);
    for second in (0..size.seconds).step_by(10) {
        shared.rest(1_000 * (size.seconds - second).min(10)).await;
        println!("{} s: {} calls", (second + 10).min(size.seconds), shared.recorder.count());
    }
    shared.over.send_replace(true);
    for client in asking {
        client.await.unwrap();
    }
    let drained = drain::drain(&stage, &shared).await;
    println!("{drained} runs were left to the end and worked then");
    let tables = block_in_place(|| tables::read(&stage));
    last.send_replace(Some(tables.events.last().map_or(0, |event| event.position)));
    let mut seen = Vec::new();
    for reader in reading {
        seen.push(reader.await.unwrap());
    }
    block_in_place(|| stage.end_servers());
    let (calls, faults) = shared.recorder.take();
    History {
        calls,
        faults,
        tables,
        seen,
        differences: block_in_place(|| differences(&stage)),
        database_log: stage.database_log(),
        server_log: stage.server_log(),
    }
}

fn differences(stage: &Stage) -> Vec<String> {
    let ran = stage.shop.run(&["verify", "-o", "json"]);
    let found: Result<Value, _> = serde_json::from_str(&ran.out);
    let listed = found.ok().and_then(|found| found["differences"].as_array().cloned());
    listed.map_or_else(|| vec![ran.err], |listed| listed.iter().map(Value::to_string).collect())
}

fn describe(history: &History) {
    let mut asked: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for call in &history.calls {
        let counts = asked.entry(word(&call.ask)).or_default();
        counts.0 += usize::from(call.is_done());
        counts.1 += usize::from(call.is_refused());
        counts.2 += usize::from(call.is_unknown());
    }
    println!("calls: answered, refused, unknown");
    for (what, (answered, refused, unknown)) in &asked {
        println!("  {what:<12} {answered:>7} {refused:>7} {unknown:>7}");
    }
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in &history.faults {
        *faults.entry(fault.what.split(' ').next().unwrap()).or_default() += 1;
    }
    println!("faults: {faults:?}");
    println!("{} runs, {} events", history.tables.runs.len(), history.tables.events.len());
    for seen in &history.seen {
        let (count, resets) = (seen.events.len(), seen.resets.len());
        println!("{}: {count} events, {} reconnects, {resets} resets", seen.reader, seen.reconnects);
    }
}

fn word(ask: &Ask) -> &'static str {
    match ask {
        Ask::Enqueue(_) => "enqueue",
        Ask::Claim { .. } => "claim",
        Ask::Begin { .. } => "SQL begin",
        Ask::Heartbeat { .. } => "heartbeat",
        Ask::Note { .. } => "event",
        Ask::Item { .. } => "item",
        Ask::Finish { .. } => "finish",
        Ask::Release { .. } => "release",
        Ask::Cancel { .. } => "cancel",
        Ask::QueueLimit { .. } => "queue limit",
        Ask::KeyLimit { .. } => "key limit",
        Ask::Pause { .. } => "pause",
        Ask::Lifecycle { .. } => "lifecycle",
        Ask::Look { .. } => "look",
    }
}

/// Prints every check; gives those that failed and are not known to.
fn report(history: &History, on_postgres: bool) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for Finding { check, violations } in check(history) {
        let known = known(on_postgres).iter().find(|known| known.check == check);
        match (known, violations.len()) {
            (None, 0) => println!("ok        {check}"),
            (Some(known), 0) => println!("not seen  {check} (known: {})", known.why),
            (Some(known), count) => println!("found     {check}: {count} times (known: {})", known.why),
            (None, count) => {
                println!("FAILED    {check}: {count} times");
                failed.push(check);
            }
        }
        for violation in violations.iter().take(EXAMPLES) {
            println!("            {violation}");
            if known.is_none() {
                explain(history, violation);
            }
        }
    }
    failed
}

/// The log of the runs that a violation names, and the calls about them.
fn explain(history: &History, violation: &str) {
    let words = violation.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let ids: BTreeSet<&str> = words.filter(|word| word.len() >= RUN_ID).collect();
    for id in ids {
        for event in history.tables.events.iter().filter(|event| event.run_id == id) {
            let (at, from) = (event.at_ms, event.from.as_deref().unwrap_or_default());
            let (seq, position) = (event.seq, event.position);
            println!(
                "              {seq} {} {from} -> {} by {}, {at} ms, at {position}",
                event.command, event.to, event.by
            );
        }
        for call in
            history.calls.iter().filter(|call| format!("{:?} {:?}", call.ask, call.answer).contains(id))
        {
            let (invoked, answered) = (call.invoked, call.answered);
            let (client, server) = (&call.client, call.server);
            println!(
                "              {client} at {server:?}, {invoked} to {answered} µs: {:?}: {:?}",
                call.ask, call.answer
            );
        }
    }
}

async fn history(on_postgres: bool) {
    let size = Size::read();
    let store = if on_postgres { "PostgreSQL" } else { "one SQLite file" };
    println!("{} servers on {store}, {} s, seed {}", size.servers, size.seconds, size.seed);
    let history = record(&size, on_postgres).await;
    describe(&history);
    let failed = block_in_place(|| report(&history, on_postgres));
    assert!(failed.is_empty(), "{failed:?}");
    assert!(!history.faults.is_empty() || Duration::from_secs(size.seconds) < Duration::from_secs(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_servers_on_one_sqlite_file_answered_is_so() {
    history(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_servers_on_one_postgres_answered_is_so() {
    history(true).await;
}
