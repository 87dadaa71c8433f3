//! Rows of targets, from files, commands and pages.

use std::path::Path;

use serde_json::{Map, Value, json};
use waypost_worker::PassedEnv;
use waypost_worker::actions::Mask;
use waypost_worker::actions::http::Client;
use waypost_worker::playbook::Playbook;
use waypost_worker::targets::source::{Reader, Rows, Trouble};

use crate::http::server::{Said, Server};

fn open(folder: &Path, targets: &str, inputs: &Value) -> Rows {
    let text = format!(
        "name = \"p\"\nlifecycle = \"rule\"\n[targets]\n{targets}\n[apply]\nexec = [\"true\", \"{{{{ target.id }}}}\"]\n"
    );
    let playbook =
        Playbook::parse(&text, &folder.join("p.toml")).unwrap_or_else(|problems| panic!("{problems}"));
    let reader = Reader {
        client: Client::new(true).unwrap(),
        passed_env: PassedEnv::basics(),
        guardian: None,
        own_secrets: Mask::default(),
        tenant: "default".to_owned(),
        run_id: "rule-1".to_owned(),
    };
    let inputs: Map<String, Value> = inputs.as_object().cloned().unwrap_or_default();
    Rows::open(&playbook, playbook.rule.as_ref().unwrap(), &inputs, reader)
}

async fn all(mut rows: Rows) -> (Vec<Value>, Vec<String>) {
    let (mut found, mut troubles) = (Vec::new(), Vec::new());
    while let Some(read) = rows.next().await {
        match read {
            Ok(row) => found.push(Value::Object(row.members)),
            Err(Trouble::Row(words) | Trouble::Source(words)) => troubles.push(words),
        }
    }
    (found, troubles)
}

#[tokio::test]
async fn files_are_read_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.csv"), "id,before\n1,10\n2,20\n").unwrap();
    std::fs::write(folder.path().join("p.jsonl"), "{\"id\": 1}\n\n[1]\nnot json\n{\"id\": 2}").unwrap();
    let (rows, troubles) = all(open(folder.path(), "csv = \"p.csv\"", &json!({}))).await;
    assert_eq!(rows, [json!({"id": "1", "before": "10"}), json!({"id": "2", "before": "20"})]);
    assert!(troubles.is_empty(), "{troubles:?}");
    let (rows, troubles) = all(open(folder.path(), "jsonl = \"p.jsonl\"", &json!({}))).await;
    assert_eq!(rows, [json!({"id": 1}), json!({"id": 2})]);
    assert!(
        troubles.len() == 2
            && troubles[0].starts_with("p.jsonl:3: ")
            && troubles[1].starts_with("p.jsonl:4: ")
    );
    let (_, troubles) = all(open(folder.path(), "csv = \"missing.csv\"", &json!({}))).await;
    assert!(troubles[0].contains("missing.csv: the file cannot be read"), "{troubles:?}");
}

