//! Events as they are committed: none missed, none twice, none too early.

use std::time::Duration;

use reqwest::{Client, Response};
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use waypost_kernel::request::Level;
use waypost_store::{Claimed, Database, FinishWrite, Held, NewRun, NoteWrite, Repeat};
use waypost_worker::Stage;

use crate::support::{On, Server, client};

const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
struct Sent {
    id: Option<u64>,
    event: String,
    data: Value,
}

/// A client of a stream.
struct Stream {
    response: Response,
    text: String,
}

impl Stream {
    async fn open(client: &Client, url: &str, last: Option<u64>) -> Stream {
        let mut request = client.get(url);
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { response, text: String::new() }
    }

    /// The next event; comments and settings are passed over. Nothing: the stream ended.
    async fn next(&mut self) -> Option<Sent> {
        timeout(SOON, self.sent()).await.expect("something is sent")
    }

    async fn sent(&mut self) -> Option<Sent> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
                if let (Some(event), Some(data)) = (field("event: "), field("data: ")) {
                    let id = field("id: ").map(|id| id.parse().unwrap());
                    return Some(Sent { id, event: event.into(), data: serde_json::from_str(data).unwrap() });
                }
            }
            let chunk = self.response.chunk().await.unwrap_or_default()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn ready(&mut self) -> u64 {
        let first = self.next().await.unwrap();
        assert_eq!((first.event.as_str(), first.id), ("ready", None));
        first.data["position"].as_u64().unwrap()
    }
}

async fn held_run(store: &dyn Database) -> Claimed {
    let new = NewRun { lifecycle: "deploy".into(), ..NewRun::default() };
    let made = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap();
    store.claim_run(made.run.id().into(), "w".into()).await.unwrap()
}

async fn say(store: &dyn Database, claimed: &Claimed, message: &str) {
    let note = NoteWrite {
        held: Held { run_id: claimed.run.id().into(), token: claimed.token },
        by: "w".into(),
        level: Level::Info,
        message: message.into(),
        payload: json!({}),
        repeat: Repeat::Never,
        metadata: Map::new(),
        details: Map::new(),
    };
    store.note(vec![note]).await.unwrap().remove(0).unwrap();
}

async fn end(store: &dyn Database, claimed: &Claimed) {
    let finish = FinishWrite {
        run_id: claimed.run.id().into(),
        token: Some(claimed.token),
        by: "w".into(),
        status: "success".into(),
        ..FinishWrite::default()
    };
    store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
}

