//! Neither bytes nor runs come to whoever may no longer have them, though another server of the same database was told so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};
use waypost_kernel::Span;
use waypost_server::Options;
use waypost_store::{Database, NewRun};

use crate::roles::{ask, lasting, token};
use crate::support::{On, Server, client, open_twice, send, with_body};

const SOON: Duration = Duration::from_secs(60);
/// Longer than anybody is waited for here.
const WAIT_MS: u64 = 60_000;

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_or_follows_with_a_revoked_token_gets_nothing_more() {
    get_nothing_more(None).await;
}

// proves U13
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_or_follows_with_an_expired_token_gets_nothing_more() {
    get_nothing_more(Some(Span::from_seconds(3_600))).await;
}

/// `lasts`: how long the tokens count; those that count for good are revoked.
async fn get_nothing_more(lasts: Option<Span>) {
    let rounds: usize = std::env::var("WAYPOST_REVOKED_ROUNDS").map_or(1, |text| text.parse().unwrap());
    // In full size alone: what it takes beside other tests says nothing.
    let most_ms: Option<u64> = std::env::var("WAYPOST_REVOKED_MS").ok().map(|text| text.parse().unwrap());
    for on in [On::Sqlite, On::Postgres] {
        let (stores, lives) = open_twice(on).await;
        let options = || Options { needs_tokens: true, ..Options::default() };
        let [told, asked] = stores;
        let told = Server::with(told, Box::new(()), options()).await;
        let asked = Server::with(asked, lives, options()).await;
        for is_busy in [false, true] {
            let mut slowest: BTreeMap<&str, Duration> = BTreeMap::new();
            for round in 0..rounds {
                for (kind, took) in ended_after(&told, &asked, lasts, is_busy, round * 50).await {
                    let slowest = slowest.entry(kind).or_default();
                    *slowest = took.max(*slowest);
                }
            }
            let beside = if is_busy { "beside traffic" } else { "while nothing happens" };
            for (kind, took) in slowest {
                println!(
                    "{on:?}, {beside}: {kind}: over at most {} ms after ({rounds} rounds)",
                    took.as_millis()
                );
                assert!(
                    most_ms.is_none_or(|most| took.as_millis() <= most.into()),
                    "{on:?}: {kind}: {took:?}"
                );
            }
        }
    }
}

/// How long each of those who wait and follow at one server still had something after the other one was asked to end their tokens.
/// Each has a token of its own, since a server looks at a token for all who have it. `later`: they end this many requests later, so
/// that it is not always the same moment between two such looks.
async fn ended_after(
    told: &Server,
    asked: &Server,
    lasts: Option<Span>,
    is_busy: bool,
    later: usize,
) -> Vec<(&'static str, Duration)> {
    let admin = token(&*told.store, "admin", "*").await;
    let mut tokens = Vec::new();
    for role in ["viewer", "viewer", "viewer", "worker", "viewer"] {
        tokens.push(lasting(&*told.store, role, "a", lasts).await);
    }
    let run_id = enqueued(&*told.store, "a", "another").await;
    let claims_before = claims_asked(asked, &admin).await;
    // The first answers of all, and this function.
    let begun = Arc::new(Barrier::new(tokens.len() + 1));
    let get = |path: &str| client().get(asked.url(path));
    // Of a run to which nothing happens, or from its beginning, so that there is always something.
    let after = if is_busy { 0 } else { 1_000 };
    let events = format!("/v1/runs/{run_id}/events?after={after}&wait_ms");
    let claim = |wait_ms: u64| {
        with_body(client().post(asked.url("/v1/claims")), &json!({ "worker": "w", "wait_ms": wait_ms }))
    };
    let mut ended: JoinSet<(&str, Instant)> = JoinSet::new();
    ended.spawn(stream_ends(get("/v1/events/stream").bearer_auth(&tokens[0]), begun.clone()));
    let polls = [
        ("events of a run", get(&format!("{events}=1")), get(&format!("{events}={WAIT_MS}"))),
        ("changes", get("/v1/changes?wait_ms=1"), get(&format!("/v1/changes?wait_ms={WAIT_MS}"))),
        ("claims", claim(1), claim(WAIT_MS)),
        ("requests", get("/v1/runs?limit=1"), get("/v1/runs?limit=1")),
    ];
    for ((kind, first, again), token) in polls.into_iter().zip(&tokens[1..]) {
        let (first, again) = (first.bearer_auth(token), again.bearer_auth(token));
        ended.spawn(is_refused(kind, first, again, begun.clone()));
    }
    begun.wait().await;
    let waits = async { while claims_asked(asked, &admin).await < claims_before + 2 {} };
    timeout(SOON, waits).await.expect("it waits for runs");
    let traffic = is_busy.then(|| traffic(told.store.clone()));
    for _ in 0..later {
        ask(asked, &admin, "GET", "/v1/clock", &Value::Null).await.expect(200);
    }
    let ended_at = Instant::now();
    match lasts {
        Some(lasts) => told.store.advance_clock(lasts).await.unwrap(),
        None => {
            for revoked in &tokens {
                let path = format!("/v1/tokens/{}/revoke", revoked.split('_').nth(1).unwrap());
                ask(told, &admin, "POST", &path, &json!({})).await.expect(200);
            }
        }
    }
    let ended = timeout(SOON, ended.join_all()).await.expect("all end");
    if let Some(traffic) = traffic {
        traffic.abort();
    }
    let run_id = enqueued(&*told.store, "a", "default").await;
    let row = told.store.run("a".into(), run_id).await.unwrap();
    assert_eq!(row.status(), "queued", "nobody was given it");
    ended.into_iter().map(|(kind, at)| (kind, at.saturating_duration_since(ended_at))).collect()
}

async fn stream_ends(request: RequestBuilder, begun: Arc<Barrier>) -> (&'static str, Instant) {
    let mut stream = request.send().await.unwrap();
    assert_eq!(stream.status(), 200);
    begun.wait().await;
    while let Ok(Some(_)) = stream.chunk().await {}
    ("a stream", Instant::now())
}

/// Asks again and again, as whoever waits does.
async fn is_refused(
    kind: &'static str,
    first: RequestBuilder,
    again: RequestBuilder,
    begun: Arc<Barrier>,
) -> (&'static str, Instant) {
    assert!([200, 204].contains(&send(first).await.status), "{kind}");
    begun.wait().await;
    loop {
        let answer = send(again.try_clone().unwrap()).await;
        if ![200, 204].contains(&answer.status) {
            answer.refused(401, "UNAUTHENTICATED");
            return (kind, Instant::now());
        }
    }
}

async fn claims_asked(server: &Server, admin: &str) -> u64 {
    let page = ask(server, admin, "GET", "/metrics", &Value::Null).await.text;
    let line = page.lines().find_map(|line| line.strip_prefix("waypost_claim_requests_total "));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

/// Runs of the tokens' tenant and of another one, so that nothing is ever quiet.
fn traffic(store: Arc<dyn Database>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            for tenant in ["a", "b"] {
                enqueued(&*store, tenant, "default").await;
            }
            tokio::task::yield_now().await;
        }
    })
}

async fn enqueued(store: &dyn Database, tenant: &str, queue: &str) -> String {
    let (tenant, queue) = (tenant.to_owned(), queue.to_owned());
    let new = NewRun { tenant, queue, lifecycle: "deploy".into(), ..NewRun::default() };
    store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned()
}
