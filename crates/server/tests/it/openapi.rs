//! The document says what the server does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::{Answer, Server};

fn document() -> Value {
    waypost_server::openapi()
}

/// As much of JSON Schema as the document uses; gives what does not fit.
fn misfits(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let pointer = name.strip_prefix('#').unwrap();
        return misfits(document, document.pointer(pointer).expect(name), value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = any.iter().any(|one| misfits(document, one, value, at).is_empty());
        return if fits { Vec::new() } else { vec![format!("{at}: fits none: {value}")] };
    }
    let mut found = Vec::new();
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => vec![kind],
    };
    if !kinds.contains(&kind) {
        found.push(format!("{at}: is {kind}, not {kinds:?}"));
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        found.push(format!("{at}: {value} is none of {choices:?}"));
    }
    if let (Some(most), Some(number)) = (schema["maximum"].as_i64(), value.as_i64())
        && (number > most || number < schema["minimum"].as_i64().unwrap_or(i64::MIN))
    {
        found.push(format!("{at}: {number} is out of range"));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.is_object() && value.get(name).is_none() {
            found.push(format!("{at}/{name}: is missing"));
        }
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let inner = match schema["properties"].get(name) {
            Some(known) => known,
            None if schema["additionalProperties"] == false => {
                found.push(format!("{at}/{name}: is not in the document"));
                continue;
            }
            None => &schema["additionalProperties"],
        };
        found.extend(misfits(document, inner, member, &format!("{at}/{name}")));
    }
    for (place, entry) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(misfits(document, &schema["items"], entry, &format!("{at}/{place}")));
    }
    found
}

/// The answer is one that the document has for this route.
#[track_caller]
pub fn fits(method: &str, path: &str, answer: &Answer) {
    let document = document();
    let operation = &document["paths"][path][method];
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{method} {path} may not answer {}: {}", answer.status, answer.text);
    let kind = answer.header("content-type");
    if answer.text.is_empty() {
        return;
    }
    let schema = &response["content"][kind]["schema"];
    assert!(schema.is_object(), "{method} {path} {}: no {kind}", answer.status);
    if kind.contains("json") {
        assert_eq!(misfits(&document, schema, &answer.body, ""), Vec::<String>::new(), "{method} {path}");
    }
}

#[test]
fn every_route_is_there_with_its_errors_and_resolves() {
    let document = document();
    let mut names = BTreeSet::new();
    let mut routes = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            routes += 1;
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} twice");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.keys().any(|status| status.starts_with('2')), "{method} {path}");
            for status in ["400", "401", "403", "429", "500", "503"] {
                assert!(responses.contains_key(status), "{method} {path} {status}");
            }
            let has_body = operation["requestBody"].is_object();
            for status in ["413", "415", "422"] {
                assert!(!has_body || responses.contains_key(status), "{method} {path} {status}");
            }
            for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                let parameters = operation["parameters"].as_array().unwrap();
                let is_it = |it: &&Value| it["name"] == name && it["in"] == "path";
                assert!(parameters.iter().any(|it| is_it(&it)), "{method} {path} {name}");
            }
        }
    }
    assert!(routes > 25, "{routes}");
    let text = document.to_string();
    for name in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}

