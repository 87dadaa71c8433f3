//! What workers do over HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use waypost_kernel::Span;

use crate::support::{On, Server};

// proves X5 and D8
#[tokio::test]
async fn a_run_is_claimed_begun_reported_on_and_finished() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        server.start_with(json!({ "input": { "branch": "main" } })).await;
        let (id, token) = server.claim("w1").await;
        let path = |verb: &str| format!("/v1/runs/{id}/{verb}");
        let beat = server.post(&path("heartbeat"), json!({ "lease_token": token })).await.expect(200);
        assert_eq!((&beat["cancel_requested"], &beat["intent"]), (&json!(false), &Value::Null));
        let event =
            json!({ "lease_token": token, "message": "building", "payload": { "n": 1 }, "key": "e1" });
        let first = server.post(&path("events"), event.clone()).await.expect(201);
        let again = server.post(&path("events"), event).await.expect(201);
        assert_eq!((&first["event_id"], &again["repeated"]), (&again["event_id"], &json!(true)), "{on:?}");
        let items = json!({ "lease_token": token, "items": [{ "kind": "step", "name": "build", "status": "running", "progress": 50 }] });
        let items = server.post(&path("items"), items).await.expect(200);
        assert_eq!(items["items"][0]["progress"], 50);
        assert_eq!(server.get(&path("items")).await.expect(200)["items"][0]["key"], "build");
        let finish = json!({ "lease_token": token, "status": "success", "metadata": { "image": "x" } });
        let done = server.post(&path("finish"), finish.clone()).await.expect(200);
        assert_eq!((&done["status"], &done["metadata"]["image"]), (&json!("success"), &json!("x")));
        assert_eq!(server.post(&path("finish"), finish).await.expect(200), done, "{on:?}: sent again");
        let other = json!({ "lease_token": token, "status": "failed" });
        let problem = server.post(&path("finish"), other).await;
        assert_eq!(problem.status, 409, "{}", problem.text);
        assert_eq!(server.get(&path("events")).await.expect(200)["events"][0]["seq"], 1);
        let verified = server.store.verify(std::sync::Arc::new(|_, _| {})).await.unwrap();
        assert_eq!(verified.differences, Vec::<String>::new());
    }
}

// proves X5: what is refused of one leaves its neighbours alone
#[tokio::test]
async fn many_runs_are_told_of_in_one_request() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let mut held = Vec::new();
        for _ in 0..3 {
            server.start().await;
            held.push(server.claim("w1").await);
        }
        let entries = |more: Value| -> Vec<Value> {
            let entry = |(id, token): &(String, String)| {
                let mut entry = more.clone();
                entry["run_id"] = id.clone().into();
                entry["lease_token"] = token.clone().into();
                entry
            };
            let mut entries: Vec<Value> = held.iter().map(entry).collect();
            // Not the second one's any more.
            entries[1]["lease_token"] = "0".repeat(32).into();
            entries
        };
        let refused = |answers: &Value| {
            assert_eq!(answers[1]["error"]["code"], "LEASE_LOST", "{on:?}: {answers}");
            assert!(
                answers[0].get("error").is_none() && answers[2].get("error").is_none(),
                "{on:?}: {answers}"
            );
        };
        let beats = server.post("/v1/heartbeats", json!({ "leases": entries(json!({})) })).await.expect(200);
        refused(&beats["leases"]);
        assert_eq!(beats["leases"][2]["cancel_requested"], false);
        let events = entries(json!({ "message": "building", "key": "e1" }));
        let noted = server.post("/v1/events", json!({ "events": events })).await.expect(200);
        refused(&noted["events"]);
        let again = server.post("/v1/events", json!({ "events": events })).await.expect(200);
        assert_eq!(
            (&again["events"][0]["repeated"], &again["events"][2]["seq"]),
            (&json!(true), &noted["events"][2]["seq"])
        );
        let finishes = json!({ "finishes": entries(json!({ "status": "success" })) });
        let ended = server.post("/v1/finishes", finishes.clone()).await.expect(200);
        refused(&ended["runs"]);
        assert_eq!(ended["runs"][2]["run"]["status"], "success");
        assert_eq!(server.post("/v1/finishes", finishes).await.expect(200), ended, "{on:?}: sent again");
        let nonsense = json!({ "leases": [{ "run_id": "run-none", "lease_token": held[1].1 }, { "run_id": held[1].0, "lease_token": held[1].1 }] });
        let beats = server.post("/v1/heartbeats", nonsense).await.expect(200);
        assert_eq!(beats["leases"][0]["error"]["code"], "NOT_FOUND");
        assert!(beats["leases"][1]["expires_at"].is_string());
    }
}

// proves D4
#[tokio::test]
async fn a_claim_may_begin_the_work() {
    let server = Server::new().await;
    let first = server.start().await["run_id"].clone();
    let claimed = server.post("/v1/claims", json!({ "worker": "w", "start": true })).await.expect(200);
    assert_eq!(
        (&claimed["claims"][0]["run"]["run_id"], &claimed["claims"][0]["run"]["status"]),
        (&first, &json!("running"))
    );
    let second = server.start().await["run_id"].as_str().unwrap().to_owned();
    let claim = json!({ "worker": "w", "start": true });
    let claimed = server.post(&format!("/v1/runs/{second}/claim"), claim).await.expect(200);
    assert_eq!(claimed["run"]["status"], "running");
}

