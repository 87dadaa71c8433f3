//! Workers take runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::Value;
use waypost_kernel::lifecycle::{Actor, OnStale, Phase};
use waypost_kernel::request::Ask;
use waypost_kernel::tenant::may_mean;

use waypost_kernel::{Code, Refusal, Span};
use waypost_store::{
    Can, Claim, Claimed, DEFAULT_TENANT, Each, Enqueued, EnqueuedClaim, NewRun, Reply, Result, RunRow,
    StoreError, Take,
};

use super::enqueue::Birth;
use super::rules::intake::{check_key, check_name, check_new};
use super::state::{Entry, State};
use super::{MemoryStore, who};

/// Of a concurrency key that nobody gave another one.
const KEY_LIMIT: u32 = 1;

impl MemoryStore {
    pub(crate) fn enqueue(&self, runs: Vec<NewRun>) -> Reply<'_, Each<Enqueued>> {
        self.verb(move |state| Ok(runs.iter().map(|new| state.enqueue_of_client(new)).collect()))
    }

    /// Two verbs in a row are one transaction here: nobody comes in between.
    pub(crate) fn enqueue_claimed(&self, run: NewRun, take: Take) -> Reply<'_, EnqueuedClaim> {
        self.verb(move |state| {
            check_name("worker", &take.worker)?;
            let mut enqueued = state.enqueue_of_client(&run)?;
            let claimed = match enqueued.replayed {
                true => state.own_lease(&enqueued.run, &take.worker),
                false => match state.claim_run(enqueued.run.id(), &take) {
                    Err(StoreError::Refused(_)) => None,
                    claimed => Some(claimed?),
                },
            };
            if let Some(claimed) = &claimed {
                enqueued.run = claimed.run.clone();
            }
            Ok(EnqueuedClaim { enqueued, claimed })
        })
    }

    /// It comes in, and all is put back.
    pub(crate) fn dry_run(&self, run: NewRun) -> Reply<'_, Option<String>> {
        self.verb(move |state| {
            let mut tried = state.clone();
            let enqueued = tried.enqueue_of_client(&run)?;
            Ok(enqueued.replayed.then(|| enqueued.run.id().to_owned()))
        })
    }

    pub(crate) fn made_by(&self, tenant: String, key: String, asked: String) -> Reply<'_, Option<RunRow>> {
        self.verb(move |state| {
            check_key("idempotency_key", Some(&key))?;
            let same = NewRun { tenant, idempotency_key: Some(key), asked: Some(asked), ..NewRun::default() };
            state.known_as(&same)
        })
    }

    pub(crate) fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>> {
        self.verb(move |state| state.claim(&claim))
    }

    pub(crate) fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed> {
        self.verb(move |state| state.claim_run(&run_id, &take))
    }
}

impl State {
    /// The lease of a worker that asks for its new run again.
    pub(super) fn own_lease(&self, run: &RunRow, worker: &str) -> Option<Claimed> {
        let lease = run.run.lease.clone().filter(|lease| lease.until >= self.now)?;
        let is_own = lease.worker.is_some_and(|holder| *holder == *worker);
        is_own.then(|| Claimed {
            token: lease.token,
            fence: run.run.fence,
            expires_at: lease.until,
            now: self.now,
            run: run.clone(),
        })
    }

    fn claim(&mut self, claim: &Claim) -> Result<Vec<Claimed>> {
        check_name("worker", &claim.worker)?;
        check_key("idempotency_key", claim.idempotency_key.as_deref())?;
        let tenant = claim.tenant.as_deref().unwrap_or_default();
        let key = claim.idempotency_key.as_ref().map(|key| (claim.worker.clone(), format!("{tenant}/{key}")));
        let before = key.as_ref().and_then(|key| self.claims.get(key)).cloned().unwrap_or_default();
        let same: Vec<u64> =
            before.into_iter().filter(|it| self.holds(it, &claim.worker)).map(|(it, _)| it).collect();
        if !same.is_empty() && claim.limit > 0 {
            return same.into_iter().map(|number| self.claimed(number)).collect();
        }
        let mut claimed = Vec::new();
        let mut room = ByteRoom { most: claim.bytes, used: 0 };
        for number in self.left_behind(claim) {
            if claimed.len() < claim.limit && room.has_for(self.row(number)?) {
                let taken = self.try_to_take(number, claim)?;
                room.used += taken.as_ref().map_or(0, |taken| memory_of(&taken.run));
                claimed.extend(taken);
            }
        }
        while claimed.len() < claim.limit {
            let Some(taken) = self.take_next(claim, &room)? else { break };
            room.used += memory_of(&taken.run);
            claimed.push(taken);
        }
        let number = |taken: &Claimed| Ok((self.number_of(taken.run.id())?, taken.fence));
        let taken_now = claimed.iter().map(number).collect::<Result<Vec<_>>>()?;
        if let Some(key) = key.filter(|_| !taken_now.is_empty()) {
            self.claims.insert(key, taken_now);
        }
        Ok(claimed)
    }

