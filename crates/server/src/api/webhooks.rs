//! `POST /webhooks/github`. Who sent a delivery is told by its signature alone, over the bytes as they came; the delivery's id
//! is not signed, so that what is known under one id makes no run under another.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use waypost_kernel::tenant::DEFAULT;
use waypost_schema::{Field, Kind, optional};
use waypost_store::{Message, RunRow};
use waypost_worker::webhooks::{BY, Delivery, Github, key_of};

use super::shapes::RECEIVED;
use super::{BODY_BYTES, Content, POST, Route, RouteResponse};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{
    IDEMPOTENCY_KEY_REUSED, INVALID_INPUT, INVALID_JSON, INVALID_QUERY, NOT_FOUND, Problem, UNAUTHENTICATED,
    UNAVAILABLE, UNSUPPORTED_MEDIA_TYPE,
};

const MAX_HEADER: usize = 200;
const SIGNATURE: Field = optional(
    "X-Hub-Signature-256",
    Kind::Text(MAX_HEADER),
    "`sha256=` and the HMAC of the body, in hexadecimal.",
);
const EVENT: Field =
    optional("X-GitHub-Event", Kind::Text(MAX_HEADER), "What happened: push, ping, release …");
const DELIVERY: Field =
    optional("X-GitHub-Delivery", Kind::Text(MAX_HEADER), "The delivery's id: the runs' idempotency key.");

pub const ROUTES: &[Route] = &[Route {
    path: "/webhooks/github",
    name: "receiveGithubWebhook",
    description: "A delivery of a GitHub webhook, as `[github]` of waypost.toml says. It is signed instead of bringing a token. \
                  Each rule of `[[github.on]]` that fits starts a run of its playbook; a delivery that comes again starts none.",
    required_role: RequiredRole::Nothing,
    headers: &[SIGNATURE, EVENT, DELIVERY],
    body_bytes: BODY_BYTES,
    is_raw: true,
    responses: &[
        RouteResponse {
            status: 202,
            description: "it is taken: the runs that it started, or why there are none",
            body: Content::Json(&RECEIVED),
        },
        RouteResponse {
            status: 200,
            description: "a ping, or a delivery that was known, with `Idempotency-Replayed: true`",
            body: Content::Json(&RECEIVED),
        },
    ],
    refuses: &[&UNAUTHENTICATED, &NOT_FOUND, &IDEMPOTENCY_KEY_REUSED],
    run: |call, asked| Box::pin(receive(call, asked.raw)),
    ..POST
}];

async fn receive(call: Call, body: Vec<u8>) -> Result {
    let Some(github) = call.app.options.github.clone() else {
        let message = "this server takes no GitHub webhooks: its waypost.toml has no [github]";
        return Err(Problem::new(&NOT_FOUND, message));
    };
    let counts = &call.app.metrics.webhooks;
    check_signature(&github, &call.headers, &body).inspect_err(|_| counts.count("refused"))?;
    let (event, id) = (named(&call, EVENT.name)?, named(&call, DELIVERY.name)?);
    if event == "ping" {
        counts.count("ping");
        return Ok(answer::json(200, &said(&id, "pong", &[])));
    }
    let catalog = call.store().lifecycles().await?.of_tenant(DEFAULT);
    let (headers, delivery) = (call.headers.clone(), id.clone());
    // The others are answered meanwhile.
    let asked = tokio::task::spawn_blocking(move || {
        let payload = Arc::new(payload(&headers, body)?);
        // What it says, whether it came as JSON or as a form.
        let digest = hex(&Sha256::digest(payload.to_string()));
        let runs = github.runs(&Delivery { id: delivery, event, payload }, &catalog);
        Ok((runs.map_err(|error| Problem::new(&INVALID_INPUT, error)), digest))
    });
    let gave_up = |_| Problem::new(&UNAVAILABLE, "the delivery could not be looked at; send it again");
    let refused = |problem: &Problem| {
        counts.count("refused");
        tracing::warn!(delivery = id, "a delivery started nothing: {}", problem.detail);
    };
    let (runs, digest) = asked.await.map_err(gave_up)?.inspect_err(refused)?;
    // Its key stands for what was delivered, whatever the rules make of that by now.
    let asked = format!("{BY} {digest}");
    if !matches!(&runs, Ok(runs) if !runs.is_empty())
        && let Some(known) = made_before(&call, &id, &asked).await
    {
        counts.count("known");
        return Ok(replayed(answer::json(200, &said(&id, "known", &[shown(&known, true)]))));
    }
    let mut runs = runs.inspect_err(refused)?;
    if runs.is_empty() {
        counts.count("ignored");
        return Ok(answer::json(202, &said(&id, "no rule fits", &[])));
    }
    runs.iter_mut().for_each(|run| run.asked = Some(asked.clone()));
    let message = Message { source: BY.to_owned(), id: id.clone(), digest };
    let first = call.app.store.receive(message).await?;
    if first.id != id {
        counts.count("known");
        let reason = format!("this content was delivered as {} before", first.id);
        return Ok(replayed(answer::json(200, &said(&id, &reason, &[]))));
    }
    let mut started = Vec::new();
    for made in call.store().enqueue(runs).await? {
        started.push(made?);
    }
    let made = started.iter().filter(|made| !made.replayed).count() as u64;
    call.app.metrics.enqueued.inc_by(made);
    counts.count(if made > 0 { "started" } else { "known" });
    let runs: Vec<Value> = started.iter().map(|made| shown(&made.run, made.replayed)).collect();
    Ok(match made {
        0 => replayed(answer::json(200, &said(&id, "known", &runs))),
        _ => answer::json(202, &said(&id, "started", &runs)),
    })
}

