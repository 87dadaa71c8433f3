//! Looking at schedules and executions.

use super::schedules::Execution;
use super::state::State;
use crate::error::Result;
use crate::schedule_looks::*;

impl State {
    pub(super) fn look_at_schedules(&self, filter: &ScheduleFilter) -> Result<Vec<ScheduleLook>> {
        let is_asked_for = |name: &str| {
            filter.name.as_deref().is_none_or(|asked| asked == name)
                && filter.after.as_deref().is_none_or(|after| name > after)
        };
        let rows = self.schedules.values().map(|stored| &stored.row).filter(|row| is_asked_for(&row.name));
        let look =
            |row: &crate::schedules::ScheduleRow| Ok(ScheduleLook::of(row.clone(), &self.scopes(&row.name)?));
        rows.take(page_size(filter.limit)).map(look).collect()
    }

    pub(super) fn executions_of(&self, filter: &ExecutionFilter) -> Result<ExecutionPage> {
        let place = Place::read(filter)?;
        let fits = |asked: &Option<String>, is: &str| asked.as_ref().is_none_or(|asked| asked == is);
        let is_asked_for = |it: &&Execution| {
            fits(&filter.schedule, &it.schedule)
                && fits(&filter.kind, &it.kind)
                && fits(&filter.id, &it.id)
                && fits(&filter.run_id, it.run_id.as_deref().unwrap_or_default())
                && place
                    .as_ref()
                    .is_none_or(|place| place.is_before(it.plan, (&it.schedule, &it.kind, &it.id)))
        };
        let mut found: Vec<&Execution> = self.executions.iter().filter(is_asked_for).collect();
        found.sort_by(|one, other| {
            let names = |it: &&Execution| (it.schedule.clone(), it.kind.clone(), it.id.clone());
            other.plan.cmp(&one.plan).then_with(|| names(one).cmp(&names(other)))
        });
        let rows = found.into_iter().map(|it| self.shown(it));
        let rows = rows.filter(|row| fits(&filter.status, row.run.as_ref().map_or("", |run| run.status())));
        Ok(ExecutionPage::of(rows.take(page_size(filter.limit) + 1).collect(), filter.limit))
    }

    fn shown(&self, it: &Execution) -> ExecutionRow {
        ExecutionRow {
            schedule: it.schedule.clone(),
            kind: it.kind.clone(),
            id: it.id.clone(),
            plan: it.plan,
            manual: it.manual.clone(),
            by: it.by.clone(),
            run: it.run_id.as_deref().and_then(|run_id| self.run_of(run_id)).cloned(),
        }
    }
}
