//! Clients of two servers follow runs, half of them slow or coming and going: each sees every event of its run in order.
//! Servers are processes of their own, so that their memory can be told.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Map, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{MissedTickBehavior, interval, timeout};
use waypost_kernel::request::Level;
use waypost_store::{Claimed, Database, FinishWrite, Held, NewRun, NoteWrite, Repeat};

use crate::support::{Shop, memory_of};

/// Without anything, not even a heartbeat.
const SILENCE: Duration = Duration::from_secs(60);
const TICKS: u64 = 20;

/// `./scripts/soak sse` asks for more.
struct Size {
    clients: usize,
    runs: usize,
    /// Of all runs.
    per_second: usize,
    seconds: usize,
}

impl Size {
    fn read() -> Size {
        let number = |name: &str, otherwise: usize| {
            std::env::var(format!("WAYPOST_SSE_{name}")).map_or(otherwise, |text| text.parse().unwrap())
        };
        Size {
            clients: number("CLIENTS", 50),
            runs: number("RUNS", 10),
            per_second: number("PER_SECOND", 200),
            seconds: number("SECONDS", 5),
        }
    }

    fn events_of_a_run(&self) -> usize {
        self.per_second * self.seconds / self.runs
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Steady,
    /// Takes little, then nothing for a while.
    Slow,
    /// Breaks off and goes on at the other server.
    Restless,
}

fn manner(client: usize) -> Manner {
    [Manner::Steady, Manner::Slow, Manner::Steady, Manner::Restless][client % 4]
}

/// What one client saw.
#[derive(Debug, Default)]
struct Seen {
    ids: Vec<u64>,
    resets: usize,
    reconnects: usize,
}

struct Follower {
    addresses: [String; 2],
    run_id: String,
    manner: Manner,
    /// Events after which a restless one breaks off.
    patience: usize,
    seen: Seen,
}

impl Follower {
    async fn follow(mut self) -> Seen {
        for turn in 0.. {
            let mut socket = self.connect(turn).await;
            if self.read(&mut socket).await {
                break;
            }
            self.seen.reconnects += 1;
        }
        self.seen
    }

    async fn connect(&self, turn: usize) -> TcpStream {
        let address = &self.addresses[turn % 2];
        let socket = TcpSocket::new_v4().unwrap();
        if self.manner == Manner::Slow {
            // Or the system would take for it what it does not.
            socket.set_recv_buffer_size(4_096).unwrap();
        }
        let mut socket = socket.connect(address.parse().unwrap()).await.unwrap();
        let last = self.seen.ids.last().map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let head = format!(
            "GET /v1/events/stream?run={}&after=0 HTTP/1.1\r\nhost: {address}\r\n{last}\r\n",
            self.run_id
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket
    }

    /// Whether the run's end was seen.
    async fn read(&mut self, socket: &mut TcpStream) -> bool {
        // A slow one takes half of what its run brings in the soak.
        let most = if self.manner == Manner::Slow { 8 * 1_024 } else { 64 * 1_024 };
        let (mut text, mut chunk) = (String::new(), vec![0; most]);
        let mut pause = interval(Duration::from_millis(900));
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let until = self.seen.ids.len() + self.patience;
        loop {
            if self.manner == Manner::Slow {
                pause.tick().await;
            }
            let read = timeout(SILENCE, socket.read(&mut chunk)).await.expect("something is sent").unwrap();
            assert_ne!(read, 0, "the server goes on");
            text.push_str(std::str::from_utf8(&chunk[..read]).expect("ASCII is sent"));
            while let Some((block, rest)) = text.split_once("\n\n") {
                let is_end = self.take(block);
                text = rest.to_owned();
                if is_end {
                    return true;
                }
            }
            if self.manner == Manner::Restless && self.seen.ids.len() >= until {
                return false;
            }
        }
    }

    /// Lines of chunk sizes and the head stand between the blocks: they have no field of an event.
    fn take(&mut self, block: &str) -> bool {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        self.seen.resets += usize::from(field("event: ") == Some("reset"));
        let Some(id) = field("id: ") else { return false };
        self.seen.ids.push(id.parse().unwrap());
        block.contains("\"to\":\"success\"")
    }
}

async fn held_run(store: &dyn Database) -> Claimed {
    let new = NewRun { lifecycle: "deploy".into(), ..NewRun::default() };
    let made = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap();
    store.claim_run(made.run.id().into(), "w".into()).await.unwrap()
}

fn note(claimed: &Claimed, message: String) -> NoteWrite {
    NoteWrite {
        held: Held { run_id: claimed.run.id().into(), token: claimed.token },
        by: "w".into(),
        level: Level::Info,
        message,
        payload: json!({}),
        repeat: Repeat::Never,
        metadata: Map::new(),
        details: Map::new(),
    }
}

/// All events at their pace, then the runs' ends. Says how long the events took.
async fn write(store: &dyn Database, held: &[Claimed], size: &Size) -> Duration {
    let begun = Instant::now();
    let mut pace = interval(Duration::from_millis(1_000 / TICKS));
    let (mut written, all) = (0, size.events_of_a_run() * held.len());
    let words = "x".repeat(500);
    while written < all {
        pace.tick().await;
        let due = (begun.elapsed().as_secs_f64() * size.per_second as f64) as usize;
        let due = due.min(written + 1_000).min(all);
        // Each run's in turn: a batch has any number of one run's.
        let notes = (written..due).map(|at| note(&held[at % held.len()], format!("event {at} {words}")));
        for noted in store.note(notes.collect()).await.unwrap() {
            noted.unwrap();
        }
        written = due;
    }
    let took = begun.elapsed();
    let finish = |claimed: &Claimed| FinishWrite {
        run_id: claimed.run.id().into(),
        token: Some(claimed.token),
        by: "w".into(),
        status: "success".into(),
        ..FinishWrite::default()
    };
    for finished in store.finish(held.iter().map(finish).collect()).await.unwrap() {
        finished.unwrap();
    }
    took
}

async fn positions(store: &dyn Database, run_id: &str) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        let page = store.events(run_id.to_owned(), found.len() as u64, 500).await.unwrap();
        if page.is_empty() {
            return found;
        }
        found.extend(page.iter().map(|event| event.position));
    }
}

