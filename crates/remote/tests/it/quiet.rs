//! Waiting over HTTP: a long poll ends by what it waits for, whatever else happens, and nothing is asked for beside it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use waypost_kernel::{Phase, Span};
use waypost_remote::RemoteStore;
use waypost_store::{Claim, CommandWrite, Database, NewRun, Store, WorkerBeat};
use waypost_worker::{Handlers, Options, Outcome, Stage, Worker};

use crate::split::serve;

const LONG: Duration = Duration::from_secs(30);

fn run_of(queue: &str) -> NewRun {
    let playbook = Some("noop".to_owned());
    NewRun { lifecycle: "deploy".into(), queue: queue.into(), playbook, ..NewRun::default() }
}

async fn start(store: &dyn Database, queue: &str) -> String {
    store.enqueue(vec![run_of(queue)]).await.unwrap().remove(0).unwrap().run.id().to_owned()
}

/// What is none of the waiter's business.
async fn noise(store: &dyn Database) {
    for at in 0..10 {
        start(store, "elsewhere").await;
        store.beat(WorkerBeat { name: format!("w{at}"), slots: 1, ..WorkerBeat::default() }).await.unwrap();
    }
}

// proves U11
#[tokio::test(flavor = "multi_thread")]
async fn who_follows_a_run_is_woken_by_its_events_alone() {
    let (here, url, _lives) = serve().await;
    let there = RemoteStore::open(&url, None).await.unwrap();
    let id = start(&*here, "q").await;
    let waiting = async {
        there.event_after(&id, 1, LONG).await;
        here.events(id.clone(), 1, 10).await.unwrap().len()
    };
    let busy = async {
        noise(&*here).await;
        let cancel = CommandWrite {
            tenant: "default".into(),
            run_id: id.clone(),
            name: "cancel".into(),
            by: "kim".into(),
            ..CommandWrite::default()
        };
        here.command(cancel).await.unwrap();
    };
    let (found, ()) = tokio::join!(waiting, busy);
    assert_eq!(found, 1, "the event was there when the long poll ended");
}

// proves U11
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_a_run_and_nothing_else() {
    let (here, url, _lives) = serve().await;
    let there = RemoteStore::open(&url, None).await.unwrap();
    let claim = Claim {
        worker: "w".into(),
        queues: vec!["q".into()],
        limit: 1,
        wait: Some(Span::from_seconds(30)),
        ..Claim::default()
    };
    let busy = async {
        noise(&*here).await;
        start(&*here, "q").await
    };
    let (claimed, id) = tokio::join!(there.claim(claim), busy);
    assert_eq!(claimed.unwrap()[0].run.id(), id);
}

/// How often a route was asked for, by the server's own count.
async fn asked(url: &str, route: &str) -> u64 {
    let page = reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
    let fits = |line: &&str| {
        line.starts_with("waypost_http_requests_total") && line.contains(&format!("\"{route}\""))
    };
    let counts = page.lines().filter(fits).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

// proves U11 and U2
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_behind_a_server_asks_by_its_claims_alone() {
    let (here, url, _lives) = serve().await;
    let there = Arc::new(RemoteStore::open(&url, None).await.unwrap());
    let handlers = Handlers::default().with("noop", |_| async { Outcome::done() });
    let options = Options { queues: vec!["q".into()], handlers, guardian: None, ..Options::default() };
    let (stage, shutdown) = watch::channel(Stage::Working);
    let worker = Worker::new(there, options);
    let name = worker.name().to_owned();
    let working = tokio::spawn(worker.run(shutdown));
    for _ in 0..3 {
        let id = start(&*here, "q").await;
        while here.run("default".into(), id.clone()).await.unwrap().phase() != Phase::Settled {
            here.changed(LONG).await;
        }
    }
    let workers = here.workers(None).await.unwrap();
    assert!(
        workers.iter().any(|row| row.name == name && !row.by_claims),
        "it said what it takes: {workers:?}"
    );
    assert!(asked(&url, "/v1/claims").await >= 3);
    assert_eq!(asked(&url, "/v1/changes").await, 0);
    stage.send_replace(Stage::Draining);
    working.await.unwrap().unwrap();
    assert!(here.workers(None).await.unwrap().is_empty(), "a clean stop takes the row away");
}