// proves X5
#[tokio::test]
async fn who_lost_its_lease_is_refused_every_write() {
    let server = Server::new().await;
    server.start_with(json!({ "lifecycle": "job" })).await;
    let (id, old) = server.claim("w1").await;
    server.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
    let (again, new) = server.claim("w2").await;
    assert_eq!(again, id);
    for (verb, more) in [
        ("heartbeat", json!({})),
        ("events", json!({ "message": "late" })),
        ("items", json!({ "items": [{ "kind": "step", "name": "s", "status": "running" }] })),
        ("finish", json!({ "status": "completed" })),
        ("release", json!({})),
        ("require-cleanup", json!({ "required": true })),
    ] {
        let mut body = more.clone();
        body["lease_token"] = old.clone().into();
        let path = format!("/v1/runs/{id}/{verb}");
        server.post(&path, body.clone()).await.refused(409, "LEASE_LOST");
        body["lease_token"] = "nonsense".into();
        server.post(&path, body).await.refused(422, "INVALID_INPUT");
    }
    server.post(&format!("/v1/runs/{id}/heartbeat"), json!({ "lease_token": new })).await.expect(200);
    let page = server.get("/metrics").await.text;
    assert!(page.contains("waypost_leases_lost_total 6"), "{page}");
}

// proves X8
#[tokio::test]
async fn a_cancel_reaches_the_holder_with_its_next_heartbeat() {
    let server = Server::new().await;
    server.start().await;
    let (id, token) = server.claim("w1").await;
    let path = |verb: &str| format!("/v1/runs/{id}/{verb}");
    server.post(&path("events"), json!({ "lease_token": token, "message": "begun" })).await.expect(201);
    let asked = server.post(&path("cancel"), json!({ "reason": "enough" })).await.expect(200);
    assert_eq!((&asked["status"], &asked["intent"]), (&json!("running"), &json!("cancel")));
    let beat = server.post(&path("heartbeat"), json!({ "lease_token": token })).await.expect(200);
    assert_eq!(beat["cancel_requested"], true);
    let late = json!({ "lease_token": token, "status": "success" });
    server.post(&path("finish"), late).await.refused(409, "CANCEL_REQUESTED");
    let done = json!({ "lease_token": token, "status": "cancelled" });
    server.post(&path("finish"), done).await.expect(200);
}

#[tokio::test]
async fn a_claim_waits_for_work_and_gets_it_at_once() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let none = server.post("/v1/claims", json!({ "worker": "w" })).await.expect(200);
        assert_eq!(none["claims"], json!([]));
        let wait = json!({ "worker": "w", "wait_ms": 30_000 });
        let begun = Instant::now();
        let (claimed, started) = tokio::join!(server.post("/v1/claims", wait), server.start());
        assert_eq!(claimed.expect(200)["claims"][0]["run"]["run_id"], started["run_id"]);
        assert!(begun.elapsed() < Duration::from_secs(15), "{on:?}: not after the whole wait");
    }
}

/// A client that hangs up while it waits leaves nothing held.
#[tokio::test]
async fn who_hangs_up_holds_nothing() {
    let server = Server::new().await;
    let body = r#"{"worker":"gone","wait_ms":60000}"#;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    // It is waiting once the server has seen the worker.
    let seen = async { while server.get("/v1/workers").await.expect(200)["workers"] == json!([]) {} };
    timeout(Duration::from_secs(20), seen).await.unwrap();
    drop(socket);
    let gone = async { while !server.get("/metrics").await.text.contains("waypost_http_connections 1\n") {} };
    timeout(Duration::from_secs(20), gone).await.expect("the server noticed");
    let id = server.start().await["run_id"].clone();
    let (claimed, _) = server.claim("here").await;
    assert_eq!(json!(claimed), id);
}

#[tokio::test]
async fn events_can_be_waited_for() {
    let server = Server::new().await;
    let id = server.start().await["run_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/runs/{id}/events?after=1&wait_ms=30000");
    let cancel = format!("/v1/runs/{id}/cancel");
    let (events, _) = tokio::join!(server.get(&path), server.post(&cancel, json!({})));
    assert_eq!(events.expect(200)["events"][0]["seq"], 2);
}

// proves U2
#[tokio::test]
async fn workers_are_those_who_hold_or_asked_lately() {
    let server = Server::new().await;
    server.start().await;
    server.claim("busy").await;
    server.post("/v1/claims", json!({ "worker": "idle", "limit": 3 })).await.expect(200);
    let workers = server.get("/v1/workers").await.expect(200);
    let of =
        |name: &str| workers["workers"].as_array().unwrap().iter().find(|it| it["name"] == name).cloned();
    assert_eq!((&of("busy").unwrap()["busy"], &of("busy").unwrap()["slots"]), (&json!(1), &json!(2)));
    assert_eq!((&of("idle").unwrap()["busy"], &of("idle").unwrap()["slots"]), (&json!(0), &json!(3)));
    assert_eq!(of("idle").unwrap()["queues"], json!(["default"]));
    let stats = server.get("/v1/stats").await.expect(200);
    assert_eq!(stats["worker_utilisation"], json!(0.2), "1 held of 5 slots: {stats}");
}
