//! Schedules, in the simplest way.

use waypost_kernel::lifecycle::Phase;
use waypost_kernel::{Actor, Ask, Time};

use super::MemoryStore;
use super::state::State;
use crate::error::{Result, StoreError};
use crate::run::RunRow;
use crate::schedule_looks::{ExecutionFilter, ExecutionPage, ScheduleFilter, ScheduleLook};
use crate::schedules::*;
use crate::tokens::who;
use crate::verbs::{Claimed, Each, Pause, Reply};

#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub row: ScheduleRow,
    scopes: Vec<ScopeRow>,
    scopes_at: Option<Time>,
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
    /// Nothing: it has ended.
    wake_at: Option<Time>,
}

impl Execution {
    fn is_of(&self, schedule: &str, kind: &str, id: &str) -> bool {
        (self.schedule.as_str(), self.kind.as_str(), self.id.as_str()) == (schedule, kind, id)
    }
}

impl Schedules for MemoryStore {
    fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, Put> {
        self.verb(move |state| state.put_schedule(write))
    }

    fn remove_schedule(&self, name: String) -> Reply<'_, bool> {
        self.verb(move |state| {
            state.executions.iter_mut().filter(|it| it.schedule == name).for_each(|it| it.wake_at = None);
            Ok(state.schedules.remove(&name).is_some())
        })
    }

    fn schedules(&self, name: Option<String>) -> Reply<'_, Vec<ScheduleRow>> {
        self.verb(move |state| {
            let wanted = |stored: &&Stored| name.as_ref().is_none_or(|name| *name == stored.row.name);
            Ok(state.schedules.values().filter(wanted).map(|stored| stored.row.clone()).collect())
        })
    }

    fn pause_schedule(&self, name: String, pause: Option<Pause>) -> Reply<'_, ScheduleRow> {
        self.verb(move |state| state.pause_schedule(&name, pause))
    }

    fn put_scopes(&self, schedule: String, kind: String, ids: Vec<String>) -> Reply<'_, ()> {
        self.verb(move |state| {
            check_scopes(&kind, &ids)?;
            let now = state.now;
            let stored = state.schedules.get_mut(&schedule).ok_or_else(|| no_schedule(&schedule))?;
            stored.list(&kind, &ids, now);
            stored.scopes_at = Some(now + SCOPES_EVERY);
            Ok(())
        })
    }

    fn scopes(&self, schedule: String) -> Reply<'_, Vec<ScopeRow>> {
        self.verb(move |state| state.scopes(&schedule))
    }

    fn ask_scopes(&self, _sql: String) -> Reply<'_, Vec<String>> {
        self.verb(|_| Err(StoreError::invalid("sql", "this store has no SQL")))
    }

    fn due(&self, mine: Mine, limit: usize) -> Reply<'_, Due> {
        self.verb(move |state| state.due(&mine, limit))
    }

    fn fire(&self, firings: Vec<Firing>) -> Reply<'_, Each<Option<Vec<Begun>>>> {
        self.verb(move |state| Ok(firings.into_iter().map(|firing| state.fire(firing)).collect()))
    }

    fn begin(&self, begin: Begin) -> Reply<'_, Option<Begun>> {
        self.verb(move |state| state.begin_execution(&begin))
    }

    fn add_plans(&self, plans: ManualPlans) -> Reply<'_, u64> {
        self.verb(move |state| state.add_plans(&plans))
    }

    fn look_again(&self, run_ids: Vec<String>) -> Reply<'_, ()> {
        self.verb(move |state| {
            let now = state.now;
            let is_one = |it: &&mut Execution| it.run_id.as_ref().is_some_and(|id| run_ids.contains(id));
            let open = state.executions.iter_mut().filter(is_one);
            open.filter(|it| it.wake_at.is_some()).for_each(|it| it.wake_at = Some(now));
            Ok(())
        })
    }

    fn executions(&self, filter: ExecutionFilter) -> Reply<'_, ExecutionPage> {
        self.verb(move |state| state.executions_of(&filter))
    }

    fn look_at_schedules(&self, filter: ScheduleFilter) -> Reply<'_, Vec<ScheduleLook>> {
        self.verb(move |state| state.look_at_schedules(&filter))
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

    fn scope(&mut self, kind: &str, id: &str) -> Option<&mut ScopeRow> {
        self.scopes.iter_mut().find(|scope| scope.kind == kind && scope.id == id)
    }
}

