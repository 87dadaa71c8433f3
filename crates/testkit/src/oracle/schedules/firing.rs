//! What is due of the schedules, and beginning it.

use waypost_kernel::tenant::tenant_of;
use waypost_kernel::{Actor, Ask, Span, Time};
use waypost_store::{
    Begin, Begun, Birth, Claimed, Counts, Due, DueExecution, DueListing, DueScope, Failed, Failing, Firing,
    Ownership, Result, ScheduleRow, ScopeRow, StoreError,
};

use super::Execution;
use super::reads::is_of;
use super::rules::{LISTING, Next, SOON, close, first_look, look_at, taken_as, wait_after};
use crate::oracle::state::State;
use crate::oracle::who;

/// Whether the asker may execute it.
fn has(by: &Ownership, row: &ScheduleRow) -> bool {
    let is_applied = row.carried && by.carried && is_of(&by.tenant, &row.name);
    (is_applied || by.hashes.contains(&row.hash)) && !by.except.contains(&row.hash)
}

impl State {
    pub(super) fn due(&mut self, by: &Ownership, limit: usize) -> Result<Due> {
        let now = self.now;
        let mut due = Due { now, ..Due::default() };
        self.look_after(by, limit, &mut due);
        if limit > 0 {
            self.look_at_waiting(by, &mut due);
        }
        let mut found = Vec::new();
        for stored in self.schedules.values_mut().filter(|it| has(by, &it.row) && it.row.paused.is_none()) {
            if stored.scopes_at.is_some_and(|at| at <= now) {
                let (schedule, hash) = (stored.row.name.clone(), stored.row.hash.clone());
                stored.scopes_at = Some(now + LISTING);
                due.listings.push(DueListing { schedule, hash, wake_at: now + LISTING });
            }
            for scope in &stored.scopes {
                if let Some(wake_at) = scope.wake_at.filter(|at| *at <= now) {
                    found.push((wake_at, stored.row.name.clone(), stored.row.hash.clone(), scope.clone()));
                }
            }
        }
        found.sort_by(|one, other| (one.0, &one.1, &one.3.id).cmp(&(other.0, &other.1, &other.3.id)));
        due.more |= limit > 0 && found.len() > limit;
        for (wake_at, schedule, hash, scope) in found.into_iter().take(limit) {
            let running = self.running(&schedule, &scope.kind, &scope.id);
            let ScopeRow { kind, id, through, since, .. } = scope;
            due.scopes.push(DueScope { schedule, hash, kind, id, through, since, running, wake_at });
        }
        Ok(due)
    }

