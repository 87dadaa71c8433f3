//! Verbs that only look.

use comfy_table::Cell;
use serde_json::{Value, json};
use waypost_kernel::Time;
use waypost_kernel::schedule::{Policy, Timing, clock_change, in_words};
use waypost_store::{Counts, ExecutionFilter, ExecutionRow, ScheduleRow, ScopeRow, Store, iso};
use waypost_worker::schedules::Schedule;

use super::{find, typed};
use crate::output::{Format, Result, cells, print, print_list, table};
use crate::run::age;

const UPCOMING: usize = 5;

/// A schedule with all that is known of it. Nothing: this binary cannot read its definition.
struct Seen {
    row: ScheduleRow,
    schedule: Option<Schedule>,
    scopes: Vec<ScopeRow>,
}

impl Seen {
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.scopes.iter().for_each(|scope| sum.add(&scope.counts));
        sum
    }

    /// The oldest of its scopes: now less the plan time of the latest success.
    fn lag(&self, now: Time) -> Option<waypost_kernel::Span> {
        let listed = self.scopes.iter().filter(|scope| !scope.retired);
        listed.map(|scope| scope.last_success).min().flatten().map(|plan| now - plan)
    }

    fn last(&self) -> Option<(Time, &str)> {
        let ended =
            self.scopes.iter().filter_map(|scope| Some((scope.last_plan?, scope.last_status.as_deref()?)));
        ended.max()
    }

    fn object(&self, now: Time) -> Value {
        let counts = self.counts();
        let sum = |of: fn(&ScopeRow) -> u64| self.scopes.iter().map(of).sum::<u64>();
        let upcoming =
            self.schedule.as_ref().map(|it| upcoming(&it.policy, now, UPCOMING)).unwrap_or_default();
        let timing = self.schedule.as_ref().map(|it| &it.policy.timing);
        json!({
            "name": self.row.name,
            "description": self.schedule.as_ref().and_then(|it| it.description.clone()),
            "when": timing.map(in_words),
            "next": upcoming.iter().map(|time| iso(*time)).collect::<Vec<_>>(),
            "clock_change": timing.and_then(|it| note(it, now, &upcoming)),
            "applied": self.row.carried,
            "paused": self.row.paused.as_ref().map(|pause| json!({
                "by": pause.by, "reason": pause.reason, "at": pause.at.map(iso),
            })),
            "last_plan": self.last().map(|(plan, _)| iso(plan)),
            "last_status": self.last().map(|(_, status)| status),
            "lag_s": self.lag(now).map(|lag| lag.ms() / 1_000),
            "running": sum(|scope| scope.running),
            "running_stale": sum(|scope| scope.stale),
            "succeeded": counts.succeeded,
            "failed_unretried": counts.failed,
            "skipped": {
                "superseded": counts.superseded,
                "outside_window": counts.outside_window,
                "late": counts.late,
                "overlap": counts.overlap,
                "paused": counts.paused,
            },
            "claims": { "won": counts.won, "retried": counts.retried, "stolen": counts.stolen },
            "scopes": self.scopes.iter().filter(|scope| !scope.retired).count(),
            "hash": self.row.hash,
        })
    }
}

pub async fn list(store: &dyn Store, output: Format) -> Result {
    let now = store.now().await?;
    let mut all = Vec::new();
    for row in store.schedules(None).await? {
        let schedule = typed(store, &row).await.ok();
        let scopes = store.scopes(row.name.clone()).await?;
        all.push(Seen { row, schedule, scopes });
    }
    let objects = all.iter().map(|seen| seen.object(now)).collect();
    print_list(objects, output, || as_table(&all, now))
}

