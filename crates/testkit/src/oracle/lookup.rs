//! Looking things up, and figures.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::tenant::may_mean;
use waypost_kernel::text::MAX_PAGE;
use waypost_kernel::{Phase, Span, Time};
use waypost_store::{
    Ended, Filter, ForPeople, HOUSEKEEPING, Holder, KeyFilter, KeyRow, Needs, PAGE_BYTES, Page, Parts,
    QueueRow, Reply, Result, RunRow, Sample, SampledRun, Stats, StoreError,
};

use super::MemoryStore;
use super::state::{Entry, State};

/// How many of those who hold a queue or a key are named.
const NAMED_HOLDERS: usize = 5;
/// How many of the runs that an ambiguous prefix could mean are named.
const NAMED: usize = 3;

const DAY: Span = Span::from_seconds(86_400);
const WEEK: Span = Span::from_seconds(7 * 86_400);

/// A run as a list shows it.
fn with_parts(row: &RunRow, parts: Parts) -> RunRow {
    RunRow {
        input: if parts.input { row.input.clone() } else { Arc::default() },
        metadata: if parts.metadata { row.metadata.clone() } else { Arc::default() },
        details: if parts.details { row.details.clone() } else { Arc::default() },
        carried: row.carried.clone().filter(|_| parts.carried),
        ..row.clone()
    }
}

fn part_bytes(row: &RunRow) -> usize {
    let carried = row.carried.as_ref().map_or(0, |carried| carried.to_string().len());
    json!([*row.input, *row.metadata, *row.details]).to_string().len() + carried
}

impl State {
    pub fn run(&self, tenant: &str, id: &str) -> Result<RunRow> {
        if id.is_empty() {
            return Err(StoreError::no_run(id));
        }
        let rows = || self.runs.values().map(|entry| &entry.row).filter(|row| row.tenant == tenant);
        let mut found: Vec<&RunRow> = rows().filter(|row| row.id().starts_with(id)).collect();
        // What the engine does for itself is in no list, and meant only if nothing else can be.
        let is_listed = |row: &&RunRow| row.queue != HOUSEKEEPING;
        let is_settled = |found: &[&RunRow]| found.iter().any(|row| row.id() == id || is_listed(row));
        if !is_settled(&found) && id.len() >= 4 {
            let after_first = |row: &RunRow, separator| {
                row.id().split_once(separator).is_some_and(|(_, rest)| rest.starts_with(id))
            };
            let fits =
                |row: &&RunRow| row.id().ends_with(id) || after_first(row, '-') || after_first(row, '_');
            found.extend(rows().filter(fits));
        }
        if let Some(exact) = found.iter().find(|row| row.id() == id) {
            return Ok((*exact).clone());
        }
        if found.iter().any(is_listed) {
            found.retain(is_listed);
        }
        found.sort_by_key(|row| row.id());
        found.dedup_by_key(|row| row.id());
        match found[..] {
            [] => Err(StoreError::no_run(id)),
            [one] => Ok(one.clone()),
            _ => {
                let names: Vec<&str> = found.iter().take(NAMED).map(|row| row.id()).collect();
                let message = format!("{id:?} could mean any of {}: {}, …", found.len(), names.join(", "));
                Err(StoreError::invalid("run_id", message))
            }
        }
    }

    /// Newest first.
    pub fn runs(&self, filter: &Filter) -> Result<Page> {
        let before = match &filter.cursor {
            None => u64::MAX,
            Some(cursor) => cursor
                .parse()
                .map_err(|_| StoreError::invalid("cursor", "is none that an earlier page gave"))?,
        };
        let limit = filter.limit.min(MAX_PAGE);
        let mut found = self
            .runs
            .range(..before)
            .rev()
            .filter(|(_, entry)| matches(entry, filter, self.now))
            .map(|(number, entry)| (*number, &entry.row));
        let mut page: Vec<(u64, RunRow)> = Vec::new();
        let mut bytes = 0;
        let mut has_more = false;
        for (number, row) in found.by_ref() {
            let row = with_parts(row, filter.include);
            bytes += part_bytes(&row);
            has_more = page.len() == limit || !page.is_empty() && bytes > PAGE_BYTES;
            if has_more {
                break;
            }
            page.push((number, row));
        }
        let next = page.last().map(|(number, _)| number.to_string()).filter(|_| has_more);
        Ok(Page { runs: page.into_iter().map(|(_, row)| row).collect(), next })
    }

