//! A worker keeps up with its store: what it writes for a run, when it claims, and what holds up what.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use waypost_kernel::request::Level;
use waypost_store::postgres::{ListenState, PostgresStore, migration_sql};
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Database, NewRun, Store};
use waypost_testkit::Postgres;
use waypost_worker::{Context, Handler, Handlers, Outcome};

use crate::faulty::Mode;
use crate::support::{On, Shop, eventually, open};

/// Longer than any test takes: nothing is found by looking from time to time.
const NEVER: Duration = Duration::from_secs(3_600);

async fn shop(on: On, slots: usize, handler: impl Handler + 'static) -> (Shop, Box<dyn std::any::Any>) {
    let (store, keeps) = open(on).await;
    let mut shop = Shop::on(store);
    shop.options.slots = slots;
    shop.options.handlers = Handlers::default().with("work", handler);
    (shop, keeps)
}

fn work() -> NewRun {
    NewRun { lifecycle: "deploy".into(), playbook: Some("work".into()), ..NewRun::default() }
}

async fn done(_: Context) -> Outcome {
    Outcome::done()
}

// proves D4
#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_begun_before_its_handler_does() {
    for on in [On::Sqlite, On::Postgres] {
        let (shop, _keeps) = shop(on, 1, done).await;
        let store = shop.store.clone();
        let mut shop = shop;
        shop.options.handlers = Handlers::default().with("work", move |context: Context| {
            let store = store.clone();
            async move {
                let row = store.run("default".into(), context.run_id).await.unwrap();
                Outcome { output: json!(row.status()), ..Outcome::done() }
            }
        });
        let id = shop.enqueue(work()).await;
        assert_eq!(shop.work().await.succeeded, 1);
        assert_eq!(shop.run(&id).await.details["output"], json!("running"));
        let events = shop.events(&id).await;
        let told: Vec<(&str, &str)> =
            events.iter().map(|event| (event.command.as_str(), event.to.as_str())).collect();
        let path = [("queue", "queued"), ("claim", "claimed"), ("start", "running"), ("succeed", "success")];
        assert_eq!(told[1..], path[1..], "its claim and its end, and no event beside them");
        shop.verify().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_that_are_under_way_hold_no_slot_and_go_out_together() {
    for on in [On::Sqlite, On::Postgres] {
        let (shop, _keeps) = shop(on, 2, done).await;
        for _ in 0..20 {
            shop.enqueue(work()).await;
        }
        shop.faulty.ends.set(false);
        let running = shop.start();
        let held = async || {
            let queues = shop.store.queues(None).await.unwrap();
            queues.iter().find(|queue| queue.name == "default").map_or(0, |queue| queue.held)
        };
        eventually("more are claimed than there are slots", async || (held().await >= 4).then_some(())).await;
        let mut best = Vec::new();
        for _ in 0..4 {
            best.push(shop.enqueue(NewRun { priority: 9, ..work() }).await);
        }
        let held = held().await;
        assert!(held <= 6, "{held} are held: unreported ends stop claims");
        let mut waiting = 0;
        for id in &best {
            waiting += usize::from(shop.run(id).await.run.attempt == 0);
        }
        // Two at most fit beside the four that were held.
        assert!(waiting >= 2, "{waiting} of the best wait too");
        shop.faulty.ends.set(true);
        eventually("all are done", async || {
            let queues = shop.store.queues(None).await.unwrap();
            queues.iter().all(|queue| queue.ready + queue.held == 0).then_some(())
        })
        .await;
        let summary = running.stop().await;
        assert_eq!((summary.claimed, summary.succeeded), (24, 24));
        let batches = shop.faulty.batches.lock().unwrap().clone();
        assert_eq!(batches.iter().sum::<usize>(), 24);
        assert!(batches.iter().any(|size| *size > 1), "{batches:?}");
        shop.verify().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_is_claimed_without_looking_for_it() {
    for on in [On::Sqlite, On::Postgres] {
        let (mut shop, _keeps) = shop(on, 1, done).await;
        (shop.options.poll_at_least, shop.options.poll_at_most) = (NEVER, NEVER);
        let running = shop.start();
        for _ in 0..20 {
            let id = shop.enqueue(work()).await;
            shop.until_settled(&id).await;
        }
        assert_eq!(running.stop().await.succeeded, 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_queues_is_claimed_without_looking_for_it() {
    let file = Shop::new();
    let same_file: Arc<dyn Database> = Arc::new(SqliteStore::open(&file.database()).unwrap());
    let database = Postgres::with_schema(&migration_sql()).unwrap();
    let (here, there) = (
        Arc::new(PostgresStore::open(&database.url()).await.unwrap()),
        Arc::new(PostgresStore::open(&database.url()).await.unwrap()),
    );
    while here.listen_state() != ListenState::Listening {
        here.changed(Duration::from_secs(1)).await;
    }
    for (mut shop, elsewhere) in [(file, same_file), (Shop::on(here), there)] {
        shop.options.handlers = Handlers::default().with("work", done);
        (shop.options.poll_at_least, shop.options.poll_at_most) = (NEVER, NEVER);
        let running = shop.start();
        for _ in 0..20 {
            let made = elsewhere.enqueue(vec![work()]).await.unwrap().remove(0).unwrap();
            shop.until_settled(made.run.id()).await;
        }
        assert_eq!(running.stop().await.succeeded, 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_a_claim_is_under_way_is_claimed_after_it() {
    for on in [On::Sqlite, On::Postgres] {
        let (mut shop, _keeps) = shop(on, 1, done).await;
        (shop.options.poll_at_least, shop.options.poll_at_most) = (NEVER, NEVER);
        shop.faulty.claims.set(false);
        let running = shop.start();
        shop.faulty.claims.until_one_waits().await;
        let id = shop.enqueue(work()).await;
        shop.faulty.claims.set(true);
        shop.until_settled(&id).await;
        assert_eq!(running.stop().await.succeeded, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_of_many_runs_are_each_in_order_and_written_before_they_return() {
    const NOTES: u64 = 10;
    for on in [On::Sqlite, On::Postgres] {
        let (mut shop, _keeps) = shop(on, 8, done).await;
        let store = shop.store.clone();
        shop.options.handlers = Handlers::default().with("work", move |context: Context| {
            let store = store.clone();
            async move {
                for number in 0..NOTES {
                    context.note(Level::Info, "number", json!(number)).await;
                    let last = store.events(context.run_id.clone(), 0, 1_000).await.unwrap().pop().unwrap();
                    assert_eq!(last.payload, json!(number));
                }
                Outcome::done()
            }
        });
        let mut ids = Vec::new();
        for _ in 0..8 {
            ids.push(shop.enqueue(work()).await);
        }
        assert_eq!(shop.work().await.succeeded, 8);
        for id in ids {
            let events = shop.events(&id).await;
            let numbers = events.iter().filter(|event| event.message == "number").map(|event| &event.payload);
            assert!(numbers.eq((0..NOTES).map(Value::from).collect::<Vec<_>>().iter()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_playbook_that_comes_along_waits_for_a_store_that_is_away() {
    let (shop, _keeps) = shop(On::Sqlite, 1, done).await;
    let text = "name = \"p\"\nlifecycle = \"job\"\n[[step]]\nname = \"s\"\nexec = [\"true\"]\n";
    let carried = json!({ "playbook": { "text": text, "file": shop.path("p.toml") } });
    shop.faulty.claims.set(false);
    let id =
        shop.enqueue(NewRun { carried: Some(carried), lifecycle: "job".into(), ..NewRun::default() }).await;
    let running = shop.start();
    shop.faulty.claims.until_one_waits().await;
    shop.faulty.set(Mode::Away);
    shop.faulty.claims.set(true);
    eventually("the store was asked in vain", async || {
        (shop.faulty.missed.load(Ordering::SeqCst) > 1).then_some(())
    })
    .await;
    shop.faulty.set(Mode::Here);
    assert_eq!(shop.until_settled(&id).await.status(), "completed");
    assert_eq!(running.stop().await.succeeded, 1);
}
