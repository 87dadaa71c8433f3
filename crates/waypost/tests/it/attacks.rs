//! What clients can do to a server from outside: take its memory, its connections, its time. The server is a process of its own, so
//! that its memory can be told, and it must answer others meanwhile. `./scripts/soak attacks` does the same in full size.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use waypost_store::NewRun;

use crate::support::{Running, Shop, memory_of};

/// What a server may have at most, in KiB, whatever is done to it.
const MOST_MEMORY: u64 = 300 * 1024;

/// Between two signs of life of a healthy worker.
const BEAT: Duration = Duration::from_millis(250);

fn size(name: &str, otherwise: usize) -> usize {
    std::env::var(format!("WAYPOST_ATTACK_{name}")).map_or(otherwise, |text| text.parse().unwrap())
}

struct Target {
    /// None: another one looks after it.
    server: Option<Running>,
    /// `127.0.0.1:7070`.
    address: String,
    /// There from the beginning to the end of the attack.
    healthy: Option<Healthy>,
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(healthy) = self.healthy.take().filter(|_| !thread::panicking()) {
            healthy.stop();
        }
    }
}

impl Target {
    fn of(shop: &Shop) -> Target {
        let (server, url) = shop.serve(&["serve", "--no-worker"]);
        let mut target = Target::at(url.strip_prefix("http://").unwrap());
        target.server = Some(server);
        target.healthy = Some(Healthy::of(&target));
        target
    }

    fn at(address: &str) -> Target {
        Target { server: None, address: address.to_owned(), healthy: None }
    }

