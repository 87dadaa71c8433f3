//! The product's own `Worker` with a handler that does nothing: what users get of what the store's verbs do (`drain`),
//! measured one right after the other; straight on the database, or through a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use waypost_remote::RemoteStore;
use waypost_server::App;
use waypost_store::{Database, Store};
use waypost_worker::{Context, Handlers, Options, Outcome, Stage, Worker};

use super::drain::{drained, enqueued};
use super::ends::Ends;
use super::runs::{Kind, PLAYBOOK};
use super::{Bench, PAIRS, Row, median, row};
use crate::output::{ERROR, Failed, Result};

const BATCHES: usize = 40;

pub async fn measure(bench: &Bench, batch: usize, tasks: usize, slots: usize, kind: Kind) -> Result<Row> {
    let store = bench.store("worker").await?;
    let found = compared(bench, &store, &store, (batch, tasks, slots), kind).await?;
    Ok(row(&kind.of("worker"), found))
}

/// The worker asks a server, as with `WAYPOST_URL`; what it is compared with asks the database.
pub async fn over_http(bench: &Bench, batch: usize, tasks: usize, slots: usize) -> Result<Row> {
    let database = bench.database("worker_http").await?;
    let server = Server::start(database.clone()).await?;
    let store: Arc<dyn Store> = database;
    let remote: Arc<dyn Store> =
        Arc::new(RemoteStore::open(&format!("http://{}", server.address), None).await?);
    let found = compared(bench, &store, &remote, (batch, tasks, slots), Kind::Plain).await;
    server.stop().await;
    Ok(row("worker-http", found?))
}

async fn compared(
    bench: &Bench,
    store: &Arc<dyn Store>,
    workers: &Arc<dyn Store>,
    (batch, tasks, slots): (usize, usize, usize),
    kind: Kind,
) -> Result<Value> {
    let runs = batch.max(1) * BATCHES;
    bench.begin("worker", PAIRS + 1);
    worked(store, workers, runs / 4, batch, slots, kind).await?;
    bench.bar.inc(1);
    let (mut ours, mut drains) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        drains.push(drained(store, runs, batch, tasks, kind).await?);
        ours.push(worked(store, workers, runs, batch, slots, kind).await?);
        bench.bar.inc(1);
    }
    let ratios: Vec<f64> = ours.iter().zip(&drains).map(|(ours, drain)| ours / drain).collect();
    Ok(json!({
        "runs_per_s": median(ours).round(),
        "drain_runs_per_s": median(drains).round(),
        "ratio_to_drain": (median(ratios) * 100.0).round() / 100.0,
        "slots": slots,
    }))
}

/// Runs per second from the worker's start to its last accepted end.
async fn worked(
    store: &Arc<dyn Store>,
    workers: &Arc<dyn Store>,
    runs: usize,
    batch: usize,
    slots: usize,
    kind: Kind,
) -> Result<f64> {
    enqueued(store, runs, batch, kind).await?;
    let (stage, shutdown) = watch::channel(Stage::Working);
    let done = Arc::new(AtomicUsize::new(0));
    let stage = Arc::new(stage);
    let handler = move |_: Context| {
        if done.fetch_add(1, Ordering::Relaxed) + 1 == runs {
            stage.send_replace(Stage::Draining);
        }
        async { Outcome::done() }
    };
    let handlers = Handlers::default().with(PLAYBOOK, handler);
    let options = Options { handlers, slots, guardian: None, ..Options::default() };
    let ends = Arc::new(Ends::of(workers.clone()));
    let start = Instant::now();
    let summary = Worker::new(ends.clone(), options).run(shutdown).await?;
    let Some(last) = ends.last().filter(|_| summary.succeeded == runs as u64) else {
        return Err(Failed::new(ERROR, format!("{} of {runs} runs went well", summary.succeeded)));
    };
    Ok(runs as f64 / (last - start).as_secs_f64())
}

/// A server in this process.
pub struct Server {
    pub address: SocketAddr,
    stage: watch::Sender<Stage>,
    serving: JoinHandle<()>,
}

impl Server {
    pub async fn start(store: Arc<dyn Database>) -> Result<Server> {
        let broken = |error: std::io::Error| Failed::new(ERROR, format!("no server: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(broken)?;
        let address = listener.local_addr().map_err(broken)?;
        let (stage, shutdown) = watch::channel(Stage::Working);
        let app = App::new(store, waypost_server::Options::default(), shutdown);
        Ok(Server { address, stage, serving: tokio::spawn(waypost_server::serve(app, listener)) })
    }

    pub async fn stop(self) {
        self.stage.send_replace(Stage::Draining);
        let _ = self.serving.await;
    }
}
