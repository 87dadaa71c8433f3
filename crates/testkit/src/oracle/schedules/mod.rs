//! Schedules: their definitions, scopes and pauses. What fires is in `firing`.

mod firing;
mod reads;
mod rules;

use std::collections::BTreeMap;

use waypost_kernel::Time;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::schedule::Running;
use waypost_kernel::tenant::tenant_of;
use waypost_kernel::text::{MAX_REASON_CHARS, clean_chars};
use waypost_store::{
    Begin, Begun, CommandWrite, Due, Each, ExecutionFilter, ExecutionPage, Failed, Firing, ManualPlans,
    Ownership, Pause, Reply, Result, RunRow, ScheduleChange, ScheduleChanged, ScheduleFilter, ScheduleRow,
    ScheduleSummary, ScheduleWrite, SchedulerSign, ScopeRow, StoreError, Who,
};

use super::MemoryStore;
use super::access::check_audit;
use super::rules::intake::{check_name, check_pause};
use super::state::State;
use rules::{
    SCOPES_EVERY, SOON, check_manual, check_own, check_removable, check_schedule, check_scopes, check_whose,
    is_born_held, is_over_and_failed, no_schedule,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub row: ScheduleRow,
    pub scopes: Vec<ScopeRow>,
    /// When they are to be listed anew, and how often in a row that failed.
    pub scopes_at: Option<Time>,
    pub scopes_failures: u32,
    /// By kind and id: when to look at a scope's plans that wait to begin. A paused one has none.
    pub waiting: BTreeMap<(String, String), Time>,
}

#[derive(Clone, Debug)]
pub(super) struct Execution {
    pub schedule: String,
    pub kind: String,
    pub id: String,
    pub plan: Time,
    pub run_id: Option<String>,
    pub manual: Option<String>,
    pub by: Option<String>,
    /// None once it has ended.
    pub wake_at: Option<Time>,
    pub failures: u32,
    /// Attempts that earlier runs made, and might have made.
    pub earlier: (u32, u32),
}

impl Execution {
    pub fn is_of(&self, schedule: &str, kind: &str, id: &str) -> bool {
        (self.schedule.as_str(), self.kind.as_str(), self.id.as_str()) == (schedule, kind, id)
    }
}

impl MemoryStore {
    pub(crate) fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, ScheduleChanged> {
        self.verb(move |state| state.put_schedule(write))
    }

    pub(crate) fn change_schedule(&self, change: ScheduleChange, who: Who) -> Reply<'_, ScheduleChanged> {
        self.verb(move |state| state.change_schedule(change, who))
    }

    pub(crate) fn scheduler_seen(&self, sign: SchedulerSign) -> Reply<'_, ()> {
        self.verb(move |state| {
            check_name("name", &sign.name)?;
            state.schedulers.insert(sign.name.clone(), (sign, state.now));
            Ok(())
        })
    }

    pub(crate) fn put_scopes(&self, schedule: String, kind: String, ids: Vec<String>) -> Reply<'_, ()> {
        self.verb(move |state| {
            check_scopes(&kind, &ids)?;
            let now = state.now;
            let stored = state.schedules.get_mut(&schedule).ok_or_else(|| no_schedule(&schedule))?;
            stored.list(&kind, &ids, now);
            (stored.scopes_at, stored.scopes_failures) = (Some(now + SCOPES_EVERY), 0);
            Ok(())
        })
    }

    pub(crate) fn scopes(&self, schedule: String) -> Reply<'_, Vec<ScopeRow>> {
        self.verb(move |state| state.scopes(&schedule))
    }

    pub(crate) fn ask_scopes(&self, _sql: String) -> Reply<'_, Vec<String>> {
        self.verb(|_| Err(StoreError::invalid("sql", "this store has no SQL")))
    }

    pub(crate) fn due(&self, by: Ownership, limit: usize) -> Reply<'_, Due> {
        self.verb(move |state| state.due(&by, limit))
    }

    pub(crate) fn fire(&self, firings: Vec<Firing>) -> Reply<'_, Each<Option<Vec<Begun>>>> {
        self.verb(move |state| Ok(firings.into_iter().map(|firing| state.fire(firing)).collect()))
    }

    pub(crate) fn begin(&self, begin: Begin) -> Reply<'_, Option<Begun>> {
        self.verb(move |state| state.begin_execution(&begin))
    }

    pub(crate) fn put_off(&self, failed: Vec<Failed>) -> Reply<'_, ()> {
        self.verb(move |state| {
            failed.iter().for_each(|failed| state.put_off(failed));
            Ok(())
        })
    }

    pub(crate) fn wake_executions(&self, run_ids: Vec<String>) -> Reply<'_, ()> {
        self.verb(move |state| {
            let now = state.now;
            let is_one = |it: &&mut Execution| it.run_id.as_ref().is_some_and(|id| run_ids.contains(id));
            let open = state.executions.iter_mut().filter(is_one);
            let ended: Vec<Execution> = open
                .map(|it| {
                    it.wake_at = it.wake_at.map(|_| now);
                    it.clone()
                })
                .collect();
            for it in ended {
                let stored = state.schedules.get_mut(&it.schedule);
                let scope = stored.and_then(|stored| stored.scope(&it.kind, &it.id));
                if let Some(scope) =
                    scope.filter(|scope| scope.wake_at.is_some_and(|at| at > now && at <= now + SOON))
                {
                    scope.wake_at = Some(now);
                }
            }
            Ok(())
        })
    }

    pub(crate) fn executions(&self, filter: ExecutionFilter) -> Reply<'_, ExecutionPage> {
        self.verb(move |state| state.executions_of(&filter))
    }

    pub(crate) fn schedules(&self, filter: ScheduleFilter) -> Reply<'_, Vec<ScheduleSummary>> {
        self.verb(move |state| state.schedules(&filter))
    }
}

