//! `waypost stats`: how it goes, in the four figures of seed 000.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use waypost_kernel::Outcome;
use waypost_store::{Ended, HOUSEKEEPING, Holder, QueueRow, Stats, Store};

use crate::output::{Format, Result, cells, print, table};
use crate::place::{Place, named_tenant};
use crate::run::age;

#[derive(Debug, Args)]
#[command(
    after_help = "What the engine does for itself is not counted. Without --tenant, all tenants together.\n\nExamples:\n  waypost stats\n  waypost stats -o json"
)]
pub struct Flags {
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn run(place: &Place, flags: Flags) -> Result {
    let opened = place.opened_to_read().await?;
    let figures = Figures::read(&*opened.store(), named_tenant().map(str::to_owned)).await?;
    print(&match flags.output {
        Format::Table => figures.in_words(),
        format => format.object(&figures.object()),
    })
}

struct Figures {
    queues: Vec<QueueRow>,
    /// Who holds runs, and who lives and holds none.
    holders: Vec<Holder>,
    stats: Stats,
}

impl Figures {
    async fn read(store: &dyn Store, tenant: Option<String>) -> Result<Figures> {
        let mut queues = store.queues(tenant.clone()).await?;
        queues.retain(|queue| queue.name != HOUSEKEEPING);
        let mut holders = store.holders(tenant.clone()).await?;
        let now = store.now().await?;
        let idle =
            store.workers(tenant.clone()).await?.into_iter().filter(|it| it.busy == 0 && it.is_live(now));
        holders.extend(idle.map(|it| Holder {
            worker: it.name,
            tenant: it.tenant,
            held: 0,
            stale_after: now,
        }));
        Ok(Figures { queues, holders, stats: store.stats(tenant).await? })
    }

    fn depth(&self) -> u64 {
        self.queues.iter().map(|queue| queue.ready).sum()
    }

    fn object(&self) -> Value {
        let workers = self
            .holders
            .iter()
            .map(|it| json!({ "worker": it.worker, "tenant": it.tenant, "active_runs": it.held }));
        let ended = self.stats.ended.iter().map(|it| {
            json!({
                "lifecycle": it.lifecycle,
                "status": it.status,
                "outcome": it.outcome.map(Outcome::name),
                "in_24h": it.in_24h,
                "in_7d": it.in_7d,
                "mean_duration_ms": mean_ms(it),
            })
        });
        json!({
            "queue_depth": self.depth(),
            "queues": self.queues.iter().map(QueueRow::object).collect::<Vec<_>>(),
            "workers": workers.collect::<Vec<_>>(),
            "success_rate_24h": self.stats.success_ratio_24h(),
            "ended": ended.collect::<Vec<_>>(),
        })
    }

    fn in_words(&self) -> String {
        let rate = self.stats.success_ratio_24h();
        let rate = rate.map_or("nothing has ended".to_owned(), |rate| format!("{:.2} %", rate * 100.0));
        // Whosever runs they hold.
        let mut by_worker: BTreeMap<&str, u64> = BTreeMap::new();
        for holder in &self.holders {
            *by_worker.entry(&holder.worker).or_default() += holder.held;
        }
        let held: u64 = by_worker.values().sum();
        let busy = by_worker.values().filter(|held| **held > 0).count();
        let mut parts = vec![format!(
            "queue depth: {}\nsuccess rate over 24 hours: {rate}\nactive runs: {held}\nworkers: {}, {busy} of them busy",
            self.depth(),
            by_worker.len()
        )];
        if !by_worker.is_empty() {
            let rows = by_worker.iter().map(|(worker, held)| cells([(*worker).to_owned(), held.to_string()]));
            parts.push(table(&["worker", "active runs"], rows));
        }
        if !self.stats.ended.is_empty() {
            let rows = self.stats.ended.iter().map(|it| {
                cells([
                    it.lifecycle.clone(),
                    it.status.clone(),
                    it.in_24h.to_string(),
                    it.in_7d.to_string(),
                    mean_ms(it).map(|ms| age(waypost_kernel::Span::from_ms(ms))).unwrap_or_default(),
                ])
            });
            parts
                .push(table(&["lifecycle", "status", "in 24 h", "in 7 days", "mean duration, 7 days"], rows));
        }
        parts.join("\n\n")
    }
}

fn mean_ms(ended: &Ended) -> Option<i64> {
    ended.mean_seconds().map(|seconds| (seconds * 1_000.0).round() as i64)
}
