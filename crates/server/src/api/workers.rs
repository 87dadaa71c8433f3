//! Who works: workers' signs of life, and the leases that tell who holds runs. A worker that only claims is known by its claims.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::PoisonError;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use waypost_kernel::Time;
use waypost_kernel::text::MAX_PAGE;
use waypost_store::{Can, Claim, EVERY_TENANT, PAGE_BYTES, WorkerBeat, WorkerRow};

use super::executions::linked;
use super::requests::{WorkerBody, WorkersQuery};
use super::shapes::WORKERS;
use super::{Content, GET, Method, POST, Route, RouteResponse, asks, ok, plain, takes};
use crate::answer::{self, Result};
use crate::app::{App, SeenWorker};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{Problem, TOKEN_BUSY};

/// How long what was stored of a worker that only claims is good enough.
const FRESH: Duration = Duration::from_secs(10);
/// A worker that says so itself is believed for this long.
const DECLARED: Duration = Duration::from_secs(45);
/// Names never come back, so old ones have to leave.
const LATELY: Duration = Duration::from_secs(300);
const MOST: usize = 10_000;
/// Of one tenant's, so that no tenant takes the places of others.
const MOST_OF_A_TENANT: usize = 1_000;

const DONE: RouteResponse = RouteResponse { status: 204, description: "it is noted", body: Content::Nothing };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/workers",
        name: "listWorkers",
        description: "Workers that gave a sign of life within 10 minutes, and whoever else holds the tenant's runs; by name, page by page. \
                Who asks for work is listed without saying more.",
        responses: &[ok(&WORKERS)],
        ..asks!(GET, show, WorkersQuery)
    },
    Route {
        path: "/v1/workers",
        name: "reportWorker",
        description: "A worker's sign of life, with what it takes: every 15 seconds. One that was silent for 45 seconds does not count.",
        required_role: RequiredRole::Work,
        responses: &[DONE],
        refuses: &[&TOKEN_BUSY],
        ..takes!(POST, report, WorkerBody)
    },
    Route {
        method: Method::Delete,
        path: "/v1/workers/{worker}",
        name: "removeWorker",
        description: "The worker has stopped: it is not listed any more, unless it holds runs.",
        required_role: RequiredRole::Work,
        responses: &[DONE],
        ..plain!(GET, remove)
    },
];

/// A worker's name, and whose runs it works; `*` of one that works everybody's. Two tenants may have workers of one name.
pub(crate) type WorkerKey = (String, String);

/// Whether a sign of life is to be stored. None: there are more workers than one may have.
fn is_news(app: &App, key: WorkerKey, now: SeenWorker) -> Option<bool> {
    let mut seen = app.seen_workers.lock().unwrap_or_else(PoisonError::into_inner);
    match seen.get(&key) {
        Some(known) if !now.is_declared => {
            let age = known.at.elapsed();
            if known.is_declared && age < DECLARED || known.kind == now.kind && age < FRESH {
                return Some(false);
            }
        }
        Some(_) => {}
        None => {
            if seen.len() >= MOST_OF_A_TENANT {
                seen.retain(|_, known| known.at.elapsed() < LATELY);
            }
            let own = || seen.keys().filter(|(_, tenant)| *tenant == key.1).count();
            let is_bounded = key.1 != EVERY_TENANT && seen.len() >= MOST_OF_A_TENANT;
            if seen.len() >= MOST || is_bounded && own() >= MOST_OF_A_TENANT {
                return None;
            }
        }
    }
    seen.insert(key, now);
    Some(true)
}

fn whose(tenant: Option<&String>) -> String {
    tenant.cloned().unwrap_or_else(|| EVERY_TENANT.to_owned())
}

/// A claim is a sign of life too, which is stored at most every ten seconds. One that is not taken fails no claim.
pub(crate) async fn see(call: &Call, claim: &Claim) {
    let mut hasher = DefaultHasher::new();
    (&claim.queues, &claim.lifecycles, format!("{:?}", claim.can)).hash(&mut hasher);
    let now = SeenWorker { at: Instant::now(), is_declared: false, kind: hasher.finish() };
    let key = (claim.worker.clone(), whose(claim.tenant.as_ref()));
    if is_news(&call.app, key, now) != Some(true) {
        return;
    }
    let beat = WorkerBeat {
        name: claim.worker.clone(),
        tenant: claim.tenant.clone(),
        queues: claim.queues.clone(),
        lifecycles: claim.lifecycles.clone(),
        can: claim.can.clone(),
        only: None,
        slots: claim.limit as u64,
        version: String::new(),
        by_claims: true,
    };
    if let Err(error) = call.store().beat(beat).await {
        tracing::debug!(%error, "a worker's sign of life was not stored");
    }
}