impl Stored {
    fn list(&mut self, kind: &str, ids: &[String], now: Time) {
        let wake_at = self.row.paused.is_none().then_some(now);
        for scope in &mut self.scopes {
            let listed = scope.kind == kind && ids.contains(&scope.id);
            if listed && scope.retired {
                (scope.wake_at, scope.since, scope.through) = (wake_at, Some(now), None);
            } else if !listed {
                scope.wake_at = None;
            }
            scope.retired = !listed;
        }
        for id in ids {
            if !self.scopes.iter().any(|scope| scope.kind == kind && scope.id == *id) {
                let (kind, id) = (kind.to_owned(), id.clone());
                self.scopes.push(ScopeRow { kind, id, wake_at, ..ScopeRow::default() });
            }
        }
        self.scopes.sort_by(|one, other| (&one.kind, &one.id).cmp(&(&other.kind, &other.id)));
    }

    /// Plans of these wait to begin. A scope that nobody lists is there then, and rests.
    fn wait(&mut self, kind: &str, ids: &[String], now: Time) {
        for id in ids {
            if self.scope(kind, id).is_none() {
                let (kind, id) = (kind.to_owned(), id.clone());
                self.scopes.push(ScopeRow { kind, id, retired: true, ..ScopeRow::default() });
            }
            if self.row.paused.is_none() {
                self.waiting.insert((kind.to_owned(), id.clone()), now);
            }
        }
        self.scopes.sort_by(|one, other| (&one.kind, &one.id).cmp(&(&other.kind, &other.id)));
    }

    pub fn scope(&mut self, kind: &str, id: &str) -> Option<&mut ScopeRow> {
        self.scopes.iter_mut().find(|scope| scope.kind == kind && scope.id == id)
    }
}

impl State {
    fn change_schedule(&mut self, change: ScheduleChange, who: Who) -> Result<ScheduleChanged> {
        let pause = Pause { by: who.by.clone(), reason: who.reason.clone().unwrap_or_default(), at: None };
        let (action, name) = match &change {
            ScheduleChange::Put(write) => ("schedule.apply", &write.name),
            ScheduleChange::Remove(name) => ("schedule.remove", name),
            ScheduleChange::Pause(name) => ("schedule.pause", name),
            ScheduleChange::Resume(name) => ("schedule.resume", name),
            ScheduleChange::Plan(plans) if plans.plans.is_none() => ("schedule.trigger", &plans.schedule),
            ScheduleChange::Plan(plans) => ("schedule.backfill", &plans.schedule),
        };
        let name = name.clone();
        check_whose(&name, &who)?;
        match &change {
            ScheduleChange::Put(write) => {
                check_own(&write.name)?;
                check_schedule(write)?;
            }
            ScheduleChange::Pause(_) => check_pause(Some(&pause))?,
            ScheduleChange::Plan(plans) => check_manual(plans)?,
            ScheduleChange::Remove(name) => check_removable(name)?,
            ScheduleChange::Resume(_) => {}
        }
        if !matches!(change, ScheduleChange::Put(_)) && !self.schedules.contains_key(&name) {
            return Err(no_schedule(&name));
        }
        check_audit(&who, action, &name)?;
        let changed = match change {
            ScheduleChange::Put(write) => self.put_schedule(write)?,
            ScheduleChange::Remove(name) => {
                self.cancel_executions(&name, &who.by)?;
                self.executions.retain(|it| it.schedule != name || it.run_id.is_some());
                self.executions.iter_mut().filter(|it| it.schedule == name).for_each(|it| it.wake_at = None);
                self.schedules.remove(&name);
                ScheduleChanged::Removed
            }
            ScheduleChange::Pause(name) => {
                self.pause_schedule(&name, Some(pause))?;
                ScheduleChanged::Changed
            }
            ScheduleChange::Resume(name) => {
                self.pause_schedule(&name, None)?;
                ScheduleChanged::Changed
            }
            ScheduleChange::Plan(plans) => ScheduleChanged::Planned(self.add_plans(&plans)?),
        };
        if changed != ScheduleChanged::Same {
            self.audit(who, action, &name);
        }
        Ok(changed)
    }

