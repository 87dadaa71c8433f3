//! Schedules as people see them: one object for the API and the command line.

use std::path::Path;

use serde_json::{Value, json};
use waypost_kernel::schedule::{Timing, clock_change, in_words};
use waypost_kernel::{Catalog, Time};
use waypost_store::{ScheduleLook, iso};

use super::file::stored;
use super::schedule::Schedule;

/// Plan times that are shown with a schedule.
const UPCOMING: usize = 5;

/// A stored schedule. Nothing in `schedule`: this binary cannot read its definition.
#[derive(Clone, Debug)]
pub struct View {
    pub look: ScheduleLook,
    pub schedule: Option<Schedule>,
}

impl View {
    pub fn of(look: ScheduleLook, catalog: &Catalog) -> View {
        let schedule = stored(&look.row.definition, Path::new(&look.row.folder), catalog).ok();
        View { look, schedule }
    }

    pub fn timing(&self) -> Option<&Timing> {
        self.schedule.as_ref().map(|schedule| &schedule.policy.timing)
    }

    pub fn object(&self, now: Time) -> Value {
        let ScheduleLook { row, counts, .. } = &self.look;
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
            "last_plan": self.look.last_plan.map(iso),
            "last_status": self.look.last_status,
            "last_success": self.look.last_success.map(iso),
            "lag_s": self.look.lag(now).map(|lag| lag.ms() / 1_000),
            "running": self.look.running,
            "running_stale": self.look.stale,
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
            "scopes": self.look.scopes,
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
