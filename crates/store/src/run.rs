//! Rows as callers see them: the run object of the API and the CLI is made here, once for all stores.

use std::sync::Arc;

use serde_json::{Map, Value, json};
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
    pub input: Value,
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Its place among the events of all runs, in the order of their commits.
    pub position: u64,
    pub run_id: String,
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
    pub failure: Option<Failure>,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
    pub output: Value,
    pub details: Map<String, Value>,
}

impl RunRow {
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

    fn item_counts(&self) -> Value {
        let mut counts = Map::new();
        for (kind, tally) in self.lifecycle.items.iter().zip(&self.run.tallies) {
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
            "error_code": self.failure.as_ref().map(|failure| &*failure.code),
            "error_msg": self.failure.as_ref().map(|failure| &*failure.message),
            "started_at": self.started_at.map(iso),
            "finished_at": self.finished_at.map(iso),
            "output": self.output,
            "details": self.details,
        })
    }
}

/// `2026-02-14T08:00:00.000Z`: always three decimals, so that text sorts as time does.
pub fn iso(time: Time) -> String {
    let Civil { year, month, day, hour, minute, second, micros } = Civil::of(time);
    let ms = micros / 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Reads RFC 3339, and what `datetime('now')` makes: a space for the T, no zone meaning UTC.
pub fn parse_time(text: &str) -> Option<Time> {
    let text = text.trim();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = text.get(range)?;
        if part.bytes().all(|byte| byte.is_ascii_digit()) { part.parse().ok() } else { None }
    };
    let separators = text.len() >= 19
        && text.is_ascii()
        && [(4, "-"), (7, "-"), (13, ":"), (16, ":")].iter().all(|(at, mark)| &text[*at..=*at] == *mark)
        && matches!(&text[10..11], "T" | "t" | " ");
    if !separators {
        return None;
    }
    let (fraction, zone) = split_fraction(&text[19..])?;
    let civil = Civil {
        year: number(0..4)?,
        month: u32::try_from(number(5..7)?).ok()?,
        day: u32::try_from(number(8..10)?).ok()?,
        hour: u32::try_from(number(11..13)?).ok()?,
        minute: u32::try_from(number(14..16)?).ok()?,
        second: u32::try_from(number(17..19)?).ok()?,
        micros: fraction,
    };
    Some(civil.time()? - waypost_kernel::Span::from_seconds(zone_seconds(zone)?))
}

fn split_fraction(rest: &str) -> Option<(u32, &str)> {
    let Some(digits) = rest.strip_prefix('.') else { return Some((0, rest)) };
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    let micros: String = digits[..count].chars().chain(std::iter::repeat('0')).take(6).collect();
    Some((micros.parse().ok().filter(|_| count > 0)?, &digits[count..]))
}

fn zone_seconds(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes() {
        [] | b"Z" | b"z" => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    let digits: String = zone[1..].chars().filter(|c| *c != ':').collect();
    let digits = if digits.len() == 2 { format!("{digits}00") } else { digits };
    let value: i64 = digits.parse().ok().filter(|_| digits.len() == 4)?;
    Some(sign * (value / 100 * 3_600 + value % 100 * 60))
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