    /// Those with runs that wait or are held, and those that somebody set something for.
    pub fn queue_rows(&self) -> Vec<QueueRow> {
        let mut queues: BTreeMap<(&str, &str), QueueRow> = BTreeMap::new();
        for ((tenant, name), settings) in &self.queues {
            let row = queues.entry((name, tenant)).or_default();
            row.at_most = settings.at_most;
            row.paused.clone_from(&settings.paused);
        }
        for row in self.runs.values().map(|entry| &entry.row) {
            let left = row.run.lease.as_ref().filter(|lease| lease.worker.is_none());
            let at = left.map(|lease| lease.until).or(row.run.available_at);
            let of = (row.queue.as_str(), row.tenant.as_str());
            let phase = row.phase();
            if phase == Phase::Held {
                queues.entry(of).or_default().orphaned += u64::from(is_left(row, self.now));
            }
            // What was given back waits as what is ready does.
            match if left.is_some() { Phase::Ready } else { phase } {
                Phase::Held => {
                    let queue = queues.entry(of).or_default();
                    queue.held += 1;
                    if queue.held_by.len() < NAMED_HOLDERS {
                        queue.held_by.push(row.id().to_owned());
                    }
                }
                Phase::Ready if at.is_some_and(|at| at <= self.now) => {
                    let queue = queues.entry(of).or_default();
                    queue.ready += 1;
                    queue.oldest_ready_at = queue.oldest_ready_at.min(at).or(at);
                }
                Phase::Ready => queues.entry(of).or_default().scheduled += 1,
                Phase::Draft | Phase::Parked | Phase::Settled => {}
            }
        }
        let named = |((name, tenant), row): ((&str, &str), QueueRow)| QueueRow {
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            ..row
        };
        queues.into_iter().map(named).collect()
    }
}

impl State {
    fn keys(&self, filter: &KeyFilter) -> Vec<KeyRow> {
        let mut keys: BTreeMap<(String, String), KeyRow> = BTreeMap::new();
        let rows = || self.runs.values().map(|entry| &entry.row);
        let held = rows().filter(|row| row.phase() == Phase::Held);
        for (key, row) in held.filter_map(|row| Some((row.concurrency_key.clone()?, row))) {
            let of = keys.entry((key, row.tenant.clone())).or_default();
            of.held += 1;
            if of.held_by.len() < NAMED_HOLDERS {
                of.held_by.push(row.id().to_owned());
            }
        }
        for (tenant, key) in self.key_limits.keys() {
            keys.entry((key.clone(), tenant.clone())).or_default();
        }
        let is_due = |row: &&RunRow| {
            row.phase() == Phase::Ready && row.run.available_at.is_some_and(|at| at <= self.now)
        };
        for row in rows().filter(is_due) {
            let of = (row.concurrency_key.clone().unwrap_or_default(), row.tenant.clone());
            keys.entry(of).and_modify(|of| of.waiting += 1);
        }
        let fits = |of: &(String, String)| {
            filter.after.as_ref().is_none_or(|after| of > after)
                && filter.tenant.as_ref().is_none_or(|tenant| of.1 == *tenant)
        };
        let named = |((key, tenant), row): ((String, String), KeyRow)| {
            let at_most = self.key_limits.get(&(tenant.clone(), key.clone())).copied().unwrap_or(1);
            KeyRow { tenant, key, at_most: at_most.into(), ..row }
        };
        keys.into_iter().filter(|(of, _)| fits(of)).map(named).take(filter.limit).collect()
    }
}

fn is_needed(row: &RunRow, needs: Needs, now: Time) -> bool {
    match needs {
        Needs::Worker => is_left(row, now),
        Needs::Person => waypost_kernel::waiting::waits_for_people(&row.lifecycle, row.run.state),
    }
}

