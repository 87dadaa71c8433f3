//! What one client takes of a server, the others still have: connections, patience, memory, looks for work.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use waypost_server::Options;
use waypost_store::NewRun;

use crate::roles::{ask, token};
use crate::support::{On, Server, client, open, send, with_body};

const SOON: Duration = Duration::from_secs(60);

async fn server_of(on: On, options: Options) -> Server {
    let (store, lives) = open(on).await;
    Server::with(store, lives, options).await
}

/// One that asks for more than the system takes for it, and reads nothing.
async fn silent(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut socket = socket.connect(server.address).await.unwrap();
    let request = format!("GET /reference HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let _ = timeout(Duration::from_secs(1), socket.write_all(request.repeat(100).as_bytes())).await;
    socket
}

/// A series of the server's own, as `/metrics` tells it.
async fn series(server: &Server, name: &str) -> u64 {
    let page = server.get("/metrics").await.text;
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_that_want_or_take_nothing_make_room_for_others() {
    let server = server_of(On::Memory, Options { connections: 4, ..Options::default() }).await;
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(TcpStream::connect(server.address).await.unwrap());
        held.push(silent(&server).await);
        for path in ["/livez", "/readyz"] {
            // Of another connection each time.
            let answer = client().get(server.url(path)).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_is_not_waited_for_for_ever() {
    let options = Options { write_within: Duration::from_millis(300), ..Options::default() };
    let server = server_of(On::Memory, options).await;
    let _silent = silent(&server).await;
    let gone = async { while series(&server, "waypost_http_connections").await > 1 {} };
    timeout(SOON, gone).await.expect("its connection is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_are_at_work_health_and_tokens_are_still_answered() {
    let options = Options { connections: 4, needs_tokens: true, ..Options::default() };
    let server = server_of(On::Memory, options).await;
    let mut waiting = Vec::new();
    for name in ["a", "b", "c", "d"] {
        // Two streams are half of all connections, as many as there may be.
        let request = match name {
            "a" | "b" => {
                let viewer = token(&*server.store, "viewer", name).await;
                client().get(server.url("/v1/events/stream")).bearer_auth(&viewer)
            }
            _ => {
                let worker = token(&*server.store, "worker", name).await;
                let request = client().post(server.url("/v1/claims")).bearer_auth(&worker);
                with_body(request, &json!({ "worker": "w", "wait_ms": 60_000 }))
            }
        };
        waiting.push(tokio::spawn(async move { drop(request.send().await.unwrap().bytes().await) }));
    }
    // Of a connection of its own each: one that is idle would have to leave.
    let get = async |path: &str| send(client().get(server.url(path))).await;
    let busy = async { while get("/openapi.json").await.status != 503 {} };
    timeout(SOON, busy).await.expect("all seats are taken");
    get("/openapi.json").await.refused(503, "BUSY");
    get("/livez").await.expect(200);
    get("/readyz").await.expect(200);
    let operator = token(&*server.store, "operator", "e").await;
    let request = client().post(server.url("/v1/runs")).bearer_auth(&operator);
    send(with_body(request, &json!({ "lifecycle": "deploy" }))).await.expect(201);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_a_share_of_what_waits_and_others_theirs() {
    let options = Options { connections: 8, needs_tokens: true, ..Options::default() };
    let server = server_of(On::Sqlite, options).await;
    let (worker, other) =
        (token(&*server.store, "worker", "a").await, token(&*server.store, "worker", "b").await);
    let wait = |token: &str| {
        let body = json!({ "worker": "w", "wait_ms": 60_000 });
        with_body(client().post(server.url("/v1/claims")).bearer_auth(token), &body)
    };
    // Whoever is refused because the request below has the last share asks again.
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let request = wait(&worker);
            tokio::spawn(async move { while send(request.try_clone().unwrap()).await.status != 200 {} })
        })
        .collect();
    let refused = async {
        loop {
            // Long enough to wait after a first look on a machine that is busy.
            let body = json!({ "worker": "w", "wait_ms": 500 });
            let answer = ask(&server, &worker, "POST", "/v1/claims", &body).await;
            if answer.status != 200 {
                return answer;
            }
        }
    };
    let refused = timeout(SOON, refused).await.expect("two are as many as one may have");
    assert_eq!(refused.header("retry-after"), "1");
    refused.refused(429, "TOKEN_BUSY");
    ask(&server, &worker, "POST", "/v1/claims", &json!({ "worker": "w" })).await.expect(200);
    ask(&server, &other, "POST", "/v1/claims", &json!({ "worker": "w", "wait_ms": 1 })).await.expect(200);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Whoever waits for the same as others does not look by itself, and all are served.
#[tokio::test(flavor = "multi_thread")]
async fn many_who_wait_for_the_same_cost_as_much_as_one() {
    const WAITING: usize = 40;
    for on in [On::Sqlite, On::Postgres] {
        let server = server_of(on, Options::default()).await;
        let wait = |at: usize| {
            let body = json!({ "worker": format!("w-{at}"), "wait_ms": 60_000 });
            let request = with_body(client().post(server.url("/v1/claims")), &body);
            tokio::spawn(async move { request.send().await.unwrap().json_of().await })
        };
        let waiting: Vec<_> = (0..WAITING).map(wait).collect();
        let asked = async { while series(&server, "waypost_claim_requests_total").await < WAITING as u64 {} };
        timeout(SOON, asked).await.expect("all have asked");
        let new =
            |queue: &str| NewRun { lifecycle: "deploy".into(), queue: queue.into(), ..NewRun::default() };
        let looks = || series(&server, "waypost_claim_duration_seconds_count");
        let before = looks().await;
        const CHANGES: u64 = 50;
        for _ in 0..CHANGES {
            server.store.enqueue(vec![new("another")]).await.unwrap().remove(0).unwrap();
        }
        let spent = looks().await - before;
        assert!(spent <= CHANGES + 2 * WAITING as u64, "{on:?}: {spent} looks for {CHANGES} changes");
        let runs = (0..WAITING).map(|_| new("default")).collect();
        server.store.enqueue(runs).await.unwrap();
        let taken = timeout(SOON, join_all(waiting)).await.expect("all are served");
        let ids: HashSet<String> = taken
            .into_iter()
            .map(|claims| claims.unwrap()["claims"][0]["run"]["run_id"].to_string())
            .collect();
        assert_eq!(ids.len(), WAITING, "{on:?}");
    }
}

trait JsonOf {
    async fn json_of(self) -> Value;
}

impl JsonOf for reqwest::Response {
    async fn json_of(self) -> Value {
        serde_json::from_str(&self.text().await.unwrap()).unwrap()
    }
}

/// A client that sends all before it reads sees why it was refused.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_told_to_clients_that_send_before_they_read() {
    let server = Server::new().await;
    let body = format!("{{\"lease_token\":\"{}\",\"x\":\"{}\"}}", "0".repeat(32), "y".repeat(16_000_000));
    for verb in ["heartbeat", "release", "require-cleanup", "owe"] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST /v1/runs/run-1/{verb} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("65536 bytes"), "{verb}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_take_no_more_memory_than_there_is() {
    let options = Options { body_bytes: 4 * 1024 * 1024, ..Options::default() };
    let server = server_of(On::Memory, options).await;
    let large = json!({ "lifecycle": "deploy", "input": "x".repeat(1_000_000) });
    server.post("/v1/runs", large).await.expect(201);
    let many: Vec<Value> = (0..50_000).map(|_| json!({ "a": 0 })).collect();
    let answer = server.post("/v1/runs", json!({ "lifecycle": "deploy", "input": many })).await;
    assert_eq!(answer.header("retry-after"), "1");
    answer.refused(503, "BUSY");
    let junk = json!({ "lifecycle": "deploy", "junk": many });
    let problem = server.post("/v1/runs", junk).await.refused(422, "INVALID_INPUT");
    assert!(problem["detail"].as_str().unwrap().starts_with("junk: is no field here"), "{problem}");
    server.start().await;
}

/// However long they stay: they take nothing, and somebody else would.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_take_nothing_make_room_for_those_who_read() {
    let options =
        Options { answer_bytes: 2_000_000, write_within: Duration::from_secs(3_600), ..Options::default() };
    let server = server_of(On::Memory, options).await;
    let run = server.start_with(json!({ "input": "x".repeat(1_000_000) })).await;
    let path = format!("/v1/runs/{}", run["run_id"].as_str().unwrap());
    let mut held = Vec::new();
    for _ in 0..6 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut socket = socket.connect(server.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
        socket.write_all(request.repeat(20).as_bytes()).await.unwrap();
        held.push(socket);
    }
    for _ in 0..3 {
        let read = async { while server.get(&path).await.status != 200 {} };
        timeout(SOON, read).await.expect("who reads is answered");
    }
    server.get("/livez").await.expect(200);
}
