//! How it goes: D12's four figures.

use serde_json::{Value, json};

use super::shapes::STATS;
use super::{GET, Route, ok, plain, workers};
use crate::answer::{self, Result};
use crate::call::Call;

pub const ROUTES: &[Route] = &[Route {
    path: "/v1/stats",
    name: "getStats",
    description: "Queue depth, worker utilisation, success rate over 24 hours, mean duration by status over 7 days.",
    responses: &[ok(&STATS)],
    ..plain!(GET, show)
}];

async fn show(call: Call) -> Result {
    let tenant = call.seen_tenant();
    let stats = call.store().stats(tenant.clone()).await?;
    let queues = call.store().queues(tenant.clone()).await?;
    let workers = call.store().workers(tenant).await?;
    let shared = workers::shared(&call).await?;
    let now = call.store().now().await?;
    let ended = stats.ended.iter().map(|ended| {
        json!({
            "lifecycle": ended.lifecycle,
            "status": ended.status,
            "outcome": ended.outcome.map(waypost_kernel::Outcome::name),
            "in_24h": ended.in_24h,
            "in_7d": ended.in_7d,
            "mean_duration_ms": ended.mean_seconds().map(|seconds| (seconds * 1_000.0).round() as u64),
        })
    });
    let for_people = stats.for_people.iter();
    let for_people =
        for_people.map(|it| json!({ "lifecycle": it.lifecycle, "status": it.status, "count": it.count }));
    let object = json!({
        "for_people": for_people.collect::<Vec<Value>>(),
        "queue_depth": queues.iter().map(|queue| queue.ready).sum::<u64>(),
        "worker_utilisation": workers::utilisation(&workers, shared, now),
        "success_rate_24h": stats.success_ratio_24h(),
        "ended": ended.collect::<Vec<Value>>(),
        "queues": queues.iter().map(waypost_store::QueueRow::object).collect::<Vec<_>>(),
    });
    Ok(answer::json(200, &object))
}