    /// Those that have begun: their ends, their retries, and those that nobody holds any more.
    fn look_after(&mut self, by: &Ownership, limit: usize, due: &mut Due) {
        let now = self.now;
        let is_due = |it: &Execution| it.run_id.is_some() && it.wake_at.is_some_and(|at| at <= now);
        let mut open: Vec<usize> =
            (0..self.executions.len()).filter(|at| is_due(&self.executions[*at])).collect();
        open.sort_by_key(|at| self.executions[*at].wake_at);
        for at in open {
            let execution = self.executions[at].clone();
            let Some(stored) = self.schedules.get(&execution.schedule).filter(|it| has(by, &it.row)) else {
                continue;
            };
            let (hash, is_paused) = (stored.row.hash.clone(), stored.row.paused.is_some());
            let run = execution.run_id.as_deref().and_then(|run_id| self.run_of(run_id)).cloned();
            let has_room = due.executions.len() < limit;
            let (wake_at, is_taken) = match look_at(run.as_ref(), now, is_paused, has_room) {
                Next::Close => (None, false),
                Next::Wake(at) => (Some(at), false),
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
            if let Some(wake_at) = wake_at.filter(|_| is_taken) {
                due.executions.push(due_execution(execution, hash, false, wake_at));
            }
        }
    }

    /// Of each scope, the first plan that waits to begin.
    fn look_at_waiting(&mut self, by: &Ownership, due: &mut Due) {
        let now = self.now;
        let mut found = Vec::new();
        for stored in self.schedules.values().filter(|it| has(by, &it.row)) {
            let scopes = stored.waiting.iter().filter(|(_, at)| **at <= now);
            found.extend(scopes.map(|(key, at)| (*at, stored.row.name.clone(), key.clone())));
        }
        found.sort();
        for (_, schedule, (kind, id)) in found {
            let waits = |it: &&Execution| {
                it.is_of(&schedule, &kind, &id) && it.run_id.is_none() && it.wake_at.is_some()
            };
            let waiting = self.executions.iter().filter(waits);
            let first = waiting.clone().filter(|it| it.wake_at.is_some_and(|at| at <= now));
            let first = first.min_by_key(|it| it.plan).cloned();
            let next = match &first {
                Some(_) => Some(now + SOON),
                None => waiting.filter_map(|it| it.wake_at).min(),
            };
            let is_running = self.is_running(&schedule, &kind, &id, None);
            let Some(stored) = self.schedules.get_mut(&schedule) else { continue };
            match next {
                Some(at) => drop(stored.waiting.insert((kind, id), at)),
                None => drop(stored.waiting.remove(&(kind, id))),
            }
            if let Some(first) = first
                && let Some(wake_at) = first.wake_at
            {
                due.executions.push(due_execution(first, stored.row.hash.clone(), is_running, wake_at));
            }
        }
    }

    pub(super) fn fire(&mut self, firing: Firing) -> Result<Option<Vec<Begun>>> {
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
        scope.failures = 0;
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
            let one = self.begin_run(&firing.schedule, plan, birth).inspect_err(|_| {
                let stored = self.schedules.get_mut(&firing.schedule);
                if let Some(scope) = stored.and_then(|stored| stored.scope(&firing.kind, &firing.id)) {
                    *scope = before.clone();
                }
            })?;
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
                failures: 0,
                earlier: (0, 0),
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

    /// A run that has the key already is somebody else's: that a plan begins once is the execution's to keep.
    fn begin_run(&mut self, schedule: &str, plan: Time, mut birth: Birth) -> Result<Begun> {
        birth.run.tenant = tenant_of(schedule).to_owned();
        if let Some(number) = self.with_key(&birth.run) {
            let run_id = self.row(number)?.id().to_owned();
            let key = birth.run.idempotency_key.clone().unwrap_or_default();
            return Err(StoreError::KeyReused { key, run_id });
        }
        if birth.lease.is_none() {
            return Ok(Begun::Queued(plan, self.enqueue(&birth.run)?.run.id().to_owned()));
        }
        Ok(Begun::Held(plan, Box::new(self.new_held(&birth.run, birth.lease)?)))
    }

    fn count(&mut self, schedule: &str, kind: &str, id: &str, counts: &Counts) {
        if let Some(scope) = self.schedules.get_mut(schedule).and_then(|stored| stored.scope(kind, id)) {
            scope.counts.add(counts);
        }
    }

    pub(super) fn begin_execution(&mut self, begin: &Begin) -> Result<Option<Begun>> {
        let Begin { schedule, kind, id, plan, .. } = begin;
        let found = self.executions.iter().position(|it| it.is_of(schedule, kind, id) && it.plan == *plan);
        let Some(at) = found.filter(|at| self.executions[*at].wake_at.is_some()) else { return Ok(None) };
        if self.schedules.get(schedule).is_none_or(|stored| stored.row.paused.is_some()) {
            return Ok(None);
        }
        let run_id = self.executions[at].run_id.clone();
        if begin.alone && self.is_running(schedule, kind, id, run_id.as_deref()) {
            // One that has not begun keeps its place before those that come after it.
            if run_id.is_some() {
                self.executions[at].wake_at = Some(self.now + SOON);
            }
            return Ok(None);
        }
        let before = run_id.as_deref().and_then(|run_id| self.run_of(run_id)).cloned();
        let begun = match &before {
            None => self.begin_run(schedule, *plan, begin.birth.clone())?,
            Some(row) => match self.taken(row.id(), &begin.by, begin.birth.lease) {
                Ok(claimed) => Begun::Held(*plan, Box::new(claimed)),
                Err(StoreError::Refused(_)) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let row = self.run_of(begun.run_id()).cloned().ok_or_else(|| StoreError::no_run(begun.run_id()))?;
        let execution = &mut self.executions[at];
        execution.run_id = Some(row.id().to_owned());
        (execution.wake_at, execution.failures) = (Some(first_look(&row, self.now)), 0);
        self.count(schedule, kind, id, &taken_as(before.as_ref()));
        if !begin.alone
            && let Some(stored) = self.schedules.get_mut(schedule)
            && let Some(waiting) = stored.waiting.get_mut(&(kind.clone(), id.clone()))
        {
            *waiting = self.now;
        }
        self.writes += 1;
        Ok(Some(begun))
    }

    fn taken(&mut self, run_id: &str, by: &str, lease: Option<Span>) -> Result<Claimed> {
        let number = self.number_of(run_id)?;
        let change = self.decide(number, who(Actor::Worker, by), Ask::Claim { lease, start: false })?;
        self.commit(number, change)?;
        self.claimed(number)
    }

    pub(super) fn put_off(&mut self, failed: &Failed) {
        let Failed { schedule, what, wake_at } = failed;
        let now = self.now;
        let Some(stored) = self.schedules.get_mut(schedule) else { return };
        let (at, failures) = match what {
            Failing::Listing => (&mut stored.scopes_at, &mut stored.scopes_failures),
            Failing::Scope { kind, id } => {
                let Some(scope) = stored.scope(kind, id) else { return };
                (&mut scope.wake_at, &mut scope.failures)
            }
            Failing::Execution { kind, id, plan } => {
                let is_it = |it: &&mut Execution| it.is_of(schedule, kind, id) && it.plan == *plan;
                let Some(it) = self.executions.iter_mut().find(is_it) else { return };
                (&mut it.wake_at, &mut it.failures)
            }
        };
        if *at == Some(*wake_at) {
            *failures = failures.saturating_add(1);
            *at = Some(now + wait_after(*failures));
        }
    }
}

fn due_execution(execution: Execution, hash: String, is_running: bool, wake_at: Time) -> DueExecution {
    let Execution { schedule, kind, id, plan, run_id, manual, .. } = execution;
    DueExecution { schedule, hash, kind, id, plan, run_id, manual, is_running, wake_at }
}