    fn open(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// One that sends its request and reads nothing.
    fn silent(&self, requests: &str) -> TcpStream {
        let mut socket = self.open();
        // What it cannot send, because nobody takes it, is not sent.
        socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let _ = socket.write_all(requests.as_bytes());
        socket
    }

    fn ask(&self, request: &str, body: &[u8]) -> (u16, String) {
        self.ask_of("default", request, body)
    }

    fn ask_of(&self, tenant: &str, request: &str, body: &[u8]) -> (u16, String) {
        let mut socket = self.open();
        socket.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nhost: {}\r\nwaypost-tenant: {tenant}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
            self.address
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(body).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let text = String::from_utf8(answer).unwrap();
        (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default(), text)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, String) {
        self.ask(&format!("POST {path}"), body.to_string().as_bytes())
    }

    /// Others are answered; says how long that took and what the server has.
    #[track_caller]
    fn is_well(&self, what: &str) {
        let began = Instant::now();
        for path in ["/livez", "/readyz", "/v1/clock"] {
            let (status, text) = self.ask(&format!("GET {path}"), b"");
            assert_eq!(status, 200, "{what}: {path}: {text}");
        }
        let took = began.elapsed();
        let (now, most) = memory_of(self.server.as_ref().unwrap());
        println!("{what}: three answers in {took:?}; memory {} MiB, at most {} MiB", now / 1024, most / 1024);
        assert!(most < MOST_MEMORY, "{what}: {most} KiB");
    }
}

fn get(address: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n")
}

async fn fill(shop: &Shop, runs: usize) {
    const LARGEST: usize = 1024 * 1024 - 16;
    let store = shop.store().await;
    let members = |bytes: usize| Map::from_iter([("a".to_owned(), json!("x".repeat(bytes)))]);
    for _ in 0..runs {
        let (metadata, details) = (members(LARGEST), members(LARGEST * 3 / 4 - 64));
        let input = json!("x".repeat(LARGEST));
        let new = NewRun { lifecycle: "deploy".into(), input, metadata, details, ..NewRun::default() };
        store.enqueue(vec![new]).await.unwrap().remove(0).unwrap();
    }
}

/// Runs of the largest size, and readers that do not read.
async fn readers_that_do_not_read(shop: Shop) {
    fill(&shop, size("RUNS", 12)).await;
    let target = Target::of(&shop);
    let address = &target.address;
    let paths = [
        "/v1/runs?limit=500&include=input,metadata,details,carried",
        "/v1/runs?limit=500",
        "/v1/events?after=0&limit=500",
    ];
    for path in paths {
        let (status, text) = target.ask(&format!("GET {path}"), b"");
        let length = text.split("\r\n\r\n").nth(1).unwrap_or_default().len();
        println!("GET {path}: {status}, {length} bytes");
        assert!(status == 200 && length <= 5 * 1024 * 1024, "{path}: {status}, {length} bytes");
    }
    let mut silent = Vec::new();
    for path in paths {
        silent.extend((0..8).map(|_| target.silent(&get(address, path))));
        target.is_well(path);
    }
    // Page after page there is all of them, each once.
    let mut path = paths[0].to_owned();
    let mut seen = 0;
    loop {
        let (status, text) = target.ask(&format!("GET {path}"), b"");
        assert_eq!(status, 200);
        let page: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        seen += page["runs"].as_array().unwrap().len();
        let Some(next) = page["next_cursor"].as_str() else { break };
        path = format!("{}&cursor={next}", paths[0]);
    }
    assert_eq!(seen, size("RUNS", 12));
    target.is_well("all pages");
}

#[tokio::test]
async fn readers_that_do_not_read_cost_a_server_on_sqlite_little() {
    readers_that_do_not_read(Shop::new()).await;
}

#[tokio::test]
async fn readers_that_do_not_read_cost_a_server_on_postgres_little() {
    readers_that_do_not_read(Shop::on_postgres()).await;
}

/// Claims under ever new names, with as many and as long queues as there may be.
fn claimers(shop: &Shop) {
    let target = Target::of(shop);
    let queues: Vec<String> = (0..100).map(|at| format!("{at}{}", "q".repeat(250))).collect();
    let (before, _) = memory_of(target.server.as_ref().unwrap());
    let count = size("CLAIMERS", 300);
    for at in 0..count {
        let (status, text) = target
            .post("/v1/claims", &json!({ "worker": format!("{at}{}", "w".repeat(200)), "queues": queues }));
        assert_eq!(status, 200, "{text}");
    }
    let (after, _) = memory_of(target.server.as_ref().unwrap());
    println!("{count} claimers: memory {} MiB, then {} MiB", before / 1024, after / 1024);
    let (status, text) = target.ask("GET /v1/workers", b"");
    println!("GET /v1/workers: {} bytes", text.len());
    assert!(status == 200 && text.len() < 4 * 1024 * 1024, "{status}, {} bytes", text.len());
    target.is_well("claimers");
}

#[test]
fn claimers_with_many_names_cost_a_server_on_sqlite_little() {
    claimers(&Shop::new());
}

#[test]
fn claimers_with_many_names_cost_a_server_on_postgres_little() {
    claimers(&Shop::on_postgres());
}

/// Bodies that are as large as can be, and cost most to read.
fn heavy_bodies(shop: &Shop) {
    let target = Target::of(shop);
    let bytes = size("BODY_BYTES", 4 * 1024 * 1024);
    let junk = format!("[{}0]", "{\"a\":0},".repeat(bytes / 8));
    let token = "0".repeat(32);
    let heartbeat = format!("{{\"lease_token\":\"{token}\",\"x\":{junk}}}");
    let unknown = format!("{{\"events\":[],\"x\":{junk}}}");
    let heavy = format!("{{\"runs\":[{{\"lifecycle\":\"deploy\",\"input\":{junk}}}]}}");
    let cases = [
        ("POST /v1/runs/run-1/heartbeat", &heartbeat, 413),
        ("POST /v1/runs/run-1/release", &heartbeat, 413),
        ("POST /v1/events", &unknown, 422),
        ("POST /v1/runs/batch", &heavy, 413),
    ];
    thread::scope(|scope| {
        for at in 0..size("BODIES", 8) {
            let (target, (request, body, expected)) = (&target, cases[at % cases.len()]);
            scope.spawn(move || {
                let (status, text) = target.ask(request, body.as_bytes());
                assert!([expected, 503].contains(&status), "{request}: {status}: {text}");
            });
        }
        target.is_well("heavy bodies");
    });
    target.is_well("after heavy bodies");
}

/// A worker of another tenant that has a run and a short lease, and does what it has to meanwhile; and a probe of the server's health.
struct Healthy {
    is_over: Arc<AtomicBool>,
    /// Gives how often it was answered, and the slowest answer of `/livez`.
    works: thread::JoinHandle<(usize, Duration)>,
}

impl Healthy {
    fn of(target: &Target) -> Healthy {
        let lease = Duration::from_millis(size("LEASE_MS", 30_000) as u64);
        let post = |target: &Target, path: &str, body: &Value| {
            let (status, text) = target.ask_of("other", &format!("POST {path}"), body.to_string().as_bytes());
            assert!([200, 201].contains(&status), "{path}: {text}");
            serde_json::from_str::<Value>(text.split("\r\n\r\n").nth(1).unwrap()).unwrap()
        };
        post(target, "/v1/runs", &json!({ "lifecycle": "deploy" }));
        let claim = json!({ "worker": "healthy", "lease_ms": lease.as_millis() as u64 });
        let claimed = post(target, "/v1/claims", &claim)["claims"][0].take();
        let path = format!("/v1/runs/{}/heartbeat", claimed["run"]["run_id"].as_str().unwrap());
        let token = json!({ "lease_token": claimed["lease"]["token"] });
        let is_over = Arc::new(AtomicBool::new(false));
        let (other, over) = (Target::at(&target.address), is_over.clone());
        let works = thread::spawn(move || {
            let (mut beats, mut slowest) = (0, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                post(&other, &path, &token);
                let asked_at = Instant::now();
                let (status, text) = other.ask("GET /livez", b"");
                assert_eq!(status, 200, "/livez: {text}");
                slowest = slowest.max(asked_at.elapsed());
                beats += 1;
                thread::park_timeout(BEAT);
            }
            (beats, slowest)
        });
        Healthy { is_over, works }
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.works.thread().unpark();
        let (beats, slowest) = self.works.join().unwrap();
        println!(
            "a healthy worker kept its lease: {beats} heartbeats; the slowest of as many answers of /livez took {slowest:?}"
        );
        // In full size alone: what it takes beside other tests says nothing.
        if let Ok(most) = std::env::var("WAYPOST_ATTACK_LIVEZ_MS") {
            assert!(slowest < Duration::from_millis(most.parse().unwrap()), "{slowest:?}");
        }
    }
}

/// Whoever holds many large runs tells of all of them at once.
async fn holder_of_large_runs(shop: Shop) {
    let count = size("RUNS", 6);
    fill(&shop, count).await;
    let target = Target::of(&shop);
    let body_of = |(status, text): (u16, String)| -> Value {
        assert_eq!(status, 200, "{}", &text[..text.len().min(1_000)]);
        serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    let mut held = Vec::new();
    while held.len() < count {
        let claimed =
            body_of(target.post(
                "/v1/claims",
                &json!({ "worker": "w", "limit": 100, "start": true, "lease_ms": 600_000 }),
            ));
        let claims = claimed["claims"].as_array().unwrap();
        assert!(!claims.is_empty());
        held.extend(
            claims
                .iter()
                .map(|it| json!({ "run_id": it["run"]["run_id"], "lease_token": it["lease"]["token"] })),
        );
    }
    target.is_well("claims of all");
    let renewed = body_of(target.post("/v1/heartbeats", &json!({ "leases": held })));
    assert!(renewed["leases"].as_array().unwrap().iter().all(|it| it["expires_at"].is_string()));
    target.is_well("heartbeats of all");
    held.iter_mut().for_each(|it| it["status"] = json!("success"));
    let ended = body_of(target.post("/v1/finishes", &json!({ "finishes": held })));
    assert!(ended["runs"].as_array().unwrap().iter().all(|it| it["run"]["status"] == "success"));
    target.is_well("finishes of all");
}

#[tokio::test]
async fn a_holder_of_large_runs_costs_a_server_on_sqlite_little() {
    holder_of_large_runs(Shop::new()).await;
}

#[tokio::test]
async fn a_holder_of_large_runs_costs_a_server_on_postgres_little() {
    holder_of_large_runs(Shop::on_postgres()).await;
}

#[test]
fn heavy_bodies_do_not_keep_a_server_on_sqlite_from_others() {
    heavy_bodies(&Shop::new());
}

#[test]
fn heavy_bodies_do_not_keep_a_server_on_postgres_from_others() {
    heavy_bodies(&Shop::on_postgres());
}

/// Sockets that ask for much and take nothing: more of them than there are seats, in full size.
fn silent_sockets(shop: &Shop) {
    let target = Target::of(shop);
    let many = get(&target.address, "/reference").repeat(30);
    let count = size("SOCKETS", 100);
    let mut sockets: Vec<TcpStream> = Vec::new();
    for at in 0..count {
        sockets.push(target.silent(&many));
        if at % 256 == 255 {
            target.is_well(&format!("{} silent sockets", at + 1));
        }
    }
    for _ in 0..10 {
        target.is_well(&format!("{count} silent sockets"));
    }
}

#[test]
fn sockets_that_take_nothing_do_not_keep_a_server_on_sqlite_from_others() {
    silent_sockets(&Shop::new());
}

#[test]
fn sockets_that_take_nothing_do_not_keep_a_server_on_postgres_from_others() {
    silent_sockets(&Shop::on_postgres());
}
