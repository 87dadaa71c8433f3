//! Runs: started, looked at, asked things of.

use std::path::Path;

use serde_json::json;
use waypost_worker::playbook::Playbook;

use crate::support::{On, Server, send, with_body};

// proves X7
#[tokio::test]
async fn the_same_key_and_body_is_the_same_run_and_says_so() {
    let server = Server::new().await;
    let body = json!({ "lifecycle": "deploy", "input": { "a": 1 } });
    let ask = |key: &'static str, body| {
        send(with_body(server.request("POST", "/v1/runs").header("idempotency-key", key), body))
    };
    let first = ask("k1", &body).await;
    assert_eq!(first.header("idempotency-replayed"), "");
    let first = first.expect(201);
    let again = ask("\"k1\"", &body).await;
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.expect(200), first);
    let other = json!({ "lifecycle": "deploy", "input": { "a": 2 } });
    let problem = ask("k1", &other).await.refused(422, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(problem["run_id"], first["run_id"]);
    let [same, another] =
        ["k1", "k2"].map(|key| json!({ "lifecycle": "deploy", "input": { "a": 1 }, "idempotency_key": key }));
    let problem = ask("k1", &another).await.refused(422, "INVALID_INPUT");
    assert!(problem["detail"].as_str().unwrap().contains("idempotency_key"), "{problem}");
    assert_eq!(ask("k1", &same).await.expect(200), first);
}

// proves X7
#[tokio::test]
async fn a_trace_is_no_part_of_what_a_key_stands_for() {
    let server = Server::new().await;
    let ask = |span: &str| {
        let trace = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span}-01");
        let request =
            server.request("POST", "/v1/runs").header("idempotency-key", "k").header("traceparent", trace);
        send(with_body(request, &json!({ "lifecycle": "deploy" })))
    };
    let first = ask("00f067aa0ba902b7").await;
    assert_eq!(first.header("traceparent"), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let first = first.expect(201);
    assert_eq!(first["details"]["traceparent"], "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    assert_eq!(ask("00f067aa0ba902b8").await.expect(200)["run_id"], first["run_id"]);
}

#[tokio::test]
async fn a_batch_answers_each_by_itself() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let runs = json!({ "runs": [
            { "lifecycle": "deploy", "idempotency_key": "k" },
            { "lifecycle": "nothing" },
            { "lifecycle": "deploy", "idempotency_key": "k" },
            { "lifecycle": "deploy", "status": "running" },
        ] });
        let answer = server.post("/v1/runs/batch", runs).await.expect(200);
        let runs = answer["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 4);
        assert_eq!(runs[0]["replayed"], false, "{on:?}");
        assert_eq!(runs[1]["error"]["code"], "INVALID_INPUT");
        assert_eq!((&runs[2]["replayed"], &runs[2]["run_id"]), (&json!(true), &runs[0]["run_id"]));
        assert_eq!(runs[3]["error"]["status"], 422, "{on:?} {}", runs[3]);
    }
}

#[tokio::test]
async fn lists_lead_from_page_to_page() {
    let server = Server::new().await;
    for number in 0..5 {
        server.start_with(json!({ "queue": if number == 2 { "other" } else { "default" } })).await;
    }
    let mut path = "/v1/runs?queue=default&status=queued&limit=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = server.get(&path).await;
        let link = page.header("link").to_owned();
        let page = page.expect(200);
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].clone()));
        if page["next_cursor"].is_null() {
            assert_eq!(link, "");
            break;
        }
        path = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap().to_owned();
    }
    assert_eq!(seen.len(), 4);
    server.get("/v1/runs?cursor=nonsense").await.refused(422, "INVALID_INPUT");
    let none = server.get("/v1/runs?q=%27%20OR%201%3D1%20--").await.expect(200);
    assert_eq!(none["runs"], json!([]));
}

