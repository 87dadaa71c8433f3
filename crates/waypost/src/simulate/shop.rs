//! `waypost simulate shop`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use waypost_simulate::shop::{CatalogueFlags, FAULTS, Options, Settings, Shop};
use waypost_simulate::{RetryAfter, share_of};

use super::{faults, faults_help, ms, not_opened, retry_after, serve};
use crate::output::Result;
use crate::worker::duration;

const EXAMPLES: &str = "Examples:\n  waypost simulate shop --listen 127.0.0.1:7600 --rate 2000 --burst 100\n  \
    waypost simulate shop --dir ./shop --fault permanent=3% --fault lost=1%";

fn help() -> String {
    format!("{}\n{EXAMPLES}", faults_help(FAULTS))
}

#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct Flags {
    /// Where to listen; port 0 is a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Keep the ledger in this folder. One that has a shop in it goes on with it.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How many products there are [default: 1000].
    #[arg(long, value_name = "COUNT")]
    products: Option<u64>,
    /// How many of them are variants of one product in GraphQL [default: 4].
    #[arg(long, value_name = "COUNT")]
    variants_per_product: Option<u64>,
    /// Share of products that are archived [default: 0].
    #[arg(long, value_name = "SHARE", value_parser = share_of)]
    archived: Option<f64>,
    /// Share of products whose price is 0 [default: 1%].
    #[arg(long, value_name = "SHARE", value_parser = share_of)]
    free: Option<f64>,
    /// What prices and faults are drawn from [default: 1].
    #[arg(long)]
    seed: Option<u64>,
    /// REST requests per second.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 2.0, allow_negative_numbers = true)]
    rate: f64,
    /// REST requests at once.
    #[arg(long, value_name = "REQUESTS", default_value_t = 40.0, allow_negative_numbers = true)]
    burst: f64,
    /// Points of GraphQL's cost per second.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 100.0, allow_negative_numbers = true)]
    cost_rate: f64,
    /// Points at once.
    #[arg(long, value_name = "POINTS", default_value_t = 2000.0, allow_negative_numbers = true)]
    cost_burst: f64,
    /// How a 429 says when to come again: seconds, date, none, mixed.
    #[arg(long, value_name = "FORM", default_value = "seconds", value_parser = retry_after)]
    retry_after: RetryAfter,
    /// What goes wrong, and how often: see below.
    #[arg(long, value_name = "NAME=SHARE")]
    fault: Vec<String>,
    /// How long every answer takes [default: no time].
    #[arg(long, value_parser = duration)]
    latency: Option<Duration>,
    /// For how long `timeout` and `late` hold an answer back.
    #[arg(long, value_parser = duration, default_value = "60s")]
    hold: Duration,
    /// By how much `drift` raises a price.
    #[arg(long, value_name = "PERCENT", default_value_t = 7.0, allow_negative_numbers = true)]
    drift_percent: f64,
    /// Make a change again that comes again with the same Idempotency-Key.
    #[arg(long)]
    ignore_keys: bool,
    /// Refuse calls without it, in `X-Shopify-Access-Token` or as a bearer token.
    #[arg(long, value_name = "TOKEN")]
    access_token: Option<String>,
}

pub async fn run(flags: Flags) -> Result {
    let faults = faults(&flags.fault, FAULTS)?;
    let settings = Settings {
        seed: flags.seed.unwrap_or(1),
        rate: flags.rate,
        burst: flags.burst,
        cost_rate: flags.cost_rate,
        cost_burst: flags.cost_burst,
        retry_after: flags.retry_after,
        latency_ms: ms(flags.latency.unwrap_or_default()),
        hold_ms: ms(flags.hold),
        drift_percent: flags.drift_percent,
        honours_keys: !flags.ignore_keys,
        faults,
    };
    let catalogue = CatalogueFlags {
        seed: flags.seed,
        products: flags.products,
        variants_per_product: flags.variants_per_product,
        archived: flags.archived,
        free: flags.free,
    };
    let dir = flags.dir.clone();
    let shop = Shop::open(Options { dir: flags.dir, catalogue, settings, token: flags.access_token });
    let shop = shop.map_err(|error| not_opened(&error, dir.as_deref()))?;
    let products = shop.catalogue().products;
    serve(shop.serve(flags.listen), flags.listen, dir, |running| {
        let url = running.url();
        json!({
            "url": url,
            "products": format!("{url}/products"),
            "graphql": format!("{url}/graphql"),
            "admin": format!("{url}/admin"),
            "count": products,
        })
    })
    .await
}
