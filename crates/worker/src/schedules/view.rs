//! Schedules as people see them: one object for the API and the command line.

use serde_json::Value;
use waypost_kernel::schedule::{Timing, clock_change, in_words};
use waypost_kernel::{Catalog, Time};
use waypost_store::{ScheduleSummary, iso};

use super::definitions::typed;
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
        let schedule = typed(&summary.row, catalog).ok();
        View { summary, schedule }
    }

    pub fn timing(&self) -> Option<&Timing> {
        self.schedule.as_ref().map(|schedule| &schedule.policy.timing)
    }

    pub fn object(&self, now: Time) -> Value {
        let upcoming = self.timing().map(|timing| upcoming(timing, now, UPCOMING)).unwrap_or_default();
        let mut object = self.summary.object();
        object["description"] = self.schedule.as_ref().and_then(|it| it.description.clone()).into();
        object["when"] = self.timing().map(in_words).into();
        object["next"] = upcoming.iter().map(|time| iso(*time)).collect();
        object["clock_change"] = self.timing().and_then(|timing| note(timing, now, &upcoming)).into();
        object["overdue_s"] = self.summary.overdue(now).map(|late| late.ms() / 1_000).into();
        object["lag_s"] = self.summary.lag(now).map(|lag| lag.ms() / 1_000).into();
        object
    }
}

pub fn upcoming(timing: &Timing, now: Time, count: usize) -> Vec<Time> {
    std::iter::successors(timing.next(now), |time| timing.next(*time)).take(count).collect()
}

/// On the wall clock that the schedule is about.
pub fn shown(timing: &Timing, time: Time) -> String {
    timing.zone().shown(time)
}

/// A clock change between now and the last of these.
pub fn note(timing: &Timing, now: Time, upcoming: &[Time]) -> Option<String> {
    let Timing::Cron { zone, .. } = timing else { return None };
    clock_change(zone, now, *upcoming.last()?)
}
