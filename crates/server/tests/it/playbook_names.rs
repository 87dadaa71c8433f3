//! Names of playbooks and handlers, and what a worker may say of itself and of a run that it gives back.

use serde_json::{Value, json};
use waypost_server::Options;
use waypost_store::EVERY_TENANT;

use crate::roles::{ask, token};
use crate::support::{On, Server, open};

const BUILD: &str = "name = \"build\"\nlifecycle = \"job\"\n\n[[step]]\nname = \"make\"\nexec = [\"true\"]\n";

#[track_caller]
fn says(problem: &Value, field: &str, words: &[&str]) {
    let text = problem["detail"].as_str().unwrap_or_default();
    let at = problem["errors"][0]["pointer"].as_str().unwrap_or_default();
    let is_named = problem["field"] == field || at.ends_with(field);
    assert!(
        is_named && words.iter().all(|word| problem.to_string().contains(word)),
        "{field}: {text}: {problem}"
    );
}

#[tokio::test]
async fn a_name_that_no_run_could_ask_for_is_refused() {
    let server = Server::new().await;
    for name in ["demo@", "a@b", "a\u{1b}[31m", "a\nb", "a\u{202e}b", " "] {
        let body = json!({ "by": "w", "playbooks": [{ "name": name }] });
        let problem = server.post("/v1/playbooks", body).await.refused(422, "INVALID_INPUT");
        says(&problem, "name", &["allowed"]);
    }
    assert_eq!(server.get("/v1/playbooks").await.expect(200)["playbooks"], json!([]));
    for playbook in ["demo@", "@3f2a"] {
        let body = json!({ "playbook": playbook, "lifecycle": "deploy", "unknown_playbook": true });
        let problem = server.post("/v1/runs", body).await.refused(422, "INVALID_INPUT");
        says(&problem, "playbook", &["NAME@HASH"]);
    }
}

/// A tenant's own name stands before everybody's: whose it is, and how to ask for the other, is said.
#[tokio::test]
async fn a_handler_that_hides_a_playbook_says_so() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, lives) = open(on).await;
        let options = Options { needs_tokens: true, ..Options::default() };
        let server = Server::with(store, lives, options).await;
        let everybodys = token(&*server.store, "admin", EVERY_TENANT).await;
        let own = token(&*server.store, "admin", "shop").await;
        let playbook = json!({ "by": "serve", "playbooks": [{ "name": "build", "text": BUILD }] });
        ask(&server, &everybodys, "POST", "/v1/playbooks", &playbook).await.expect(204);
        let handler = json!({ "by": "w1", "playbooks": [{ "name": "build" }] });
        ask(&server, &own, "POST", "/v1/playbooks", &handler).await.expect(204);
        let start = |playbook: &str| json!({ "playbook": playbook });
        let asked = ask(&server, &own, "POST", "/v1/runs", &start("build")).await;
        let problem = asked.refused(422, "INVALID_INPUT");
        says(&problem, "lifecycle", &["handler of worker", "w1", "tenant shop", "for everybody", "build@"]);
        let detail = problem["detail"].as_str().unwrap();
        let pin: String =
            detail[detail.find("build@").unwrap()..].chars().take_while(|it| !it.is_whitespace()).collect();
        let started = ask(&server, &own, "POST", "/v1/runs", &start(&pin)).await.expect(201);
        assert!(started["playbook"].as_str().unwrap().starts_with(&pin), "{started}");
    }
}

#[tokio::test]
async fn what_a_worker_says_of_itself_and_of_a_wait_is_checked() {
    let server = Server::new().await;
    let body = json!({ "name": "w", "queues": ["default"], "slots": 0 });
    let problem = server.post("/v1/workers", body).await.refused(422, "INVALID_INPUT");
    says(&problem, "slots", &["1"]);
    server.start().await;
    let (id, lease_token) = server.claim("w").await;
    for reason in ["person", "lunch"] {
        let body = json!({ "lease_token": lease_token, "until": "2099-01-01T00:00:00Z", "reason": reason });
        let problem =
            server.post(&format!("/v1/runs/{id}/release"), body).await.refused(422, "INVALID_INPUT");
        says(&problem, "reason", &["window", "retry"]);
    }
    let body = json!({ "lease_token": lease_token, "until": "2099-01-01T00:00:00Z", "reason": "window" });
    server.post(&format!("/v1/runs/{id}/release"), body).await.expect(200);
    assert_eq!(server.get(&format!("/v1/runs/{id}")).await.expect(200)["waiting"]["reason"], "window");
}