#[tokio::test]
async fn an_unchanged_run_is_not_sent_again() {
    let server = Server::new().await;
    let path = format!("/v1/runs/{}", server.start().await["run_id"].as_str().unwrap());
    let first = server.get(&path).await;
    let tag = first.header("etag").to_owned();
    assert!(tag.starts_with("\"1-"), "the run, and what it waits for: {tag}");
    let again = send(server.request("GET", &path).header("if-none-match", &tag)).await;
    assert_eq!((again.status, again.text.as_str(), again.header("etag")), (304, "", tag.as_str()));
    let any = send(server.request("GET", &path).header("if-none-match", "*")).await;
    assert_eq!((any.status, any.header("etag")), (304, tag.as_str()), "it is there, whatever it is like");
    server.post(&format!("{path}/cancel"), json!({})).await.expect(200);
    let moved = send(server.request("GET", &path).header("if-none-match", &tag)).await;
    assert_eq!(moved.expect(200)["status"], "cancelled");
}

#[tokio::test]
async fn a_command_for_what_was_seen_does_not_hit_what_is() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let run = server.start().await;
        let path = format!("/v1/runs/{}/cancel", run["run_id"].as_str().unwrap());
        server.claim("w").await;
        let ask = |tag: &'static str| {
            send(with_body(server.request("POST", &path).header("if-match", tag), &json!({})))
        };
        let problem = ask("\"1\"").await.refused(412, "PRECONDITION_FAILED");
        assert_eq!(problem["seq"], 2, "{on:?}");
        for tag in ["1", "\"02\"", "\"+2\"", "W/\"2\""] {
            ask(tag).await.refused(400, "INVALID_QUERY");
        }
        assert_eq!(ask("\"2\"").await.expect(200)["status"], "cancelled");
    }
}

