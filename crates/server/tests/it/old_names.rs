//! Clients of before keep working: what has another name now is answered under its old one too, for a release.

use serde_json::json;

use crate::support::{On, Server};

#[tokio::test]
async fn a_client_of_before_requires_cleanup_by_its_old_name() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        server.start_with(json!({ "lifecycle": "job", "items": [{ "kind": "step", "key": "s1" }] })).await;
        let (id, token) = server.claim("w1").await;
        let path = |verb: &str| format!("/v1/runs/{id}/{verb}");
        server.post(&path("owe"), json!({ "lease_token": token, "owes": true })).await.expect(200);
        let end = json!({ "lease_token": token, "status": "completed" });
        server.post(&path("finish"), end.clone()).await.refused(409, "CLEANUP_OWED");
        // The new name takes back what the old one said: it is one and the same.
        let done = json!({ "lease_token": token, "required": false });
        server.post(&path("require-cleanup"), done).await.expect(200);
        server.post(&path("finish"), end).await.expect(200);
    }
}

#[tokio::test]
async fn what_a_run_brings_along_comes_under_either_name_and_not_both() {
    let server = Server::new().await;
    let command = json!({ "command": ["true"] });
    for name in ["embedded", "carried"] {
        let started =
            server.post("/v1/runs", json!({ "lifecycle": "deploy", name: command })).await.expect(201);
        assert_eq!(started["carried"], command, "{name}");
    }
    let both = json!({ "lifecycle": "deploy", "embedded": command, "carried": command });
    let problem = server.post("/v1/runs", both).await.refused(422, "INVALID_INPUT");
    assert_eq!(problem["errors"][0]["pointer"], "/carried");
    assert!(problem["detail"].as_str().unwrap().contains("old name of `embedded`"), "{problem}");
    for name in ["embedded", "carried"] {
        let none = server.post("/v1/claims", json!({ "worker": "w", name: false })).await.expect(200);
        assert_eq!(none["claims"], json!([]), "{name}");
        let one = server.post("/v1/claims", json!({ "worker": "w", name: true })).await.expect(200);
        assert_eq!(one["claims"].as_array().map(Vec::len), Some(1), "{name}");
    }
    let both = json!({ "worker": "w", "embedded": true, "carried": true });
    server.post("/v1/claims", both).await.refused(422, "INVALID_INPUT");
}

#[tokio::test]
async fn the_document_marks_old_routes() {
    let server = Server::new().await;
    let document = server.get("/openapi.json").await.expect(200);
    let old = &document["paths"]["/v1/runs/{run_id}/owe"]["post"];
    let new = &document["paths"]["/v1/runs/{run_id}/require-cleanup"]["post"];
    assert_eq!((&old["deprecated"], &new["deprecated"]), (&json!(true), &json!(false)));
}