/// Held, and whoever should work it is gone. What was given back waits for a day as what is ready does.
fn is_left(row: &RunRow, now: Time) -> bool {
    let lease = row.run.lease.as_ref().filter(|_| row.phase() == Phase::Held);
    let a_day = Span::from_seconds(86_400);
    lease.is_some_and(|lease| lease.until < if lease.worker.is_none() { now - a_day } else { now })
}

fn matches(entry: &Entry, filter: &Filter, now: Time) -> bool {
    let row = &entry.row;
    let is = |wanted: &Option<String>, has: &str| wanted.as_ref().is_none_or(|wanted| wanted == has);
    // The engine's own runs are shown to whoever asks for their queue or lifecycle.
    let is_hidden = filter.queue.is_none() && filter.lifecycle.is_none() && row.queue == HOUSEKEEPING;
    row.tenant == filter.tenant
        && filter.lifecycle.as_ref().is_none_or(|name| may_mean(&filter.tenant, name, &row.lifecycle.name))
        && is(&filter.status, row.status())
        && is(&filter.queue, &row.queue)
        && filter.parent.as_ref().is_none_or(|parent| row.parent_run_id.as_ref() == Some(parent))
        && filter.needs.is_none_or(|needs| is_needed(row, needs, now))
        && filter.playbook.as_ref().is_none_or(|name| is_of_playbook(row, name))
        && filter.since.is_none_or(|since| row.run.created_at >= since)
        && filter.until.is_none_or(|until| row.run.created_at < until)
        && !is_hidden
        && filter.text.as_ref().is_none_or(|text| mentions(row, text))
}

/// By its name alone, or with the hash of what it said.
fn is_of_playbook(row: &RunRow, name: &str) -> bool {
    row.playbook.as_deref().is_some_and(|has| has.split('@').next() == Some(name) || has == name)
}

fn mentions(row: &RunRow, text: &str) -> bool {
    row.id().contains(text)
        || row.correlation_id.as_ref().is_some_and(|id| id.contains(text))
        || Value::Object((*row.metadata).clone()).to_string().contains(text)
}

/// For how long workers held it, from one event to the next.
fn held_for(entry: &Entry, now: Time) -> Option<Span> {
    let ends = entry.events.iter().skip(1).map(|logged| logged.event.at).chain([now]);
    let each = entry.events.iter().zip(ends).map(|(logged, end)| {
        let is_held = entry.row.lifecycle.phase(logged.event.to) == Phase::Held;
        if is_held { (end - logged.event.at).micros() } else { 0 }
    });
    let sum = each.sum();
    entry.row.run.started_at.map(|_| Span::from_micros(sum))
}

