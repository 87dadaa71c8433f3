//! Workers' signs of life.

use std::collections::BTreeMap;

use waypost_kernel::Span;
use waypost_kernel::text::{MAX_KEY_BYTES, MAX_NAME_BYTES};
use waypost_store::{EVERY_TENANT, Reply, Result, StoreError, WorkerBeat, WorkerRow};

use super::MemoryStore;
use super::rules::intake::{check_name, check_tenant, check_text};
use super::state::State;

/// Silent for longer: what its claims tell counts again, and it takes nothing.
pub(super) const SILENT: Span = Span::from_seconds(45);
const FORGOTTEN: Span = Span::from_seconds(600);
const LONGEST_LIST: usize = 20_000;

impl MemoryStore {
    pub(crate) fn beat(&self, worker: WorkerBeat) -> Reply<'_, ()> {
        self.verb(move |state| state.beat(worker))
    }

    pub(crate) fn remove_worker(&self, name: String, tenant: Option<String>) -> Reply<'_, ()> {
        self.verb(move |state| {
            state.writes += 1;
            state.workers.retain(|(known, ..)| known.name != name || known.tenant != tenant);
            Ok(())
        })
    }

    pub(crate) fn workers(&self, tenant: Option<String>) -> Reply<'_, Vec<WorkerRow>> {
        self.verb(move |state| Ok(state.workers_of(tenant.as_deref())))
    }
}

impl State {
    fn beat(&mut self, worker: WorkerBeat) -> Result<()> {
        check_beat(&worker)?;
        let is_other = |known: &&WorkerBeat| known.tenant == worker.tenant && known.name != worker.name;
        let others = self.workers.iter().map(|(known, ..)| known).filter(is_other);
        if others.chain([&worker]).map(listed).sum::<usize>() > 1 << 20 {
            return Err(StoreError::invalid(
                "playbooks",
                "the workers of this tenant list too much; allowed: up to 1048576",
            ));
        }
        self.writes += 1;
        let now = self.now;
        let is_same =
            |known: &&mut (WorkerBeat, _, _)| known.0.name == worker.name && known.0.tenant == worker.tenant;
        match self.workers.iter_mut().find(is_same) {
            Some(known) => {
                let says_itself = !known.0.by_claims && now - known.2 <= SILENT;
                if !(worker.by_claims && says_itself) {
                    (known.0, known.2) = (worker, now);
                }
            }
            None => self.workers.push((worker, now, now)),
        }
        self.workers.retain(|(_, _, seen)| now - *seen <= FORGOTTEN);
        Ok(())
    }

    fn workers_of(&self, tenant: Option<&str>) -> Vec<WorkerRow> {
        let mut rows: BTreeMap<(String, String), WorkerRow> = BTreeMap::new();
        for (beat, started, seen) in &self.workers {
            if self.now - *seen > FORGOTTEN
                || tenant.is_some_and(|tenant| beat.tenant.as_deref() != Some(tenant))
            {
                continue;
            }
            let whose = beat.tenant.clone().unwrap_or_else(|| EVERY_TENANT.to_owned());
            let row = WorkerRow {
                name: beat.name.clone(),
                tenant: whose.clone(),
                queues: beat.queues.clone(),
                lifecycles: beat.lifecycles.clone(),
                can: beat.can.clone(),
                only: beat.only.clone(),
                slots: Some(beat.slots),
                version: Some(beat.version.clone()),
                started_at: Some(*started),
                seen_at: Some(*seen),
                by_claims: beat.by_claims,
                ..WorkerRow::default()
            };
            rows.insert((beat.name.clone(), whose), row);
        }
        for run in self.runs.values().map(|entry| &entry.row) {
            let Some(lease) = &run.run.lease else { continue };
            let Some(worker) = &lease.worker else { continue };
            if tenant.is_some_and(|tenant| tenant != run.tenant) {
                continue;
            }
            let (own, everybodys) =
                ((worker.to_string(), run.tenant.clone()), (worker.to_string(), EVERY_TENANT.to_owned()));
            let key =
                if !rows.contains_key(&own) && rows.contains_key(&everybodys) { everybodys } else { own };
            let row = rows.entry(key.clone()).or_insert_with(|| WorkerRow {
                name: key.0,
                tenant: key.1,
                ..WorkerRow::default()
            });
            row.busy += 1;
            row.stale_after = Some(row.stale_after.map_or(lease.until, |first| first.min(lease.until)));
            if row.by_claims {
                row.slots = row.slots.map(|slots| slots + 1);
            }
        }
        rows.into_values().collect()
    }
}

/// What its lists take as JSON, in characters.
fn listed(worker: &WorkerBeat) -> usize {
    let size = |names: &Vec<String>| serde_json::json!(names).to_string().chars().count();
    size(&worker.queues)
        + size(&worker.lifecycles)
        + worker.can.as_ref().map_or(0, |can| size(&can.playbooks))
}

fn check_beat(worker: &WorkerBeat) -> Result<()> {
    check_name("worker", &worker.name)?;
    worker.tenant.as_deref().map_or(Ok(()), check_tenant)?;
    check_text("version", &worker.version, MAX_NAME_BYTES)?;
    if worker.slots == 0 && !worker.by_claims {
        return Err(StoreError::invalid("slots", "is 0"));
    }
    check_text("only", worker.only.as_deref().unwrap_or_default(), MAX_NAME_BYTES)?;
    let playbooks = worker.can.iter().flat_map(|can| &can.playbooks).collect::<Vec<_>>();
    for (field, names) in [
        ("queues", worker.queues.iter().collect()),
        ("lifecycles", worker.lifecycles.iter().collect::<Vec<_>>()),
        ("playbooks", playbooks),
    ] {
        if names.len() > LONGEST_LIST {
            return Err(StoreError::invalid(field, "has too many entries"));
        }
        for name in names {
            check_text(field, name, MAX_KEY_BYTES)?;
        }
    }
    Ok(())
}