    /// A lease that an earlier claim got and that still lasts.
    fn holds(&self, (number, fence): &(u64, u64), worker: &str) -> bool {
        let Some(run) = self.runs.get(number).map(|entry| &entry.row.run) else { return false };
        let is_own = run
            .lease
            .as_ref()
            .is_some_and(|lease| lease.worker.as_deref() == Some(worker) && !lease.is_expired(self.now));
        run.fence == *fence && is_own
    }

    /// Held runs that nobody works any more, the longest waiting first. What is stolen and not taken over
    /// (cron) is its plan's.
    fn left_behind(&self, claim: &Claim) -> Vec<u64> {
        let since = |entry: &Entry| {
            let lease = entry.row.run.lease.as_ref()?;
            let steals = entry.row.lifecycle.state(entry.row.run.state).on_stale == Some(OnStale::Steal);
            let left = lease.is_vacant() || lease.is_expired(self.now) && !steals;
            (left && entry.row.phase() == Phase::Held).then_some(lease.until)
        };
        let wanted = self.runs.iter().filter(|(_, entry)| is_wanted(entry, claim));
        let mut found: Vec<_> = wanted.filter_map(|(number, it)| Some((since(it)?, *number))).collect();
        found.sort();
        found.into_iter().map(|(_, number)| number).collect()
    }

    /// Of the best priority of which something can be taken, the run of the tenant whose turn it is; of a tenant the one
    /// that may be taken the longest, then the one that was created first.
    fn take_next(&mut self, claim: &Claim, room: &ByteRoom) -> Result<Option<Claimed>> {
        let mut lists: BTreeMap<(Reverse<i16>, String), Vec<_>> = BTreeMap::new();
        for (number, entry) in &self.runs {
            if is_wanted(entry, claim) && entry.row.phase() == Phase::Ready {
                let list = lists.entry((Reverse(entry.row.priority), entry.row.tenant.clone())).or_default();
                list.push((entry.row.run.available_at, *number));
            }
        }
        let kind = format!("{:?} {:?} {:?}", claim.queues, claim.lifecycles, claim.can);
        let mut order: Vec<_> = lists.into_iter().collect();
        order.sort_by_cached_key(|((priority, tenant), _)| {
            let last = self.served.get(&(kind.clone(), priority.0)).filter(|_| claim.tenant.is_none());
            (*priority, last.is_some_and(|last| place(tenant) <= place(last)), place(tenant))
        });
        for ((priority, tenant), mut list) in order {
            list.sort();
            for (_, number) in list {
                if !room.has_for(self.row(number)?) {
                    return Ok(None);
                }
                let taken = self.try_to_take(number, claim)?;
                if taken.is_some() {
                    if claim.tenant.is_none() {
                        self.served.insert((kind, priority.0), tenant);
                    }
                    return Ok(taken);
                }
            }
        }
        Ok(None)
    }