impl State {
    fn put_schedule(&mut self, write: ScheduleWrite) -> Result<Put> {
        check_schedule(&write)?;
        let now = self.now;
        let stored = self.schedules.entry(write.name.clone()).or_default();
        let was = std::mem::take(&mut stored.row);
        let put = match () {
            () if was.name.is_empty() => Put::Added,
            () if was.hash == write.hash && was.carried == write.carried => Put::Same,
            () => Put::Changed,
        };
        if put == Put::Changed && was.timing != write.timing {
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
            updated_at: if put == Put::Same { was.updated_at } else { now },
        };
        match &write.ids {
            Some(ids) => {
                stored.list(&write.kind, ids, now);
                stored.scopes_at = None;
            }
            None if put != Put::Same => stored.scopes_at = Some(now),
            None => {}
        }
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
        Ok(stored.row.clone())
    }

    /// Whether an execution of the scope, but for one, is under way.
    fn is_running(&self, schedule: &str, kind: &str, id: &str, but: Option<&str>) -> bool {
        let open = self.executions.iter().filter(|it| it.wake_at.is_some() && it.is_of(schedule, kind, id));
        let runs = open.filter_map(|it| it.run_id.as_deref()).filter(|run_id| Some(*run_id) != but);
        runs.filter_map(|run_id| self.run_of(run_id)).any(|row| row.phase() != Phase::Settled)
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

    fn due(&mut self, mine: &Mine, limit: usize) -> Result<Due> {
        let now = self.now;
        let is_mine = |row: &ScheduleRow| row.carried && mine.carried || mine.hashes.contains(&row.hash);
        let mut due = Due { now, ..Due::default() };
        self.look_after(mine, limit, &mut due);
        let mut found = Vec::new();
        for stored in self.schedules.values().filter(|it| is_mine(&it.row) && it.row.paused.is_none()) {
            if stored.scopes_at.is_some_and(|at| at <= now) {
                due.refresh.push(stored.row.name.clone());
            }
            for scope in &stored.scopes {
                if let Some(wake_at) = scope.wake_at.filter(|at| *at <= now) {
                    found.push((wake_at, stored.row.name.clone(), stored.row.hash.clone(), scope.clone()));
                }
            }
        }
        found.sort_by(|one, other| (one.0, &one.1, &one.3.id).cmp(&(other.0, &other.1, &other.3.id)));
        due.more |= found.len() > limit;
        for (_, schedule, hash, scope) in found.into_iter().take(limit) {
            let is_running = self.is_running(&schedule, &scope.kind, &scope.id, None);
            let ScopeRow { kind, id, through, since, .. } = scope;
            due.scopes.push(DueScope { schedule, hash, kind, id, through, since, is_running });
        }
        Ok(due)
    }

    fn look_after(&mut self, mine: &Mine, limit: usize, due: &mut Due) {
        let now = self.now;
        let mut open: Vec<usize> = (0..self.executions.len())
            .filter(|at| self.executions[*at].wake_at.is_some_and(|it| it <= now))
            .collect();
        open.sort_by_key(|at| self.executions[*at].wake_at);
        for at in open {
            let execution = self.executions[at].clone();
            let Some(stored) = self.schedules.get(&execution.schedule) else { continue };
            let row = &stored.row;
            let is_mine = row.carried && mine.carried || mine.hashes.contains(&row.hash);
            if !is_mine || due.executions.len() >= limit {
                continue;
            }
            let hash = row.hash.clone();
            let is_paused = row.paused.is_some();
            let run = execution.run_id.as_deref().and_then(|run_id| self.run_of(run_id)).cloned();
            let next = match (&run, &execution.run_id) {
                (Some(run), _) => next_of(run, now),
                (None, Some(_)) => Next::Close,
                (None, None) => Next::Take(now + SOON),
            };
            let (wake_at, take) = match next {
                Next::Close => (None, false),
                Next::Wake(at) => (Some(at), false),
                Next::Take(_) if is_paused => (Some(now + SOON), false),
                Next::Take(at) => (Some(at), true),
            };
            self.executions[at].wake_at = wake_at;
            self.writes += 1;
            if let (None, Some(run)) = (wake_at, &run)
                && let Some(stored) = self.schedules.get_mut(&execution.schedule)
                && let Some(scope) = stored.scope(&execution.kind, &execution.id)
            {
                close(scope, execution.plan, run);
            }
            if take {
                let Execution { schedule, kind, id, plan, run_id, manual, .. } = execution;
                due.executions.push(DueExecution { schedule, hash, kind, id, plan, run_id, manual });
            }
        }
    }

    fn fire(&mut self, firing: Firing) -> Result<Option<Vec<Begun>>> {
        let Firing { schedule, kind, id, .. } = &firing;
        let running = firing.alone && self.is_running(schedule, kind, id, None);
        let Some(stored) = self.schedules.get_mut(schedule).filter(|it| it.row.paused.is_none()) else {
            return Ok(None);
        };
        let Some(scope) = stored.scope(kind, id) else { return Ok(None) };
        let before = scope.clone();
        if scope.through != firing.expected || scope.wake_at.is_none() || running {
            return Ok(None);
        }
        (scope.through, scope.wake_at, scope.since) = (firing.through, firing.wake_at, None);
        scope.counts.add(&firing.skipped);
        let mut begun = Vec::new();
        for (plan, birth) in firing.plans {
            if self
                .executions
                .iter()
                .any(|it| it.is_of(&firing.schedule, &firing.kind, &firing.id) && it.plan == plan)
            {
                continue;
            }
            let born = self.born(plan, &birth).inspect_err(|_| {
                let stored = self.schedules.get_mut(&firing.schedule);
                if let Some(scope) = stored.and_then(|stored| stored.scope(&firing.kind, &firing.id)) {
                    *scope = before.clone();
                }
            });
            let Some(one) = born? else { continue };
            let row = self.run_of(one.run_id()).cloned().ok_or_else(|| StoreError::no_run(one.run_id()))?;
            self.executions.push(Execution {
                schedule: firing.schedule.clone(),
                kind: firing.kind.clone(),
                id: firing.id.clone(),
                plan,
                run_id: Some(row.id().to_owned()),
                manual: None,
                by: None,
                wake_at: Some(first_look(&row, self.now)),
            });
            begun.push(one);
        }
        self.count(
            &firing.schedule,
            &firing.kind,
            &firing.id,
            &Counts { won: begun.len() as u64, ..Counts::default() },
        );
        self.writes += 1;
        Ok(Some(begun))
    }

    fn born(&mut self, plan: Time, birth: &Birth) -> Result<Option<Begun>> {
        match birth.lease {
            Some(lease) => {
                let claimed = self.claim_plan(&birth.run, Some(lease))?;
                Ok(claimed.map(|claimed| Begun::Held(plan, Box::new(claimed))))
            }
            None => Ok(Some(Begun::Queued(plan, self.enqueue(&birth.run)?.run.id().to_owned()))),
        }
    }

    fn count(&mut self, schedule: &str, kind: &str, id: &str, counts: &Counts) {
        if let Some(scope) = self.schedules.get_mut(schedule).and_then(|stored| stored.scope(kind, id)) {
            scope.counts.add(counts);
        }
    }

    fn begin_execution(&mut self, begin: &Begin) -> Result<Option<Begun>> {
        let Begin { schedule, kind, id, plan, .. } = begin;
        let found = self.executions.iter().position(|it| it.is_of(schedule, kind, id) && it.plan == *plan);
        let Some(at) = found.filter(|at| self.executions[*at].wake_at.is_some()) else { return Ok(None) };
        if self.schedules.get(schedule).is_none_or(|stored| stored.row.paused.is_some()) {
            return Ok(None);
        }
        let run_id = self.executions[at].run_id.clone();
        if begin.alone && self.is_running(schedule, kind, id, run_id.as_deref()) {
            self.executions[at].wake_at = Some(self.now + SOON);
            return Ok(None);
        }
        let before = run_id.as_deref().and_then(|run_id| self.run_of(run_id)).cloned();
        let (key, plan) = ((schedule.clone(), kind.clone(), id.clone()), *plan);
        let begun = match &before {
            None => self.born(plan, &begin.birth)?,
            Some(row) => match self.taken(row.id(), &begin.by, begin.birth.lease) {
                Ok(claimed) => Some(Begun::Held(plan, Box::new(claimed))),
                Err(StoreError::Refused(_)) => None,
                Err(error) => return Err(error),
            },
        };
        let Some(begun) = begun else { return Ok(None) };
        let row = self.run_of(begun.run_id()).cloned().ok_or_else(|| StoreError::no_run(begun.run_id()))?;
        self.executions[at].run_id = Some(row.id().to_owned());
        self.executions[at].wake_at = Some(first_look(&row, self.now));
        self.count(&key.0, &key.1, &key.2, &taken_as(before.as_ref()));
        self.writes += 1;
        Ok(Some(begun))
    }

    fn taken(&mut self, run_id: &str, by: &str, lease: Option<waypost_kernel::Span>) -> Result<Claimed> {
        let number = self.number_of(run_id)?;
        let change = self.decide(number, who(Actor::Worker, by), Ask::Claim { lease })?;
        self.commit(number, change)?;
        self.claimed(number)
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
                if self
                    .executions
                    .iter()
                    .any(|it| it.is_of(&plans.schedule, &plans.kind, id) && it.plan == *plan)
                {
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
                });
                added += 1;
            }
        }
        self.writes += 1;
        Ok(added)
    }
}