/// A counter of a server.
fn counted(shop: &Shop, url: &str, name: &str) -> u64 {
    let page = shop.page(url, "/metrics");
    let line =
        page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}\n{page}"));
    line.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_restless_clients_of_two_servers_see_every_event_in_order() {
    let size = Size::read();
    let shop = Shop::on_postgres();
    let store = shop.store().await;
    let servers = [(); 2].map(|()| shop.serve(&["serve", "--no-worker"]));
    let mut held = Vec::new();
    for _ in 0..size.runs {
        held.push(held_run(&*store).await);
    }
    let before: Vec<u64> = servers.iter().map(|(server, _)| memory_of(server).0).collect();
    let followers: Vec<_> = (0..size.clients)
        .map(|client| {
            let address =
                |at: usize| servers[(client + at) % 2].1.strip_prefix("http://").unwrap().to_owned();
            let follower = Follower {
                addresses: [address(0), address(1)],
                run_id: held[client % size.runs].run.id().to_owned(),
                manner: manner(client / size.runs + client),
                patience: (size.events_of_a_run() / 12).max(5),
                seen: Seen::default(),
            };
            tokio::spawn(follower.follow())
        })
        .collect();
    let took = write(&*store, &held, &size).await;
    let mut expected = BTreeMap::new();
    for claimed in &held {
        expected.insert(claimed.run.id(), positions(&*store, claimed.run.id()).await);
    }
    let (mut resets, mut reconnects) = (0, 0);
    for (client, follower) in followers.into_iter().enumerate() {
        let seen = follower.await.unwrap();
        let all = &expected[held[client % size.runs].run.id()];
        if seen.resets == 0 {
            assert_eq!(&seen.ids, all, "client {client}");
        }
        assert!(seen.ids.is_sorted_by(|one, next| one < next), "client {client}");
        (resets, reconnects) = (resets + seen.resets, reconnects + seen.reconnects);
    }
    let sum = |name: &str| servers.iter().map(|(_, url)| counted(&shop, url, name)).sum::<u64>();
    let behind = sum("waypost_sse_fell_behind_total");
    println!(
        "{} clients of 2 servers, each of one of {} runs, a quarter slow, a quarter reconnecting: {} events in {took:.1?} \
         ({:.0}/s), {} sent; {reconnects} reconnects, {behind} times behind the ring, {resets} resets; every id in order",
        size.clients,
        size.runs,
        size.events_of_a_run() * size.runs,
        (size.events_of_a_run() * size.runs) as f64 / took.as_secs_f64(),
        sum("waypost_sse_events_total"),
    );
    for (at, (server, _)) in servers.iter().enumerate() {
        let (now, most) = memory_of(server);
        println!("server {}: {} KiB before, {now} KiB after, {most} KiB at most", at + 1, before[at]);
        assert!(most < 512 * 1_024, "server {}: {most} KiB", at + 1);
    }
    assert!(behind > 0 || size.seconds < 60, "the slow ones were slow");
    assert!(reconnects > 0 && resets == 0, "a run's events are all in the store: nothing needs a reset");
    shop.verifies();
}