// proves X3
#[tokio::test]
async fn an_illegal_command_is_answered_with_what_is_allowed() {
    let server = Server::new().await;
    let id = server.start().await["run_id"].as_str().unwrap().to_owned();
    let problem = server.post(&format!("/v1/runs/{id}/promote"), json!({})).await;
    let problem = problem.refused(409, "INVALID_TRANSITION");
    assert_eq!((&problem["current"], &problem["requested"]), (&json!("queued"), &json!("promote")));
    assert_eq!(problem["allowed"], json!(["cancel"]));
    let reason = json!({ "reason": "wrong branch", "by": "ann" });
    let cancelled = server.post(&format!("/v1/runs/{id}/cancel"), reason).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    let events = server.get(&format!("/v1/runs/{id}/events")).await.expect(200);
    let last = events["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["by"], &last["actor"]), (&json!("ann"), &json!("operator")));
}

#[tokio::test]
async fn what_is_not_there_is_not_found_and_tenants_see_their_own() {
    let server = Server::new().await;
    let id = server.start().await["run_id"].as_str().unwrap().to_owned();
    for path in ["/v1/runs/run-nothing", "/v1/runs/..%2F..%2Fetc", "/v1/runs/%27%3B--"] {
        server.get(path).await.refused(404, "NOT_FOUND");
    }
    for path in ["", "/events", "/items"] {
        let request = server.request("GET", &format!("/v1/runs/{id}{path}"));
        send(request.header("waypost-tenant", "other")).await.refused(404, "NOT_FOUND");
    }
    let request = server.request("POST", &format!("/v1/runs/{id}/cancel")).header("waypost-tenant", "other");
    send(with_body(request, &json!({}))).await.refused(404, "NOT_FOUND");
    assert_eq!(server.get(&format!("/v1/runs/{}", &id[..20])).await.expect(200)["run_id"], json!(id));
}

#[tokio::test]
async fn queues_are_paused_resumed_and_limited() {
    let server = Server::new().await;
    server.start().await;
    let paused = server.post("/v1/queues/default/pause", json!({ "reason": "upgrade", "by": "ann" })).await;
    let paused = paused.expect(200);
    assert_eq!((&paused["paused"]["by"], &paused["paused"]["reason"]), (&json!("ann"), &json!("upgrade")));
    let none = server.post("/v1/claims", json!({ "worker": "w" })).await.expect(200);
    assert_eq!(none["claims"], json!([]));
    server.post("/v1/queues/default/resume", json!({})).await.expect(200);
    server.put("/v1/queues/default/limit", json!({ "at_most": 0 })).await.expect(204);
    let none = server.post("/v1/claims", json!({ "worker": "w" })).await.expect(200);
    assert_eq!(none["claims"], json!([]));
    server.put("/v1/queues/default/limit", json!({ "at_most": null })).await.expect(204);
    server.claim("w").await;
    server.put("/v1/keys/k/limit", json!({ "at_most": -1 })).await.refused(422, "INVALID_INPUT");
    let queues = server.get("/v1/queues").await.expect(200);
    assert_eq!(queues["queues"][0]["held"], 1);
}

#[tokio::test]
async fn a_users_own_lifecycle_comes_and_works_over_http() {
    let server = Server::new().await;
    let known = server.get("/v1/lifecycles/deploy?source=true").await.expect(200);
    let source = known["source"].as_str().unwrap();
    let mine = source
        .replace("name = \"deploy\"", "name = \"mine\"")
        .replace("[\"queued\",\"cancel\"", "[\"queued\",\"abandon\"");
    let added = server.post("/v1/lifecycles", json!({ "source": mine })).await.expect(201);
    assert_eq!(added["name"], "mine");
    let run = server.post("/v1/runs", json!({ "lifecycle": "mine" })).await.expect(201);
    assert_eq!(run["allowed"], json!(["abandon"]));
    let path = format!("/v1/runs/{}/abandon", run["run_id"].as_str().unwrap());
    assert_eq!(server.post(&path, json!({})).await.expect(200)["phase"], "settled");
    server.post("/v1/lifecycles", json!({ "source": "name = 1" })).await.refused(422, "INVALID_INPUT");
    server.get("/v1/lifecycles/unheard-of").await.refused(404, "NOT_FOUND");
}

// proves J2 and J3
#[tokio::test]
async fn a_run_that_waits_goes_on_with_decisions_or_by_force_alone() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let run = json!({ "lifecycle": "job", "items": [{ "kind": "step", "key": "scan" }] });
        let id = server.post("/v1/runs", run).await.expect(201)["run_id"].as_str().unwrap().to_owned();
        let claim = json!({ "worker": "w1", "lifecycles": ["job"] });
        let claimed = server.post("/v1/claims", claim).await.expect(200);
        let token = claimed["claims"][0]["lease"]["token"].as_str().unwrap();
        let blockers = json!({ "h1": { "choices": ["skip"] }, "h2": {} });
        let details = json!({ "awaiting_blocker_resolution": true, "current_blockers": blockers });
        let finish =
            json!({ "lease_token": token, "status": "paused", "reason": "blocked", "details": details });
        server.post(&format!("/v1/runs/{id}/finish"), finish).await.expect(200);
        let resume = async |body| server.post(&format!("/v1/runs/{id}/resume"), body).await;
        resume(json!({ "resolved": true })).await.refused(422, "INVALID_INPUT");
        resume(json!({})).await.refused(409, "INVALID_TRANSITION");
        let kept = resume(json!({ "resolutions": { "h1": "skip" }, "by": "ann" })).await.expect(200);
        assert_eq!(
            (&kept["status"], &kept["details"]["maintenance_blocker_resolutions"]["h1"]["by"]),
            (&json!("paused"), &json!("ann")),
            "{on:?}"
        );
        let gone_on = resume(json!({ "resolutions": { "h2": "wait" } })).await.expect(200);
        assert_eq!(gone_on["status"], json!("pending"), "{on:?}");
    }
}

