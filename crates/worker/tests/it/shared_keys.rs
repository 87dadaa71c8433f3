//! Workers of several processes take runs with few concurrency keys from two queues: no two of a key at once, nobody waits for
//! whom it keeps waiting, and three processes are about as fast as one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_store::{Database, NewRun, Store};
use waypost_testkit::Postgres;
use waypost_worker::{Context, Handlers, Options, Outcome, Stage, Worker};

const KEYS: usize = 6;
const WORKERS: usize = 6;
const QUEUES: [&str; 2] = ["left", "right"];

/// `./scripts/soak shared-keys` asks for more.
fn runs() -> usize {
    std::env::var("WAYPOST_KEYED_RUNS").map_or(120, |text| text.parse().unwrap())
}

async fn enqueued(store: &dyn Store, runs: usize) {
    let new = |at: usize| NewRun {
        lifecycle: "deploy".into(),
        playbook: Some("work".into()),
        queue: QUEUES[at % QUEUES.len()].into(),
        concurrency_key: Some(format!("key-{}", at % KEYS)),
        ..NewRun::default()
    };
    for answer in store.enqueue((0..runs).map(new).collect()).await.unwrap() {
        answer.unwrap();
    }
}

/// Works all of them by the workers of so many processes, each with a store of its own. Gives how long it took.
async fn worked(url: &str, processes: usize, runs: usize) -> Duration {
    let mut stores: Vec<Arc<dyn Database>> = Vec::new();
    for _ in 0..processes {
        stores.push(Arc::new(PostgresStore::open(url).await.unwrap()));
    }
    enqueued(&*stores[0], runs).await;
    let held: Arc<BTreeMap<String, AtomicBool>> =
        Arc::new((0..KEYS).map(|key| (format!("key-{key}"), AtomicBool::new(false))).collect());
    let (done, twice) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (stage, shutdown) = watch::channel(Stage::Working);
    let stage = Arc::new(stage);
    let start = Instant::now();
    let workers = (0..WORKERS).map(|at| {
        let (held, done, twice, stage) = (held.clone(), done.clone(), twice.clone(), stage.clone());
        let store = stores[at % processes].clone();
        let handler = move |context: Context| {
            let (held, done, twice, stage) = (held.clone(), done.clone(), twice.clone(), stage.clone());
            let store = store.clone();
            async move {
                let run = store.run("default".into(), context.run_id).await.unwrap();
                let key = &held[run.concurrency_key.as_deref().unwrap()];
                if key.swap(true, Ordering::SeqCst) {
                    twice.fetch_add(1, Ordering::SeqCst);
                }
                tokio::task::yield_now().await;
                key.store(false, Ordering::SeqCst);
                if done.fetch_add(1, Ordering::SeqCst) + 1 == runs {
                    stage.send_replace(Stage::Draining);
                }
                Outcome::done()
            }
        };
        let options = Options {
            handlers: Handlers::default().with("work", handler),
            queues: QUEUES.map(str::to_owned).to_vec(),
            slots: 4,
            guardian: None,
            ..Options::default()
        };
        tokio::spawn(Worker::new(stores[at % processes].clone(), options).run(shutdown.clone()))
    });
    let mut succeeded = 0;
    for worker in workers.collect::<Vec<_>>() {
        succeeded += worker.await.unwrap().unwrap().succeeded;
    }
    assert_eq!(succeeded as usize, runs);
    assert_eq!(twice.load(Ordering::SeqCst), 0, "two runs of a key at once");
    start.elapsed()
}

// proves X9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_three_processes_share_few_keys_without_a_deadlock() {
    let database = Postgres::with_schema(&migration_sql()).unwrap();
    let url = database.url();
    let runs = runs();
    let alone = worked(&url, 1, runs).await;
    let three = worked(&url, 3, runs).await;
    let deadlocks = database
        .psql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        .unwrap()
        .trim()
        .to_owned();
    assert_eq!(deadlocks, "0");
    println!(
        "{runs} runs, {KEYS} keys, {WORKERS} workers, {} queues: {:.1} s by one process, {:.1} s by three ({:.2} of it), 0 deadlocks",
        QUEUES.len(),
        alone.as_secs_f64(),
        three.as_secs_f64(),
        three.as_secs_f64() / alone.as_secs_f64()
    );
}
