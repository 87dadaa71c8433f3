//! The model's own routes: a call is read, what happens to it is gathered, then it is answered and kept.

use serde_json::{Value, json};

use super::answers::{Prompt, tokens};
use super::calls::Call;
use super::markers::{self, Effect};
use super::{FAULTS, Model, error};
use crate::serving::{Answer, Asked, Reply, RetryAfter, Route, hash};

pub const ROUTES: &[Route<Model>] = &[
    Route {
        method: "POST",
        path: "/v1/chat/completions",
        what: "OpenAI's: `model`, `messages`, `response_format` (`json_object`, `json_schema`), `max_tokens`, `n`, `stream`. Tools and the rest are taken and have no effect.",
        act: complete,
    },
    Route { method: "GET", path: "/v1/models", what: "The models that there are.", act: models },
    Route {
        method: "GET",
        path: "/v1/models/{name}",
        what: "One of them.",
        act: |model, asked| match model.named(asked.parts.first().copied().unwrap_or_default()) {
            Ok(name) => Answer::ok(&shown(&name)).into(),
            Err(answer) => answer.into(),
        },
    },
];

fn models(model: &mut Model, _: &Asked<'_>) -> Reply {
    let names = if model.models.is_empty() { vec!["simulated".to_owned()] } else { model.models.clone() };
    let data: Vec<Value> = names.iter().map(|name| shown(name)).collect();
    Answer::ok(&json!({ "object": "list", "data": data })).into()
}

fn shown(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "waypost" })
}

fn complete(model: &mut Model, asked: &Asked<'_>) -> Reply {
    let request = asked.request;
    let body = request.json().unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&request.body)));
    let mut turn = Turn::default();
    let reply = match model.effects(asked, &body, &mut turn) {
        Ok(prompt) => model.reply(asked, &prompt, &mut turn),
        Err(answer) => answer.into(),
    };
    let call = Call {
        seq: model.calls.next_seq(),
        at_ms: asked.now.unix_ms,
        idempotency_key: request.idempotency_key().map(str::to_owned),
        traceparent: request.header("traceparent").map(str::to_owned),
        body,
        effects: turn.names,
        status: status(&reply),
        content: turn.content,
    };
    if let Err(problem) = model.calls.push(call) {
        return error(500, "log", &format!("calls.jsonl cannot be written: {problem}")).into();
    }
    reply.held(model.settings.latency_ms + turn.longer_ms)
}

fn status(reply: &Reply) -> Option<u16> {
    match reply {
        Reply::Answer(answer) => Some(answer.status),
        Reply::Cut => None,
        Reply::Held { then, .. } => status(then),
    }
}

/// What is known of a call by the end of it.
#[derive(Debug, Default)]
struct Turn {
    effects: Vec<Effect>,
    /// Of what went wrong.
    names: Vec<String>,
    content: Option<String>,
    longer_ms: u64,
}

impl Turn {
    fn add(&mut self, name: &str, effect: Effect) {
        self.names.push(name.to_owned());
        self.effects.push(effect);
    }
}

impl Model {
    fn named(&self, name: &str) -> Result<String, Answer> {
        if self.models.is_empty() || self.models.iter().any(|it| it == name) {
            return Ok(name.to_owned());
        }
        let message = format!("The model `{name}` does not exist: {}", self.models.join(", "));
        Err(error(404, "model_not_found", &message))
    }

    /// From the queue, from markers, by chance. The limit comes before: who is refused has not been heard.
    fn effects(&mut self, asked: &Asked<'_>, body: &Value, turn: &mut Turn) -> Result<Prompt, Answer> {
        let key = asked.request.key();
        if let Some(Err(wait_s)) = self.requests.as_mut().map(|bucket| bucket.take(1.0, asked.now.elapsed_us))
        {
            turn.names.push("limit".to_owned());
            return Err(self.limited(asked, wait_s, &key));
        }
        let prompt =
            Prompt::read(body).map_err(|(_, problem)| error(400, "invalid_request_error", &problem))?;
        self.named(&prompt.model)?;
        if let Some(effect) = self.next.pop_front() {
            turn.add("next", effect);
        }
        let found = markers::find(&prompt.text).map_err(|problem| error(400, "bad_marker", &problem))?;
        for marker in found {
            let met = self.marked.entry(hash(0, &marker.text, &prompt.text)).or_default();
            *met = met.saturating_add(1);
            if marker.times.is_none_or(|times| *met <= times) {
                turn.add(&marker.text, marker.effect);
            }
        }
        for kind in FAULTS {
            if self.tally.hits(&self.settings.faults, self.settings.seed, kind, &key) {
                let effect = markers::effect(kind.name).map_err(|problem| error(500, "fault", &problem))?;
                turn.add(kind.name, effect);
            }
        }
        Ok(prompt)
    }

    fn limited(&self, asked: &Asked<'_>, wait_s: f64, key: &str) -> Answer {
        let answer = error(429, "rate_limit_exceeded", "Rate limit reached for requests");
        self.settings.retry_after.put(answer, wait_s, asked.now, self.settings.seed, key)
    }

