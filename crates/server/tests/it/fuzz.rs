//! Malformed requests, thousands of them, the same each time: nothing panics, nothing is a defect of the server.

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Server, send};

/// Deterministic: xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }

    fn word(&mut self) -> &'static str {
        NASTY[self.roll(NASTY.len())]
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.roll(list.len())]
    }
}

const NASTY: &[&str] = &[
    "",
    "..",
    "../../etc/passwd",
    "%2e%2e%2f",
    "' OR 1=1; DROP TABLE runs; --",
    "\u{0}",
    "\u{202e}\u{feff}",
    "😀",
    "-1",
    "1e999",
    "99999999999999999999",
    "null",
    "{}",
    "run-01a1deed-0d16-7712-9581-3369c4665360",
    "<script>alert(1)</script>",
    "%00%ff",
    "${jndi:ldap://x}",
];

fn nasty_value(dice: &mut Dice, depth: usize) -> Value {
    match dice.roll(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(i64::MIN),
        4 => json!(u64::MAX),
        5 => json!(1.5e300),
        6 => json!("x".repeat(dice.roll(3_000))),
        7 if depth < 4 => (0..dice.roll(4)).map(|_| nasty_value(dice, depth + 1)).collect(),
        8 if depth < 4 => {
            let members = (0..dice.roll(4)).map(|_| (dice.word().to_owned(), nasty_value(dice, depth + 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        9 => (0..dice.roll(120)).fold(json!(1), |inner, _| json!([inner])),
        _ => json!(dice.word()),
    }
}

/// A body of the route's shape, with some of its fields right, some wrong, some too many.
fn body(dice: &mut Dice, document: &Value, operation: &Value) -> String {
    let name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        .as_str()
        .unwrap_or("#/none");
    let schema = document.pointer(&name[1..]).cloned().unwrap_or_default();
    let mut object = Map::new();
    for (field, kind) in schema["properties"].as_object().into_iter().flatten() {
        let right = match kind["type"].as_str().or_else(|| kind["type"][0].as_str()) {
            Some("string") if kind["enum"].is_array() => kind["enum"][0].clone(),
            Some("string") if field == "lifecycle" => {
                json!(["deploy", "job", "rule", "agent", "cron"][dice.roll(5)])
            }
            Some("string") if field == "lease_token" => json!("0123456789abcdef0123456789abcdef"),
            Some("string") => json!("text"),
            Some("integer") => kind["minimum"].clone(),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            _ => json!({}),
        };
        match dice.roll(4) {
            0 => drop(object.insert(field.clone(), nasty_value(dice, 0))),
            1 => {}
            // A long poll is not malformed.
            _ => drop(object.insert(field.clone(), if field == "wait_ms" { json!(0) } else { right })),
        }
    }
    if dice.roll(10) == 0 {
        object.insert(dice.word().to_owned(), nasty_value(dice, 0));
    }
    if object.get("wait_ms").and_then(Value::as_i64).is_some_and(|ms| ms > 5) {
        object.insert("wait_ms".into(), json!(5));
    }
    let text = Value::Object(object).to_string();
    match dice.roll(12) {
        0 => text[..text.floor_char_boundary(dice.roll(text.len() + 1))].to_owned(),
        1 => text.replace("text", "\\ud800"),
        2 => format!("{text}{text}"),
        3 => format!("{}{}", "[".repeat(5_000), "]".repeat(dice.roll(5_000))),
        4 => text.replacen('"', "'", 2),
        _ => text,
    }
}

fn path(dice: &mut Dice, template: &str, operation: &Value) -> String {
    let encoded = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
    let parts: Vec<String> = template
        .split('/')
        .map(|part| match part.starts_with('{') {
            true => encoded(if dice.roll(2) == 0 { "nothing" } else { dice.word() }),
            false => part.to_owned(),
        })
        .collect();
    let mut path = parts.join("/");
    let parameters = operation["parameters"].as_array().unwrap().iter().filter(|it| it["in"] == "query");
    for (at, parameter) in parameters.enumerate() {
        let name = parameter["name"].as_str().unwrap();
        let value = if name == "wait_ms" { "1" } else { dice.word() };
        // Without it a wait takes its second.
        if name == "wait_ms" || dice.roll(3) > 0 {
            path.push_str(&format!("{}{name}={}", if at == 0 { '?' } else { '&' }, encoded(value)));
        }
    }
    path
}

/// Heads that are none.
async fn raw(server: &Server, dice: &mut Dice) -> Option<u16> {
    let head: Vec<u8> = match dice.roll(7) {
        0 => format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(100_000)).into(),
        1 => format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "a: b\r\n".repeat(500)).into(),
        2 => b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
        3 => b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n{}".to_vec(),
        4 => b"GET /v1/runs/../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        5 => b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        _ => (0..dice.roll(200)).map(|_| dice.roll(256) as u8).chain(*b"\r\n\r\n").collect(),
    };
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let _ = socket.write_all(&head).await;
    let _ = socket.shutdown().await;
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// 5,000 of them; the soak sends more: WAYPOST_FUZZ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_are_refused_and_break_nothing() {
    let count: usize = std::env::var("WAYPOST_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let server = Server::on(crate::support::On::Sqlite).await;
    let document = waypost_server::openapi();
    let routes: Vec<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (path.clone(), method.clone()))
        })
        .filter(|(path, _)| !path.ends_with("stream"))
        .collect();
    let mut dice = Dice(0x5eed_5eed_5eed_5eed);
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    let (mut resident, mut seen) = (Vec::new(), 0);
    for number in 0..count {
        if number % (count / 10) == 0 {
            resident.push(resident_bytes() / 1_024);
        }
        if dice.roll(20) == 0 {
            let status = raw(&server, &mut dice).await.unwrap_or_default();
            assert!(status < 500, "request {number}: {status}");
            *statuses.entry(status).or_default() += 1;
            continue;
        }
        let (template, method) = dice.of(&routes).clone();
        let operation = &document["paths"][&template][&method];
        let path = path(&mut dice, &template, operation);
        let mut request = server.request(&method.to_uppercase(), &path);
        if operation["requestBody"].is_object() {
            let kind =
                ["application/json", "application/json", "application/json", "text/plain"][dice.roll(4)];
            request = request.header("content-type", kind).body(body(&mut dice, &document, operation));
        }
        for name in [
            "idempotency-key",
            "if-match",
            "if-none-match",
            "traceparent",
            "x-request-id",
            "waypost-tenant",
            "authorization",
        ] {
            if dice.roll(12) == 0 {
                let value: String = dice.word().chars().filter(char::is_ascii_graphic).collect();
                request = request.header(name, value);
            }
        }
        let answer = send(request).await;
        // Only /readyz may say 503 of its own.
        assert!(answer.status < 500, "request {number}: {method} {path}: {} {}", answer.status, answer.text);
        if answer.status >= 400 {
            let codes = [&answer.body["code"], &answer.body["error"]["code"]];
            assert!(codes.iter().any(|code| code.is_string()), "{method} {path}: {}", answer.text);
        }
        *statuses.entry(answer.status).or_default() += 1;
        seen += 1;
    }
    assert!(seen > count / 2 && statuses.len() > 5, "{statuses:?}");
    resident.push(resident_bytes() / 1_024);
    println!("{count} malformed requests: {statuses:?}\nKiB resident, at each tenth: {resident:?}");
    // The first tenths fill what is kept on purpose: names of workers, tenants of runs, pages of the database.
    let grown = resident[10].saturating_sub(resident[2]);
    assert!(grown < 32 * 1_024, "memory grew by {grown} KiB");
    server.get("/livez").await.expect(200);
    let verified = server.store.verify(std::sync::Arc::new(|_, _| {})).await.unwrap();
    assert_eq!(verified.differences, Vec::<String>::new());
}
