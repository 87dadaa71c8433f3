//! Why runs wait: what is around each is looked up one by one; the kernel says what it comes to.

use std::collections::BTreeMap;

use serde_json::Value;
use waypost_kernel::run::Lease;
use waypost_kernel::waiting::{Ahead, Around, Asks, LimitFacts, PauseFacts, Waiting, WorkerFacts, waiting};
use waypost_kernel::{Phase, Span, Time};
use waypost_store::{Reply, RunRow};

use super::MemoryStore;
use super::state::{Entry, State};
use super::workers::SILENT;

/// Of a concurrency key that nobody gave another one.
const KEY_LIMIT: u32 = 1;
const MOST_NAMED: usize = 3;
/// For so long somebody may take what was given back.
const A_DAY: Span = Span::from_seconds(86_400);

impl MemoryStore {
    pub(crate) fn explain(&self, runs: Vec<RunRow>) -> Reply<'_, Vec<RunRow>> {
        self.verb(move |state| {
            let most = if runs.iter().filter(|row| state.is_due(row)).count() > 10 { 100 } else { 1_000 };
            let is_one = runs.len() == 1;
            let explained = |row: RunRow| {
                let queue_position = if is_one { state.position(&row) } else { None };
                RunRow { waits: Some(Box::new(state.why(&row, most))), queue_position, ..row }
            };
            Ok(runs.into_iter().map(explained).collect())
        })
    }
}

impl State {
    /// Whether a claim would take it, were there room.
    fn is_due(&self, row: &RunRow) -> bool {
        match given_back(row) {
            Some(until) => until <= self.now && self.now - until <= A_DAY,
            None => row.phase() == Phase::Ready && row.run.available_at.is_some_and(|at| at <= self.now),
        }
    }

    /// Its place in the line of its key, or of its queue.
    fn position(&self, row: &RunRow) -> Option<u64> {
        let is_ready = row.phase() == Phase::Ready && self.is_due(row);
        if row.concurrency_key.is_none() {
            return is_ready.then(|| self.ahead(row, 10_000).count + 1);
        }
        let own = self.number_of(row.id()).ok()?;
        let order =
            |row: &RunRow, number: u64| (std::cmp::Reverse(row.priority), row.run.available_at, number);
        let is_before = |(number, entry): &(&u64, &Entry)| {
            let other = &entry.row;
            other.tenant == row.tenant
                && other.concurrency_key == row.concurrency_key
                && other.phase() == Phase::Ready
                && self.is_due(other)
                && order(other, **number) < order(row, own)
        };
        is_ready.then(|| self.runs.iter().filter(is_before).count() as u64 + 1)
    }

    fn why(&self, row: &RunRow, most: u64) -> Option<Waiting> {
        let entry = self.runs.values().find(|entry| entry.row.id() == row.id());
        let of_queue = (row.tenant.clone(), row.queue.clone());
        let settings = self.queues.get(&of_queue);
        let pause = settings.and_then(|settings| settings.paused.as_ref());
        let at_most = settings.and_then(|settings| settings.at_most);
        let queue_limit = at_most.map(|most| {
            let in_queue = |it: &RunRow| it.tenant == row.tenant && it.queue == row.queue;
            self.held(most, |it| in_queue(it) && given_back(it).is_none())
        });
        let key_limit = row.concurrency_key.as_ref().map(|key| {
            let most = self.key_limits.get(&(row.tenant.clone(), key.clone())).copied().unwrap_or(KEY_LIMIT);
            let has_key = |it: &RunRow| it.tenant == row.tenant && it.concurrency_key.as_ref() == Some(key);
            match row.phase() == Phase::Ready {
                true => self.held(most, has_key),
                false => self.held(most.max(1), |it| has_key(it) && given_back(it).is_none()),
            }
        });
        let workers = self.live_for(&row.tenant);
        let (open, is_partly_decided) = entry.map(|entry| asked(&entry.row)).unwrap_or_default();
        let around = Around {
            now: self.now,
            tenant: &row.tenant,
            queue: &row.queue,
            schedule_at: row.schedule_at,
            moved_at: entry.and_then(|entry| self.waits_since(entry)),
            playbook: row.playbook.as_deref(),
            brings: entry.is_some_and(|entry| entry.row.carried.is_some()),
            pause: pause.map(|pause| PauseFacts { by: &pause.by, reason: &pause.reason, at: pause.at }),
            queue_limit: queue_limit.as_ref(),
            key_limit: row.concurrency_key.as_deref().zip(key_limit.as_ref()),
            workers: &workers,
            ahead: self.ahead(row, most),
            asks: Asks { open: &open, is_partly_decided },
        };
        waiting(&row.lifecycle, &row.run, &around)
    }

    fn held(&self, at_most: u32, is_one: impl Fn(&RunRow) -> bool) -> LimitFacts {
        let rows = self.runs.values().map(|entry| &entry.row);
        let held: Vec<&RunRow> = rows.filter(|row| row.phase() == Phase::Held && is_one(row)).collect();
        let by = held.iter().take(MOST_NAMED).map(|row| row.id().to_owned()).collect();
        LimitFacts { at_most: at_most.into(), held: held.len() as u64, by }
    }

