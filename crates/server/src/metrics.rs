//! What the server counts of itself, and what it reads from the store when it is asked: OpenMetrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use tokio::time::timeout;
use waypost_store::{DEFAULT_TENANT, RunRow, Stats};
use waypost_worker::{APPLY_BUCKETS_MS, Applied};

use crate::answer::Result;
use crate::api::{Method, Route};
use crate::app::App;
use crate::problem::{INTERNAL_ERROR, Problem};

/// Queues with series of their own, by name the first: what a page costs must not grow with them for ever.
const MOST_QUEUES: usize = 200;
/// The name of all others.
pub const OTHERS: &str = "(others)";

type Count = Counter<u64, AtomicU64>;
type Level = Gauge<i64, AtomicI64>;
type Ratio = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: &'static str,
    route: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRoute {
    method: &'static str,
    route: &'static str,
}

/// Queues of the default tenant have no tenant: an installation that names none does not see them, and none of its series
/// changes its name when another tenant comes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OfQueue {
    queue: String,
    tenant: Option<String>,
}

impl EncodeLabelSet for OfQueue {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        ("queue", self.queue.as_str()).encode(encoder.encode_label())?;
        match &self.tenant {
            Some(tenant) => ("tenant", tenant.as_str()).encode(encoder.encode_label()),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPool {
    pool: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStatus {
    lifecycle: String,
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    result: &'static str,
}

/// Deliveries by what came of them.
#[derive(Debug, Default)]
pub struct Webhooks(Family<OfResult, Count>);

impl Webhooks {
    pub fn count(&self, result: &'static str) {
        self.0.get_or_create(&OfResult { result }).inc();
    }
}

/// What ended runs are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct OfEnd {
    tenant: String,
    lifecycle: String,
    status: String,
    queue: String,
    playbook: String,
}

impl EncodeLabelSet for OfEnd {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        let OfEnd { tenant, lifecycle, status, queue, playbook } = self;
        for label in [("lifecycle", lifecycle), ("status", status), ("queue", queue), ("playbook", playbook)]
        {
            (label.0, label.1.as_str()).encode(encoder.encode_label())?;
        }
        match tenant == DEFAULT_TENANT {
            true => Ok(()),
            false => ("tenant", tenant.as_str()).encode(encoder.encode_label()),
        }
    }
}

/// Series of ended runs: what comes beyond them is counted together, by tenant, lifecycle and status.
const MOST_ENDS: usize = 500;

/// Runs that ended, by what they were and how.
#[derive(Debug, Default)]
pub struct Finished(Mutex<BTreeMap<OfEnd, u64>>);

impl Finished {
    pub fn count(&self, row: &RunRow) {
        let playbook = row.playbook.as_deref().unwrap_or_default();
        let own = OfEnd {
            tenant: row.tenant.clone(),
            lifecycle: row.lifecycle.name.to_string(),
            status: row.status().to_owned(),
            queue: row.queue.clone(),
            playbook: playbook.split('@').next().unwrap_or_default().to_owned(),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = known.len() < MOST_ENDS || known.contains_key(&own);
        let labels =
            if has_room { own } else { OfEnd { queue: OTHERS.into(), playbook: OTHERS.into(), ..own } };
        *known.entry(labels).or_default() += 1;
    }

    /// Of one tenant, or of all.
    fn family(&self, tenant: Option<&str>) -> Family<OfEnd, Count> {
        let family = Family::<OfEnd, Count>::default();
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, count) in known.iter().filter(|(labels, _)| tenant.is_none_or(|it| it == labels.tenant))
        {
            family.get_or_create(labels).inc_by(*count);
        }
        family
    }
}

/// Counted as things happen; never by run, which would have no end.
#[derive(Debug)]
pub struct Metrics {
    answered: Family<Answered, Count>,
    took: Family<OfRoute, Histogram>,
    in_flight: Level,
    connections: Level,
    pub enqueued: Count,
    pub webhooks: Webhooks,
    pub claims: Count,
    pub claimed: Count,
    pub claim_took: Histogram,
    pub heartbeats: Count,
    pub leases_lost: Count,
    pub finished: Finished,
    pub sweeps: Count,
    pub swept: Count,
    pub projection_behind: Level,
    pub projection_left: Level,
    pub projection_lag: Ratio,
    pub streams: Level,
    pub streamed: Count,
    pub resets: Count,
    pub fell_behind: Count,
    apply_took: Histogram,
    applies: Count,
    target_retries: Count,
}

fn latency() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0])
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            answered: Family::default(),
            took: Family::new_with_constructor(latency),
            in_flight: Level::default(),
            connections: Level::default(),
            enqueued: Count::default(),
            webhooks: Webhooks::default(),
            claims: Count::default(),
            claimed: Count::default(),
            claim_took: latency(),
            heartbeats: Count::default(),
            leases_lost: Count::default(),
            finished: Finished::default(),
            sweeps: Count::default(),
            swept: Count::default(),
            projection_behind: Level::default(),
            projection_left: Level::default(),
            projection_lag: Ratio::default(),
            streams: Level::default(),
            streamed: Count::default(),
            resets: Count::default(),
            fell_behind: Count::default(),
            apply_took: Histogram::new(APPLY_BUCKETS_MS.map(|ms| ms as f64)),
            applies: Count::default(),
            target_retries: Count::default(),
        }
    }
}

