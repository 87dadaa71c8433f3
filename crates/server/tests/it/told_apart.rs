//! What looks like an earlier request and is another one, and what would be kept otherwise than it was meant: both are refused with the
//! field named.

use serde_json::{Value, json};
use waypost_kernel::Span;

use crate::support::{On, Server, send};

const BUILD: &str = "name = \"build\"\nlifecycle = \"job\"\n\n[inputs.n]\ntype = \"number\"\n\n\
                     [[step]]\nname = \"one\"\nexec = [\"true\"]\n\n[[step]]\nname = \"two\"\nexec = [\"true\"]\n";

#[track_caller]
fn points_at(problem: &Value, pointer: &str, words: &str) {
    let at = problem["errors"][0]["pointer"].as_str().unwrap_or_default();
    assert!(at == pointer && problem.to_string().contains(words), "{pointer}, {words}: {problem}");
}

async fn with_build(on: On) -> Server {
    let server = Server::on(on).await;
    let body = json!({ "by": "w", "playbooks": [{ "name": "build", "text": BUILD }] });
    server.post("/v1/playbooks", body).await.expect(204);
    server
}

// proves X10
#[tokio::test]
async fn a_finish_with_more_metadata_than_a_run_has_is_refused() {
    let server = Server::new().await;
    server.start().await;
    let (id, token) = server.claim("w").await;
    let finish = |bytes: usize| json!({ "lease_token": token, "status": "success", "metadata": { "log": "x".repeat(bytes) } });
    let path = format!("/v1/runs/{id}/finish");
    let problem = server.post(&path, finish(1024 * 1024)).await.refused(422, "INVALID_INPUT");
    points_at(&problem, "/metadata", "is 1048586 bytes long; at most 1048576 are allowed");
    let many = json!({ "finishes": [{ "run_id": id, "lease_token": token, "status": "success", "metadata": { "log": "x".repeat(1024 * 1024) } }] });
    let answers = server.post("/v1/finishes", many).await.expect(200);
    assert!(answers.to_string().contains("is 1048586 bytes long"), "{answers}");
    assert_eq!(
        server.get(&format!("/v1/runs/{id}")).await.expect(200)["status"],
        "claimed",
        "nothing is written"
    );
    server.post(&path, finish(1024)).await.expect(200);
    let other = server.post(&path, finish(1025)).await.refused(409, "INVALID_TRANSITION");
    assert_eq!(other["detail"], "the run ended as success already, with other metadata");
}

// proves U9
#[tokio::test]
async fn a_claimed_run_asked_for_again_has_its_lease() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let ask = |worker: &str| json!({ "run": { "lifecycle": "deploy", "idempotency_key": "k" }, "worker": worker });
        let first = server.post("/v1/runs/claimed", ask("w")).await.expect(201);
        let again = server.post("/v1/runs/claimed", ask("w")).await.expect(200);
        assert!(first["lease"]["token"].is_string());
        assert_eq!((&again["lease"]["token"], &again["replayed"]), (&first["lease"]["token"], &json!(true)));
        assert_eq!(server.post("/v1/runs/claimed", ask("v")).await.expect(200)["lease"], Value::Null);
    }
}

// proves X10
#[tokio::test]
async fn a_relative_that_is_not_there_is_refused_whoever_asks() {
    let server = Server::new().await;
    for field in ["parent_run_id", "retry_of"] {
        let body = json!({ "lifecycle": "deploy", field: "run-none" });
        let problem = server.post("/v1/runs", body).await.refused(422, "INVALID_INPUT");
        points_at(&problem, &format!("/{field}"), "there is no run");
    }
}

// proves C8
#[tokio::test]
async fn a_schedule_of_a_playbook_is_checked_as_a_start_is() {
    for on in [On::Sqlite, On::Postgres] {
        let server = with_build(on).await;
        let apply = async |run: Value, unknown: bool| {
            let body = json!({ "definition": { "cadence": "5m", "run": run }, "unknown_playbook": unknown });
            server.put("/v1/schedules/often", body).await
        };
        let of = |playbook: &str, input: Value| json!({ "lifecycle": "job", "playbook": playbook, "input": input });
        let problem = apply(of("build", json!({ "n": "x" })), false).await.refused(422, "INVALID_INPUT");
        points_at(&problem, "/definition/run/input/n", "number");
        let problem = apply(of("biuld", json!({ "n": 1 })), false).await.refused(422, "INVALID_INPUT");
        points_at(&problem, "/definition/run/playbook", "unknown_playbook");
        let other = json!({ "lifecycle": "deploy", "playbook": "build", "input": { "n": 1 } });
        let problem = apply(other, false).await.refused(422, "INVALID_INPUT");
        points_at(&problem, "/definition/run/lifecycle", "job");
        assert_eq!(server.get("/v1/schedules").await.expect(200)["schedules"], json!([]), "nothing is kept");
        apply(of("biuld", json!({ "n": 1 })), true).await.expect(200);
        apply(of("build", json!({ "n": 1 })), false).await.expect(200);
    }
}

