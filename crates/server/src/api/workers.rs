//! Who works: those who hold runs, by the leases; and those who asked this server for work lately.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use serde_json::{Value, json};
use waypost_store::iso;

use super::shapes::WORKERS;
use super::{GET, Route, ok, plain};
use crate::answer::{self, Result};
use crate::app::{App, Claimer};
use crate::call::Call;

const LATELY: Duration = Duration::from_secs(300);
/// Names never come back, so old ones have to leave.
const MOST: usize = 10_000;

pub const ROUTES: &[Route] = &[Route {
    path: "/v1/workers",
    name: "listWorkers",
    description: "Who holds runs, or asked this server for some within 5 minutes.",
    responses: &[ok(&WORKERS)],
    ..plain!(GET, show)
}];

#[derive(Clone, Debug, Default)]
pub struct WorkerRow {
    pub held: u64,
    pub stale_after: Option<String>,
    pub(crate) seen: Option<Claimer>,
}

pub(crate) fn see(app: &App, worker: String, claimer: Claimer) {
    let mut claimers = app.claimers.lock().unwrap_or_else(PoisonError::into_inner);
    if claimers.len() >= MOST {
        claimers.retain(|_, claimer| claimer.at.elapsed() < LATELY);
    }
    if claimers.len() < MOST || claimers.contains_key(&worker) {
        claimers.insert(worker, claimer);
    }
}

pub async fn list(app: &App, tenant: Option<String>) -> Result<BTreeMap<String, WorkerRow>> {
    let mut workers: BTreeMap<String, WorkerRow> = BTreeMap::new();
    for holder in app.store.holders(tenant.clone()).await? {
        let row = workers.entry(holder.worker).or_default();
        row.held = holder.held;
        row.stale_after = Some(iso(holder.stale_after));
    }
    let claimers = app.claimers.lock().unwrap_or_else(PoisonError::into_inner);
    let is_asked_for = |claimer: &Claimer| tenant.as_ref().is_none_or(|tenant| *tenant == claimer.tenant);
    for (name, claimer) in claimers.iter().filter(|(_, it)| it.at.elapsed() < LATELY && is_asked_for(it)) {
        workers.entry(name.clone()).or_default().seen = Some(claimer.clone());
    }
    Ok(workers)
}

/// Slots in use, of those that are known: a worker asks for as many as it has free.
pub fn utilisation(workers: &BTreeMap<String, WorkerRow>) -> Option<f64> {
    let held: u64 = workers.values().map(|worker| worker.held).sum();
    let free: usize = workers.values().filter_map(|worker| worker.seen.as_ref()).map(|seen| seen.free).sum();
    let slots = held + free as u64;
    (slots > 0).then(|| held as f64 / slots as f64)
}

async fn show(call: Call) -> Result {
    let workers = list(&call.app, Some(call.caller.tenant.clone())).await?;
    let object = |(name, row): (&String, &WorkerRow)| {
        let seen = row.seen.as_ref();
        json!({
            "worker": name,
            "held": row.held,
            "stale_after": row.stale_after,
            "seen_ms_ago": seen.map(|seen| seen.at.elapsed().as_millis() as u64),
            "free": seen.map(|seen| seen.free),
            "queues": seen.map(|seen| seen.queues.clone()).unwrap_or_default(),
        })
    };
    let objects: Vec<Value> = workers.iter().map(object).collect();
    Ok(answer::json(200, &json!({ "workers": objects })))
}
