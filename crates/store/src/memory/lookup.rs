//! Looking things up.

use std::collections::BTreeMap;

use serde_json::Value;
use waypost_kernel::Phase;
use waypost_kernel::text::MAX_PAGE;

use super::state::{Entry, State};
use crate::error::{Result, StoreError};
use crate::run::RunRow;
use crate::verbs::{Filter, Page, QueueRow};

/// How many of the runs that an ambiguous prefix could mean are named.
const NAMED: usize = 3;

impl State {
    pub fn run(&self, tenant: &str, id: &str) -> Result<RunRow> {
        let mut found: Vec<&RunRow> = self
            .runs
            .values()
            .map(|entry| &entry.row)
            .filter(|row| row.tenant == tenant && row.id().starts_with(id))
            .collect();
        if let Some(exact) = found.iter().find(|row| row.id() == id) {
            return Ok((*exact).clone());
        }
        found.sort_by_key(|row| row.id());
        match found[..] {
            [] => Err(StoreError::no_run(id)),
            [one] if !id.is_empty() => Ok(one.clone()),
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
            .filter(|(_, entry)| matches(entry, filter))
            .map(|(number, entry)| (*number, &entry.row));
        let page: Vec<(u64, &RunRow)> = found.by_ref().take(limit).collect();
        let next = page.last().map(|(number, _)| number.to_string()).filter(|_| found.next().is_some());
        Ok(Page { runs: page.into_iter().map(|(_, row)| row.clone()).collect(), next })
    }

    /// Those with runs that wait or are held, and those that somebody set something for.
    pub fn queue_rows(&self) -> Vec<QueueRow> {
        let mut queues: BTreeMap<&str, QueueRow> = BTreeMap::new();
        for (name, settings) in &self.queues {
            let row = queues.entry(name).or_default();
            row.at_most = settings.at_most;
            row.paused.clone_from(&settings.paused);
        }
        for row in self.runs.values().map(|entry| &entry.row) {
            let at = row.run.available_at;
            match row.phase() {
                Phase::Held => queues.entry(&row.queue).or_default().held += 1,
                Phase::Ready if at.is_some_and(|at| at <= self.now) => {
                    let queue = queues.entry(&row.queue).or_default();
                    queue.ready += 1;
                    queue.oldest_ready_at = queue.oldest_ready_at.min(at).or(at);
                }
                Phase::Ready => queues.entry(&row.queue).or_default().scheduled += 1,
                Phase::Draft | Phase::Parked | Phase::Settled => {}
            }
        }
        queues.into_iter().map(|(name, row)| QueueRow { name: name.to_owned(), ..row }).collect()
    }

    pub fn queue_row(&self, name: &str) -> QueueRow {
        let found = self.queue_rows().into_iter().find(|row| row.name == name);
        found.unwrap_or_else(|| QueueRow { name: name.to_owned(), ..QueueRow::default() })
    }
}

fn matches(entry: &Entry, filter: &Filter) -> bool {
    let row = &entry.row;
    let is = |wanted: &Option<String>, has: &str| wanted.as_ref().is_none_or(|wanted| wanted == has);
    row.tenant == filter.tenant
        && is(&filter.lifecycle, &row.lifecycle.name)
        && is(&filter.status, row.status())
        && is(&filter.queue, &row.queue)
        && filter.hidden() != Some(row.queue.as_str())
        && filter.text.as_ref().is_none_or(|text| mentions(row, text))
}

fn mentions(row: &RunRow, text: &str) -> bool {
    row.id().contains(text)
        || row.correlation_id.as_ref().is_some_and(|id| id.contains(text))
        || Value::Object((*row.metadata).clone()).to_string().contains(text)
}
