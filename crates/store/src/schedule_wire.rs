//! Schedules as they travel between a server and its own command line.

use serde_json::{Value, json};
use waypost_kernel::Time;

use crate::run::{RunRow, iso, parse_time};
use crate::schedule_reads::{ExecutionRow, ScheduleSummary};
use crate::schedules::{Counts, ScheduleRow, ScopeRow};
use crate::verbs::Pause;

/// Of the object that the API shows.
pub fn summary_from(object: &Value) -> Option<ScheduleSummary> {
    let mut counts = Counts::from_json(&object["skipped"]);
    counts.add(&Counts::from_json(&object["claims"]));
    counts.succeeded = object["succeeded"].as_u64()?;
    counts.failed = object["failed_unretried"].as_u64()?;
    Some(ScheduleSummary {
        row: row_from(object)?,
        scopes: object["scopes"].as_u64()?,
        counts,
        last_plan: time(&object["last_plan"]),
        last_status: text(&object["last_status"]),
        last_success: time(&object["last_success"]),
        running: object["running"].as_u64()?,
        stale: object["running_stale"].as_u64()?,
    })
}

fn row_from(object: &Value) -> Option<ScheduleRow> {
    let paused = &object["paused"];
    Some(ScheduleRow {
        name: text(&object["name"])?,
        definition: object["definition"].clone(),
        folder: text(&object["folder"])?,
        hash: text(&object["hash"])?,
        timing: text(&object["timing"])?,
        carried: object["applied"] == true,
        paused: paused.is_object().then(|| Pause {
            by: text(&paused["by"]).unwrap_or_default(),
            reason: text(&paused["reason"]).unwrap_or_default(),
            at: time(&paused["at"]),
        }),
        updated_at: time(&object["updated_at"])?,
    })
}

impl ScopeRow {
    pub fn object(&self) -> Value {
        json!({
            "scope_kind": self.kind,
            "scope_id": self.id,
            "planned_through": self.through.map(iso),
            "counts_since": self.since.map(iso),
            "looked_at_next": self.wake_at.map(iso),
            "failures": self.failures,
            "listed": !self.retired,
            "last_plan": self.last_plan.map(iso),
            "last_status": self.last_status,
            "last_success": self.last_success.map(iso),
            "running": self.running,
            "running_stale": self.stale,
            "counts": self.counts.to_json(),
        })
    }
}

pub fn scope_from(object: &Value) -> Option<ScopeRow> {
    Some(ScopeRow {
        kind: text(&object["scope_kind"])?,
        id: text(&object["scope_id"])?,
        through: time(&object["planned_through"]),
        since: time(&object["counts_since"]),
        wake_at: time(&object["looked_at_next"]),
        failures: u32::try_from(object["failures"].as_u64()?).ok()?,
        retired: object["listed"] == false,
        counts: Counts::from_json(&object["counts"]),
        last_plan: time(&object["last_plan"]),
        last_status: text(&object["last_status"]),
        last_success: time(&object["last_success"]),
        running: object["running"].as_u64()?,
        stale: object["running_stale"].as_u64()?,
    })
}

/// `run` is read by whoever knows the lifecycles.
pub fn execution_from(object: &Value, run: Option<RunRow>) -> Option<ExecutionRow> {
    Some(ExecutionRow {
        schedule: text(&object["schedule"])?,
        kind: text(&object["scope_kind"])?,
        id: text(&object["scope_id"])?,
        plan: time(&object["plan_time"])?,
        manual: text(&object["manual"]),
        by: text(&object["by"]),
        run,
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn time(value: &Value) -> Option<Time> {
    parse_time(value.as_str()?)
}
