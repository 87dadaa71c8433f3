//! How bulk changes go, what they call and which alerts fire, as metrics. What the store knows is the same whichever server is asked.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use waypost_kernel::alert::Status;
use waypost_kernel::breaker::State;

use crate::answer::Result;
use crate::app::App;
use crate::metrics::OTHERS;

/// Destinations, and alerts, with series of their own. The others, by name the last, are one together.
const MOST: usize = 200;

type Count = Counter<u64, AtomicU64>;
type Level = Gauge<i64, AtomicI64>;
type Ratio = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTenant {
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDestination {
    tenant: String,
    destination: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAlert {
    tenant: String,
    alert: String,
    destination: String,
    severity: &'static str,
}

/// Of one tenant, or of all.
pub async fn read(app: &App, tenant: Option<String>, own: &mut Registry) -> Result<()> {
    let (success, letters) = (Family::<OfTenant, Ratio>::default(), Family::<OfTenant, Level>::default());
    for (place, of) in app.store.target_figures(tenant.clone()).await?.into_iter().enumerate() {
        let label = OfTenant { tenant: if place < MOST { of.tenant.clone() } else { OTHERS.to_owned() } };
        letters.get_or_create(&label).inc_by(of.dead_letters as i64);
        if let Some(rate) = of.success_rate_milli().filter(|_| place < MOST) {
            success.get_or_create(&label).set(rate as f64 / 1_000.0);
        }
    }
    own.register(
        "rules_apply_success_rate",
        "Per cent of the targets that finished in bulk changes of the last hour",
        success,
    );
    own.register("rules_dlq_size", "Failed targets that nobody has retried, discarded or cancelled", letters);
    read_destinations(app, tenant.clone(), own).await?;
    let firing = Family::<OfAlert, Level>::default();
    for row in app.store.alerts(tenant).await?.iter().take(MOST) {
        let label = OfAlert {
            tenant: row.tenant.clone(),
            alert: row.name.clone(),
            destination: row.subject.clone(),
            severity: row.severity().name(),
        };
        firing.get_or_create(&label).set(i64::from(row.condition.status == Status::Firing));
    }
    own.register("alert_firing", "Whether an alert fires", firing);
    Ok(())
}

async fn read_destinations(app: &App, tenant: Option<String>, own: &mut Registry) -> Result<()> {
    let throttled = Count::default();
    let [calls, of_throttled, opened]: [Family<OfDestination, Count>; 3] = Default::default();
    let [rate, tokens, pace]: [Family<OfDestination, Ratio>; 3] = Default::default();
    let is_open = Family::<OfDestination, Level>::default();
    for (place, row) in app.store.destinations(tenant).await?.into_iter().enumerate() {
        throttled.inc_by(row.throttled);
        let own = OfDestination { tenant: row.tenant, destination: row.name };
        let label = match place < MOST {
            true => own,
            false => OfDestination { tenant: OTHERS.to_owned(), destination: OTHERS.to_owned() },
        };
        for (family, count) in [(&calls, row.calls), (&of_throttled, row.throttled), (&opened, row.opened)] {
            family.get_or_create(&label).inc_by(count);
        }
        is_open.get_or_create(&label).inc_by(i64::from(row.state.breaker.state != State::Closed));
        if place < MOST {
            let bucket = row.state.bucket;
            rate.get_or_create(&label).set(bucket.rate_milli_per_s as f64 / 1_000.0);
            tokens.get_or_create(&label).set(bucket.available_milli as f64 / 1_000.0);
            pace.get_or_create(&label).set(f64::from(bucket.pace_percent) / 100.0);
        }
    }
    own.register("rules_429", "Answers that were 429, of all destinations", throttled);
    own.register("destination_calls", "Answers that workers told of", calls);
    own.register("destination_throttled", "Those of them that were 429", of_throttled);
    own.register("destination_breaker_opened", "Times that the breaker has opened", opened);
    own.register("destination_breaker_open", "Whether the breaker is open, or a probe is out", is_open);
    own.register("destination_rate", "Calls per second that its limit allows", rate);
    own.register("destination_tokens", "Permits that were left when it was last asked", tokens);
    own.register("destination_pace_ratio", "How much of the rate is used: 1 unless it was slowed down", pace);
    Ok(())
}