async fn report(call: Call, body: WorkerBody) -> Result {
    let tenant = call.seen_tenant();
    let now = SeenWorker { at: Instant::now(), is_declared: true, kind: 0 };
    if is_news(&call.app, (body.name.clone(), whose(tenant.as_ref())), now).is_none() {
        let message = format!("there are {MOST_OF_A_TENANT} workers of this tenant, or {MOST} in all");
        return Err(Problem::new(&TOKEN_BUSY, message));
    }
    let says = body.playbooks.is_some() || body.embedded.is_some();
    let can =
        Can { playbooks: body.playbooks.unwrap_or_default(), carried: body.embedded.unwrap_or_default() };
    let beat = WorkerBeat {
        name: body.name,
        tenant,
        queues: body.queues,
        lifecycles: body.lifecycles,
        can: says.then_some(can),
        only: body.only,
        slots: body.slots.unwrap_or(1),
        version: body.version.unwrap_or_default(),
        by_claims: false,
    };
    call.store().beat(beat).await?;
    Ok(answer::empty(204))
}

async fn remove(call: Call) -> Result {
    let (worker, tenant) = (call.path("worker"), call.seen_tenant());
    let key = (worker.clone(), whose(tenant.as_ref()));
    call.app.seen_workers.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    call.store().remove_worker(worker, tenant).await?;
    Ok(answer::empty(204))
}

/// Workers of everybody's runs, as a tenant is told of them: that there are some, and not who they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared {
    pub workers: usize,
    pub slots: u64,
}

impl Shared {
    fn of(all: &[WorkerRow], now: Time) -> Shared {
        let live =
            all.iter().filter(|row| row.tenant == EVERY_TENANT && row.only.is_none() && row.is_live(now));
        live.fold(Shared::default(), |sum, row| Shared {
            workers: sum.workers + 1,
            slots: sum.slots + row.slots.unwrap_or_default(),
        })
    }

    fn object(self) -> Value {
        json!({ "workers": self.workers, "slots": self.slots })
    }
}

/// None to who is shown everybody's workers by name.
pub async fn shared(call: &Call) -> Result<Option<Shared>> {
    if call.seen_tenant().is_none() {
        return Ok(None);
    }
    let all = call.store().workers(None).await?;
    Ok(Some(Shared::of(&all, call.store().now().await?)))
}

/// Slots in use, of those that are known of workers that live. Who holds a tenant's runs and is no worker of its own has the slots of
/// those that are shared.
pub fn utilisation(workers: &[WorkerRow], shared: Option<Shared>, now: Time) -> Option<f64> {
    let counted = || workers.iter().filter(|row| row.is_live(now) || row.busy > 0);
    let busy: u64 = counted().map(|row| row.busy).sum();
    let own: u64 = counted().filter_map(|row| row.slots.map(|slots| slots.max(row.busy))).sum();
    let of_others: u64 = counted().filter(|row| row.slots.is_none()).map(|row| row.busy).sum();
    let slots = own + of_others.max(shared.unwrap_or_default().slots);
    (slots > 0).then(|| busy as f64 / slots as f64)
}

async fn show(call: Call, query: WorkersQuery) -> Result {
    let mut workers = match query.by_tenant {
        true => by_tenant(&call).await?,
        false => call.store().workers(call.seen_tenant()).await?,
    };
    if let Some(after) = &query.cursor {
        let (worker, tenant) = after.rsplit_once('/').unwrap_or((after, ""));
        workers.retain(|row| (row.name.as_str(), row.tenant.as_str()) > (worker, tenant));
    }
    let limit = query.limit.map_or(MAX_PAGE, |limit| limit.0);
    let (mut objects, mut bytes): (Vec<Value>, usize) = (Vec::new(), 0);
    for row in workers.iter().take(limit) {
        let object = row.object();
        bytes += object.to_string().len();
        if bytes > PAGE_BYTES && !objects.is_empty() {
            break;
        }
        objects.push(object);
    }
    let last = workers.get(objects.len().saturating_sub(1)).filter(|_| workers.len() > objects.len());
    let next = last.map(|row| format!("{}/{}", row.name, row.tenant));
    let shared = shared(&call).await?.map(Shared::object);
    let answer = answer::json(200, &json!({ "workers": objects, "shared": shared, "next_cursor": next }));
    Ok(linked(&call, answer, "/v1/workers", next.as_deref()))
}

/// Those who hold runs, with a row for each tenant whose runs one holds.
async fn by_tenant(call: &Call) -> Result<Vec<WorkerRow>> {
    let holders = call.store().holders(call.seen_tenant()).await?;
    let row = |holder: waypost_store::Holder| WorkerRow {
        name: holder.worker,
        tenant: holder.tenant,
        busy: holder.held,
        stale_after: Some(holder.stale_after),
        ..WorkerRow::default()
    };
    Ok(holders.into_iter().map(row).collect())
}
