//! `waypost bench`: what this machine does, next to the fewest writes that could do the same (`bench/raw.sql`), in
//! the same run. Figures are ratios: absolute ones say more about the machine than about the program.

mod backlog;
mod drain;
mod ends;
mod enqueue;
mod hold;
mod http;
mod lifecycle;
mod pickup;
mod project;
mod raw;
mod runs;
mod steps;
mod targets;
mod tenants;
mod worker;

use std::path::Path;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use waypost_store::Store;
use waypost_store::postgres::{PostgresStore, Scratch};
use waypost_store::sqlite::SqliteStore;

use crate::output::{BAD_INPUT, ERROR, Failed, Format, Result, cells, print_list, table};
use crate::verify::progress_bar;
use raw::Raw;
use runs::Kind;

/// Ratios are medians of this many interleaved pairs: one side of a pair alone would measure the neighbours.
const PAIRS: usize = 5;

#[derive(Debug, Args)]
#[command(
    after_help = "The default set takes about five minutes. `ratio` is the median of 5 interleaved pairs with raw.\nRuns are real ones: a playbook, an idempotency key, 200 bytes of input; those of *-keyed have a concurrency key too.\n\nExamples:\n  waypost bench\n  waypost bench --scenario full-lifecycle --batch 500 -o json\n  waypost bench --scenario backlog --backlog 1000000\n  waypost bench --store postgres --database-url postgres://me@host/db\n  waypost bench --store postgres --hold-xmin 300"
)]
pub struct Flags {
    /// Which database is measured.
    #[arg(long, value_enum, default_value_t = Database::Sqlite)]
    store: Database,
    /// Only this one.
    #[arg(long, value_enum)]
    scenario: Option<Scenario>,
    /// Runs per commit, where a scenario has batches.
    #[arg(long)]
    batch: Option<usize>,
    /// Tasks that ask at once, where a scenario has several.
    #[arg(long)]
    connections: Option<usize>,
    /// Runs that a worker has under way at once.
    #[arg(long, default_value_t = 500)]
    slots: usize,
    /// Runs of each kind (queued, scheduled at a better priority, settled) that a claim must not feel.
    #[arg(long, default_value_t = 20_000)]
    backlog: usize,
    /// Targets of each bulk change.
    #[arg(long, default_value_t = 100_000)]
    targets: usize,
    /// Runs of an agent that `project` writes at once; then two and a half times as many begin, with 500 changes a second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    runs: u64,
    /// Settled ones, if there should be more of them.
    #[arg(long)]
    settled: Option<usize>,
    /// PostgreSQL: work beside an open snapshot for so many seconds, next to the same work without one.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "300", conflicts_with = "scenario")]
    hold_xmin: Option<u64>,
    /// New runs over HTTP, one per request, from 64 connections.
    #[arg(long, conflicts_with_all = ["scenario", "hold_xmin"])]
    http: bool,
    /// The folder to measure; a temporary one by default.
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Database {
    Sqlite,
    Postgres,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    FullLifecycle,
    FullLifecycleKeyed,
    Drain,
    DrainKeyed,
    Worker,
    WorkerKeyed,
    WorkerHttp,
    EnqueueSingle,
    EnqueueBatch,
    Pickup,
    Backlog,
    Steps,
    Targets,
    Project,
    Tenants,
    HoldXmin,
    EnqueueHttp,
}

const DEFAULT_SET: [Scenario; 14] = [
    Scenario::FullLifecycle,
    Scenario::FullLifecycleKeyed,
    Scenario::Drain,
    Scenario::DrainKeyed,
    Scenario::Worker,
    Scenario::WorkerKeyed,
    Scenario::WorkerHttp,
    Scenario::EnqueueSingle,
    Scenario::EnqueueBatch,
    Scenario::Pickup,
    Scenario::Backlog,
    Scenario::Steps,
    Scenario::Targets,
    Scenario::Tenants,
];

/// One line of the report.
type Row = Map<String, Value>;

pub async fn run(place: &crate::place::Place, flags: Flags) -> Result {
    let chosen = flags.scenario.or(flags.hold_xmin.map(|_| Scenario::HoldXmin));
    let chosen = chosen.or(flags.http.then_some(Scenario::EnqueueHttp));
    let wanted: Vec<Scenario> = chosen.map_or(DEFAULT_SET.to_vec(), |scenario| vec![scenario]);
    let mut rows = Vec::new();
    for scenario in wanted {
        let at = match flags.store {
            Database::Sqlite => Place::Folder(folder(flags.folder.as_deref())?),
            Database::Postgres => Place::Server(server(place).await?),
        };
        let bench = Bench { place: at, bar: progress_bar() };
        let row = match scenario {
            Scenario::Project => project::measure(&bench, place.named_projection()?, flags.runs).await,
            scenario => measure(&bench, scenario, &flags).await,
        };
        bench.bar.finish_and_clear();
        if let Place::Server(server) = &bench.place {
            server.drop_all().await?;
        }
        rows.push(row?);
    }
    let objects: Vec<Value> = rows.iter().cloned().map(Value::Object).collect();
    print_list(objects, flags.output, || as_table(&rows))
}

async fn measure(bench: &Bench, scenario: Scenario, flags: &Flags) -> Result<Row> {
    let (batch, tasks) = match bench.place {
        Place::Folder(_) => (100, 4),
        Place::Server(_) => (500, 4),
    };
    let (batch, tasks) = (flags.batch.unwrap_or(batch), flags.connections.unwrap_or(tasks));
    match scenario {
        Scenario::FullLifecycle => lifecycle::measure(bench, batch, tasks, Kind::Plain).await,
        Scenario::FullLifecycleKeyed => lifecycle::measure(bench, batch, tasks, Kind::Keyed).await,
        Scenario::Drain => drain::measure(bench, batch, tasks, Kind::Plain).await,
        Scenario::DrainKeyed => drain::measure(bench, batch, tasks, Kind::Keyed).await,
        Scenario::Worker => worker::measure(bench, batch, tasks, flags.slots, Kind::Plain).await,
        Scenario::WorkerKeyed => worker::measure(bench, batch, tasks, flags.slots, Kind::Keyed).await,
        Scenario::WorkerHttp => worker::over_http(bench, batch, tasks, flags.slots).await,
        Scenario::EnqueueSingle => enqueue::single(bench, flags.connections.unwrap_or(32)).await,
        Scenario::EnqueueBatch => enqueue::batch(bench, flags.batch.unwrap_or(1_000)).await,
        Scenario::Pickup => pickup::measure(bench).await,
        Scenario::Backlog => {
            backlog::measure(bench, flags.backlog, flags.settled.unwrap_or(flags.backlog)).await
        }
        Scenario::Steps => steps::measure(bench, batch, flags.connections.unwrap_or(64)).await,
        Scenario::Targets => targets::measure(bench, flags.batch.unwrap_or(500), flags.targets).await,
        Scenario::Project => project::measure(bench, None, flags.runs).await,
        Scenario::Tenants => tenants::measure(bench).await,
        Scenario::EnqueueHttp => http::measure(bench, flags.connections.unwrap_or(64)).await,
        Scenario::HoldXmin => hold::measure(bench, flags.hold_xmin.unwrap_or(300)).await,
    }
}

/// Where the scenario's databases are.
pub enum Place {
    Folder(TempDir),
    Server(Scratch),
}

/// A place of its own, and how far the scenario is.
struct Bench {
    place: Place,
    bar: ProgressBar,
}

impl Bench {
    async fn store(&self, name: &str) -> Result<Arc<dyn Store>> {
        Ok(self.database(name).await?)
    }