// proves D11
#[tokio::test]
async fn artifacts_of_an_unknown_type_are_refused_in_a_request() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let run = |kind: &str| json!({ "lifecycle": "deploy", "metadata": { "artifacts": [{ "type": kind, "url": "u" }] } });
        let refused = server.post("/v1/runs", run("bogus")).await.refused(422, "INVALID_INPUT");
        let words = refused.to_string();
        assert!(
            words.contains("metadata.artifacts")
                && words.contains("allowed: image, sbom, logs, evidence, manifest"),
            "{words}"
        );
        let made = server.post("/v1/runs", run("logs")).await.expect(201);
        assert_eq!(made["artifacts"][0]["type"], "logs", "{on:?}");
    }
}

// proves U1
#[tokio::test]
async fn a_run_by_name_is_of_what_was_offered_before_it_was_asked_for() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let body = json!({ "lifecycle": "deploy", "playbook": "ship", "unknown_playbook": true });
        let start = async || server.post("/v1/runs", body.clone()).await.expect(201)["playbook"].clone();
        assert_eq!(start().await, "ship", "{on:?}: nobody has it yet");
        for name in ["one", "two"] {
            let text = format!(
                "name = \"ship\"\nlifecycle = \"deploy\"\n[[step]]\nname = \"{name}\"\nexec = [\"true\"]\n"
            );
            let playbook =
                Playbook::of_text(&text, Path::new("ship.toml"), &server.store.lifecycles().await.unwrap());
            let offered = playbook.unwrap().offered("*", "w1");
            let pin = format!("ship@{}", offered.hash);
            server.store.offer_playbooks(vec![offered]).await.unwrap();
            assert_eq!(start().await, json!(pin), "{on:?}: {name}");
            let many = json!({ "runs": [body, body] });
            let made = server.post("/v1/runs/batch", many).await.expect(200);
            assert!(made["runs"][1]["run_id"].is_string(), "{made}");
        }
    }
}

const RELEASE: &str = r#"
name = "release"
lifecycle = "job"

[[step]]
name = "build"
exec = ["true"]

[[step]]
name = "ship {{ item }}"
id = "ship"
for_each = "steps.build.output"
exec = ["true"]
"#;

async fn with_release(on: On) -> Server {
    let (store, lives) = crate::support::open(on).await;
    let catalog = waypost_kernel::Catalog::shipped().unwrap();
    let playbook = Playbook::of_text(RELEASE, Path::new("release.toml"), &catalog).unwrap();
    store.offer_playbooks(vec![playbook.offered("*", "serve")]).await.unwrap();
    Server::with(store, lives, waypost_server::Options::default()).await
}

