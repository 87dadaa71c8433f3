//! The model server.

use serde_json::{Value, json};

use super::Served;
use crate::support::Shop;

const CHAT: &str = "/v1/chat/completions";

fn prompt(text: &str) -> Value {
    json!({
        "model": "any", "messages": [{ "role": "user", "content": text }],
        "response_format": { "type": "json_object" },
    })
}

#[test]
fn a_model_answers_fails_and_remembers() {
    let folder = Shop::new();
    let model = Served::start(&folder, &["model", "--dir", "calls", "--api-key", "sk"]);
    let key = &["Authorization: Bearer sk"][..];
    assert_eq!(model.ask("GET", "/v1/models", &[], &Value::Null).0, 401);
    let (status, answer) = model.ask("POST", CHAT, key, &prompt("[[sim: fail 503 x1]] Propose something"));
    assert_eq!((status, &answer["error"]["type"]), (503, &json!("server_error")));
    let (status, answer) = model.ask("POST", CHAT, key, &prompt("[[sim: fail 503 x1]] Propose something"));
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(status, 200);
    assert!(serde_json::from_str::<Value>(content).unwrap().is_object(), "{content}");
    assert_eq!(model.ask("POST", CHAT, key, &prompt("[[sim: cut]]")).0, 0);
    let calls = model.get("/admin/calls");
    let statuses: Vec<&Value> =
        calls["calls"].as_array().unwrap().iter().map(|call| &call["status"]).collect();
    assert_eq!(statuses, [&json!(503), &json!(200), &Value::Null]);
    model.stop();
    let kept = std::fs::read_to_string(folder.path("calls/calls.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 3);
}

/// An answer that is held back keeps the process from nothing.
#[test]
fn a_model_that_hangs_ends_when_told() {
    let folder = Shop::new();
    let model = Served::start(&folder, &["model"]);
    let url = format!("{}{CHAT}", model.line["url"].as_str().unwrap());
    let mut waiting = std::process::Command::new("curl");
    waiting.args(["-s", "--noproxy", "*", "-d", &prompt("[[sim: timeout]]").to_string(), &url]);
    let mut waiting = crate::support::Running(waiting.spawn().unwrap());
    let is_waiting = || model.get("/admin/stats")["answers"]["504"] == 1;
    crate::support::eventually("the call arrived", std::time::Duration::from_secs(60), is_waiting);
    model.stop();
    assert_ne!(waiting.end(), Some(0), "there was no answer");
}

#[test]
fn bad_flags_of_a_model_are_named() {
    let folder = Shop::new();
    for (args, words) in [
        (&["--fault", "lost=1"][..], &["--fault: there is no fault lost: slow, rate_limited, fail"][..]),
        (&["--rate", "-1"], &["rate: -1 is not from 0 (no limit)"]),
        (&["--rate", "1", "--burst", "0"], &["burst: 0 is not from 1"]),
        (&["--slow", "fast"], &["--slow", "500ms"]),
        (&["--latency", "2d"], &["latency_ms: 172800000 is more than an hour"]),
    ] {
        folder.run(&[&["simulate", "model"], args].concat()).expect(2, words);
    }
}
