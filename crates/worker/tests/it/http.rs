//! Requests against a real server on this machine, which answers as it is told and remembers what it heard.

pub mod server;

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use waypost_worker::actions::http::{Client, Lookup, Reply};
use waypost_worker::actions::{Body, Call, Http, Mask, Reads};
use waypost_worker::playbook::Sealed;
use waypost_worker::{Outcome, Word};

use server::{Said, Server};

/// Resolves every name to what it is told, one list after the other, and counts.
struct Fake {
    answers: Mutex<Vec<Vec<&'static str>>>,
    asked: AtomicUsize,
}

impl Fake {
    fn new(answers: &[&[&'static str]]) -> Arc<Fake> {
        let answers = answers.iter().rev().map(|answer| answer.to_vec()).collect();
        Arc::new(Fake { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }

    fn client(self: &Arc<Fake>, allow_private: bool) -> Client {
        let lookup: Arc<dyn Lookup> = self.clone();
        Client::with_lookup(allow_private, &lookup).unwrap()
    }
}

impl Lookup for Fake {
    fn lookup(&self, _: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = self.answers.lock().unwrap().pop().unwrap_or_default();
        Box::pin(async move { Ok(answer.iter().map(|address| address.parse().unwrap()).collect()) })
    }
}

fn get(url: &str) -> Http {
    Http {
        method: "GET".into(),
        url: url.into(),
        headers: Vec::new(),
        body: Body::None,
        allow_private: true,
        reads: Reads::Outcome,
    }
}

fn call() -> Call {
    Call {
        run_id: "r1".into(),
        step: "notify".into(),
        attempt: 1,
        try_no: 2,
        idempotency_key: "r1:1:2".into(),
        traceparent: Some("00-aaaa-bbbb-01".into()),
        input: json!({"cluster": "c1"}),
        ..Call::default()
    }
}

async fn send(request: &Http) -> Reply {
    Client::new(false).unwrap().send(request, &call(), None, &Mask::default()).await
}

fn outcome(reply: &Reply) -> &Outcome {
    reply.outcome.as_ref().unwrap_or_else(|problem| panic!("{problem}: {reply:?}"))
}

#[tokio::test]
async fn an_endpoint_is_told_what_a_command_is_told() {
    let server = Server::start(vec![Said::json(200, r#"{"outcome":"done","output":{"n":7}}"#)]).await;
    let mask = Mask::new(["t0ken"]);
    let request = Http {
        method: "POST".into(),
        url: server.url("/hook?a=1"),
        headers: vec![("Authorization".into(), Sealed::new("Bearer t0ken"))],
        body: Body::Envelope,
        allow_private: true,
        reads: Reads::Outcome,
    };
    let reply = Client::new(false).unwrap().send(&request, &call(), None, &mask).await;
    assert_eq!(outcome(&reply).output, json!({"n": 7}));
    let heard = server.heard().await;
    assert!(heard.head.starts_with("POST /hook?a=1 HTTP/1.1"), "{}", heard.head);
    for (name, value) in [
        ("idempotency-key", "r1:1:2"),
        ("traceparent", "00-aaaa-bbbb-01"),
        ("authorization", "Bearer t0ken"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(heard.header(name).as_deref(), Some(value), "{}", heard.head);
    }
    assert_eq!(serde_json::from_str::<Value>(&heard.body).unwrap(), call().envelope());
    assert!(!format!("{request:?} {reply:?}").contains("t0ken"));
}

#[tokio::test]
async fn every_status_has_its_meaning() {
    for (said, word, code, wait_ms, permanent) in [
        (Said::json(204, ""), Word::Done, None, None, false),
        (Said::json(200, r#"{"outcome":"skip","reason":"none"}"#), Word::Skip, None, None, false),
        (
            Said::json(429, "slow down").with("Retry-After: 7"),
            Word::Retry,
            Some("RATE_LIMIT"),
            Some(7_000),
            false,
        ),
        (Said::json(429, "slow down"), Word::Retry, Some("RATE_LIMIT"), None, false),
        (Said::json(429, "").with("Retry-After: soon"), Word::Retry, Some("RATE_LIMIT"), None, false),
        (
            Said::json(503, "").with("Retry-After: 99999999"),
            Word::Retry,
            Some("SERVER_ERROR"),
            Some(3_600_000),
            false,
        ),
        (
            Said::json(503, "").with("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT"),
            Word::Retry,
            Some("SERVER_ERROR"),
            Some(1_000),
            false,
        ),
        (Said::json(408, ""), Word::Retry, Some("TIMEOUT"), None, false),
        (Said::json(500, "oops").with("Retry-After: 7"), Word::Retry, Some("SERVER_ERROR"), None, false),
        (Said::json(400, "no"), Word::Fail, Some("VALIDATION"), None, true),
        (Said::json(403, "no"), Word::Fail, Some("AUTHORIZATION"), None, true),
        (Said::json(404, "no"), Word::Fail, Some("NOT_FOUND"), None, true),
        (Said::json(409, r#"{"outcome":"done"}"#), Word::Fail, Some("VALIDATION"), None, true),
    ] {
        let server = Server::start(vec![said.clone()]).await;
        let reply = send(&get(&server.url("/x"))).await;
        let found = outcome(&reply);
        assert_eq!((found.word, found.code.as_deref()), (Some(word), code), "{said:?}: {found:?}");
        assert_eq!(found.retry_after.map(|wait| wait.as_millis()), wait_ms, "{said:?}");
        assert_eq!(found.permanent, permanent, "{said:?}");
        assert!(reply.is_known, "{said:?}");
    }
}

// proves X10
#[tokio::test]
async fn an_answer_that_cannot_be_an_outcome_is_told_and_bounded() {
    let huge = format!("{{\"outcome\":\"done\",\"output\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
    for (said, words) in [
        (Said::json(200, &huge), "larger than 1048576 bytes"),
        (Said::endless(), "larger than 1048576 bytes"),
        (Said::json(200, "{\"outcome\":"), "not JSON"),
        (Said::bytes(200, b"\"\xff\xfe\""), "not JSON"),
        (Said::json(200, r#"{"outcome":"maybe"}"#), "known: done, skip"),
        (Said::json(200, r#"{"outcome":"pause","blockers":"h1"}"#), "blockers is not an object"),
    ] {
        let server = Server::start(vec![said]).await;
        let problem = send(&get(&server.url("/x"))).await.outcome.unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
    let server = Server::start(vec![Said::json(500, &"é".repeat(1024 * 1024))]).await;
    let reply = send(&get(&server.url("/x"))).await;
    assert!(outcome(&reply).message.as_ref().unwrap().len() < 1_000);
}

#[tokio::test]
async fn silence_and_broken_connections_are_tried_again_with_the_same_key() {
    for (said, code, is_known) in [
        (Said::silence(), "TIMEOUT", false),
        (Said::hang_up(), "NETWORK", false),
        (Said::cut(), "NETWORK", false),
    ] {
        let server = Server::start(vec![said.clone()]).await;
        let client = Client::new(true).unwrap();
        let timeout = Some(Duration::from_millis(if code == "TIMEOUT" { 50 } else { 60_000 }));
        let reply = client.send(&get(&server.url("/x?secret=1")), &call(), timeout, &Mask::default()).await;
        let found = outcome(&reply);
        assert_eq!(
            (found.word, found.code.as_deref()),
            (Some(Word::Retry), Some(code)),
            "{said:?} {found:?}"
        );
        assert_eq!((reply.status, reply.is_known), (None, is_known), "{said:?}");
        assert!(!found.message.as_ref().unwrap().contains("secret"), "{found:?}");
    }
    // No TLS came about, so nothing was sent.
    let server = Server::start(vec![Said::hang_up_at_once()]).await;
    let reply = send(&get(&server.url("/").replace("http:", "https:"))).await;
    assert_eq!((outcome(&reply).code.as_deref(), reply.is_known), (Some("NETWORK"), true), "{reply:?}");
    // Nobody listens there any more: it was surely not carried out.
    let gone = Server::start(vec![]).await.close().await;
    let reply = send(&get(&gone)).await;
    assert_eq!((outcome(&reply).code.as_deref(), reply.is_known), (Some("NETWORK"), true));
}

/// What it means is in its first line and its headers, which came. All at once: some are waited for.
#[tokio::test]
async fn a_refusal_stands_whether_its_body_stalls_drips_or_breaks_off() {
    let mut asked = tokio::task::JoinSet::new();
    for (status, code, word, wait_s) in [
        (404, "NOT_FOUND", Word::Fail, None),
        (422, "VALIDATION", Word::Fail, None),
        (302, "REDIRECT", Word::Fail, None),
        (429, "RATE_LIMIT", Word::Retry, Some(7)),
        (503, "SERVER_ERROR", Word::Retry, Some(7)),
    ] {
        for said in Said::half_said(status, "Retry-After: 7") {
            asked.spawn(async move {
                let server = Server::start(vec![said.clone()]).await;
                let reply = send(&get(&server.url("/x"))).await;
                assert_eq!((reply.status, reply.is_known), (Some(status), true), "{said:?} {reply:?}");
                let found = outcome(&reply);
                assert_eq!((found.word, found.code.as_deref()), (Some(word), Some(code)), "{said:?}");
                assert_eq!(found.retry_after.map(|wait| wait.as_secs()), wait_s, "{said:?} {found:?}");
                assert_eq!(found.permanent, word == Word::Fail, "{said:?} {found:?}");
                let message = found.message.as_ref().unwrap();
                assert!(message.contains(&format!("answered {status}: why")), "{said:?} {message}");
            });
        }
    }
    asked.join_all().await;
    // A good answer that breaks off says nothing: it is asked for again with the same key.
    for said in Said::half_said(200, "Retry-After: 7").into_iter().take(3) {
        let server = Server::start(vec![said.clone()]).await;
        let timeout = Some(Duration::from_millis(50));
        let client = Client::new(true).unwrap();
        let reply = client.send(&get(&server.url("/x")), &call(), timeout, &Mask::default()).await;
        let found = outcome(&reply);
        assert_eq!((found.word, reply.is_known), (Some(Word::Retry), false), "{said:?} {found:?}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let inside = Server::start(vec![Said::json(200, "{}")]).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("Location: {}", inside.url("/latest/meta-data"));
        let server = Server::start(vec![Said::json(status, "").with(&location)]).await;
        let reply = send(&get(&server.url("/x"))).await;
        let found = outcome(&reply);
        assert_eq!((found.code.as_deref(), found.permanent), (Some("REDIRECT"), true), "{status}");
    }
    assert_eq!(inside.count(), 0, "nobody was sent there");
}

#[tokio::test]
async fn private_addresses_are_refused_however_they_are_written() {
    let server = Server::start(vec![]).await;
    let guarded = |url: &str| Http { allow_private: false, ..get(url) };
    for url in [
        server.url("/").as_str(),
        "http://93.184.215.14/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://0/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:a9fe:a9fe]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[fd00:ec2::254]/",
        "https://10.0.0.1:8443/",
        "https://224.0.0.1/",
    ] {
        let found = send(&guarded(url)).await;
        let found = outcome(&found);
        assert_eq!(
            (found.code.as_deref(), found.permanent),
            (Some("ADDRESS_REFUSED"), true),
            "{url}: {found:?}"
        );
    }
    for (url, words) in [
        ("https://me:hunter2@shop.example/", "credentials"),
        ("file:///etc/passwd", "web server"),
        ("not a url", "no URL"),
    ] {
        let reply = send(&guarded(url)).await;
        let found = outcome(&reply);
        assert_eq!((found.code.as_deref(), found.permanent), (Some("BAD_REQUEST"), true), "{url}");
        assert!(found.message.as_ref().unwrap().contains(words), "{found:?}");
    }
    assert_eq!(server.count(), 0);
}

/// A name that turns to an address of this machine is judged by the very answer that is connected to.
#[tokio::test]
async fn names_are_resolved_once_and_the_judged_address_is_the_called_one() {
    let server = Server::start(vec![Said::json(200, "{}"), Said::json(200, "{}")]).await;
    let url = format!("https://shop.example:{}/", server.port());
    for private in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1"] {
        let fake = Fake::new(&[&[private], &["93.184.215.14"]]);
        let request = Http { allow_private: false, ..get(&url) };
        let reply = fake.client(false).send(&request, &call(), None, &Mask::default()).await;
        assert_eq!(outcome(&reply).code.as_deref(), Some("ADDRESS_REFUSED"), "{private}");
        assert!(outcome(&reply).message.as_ref().unwrap().contains("allow_private"), "{reply:?}");
        assert_eq!(fake.asked.load(Ordering::Relaxed), 1, "asked once");
    }
    assert_eq!(server.count(), 0, "no connection was made");
    // The second answer, which a rebinding server would give, is never asked for.
    let fake = Fake::new(&[&["127.0.0.1"], &["10.0.0.1"]]);
    let plain = get(&format!("http://shop.example:{}/", server.port()));
    let reply = fake.client(true).send(&plain, &call(), None, &Mask::default()).await;
    assert_eq!((reply.status, fake.asked.load(Ordering::Relaxed)), (Some(200), 1));
    assert_eq!(server.heard().await.header("host"), Some(format!("shop.example:{}", server.port())));
    let nowhere = Fake::new(&[&[]]).client(true).send(&plain, &call(), None, &Mask::default()).await;
    assert_eq!(outcome(&nowhere).code.as_deref(), Some("NETWORK"));
}

#[tokio::test]
async fn secrets_do_not_come_back_in_answers_and_errors() {
    let mask = Mask::new(["s3cret-t0ken"]);
    for said in [
        Said::json(400, "bad token s3cret-t0ken"),
        Said::json(
            200,
            r#"{"outcome":"fail","message":"s3cret-t0ken is wrong","details":{"t":"s3cret-t0ken"}}"#,
        ),
        Said::json(200, r#"{"you sent":"s3cret-t0ken"}"#),
    ] {
        let server = Server::start(vec![said]).await;
        let client = Client::new(true).unwrap();
        let reply = client.send(&get(&server.url("/x")), &call(), None, &mask).await;
        let shown = format!("{reply:?}");
        assert!(shown.contains("***") && !shown.contains("s3cret"), "{shown}");
    }
}
