//! Figures.

use std::collections::BTreeMap;

use waypost_kernel::Span;

use super::MemoryStore;
use crate::looks::{DAY, Ended, Holder, Looks, Stats, WEEK};
use crate::verbs::{HOUSEKEEPING, Reply};

impl Looks for MemoryStore {
    fn stats(&self, tenant: Option<String>) -> Reply<'_, Stats> {
        self.verb(move |state| {
            let mut stats = Stats::default();
            for row in state.runs.values().map(|entry| &entry.row) {
                let Some(end) = row.run.finished_at.filter(|end| *end > state.now - WEEK) else { continue };
                if tenant.as_ref().is_some_and(|tenant| *tenant != row.tenant) || row.queue == HOUSEKEEPING {
                    continue;
                }
                stats.add(Ended {
                    lifecycle: row.lifecycle.name.to_string(),
                    status: row.status().to_owned(),
                    outcome: row.outcome(),
                    in_24h: u64::from(end > state.now - DAY),
                    in_7d: 1,
                    begun: u64::from(row.run.started_at.is_some()),
                    took: row.run.started_at.map_or(Span::ZERO, |start| end - start),
                });
            }
            Ok(stats)
        })
    }

    fn holders(&self, tenant: Option<String>) -> Reply<'_, Vec<Holder>> {
        self.verb(move |state| {
            let mut holders: BTreeMap<String, Holder> = BTreeMap::new();
            for row in state.runs.values().map(|entry| &entry.row) {
                let Some(lease) = &row.run.lease else { continue };
                let Some(worker) = &lease.worker else { continue };
                if tenant.as_ref().is_some_and(|tenant| *tenant != row.tenant) {
                    continue;
                }
                let holder = holders.entry(worker.to_string()).or_insert_with(|| Holder {
                    worker: worker.to_string(),
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
