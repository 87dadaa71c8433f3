//! What clients can do to a server from outside: take its memory, its connections, its time. The server is a process of its own, so
//! that its memory can be told, and it must answer others meanwhile. `./scripts/soak attacks` does the same in full size.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use waypost_store::NewRun;

use crate::support::{Running, Shop, memory_of};

/// What a server may have at most, in KiB, whatever is done to it; while bodies are read, as much more as they may take.
const MOST_MEMORY: u64 = 300 * 1024;
const BODY_MEMORY: u64 = 128 * 1024;

fn size(name: &str, otherwise: usize) -> usize {
    std::env::var(format!("WAYPOST_ATTACK_{name}")).map_or(otherwise, |text| text.parse().unwrap())
}

struct Target {
    server: Running,
    /// `127.0.0.1:7070`.
    address: String,
}

impl Target {
    fn of(shop: &Shop) -> Target {
        let (server, url) = shop.serve(&["serve", "--no-worker"]);
        Target { server, address: url.strip_prefix("http://").unwrap().to_owned() }
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
        let mut socket = self.open();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
            self.address
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(body).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default(), text)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, String) {
        self.ask(&format!("POST {path}"), body.to_string().as_bytes())
    }

    /// Others are answered; says how long that took and what the server has.
    #[track_caller]
    fn is_well(&self, what: &str) {
        self.is_well_within(what, MOST_MEMORY);
    }

    #[track_caller]
    fn is_well_within(&self, what: &str, most_memory: u64) {
        let began = Instant::now();
        for path in ["/livez", "/readyz", "/v1/clock"] {
            let (status, text) = self.ask(&format!("GET {path}"), b"");
            assert_eq!(status, 200, "{what}: {path}: {text}");
        }
        let took = began.elapsed();
        let (now, most) = memory_of(&self.server);
        println!("{what}: three answers in {took:?}; memory {} MiB, at most {} MiB", now / 1024, most / 1024);
        assert!(most < most_memory, "{what}: {most} KiB");
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
    let (before, _) = memory_of(&target.server);
    let count = size("CLAIMERS", 300);
    for at in 0..count {
        let (status, text) = target
            .post("/v1/claims", &json!({ "worker": format!("{at}{}", "w".repeat(200)), "queues": queues }));
        assert_eq!(status, 200, "{text}");
    }
    let (after, _) = memory_of(&target.server);
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
        target.is_well_within("heavy bodies", MOST_MEMORY + BODY_MEMORY);
    });
    target.is_well_within("after heavy bodies", MOST_MEMORY + BODY_MEMORY);
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
