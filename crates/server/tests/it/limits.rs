//! Every limit has its own clear answer.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{On, Server, open, send, with_body};
use waypost_server::Options;

/// Sends bytes as they are, and gives the status of the answer. The socket stays open both ways until the answer is here:
/// a client that ends its side has hung up, and the server need not answer it.
async fn raw(server: &Server, bytes: &[u8]) -> (u16, String) {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let _ = socket.write_all(bytes).await;
    let mut answer = Vec::new();
    while !is_whole(&answer) {
        match socket.read_buf(&mut answer).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, text)
}

/// Whether all of an answer is here, by the length that its head tells or by the last of its chunks.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        None => body.ends_with("0\r\n\r\n"),
    }
}

#[tokio::test]
async fn bodies_have_a_size_a_depth_and_a_kind() {
    let server = Server::new().await;
    let post = |body: String| {
        let request = server.request("POST", "/v1/runs").header("content-type", "application/json");
        send(request.body(body))
    };
    let deep = format!("{{\"lifecycle\":\"deploy\",\"input\":{}{}}}", "[".repeat(100), "]".repeat(100));
    for (body, status, code, words) in [
        (deep, 422, "INVALID_INPUT", "input: is nested deeper than 64"),
        ("{\"lifecycle\":\"deploy\",\"input\":\"\\ud800\"}".into(), 400, "INVALID_JSON", "surrogate"),
        ("{\"lifecycle\":\"dep\\u0000loy\"}".into(), 422, "INVALID_INPUT", "lifecycle: has a NUL"),
        ("[]".into(), 422, "INVALID_INPUT", "must be an object"),
        ("{}".into(), 422, "INVALID_INPUT", "lifecycle: is missing"),
        (
            json!({ "lifecycle": "deploy", "input": "x".repeat(1_100_000) }).to_string(),
            422,
            "INVALID_INPUT",
            "input: is 1100002 bytes long; at most 1048576 are allowed",
        ),
        (json!({ "lifecycle": "x".repeat(5_000_000) }).to_string(), 413, "TOO_LARGE", "4194304 bytes"),
        (
            json!({ "lifecycle": "deploy", "schedule_at": "soon" }).to_string(),
            422,
            "INVALID_INPUT",
            "schedule_at",
        ),
        (
            json!({ "lifecycle": "deploy", "priority": 1.5 }).to_string(),
            422,
            "INVALID_INPUT",
            "a whole number from -32768",
        ),
    ] {
        let problem = post(body).await.refused(status, code);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
    }
    let plain = server.request("POST", "/v1/runs").header("content-type", "text/plain").body("{}");
    send(plain).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    let packed = server.request("POST", "/v1/runs").header("content-encoding", "gzip").body("{}");
    send(packed).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
}

#[tokio::test]
async fn queries_are_known_and_in_their_range() {
    let server = Server::new().await;
    for (path, words) in [
        ("/v1/runs?limit=0", "limit: must be a whole number from 1 to 500"),
        ("/v1/runs?limit=501", "limit: must be"),
        ("/v1/runs?limit=ten", "limit: must be"),
        ("/v1/runs?order=desc", "order: is no field here; allowed: lifecycle, status"),
        ("/v1/runs?limt=5", "limt: is no field here; did you mean `limit`? Allowed: lifecycle, status"),
        ("/v1/runs?status=%00", "NUL"),
        ("/v1/runs?status=%ff", "UTF-8"),
        ("/v1/changes?wait_ms=99999999", "wait_ms: must be"),
    ] {
        let problem = server.get(path).await.refused(400, "INVALID_QUERY");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
    let long = server.get(&format!("/v1/runs/{}", "x".repeat(600))).await;
    long.refused(400, "INVALID_QUERY");
    let tenant = send(server.request("GET", "/v1/runs").header("waypost-tenant", "")).await;
    tenant.refused(400, "INVALID_QUERY");
    let key = server.request("GET", "/v1/runs/x").header("if-none-match", "x".repeat(1_025));
    let problem = send(key).await.refused(400, "INVALID_QUERY");
    assert!(problem["detail"].as_str().unwrap().contains("If-None-Match: must be text of at most 1024"));
    server.get("/v1/runs?limit=&status=").await.expect(200);
    let many = server.get(&format!("/v1/runs?{}", "limit=5&".repeat(51))).await.refused(400, "INVALID_QUERY");
    assert!(many["detail"].as_str().unwrap().contains("more than 50 parameters"), "{many}");
    let zone =
        server.post("/v1/runs", json!({ "lifecycle": "deploy", "schedule_at": "2030-01-01T00:00:00+99:00" }));
    zone.await.refused(422, "INVALID_INPUT");
}

#[tokio::test]
async fn a_path_that_is_spelt_out_tells_its_own_methods() {
    let server = Server::new().await;
    for (path, methods) in [
        ("/v1/runs/batch", "POST"),
        ("/v1/runs/x/heartbeat", "POST"),
        ("/v1/runs/x/events", "POST, GET, HEAD"),
    ] {
        let answer = send(server.request("PATCH", path)).await;
        let mut allowed: Vec<&str> = answer.header("allow").split(", ").collect();
        let mut expected: Vec<&str> = methods.split(", ").collect();
        allowed.sort_unstable();
        expected.sort_unstable();
        assert_eq!((answer.status, allowed), (405, expected), "{path}");
    }
}

#[tokio::test]
async fn heads_have_a_size() {
    let server = Server::new().await;
    let many: String = (0..100).map(|at| format!("x-{at}: y\r\n")).collect();
    let (status, _) =
        raw(&server, format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert_eq!(status, 431);
    let long = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    assert_eq!(raw(&server, long.as_bytes()).await.0, 431);
    // What comes at once is read at once, and counted all the same.
    for bytes in [33_000, 36_000, 40_000] {
        let long = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(bytes));
        assert_eq!(raw(&server, long.as_bytes()).await.0, 431, "{bytes}");
    }
    let fits = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(31_000));
    assert_eq!(raw(&server, fits.as_bytes()).await.0, 200);
    assert_eq!(raw(&server, b"nonsense\r\n\r\n").await.0, 400);
    server.get("/livez").await.expect(200);
}

