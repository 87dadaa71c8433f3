//! Deliveries that come again after what is done with them was changed.

use std::any::Any;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use waypost_server::Options;
use waypost_store::Database;
use waypost_worker::playbook::{Playbook, Playbooks};
use waypost_worker::webhooks::Github;

use super::support::{Answer, On, Server, open, send};

const SECRET: &str = "quite secret";

/// A server whose rules are these, in the folder where its secret is.
async fn serve(store: &Arc<dyn Database>, folder: &Path, rules: &str) -> Server {
    let secret = folder.join("secret");
    fs::write(&secret, SECRET).unwrap();
    let text = "name = \"ship\"\nlifecycle = \"deploy\"\n[inputs.sha]\ntype = \"string\"\n[[step]]\nname = \"a\"\nexec = [\"true\"]\n";
    let playbook = Playbook::parse(text, Path::new("ship.toml")).unwrap();
    let file = folder.join("waypost.toml");
    fs::write(&file, format!("[github]\nsecret = \"file:{}\"\n{rules}", secret.display())).unwrap();
    let github = Github::load(&file, &Playbooks::default().with(playbook)).unwrap().unwrap();
    let options = Options { github: Some(github.into()), ..Options::default() };
    let lives: Box<dyn Any + Send + Sync> = Box::new(());
    Server::with(store.clone(), lives, options).await
}

async fn deliver(server: &Server, id: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let signed: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let request = server.request("POST", "/webhooks/github").header("content-type", "application/json");
    let request = request.header("x-github-event", "push").header("x-github-delivery", id);
    send(request.header("x-hub-signature-256", format!("sha256={signed}")).body(body)).await
}

// proves D10: a delivery is known by its id and content, whatever its rule says by then
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_comes_again_is_known_though_its_rule_was_edited() {
    let rule = "[[github.on]]\nevent = \"push\"\nplaybook = \"ship\"\n";
    for on in [On::Sqlite, On::Postgres] {
        let (store, _alive) = open(on).await;
        let folder = tempfile::tempdir().unwrap();
        let push = json!({ "after": "abc", "ref": "refs/heads/main" });
        let first = format!("{rule}inputs = {{ sha = \"{{{{ event.after }}}}\" }}\n");
        let server = serve(&store, folder.path(), &first).await;
        let made = deliver(&server, "d-1", &push).await.expect(202);
        for edited in [
            format!("{rule}inputs = {{ sha = \"other\" }}\n"),
            format!("{rule}inputs = {{ sha = \"{{{{ event.gone.deep }}}}\" }}\n"),
            format!("{rule}branch = \"other\"\ninputs = {{ sha = \"other\" }}\n"),
            String::new(),
        ] {
            let server = serve(&store, folder.path(), &edited).await;
            let again = deliver(&server, "d-1", &push).await;
            let again = again.expect(200);
            assert_eq!(again["result"], "known", "{edited}: {again}");
            assert_eq!(again["runs"][0]["run_id"], made["runs"][0]["run_id"], "{edited}: {again}");
            let other = deliver(&server, "d-1", &json!({ "after": "def", "ref": "refs/heads/main" })).await;
            assert!(
                matches!(other.status, 202 | 422) && other.body["runs"].as_array().is_none_or(Vec::is_empty)
            );
        }
    }
}