impl MemoryStore {
    pub(crate) fn keys(&self, filter: KeyFilter) -> Reply<'_, Vec<KeyRow>> {
        self.verb(move |state| Ok(state.keys(&filter)))
    }

    pub(crate) fn sample(&self, filter: Filter, look_at: usize, reach: Option<Time>) -> Reply<'_, Sample> {
        self.verb(move |state| {
            let window = |row: &RunRow| {
                filter.since.is_none_or(|since| row.run.created_at >= since)
                    && filter.until.is_none_or(|until| row.run.created_at < until)
            };
            let mut looked_at: Vec<&Entry> =
                state.runs.values().rev().filter(|entry| window(&entry.row)).collect();
            let next = looked_at.get(look_at).map(|entry| entry.row.run.created_at);
            let (mut cut_at, mut one_in) = (None, 1);
            match next {
                Some(at) if reach.is_some_and(|reach| at < reach) => {
                    looked_at.truncate(look_at);
                    cut_at = Some(at);
                }
                Some(_) => {
                    looked_at.retain(|entry| reach.is_none_or(|reach| entry.row.run.created_at >= reach));
                    one_in = looked_at.len().div_ceil(look_at);
                    looked_at = looked_at.into_iter().step_by(one_in).collect();
                    cut_at = reach;
                }
                None => {}
            }
            let fitting = looked_at.iter().filter(|entry| matches(entry, &filter, state.now));
            let runs = fitting.map(|entry| SampledRun {
                lifecycle: entry.row.lifecycle.clone(),
                state: entry.row.run.state,
                created_at: entry.row.run.created_at,
                finished_at: entry.row.run.finished_at,
                stands_for: one_in as u64,
                took: held_for(entry, state.now),
            });
            Ok(Sample { runs: runs.collect(), cut_at, one_in: one_in as u64 })
        })
    }

    pub(crate) fn took(&self, runs: Vec<RunRow>) -> Reply<'_, Vec<Option<Span>>> {
        self.verb(move |state| {
            let entry = |row: &RunRow| state.runs.values().find(|entry| entry.row.id() == row.id());
            Ok(runs.iter().map(|row| entry(row).and_then(|entry| held_for(entry, state.now))).collect())
        })
    }

    pub(crate) fn stats(&self, tenant: Option<String>) -> Reply<'_, Stats> {
        self.verb(move |state| {
            let mut stats = Stats::default();
            for (entry, row) in state.runs.values().map(|entry| (entry, &entry.row)) {
                let Some(end) = row.run.finished_at.filter(|end| *end > state.now - WEEK) else { continue };
                if tenant.as_ref().is_some_and(|tenant| *tenant != row.tenant) || row.queue == HOUSEKEEPING {
                    continue;
                }
                let ended = Ended {
                    lifecycle: row.lifecycle.name.to_string(),
                    status: row.status().to_owned(),
                    outcome: row.outcome(),
                    in_24h: u64::from(end > state.now - DAY),
                    in_7d: 1,
                    begun: u64::from(row.run.started_at.is_some()),
                    took: held_for(entry, state.now).unwrap_or(Span::ZERO),
                };
                let alike = |it: &&mut Ended| it.lifecycle == ended.lifecycle && it.status == ended.status;
                match stats.ended.iter_mut().find(alike) {
                    Some(known) => {
                        known.in_24h += ended.in_24h;
                        known.in_7d += ended.in_7d;
                        known.begun += ended.begun;
                        known.took = Span::from_micros(known.took.micros() + ended.took.micros());
                    }
                    None => stats.ended.push(ended),
                }
            }
            for row in state.runs.values().map(|entry| &entry.row) {
                let is_asked_for = tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant);
                if !is_asked_for || row.queue == HOUSEKEEPING || !is_needed(row, Needs::Person, state.now) {
                    continue;
                }
                let (lifecycle, status) = (row.lifecycle.name.to_string(), row.status().to_owned());
                let alike = |it: &&mut ForPeople| it.lifecycle == lifecycle && it.status == status;
                match stats.for_people.iter_mut().find(alike) {
                    Some(known) => known.count += 1,
                    None => stats.for_people.push(ForPeople { lifecycle, status, count: 1 }),
                }
            }
            stats.for_people.sort_by(|a, b| (&a.lifecycle, &a.status).cmp(&(&b.lifecycle, &b.status)));
            stats.ended.sort_by(|a, b| (&a.lifecycle, &a.status).cmp(&(&b.lifecycle, &b.status)));
            Ok(stats)
        })
    }

    pub(crate) fn holders(&self, tenant: Option<String>) -> Reply<'_, Vec<Holder>> {
        self.verb(move |state| {
            let mut holders: BTreeMap<(String, String), Holder> = BTreeMap::new();
            for row in state.runs.values().map(|entry| &entry.row) {
                let Some(lease) = &row.run.lease else { continue };
                let Some(worker) = &lease.worker else { continue };
                if tenant.as_ref().is_some_and(|tenant| *tenant != row.tenant) || row.queue == HOUSEKEEPING {
                    continue;
                }
                let of = (worker.to_string(), row.tenant.clone());
                let holder = holders.entry(of).or_insert_with(|| Holder {
                    worker: worker.to_string(),
                    tenant: row.tenant.clone(),
                    held: 0,
                    stale_after: lease.until,
                });
                holder.held += 1;
                holder.stale_after = holder.stale_after.min(lease.until);
            }
            Ok(holders.into_values().collect())
        })
    }
}
