//! Bulk changes over HTTP: the moves that seed 004 forbids.
// proves R1, R8 and R10

use serde_json::{Value, json};

use crate::support::{On, Server};

async fn command(server: &Server, id: &str, name: &str) -> crate::support::Answer {
    server.post(&format!("/v1/runs/{id}/{name}"), json!({ "by": "ann" })).await
}

async fn status(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/runs/{id}")).await.expect(200)["status"].clone()
}

/// Takes it; all targets are applied.
async fn applied(server: &Server, id: &str) {
    let claim = server.post(&format!("/v1/runs/{id}/claim"), json!({ "worker": "w1" })).await.expect(200);
    let lease = claim["lease"]["token"].clone();
    let work = format!("/v1/runs/{id}/targets/work");
    let taken = server.post(&work, json!({ "lease_token": lease, "take": 10 })).await.expect(200);
    let result = |item: &Value| json!({ "key": item["key"], "try_no": item["try_no"], "tried": "applied" });
    let results: Vec<Value> = taken["taken"].as_array().unwrap().iter().map(result).collect();
    let body = json!({ "lease_token": lease, "results": results, "end": "when-done" });
    server.post(&work, body).await.expect(200);
}

#[tokio::test]
async fn nothing_leads_into_applying_but_what_the_seed_allows() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let run = server.post("/v1/runs", json!({ "lifecycle": "rule" })).await.expect(201);
        let id = run["run_id"].as_str().unwrap().to_owned();
        let targets =
            json!([{ "key": "a", "before": 1, "after": 2 }, { "key": "b", "before": 1, "after": 0 }]);
        let batch = json!({ "at": 0, "rows": 2, "targets": targets, "last": true });
        server.post(&format!("/v1/runs/{id}/targets"), batch).await.expect(200);
        // PREVIEW: it is queued first.
        assert_eq!(status(&server, &id).await, "PREVIEW");
        server
            .post(&format!("/v1/runs/{id}/claim"), json!({ "worker": "w1" }))
            .await
            .refused(409, "INVALID_TRANSITION");
        command(&server, &id, "retry").await.refused(409, "INVALID_TRANSITION");
        command(&server, &id, "queue").await.expect(200);
        applied(&server, &id).await;
        // APPLIED: what has succeeded stays so.
        assert_eq!(status(&server, &id).await, "APPLIED", "{on:?}");
        server
            .post(&format!("/v1/runs/{id}/claim"), json!({ "worker": "w1" }))
            .await
            .refused(409, "INVALID_TRANSITION");
        command(&server, &id, "retry").await.refused(409, "INVALID_TRANSITION");
        command(&server, &id, "rollback").await.expect(200);
        let children = server.get(&format!("/v1/runs?parent_run_id={id}")).await.expect(200);
        let operation = children["runs"][0]["run_id"].as_str().unwrap().to_owned();
        let claim =
            server.post(&format!("/v1/runs/{operation}/claim"), json!({ "worker": "w1" })).await.expect(200);
        let body = json!({ "lease_token": claim["lease"]["token"], "keys": ["a", "b"], "by": "w1" });
        server.post(&format!("/v1/runs/{operation}/targets/roll-back"), body).await.expect(200);
        // ROLLED_BACK: a new run is started instead.
        assert_eq!(status(&server, &id).await, "ROLLED_BACK");
        server
            .post(&format!("/v1/runs/{id}/claim"), json!({ "worker": "w1" }))
            .await
            .refused(409, "INVALID_TRANSITION");
        command(&server, &id, "retry").await.refused(409, "INVALID_TRANSITION");
    }
}
