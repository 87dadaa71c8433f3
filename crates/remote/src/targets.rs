//! Targets of bulk changes, and what they are sent to.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use waypost_kernel::text::MAX_NAME_BYTES;
use waypost_kernel::{Failure, Span, Time};
use waypost_store::codec::token_text;
use waypost_store::{
    AddTargets, Admit, Admitted, Answered, DeadLetter, DeadLetterClass, DeadLetterFilter, DestinationRow,
    DiscardTargets, End, NewTarget, Preview, Result, RollBackTargets, RunRow, StoreError, TargetResult,
    Tried, WorkTargets, Worked, parse_time,
};

use super::RemoteStore;
use super::ask::{Ask, of_run, part};

fn code(failure: Option<&Failure>) -> Option<&str> {
    failure.map(|failure| &*failure.code)
}

fn words(failure: Option<&Failure>) -> Option<&str> {
    failure.map(|failure| &*failure.message)
}

fn new_target(target: &NewTarget) -> Value {
    json!({
        "key": target.key,
        "name": target.name,
        "before": target.before,
        "after": target.after,
        "destination": target.destination,
        "violation_code": code(target.violation.as_ref()),
        "violation_msg": words(target.violation.as_ref()),
        "max_retries": target.max_retries,
        "details": target.details,
    })
}

fn result(result: &TargetResult) -> Value {
    let (tried, failure, wait, answered) = match &result.tried {
        Tried::Applied => ("applied", None, None, None),
        Tried::Retry { failure, wait, answered } => ("retry", Some(failure), Some(*wait), Some(*answered)),
        Tried::Throttled { failure, wait, answered } => {
            ("throttled", Some(failure), Some(*wait), Some(*answered))
        }
        Tried::Failed { failure } => ("error", Some(failure), None, None),
        Tried::Refused { failure } => ("refused", Some(failure), None, None),
        Tried::Unsent { wait } => ("unsent", None, Some(*wait), None),
    };
    // Rather late than early: the store keeps milliseconds too.
    let ms = |wait: Span| wait.micros().saturating_add(999).div_euclid(1_000).clamp(0, MOST_MS);
    let mut object = json!({
        "key": result.key,
        "try_no": result.try_no,
        "tried": tried,
        "error_code": code(failure),
        "error_msg": words(failure),
        "wait_ms": wait.map(ms),
        "answered": answered,
    });
    if let Some(output) = &result.output {
        object["output"] = output.clone();
    }
    object
}

/// A year, which is the most that the server takes.
const MOST_MS: i64 = 366 * 86_400_000;

impl RemoteStore {
    pub(crate) async fn add_targets(&self, write: AddTargets) -> Result<Preview> {
        let body = json!({
            "at": write.at,
            "rows": write.rows,
            "targets": write.targets.iter().map(new_target).collect::<Vec<_>>(),
            "unchanged": write.unchanged,
            "cursor": write.cursor,
            "totals": write.totals,
            "last": write.last,
            "by": write.by,
        });
        let path = of_run(&write.run_id, "/targets")?;
        let answer = Ask::post(path, body).of(&write.tenant).send(self).await?;
        let details = serde_json::Map::from_iter([("preview".to_owned(), answer)]);
        Preview::of(&details).ok_or_else(|| self.unread("a preview"))
    }