/// What is not asked for is not read: a source may be larger than memory, and this one has no end.
#[tokio::test]
async fn no_more_is_read_than_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let endless = "exec = [\"sh\", \"-c\", \"while :; do echo '{\\\"id\\\": 1}'; done\"]";
    let mut rows = open(folder.path(), endless, &json!({}));
    for _ in 0..1_000 {
        assert!(rows.next().await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_command_prints_them_and_its_failure_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let list = "exec = [\"sh\", \"-c\", \"echo '{\\\"id\\\": 1}'; echo '{\\\"id\\\": 2}'\"]";
    assert_eq!(
        all(open(folder.path(), list, &json!({}))).await,
        (vec![json!({"id": 1}), json!({"id": 2})], vec![])
    );
    let failing = "exec = [\"sh\", \"-c\", \"echo '{\\\"id\\\": 1}'; echo 'no database' >&2; exit 3\"]";
    let (rows, troubles) = all(open(folder.path(), failing, &json!({}))).await;
    assert!(
        rows.len() == 1 && troubles[0].contains("no database") && troubles[0].contains('3'),
        "{troubles:?}"
    );
    let missing = all(open(folder.path(), "exec = [\"./no-such-program\"]", &json!({}))).await.1;
    assert!(missing[0].contains("cannot start"), "{missing:?}");
    let slow = all(open(folder.path(), "exec = [\"sleep\", \"60\"]\ntimeout = \"50ms\"", &json!({}))).await.1;
    assert!(slow[0].contains("did not end"), "{slow:?}");
}

#[tokio::test]
async fn pages_are_followed_by_their_link_a_member_or_a_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let page = |body: &str| Said::json(200, body);
    let three = vec![json!({"id": 1}), json!({"id": 2}), json!({"id": 3})];
    let server = Server::start(vec![
        page(r#"[{"id": 1}, {"id": 2}]"#).with("Link: </a>; rel=\"prev\", </products?page=2>; rel=\"next\""),
        page(r#"[{"id": 3}]"#),
    ])
    .await;
    let url = |server: &Server| json!({ "shop": server.url("") });
    let targets = "http = { method = \"GET\", url = \"{{ inputs.shop }}/products\" }";
    assert_eq!(all(open(folder.path(), targets, &url(&server))).await, (three.clone(), vec![]));
    server.heard().await;
    assert!(server.heard().await.head.starts_with("GET /products?page=2 "));

    let server = Server::start(vec![
        page(r#"{"products": [{"id": 1}, {"id": 2}], "next": "/products?after=2"}"#),
        page(r#"{"products": [{"id": 3}], "next": null}"#),
    ])
    .await;
    let by_member = format!("{targets}\nnext = \"/next\"");
    assert_eq!(all(open(folder.path(), &by_member, &url(&server))).await, (three.clone(), vec![]));

    let nodes = |ids: &str, end: &str| format!(r#"{{"data": {{"nodes": [{ids}], "end": {end}}}}}"#);
    let server = Server::start(vec![
        page(&nodes(r#"{"id": 1}, {"id": 2}"#, "\"c2\"")),
        page(&nodes(r#"{"id": 3}"#, "\"c3\"")),
        page(&nodes("", "null")),
    ])
    .await;
    let by_cursor = "http = { method = \"POST\", url = \"{{ inputs.shop }}/graphql\", json = { after = \"{{ page.next }}\" } }\nlist = \"/data/nodes\"\nnext = \"/data/end\"";
    assert_eq!(all(open(folder.path(), by_cursor, &url(&server))).await, (three, vec![]));
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(server.heard().await.body);
    }
    assert_eq!(asked, [r#"{"after":null}"#, r#"{"after":"c2"}"#, r#"{"after":"c3"}"#]);
}

#[tokio::test]
async fn a_page_that_does_not_come_is_asked_for_again_or_told() {
    let folder = tempfile::tempdir().unwrap();
    let targets = "http = { method = \"GET\", url = \"{{ inputs.shop }}/products\" }";
    let server =
        Server::start(vec![Said::json(429, "{}").with("Retry-After: 0"), Said::json(200, "[{\"id\": 1}]")])
            .await;
    let inputs = json!({ "shop": server.url("") });
    assert_eq!(all(open(folder.path(), targets, &inputs)).await, (vec![json!({"id": 1})], vec![]));
    for (said, words) in [
        (Said::json(403, "{\"error\": \"no\"}"), "answered 403"),
        (Said::json(200, "{\"a\": [], \"b\": []}"), "2 lists"),
        (Said::json(200, "{"), "not JSON"),
        (Said::json(200, "[]").with("Link: <http://127.0.0.1:1/x>; rel=\"next\""), "another server"),
    ] {
        let server = Server::start(vec![said]).await;
        let (rows, troubles) = all(open(folder.path(), targets, &json!({ "shop": server.url("") }))).await;
        assert!(rows.is_empty() && troubles[0].contains(words), "{words}: {troubles:?}");
    }
}