/// What an answer hands out leads to the routes that ask for it.
#[test]
fn answers_link_to_what_can_be_done_next() {
    let document = document();
    let mut links: Vec<(String, Value)> = Vec::new();
    let mut asks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for operation in
        document["paths"].as_object().unwrap().values().flat_map(|it| it.as_object().unwrap().values())
    {
        let name = operation["operationId"].as_str().unwrap();
        let parameters = operation["parameters"].as_array().unwrap();
        let in_path = parameters
            .iter()
            .filter(|it| it["in"] == "path")
            .map(|it| it["name"].as_str().unwrap().to_owned());
        asks.insert(name.to_owned(), in_path.collect());
        for (status, response) in operation["responses"].as_object().unwrap() {
            for (to, link) in response["links"].as_object().into_iter().flatten() {
                assert_eq!(link["operationId"], to.as_str());
                links.push((format!("{name} {status} {to}"), link.clone()));
            }
        }
    }
    for (words, link) in &links {
        let given: BTreeSet<String> = link["parameters"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(given, asks[link["operationId"].as_str().unwrap()], "{words}");
    }
    let body = |name: &str| format!("$response.body#{name}");
    for (words, parameters, request) in [
        ("startRun 201 getRun", json!({ "run_id": body("/run_id") }), Value::Null),
        ("startRun 201 listEvents", json!({ "run_id": body("/run_id") }), Value::Null),
        (
            "startRun 201 commandRun",
            json!({ "run_id": body("/run_id"), "command": body("/allowed/0") }),
            Value::Null,
        ),
        (
            "claim 200 heartbeat",
            json!({ "run_id": body("/claims/0/run/run_id") }),
            json!({ "lease_token": body("/claims/0/lease/token") }),
        ),
        (
            "claimRun 200 finish",
            json!({ "run_id": body("/run/run_id") }),
            json!({ "lease_token": body("/lease/token") }),
        ),
        ("createToken 201 revokeToken", json!({ "token_id": body("/row/id") }), Value::Null),
        ("listQueues 200 pauseQueue", json!({ "queue": body("/queues/0/queue") }), Value::Null),
    ] {
        let (_, link) = links.iter().find(|(known, _)| known == words).unwrap_or_else(|| panic!("{words}"));
        assert_eq!((&link["parameters"], &link["requestBody"]), (&parameters, &request), "{words}");
    }
    let is_there = |words: &str| links.iter().any(|(known, _)| known == words);
    assert!(!is_there("startRun 201 finish"), "only who holds a run may finish it");
    assert!(!is_there("getRun 200 listEvents"), "who asks has the id already");
}

#[tokio::test]
async fn every_path_of_the_document_is_answered_by_the_server() {
    let server = Server::new().await;
    for (path, operations) in document()["paths"].as_object().unwrap() {
        let real = path.replace(['{', '}'], "");
        for method in ["get", "post", "put", "delete", "patch"] {
            let answer = crate::support::send(server.request(&method.to_uppercase(), &real)).await;
            if operations[method].is_object() {
                assert_ne!(answer.status, 405, "{method} {path}");
                let is_astray = answer.text.contains("there is no such path");
                assert!(!is_astray, "{method} {path}");
                fits(method, path, &answer);
            } else {
                assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn answers_are_what_the_document_says() {
    let server = Server::new().await;
    let new =
        json!({ "lifecycle": "job", "metadata": { "a": 1 }, "items": [{ "kind": "step", "key": "s1" }] });
    let started = server.post("/v1/runs", new.clone()).await;
    fits("post", "/v1/runs", &started);
    let (id, token) = server.claim("w").await;
    let batch = server.post("/v1/runs/batch", json!({ "runs": [new, { "lifecycle": "nothing" }] })).await;
    fits("post", "/v1/runs/batch", &batch);
    for (verb, body) in [
        ("heartbeat", json!({})),
        ("events", json!({ "message": "m" })),
        ("items", json!({ "items": [{ "kind": "step", "key": "s1", "status": "running" }] })),
        ("require-cleanup", json!({ "required": false })),
        ("owe", json!({ "owes": false })),
        ("finish", json!({ "status": "nowhere" })),
        ("finish", json!({ "status": "failed", "error_code": "E", "error_msg": "m" })),
        ("release", json!({})),
    ] {
        let mut body = body;
        body["lease_token"] = token.clone().into();
        let answer = server.post(&format!("/v1/runs/{id}/{verb}"), body).await;
        fits("post", &format!("/v1/runs/{{run_id}}/{verb}"), &answer);
    }
    let path = |verb: &str| format!("/v1/runs/{id}{verb}");
    fits("get", "/v1/runs/{run_id}", &server.get(&path("")).await);
    fits("get", "/v1/runs/{run_id}/events", &server.get(&path("/events")).await);
    fits("get", "/v1/runs/{run_id}/items", &server.get(&path("/items")).await);
    fits("post", "/v1/runs/{run_id}/{command}", &server.post(&path("/cancel"), json!({})).await);
    fits("post", "/v1/claims", &server.post("/v1/claims", json!({ "worker": "w", "limit": 9 })).await);
    let other = server.start().await["run_id"].as_str().unwrap().to_owned();
    let claimed = server.post(&format!("/v1/runs/{other}/claim"), json!({ "worker": "w" })).await;
    fits("post", "/v1/runs/{run_id}/claim", &claimed);
    for path in ["/v1/runs", "/v1/queues", "/v1/workers", "/v1/stats", "/v1/lifecycles", "/v1/playbooks"] {
        fits("get", path, &server.get(path).await);
    }
    fits("get", "/v1/lifecycles/{name}", &server.get("/v1/lifecycles/rule?source=true").await);
    fits("post", "/v1/queues/{queue}/pause", &server.post("/v1/queues/q/pause", json!({})).await);
    fits("put", "/v1/queues/{queue}/limit", &server.put("/v1/queues/q/limit", json!({ "at_most": 1 })).await);
}

#[tokio::test]
async fn the_reference_is_a_page_of_the_console() {
    let server = Server::new().await;
    let page = server.get("/reference").await;
    assert!(page.header("content-security-policy").starts_with("default-src 'none'"));
    for word in ["POST /v1/claims", "LEASE_LOST", "Idempotency-Key", "operator or admin"] {
        assert!(page.text.contains(word), "{word}");
    }
    assert!(
        page.text.contains("href=\"/runs\"") && page.text.contains("href=\"/assets/console-"),
        "a way back"
    );
    assert!(!page.text.contains("<style") && !page.text.contains("src=\"http"), "nothing of elsewhere");
}
