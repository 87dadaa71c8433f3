//! Who works: those who hold runs, by the leases; and those who asked this server for work lately.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use serde_json::{Value, json};
use waypost_kernel::text::MAX_PAGE;
use waypost_store::{EVERY_TENANT, iso};

use super::executions::linked;
use super::requests::WorkersQuery;
use super::shapes::WORKERS;
use super::{GET, Route, asks, ok};
use crate::answer::{self, Result};
use crate::app::{App, Claimer};
use crate::call::Call;

const LATELY: Duration = Duration::from_secs(300);
/// Names never come back, so old ones have to leave.
const MOST: usize = 10_000;
/// Of one token's.
const MOST_OF_A_TOKEN: usize = 1_000;

pub const ROUTES: &[Route] = &[Route {
    path: "/v1/workers",
    name: "listWorkers",
    description: "Who holds the tenant's runs, or asked this server for some of them within 5 minutes; by name, page by page.",
    responses: &[ok(&WORKERS)],
    ..asks!(GET, show, WorkersQuery)
}];

/// A worker's name, and whose runs it works; `*` of one that works everybody's. Two tenants may have workers of one name.
pub(crate) type WorkerKey = (String, String);

#[derive(Clone, Debug, Default)]
pub struct WorkerRow {
    pub held: u64,
    pub stale_after: Option<String>,
    pub(crate) seen: Option<Claimer>,
}

pub(crate) fn see(app: &App, worker: String, claimer: Claimer) {
    let key = (worker, claimer.tenant.clone());
    let mut claimers = app.claimers.lock().unwrap_or_else(PoisonError::into_inner);
    if !claimers.contains_key(&key) {
        if claimers.len() >= MOST_OF_A_TOKEN {
            claimers.retain(|_, claimer| claimer.at.elapsed() < LATELY);
        }
        let own = || claimers.values().filter(|known| known.token == claimer.token).count();
        let is_known = claimer.token.is_some();
        if claimers.len() >= MOST || is_known && claimers.len() >= MOST_OF_A_TOKEN && own() >= MOST_OF_A_TOKEN
        {
            return;
        }
    }
    claimers.insert(key, claimer);
}

/// Of a tenant: who holds its runs, or asked for those of no other. Of all: one that works everybody's stands there once,
/// whosever runs it holds.
pub async fn list(app: &App, tenant: Option<String>) -> Result<BTreeMap<WorkerKey, WorkerRow>> {
    let workers = list_apart(app, tenant).await?;
    let everybodys: BTreeSet<String> =
        workers.keys().filter(|key| key.1 == EVERY_TENANT).map(|key| key.0.clone()).collect();
    let is_everybodys =
        |(key, row): &(WorkerKey, WorkerRow)| row.seen.is_none() && everybodys.contains(&key.0);
    let (own, mut workers): (BTreeMap<_, _>, BTreeMap<_, _>) = workers.into_iter().partition(is_everybodys);
    for ((worker, _), row) in own {
        let first = workers.entry((worker, EVERY_TENANT.to_owned())).or_default();
        first.held += row.held;
        first.stale_after = first.stale_after.take().into_iter().chain(row.stale_after).min();
    }
    Ok(workers)
}

/// The same, with a row for each tenant whose runs one holds.
async fn list_apart(app: &App, tenant: Option<String>) -> Result<BTreeMap<WorkerKey, WorkerRow>> {
    let holders = app.store.holders(tenant.clone()).await?;
    let mut workers: BTreeMap<WorkerKey, WorkerRow> = BTreeMap::new();
    let claimers = app.claimers.lock().unwrap_or_else(PoisonError::into_inner);
    let is_asked_for = |claimer: &Claimer| tenant.as_ref().is_none_or(|tenant| *tenant == claimer.tenant);
    for (key, claimer) in claimers.iter().filter(|(_, it)| it.at.elapsed() < LATELY && is_asked_for(it)) {
        workers.entry(key.clone()).or_default().seen = Some(claimer.clone());
    }
    for holder in holders {
        let row = workers.entry((holder.worker, holder.tenant)).or_default();
        row.held = holder.held;
        row.stale_after = Some(iso(holder.stale_after));
    }
    Ok(workers)
}

/// Slots in use, of those that are known: a worker asks for as many as it has free.
pub fn utilisation(workers: &BTreeMap<WorkerKey, WorkerRow>) -> Option<f64> {
    let held: u64 = workers.values().map(|worker| worker.held).sum();
    let free: usize = workers.values().filter_map(|worker| worker.seen.as_ref()).map(|seen| seen.free).sum();
    let slots = held + free as u64;
    (slots > 0).then(|| held as f64 / slots as f64)
}

async fn show(call: Call, query: WorkersQuery) -> Result {
    let is_engine = call.header("waypost-detail") == Some("engine");
    let mut workers = match call.seen_tenant() {
        None if is_engine => list_apart(&call.app, None).await?,
        tenant => list(&call.app, tenant).await?,
    };
    if let Some(after) = &query.cursor {
        let (worker, tenant) = after.rsplit_once('/').unwrap_or((after, ""));
        let after = (worker.to_owned(), tenant.to_owned());
        workers = workers.split_off(&after);
        workers.remove(&after);
    }
    let limit = query.limit.map_or(MAX_PAGE, |limit| limit.0);
    let next = workers.keys().nth(limit - 1).filter(|_| workers.len() > limit);
    let next = next.map(|(worker, tenant)| format!("{worker}/{tenant}"));
    let object = |((name, tenant), row): (&WorkerKey, &WorkerRow)| {
        let seen = row.seen.as_ref();
        json!({
            "worker": name,
            "tenant": tenant,
            "held": row.held,
            "stale_after": row.stale_after,
            "seen_ms_ago": seen.map(|seen| seen.at.elapsed().as_millis() as u64),
            "free": seen.map(|seen| seen.free),
            "queues": seen.map(|seen| seen.queues.clone()).unwrap_or_default(),
        })
    };
    let objects: Vec<Value> = workers.iter().take(limit).map(object).collect();
    let answer = answer::json(200, &json!({ "workers": objects, "next_cursor": next }));
    Ok(linked(&call, answer, "/v1/workers", next.as_deref()))
}
