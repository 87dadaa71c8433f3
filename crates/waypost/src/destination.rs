//! `waypost destination list`: what bulk changes call, and the limit that all workers share.

use clap::Subcommand;
use waypost_kernel::Time;
use waypost_kernel::breaker::State;
use waypost_store::{DEFAULT_TENANT, DestinationRow};

use crate::output::{Format, Result, cells, print_list, table};
use crate::place::{Place, named_tenant};
use crate::run::age;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// What runs call outside: its rate limit, what is left of it, and its breaker.
    #[command(
        after_help = "Without --tenant, all tenants' destinations.\n\nExamples:\n  waypost destination list\n  waypost destination list -o json"
    )]
    List {
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
}

pub async fn run(place: &Place, verb: Verb) -> Result {
    let Verb::List { output } = verb;
    let store = place.opened_to_read().await?.store();
    let rows = store.destinations(named_tenant().map(str::to_owned)).await?;
    let now = store.now().await?;
    let objects = rows.iter().map(DestinationRow::object).collect();
    print_list(objects, output, || as_table(&rows, now))
}

fn as_table(rows: &[DestinationRow], now: Time) -> String {
    if rows.is_empty() {
        return "no destinations: a bulk change makes one with its first call".to_owned();
    }
    let has_tenants = rows.iter().any(|row| row.tenant != DEFAULT_TENANT);
    let listed = rows.iter().map(|row| {
        let bucket = row.state.bucket;
        let (breaker, until) = match row.state.breaker.state {
            State::Closed => ("closed", None),
            State::Open { until } => ("open", Some(until)),
            State::Probing { until, .. } => ("probing", Some(until)),
        };
        let figures = [
            row.name.clone(),
            format!("{}/s", units(bucket.rate_milli_per_s)),
            format!("{} of {}", units(bucket.refilled(now).available_milli), units(bucket.capacity_milli)),
            format!("{}%", bucket.pace_percent),
            breaker.to_owned(),
            until.map(|until| format!("in {}", age(until - now))).unwrap_or_default(),
            row.calls.to_string(),
            row.throttled.to_string(),
        ];
        cells(has_tenants.then(|| row.tenant.clone()).into_iter().chain(figures))
    });
    let names = ["tenant", "destination", "rate", "tokens", "pace", "breaker", "until", "calls", "429s"];
    table(&names[usize::from(!has_tenants)..], listed)
}

fn units(milli: u64) -> String {
    match milli % 1_000 {
        0 => (milli / 1_000).to_string(),
        rest => format!("{}.{}", milli / 1_000, rest / 100),
    }
}