// proves D13
#[tokio::test(flavor = "multi_thread")]
async fn events_come_as_they_are_committed_and_go_on_after_a_break() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let client = client();
        let claimed = held_run(&*server.store).await;
        let mut stream = Stream::open(&client, &server.url("/v1/events/stream"), None).await;
        stream.ready().await;
        say(&*server.store, &claimed, "one").await;
        let first = stream.next().await.unwrap();
        assert_eq!(
            (first.event.as_str(), &first.data["message"]),
            ("run.status.changed", &json!("one")),
            "{on:?}"
        );
        assert_eq!(first.id, first.data["position"].as_u64());
        say(&*server.store, &claimed, "two").await;
        let second = stream.next().await.unwrap();
        assert_eq!((second.event.as_str(), &second.data["to"]), ("run.noted", &json!("running")));
        drop(stream);
        say(&*server.store, &claimed, "three").await;
        end(&*server.store, &claimed).await;
        let mut stream = Stream::open(&client, &server.url("/v1/events/stream"), first.id).await;
        stream.ready().await;
        assert_eq!(stream.next().await.unwrap(), second, "{on:?}");
        assert_eq!(stream.next().await.unwrap().data["message"], "three");
        assert_eq!(stream.next().await.unwrap().data["to"], "success");
        let waiting = async {
            server.stage.send_replace(Stage::Draining);
            stream.next().await
        };
        assert_eq!(waiting.await, None, "the stream ends with the server");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_of_what_was_asked_for_and_of_ones_own() {
    let server = Server::new().await;
    let client = client();
    let (one, other) = (held_run(&*server.store).await, held_run(&*server.store).await);
    let path = |query: &str| server.url(&format!("/v1/events/stream?after=0{query}"));
    for claimed in [&one, &other] {
        say(&*server.store, claimed, "begun").await;
        end(&*server.store, claimed).await;
    }
    let ids = |query: String, count: usize| {
        let (client, url) = (client.clone(), path(&query));
        async move {
            let mut stream = Stream::open(&client, &url, None).await;
            stream.ready().await;
            let mut seen = Vec::new();
            for _ in 0..count {
                seen.push(stream.next().await.unwrap());
            }
            seen
        }
    };
    let of_one = ids(format!("&run={}", one.run.id()), 4).await;
    assert!(of_one.iter().all(|sent| sent.data["run_id"] == one.run.id()));
    let seqs: Vec<u64> = of_one.iter().map(|sent| sent.data["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    let moved = ids("&topics=run.status.changed&lifecycle=deploy".into(), 8).await;
    assert!(moved.is_sorted_by(|a, b| a.id < b.id));
    for (query, status, code) in [
        ("&topics=run.nothing", 400, "INVALID_QUERY"),
        ("&run=run-nothing", 404, "NOT_FOUND"),
        ("&last_event_id=x", 400, "INVALID_QUERY"),
    ] {
        server.get(&format!("/v1/events/stream?after=0{query}")).await.refused(status, code);
    }
    let request = server.request("GET", &format!("/v1/events/stream?run={}", one.run.id()));
    crate::support::send(request.header("waypost-tenant", "other")).await.refused(404, "NOT_FOUND");
    let request = server.request("GET", "/v1/events/stream?after=0").header("waypost-tenant", "other");
    let mut foreign = Stream { response: request.send().await.unwrap(), text: String::new() };
    foreign.ready().await;
    let made = NewRun { tenant: "other".into(), lifecycle: "deploy".into(), ..NewRun::default() };
    server.store.enqueue(vec![made]).await.unwrap();
    assert_eq!(foreign.next().await.unwrap().data["tenant"], "other", "and nothing before it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_gone_on_from_is_reset() {
    let server = Server::new().await;
    let client = client();
    let claimed = held_run(&*server.store).await;
    for last in [77_777_777, 88_888_888] {
        let mut stream = Stream::open(&client, &server.url("/v1/events/stream"), Some(last)).await;
        stream.ready().await;
        let reset = stream.next().await.unwrap();
        assert_eq!((reset.event.as_str(), reset.id), ("reset", None), "a reset has no id");
        let position = reset.data["position"].as_u64().unwrap();
        let last = server.store.feed(None, 0).await.unwrap().position;
        assert_eq!(position, last);
        say(&*server.store, &claimed, &format!("after {position}")).await;
        assert!(stream.next().await.unwrap().id.unwrap() > position);
    }
    for last in [i64::MAX as u64 + 2, u64::MAX] {
        let mut stream = Stream::open(&client, &server.url("/v1/events/stream"), Some(last)).await;
        stream.ready().await;
        assert_eq!(stream.next().await.unwrap().event, "reset");
    }
    let bad = server.request("GET", "/v1/events/stream").header("last-event-id", "-1");
    crate::support::send(bad).await.refused(400, "INVALID_QUERY");
}

/// Far more than the ring and the socket hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_late_misses_nothing() {
    const EVENTS: usize = 1_500;
    let server = Server::new().await;
    let claimed = held_run(&*server.store).await;
    let mut stream = Stream::open(&client(), &server.url("/v1/events/stream"), None).await;
    stream.ready().await;
    let words = "x".repeat(1_000);
    for number in 0..EVENTS {
        say(&*server.store, &claimed, &format!("{number} {words}")).await;
    }
    for number in 0..EVENTS {
        let sent = stream.next().await.unwrap();
        assert!(sent.data["message"].as_str().unwrap().starts_with(&format!("{number} ")), "{number}");
    }
}

/// What the server names as a position may be named to it as the id that was seen last.
#[tokio::test(flavor = "multi_thread")]
async fn positions_that_are_told_can_be_gone_on_from() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let client = client();
        let mut first = Stream::open(&client, &server.url("/v1/events/stream"), None).await;
        let before_all = first.ready().await;
        let claimed = held_run(&*server.store).await;
        first.next().await.unwrap();
        let told = server.get("/v1/events/last").await.expect(200)["last_position"].as_u64().unwrap();
        say(&*server.store, &claimed, "one").await;
        for (last, first) in [(before_all, 1), (told, 3)] {
            let mut stream = Stream::open(&client, &server.url("/v1/events/stream"), Some(last)).await;
            stream.ready().await;
            let sent = stream.next().await.unwrap();
            assert_eq!(
                (sent.event.as_str(), &sent.data["seq"]),
                ("run.status.changed", &json!(first)),
                "{on:?}"
            );
        }
    }
}

/// What is too large for the ring that all clients share is read from the store for those who want it.
#[tokio::test(flavor = "multi_thread")]
async fn large_events_come_in_their_place() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let mut stream = Stream::open(&client(), &server.url("/v1/events/stream"), None).await;
        stream.ready().await;
        let new = |bytes: usize| NewRun {
            lifecycle: "deploy".into(),
            metadata: Map::from_iter([("m".to_owned(), json!("x".repeat(bytes)))]),
            ..NewRun::default()
        };
        let sizes = [10, 900_000, 20, 800_000, 700_000, 30];
        for bytes in sizes {
            server.store.enqueue(vec![new(bytes)]).await.unwrap().remove(0).unwrap();
        }
        for bytes in sizes {
            let sent = stream.next().await.unwrap();
            assert_eq!(sent.data["payload"]["metadata"]["m"].as_str().map(str::len), Some(bytes), "{on:?}");
        }
    }
}
