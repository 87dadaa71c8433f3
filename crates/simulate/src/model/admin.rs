//! What tests ask of the server: no limit, no fault and no key here.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::markers::{self, Effect};
use super::settings::Settings;
use super::{Call, Model};
use crate::serving::{Answer, Asked, Faults, Reply, Route, merge};

pub const ROUTES: &[Route<Model>] = &[
    Route {
        method: "GET",
        path: "/admin/faults",
        what: "How the server behaves now: limit, faults, seed.",
        act: |model, _| Answer::ok(&json!(model.settings)).into(),
    },
    Route {
        method: "PATCH",
        path: "/admin/faults",
        what: "Changes what is given and leaves the rest; `null` takes a fault away. `only` of a fault names the keys of the requests that it hits.",
        act: patch,
    },
    Route {
        method: "DELETE",
        path: "/admin/faults",
        what: "Nothing goes wrong any more, the queue of `/admin/next` is empty, and faults and markers count from the beginning.",
        act: |model, _| {
            model.settings.faults = Faults::default();
            model.tally.clear();
            model.marked.clear();
            model.next.clear();
            Answer::ok(&json!(model.settings)).into()
        },
    },
    Route {
        method: "POST",
        path: "/admin/next",
        what: "What happens to the next calls, one each: `[\"fail 503\", \"pass\", \"answer {\\\"a\\\": 1}\"]`, in the words of markers.",
        act: next,
    },
    Route {
        method: "GET",
        path: "/admin/calls",
        what: "The last 10000 calls: `seq`, `at_ms`, `idempotency_key`, `traceparent`, `body`, `effects`, `status`, `content`. `after` (a seq), `limit` (1000). `next` is the `after` of the next page.",
        act: |model, asked| {
            calls(model, asked).unwrap_or_else(|problem| Answer::bad_request(&problem)).into()
        },
    },
    Route {
        method: "DELETE",
        path: "/admin/calls",
        what: "Forgets them; `calls.jsonl` stays.",
        act: |model, _| {
            model.calls.forget();
            Answer::ok(&json!({})).into()
        },
    },
    Route {
        method: "GET",
        path: "/admin/stats",
        what: "How many of those calls there were, by status and by what went wrong.",
        act: |model, _| Answer::ok(&stats(model)).into(),
    },
];

fn patch(model: &mut Model, asked: &Asked<'_>) -> Reply {
    let merged = asked.request.json().and_then(|patch| merge(&model.settings, patch));
    let merged = merged.and_then(|settings: Settings| settings.check().map(|()| settings));
    match merged {
        Ok(settings) => {
            if (settings.rate, settings.burst) != (model.settings.rate, model.settings.burst) {
                model.requests = settings.bucket();
            }
            model.settings = settings;
            Answer::ok(&json!(model.settings)).into()
        }
        Err(problem) => Answer::bad_request(&problem).into(),
    }
}

fn next(model: &mut Model, asked: &Asked<'_>) -> Reply {
    let effects = asked.request.json().and_then(|body| {
        let texts = body.as_array().ok_or("the body is a list of texts")?;
        let effect = |text: &Value| markers::effect(text.as_str().ok_or("the body is a list of texts")?);
        texts.iter().map(effect).collect::<Result<Vec<Effect>, String>>()
    });
    match effects {
        Ok(effects) => {
            model.next.extend(effects);
            Answer::ok(&json!({ "queued": model.next.len() })).into()
        }
        Err(problem) => Answer::bad_request(&problem).into(),
    }
}

fn calls(model: &Model, asked: &Asked<'_>) -> Result<Answer, String> {
    asked.request.only(&["after", "limit"])?;
    let after = asked.request.number("after")?.unwrap_or(0);
    let limit = asked.request.number("limit")?.unwrap_or(1_000);
    if !(1..=10_000).contains(&limit) {
        return Err(format!("limit={limit}: from 1 to 10000"));
    }
    let mut found = model.calls().filter(|call| call.seq > after);
    let page: Vec<&Call> = found.by_ref().take(limit as usize).collect();
    let next = found.next().and(page.last()).map(|last| last.seq);
    Ok(Answer::ok(&json!({ "calls": page, "next": next })))
}

fn stats(model: &Model) -> Value {
    let (mut answers, mut effects): (BTreeMap<String, u64>, BTreeMap<&str, u64>) = Default::default();
    for call in model.calls() {
        let status = call.status.map_or_else(|| "cut".to_owned(), |status| status.to_string());
        *answers.entry(status).or_default() += 1;
        for effect in &call.effects {
            *effects.entry(effect).or_default() += 1;
        }
    }
    json!({ "calls": model.calls().count(), "answers": answers, "effects": effects })
}
