//! Rows as callers see them: the run object of the API and the CLI is made here, once for all stores.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::Lifecycle;
use waypost_kernel::run::Want;
use waypost_kernel::time::Civil;
use waypost_kernel::{Failure, Run, Time};

/// What the kernel decides on, and what is stored beside it.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub run: Run,
    pub lifecycle: Arc<Lifecycle>,
    pub tenant: String,
    pub queue: String,
    pub priority: i16,
    pub schedule_at: Option<Time>,
    pub concurrency_key: Option<String>,
    pub correlation_id: Option<String>,
    pub idempotency_key: Option<String>,
    pub parent_run_id: Option<String>,
    pub retry_of: Option<String>,
    pub playbook: Option<String>,
    /// `{"command": […], "directory": "…", "retries": n}`: what `run start -- COMMAND` brings along.
    pub carried: Option<Value>,
    pub input: Arc<Value>,
    pub metadata: Arc<Map<String, Value>>,
    pub details: Arc<Map<String, Value>>,
}

/// Most runs have none of it, and share that.
pub(crate) fn shared(members: Map<String, Value>) -> Arc<Map<String, Value>> {
    static NONE: LazyLock<Arc<Map<String, Value>>> = LazyLock::new(Arc::default);
    if members.is_empty() { NONE.clone() } else { Arc::new(members) }
}

#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Its place among the events of all runs, in the order of their commits.
    pub position: u64,
    pub run_id: String,
    /// Of its run.
    pub tenant: String,
    pub lifecycle: String,
    pub seq: u64,
    pub at: Time,
    pub command: String,
    pub from: Option<String>,
    pub to: String,
    pub actor: String,
    pub by: String,
    pub level: String,
    pub message: String,
    pub payload: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ItemRow {
    pub kind: String,
    pub key: String,
    pub name: String,
    pub status: String,
    pub attempts: u32,
    pub max_retries: u32,
    pub try_no: u32,
    pub progress: u8,
    pub not_before: Option<Time>,
    pub discarded: bool,
    pub role: Role,
    pub failure: Option<Failure>,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
    pub output: Value,
    pub details: Map<String, Value>,
}

impl RunRow {
    /// A row to be filled column by column.
    pub(crate) fn blank(lifecycle: Arc<Lifecycle>, state: waypost_kernel::StateId) -> RunRow {
        let none: Arc<str> = "".into();
        let run = Run {
            id: none.clone(),
            state,
            seq: 0,
            attempt: 0,
            max_attempts: 0,
            take_overs: 0,
            fence: 0,
            lease: None,
            ended_by: None,
            last_command: none,
            intent: None,
            requires_cleanup: false,
            cleanup_failed: false,
            operating: false,
            reentrant: false,
            reason: None,
            resolved: false,
            forced: false,
            failure: None,
            created_at: Time::default(),
            started_at: None,
            finished_at: None,
            available_at: None,
            expires_at: None,
            tallies: lifecycle.no_items.clone(),
        };
        RunRow {
            run,
            lifecycle,
            tenant: String::new(),
            queue: String::new(),
            priority: 0,
            schedule_at: None,
            concurrency_key: None,
            correlation_id: None,
            idempotency_key: None,
            parent_run_id: None,
            retry_of: None,
            playbook: None,
            carried: None,
            input: Arc::new(Value::Null),
            metadata: shared(Map::new()),
            details: shared(Map::new()),
        }
    }

    pub fn id(&self) -> &str {
        &self.run.id
    }

    pub fn status(&self) -> &str {
        &self.lifecycle.state(self.run.state).name
    }

    pub fn phase(&self) -> waypost_kernel::Phase {
        self.lifecycle.phase(self.run.state)
    }

    pub fn outcome(&self) -> Option<waypost_kernel::Outcome> {
        self.lifecycle.state(self.run.state).outcome
    }

