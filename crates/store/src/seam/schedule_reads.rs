//! Schedules and executions as people are shown them, page by page.

use serde_json::json;
use waypost_kernel::{Span, Time};

use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::schedules::{Counts, ScheduleRow, ScopeRow};

#[derive(Clone, Debug, Default)]
pub struct ScheduleFilter {
    /// Those of one tenant, or of all.
    pub tenant: Option<String>,
    /// This one alone.
    pub name: Option<String>,
    /// Only those whose names come after it.
    pub after: Option<String>,
    pub limit: usize,
}

impl ScheduleFilter {
    /// By its stored name.
    pub fn named(name: &str) -> ScheduleFilter {
        ScheduleFilter { name: Some(name.to_owned()), limit: 1, ..ScheduleFilter::default() }
    }
}

/// A schedule, and what came of its plans in all its scopes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleSummary {
    pub row: ScheduleRow,
    /// Those that are listed.
    pub scopes: u64,
    pub counts: Counts,
    /// Of the latest plan that has ended.
    pub last_plan: Option<Time>,
    pub last_status: Option<String>,
    /// The latest success of the scope that is furthest behind. Absent if a scope never had one.
    pub last_success: Option<Time>,
    pub running: u64,
    pub stale: u64,
    /// When something of it is to be begun next: the earliest of its scopes. Absent if it is paused or has no plan any more.
    pub due_at: Option<Time>,
    /// How many processes fire it.
    pub fired_by: u64,
}

/// A plan is begun within some seconds, unless nobody is there to do it.
const ON_TIME: Span = Span::from_seconds(15);

impl ScheduleSummary {
    pub fn of(row: ScheduleRow, scopes: &[ScopeRow]) -> ScheduleSummary {
        let mut summary = ScheduleSummary { row, ..ScheduleSummary::default() };
        let listed = || scopes.iter().filter(|scope| !scope.retired);
        summary.scopes = listed().count() as u64;
        summary.last_success = listed().map(|scope| scope.last_success).min().flatten();
        summary.due_at = listed().filter_map(|scope| scope.wake_at).min();
        for scope in scopes {
            summary.counts.add(&scope.counts);
            summary.running += scope.running;
            summary.stale += scope.stale;
            if scope.last_plan > summary.last_plan {
                summary.last_plan = scope.last_plan;
                summary.last_status.clone_from(&scope.last_status);
            }
        }
        summary
    }

    /// For how long its next plan should have begun. Absent if nothing is late.
    pub fn overdue(&self, now: Time) -> Option<Span> {
        self.due_at.map(|due_at| now - due_at).filter(|late| *late > ON_TIME)
    }

    /// How far it is behind. Absent if it never succeeded.
    pub fn lag(&self, now: Time) -> Option<Span> {
        self.last_success.map(|plan| now - plan)
    }
}

#[derive(Clone, Debug, Default)]
pub struct ExecutionFilter {
    /// Those of one tenant, or of all.
    pub tenant: Option<String>,
    /// By its stored name.
    pub schedule: Option<String>,
    pub kind: Option<String>,
    pub id: Option<String>,
    /// Of the run.
    pub status: Option<String>,
    pub run_id: Option<String>,
    pub limit: usize,
    /// From `ExecutionPage::next`.
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct ExecutionRow {
    pub schedule: String,
    pub kind: String,
    pub id: String,
    pub plan: Time,
    pub manual: Option<String>,
    pub by: Option<String>,
    /// Of all its runs: one that is executed again has another run, and goes on counting.
    pub attempt: u32,
    pub max_attempts: u32,
    pub run: Option<RunRow>,
}

#[derive(Clone, Debug, Default)]
pub struct ExecutionPage {
    pub executions: Vec<ExecutionRow>,
    pub next: Option<String>,
}

/// Where a page of executions ends: the newest plan comes first, then by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExecutionCursor {
    pub plan: Time,
    pub schedule: String,
    pub kind: String,
    pub id: String,
}

impl ExecutionCursor {
    pub fn read(filter: &ExecutionFilter) -> Result<Option<ExecutionCursor>> {
        let Some(text) = &filter.cursor else { return Ok(None) };
        let wrong = || StoreError::invalid("cursor", "is none that an earlier page gave");
        let (micros, schedule, kind, id) = serde_json::from_str(text).map_err(|_| wrong())?;
        Ok(Some(ExecutionCursor { plan: Time::from_micros(micros), schedule, kind, id }))
    }

    pub fn of(row: &ExecutionRow) -> ExecutionCursor {
        let ExecutionRow { plan, schedule, kind, id, .. } = row;
        ExecutionCursor { plan: *plan, schedule: schedule.clone(), kind: kind.clone(), id: id.clone() }
    }

    fn text(&self) -> String {
        json!([self.plan.micros(), self.schedule, self.kind, self.id]).to_string()
    }
}

pub(crate) fn page_size(limit: usize) -> usize {
    limit.clamp(1, waypost_kernel::text::MAX_PAGE)
}

impl ExecutionPage {
    /// Of one more than was asked for, if there are so many. `is_cut`: there are more, which are too large for the page.
    pub(crate) fn of(mut executions: Vec<ExecutionRow>, limit: usize, is_cut: bool) -> ExecutionPage {
        let limit = page_size(limit);
        let more = is_cut || executions.len() > limit;
        executions.truncate(limit);
        let next = executions.last().filter(|_| more).map(|row| ExecutionCursor::of(row).text());
        ExecutionPage { executions, next }
    }
}
