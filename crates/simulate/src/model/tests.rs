#![allow(clippy::unwrap_used)]
//! The model as its clients see it, on a clock of the tests' own.

use serde_json::{Value, json};

use super::{FAULTS, Model, Options, Settings};
use crate::serving::{Answer, Faults, Now, Reply, Request, Simulator};

fn settings(faults: &[&str]) -> Settings {
    let mut set = Faults::default();
    for fault in faults {
        set.set(fault, FAULTS).unwrap();
    }
    Settings { faults: set, ..Settings::default() }
}

fn model(settings: Settings) -> Model {
    Model::open(Options { settings, ..Options::default() }).unwrap()
}

fn request(method: &str, path: &str, body: &Value) -> Request {
    Request::made(method, path, None, body)
}

fn ask(model: &mut Model, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let answer = answered(model.answer(&request(method, path, body), Now::default()));
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

#[track_caller]
fn answered(reply: Reply) -> Answer {
    reply.answered()
}

fn prompt(text: &str) -> Value {
    json!({ "model": "m", "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": text }] })
}

fn chat(model: &mut Model, body: &Value) -> Reply {
    model.answer(&request("POST", "/v1/chat/completions", body), Now::default())
}

fn said(model: &mut Model, body: &Value) -> Value {
    let answer = answered(chat(model, body));
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

fn content(completion: &Value) -> &str {
    completion["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn the_same_prompt_has_the_same_answer() {
    let (mut one, mut other) = (model(settings(&[])), model(settings(&[])));
    let first = said(&mut one, &prompt("How many violins?"));
    assert_eq!(first, said(&mut other, &prompt("How many violins?")));
    assert!(
        content(&first).starts_with("Simulated answer ")
            && content(&first).ends_with("to: How many violins?")
    );
    assert_eq!(
        (&first["object"], &first["choices"][0]["finish_reason"]),
        (&json!("chat.completion"), &json!("stop"))
    );
    let usage = &first["usage"];
    assert_eq!(usage["prompt_tokens"], "system: Be brief.\nuser: How many violins?\n".len().div_ceil(4));
    assert_eq!(
        usage["total_tokens"],
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap()
    );
    assert_ne!(content(&first), content(&said(&mut one, &prompt("How many violas?"))));
    let mut seeded = model(Settings { seed: 2, ..settings(&[]) });
    assert_ne!(content(&first), content(&said(&mut seeded, &prompt("How many violins?"))));
}

#[test]
fn json_is_what_was_asked_for() {
    let mut model = model(settings(&[]));
    let mut asked = prompt("List them");
    asked["response_format"] = json!({ "type": "json_object" });
    assert!(serde_json::from_str::<Value>(content(&said(&mut model, &asked))).unwrap().is_object());

    let schema = json!({
        "type": "object", "required": ["title", "score", "kind", "tags", "at", "parent"],
        "properties": {
            "title": { "type": "string", "minLength": 20, "maxLength": 30 },
            "score": { "type": "integer", "minimum": 3, "maximum": 5 },
            "kind": { "enum": ["logic-update", "memory-update"] },
            "tags": { "type": "array", "items": { "type": ["string", "null"] }, "minItems": 2 },
            "at": { "type": "string", "format": "date-time" },
            "is_safe": { "type": "boolean" },
            "parent": { "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] },
        },
        "$defs": { "node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" }, "v": { "const": 1 } } } },
    });
    asked["response_format"] =
        json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let value: Value = serde_json::from_str(content(&said(&mut model, &asked))).unwrap();
    assert!((20..=30).contains(&value["title"].as_str().unwrap().len()), "{value}");
    assert!((3..=5).contains(&value["score"].as_i64().unwrap()), "{value}");
    assert!(["logic-update", "memory-update"].contains(&value["kind"].as_str().unwrap()), "{value}");
    assert_eq!(value["tags"].as_array().unwrap().len(), 2, "{value}");
    assert!(value["at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{value}");
    assert!(value["is_safe"].is_boolean() && value["parent"].is_object(), "{value}");
}

#[test]
fn answers_are_cut_to_their_tokens_and_come_several_at_once() {
    let mut model = model(settings(&[]));
    let mut asked = prompt("Tell me everything about it");
    (asked["max_tokens"], asked["n"]) = (json!(3), json!(2));
    let completion = said(&mut model, &asked);
    assert_eq!(
        (content(&completion).len(), &completion["choices"][1]["finish_reason"]),
        (12, &json!("length"))
    );
    assert_eq!(completion["usage"]["completion_tokens"], 6);
}

#[test]
fn a_stream_says_the_same() {
    let mut model = model(settings(&[]));
    let whole = content(&said(&mut model, &prompt("one two three"))).to_owned();
    let mut asked = prompt("one two three");
    (asked["stream"], asked["stream_options"]) = (json!(true), json!({ "include_usage": true }));
    let answer = answered(chat(&mut model, &asked));
    assert_eq!(answer.content_type, "text/event-stream");
    let mut events: Vec<&str> =
        answer.body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(events.pop(), Some("[DONE]"));
    let chunks: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let streamed: String =
        chunks.iter().filter_map(|it| it["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(streamed, whole);
    assert!(chunks.last().unwrap()["usage"]["total_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn a_marker_scripts_one_call() {
    let mut model = model(settings(&[]));
    let mut status = |text: &str| match chat(&mut model, &prompt(text)) {
        Reply::Answer(answer) => answer.status.to_string(),
        Reply::Cut => "cut".to_owned(),
        Reply::Held { for_ms, then } => {
            let inner = if let Reply::Answer(answer) = *then { answer.status } else { 0 };
            format!("held {for_ms} {inner}")
        }
    };
    for (text, met) in [
        ("[[sim: fail 503]] a", "503"),
        ("[[sim: cut]] a", "cut"),
        ("[[sim: timeout]] a", "held 600000 504"),
        ("[[sim: slow]] a", "held 5000 200"),
        ("[[sim: slow 20ms]] [[sim: fail 502]] a", "held 20 502"),
        ("[[sim: rate_limited 3]] a", "429"),
        ("[[sim: garbage]] a", "200"),
        ("a [[links]] of a wiki", "200"),
        ("[[sim: fial]]", "400"),
    ] {
        assert_eq!(status(text), met, "{text}");
    }
    // The first times of this prompt alone; another one counts by itself.
    assert_eq!([1, 2, 3].map(|_| status("[[sim: fail 500 x2]] b")), ["500", "500", "200"]);
    assert_eq!(status("[[sim: fail 500 x2]] c"), "500");
}

#[test]
fn content_is_bent_by_markers() {
    let mut model = model(settings(&[]));
    let mut asked = |marker: &str| {
        let mut asked = prompt(&format!("[[sim: {marker}]] give me JSON"));
        asked["response_format"] = json!({ "type": "json_object" });
        let completion = said(&mut model, &asked);
        (
            content(&completion).to_owned(),
            completion["choices"][0]["finish_reason"].as_str().unwrap().to_owned(),
        )
    };
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    assert_eq!(asked("answer {\"proposals\": [1]}"), ("{\"proposals\": [1]}".to_owned(), "stop".to_owned()));
    let (text, reason) = asked("truncated");
    assert!(text.starts_with('{') && !is_json(&text) && reason == "length", "{text}");
    assert!(!is_json(&asked("prose").0));
    assert_eq!(asked("empty").0, "");
    let garbage = answered(chat(&mut model, &prompt("[[sim: garbage]]")));
    assert!(garbage.content_type == "text/html" && !is_json(&garbage.body));
    let limited = answered(chat(&mut model, &prompt("[[sim: rate_limited 3]]")));
    assert!(limited.headers.contains(&("retry-after", "3".to_owned())), "{limited:?}");
}

#[test]
fn faults_by_chance_are_drawn_by_key() {
    let met = |seed| {
        let mut model = model(Settings { seed, ..settings(&["fail=30%", "cut=10%", "truncated=20%"]) });
        (0..200)
            .map(|at| match chat(&mut model, &prompt(&format!("question {at}"))) {
                Reply::Answer(answer) => answer.status,
                _ => 0,
            })
            .collect::<Vec<u16>>()
    };
    let first = met(1);
    assert_eq!(first, met(1));
    assert_ne!(first, met(2));
    let failed = first.iter().filter(|status| **status >= 500).count();
    assert!((30..90).contains(&failed), "{failed}");
    let mut once = model(settings(&["fail=100%"]));
    assert!(answered(chat(&mut once, &prompt("a"))).status >= 500);
    assert_eq!(answered(chat(&mut once, &prompt("a"))).status, 200, "once for a request");
}

#[test]
fn a_queue_scripts_the_next_calls() {
    let mut model = model(settings(&[]));
    let queue = json!(["fail 503", "pass", "answer {}", "cut"]);
    assert_eq!(ask(&mut model, "POST", "/admin/next", &queue), (200, json!({ "queued": 4 })));
    assert_eq!(answered(chat(&mut model, &prompt("a"))).status, 503);
    assert!(content(&said(&mut model, &prompt("a"))).starts_with("Simulated"));
    assert_eq!(content(&said(&mut model, &prompt("a"))), "{}");
    assert!(matches!(chat(&mut model, &prompt("a")), Reply::Cut));
    assert_eq!(answered(chat(&mut model, &prompt("a"))).status, 200);
    let (_, stats) = ask(&mut model, "GET", "/admin/stats", &Value::Null);
    assert_eq!(stats["answers"], json!({ "200": 3, "503": 1, "cut": 1 }));
}

#[test]
fn there_is_a_limit_if_one_was_set() {
    let mut model = model(Settings { rate: 1.0, burst: 2.0, ..settings(&[]) });
    let mut status = |ms: u64| {
        let now = Now { unix_ms: ms, elapsed_us: ms * 1_000 };
        answered(model.answer(&request("POST", "/v1/chat/completions", &prompt("a")), now)).status
    };
    assert_eq!([status(0), status(0), status(0), status(1_000), status(1_000)], [200, 200, 429, 200, 429]);
}

#[test]
fn calls_are_kept_with_their_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Model::open(Options { dir: Some(folder.path().to_owned()), ..Options::default() }).unwrap();
    let mut model = open();
    let mut asked = request("POST", "/v1/chat/completions", &prompt("[[sim: fail 500 x1]] a"));
    asked.headers = vec![("idempotency-key".to_owned(), "k".to_owned())];
    model.answer(&asked, Now::default());
    model.answer(&asked, Now::default());
    model.answer(&request("POST", "/v1/chat/completions", &Value::Null), Now::default());
    let (_, page) = ask(&mut model, "GET", "/admin/calls?limit=2", &Value::Null);
    let calls = page["calls"].as_array().unwrap();
    assert_eq!((calls.len(), &page["next"]), (2, &json!(2)));
    assert_eq!(
        (&calls[0]["status"], &calls[0]["effects"], &calls[0]["content"]),
        (&json!(500), &json!(["fail 500 x1"]), &Value::Null)
    );
    assert_eq!((&calls[1]["status"], &calls[1]["idempotency_key"]), (&json!(200), &json!("k")));
    assert_eq!(calls[1]["body"], prompt("[[sim: fail 500 x1]] a"));
    let (_, rest) = ask(&mut model, "GET", "/admin/calls?after=2", &Value::Null);
    assert_eq!((&rest["calls"][0]["seq"], &rest["calls"][0]["status"]), (&json!(3), &json!(400)));
    drop(model);
    let mut model = open();
    chat(&mut model, &prompt("b"));
    assert_eq!(model.calls().map(|call| call.seq).collect::<Vec<_>>(), [4]);
    let kept = std::fs::read_to_string(folder.path().join("calls.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 4);
}

#[test]
fn mistakes_are_named_as_openai_names_them() {
    let options =
        Options { models: vec!["small".to_owned()], api_key: Some("sk".to_owned()), ..Options::default() };
    let mut model = Model::open(options).unwrap();
    let stranger = request("GET", "/v1/models", &Value::Null);
    assert_eq!(answered(model.answer(&stranger, Now::default())).status, 401);
    let mut ask = |method: &str, path: &str, body: &Value| {
        let mut asked = request(method, path, body);
        asked.headers.push(("authorization".to_owned(), "Bearer sk".to_owned()));
        let answer = answered(model.answer(&asked, Now::default()));
        (answer.status, serde_json::from_str::<Value>(&answer.body).unwrap())
    };
    assert_eq!(ask("GET", "/v1/models", &Value::Null).1["data"][0]["id"], "small");
    assert_eq!(ask("GET", "/v1/models/large", &Value::Null).0, 404);
    let message = json!([{ "role": "user", "content": "a" }]);
    for (body, status, words) in [
        (json!({ "model": "large", "messages": message }), 404, "`large` does not exist: small"),
        (json!({ "messages": message }), 400, "model: "),
        (json!({ "model": "small", "messages": [] }), 400, "messages: "),
        (json!({ "model": "small", "messages": [{ "content": "a" }] }), 400, "has a role"),
        (
            json!({ "model": "small", "messages": [{ "role": "user", "content": 1 }] }),
            400,
            "content is a text",
        ),
        (json!({ "model": "small", "messages": message, "n": 0 }), 400, "n: a whole number above 0"),
        (json!({ "model": "small", "messages": message, "n": 17 }), 400, "n: 16 at most"),
        (
            json!({ "model": "small", "messages": message, "response_format": { "type": "xml" } }),
            400,
            "response_format: ",
        ),
        (json!([]), 400, "an object with model and messages"),
    ] {
        let (found, answer) = ask("POST", "/v1/chat/completions", &body);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(found == status && message.contains(words), "{body}: {found} {message}");
    }
    for (path, body, words) in [
        ("/admin/next", json!(["fial"]), "fial is no marker"),
        ("/admin/next", json!("cut"), "a list of texts"),
    ] {
        let (status, answer) = ask("POST", path, &body);
        assert!(status == 400 && answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    }
    let (status, answer) = ask("PATCH", "/admin/faults", &json!({ "faults": { "lost": {} } }));
    assert!(
        status == 400 && answer["error"]["message"].as_str().unwrap().contains("no fault lost: slow"),
        "{answer}"
    );
}

#[test]
fn settings_change_while_it_runs() {
    let mut model = model(settings(&[]));
    let (status, now) =
        ask(&mut model, "PATCH", "/admin/faults", &json!({ "rate": 1, "burst": 1, "latency_ms": 7 }));
    assert_eq!((status, &now["rate"]), (200, &json!(1.0)));
    assert!(matches!(chat(&mut model, &prompt("a")), Reply::Held { for_ms: 7, .. }));
    ask(&mut model, "PATCH", "/admin/faults", &json!({ "latency_ms": 0 }));
    assert_eq!(answered(chat(&mut model, &prompt("a"))).status, 429);
    ask(
        &mut model,
        "PATCH",
        "/admin/faults",
        &json!({ "rate": 0, "faults": { "fail": { "share": 1, "times": 0 } } }),
    );
    assert!(answered(chat(&mut model, &prompt("a"))).status >= 500);
    ask(&mut model, "DELETE", "/admin/faults", &Value::Null);
    assert_eq!(answered(chat(&mut model, &prompt("a"))).status, 200);
}