    /// Nobody would take up what is under way once its schedule is gone.
    fn cancel_executions(&mut self, name: &str, by: &str) -> Result<()> {
        let open = self.executions.iter().filter(|it| it.schedule == name && it.wake_at.is_some());
        let runs = open.filter_map(|it| self.run_of(it.run_id.as_deref()?));
        let is_held = |row: &&RunRow| row.phase() == Phase::Held && is_born_held(row);
        let mut ids: Vec<String> = runs.filter(is_held).map(|row| row.id().to_owned()).collect();
        ids.sort();
        for run_id in ids {
            let cancel = CommandWrite {
                tenant: tenant_of(name).into(),
                run_id,
                name: "cancel".into(),
                by: by.to_owned(),
                reason: Some(clean_chars(&format!("the schedule {name} was removed"), MAX_REASON_CHARS).text),
                ..CommandWrite::default()
            };
            self.command(&cancel)?;
        }
        Ok(())
    }

    fn put_schedule(&mut self, write: ScheduleWrite) -> Result<ScheduleChanged> {
        check_schedule(&write)?;
        let (now, name) = (self.now, write.name.clone());
        let stored = self.schedules.entry(write.name.clone()).or_default();
        let was = std::mem::take(&mut stored.row);
        let put = match () {
            () if was.name.is_empty() => ScheduleChanged::Added,
            () if was.hash == write.hash && was.carried == write.carried => ScheduleChanged::Same,
            () => ScheduleChanged::Changed,
        };
        if put == ScheduleChanged::Changed && was.timing != write.timing {
            for scope in stored.scopes.iter_mut().filter(|scope| scope.wake_at.is_some()) {
                (scope.wake_at, scope.since, scope.through) = (Some(now), Some(now), None);
            }
        }
        stored.row = ScheduleRow {
            name: write.name,
            definition: write.definition,
            folder: write.folder,
            hash: write.hash,
            timing: write.timing,
            carried: write.carried,
            paused: was.paused,
            updated_at: if put == ScheduleChanged::Same { was.updated_at } else { now },
        };
        match &write.ids {
            Some(ids) => {
                stored.list(&write.kind, ids, now);
                stored.scopes_at = None;
            }
            None if put != ScheduleChanged::Same => stored.scopes_at = Some(now),
            None => {}
        }
        self.wake_failed(&name);
        self.writes += 1;
        Ok(put)
    }

    fn pause_schedule(&mut self, name: &str, pause: Option<Pause>) -> Result<ScheduleRow> {
        check_pause(pause.as_ref())?;
        let now = self.now;
        let stored = self.schedules.get_mut(name).ok_or_else(|| no_schedule(name))?;
        let was_paused = stored.row.paused.is_some();
        stored.row.paused = pause.map(|pause| Pause { at: Some(now), ..pause });
        for scope in stored.scopes.iter_mut().filter(|scope| !scope.retired) {
            if stored.row.paused.is_some() {
                scope.wake_at = None;
            } else if was_paused {
                (scope.wake_at, scope.since) = (Some(now), Some(now));
            }
        }
        let row = stored.row.clone();
        if row.paused.is_some() {
            stored.waiting.clear();
        } else if was_paused {
            self.wake_failed(name);
            self.wake_open(name);
        }
        Ok(row)
    }

    /// Whoever changes a schedule, or applies it once more, may have mended it.
    fn wake_failed(&mut self, name: &str) {
        let now = self.now;
        let Some(stored) = self.schedules.get_mut(name) else { return };
        if stored.scopes_failures > 0 {
            (stored.scopes_at, stored.scopes_failures) = (stored.scopes_at.map(|_| now), 0);
        }
        for scope in stored.scopes.iter_mut().filter(|it| it.failures > 0 && it.wake_at.is_some()) {
            (scope.wake_at, scope.failures) = (Some(now), 0);
        }
        let open = self.executions.iter_mut().filter(|it| it.schedule == name && it.wake_at.is_some());
        for it in open.filter(|it| it.failures > 0) {
            (it.wake_at, it.failures) = (Some(now), 0);
        }
        stored.waiting.values_mut().for_each(|at| *at = now);
    }