#[tokio::test]
async fn more_connections_than_there_are_seats_are_turned_away() {
    let (store, lives) = open(On::Memory).await;
    let server = Server::with(store, lives, Options { connections: 1, ..Options::default() }).await;
    // One is seated, and one on the seat that is kept for others is told so; both are at work until their bodies have come.
    let mut seated = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let head = "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
        socket.write_all(head.as_bytes()).await.unwrap();
        seated.push(socket);
    }
    let full = async {
        loop {
            let (status, text) = raw(&server, b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
            if status == 503 {
                return text;
            }
        }
    };
    let text = tokio::time::timeout(std::time::Duration::from_secs(60), full).await.expect("all are taken");
    let body: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["code"], "BUSY");
    drop(seated);
}

/// Otherwise any page that a person looks at could start runs on that person's machine.
#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let server = Server::new().await;
    let ask = |name: &'static str, value: String| {
        send(with_body(
            server.request("POST", "/v1/runs").header(name, value),
            &json!({ "lifecycle": "deploy" }),
        ))
    };
    for origin in ["https://example.org", "null", "http://localhost:1"] {
        ask("origin", origin.into()).await.refused(403, "CROSS_ORIGIN");
    }
    ask("host", "example.org".into()).await.refused(403, "CROSS_ORIGIN");
    for head in [
        "GET /v1/clock HTTP/1.1\r\nhost: localhost\r\nhost: evil.com",
        "GET http://evil.com/v1/clock HTTP/1.1\r\nhost: localhost",
        "GET /v1/clock HTTP/1.1\r\nhost: [::1].evil.com",
        "GET /v1/clock HTTP/1.1\r\nhost: localhost:80@evil.com",
    ] {
        let (status, text) = raw(&server, format!("{head}\r\n\r\n").as_bytes()).await;
        assert!(status == 403 || status == 400, "{head}: {text}");
    }
    let (status, _) =
        raw(&server, b"GET http://localhost/v1/clock HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(status, 200);
    ask("origin", format!("http://{}", server.address)).await.expect(201);
}

#[tokio::test]
async fn a_request_id_is_kept_or_made() {
    let server = Server::new().await;
    let given = send(server.request("GET", "/livez").header("x-request-id", "abc-1")).await;
    assert_eq!(given.header("x-request-id"), "abc-1");
    let odd = send(server.request("GET", "/livez").header("x-request-id", "a b")).await;
    assert_eq!(odd.header("x-request-id").len(), 32);
    let astray = send(server.request("GET", "/nowhere").header("x-request-id", "abc-2")).await;
    assert_eq!(astray.refused(404, "NOT_FOUND")["request_id"], "abc-2");
    let wrong = send(server.request("DELETE", "/v1/runs")).await;
    assert_eq!(wrong.header("allow"), "POST, GET, HEAD");
    wrong.refused(405, "METHOD_NOT_ALLOWED");
}
