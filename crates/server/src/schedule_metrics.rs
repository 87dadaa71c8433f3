//! What the store knows of schedules, as metrics. Each schedule has its own series, up to a number of them: what a page
//! costs must not grow with them for ever. The others, by name the last, are one together.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use waypost_kernel::Time;
use waypost_store::{Counts, ScheduleFilter, ScheduleSummary};

use crate::answer::Result;
use crate::app::App;
use crate::metrics::OTHERS;

/// Schedules with series of their own: 12 each.
const MOST: usize = 200;

type Count = Counter<u64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    schedule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Skipped {
    schedule: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Claims {
    schedule: String,
    result: &'static str,
}

#[derive(Default)]
struct Families {
    known: Gauge<i64, AtomicI64>,
    lag: Family<Of, Gauge<f64, AtomicU64>>,
    overdue: Family<Of, Gauge<f64, AtomicU64>>,
    running: Family<Of, Gauge<i64, AtomicI64>>,
    stale: Family<Of, Gauge<i64, AtomicI64>>,
    failed: Family<Of, Count>,
    skipped: Family<Skipped, Count>,
    claims: Family<Claims, Count>,
}

/// Of one tenant, or of all.
pub async fn read(app: &App, tenant: Option<String>, own: &mut Registry) -> Result<()> {
    let now = app.store.now().await?;
    let families = Families::default();
    let mut after = None;
    loop {
        let limit = waypost_kernel::text::MAX_PAGE;
        let filter = ScheduleFilter { tenant: tenant.clone(), after, limit, ..ScheduleFilter::default() };
        let page = app.store.schedules(filter).await?;
        page.iter().for_each(|look| families.add(look, now));
        if page.len() < limit {
            break;
        }
        after = page.last().map(|look| look.row.name.clone());
    }
    families.register(own);
    Ok(())
}

impl Families {
    fn add(&self, look: &ScheduleSummary, now: Time) {
        let place = self.known.inc();
        let is_own = usize::try_from(place).is_ok_and(|place| place < MOST);
        let schedule = if is_own { look.row.name.clone() } else { OTHERS.to_owned() };
        let of = Of { schedule: schedule.clone() };
        if let Some(lag) = look.lag(now) {
            // Of several, the one that is furthest behind.
            let gauge = self.lag.get_or_create(&of);
            gauge.set(gauge.get().max(lag.ms() as f64 / 1_000.0));
        }
        let overdue = self.overdue.get_or_create(&of);
        overdue.set(overdue.get().max(look.overdue(now).map_or(0.0, |late| late.ms() as f64 / 1_000.0)));
        self.running.get_or_create(&of).inc_by(look.running as i64);
        self.stale.get_or_create(&of).inc_by(look.stale as i64);
        self.failed.get_or_create(&of).inc_by(look.counts.failed);
        let Counts { superseded, outside_window, late, overlap, paused, won, retried, stolen, .. } =
            look.counts;
        for (reason, count) in [
            ("superseded", superseded),
            ("outside_window", outside_window),
            ("late", late),
            ("overlap", overlap),
            ("paused", paused),
        ] {
            self.skipped.get_or_create(&Skipped { schedule: schedule.clone(), reason }).inc_by(count);
        }
        for (result, count) in [("won", won), ("retry", retried), ("stale_steal", stolen)] {
            self.claims.get_or_create(&Claims { schedule: schedule.clone(), result }).inc_by(count);
        }
    }

    fn register(self, own: &mut Registry) {
        own.register("schedules", "Schedules that there are", self.known);
        own.register_with_unit(
            "schedule_lag",
            "Now less the plan time of the latest success",
            Unit::Seconds,
            self.lag,
        );
        own.register_with_unit(
            "schedule_overdue",
            "For how long the next plan should have begun",
            Unit::Seconds,
            self.overdue,
        );
        own.register("schedule_running", "Executions under way", self.running);
        own.register("schedule_running_stale", "Of these, those whose lease nobody renews", self.stale);
        own.register("schedule_failed_unretried", "Plans that failed for good", self.failed);
        own.register("schedule_skipped_plans", "Plans that were not executed, by reason", self.skipped);
        own.register("schedule_claims", "How executions came to whoever executed them", self.claims);
    }
}