// proves X2, U3: the steps of a playbook's run are the playbook's
#[tokio::test]
async fn steps_that_a_playbook_does_not_have_are_refused() {
    let server = with_release(On::Sqlite).await;
    let start = async |more: serde_json::Value| {
        let mut body = json!({ "playbook": "release" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/runs", body).await
    };
    let old = start(json!({})).await.expect(201);
    let part =
        json!({ "kind": "step", "key": "ship[1]", "details": { "of": "ship", "number": 1, "item": "x" } });
    for (more, words) in [
        (json!({ "items": [{ "kind": "step", "key": "nosuch" }] }), "is no step of the playbook"),
        (json!({ "items": [{ "kind": "task", "key": "build" }] }), "is no step of the playbook"),
        (
            json!({ "items": [{ "kind": "step", "key": "build", "max_retries": 7 }] }),
            "not as the playbook has it",
        ),
        (json!({ "items": [part] }), "is no step of the playbook"),
        (
            json!({ "items": [{ "kind": "step", "key": "build[1]" }], "retry_of": old["run_id"] }),
            "is no step of the playbook",
        ),
        (
            json!({ "items": [{ "kind": "step", "key": "ship[1]", "max_retries": 0 }], "retry_of": old["run_id"] }),
            "is no step of",
        ),
    ] {
        let problem = start(more.clone()).await.refused(422, "INVALID_INPUT");
        assert_eq!(problem["errors"][0]["pointer"], "/items", "{more}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{more}: {problem}");
    }
    let same = json!({ "items": [{ "kind": "step", "key": "build", "max_retries": 0 }] });
    assert_eq!(start(same).await.expect(201)["items"], old["items"]);
    let empty = json!({ "lifecycle": "deploy", "embedded": { "command": [""] } });
    let problem = server.post("/v1/runs", empty).await.refused(422, "INVALID_INPUT");
    assert_eq!(problem["errors"][0]["pointer"], "/embedded", "{problem}");
}

/// What a part of a list is for is known from the run that is repeated, and not from who asks.
#[tokio::test]
async fn a_part_of_a_list_is_for_what_it_was_for() {
    for on in [On::Sqlite, On::Postgres] {
        let server = with_release(on).await;
        let old = server.post("/v1/runs", json!({ "playbook": "release" })).await.expect(201);
        let (id, token) = server.claim("w").await;
        let of =
            |number: u64, item: &str| json!({ "of": "ship", "number": number, "item": item, "hash": item });
        let items = json!({ "lease_token": token, "by": "w", "items": [
            { "kind": "step", "key": "build", "status": "completed", "output": ["x", "y"] },
            { "kind": "step", "key": "ship[1]", "name": "ship x", "status": "completed", "max_retries": 0, "details": of(1, "x") },
            { "kind": "step", "key": "ship[2]", "status": "failed", "max_retries": 0, "details": of(2, "y") },
        ] });
        server.post(&format!("/v1/runs/{id}/items"), items).await.expect(200);
        let end = json!({ "lease_token": token, "status": "failed" });
        server.post(&format!("/v1/runs/{id}/finish"), end).await.expect(200);
        let copy = |key: &str| json!({ "kind": "step", "key": key, "copied": true });
        let forged =
            json!({ "kind": "step", "key": "ship[2]", "max_retries": 0, "details": of(2, "forged") });
        let body = json!({
            "playbook": old["playbook"], "retry_of": id, "items": [copy("build"), copy("ship[1]"), forged],
        });
        let new = server.post("/v1/runs", body).await.expect(201);
        let page =
            server.get(&format!("/v1/runs/{}/items", new["run_id"].as_str().unwrap())).await.expect(200);
        let ship: Vec<_> =
            page["items"].as_array().unwrap().iter().map(|it| &it["details"]["item"]).collect();
        assert_eq!(ship, [&json!(null), &json!("x"), &json!("y")], "{page}");
        assert_eq!(page["items"][1]["name"], "ship x", "{page}");
    }
}

// proves X7
#[tokio::test]
async fn a_replay_has_a_key_as_every_start_has() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let old = server.start().await["run_id"].as_str().unwrap().to_owned();
        server.post(&format!("/v1/runs/{old}/cancel"), json!({})).await.expect(200);
        let path = format!("/v1/runs/{old}/replay");
        let ask = |body: &serde_json::Value| {
            send(with_body(server.request("POST", &path).header("idempotency-key", "r1"), body))
        };
        let first = ask(&json!({})).await.expect(201);
        let again = ask(&json!({})).await;
        assert_eq!(again.header("idempotency-replayed"), "true", "{on:?}");
        assert_eq!(again.expect(200)["run_id"], first["run_id"]);
        let by_body = server.post(&path, json!({ "idempotency_key": "r1" })).await;
        assert_eq!(by_body.expect(200)["run_id"], first["run_id"], "the body's key is the same");
        ask(&json!({ "idempotency_key": "r2" })).await.refused(422, "INVALID_INPUT");
        ask(&json!({ "input": { "a": 1 } })).await.refused(422, "IDEMPOTENCY_KEY_REUSED");
        assert_eq!(server.get("/v1/runs").await.expect(200)["runs"].as_array().unwrap().len(), 2);
    }
}