fn as_table(all: &[Seen], now: Time) -> String {
    if all.is_empty() {
        return "there are no schedules: `waypost schedule apply FILE` adds some".into();
    }
    let rows = all.iter().map(|seen| {
        let policy = seen.schedule.as_ref().map(|it| &it.policy);
        let next = match (&seen.row.paused, policy) {
            (Some(pause), _) => format!("paused by {} {}", pause.by, pause.reason),
            (None, Some(policy)) => {
                upcoming(policy, now, 1).first().map(|time| shown(&policy.timing, *time)).unwrap_or_default()
            }
            (None, None) => "not understood by this version".to_owned(),
        };
        let counts = seen.counts();
        cells([
            seen.row.name.clone(),
            policy.map(|policy| in_words(&policy.timing)).unwrap_or_default(),
            next,
            seen.last().map(|(_, status)| status.to_owned()).unwrap_or_default(),
            seen.lag(now).map(age).unwrap_or_default(),
            counts.skipped().to_string(),
            counts.failed.to_string(),
        ])
    });
    table(&["schedule", "when", "next", "last", "lag", "skipped", "failed"], rows)
}

fn upcoming(policy: &Policy, now: Time, count: usize) -> Vec<Time> {
    std::iter::successors(policy.timing.next(now), |time| policy.timing.next(*time)).take(count).collect()
}

fn shown(timing: &Timing, time: Time) -> String {
    match timing {
        Timing::Cron { zone, .. } => zone.shown(time),
        Timing::Every { .. } => time.to_string(),
    }
}

fn note(timing: &Timing, now: Time, upcoming: &[Time]) -> Option<String> {
    let Timing::Cron { zone, .. } = timing else { return None };
    clock_change(zone, now, *upcoming.last()?)
}

pub async fn next(store: &dyn Store, name: &str, count: u16, output: Format) -> Result {
    let (row, schedule) = find(store, name).await?;
    let now = store.now().await?;
    let timing = &schedule.policy.timing;
    let times = upcoming(&schedule.policy, now, usize::from(count));
    let objects =
        times.iter().map(|time| json!({ "plan_time": iso(*time), "local": shown(timing, *time) })).collect();
    print_list(objects, output, || {
        let mut lines = vec![format!("{}: {}", row.name, in_words(timing))];
        lines.extend(times.iter().map(|time| format!("  {}", shown(timing, *time))));
        lines.extend(note(timing, now, &times).map(|note| format!("  {note}")));
        lines.extend(row.paused.as_ref().map(|pause| format!("  paused by {}: {}", pause.by, pause.reason)));
        lines.join("\n")
    })
}

pub async fn history(
    store: &dyn Store,
    name: Option<String>,
    scope: Option<String>,
    limit: usize,
    output: Format,
) -> Result {
    if let Some(name) = &name {
        find(store, name).await?;
    }
    let filter = ExecutionFilter { schedule: name, id: scope, kind: None, limit: limit.clamp(1, 1_000) };
    let all = store.executions(filter).await?;
    if all.is_empty() && output == Format::Table {
        return print("nothing was executed yet");
    }
    let objects = all.iter().map(execution).collect();
    print_list(objects, output, || {
        let rows = all.iter().map(|it| {
            let run = it.run.as_ref();
            let failure = run.and_then(|run| run.run.failure.as_ref());
            vec![
                Cell::new(it.plan.to_string()),
                Cell::new(&it.schedule),
                Cell::new(format!("{}/{}", it.kind, it.id)),
                run.map_or_else(|| Cell::new("waits"), crate::output::status),
                Cell::new(run.map(|run| run.run.attempt).unwrap_or_default()),
                Cell::new(it.manual.as_deref().unwrap_or_default()),
                Cell::new(failure.map(|it| format!("{}: {}", it.code, it.message)).unwrap_or_default()),
            ]
        });
        table(&["plan", "schedule", "scope", "status", "attempt", "by hand", "error"], rows)
    })
}

fn execution(it: &ExecutionRow) -> Value {
    json!({
        "schedule": it.schedule,
        "scope_kind": it.kind,
        "scope_id": it.id,
        "plan_time": iso(it.plan),
        "manual": it.manual,
        "by": it.by,
        "run": it.run.as_ref().map(waypost_store::RunRow::object),
    })
}