#[tokio::test]
async fn a_trigger_says_if_nobody_fires() {
    let server = Server::new().await;
    let body = json!({ "definition": { "cadence": "5m", "exec": ["true"] } });
    server.put("/v1/schedules/often", body).await.expect(200);
    let added = server.post("/v1/schedules/often/trigger", json!({})).await.expect(200);
    assert_eq!(added["added"], 1);
    assert!(added["hint"].as_str().unwrap().contains("nobody fires this schedule"), "{added}");
}

// proves X2
#[tokio::test]
async fn a_playbook_is_offered_by_its_own_name() {
    let server = Server::new().await;
    let body = json!({ "by": "w", "playbooks": [{ "name": "other", "text": BUILD }] });
    let problem = server.post("/v1/playbooks", body).await.refused(422, "INVALID_INPUT");
    points_at(&problem, "/playbooks/0/name", "\\\"build\\\"");
    assert_eq!(server.get("/v1/playbooks").await.expect(200)["playbooks"], json!([]));
}

// proves X7
#[tokio::test]
async fn a_replays_key_stands_for_its_body() {
    for on in [On::Sqlite, On::Postgres] {
        let server = with_build(on).await;
        let start = json!({ "playbook": "build", "input": { "n": 1 } });
        let old = server.post("/v1/runs", start).await.expect(201)["run_id"].as_str().unwrap().to_owned();
        server.post(&format!("/v1/runs/{old}/cancel"), json!({})).await.expect(200);
        let replay = async |body: Value| {
            let request = server.request("POST", &format!("/v1/runs/{old}/replay"));
            let request = request.header("idempotency-key", "k").header("content-type", "application/json");
            send(request.body(body.to_string())).await
        };
        let first = replay(json!({})).await.expect(201)["run_id"].clone();
        assert_eq!(replay(json!({})).await.expect(200)["run_id"], first);
        // It would come to the same run.
        replay(json!({ "input": { "n": 1 } })).await.refused(422, "IDEMPOTENCY_KEY_REUSED");
    }
}

// proves X10
#[tokio::test]
async fn numbers_and_names_that_would_be_lost_are_refused() {
    let server = Server::new().await;
    for (body, pointer) in [
        (r#"{"lifecycle": "deploy", "input": {"b": 1, "b": 2}}"#, "/input/b"),
        (r#"{"lifecycle": "deploy", "lifecycle": "job"}"#, "/lifecycle"),
        (r#"{"lifecycle": "deploy", "input": {"b": [123456789012345678901234567890]}}"#, "/input/b/0"),
    ] {
        let request = server.request("POST", "/v1/runs").header("content-type", "application/json");
        let problem = send(request.body(body)).await.refused(400, "INVALID_JSON");
        points_at(&problem, pointer, "");
    }
}

#[tokio::test]
async fn what_was_cancelled_is_not_told_to_be_cancelled() {
    let server = Server::new().await;
    let items = json!([{ "kind": "step", "key": "a" }]);
    server.post("/v1/runs", json!({ "lifecycle": "job", "items": items })).await.expect(201);
    let (id, token) = server.claim("w").await;
    let lease = json!({ "lease_token": token, "required": true });
    server.post(&format!("/v1/runs/{id}/require-cleanup"), lease).await.expect(200);
    server.post(&format!("/v1/runs/{id}/release"), json!({ "lease_token": token })).await.expect(200);
    server.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
    let hint =
        async || server.get(&format!("/v1/runs/{id}")).await.expect(200)["waiting"]["hint"].to_string();
    assert!(hint().await.contains("or cancel it"), "{}", hint().await);
    server.post(&format!("/v1/runs/{id}/cancel"), json!({})).await.expect(200);
    assert!(!hint().await.contains("cancel it"), "{}", hint().await);
}
