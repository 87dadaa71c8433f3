//! Rows as they travel between a server and its own workers and command line: the public objects, and beside them what
//! only the engine looks at. Never a token: who holds a run was given its own by the claim.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::item::Role;
use waypost_kernel::run::Lease;
use waypost_kernel::tally::{Tallies, Tally};
use waypost_kernel::{Catalog, Failure, Lifecycle, Refusal, Run, Span, Time, Token};

use crate::codec::{intent_from, intent_json};
use crate::error::StoreError;
use crate::run::{EventRow, ItemRow, RunRow, parse_time, shared};
pub use crate::schedule_wire::{execution_from, scope_from, summary_from};
use crate::verbs::{Pause, QueueRow};

/// Stands for a token that this side does not have.
const UNKNOWN: Token = Token(0);

/// The member `engine` of a run object.
pub fn engine(row: &RunRow) -> Value {
    let run = &row.run;
    json!({
        "last_command": &*run.last_command,
        "lease_ms": run.lease.as_ref().map(|lease| lease.length.ms()),
        "ended": run.ended_by.is_some(),
        "intent": run.intent.as_ref().map(|intent| intent_json(intent, &row.lifecycle)),
        "owes_cleanup": run.owes_cleanup,
        "cleanup_failed": run.cleanup_failed,
        "operating": run.operating,
        "reentrant": run.reentrant,
        "resolved": run.resolved,
        "forced": run.forced,
        "staying": run.tallies.iter().map(|tally| json!(tally.staying)).collect::<Vec<_>>(),
    })
}

/// A run object that has its `engine`.
pub fn row_from(object: &Value, catalog: &Catalog) -> Option<RunRow> {
    let lifecycle = catalog.get(object["lifecycle"].as_str()?, number(&object["version"])?)?.clone();
    let run = run_from(object, &lifecycle)?;
    Some(RunRow {
        run,
        tenant: object["tenant"].as_str()?.to_owned(),
        queue: object["queue"].as_str()?.to_owned(),
        priority: object["priority"].as_i64()?.try_into().ok()?,
        schedule_at: time(&object["schedule_at"]),
        concurrency_key: text(&object["concurrency_key"]),
        correlation_id: text(&object["correlation_id"]),
        idempotency_key: text(&object["idempotency_key"]),
        parent_run_id: text(&object["parent_run_id"]),
        retry_of: text(&object["retry_of"]),
        playbook: text(&object["playbook"]),
        carried: Some(object["carried"].clone()).filter(|carried| !carried.is_null()),
        input: object["input"].clone().into(),
        metadata: shared(map(&object["metadata"])),
        details: shared(map(&object["details"])),
        lifecycle,
    })
}

fn run_from(object: &Value, lifecycle: &Arc<Lifecycle>) -> Option<Run> {
    let engine = object.get("engine")?;
    let is = |name: &str| engine[name] == true;
    let lease = time(&object["stale_after"]).map(|until| Lease {
        token: UNKNOWN,
        worker: object["claimed_by"].as_str().map(Into::into),
        length: Span::from_ms(engine["lease_ms"].as_i64().unwrap_or_default()),
        until,
    });
    Some(Run {
        id: object["run_id"].as_str()?.into(),
        state: lifecycle.state_named(object["status"].as_str()?)?,
        seq: object["seq"].as_u64()?,
        attempt: number(&object["attempt"])?,
        max_attempts: number(&object["max_attempts"])?,
        take_overs: number(&object["take_overs"])?,
        fence: object["fence"].as_u64()?,
        lease,
        ended_by: is("ended").then_some(UNKNOWN),
        last_command: engine["last_command"].as_str()?.into(),
        intent: intent_from(&engine["intent"], lifecycle),
        owes_cleanup: is("owes_cleanup"),
        cleanup_failed: is("cleanup_failed"),
        operating: is("operating"),
        reentrant: is("reentrant"),
        reason: object["reason"].as_str().map(Into::into),
        resolved: is("resolved"),
        forced: is("forced"),
        failure: failure(object),
        created_at: time(&object["queued_at"])?,
        started_at: time(&object["started_at"]),
        finished_at: time(&object["finished_at"]),
        available_at: time(&object["available_at"]),
        expires_at: time(&object["expires_at"]),
        tallies: tallies(object, engine, lifecycle),
    })
}

fn tallies(object: &Value, engine: &Value, lifecycle: &Lifecycle) -> Tallies {
    let of = |(place, kind): (usize, &Arc<Lifecycle>)| {
        let mut tally = Tally::new(kind);
        let counts = &object["items"][&*kind.name];
        for (at, state) in kind.states.iter().enumerate() {
            tally.by_state[at] = number(&counts[&*state.name]).unwrap_or_default();
            tally.staying[at] = number(&engine["staying"][place][at]).unwrap_or_default();
        }
        tally
    };
    lifecycle.items.iter().enumerate().map(of).collect()
}

pub fn event_from(object: &Value) -> Option<EventRow> {
    let words = |name: &str| object[name].as_str().map(str::to_owned);
    Some(EventRow {
        position: object["position"].as_u64()?,
        run_id: words("run_id")?,
        tenant: words("tenant")?,
        lifecycle: words("lifecycle")?,
        seq: object["seq"].as_u64()?,
        at: time(&object["at"])?,
        command: words("command")?,
        from: words("from"),
        to: words("to")?,
        actor: words("actor")?,
        by: words("by")?,
        level: words("level")?,
        message: words("message")?,
        payload: object["payload"].clone(),
    })
}