// proves X7
#[tokio::test]
async fn the_key_of_a_batch_is_that_of_its_only_run() {
    let server = Server::new().await;
    let ask = |runs: &serde_json::Value| {
        let request = server.request("POST", "/v1/runs/batch").header("idempotency-key", "k");
        send(with_body(request, &json!({ "runs": runs })))
    };
    let one = json!([{ "lifecycle": "deploy" }]);
    let first = ask(&one).await.expect(200);
    let again = ask(&one).await.expect(200);
    assert_eq!(again["runs"][0]["run_id"], first["runs"][0]["run_id"]);
    assert_eq!(again["runs"][0]["replayed"], true);
    let two = json!([{ "lifecycle": "deploy" }, { "lifecycle": "deploy" }]);
    let problem = ask(&two).await.refused(400, "INVALID_QUERY");
    assert!(problem["detail"].as_str().unwrap().contains("Idempotency-Key"), "{problem}");
}

// proves U1
#[tokio::test]
async fn a_dry_run_refuses_what_the_start_refuses() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let known = server.start_with(json!({ "idempotency_key": "k" })).await;
        for body in [
            json!({ "lifecycle": "job", "items": [{ "kind": "step", "key": "a", "copied": true }] }),
            json!({ "lifecycle": "job", "items": [{ "kind": "nothing", "key": "a" }] }),
            json!({ "lifecycle": "job", "items": [{ "kind": "step", "key": "a" }, { "kind": "step", "key": "a" }] }),
            json!({ "lifecycle": "deploy", "idempotency_key": "k", "priority": 3 }),
            json!({ "lifecycle": "deploy", "version": 99 }),
            json!({ "lifecycle": "deploy", "status": "running" }),
        ] {
            let start = server.post("/v1/runs", body.clone()).await;
            let dry = server.post("/v1/runs/dry-run", body.clone()).await;
            assert!(start.status >= 400, "{on:?} {body}");
            assert_eq!((dry.status, &dry.body["code"]), (start.status, &start.body["code"]), "{on:?} {body}");
            assert_eq!(dry.body["detail"], start.body["detail"], "{on:?} {body}");
        }
        let again = json!({ "lifecycle": "deploy", "idempotency_key": "k" });
        let plan = server.post("/v1/runs/dry-run", again).await.expect(200);
        assert_eq!(plan["run_id"], known["run_id"], "what the start would answer");
        assert_eq!(server.get("/v1/runs").await.expect(200)["runs"].as_array().unwrap().len(), 1);
    }
}

// proves U9
#[tokio::test]
async fn a_run_can_be_claimed_with_its_beginning() {
    let server = Server::new().await;
    let body =
        json!({ "run": { "lifecycle": "deploy", "idempotency_key": "k" }, "worker": "w1", "start": true });
    let made = server.post("/v1/runs/claimed", body.clone()).await.expect(201);
    assert_eq!((&made["run"]["status"], &made["replayed"]), (&json!("running"), &json!(false)));
    let none = server.post("/v1/claims", json!({ "worker": "w2" })).await.expect(200);
    assert_eq!(none["claims"], json!([]));
    let id = made["run"]["run_id"].as_str().unwrap();
    let token = json!({ "lease_token": made["lease"]["token"] });
    server.post(&format!("/v1/runs/{id}/heartbeat"), token).await.expect(200);
    let again = server.post("/v1/runs/claimed", body).await.expect(200);
    assert_eq!((&again["run"]["run_id"], &again["lease"]["token"]), (&json!(id), &made["lease"]["token"]));
}

// proves R13
#[tokio::test]
async fn a_bulk_change_that_is_brought_along_says_who_asked_and_through_what() {
    let server = Server::new().await;
    let playbook = json!({ "playbook": { "file": "prices.toml", "text": "name = \"prices\"" } });
    for (lifecycle, origin) in [("rule", json!({ "actor": "ann", "source": "api" })), ("deploy", json!({}))] {
        let new = json!({ "lifecycle": lifecycle, "embedded": playbook, "by": "ann" });
        assert_eq!(server.post("/v1/runs", new).await.expect(201)["metadata"], origin, "{lifecycle}");
    }
}