    fn reply(&self, asked: &Asked<'_>, prompt: &Prompt, turn: &mut Turn) -> Reply {
        let key = asked.request.key();
        for effect in turn.effects.clone() {
            match effect {
                Effect::Slow(ms) => turn.longer_ms += ms.unwrap_or(self.settings.slow_ms),
                Effect::RateLimited(None) => return self.limited(asked, 1.0, &key).into(),
                Effect::RateLimited(Some(seconds)) => {
                    let answer = error(429, "rate_limit_exceeded", "Rate limit reached for requests");
                    return RetryAfter::Seconds.put(answer, seconds as f64, asked.now, 0, &key).into();
                }
                Effect::Fail(status) => {
                    let drawn = [500, 502, 503][(hash(self.settings.seed, "status", &key) % 3) as usize];
                    let message = "The server had an error while processing your request";
                    return error(status.unwrap_or(drawn), "simulated_failure", message).into();
                }
                Effect::Cut => return Reply::Cut,
                Effect::Garbage => return garbage().into(),
                Effect::Timeout => {
                    let late = error(504, "timeout", "The answer was held back");
                    return Reply::from(late).held(self.settings.hold_ms);
                }
                _ => {}
            }
        }
        let choices: Vec<(String, &str)> =
            (0..prompt.choices).map(|choice| self.said(prompt, choice, &turn.effects)).collect();
        turn.content = choices.first().map(|(content, _)| content.clone());
        completion(asked, prompt, &choices).into()
    }

    /// The content of a choice, and why it ends.
    fn said(&self, prompt: &Prompt, choice: u64, effects: &[Effect]) -> (String, &'static str) {
        let mut content = prompt.say(self.settings.seed, choice);
        let mut reason = "stop";
        for effect in effects {
            match effect {
                Effect::Answer(text) => content.clone_from(text),
                Effect::Prose => {
                    "Of course! Here is what you asked for, in my own words.".clone_into(&mut content);
                }
                Effect::Empty => content.clear(),
                Effect::Truncated => {
                    content = content.chars().take(content.chars().count() / 2).collect();
                    reason = "length";
                }
                _ => {}
            }
        }
        if let Some(max) = prompt.max_tokens.filter(|max| tokens(&content) > *max) {
            content = content.chars().take(max as usize * 4).collect();
            reason = "length";
        }
        (content, reason)
    }
}

fn garbage() -> Answer {
    let body = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>\n".to_owned();
    Answer { status: 200, content_type: "text/html", headers: Vec::new(), body }
}

fn completion(asked: &Asked<'_>, prompt: &Prompt, choices: &[(String, &str)]) -> Answer {
    let id = format!("chatcmpl-{:016x}", hash(0, &prompt.model, &prompt.text));
    let (asked_tokens, said_tokens) =
        (tokens(&prompt.text), choices.iter().map(|(content, _)| tokens(content)).sum::<u64>());
    let usage = json!({
        "prompt_tokens": asked_tokens,
        "completion_tokens": said_tokens,
        "total_tokens": asked_tokens + said_tokens,
    });
    let created = asked.now.unix_ms / 1_000;
    if prompt.streams {
        return stream(prompt, &id, created, choices, &usage);
    }
    let choices: Vec<Value> = choices
        .iter()
        .enumerate()
        .map(|(index, (content, reason))| {
            json!({
                "index": index,
                "message": { "role": "assistant", "content": content, "refusal": null },
                "logprobs": null,
                "finish_reason": reason,
            })
        })
        .collect();
    Answer::ok(&json!({
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": prompt.model,
        "choices": choices,
        "usage": usage,
        "system_fingerprint": "fp_simulated",
    }))
}

/// Server-sent events, a word each, all at once.
fn stream(prompt: &Prompt, id: &str, created: u64, choices: &[(String, &str)], usage: &Value) -> Answer {
    let mut body = String::new();
    let mut chunk = |choices: Value, usage: &Value| {
        let mut chunk = json!({
            "id": id, "object": "chat.completion.chunk", "created": created,
            "model": prompt.model, "choices": choices,
        });
        if prompt.streams_usage {
            chunk["usage"] = usage.clone();
        }
        body.push_str(&format!("data: {chunk}\n\n"));
    };
    for (index, (content, reason)) in choices.iter().enumerate() {
        let delta = |delta: Value, reason: Option<&str>| json!([{ "index": index, "delta": delta, "finish_reason": reason }]);
        chunk(delta(json!({ "role": "assistant", "content": "" }), None), &Value::Null);
        for word in content.split_inclusive(' ') {
            chunk(delta(json!({ "content": word }), None), &Value::Null);
        }
        chunk(delta(json!({}), Some(reason)), &Value::Null);
    }
    if prompt.streams_usage {
        chunk(json!([]), usage);
    }
    body.push_str("data: [DONE]\n\n");
    Answer { status: 200, content_type: "text/event-stream", headers: Vec::new(), body }
}
