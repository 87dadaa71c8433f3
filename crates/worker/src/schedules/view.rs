//! Schedules as people see them: one object for the API and the command line.

use std::path::Path;

use serde_json::{Value, json};
use waypost_kernel::schedule::{Timing, clock_change, in_words};
use waypost_kernel::{Catalog, Time};
use waypost_store::{ScheduleSummary, iso};

use super::file::stored;
use super::schedule::Schedule;

/// Plan times that are shown with a schedule.
const UPCOMING: usize = 5;

/// A stored schedule. Nothing in `schedule`: this binary cannot read its definition.
#[derive(Clone, Debug)]
pub struct View {
    pub summary: ScheduleSummary,
    pub schedule: Option<Schedule>,
}

impl View {
    pub fn of(summary: ScheduleSummary, catalog: &Catalog) -> View {
        let schedule = stored(&summary.row.definition, Path::new(&summary.row.folder), catalog).ok();
        View { summary, schedule }
    }

    pub fn timing(&self) -> Option<&Timing> {
        self.schedule.as_ref().map(|schedule| &schedule.policy.timing)
    }

    pub fn object(&self, now: Time) -> Value {
        let ScheduleSummary { row, counts, .. } = &self.summary;
        let upcoming = self.timing().map(|timing| upcoming(timing, now, UPCOMING)).unwrap_or_default();
        json!({
            "name": row.name,
            "description": self.schedule.as_ref().and_then(|it| it.description.clone()),
            "when": self.timing().map(in_words),
            "next": upcoming.iter().map(|time| iso(*time)).collect::<Vec<_>>(),
            "clock_change": self.timing().and_then(|timing| note(timing, now, &upcoming)),
            "applied": row.carried,
            "paused": row.paused.as_ref().map(|pause| json!({
                "by": pause.by, "reason": pause.reason, "at": pause.at.map(iso),
            })),
            "last_plan": self.summary.last_plan.map(iso),
            "last_status": self.summary.last_status,
            "last_success": self.summary.last_success.map(iso),
            "lag_s": self.summary.lag(now).map(|lag| lag.ms() / 1_000),
            "running": self.summary.running,
            "running_stale": self.summary.stale,
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
            "scopes": self.summary.scopes,
            "hash": row.hash,
            "updated_at": iso(row.updated_at),
            "definition": row.definition,
            "folder": row.folder,
            "timing": row.timing,
        })
    }
}

pub fn upcoming(timing: &Timing, now: Time, count: usize) -> Vec<Time> {
    std::iter::successors(timing.next(now), |time| timing.next(*time)).take(count).collect()
}

/// On the wall clock that the schedule is about.
pub fn shown(timing: &Timing, time: Time) -> String {
    match timing {
        Timing::Cron { zone, .. } => zone.shown(time),
        Timing::Every { .. } => time.to_string(),
    }
}

/// A clock change between now and the last of these.
pub fn note(timing: &Timing, now: Time, upcoming: &[Time]) -> Option<String> {
    let Timing::Cron { zone, .. } = timing else { return None };
    clock_change(zone, now, *upcoming.last()?)
}
