//! Reading schedules and executions.

use serde_json::json;
use waypost_kernel::Time;
use waypost_kernel::tenant::tenant_of;
use waypost_kernel::text::MAX_PAGE;
use waypost_store::{
    ExecutionFilter, ExecutionPage, ExecutionRow, Result, ScheduleFilter, ScheduleRow, ScheduleSummary,
    SchedulerSign, ScopeRow, StoreError,
};

use super::Execution;
use crate::oracle::state::State;

impl State {
    pub(super) fn schedules(&self, filter: &ScheduleFilter) -> Result<Vec<ScheduleSummary>> {
        let is_asked_for = |name: &str| {
            filter.name.as_deref().is_none_or(|asked| asked == name)
                && filter.after.as_deref().is_none_or(|after| name > after)
                && is_of(&filter.tenant, name)
        };
        let rows = self.schedules.values().map(|stored| &stored.row).filter(|row| is_asked_for(&row.name));
        rows.take(page_size(filter.limit))
            .map(|row| Ok(self.summary_of(row, &self.scopes(&row.name)?)))
            .collect()
    }

    pub(super) fn executions_of(&self, filter: &ExecutionFilter) -> Result<ExecutionPage> {
        let after = filter.cursor.as_deref().map(read_cursor).transpose()?;
        let fits = |asked: &Option<String>, is: &str| asked.as_ref().is_none_or(|asked| asked == is);
        let is_asked_for = |it: &&Execution| {
            fits(&filter.schedule, &it.schedule)
                && is_of(&filter.tenant, &it.schedule)
                && fits(&filter.kind, &it.kind)
                && fits(&filter.id, &it.id)
                && fits(&filter.run_id, it.run_id.as_deref().unwrap_or_default())
                && after.as_ref().is_none_or(|after| place(it) > *after)
        };
        let mut found: Vec<&Execution> = self.executions.iter().filter(is_asked_for).collect();
        found.sort_by_key(|it| place(it));
        let limit = page_size(filter.limit);
        let rows = found.into_iter().map(|it| (place(it), self.shown(it)));
        let rows =
            rows.filter(|(_, row)| fits(&filter.status, row.run.as_ref().map_or("", |run| run.status())));
        let mut rows: Vec<_> = rows.take(limit + 1).collect();
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|(place, _)| json!(place).to_string());
        Ok(ExecutionPage { executions: rows.into_iter().map(|(_, row)| row).collect(), next })
    }

    fn shown(&self, it: &Execution) -> ExecutionRow {
        let run = it.run_id.as_deref().and_then(|run_id| self.run_of(run_id)).cloned();
        let own = run.as_ref().map_or((0, 0), |row| (row.run.attempt, row.run.max_attempts));
        ExecutionRow {
            schedule: it.schedule.clone(),
            kind: it.kind.clone(),
            id: it.id.clone(),
            plan: it.plan,
            manual: it.manual.clone(),
            by: it.by.clone(),
            attempt: it.earlier.0 + own.0,
            max_attempts: it.earlier.1 + own.1,
            run,
        }
    }
}

pub(super) fn is_of(tenant: &Option<String>, stored: &str) -> bool {
    tenant.as_ref().is_none_or(|tenant| tenant_of(stored) == tenant)
}

/// Where an execution stands in a list: the newest plan comes first, then by name.
type Place = (i64, String, String, String);

fn place(it: &Execution) -> Place {
    (-it.plan.micros(), it.schedule.clone(), it.kind.clone(), it.id.clone())
}

fn read_cursor(text: &str) -> Result<Place> {
    serde_json::from_str(text).map_err(|_| StoreError::invalid("cursor", "is none that an earlier page gave"))
}

fn page_size(limit: usize) -> usize {
    limit.clamp(1, MAX_PAGE)
}

/// A schedule, and what came of its plans in all its scopes. Those that rest count, but are not counted.
impl State {
    /// Who has not said for a minute that it is there is not.
    fn fired_by(&self, row: &ScheduleRow) -> u64 {
        let is_there = |at: &Time| (self.now - *at).ms() <= 60_000;
        let applied = |sign: &SchedulerSign| sign.carried && row.carried && is_of(&sign.tenant, &row.name);
        let fires = |sign: &SchedulerSign| sign.hashes.contains(&row.hash) || applied(sign);
        self.schedulers.values().filter(|(sign, at)| is_there(at) && fires(sign)).count() as u64
    }

    fn summary_of(&self, row: &ScheduleRow, scopes: &[ScopeRow]) -> ScheduleSummary {
        let wakes = scopes.iter().filter(|scope| !scope.retired).filter_map(|scope| scope.wake_at);
        ScheduleSummary { due_at: wakes.min(), fired_by: self.fired_by(row), ..counted(row, scopes) }
    }
}

fn counted(row: &ScheduleRow, scopes: &[ScopeRow]) -> ScheduleSummary {
    let mut summary = ScheduleSummary { row: row.clone(), ..ScheduleSummary::default() };
    let listed: Vec<&ScopeRow> = scopes.iter().filter(|scope| !scope.retired).collect();
    summary.scopes = listed.len() as u64;
    let successes: Option<Vec<Time>> = listed.iter().map(|scope| scope.last_success).collect();
    summary.last_success = successes.and_then(|successes| successes.into_iter().min());
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