    /// The run object: what `GET /v1/runs/{id}` and `run show -o json` print.
    pub fn object(&self) -> Value {
        let run = &self.run;
        let lease = run.lease.as_ref();
        let intent = run.intent.as_ref();
        json!({
            "run_id": self.id(),
            "tenant": self.tenant,
            "lifecycle": &*self.lifecycle.name,
            "version": self.lifecycle.version,
            "status": self.status(),
            "phase": self.phase().name(),
            "outcome": self.outcome().map(waypost_kernel::Outcome::name),
            "queue": self.queue,
            "priority": self.priority,
            "attempt": run.attempt,
            "max_attempts": run.max_attempts,
            "take_overs": run.take_overs,
            "seq": run.seq,
            "claimed_by": lease.and_then(|lease| lease.worker.as_deref()),
            "fence": run.fence,
            "stale_after": lease.map(|lease| iso(lease.until)),
            "queued_at": iso(run.created_at),
            "started_at": run.started_at.map(iso),
            "finished_at": run.finished_at.map(iso),
            "schedule_at": self.schedule_at.map(iso),
            "available_at": run.available_at.map(iso),
            "expires_at": run.expires_at.map(iso),
            "concurrency_key": self.concurrency_key,
            "correlation_id": self.correlation_id,
            "idempotency_key": self.idempotency_key,
            "parent_run_id": self.parent_run_id,
            "retry_of": self.retry_of,
            "playbook": self.playbook,
            "carried": self.carried,
            "error_code": run.failure.as_ref().map(|failure| &*failure.code),
            "error_msg": run.failure.as_ref().map(|failure| &*failure.message),
            "reason": run.reason.as_deref(),
            "intent": intent.map(|intent| intent.want.command()),
            "cancel_requested": intent.is_some_and(|intent| intent.want == Want::Cancel),
            "input": self.input,
            "metadata": self.metadata,
            "details": self.details,
            "items": self.item_counts(),
            "allowed": waypost_kernel::allowed(&self.lifecycle, run),
        })
    }

    /// How many items it has, of all kinds.
    pub(crate) fn item_count(&self) -> usize {
        self.run.tallies.iter().flat_map(|tally| &tally.by_state).sum::<u32>() as usize
    }

    fn item_counts(&self) -> Value {
        let mut counts = Map::new();
        for (kind, tally) in self.lifecycle.items.iter().zip(&*self.run.tallies) {
            let states = kind.states.iter().zip(&tally.by_state).filter(|(_, count)| **count > 0);
            let by_status: Map<String, Value> =
                states.map(|(state, count)| (state.name.to_string(), json!(count))).collect();
            if !by_status.is_empty() {
                counts.insert(kind.name.to_string(), Value::Object(by_status));
            }
        }
        Value::Object(counts)
    }
}

impl EventRow {
    pub fn object(&self) -> Value {
        json!({
            "event_id": format!("evt-{}", self.position),
            "position": self.position,
            "run_id": self.run_id,
            "tenant": self.tenant,
            "lifecycle": self.lifecycle,
            "seq": self.seq,
            "at": iso(self.at),
            "command": self.command,
            "from": self.from,
            "to": self.to,
            "actor": self.actor,
            "by": self.by,
            "level": self.level,
            "message": self.message,
            "payload": self.payload,
        })
    }
}

impl ItemRow {
    pub fn object(&self) -> Value {
        json!({
            "kind": self.kind,
            "key": self.key,
            "name": self.name,
            "status": self.status,
            "attempts": self.attempts,
            "max_retries": self.max_retries,
            "try_no": self.try_no,
            "progress": self.progress,
            "not_before": self.not_before.map(iso),
            "discarded": self.discarded,
            "role": self.role.name(),
            "error_code": self.failure.as_ref().map(|failure| &*failure.code),
            "error_msg": self.failure.as_ref().map(|failure| &*failure.message),
            "started_at": self.started_at.map(iso),
            "finished_at": self.finished_at.map(iso),
            "output": self.output,
            "details": self.details,
        })
    }
}

/// `2026-02-14T08:00:00.000Z`: always three decimals, so that text sorts as time does. Written by hand: every row has
/// half a dozen of these, and the formatting machinery took a tenth of a claim.
pub fn iso(time: Time) -> String {
    let Civil { year, month, day, hour, minute, second, micros } = Civil::of(time);
    if !(0..=9_999).contains(&year) {
        return time.to_string();
    }
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: usize, digits: usize, mut value: u32| {
        for place in (at..at + digits).rev() {
            text[place] = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    put(0, 4, year as u32);
    put(5, 2, month);
    put(8, 2, day);
    put(11, 2, hour);
    put(14, 2, minute);
    put(17, 2, second);
    put(20, 3, micros / 1_000);
    String::from_utf8_lossy(&text).into_owned()
}

/// As [`Time::parse`] reads it.
pub fn parse_time(text: &str) -> Option<Time> {
    Time::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_forms_that_people_and_databases_write() {
        let expected = parse_time("2026-02-14T08:00:00.000Z").unwrap_or_default();
        assert_eq!(iso(expected), "2026-02-14T08:00:00.000Z");
        for text in [
            "2026-02-14 08:00:00",
            "2026-02-14T10:00:00+02:00",
            "2026-02-14T06:30:00.0-0130",
            "2026-02-14 08:00:00+00",
        ] {
            assert_eq!(parse_time(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "2026-02-14",
            "2026-02-30T00:00:00Z",
            "2026-02-14T08:00:00.Z",
            "2026-02-14T08:00:00X",
            "yesterday",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