    async fn database(&self, name: &str) -> Result<Arc<dyn waypost_store::Database>> {
        Ok(match &self.place {
            Place::Folder(folder) => Arc::new(SqliteStore::open(&folder.path().join(format!("{name}.db")))?),
            Place::Server(server) => Arc::new(PostgresStore::open(&server.database(name).await?).await?),
        })
    }

    async fn raw(&self, name: &str, connections: usize) -> Result<Raw> {
        Raw::open(&self.place, name, connections).await
    }

    fn begin(&self, what: &'static str, steps: usize) {
        self.bar.set_message(what);
        self.bar.set_length(steps as u64);
        self.bar.set_position(0);
    }
}

async fn server(place: &crate::place::Place) -> Result<Scratch> {
    match place.database()? {
        crate::place::Database::Postgres(url) => Ok(Scratch::open(&url).await?),
        crate::place::Database::Sqlite(_) => {
            let message = "bench --store postgres needs a server where it may make databases: --database-url postgres://user@host/postgres";
            Err(Failed::new(BAD_INPUT, message))
        }
    }
}

fn folder(given: Option<&Path>) -> Result<TempDir> {
    let made = match given {
        Some(folder) => tempfile::Builder::new().prefix("waypost-bench").tempdir_in(folder),
        None => tempfile::Builder::new().prefix("waypost-bench").tempdir(),
    };
    made.map_err(|error| Failed::new(ERROR, format!("no folder to measure in: {error}")))
}

fn row(scenario: &str, fields: Value) -> Row {
    let mut row = Map::new();
    row.insert("scenario".into(), scenario.into());
    if let Value::Object(fields) = fields {
        row.extend(fields);
    }
    row
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Medians of pairs that were measured one right after the other.
struct Pairs {
    ours: Vec<f64>,
    raw: Vec<f64>,
}

impl Pairs {
    fn new() -> Pairs {
        Pairs { ours: Vec::new(), raw: Vec::new() }
    }

    fn add(&mut self, raw: f64, ours: f64) {
        self.raw.push(raw);
        self.ours.push(ours);
    }

    fn fields(&self) -> Value {
        let ratios = self.ours.iter().zip(&self.raw).map(|(ours, raw)| ours / raw).collect();
        json!({
            "runs_per_s": median(self.ours.clone()).round(),
            "raw_runs_per_s": median(self.raw.clone()).round(),
            "ratio": (median(ratios) * 100.0).round() / 100.0,
        })
    }
}

fn as_table(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| {
        let text = |key: &str| row.get(key).map(Value::to_string).unwrap_or_default();
        let rest = row.iter().filter(|(key, _)| {
            ![
                "scenario",
                "runs_per_s",
                "steps_per_s",
                "targets_per_s",
                "changes_per_s",
                "raw_runs_per_s",
                "raw_targets_per_s",
                "ratio",
            ]
            .contains(&key.as_str())
        });
        let rest: Vec<String> = rest.map(|(key, value)| format!("{key} {value}")).collect();
        let scenario = row.get("scenario").and_then(Value::as_str).unwrap_or_default().to_owned();
        cells([
            scenario,
            ["runs_per_s", "steps_per_s", "targets_per_s", "changes_per_s"].map(text).concat(),
            text("raw_runs_per_s") + &text("raw_targets_per_s"),
            text("ratio"),
            rest.join(", "),
        ])
    });
    table(&["scenario", "per second", "raw", "ratio", "also"], lines)
}
