//! `waypost simulate model`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use waypost_simulate::RetryAfter;
use waypost_simulate::model::{FAULTS, MARKERS, Model, Options, Settings};

use super::{faults, faults_help, ms, not_opened, retry_after, serve};
use crate::output::Result;
use crate::worker::duration;

const EXAMPLES: &str = "Examples:\n  waypost simulate model --listen 127.0.0.1:7700\n  \
    waypost simulate model --rate 5 --fault fail=10% --latency 200ms";

fn help() -> String {
    let mut markers = "Markers, in a prompt as [[sim: NAME]] or [[sim: NAME xTIMES]] (the first times of this prompt alone):\n".to_owned();
    for (name, argument, what) in MARKERS {
        markers.push_str(&format!("  {:<26} {what}\n", format!("{name} {argument}")));
    }
    format!("{}\n{markers}\n{EXAMPLES}", faults_help(FAULTS))
}

#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct Flags {
    /// Where to listen; port 0 is a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Keep every call in this folder, in `calls.jsonl`.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A model that there is, several times for several; without it every name is one.
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// What answers and faults are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests per second; 0 is no limit.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 0.0, allow_negative_numbers = true)]
    rate: f64,
    /// Requests at once, if there is a limit.
    #[arg(long, value_name = "REQUESTS", default_value_t = 10.0, allow_negative_numbers = true)]
    burst: f64,
    /// How a 429 says when to come again: seconds, date, none, mixed.
    #[arg(long, value_name = "FORM", default_value = "seconds", value_parser = retry_after)]
    retry_after: RetryAfter,
    /// What goes wrong, and how often: see below.
    #[arg(long, value_name = "NAME=SHARE")]
    fault: Vec<String>,
    /// How long every answer takes [default: no time].
    #[arg(long, value_parser = duration)]
    latency: Option<Duration>,
    /// How much longer `slow` ones take.
    #[arg(long, value_parser = duration, default_value = "5s")]
    slow: Duration,
    /// For how long `timeout` holds an answer back.
    #[arg(long, value_parser = duration, default_value = "10m")]
    hold: Duration,
    /// Refuse calls without it as a bearer token, or in `api-key`.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
}

pub async fn run(flags: Flags) -> Result {
    let faults = faults(&flags.fault, FAULTS)?;
    let settings = Settings {
        seed: flags.seed,
        rate: flags.rate,
        burst: flags.burst,
        retry_after: flags.retry_after,
        latency_ms: ms(flags.latency.unwrap_or_default()),
        slow_ms: ms(flags.slow),
        hold_ms: ms(flags.hold),
        faults,
    };
    let dir = flags.dir.clone();
    let options = Options { dir: flags.dir, settings, models: flags.model, api_key: flags.api_key };
    let model = Model::open(options).map_err(|error| not_opened(&error, dir.as_deref()))?;
    serve(model.serve(flags.listen), flags.listen, dir, |running| {
        let url = running.url();
        json!({ "url": url, "base_url": format!("{url}/v1"), "admin": format!("{url}/admin") })
    })
    .await
}