/// The first run of the same delivery, whose rule was changed or taken away since.
async fn made_before(call: &Call, id: &str, asked: &str) -> Option<RunRow> {
    let made = call.store().made_by(DEFAULT.to_owned(), key_of(id), asked.to_owned());
    made.await.ok().flatten()
}

fn shown(run: &RunRow, replayed: bool) -> Value {
    json!({ "run_id": run.id(), "status": run.status(), "replayed": replayed })
}

fn replayed(answer: answer::Answer) -> answer::Answer {
    answer::with(answer, "idempotency-replayed", "true")
}

fn said(delivery: &str, result: &str, runs: &[Value]) -> Value {
    json!({ "delivery": delivery, "result": result, "runs": runs })
}

/// Nothing of the body is looked at before this.
fn check_signature(github: &Github, headers: &HeaderMap, body: &[u8]) -> Result<()> {
    let secret = github.secret().map_err(|error| {
        tracing::error!("no delivery can be checked: {error}");
        Problem::new(&UNAVAILABLE, "the server cannot read the secret that deliveries are signed with")
    })?;
    let given = headers.get(SIGNATURE.name).and_then(|value| value.to_str().ok());
    if given.and_then(signature).is_some_and(|given| is_signed(secret.open(), body, &given)) {
        return Ok(());
    }
    let message = match given {
        None => "X-Hub-Signature-256 is missing: give the webhook the secret that github.secret names",
        Some(_) => "X-Hub-Signature-256 does not fit the body and the secret that github.secret names",
    };
    Err(Problem::new(&UNAUTHENTICATED, message))
}

/// In constant time.
fn is_signed(secret: &str, body: &[u8], signature: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return false };
    mac.update(body);
    mac.verify_slice(signature).is_ok()
}

fn signature(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("sha256=")?;
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..64).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn named(call: &Call, name: &'static str) -> Result<String> {
    let fits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let found = call.header(name).filter(fits).map(str::to_owned);
    found.ok_or_else(|| Problem::field(&INVALID_QUERY, name, "must be there, in visible ASCII characters"))
}

/// JSON, or the form with JSON in its `payload` that a webhook sends by default.
fn payload(headers: &HeaderMap, body: Vec<u8>) -> Result<Value> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let text = if kind.eq_ignore_ascii_case("application/json") {
        body
    } else if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let unfit = || Problem::field(&INVALID_JSON, "payload", "is missing, or not UTF-8");
        let form = std::str::from_utf8(&body).map_err(|_| unfit())?;
        let given = form.split('&').find_map(|pair| pair.strip_prefix("payload=")).ok_or_else(unfit)?;
        let given = given.replace('+', " ");
        let decoded = percent_encoding::percent_decode_str(&given).decode_utf8().map_err(|_| unfit())?;
        decoded.into_owned().into_bytes()
    } else {
        let message = format!(
            "Content-Type is {kind:?}; it must be application/json or application/x-www-form-urlencoded"
        );
        return Err(Problem::new(&UNSUPPORTED_MEDIA_TYPE, message));
    };
    let unfit = |error: serde_json::Error| Problem::field(&INVALID_JSON, "body", &error.to_string());
    let payload: Value = serde_json::from_slice(&text).map_err(unfit)?;
    match payload.is_object() {
        true => Ok(payload),
        false => Err(Problem::field(&INVALID_INPUT, "body", "must be an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves D10: the example of GitHub's documentation on validating deliveries
    #[test]
    fn the_published_example_is_signed() {
        let secret = "It's a Secret to Everybody";
        let given = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let given = signature(given).expect("a signature");
        assert!(is_signed(secret, b"Hello, World!", &given));
        assert!(!is_signed(secret, b"Hello, World?", &given));
        assert!(!is_signed("another", b"Hello, World!", &given));
    }

    #[test]
    fn what_is_no_signature_is_none() {
        let right = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        for text in ["", "sha256=", right, &format!("sha1={right}"), &format!("sha256={right}0"), "sha256=é"]
        {
            assert_eq!(signature(text), None, "{text}");
        }
        assert_eq!(signature(&format!("sha256={}", "+1".repeat(32))), None);
    }
}