    /// None if it has to wait, or its lifecycle says no.
    fn try_to_take(&mut self, number: u64, claim: &Claim) -> Result<Option<Claimed>> {
        if self.wait_reason(number)?.is_some() {
            return Ok(None);
        }
        match self.take(number, &claim.take()) {
            Ok(taken) => Ok(Some(taken)),
            Err(StoreError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A run of a plan, held by who fires it from its beginning. Nobody has its key.
    pub(super) fn new_held(&mut self, run: &NewRun, lease: Option<Span>) -> Result<Claimed> {
        check_new(run)?;
        check_name("by", &run.by)?;
        let lifecycle = self.lifecycle_of(run)?;
        if !lifecycle.initial.iter().any(|state| lifecycle.phase(*state) == Phase::Held) {
            let message = format!("a {} run is not born held", lifecycle.name);
            return Err(StoreError::invalid("lifecycle", message));
        }
        if run.idempotency_key.is_none() {
            return Err(StoreError::invalid("idempotency_key", "a plan is known by its key: give one"));
        }
        let number = self.insert(run, lifecycle, Birth { actor: Actor::Worker, lease })?;
        self.claimed(number)
    }

    pub(super) fn claim_run(&mut self, run_id: &str, take: &Take) -> Result<Claimed> {
        check_name("worker", &take.worker)?;
        let number = self.number_of(run_id)?;
        match self.wait_reason(number)? {
            Some(reason) => Err(not_yet(self.row(number)?, "claim", reason)),
            None => self.take(number, take),
        }
    }

    /// Why a run may not be taken now, though its lifecycle may let it. One that somebody held last keeps its slots, so that
    /// taking over from him looks at no limit; one that was given back waits only for those of its key that somebody has.
    fn wait_reason(&self, number: u64) -> Result<Option<&'static str>> {
        let row = self.row(number)?;
        let settings = self.queues.get(&(row.tenant.clone(), row.queue.clone()));
        if settings.is_some_and(|it| it.paused.is_some()) {
            return Ok(Some("its queue is paused"));
        }
        let is_left = row.run.lease.as_ref().is_some_and(waypost_kernel::Lease::is_vacant);
        if row.phase() != Phase::Ready && !is_left {
            return Ok(None);
        }
        let held = |fits: &dyn Fn(&RunRow) -> bool| {
            let rows = self.runs.values().map(|entry| &entry.row).filter(|other| other.tenant == row.tenant);
            rows.filter(|row| row.phase() == Phase::Held && fits(row)).count()
        };
        if let Some(limit) = settings.and_then(|it| it.at_most)
            && held(&|other| other.queue == row.queue && has_holder(other)) >= limit as usize
        {
            return Ok(Some("its queue is at its limit"));
        }
        Ok(self.key_reason(row, is_left))
    }

    /// Why the key of a run that is to be begun, or taken up again where it was left, keeps it waiting.
    fn key_reason(&self, row: &RunRow, is_left: bool) -> Option<&'static str> {
        let key = row.concurrency_key.as_ref()?;
        let limit = self.key_limits.get(&(row.tenant.clone(), key.clone())).copied().unwrap_or(KEY_LIMIT);
        let limit = if is_left { limit.max(1) } else { limit };
        let rows = self.runs.values().map(|entry| &entry.row).filter(|other| other.tenant == row.tenant);
        let held = rows.filter(|it| it.phase() == Phase::Held && it.concurrency_key.as_ref() == Some(key));
        let counted = held.filter(|other| !is_left || has_holder(other)).count();
        (counted >= limit as usize).then_some("its concurrency key is at its limit")
    }

    fn take(&mut self, number: u64, take: &Take) -> Result<Claimed> {
        let ask = Ask::Claim { lease: take.lease, start: take.start };
        let change = self.decide(number, who(Actor::Worker, &take.worker), ask)?;
        self.commit(number, change)?;
        self.claimed(number)
    }

    pub(super) fn claimed(&self, number: u64) -> Result<Claimed> {
        let run = self.row(number)?.clone();
        let lease = run.run.lease.clone().ok_or_else(|| StoreError::no_run(run.id()))?;
        Ok(Claimed { token: lease.token, fence: run.run.fence, expires_at: lease.until, now: self.now, run })
    }
}

/// Turns go from the last name to the first, and then to who has none.
fn place(tenant: &str) -> (bool, Reverse<String>) {
    (tenant == DEFAULT_TENANT, Reverse(tenant.to_owned()))
}

fn is_wanted(entry: &Entry, claim: &Claim) -> bool {
    let row = &entry.row;
    let is_meant = |name: &str| match &claim.tenant {
        Some(tenant) => may_mean(tenant, name, &row.lifecycle.name),
        None => *name == *row.lifecycle.name,
    };
    claim.queues.contains(&row.queue)
        && (claim.lifecycles.is_empty() || claim.lifecycles.iter().any(|name| is_meant(name)))
        && claim.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
        && claim.can.as_ref().is_none_or(|can| can_execute(can, row))
}

fn has_holder(row: &RunRow) -> bool {
    row.run.lease.as_ref().is_some_and(|lease| lease.worker.is_some())
}

fn can_execute(can: &Can, row: &RunRow) -> bool {
    let named = row.playbook.as_ref().is_some_and(|playbook| can.playbooks.contains(playbook));
    named || can.carried && row.carried.is_some()
}

/// What one claim may take in memory; its first run always has room.
struct ByteRoom {
    most: Option<usize>,
    used: usize,
}

impl ByteRoom {
    fn has_for(&self, row: &RunRow) -> bool {
        self.used == 0 || self.most.is_none_or(|most| self.used + memory_of(row) <= most)
    }
}

/// Roughly what a run's own values take in memory.
fn memory_of(row: &RunRow) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len() + 2,
            Value::Array(values) => 64 + values.iter().map(|it| of(it) + 32).sum::<usize>(),
            Value::Object(members) => {
                640 + members.iter().map(|(name, it)| name.len() + of(it) + 32).sum::<usize>()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        }
    }
    let maps = [&row.metadata, &row.details].map(|map| map.values().map(of).sum::<usize>());
    of(&row.input) + row.carried.as_ref().map_or(0, of) + maps.iter().sum::<usize>()
}

/// The lifecycle would let a worker take it, but a pause or a limit makes it wait.
pub(super) fn not_yet(row: &RunRow, requested: &str, reason: &str) -> StoreError {
    let refusal = Refusal {
        code: Code::NotDue,
        message: reason.to_owned(),
        current: row.lifecycle.state(row.run.state).name.clone(),
        requested: requested.to_owned(),
        allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
        guard: None,
        field: None,
    };
    refusal.into()
}