    /// What a pause kept from being begun.
    fn wake_open(&mut self, name: &str) {
        let now = self.now;
        let Some(stored) = self.schedules.get_mut(name) else { return };
        for it in self.executions.iter_mut().filter(|it| it.schedule == name && it.wake_at.is_some()) {
            match it.run_id {
                Some(_) => it.wake_at = Some(now),
                None => drop(stored.waiting.insert((it.kind.clone(), it.id.clone()), now)),
            }
        }
    }

    /// Whether an execution of the scope, but for one, is under way.
    pub(super) fn is_running(&self, schedule: &str, kind: &str, id: &str, but: Option<&str>) -> bool {
        let open = self.executions.iter().filter(|it| it.wake_at.is_some() && it.is_of(schedule, kind, id));
        let runs = open.filter_map(|it| it.run_id.as_deref()).filter(|run_id| Some(*run_id) != but);
        runs.filter_map(|run_id| self.run_of(run_id)).any(|row| row.phase() != Phase::Settled)
    }

    /// What of the scope is under way.
    pub(super) fn running(&self, schedule: &str, kind: &str, id: &str) -> Running {
        let open = self.executions.iter().filter(|it| it.wake_at.is_some() && it.is_of(schedule, kind, id));
        let is_under_way = |it: &&Execution| {
            let row = it.run_id.as_deref().and_then(|run_id| self.run_of(run_id));
            row.is_some_and(|row| row.phase() != Phase::Settled)
        };
        let under_way: Vec<&Execution> = open.filter(is_under_way).collect();
        match under_way.iter().any(|it| it.manual.is_none()) {
            true => Running::Planned,
            false if under_way.is_empty() => Running::Nothing,
            false => Running::ByHand,
        }
    }

    pub(super) fn run_of(&self, run_id: &str) -> Option<&RunRow> {
        self.number_of(run_id).ok().and_then(|number| self.row(number).ok())
    }

    pub(super) fn scopes(&self, schedule: &str) -> Result<Vec<ScopeRow>> {
        let stored = self.schedules.get(schedule).ok_or_else(|| no_schedule(schedule))?;
        let mut scopes = stored.scopes.clone();
        for scope in &mut scopes {
            let open = self.executions.iter().filter(|it| it.wake_at.is_some());
            let runs = open.filter(|it| it.is_of(schedule, &scope.kind, &scope.id));
            let runs = runs.filter_map(|it| self.run_of(it.run_id.as_deref()?));
            for row in runs.filter(|row| row.phase() != Phase::Settled) {
                scope.running += 1;
                let stale = |lease: &waypost_kernel::Lease| !lease.is_vacant() && lease.is_expired(self.now);
                scope.stale += u64::from(row.run.lease.as_ref().is_some_and(stale));
            }
        }
        Ok(scopes)
    }

    fn add_plans(&mut self, plans: &ManualPlans) -> Result<u64> {
        check_manual(plans)?;
        if !self.schedules.contains_key(&plans.schedule) {
            return Err(no_schedule(&plans.schedule));
        }
        let now = self.now;
        let times = plans.plans.clone().unwrap_or_else(|| vec![Time::from_ms(now.ms())]);
        let mut added = 0;
        for id in &plans.ids {
            for plan in &times {
                let is_it = |it: &Execution| it.is_of(&plans.schedule, &plans.kind, id) && it.plan == *plan;
                if let Some(at) = self.executions.iter().position(is_it) {
                    let run = self.executions[at].run_id.as_deref().and_then(|run_id| self.run_of(run_id));
                    let failed = run.filter(|row| plans.again && is_over_and_failed(row));
                    if let Some((made, most)) = failed.map(|row| (row.run.attempt, row.run.max_attempts)) {
                        let known = &mut self.executions[at];
                        known.earlier = (known.earlier.0 + made, known.earlier.1 + most);
                        (known.run_id, known.wake_at) = (None, Some(now));
                        (known.manual, known.by) = (Some(plans.how.clone()), Some(plans.by.clone()));
                        added += 1;
                    }
                    continue;
                }
                self.executions.push(Execution {
                    schedule: plans.schedule.clone(),
                    kind: plans.kind.clone(),
                    id: id.clone(),
                    plan: *plan,
                    run_id: None,
                    manual: Some(plans.how.clone()),
                    by: Some(plans.by.clone()),
                    wake_at: Some(now),
                    failures: 0,
                    earlier: (0, 0),
                });
                added += 1;
            }
        }
        if let Some(stored) = self.schedules.get_mut(&plans.schedule) {
            stored.wait(&plans.kind, &plans.ids, now);
        }
        self.writes += 1;
        Ok(added)
    }
}