    fn live_for(&self, tenant: &str) -> Vec<WorkerFacts> {
        let live = self.workers.iter().filter(|(beat, _, seen)| {
            self.now - *seen <= SILENT && beat.tenant.as_deref().is_none_or(|of| of == tenant)
        });
        let facts = live.filter_map(|(beat, _, seen)| {
            let leases = self.runs.values().filter_map(|entry: &Entry| entry.row.run.lease.as_ref());
            let own = |lease: &&Lease| lease.worker.as_deref() == Some(beat.name.as_str());
            let ends: Vec<Time> = leases.filter(own).map(|lease| lease.until).collect();
            if ends.iter().any(|end| *end <= self.now && seen <= end) {
                return None;
            }
            let busy = ends.len() as u64;
            Some(WorkerFacts {
                name: beat.name.clone(),
                is_own: beat.tenant.is_some(),
                seen_at: *seen,
                queues: beat.queues.clone(),
                lifecycles: beat.lifecycles.clone(),
                can: beat.can.clone().map(|can| (can.playbooks, can.carried)),
                only: beat.only.clone(),
                slots: if beat.by_claims { beat.slots + busy } else { beat.slots },
                busy,
            })
        });
        facts.collect()
    }

    /// Those of its queue that claims would take first: what was given back comes before what is ready. Of those with one key no more than the
    /// key lets through now.
    fn ahead(&self, row: &RunRow, most: u64) -> Ahead {
        let Ok(own) = self.number_of(row.id()) else { return Ahead::default() };
        let place = |number: u64, row: &RunRow| match given_back(row) {
            Some(until) => (false, std::cmp::Reverse(0), Some(until), number),
            None => (true, std::cmp::Reverse(row.priority), row.run.available_at, number),
        };
        let is_alike = |other: &RunRow| other.tenant == row.tenant && other.queue == row.queue;
        let others = self.runs.iter().map(|(number, entry)| (place(*number, &entry.row), &entry.row));
        let mut before: Vec<_> = others
            .filter(|(at, other)| is_alike(other) && self.is_due(other) && *at < place(own, row))
            .collect();
        before.sort_by_key(|(at, _)| *at);
        let mut free: BTreeMap<&str, i64> = BTreeMap::new();
        before.retain(|(_, other)| match &other.concurrency_key {
            Some(key) if other.phase() == Phase::Ready => {
                let free = free.entry(key).or_insert_with(|| self.free_slots(&row.tenant, key));
                *free -= 1;
                *free >= 0
            }
            _ => true,
        });
        let count = before.len() as u64;
        Ahead { count: count.min(most), is_cut: count > most }
    }

    /// How many more with this key may be begun.
    fn free_slots(&self, tenant: &str, key: &str) -> i64 {
        let most = self.key_limits.get(&(tenant.to_owned(), key.to_owned())).copied().unwrap_or(KEY_LIMIT);
        let rows = self.runs.values().map(|entry| &entry.row);
        let held = rows.filter(|it| {
            it.phase() == Phase::Held && it.tenant == tenant && it.concurrency_key.as_deref() == Some(key)
        });
        i64::from(most) - held.count() as i64
    }

    /// Of one that waits for people, when it came to; of one that waits for a time in nobody's hands, when it was given back.
    fn waits_since(&self, entry: &Entry) -> Option<Time> {
        let mut events = entry.events.iter().rev().map(|logged| &logged.row);
        match given_back(&entry.row) {
            Some(until) if until > self.now => events.find(|event| event.command == "release"),
            _ => events.find(|event| event.from.as_ref() != Some(&event.to)),
        }
        .map(|event| event.at)
    }
}

/// When a run that nobody holds, and that is held, may be taken.
fn given_back(row: &RunRow) -> Option<Time> {
    let lease = row.run.lease.as_ref().filter(|_| row.phase() == Phase::Held)?;
    lease.worker.is_none().then_some(lease.until)
}

/// What a run asks people that is not decided, and whether anything is. A question is one of its pause: only what was answered in this one counts.
fn asked(row: &RunRow) -> (Vec<String>, bool) {
    let Some(words) = &row.lifecycle.decisions else { return (Vec::new(), false) };
    let member = |name: &str| row.details.get(name).cloned().unwrap_or_default();
    if member(words.waiting()) != true {
        return (Vec::new(), false);
    }
    let given = member(words.given());
    let asked = member(words.asked()).as_object().cloned().unwrap_or_default();
    let count = asked.len();
    let is_open = |subject: &String, about: &Value| match given.get(subject) {
        None => true,
        Some(known) => about["ask"].is_string() && known["attempt"] != row.run.attempt,
    };
    let mut open: Vec<String> =
        asked.iter().filter(|(subject, about)| is_open(subject, about)).map(|(it, _)| it.clone()).collect();
    open.sort();
    let is_partly_decided = open.len() < count;
    (open, is_partly_decided)
}