    pub(crate) async fn work_targets(&self, write: WorkTargets) -> Result<Worked> {
        let (end, failure) = match &write.end {
            End::Later => ("later", None),
            End::WhenDone => ("when-done", None),
            End::Stop(failure) => ("stop", Some(failure)),
        };
        let body = json!({
            "lease_token": token_text(write.held.token),
            "results": write.results.iter().map(result).collect::<Vec<_>>(),
            "take": write.take,
            "give_up_after_ms": write.give_up_after.ms().clamp(0, MOST_MS),
            "end": end,
            "error_code": code(failure),
            "error_msg": words(failure),
            "by": write.by,
        });
        let path = of_run(&write.held.run_id, "/targets/work")?;
        let answer = Ask::post(path, body).send(self).await?;
        let time = |name: &str| answer[name].as_str().and_then(parse_time);
        let counts = answer["counts"].as_object().into_iter().flatten();
        let counts: BTreeMap<String, u32> = counts
            .filter_map(|(state, count)| Some((state.clone(), count.as_u64()?.try_into().ok()?)))
            .collect();
        let keys = answer["ignored"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(Worked {
            taken: self.items_of(&json!({ "items": answer["taken"] }))?,
            ignored: keys.map(str::to_owned).collect(),
            next_due: time("next_due"),
            counts,
            open: answer["open"].as_u64().and_then(|open| open.try_into().ok()).unwrap_or_default(),
            ended: match &answer["run"] {
                Value::Null => None,
                run => Some(self.row(run).await?),
            },
            renewed: match &answer["lease"] {
                Value::Null => None,
                lease => Some(self.renewed(lease)?),
            },
            now: time("now").ok_or_else(|| self.unread("what became of targets"))?,
        })
    }

    pub(crate) async fn discard_targets(&self, write: DiscardTargets) -> Result<u64> {
        let body = json!({
            "keys": write.keys,
            "error_code": write.code,
            "reason": write.reason,
            "by": write.by,
        });
        let path = of_run(&write.run_id, "/targets/discard")?;
        let answer = Ask::post(path, body).of(&write.tenant).send(self).await?;
        answer["discarded"].as_u64().ok_or_else(|| self.unread("a count"))
    }

    pub(crate) async fn roll_back_targets(&self, write: RollBackTargets) -> Result<RunRow> {
        let body = json!({ "lease_token": token_text(write.held.token), "keys": write.keys, "by": write.by });
        let path = of_run(&write.held.run_id, "/targets/roll-back")?;
        self.row(&Ask::post(path, body).send(self).await?).await
    }

    pub(crate) async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<DeadLetterClass>> {
        let mut query = Vec::new();
        for (name, value) in [("run_id", &filter.run_id), ("error_code", &filter.code)] {
            query.extend(value.as_ref().map(|value| format!("{name}={}", part(value))));
        }
        let path = format!("/v1/dlq?{}", query.join("&"));
        let answer = Ask::get(path.trim_end_matches('?')).of(&filter.tenant).send(self).await?;
        let class = |object: &Value| {
            let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
            DeadLetterClass {
                code: text("error_code"),
                count: object["count"].as_u64().unwrap_or_default(),
                rolled_back: object["of_rolled_back_runs"].as_u64().unwrap_or_default(),
                oldest_at: object["oldest_at"].as_str().and_then(parse_time),
                sample: DeadLetter { run_id: text("run_id"), key: text("key"), message: text("error_msg") },
            }
        };
        Ok(answer["classes"].as_array().into_iter().flatten().map(class).collect())
    }
}

/// The path of a destination's verb. A name that is no part of a path is not sent: `..` would be another one.
fn of_destination(name: &str, verb: &str) -> Result<String> {
    match name {
        "" => Err(StoreError::invalid("destination", "is empty")),
        "." | ".." => Err(StoreError::invalid("destination", "is no name")),
        long if long.len() > MAX_NAME_BYTES => {
            let message = format!("is {} bytes long; at most {MAX_NAME_BYTES} are allowed", long.len());
            Err(StoreError::invalid("destination", message))
        }
        name => Ok(format!("/v1/destinations/{}/{verb}", part(name))),
    }
}

impl RemoteStore {
    fn destination(&self, object: &Value) -> Result<DestinationRow> {
        DestinationRow::of_object(object).ok_or_else(|| self.unread("a destination"))
    }

    pub(crate) async fn admit(&self, ask: Admit) -> Result<Admitted> {
        let body = json!({
            "capacity_milli": ask.limit.capacity_milli,
            "rate_milli_per_s": ask.limit.rate_milli_per_s,
            "breaker_after": ask.limit.breaker.after,
            "pause_ms": ask.limit.breaker.pause.ms(),
            "probe_timeout_ms": ask.limit.breaker.probe_timeout.ms(),
            "calls": ask.calls,
            "cost_milli": ask.cost_milli,
        });
        let path = of_destination(&ask.destination, "admit")?;
        let answer = Ask::post(path, body).of(&ask.tenant).send(self).await?;
        let time = |name: &str| answer[name].as_i64().map(Time::from_micros);
        let granted = answer["granted"].as_u64().and_then(|granted| granted.try_into().ok());
        Ok(Admitted {
            granted: granted.ok_or_else(|| self.unread("permits"))?,
            is_probe: answer["is_probe"] == true,
            until: time("until_us"),
            now: time("now_us").ok_or_else(|| self.unread("permits"))?,
        })
    }

    pub(crate) async fn answered(&self, report: Answered) -> Result<DestinationRow> {
        let answers: Vec<Value> = report
            .answers
            .iter()
            .map(|answer| {
                json!({
                    "throttled": answer.throttled,
                    "retry_after_ms": answer.retry_after.map(|wait| wait.ms().clamp(0, MOST_MS)),
                    "available_milli": answer.reported.map(|told| told.available_milli),
                    "rate_milli_per_s": answer.reported.and_then(|told| told.rate_milli_per_s),
                    "capacity_milli": answer.reported.and_then(|told| told.capacity_milli),
                })
            })
            .collect();
        let body = json!({ "answers": answers, "unused_milli": report.unused_milli });
        let path = of_destination(&report.destination, "answers")?;
        self.destination(&Ask::post(path, body).of(&report.tenant).send(self).await?)
    }

    pub(crate) async fn pace_destination(
        &self,
        tenant: String,
        name: String,
        burst: bool,
    ) -> Result<DestinationRow> {
        let path = of_destination(&name, "pace")?;
        self.destination(&Ask::post(path, json!({ "burst": burst })).of(&tenant).send(self).await?)
    }

    pub(crate) async fn destinations(&self, tenant: Option<String>) -> Result<Vec<DestinationRow>> {
        let answer = Ask::get("/v1/destinations").only_of(tenant).send(self).await?;
        let rows = answer["destinations"].as_array().into_iter().flatten();
        rows.map(|row| self.destination(row)).collect()
    }
}