pub fn item_from(object: &Value) -> Option<ItemRow> {
    let words = |name: &str| object[name].as_str().map(str::to_owned);
    Some(ItemRow {
        kind: words("kind")?,
        key: words("key")?,
        name: words("name")?,
        status: words("status")?,
        attempts: number(&object["attempts"])?,
        max_retries: number(&object["max_retries"])?,
        try_no: number(&object["try_no"])?,
        progress: number(&object["progress"])?.try_into().ok()?,
        not_before: time(&object["not_before"]),
        discarded: object["discarded"] == true,
        role: object["role"].as_str().and_then(Role::named).unwrap_or_default(),
        failure: failure(object),
        started_at: time(&object["started_at"]),
        finished_at: time(&object["finished_at"]),
        output: object["output"].clone(),
        details: map(&object["details"]),
    })
}

impl QueueRow {
    pub fn object(&self) -> Value {
        json!({
            "queue": self.name,
            "ready": self.ready,
            "scheduled": self.scheduled,
            "held": self.held,
            "oldest_ready_at": self.oldest_ready_at.map(crate::iso),
            "at_most": self.at_most,
            "paused": self.paused.as_ref().map(|pause| json!({
                "by": pause.by,
                "reason": pause.reason,
                "at": pause.at.map(crate::iso),
            })),
        })
    }
}

pub fn queue_from(object: &Value) -> Option<QueueRow> {
    let paused = &object["paused"];
    Some(QueueRow {
        name: object["queue"].as_str()?.to_owned(),
        ready: object["ready"].as_u64()?,
        scheduled: object["scheduled"].as_u64()?,
        held: object["held"].as_u64()?,
        oldest_ready_at: time(&object["oldest_ready_at"]),
        at_most: number(&object["at_most"]),
        paused: paused.is_object().then(|| Pause {
            by: text(&paused["by"]).unwrap_or_default(),
            reason: text(&paused["reason"]).unwrap_or_default(),
            at: time(&paused["at"]),
        }),
    })
}

/// The error that a problem document was made of.
pub fn error_from(problem: &Value) -> Option<StoreError> {
    let code = problem["code"].as_str()?;
    let detail = text(&problem["detail"]).unwrap_or_default();
    if let Some(current) = problem["current"].as_str() {
        let code = waypost_kernel::Code::ALL.into_iter().find(|known| known.name() == code)?;
        let names = problem["allowed"].as_array().into_iter().flatten();
        let guard = problem["guard"].as_str();
        let refusal = Refusal {
            code,
            message: detail,
            current: current.into(),
            requested: text(&problem["requested"]).unwrap_or_default(),
            allowed: names.filter_map(|name| name.as_str().map(Into::into)).collect(),
            guard: waypost_kernel::Guard::ALL.into_iter().find(|known| Some(known.name()) == guard),
            field: FIELDS.into_iter().find(|known| Some(*known) == problem["field"].as_str()),
        };
        return Some(refusal.into());
    }
    Some(match code {
        "NOT_FOUND" => {
            let what = problem["what"].as_str().unwrap_or_default();
            let what = THINGS.into_iter().find(|known| *known == what)?;
            StoreError::NotFound { what, id: text(&problem["id"])? }
        }
        "INVALID_INPUT" | "INVALID_QUERY" | "INVALID_JSON" | "TOO_LARGE" => {
            let field = text(&problem["field"]);
            match field
                .and_then(|field| Some((detail.strip_prefix(&format!("{field}: "))?.to_owned(), field)))
            {
                Some((message, field)) => StoreError::Invalid { field, message },
                None => {
                    let (field, message) = detail.split_once(": ").unwrap_or(("request", &detail));
                    StoreError::invalid(field, message)
                }
            }
        }
        "IDEMPOTENCY_KEY_REUSED" => StoreError::KeyReused {
            key: text(&problem["idempotency_key"])?,
            run_id: text(&problem["run_id"])?,
        },
        "UNAUTHENTICATED" | "FORBIDDEN" | "CROSS_ORIGIN" => StoreError::Denied(detail),
        "PRECONDITION_FAILED" => {
            StoreError::Changed { run_id: text(&problem["run_id"])?, seq: problem["seq"].as_u64()? }
        }
        "DATABASE_UNUSABLE" => StoreError::Unusable(detail),
        "DATABASE_UNAVAILABLE" => StoreError::Unavailable(detail),
        _ => return None,
    })
}

/// What refusals and errors name; they hold these words for ever, so they are not read from the wire.
const FIELDS: [&str; 4] = ["ttl", "status", "items", "failing"];
const THINGS: [&str; 7] = ["run", "queue", "lifecycle", "token", "item", "schedule", "execution"];

fn failure(object: &Value) -> Option<Failure> {
    Some(Failure::new(object["error_code"].as_str()?, object["error_msg"].as_str()?))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn time(value: &Value) -> Option<Time> {
    parse_time(value.as_str()?)
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64()?.try_into().ok()
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
