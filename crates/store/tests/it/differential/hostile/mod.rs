//! Every text that a verb takes, with what people and programs put there by mistake or on purpose: each store refuses the
//! same, or cleans it in the same way, and no text makes a database seem to be gone.

mod access;
mod client;
mod schedules;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::text::{MAX_ERROR_CHARS, MAX_LINE_BYTES, MAX_NAME_BYTES, MAX_REASON_CHARS};
use waypost_store::Result;

use super::normal::error;
use super::side::Side;
use crate::conformance::{Opened, open_memory, open_postgres, open_sqlite};

/// A request with a text in one place.
type Ask = for<'s> fn(&'s mut Side, String) -> Pin<Box<dyn Future<Output = Value> + 's>>;

/// What is asked, by name.
type Asks = Vec<(&'static str, Ask)>;

macro_rules! table {
    ($($name:literal: |$side:ident, $text:ident| $asked:expr;)+) => {
        vec![$(($name, |$side, $text| Box::pin(async move { $asked }))),+]
    };
}
use table;

fn texts() -> Vec<String> {
    vec![
        String::new(),
        "a\0b".into(),
        // Terminal escapes, a bell, line ends, and C1 controls.
        " \t\u{1b}[31mred\u{1b}[0m\u{7}\r\nnext\u{85}\u{9b}2J\n".into(),
        // Right to left, invisible, no character at all, out of the basic plane, half a pair as JSON writes it; and quotes.
        "\u{202e}abc\u{2066}\u{200b}\u{feff}\u{ffff}\u{fffd}\u{1f600}\u{10ffff} \\ud800 '; DROP -- \"%_\\ {\"a\": 1} $1 ?1".into(),
        "n".repeat(MAX_NAME_BYTES),
        // One byte too long, and the last character is cut in two.
        format!("{}é", "n".repeat(MAX_NAME_BYTES - 1)),
        "é".repeat(MAX_REASON_CHARS + 1),
        "\u{1f600}z".repeat(150_000),
    ]
}

fn asks() -> Asks {
    [client::asks(), worker::asks(), schedules::asks(), access::asks()].concat()
}

impl Side {
    fn answer<T>(&mut self, answer: Result<T>, see: impl FnOnce(&mut Side, T) -> Value) -> Value {
        match answer {
            Ok(found) => see(self, found),
            Err(refused) => error(&refused, &self.ids()),
        }
    }
}

/// A text of 300,000 characters says no more than its beginning and its length.
fn short(value: &Value) -> String {
    let text = value.to_string();
    let shown: String = text.chars().take(400).collect();
    if shown.len() < text.len() { format!("{shown}… ({} bytes)", text.len()) } else { shown }
}

async fn differences(open: impl AsyncFn() -> Opened) -> Vec<String> {
    let (oracle, _) = open_memory().await;
    let (store, _lives) = open().await;
    let (mut one, mut other) = (Side::new(oracle), Side::new(store));
    let mut found = Vec::new();
    for (name, ask) in asks() {
        for (at, text) in texts().into_iter().enumerate() {
            let (expected, answer) = (ask(&mut one, text.clone()).await, ask(&mut other, text.clone()).await);
            let fits = match text.contains('\0') {
                true => nothing(&expected) == nothing(&answer),
                false => expected == answer,
            };
            if !fits {
                let (expected, answer) = (short(&expected), short(&answer));
                found.push(format!("{name}, text {at}:\n  expected {expected}\n  found    {answer}"));
            }
            if answer.to_string().contains("DATABASE_UNAVAILABLE") {
                found.push(format!("{name}, text {at}: {}", short(&answer)));
            }
        }
    }
    for (expected, left) in one.everything().await.iter().zip(&other.everything().await) {
        if expected != left {
            found.push(format!("in the end:\n  expected {}\n  found    {}", short(expected), short(left)));
        }
        found.extend(unfit(left, ""));
    }
    let verified = other.store.verify(Arc::new(|_, _| {})).await.unwrap();
    found.extend(verified.differences);
    found
}

/// A name that PostgreSQL cannot hold is looked for in vain, or refused: it takes all the same that nothing is there.
fn nothing(answer: &Value) -> Value {
    match answer {
        Value::Object(told) if matches!(told.get("code"), Some(code) if code == "NOT_FOUND" || code == "INVALID_INPUT") => {
            Value::Null
        }
        Value::Array(answers) if answers.is_empty() => Value::Null,
        Value::Array(answers) => answers.iter().map(nothing).collect(),
        found if *found == json!(0) || *found == json!(false) => Value::Null,
        found => found.clone(),
    }
}

/// What should not have been stored: a NUL, or a text that is longer than its limit.
fn unfit(value: &Value, key: &str) -> Vec<String> {
    match value {
        Value::String(text) => {
            let (bytes, chars) = (text.len(), text.chars().count());
            let too_long = match key {
                "by" | "claimed_by" | "error_code" | "name" | "key" | "queue" | "tenant" => {
                    bytes > MAX_NAME_BYTES
                }
                "error_msg" => chars > MAX_ERROR_CHARS,
                "reason" => chars > MAX_REASON_CHARS,
                "message" => chars > MAX_LINE_BYTES,
                _ => false,
            };
            let is_unfit = too_long || text.contains('\0');
            is_unfit
                .then(|| format!("{key} of {chars} characters: {}", short(&json!(text))))
                .into_iter()
                .collect()
        }
        Value::Array(values) => values.iter().flat_map(|value| unfit(value, key)).collect(),
        Value::Object(members) => members.iter().flat_map(|(key, value)| unfit(value, key)).collect(),
        _ => Vec::new(),
    }
}

fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

// proves X10: what comes in is refused with a stable code, what handlers put out is cleaned, whichever store it is
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_takes_texts_as_the_oracle_does() {
    assert_none(&differences(open_sqlite).await);
}

// proves X10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_takes_texts_as_the_oracle_does() {
    assert_none(&differences(open_postgres).await);
}