/// Counts one while it lives.
#[derive(Debug)]
pub struct Present(Level);

impl Present {
    fn new(level: &Level) -> Present {
        level.inc();
        Present(level.clone())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub fn begin(&self) -> Present {
        Present::new(&self.in_flight)
    }

    pub fn connected(&self) -> Present {
        Present::new(&self.connections)
    }

    pub fn streaming(&self) -> Present {
        Present::new(&self.streams)
    }

    pub fn answered(&self, route: &Route, status: u16, took: Duration) {
        let (method, path) = (route.method.name(), route.path);
        self.answered.get_or_create(&Answered { method, route: path, status }).inc();
        // A long poll takes as long as it was told to.
        if route.method != Method::Get || status != 200 || !path.ends_with("stream") {
            self.took.get_or_create(&OfRoute { method, route: path }).observe(took.as_secs_f64());
        }
    }

    /// What came of tries of targets, here or in this process's own worker.
    pub fn applied(&self, applied: Applied) {
        self.target_retries.inc_by(applied.retries);
        if let Some(ms) = applied.took_ms {
            self.applies.inc();
            self.apply_took.observe(ms as f64);
        }
    }

    fn register(&self, registry: &mut Registry, tenant: Option<&str>) {
        let own = registry.sub_registry_with_prefix("waypost");
        own.register("http_requests", "Answers by route and status", self.answered.clone());
        own.register_with_unit(
            "http_request_duration",
            "From the request's head to the answer's",
            Unit::Seconds,
            self.took.clone(),
        );
        own.register("http_requests_in_flight", "Requests under way", self.in_flight.clone());
        own.register("http_connections", "Open connections", self.connections.clone());
        own.register("webhooks", "Deliveries of webhooks by what came of them", self.webhooks.0.clone());
        own.register("runs_enqueued", "Runs that this server took in", self.enqueued.clone());
        own.register("claim_requests", "Requests for work", self.claims.clone());
        own.register("runs_claimed", "Runs that this server gave out", self.claimed.clone());
        own.register_with_unit(
            "claim_duration",
            "One look for work, waiting left out",
            Unit::Seconds,
            self.claim_took.clone(),
        );
        own.register("heartbeats", "Heartbeats of workers", self.heartbeats.clone());
        own.register(
            "leases_lost",
            "Writes refused because the lease was another's",
            self.leases_lost.clone(),
        );
        own.register(
            "runs_finished",
            "Runs that workers finished here, by what they were and how they ended",
            self.finished.family(tenant),
        );
        own.register("sweeps", "Times that this server looked for what time moves", self.sweeps.clone());
        own.register(
            "projection_behind_runs",
            "Runs that moved and that this server has not written to the object store yet",
            self.projection_behind.clone(),
        );
        own.register(
            "projection_left_runs",
            "Runs that cannot be written to the object store while others can",
            self.projection_left.clone(),
        );
        own.register_with_unit(
            "projection_lag",
            "Since the first of those behind moved",
            Unit::Seconds,
            self.projection_lag.clone(),
        );
        own.register("runs_swept", "Runs that time moved, by this server's sweeper", self.swept.clone());
        self.register_applies(own);
        own.register("sse_clients", "Clients that follow events", self.streams.clone());
        own.register("sse_events", "Events sent to them", self.streamed.clone());
        own.register(
            "sse_fell_behind",
            "Times that one was sent from the database what it was too slow for",
            self.fell_behind.clone(),
        );
        own.register("sse_resets", "Times that one was told to fetch anew", self.resets.clone());
    }
}

impl Metrics {
    fn register_applies(&self, own: &mut Registry) {
        own.register("rules_apply", "Bulk changes that ended here", self.applies.clone());
        own.register(
            "rules_apply_duration_ms",
            "From when a bulk change was first taken to its end",
            self.apply_took.clone(),
        );
        own.register(
            "rules_target_retries",
            "Tries of targets that failed and are repeated",
            self.target_retries.clone(),
        );
    }
}

/// What the server counts itself is told even if the database is stuck: then it is wanted most.
const STORE_WITHIN: Duration = Duration::from_secs(5);

/// The whole page. What the store knows is read now: it is the same whichever server is asked. Of a tenant's own, if one is
/// named; what the server counts of itself tells nothing of others.
pub async fn page(app: &App, tenant: Option<String>) -> Result<String> {
    let mut registry = Registry::default();
    app.metrics.register(&mut registry, tenant.as_deref());
    let own = registry.sub_registry_with_prefix("waypost");
    own.register("build", "This server", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    read_pools(app, own);
    let stored = timeout(STORE_WITHIN, read_store(app, own, tenant)).await;
    let up = Level::default();
    up.set(i64::from(stored.is_ok_and(|read| read.is_ok())));
    own.register("store_up", "Whether the database answered", up);
    let mut text = String::new();
    let encoded = encode(&mut text, &registry);
    encoded.map_err(|error| Problem::new(&INTERNAL_ERROR, format!("metrics: {error}")))?;
    Ok(text)
}

/// This server's pools of its database: connections, or the threads of the embedded one.
fn read_pools(app: &App, own: &mut Registry) {
    let families: [Family<OfPool, Level>; 4] = Default::default();
    for pool in app.store.pools() {
        let label = OfPool { pool: pool.name };
        for (family, count) in families.iter().zip([pool.most, pool.open, pool.idle, pool.waiting]) {
            family.get_or_create(&label).set(count as i64);
        }
    }
    let [most, open, idle, waiting] = families;
    own.register("store_pool_limit", "How many connections to the database there may be", most);
    own.register("store_pool_size", "How many there are", open);
    own.register("store_pool_idle", "How many of them nobody uses", idle);
    own.register("store_pool_waiting", "Requests that wait for one", waiting);
}

async fn read_store(app: &App, own: &mut Registry, tenant: Option<String>) -> Result<()> {
    let queues = app.store.queues(tenant.clone()).await?;
    let now = app.store.now().await?;
    let stats = app.store.stats(tenant.clone()).await?;
    let families: [Family<OfQueue, Level>; 4] = Default::default();
    let oldest = Family::<OfQueue, Ratio>::default();
    for (place, queue) in queues.iter().enumerate() {
        let label = if place < MOST_QUEUES {
            let tenant = Some(queue.tenant.clone()).filter(|tenant| tenant != DEFAULT_TENANT);
            OfQueue { queue: queue.name.clone(), tenant }
        } else {
            OfQueue { queue: OTHERS.to_owned(), tenant: None }
        };
        for (family, count) in families.iter().zip([queue.ready, queue.scheduled, queue.held, queue.orphaned])
        {
            family.get_or_create(&label).inc_by(count as i64);
        }
        // Of several, the one that waits longest.
        let age = queue.oldest_ready_at.map_or(0, |at| (now - at).ms()) as f64 / 1_000.0;
        let gauge = oldest.get_or_create(&label);
        gauge.set(gauge.get().max(age));
    }
    let known = Level::default();
    known.set(queues.len() as i64);
    own.register("queues", "Queues that there are", known);
    let [ready, scheduled, held, orphaned] = families;
    own.register("queue_depth", "Runs that wait and are due", ready);
    own.register("queue_scheduled", "Runs that wait for their time", scheduled);
    own.register("queue_held", "Runs that are being worked", held);
    own.register("runs_orphaned", "Runs that are held and that nobody works any more", orphaned);
    own.register_with_unit("queue_oldest_age", "Age of the oldest that is due", Unit::Seconds, oldest);
    let workers = app.store.workers(tenant.clone()).await?;
    let live = workers.iter().filter(|row| row.is_live(now) || row.busy > 0).count();
    let level = |value: i64| {
        let level = Level::default();
        level.set(value);
        level
    };
    own.register("workers", "Workers that live, and who else holds runs", level(live as i64));
    let ratio = |value: f64| {
        let ratio = Ratio::default();
        ratio.set(value);
        ratio
    };
    if let Some(used) = crate::api::workers::utilisation(&workers, None, now) {
        own.register("worker_utilisation_ratio", "Slots in use, of those known", ratio(used));
    }
    if let Some(success) = stats.success_ratio_24h() {
        own.register("success_ratio_24h", "Succeeded, of what settled in 24 hours", ratio(success));
    }
    read_stats(&stats, own);
    crate::rule_metrics::read(app, tenant.clone(), own).await?;
    crate::schedule_metrics::read(app, tenant, own).await
}

/// What waits for people, and how long runs took.
fn read_stats(stats: &Stats, own: &mut Registry) {
    let for_people = Family::<OfStatus, Level>::default();
    for it in &stats.for_people {
        let label = OfStatus { lifecycle: it.lifecycle.clone(), status: it.status.clone() };
        for_people.get_or_create(&label).set(it.count as i64);
    }
    own.register("runs_waiting_for_people", "Runs that wait for a person to decide", for_people);
    let mean = Family::<OfStatus, Ratio>::default();
    for ended in &stats.ended {
        let label = OfStatus { lifecycle: ended.lifecycle.clone(), status: ended.status.clone() };
        if let Some(seconds) = ended.mean_seconds() {
            mean.get_or_create(&label).set(seconds);
        }
    }
    own.register_with_unit(
        "run_duration_mean_7d",
        "From start to end, by status, of what settled in 7 days",
        Unit::Seconds,
        mean,
    );
}
