//! Behind PgBouncer, which gives each transaction whatever session is free: the same meaning, and nothing left in a session.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use waypost_store::doctor::Health;
use waypost_store::postgres::{ListenState, PostgresStore, client, doctor, migrate, migration_sql};
use waypost_store::{Claim, FinishWrite, Store};
use waypost_testkit::{Pooler, Postgres};

use super::{assert_clean, deploy, wants};
use crate::conformance::{kit, of_topic};

/// Fewer than one store has connections: they take turns.
const SESSIONS: usize = 4;

/// A topic of the conformance suite, each test on a database of its own, four at once.
async fn behind_a_pooler(topic: &str) {
    let place = Postgres::start().unwrap();
    let pooler = Pooler::start(&place, SESSIONS).unwrap();
    for tests in of_topic(topic).chunks(4) {
        let ran = tests.iter().map(async |(name, test)| {
            let database = Postgres::with_schema(&migration_sql()).unwrap();
            let store = PostgresStore::open(&pooler.url(&database)).await.unwrap();
            eprintln!("{topic}::{name}");
            test(&store).await;
            kit::check(&store).await;
            drop(store);
            assert_untouched(&pooler, &database).await;
        });
        join_all(ran).await;
    }
}

/// Each of the pooler's sessions is as a new one.
async fn assert_untouched(pooler: &Pooler, database: &Postgres) {
    let held = (0..SESSIONS).map(async |_| {
        let client = client(&pooler.url(database)).await?;
        client.batch_execute("BEGIN").await.unwrap();
        Ok::<_, waypost_store::StoreError>(client)
    });
    let state = "SELECT (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_prepared_statements), \
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), current_setting('statement_timeout'), \
        current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')";
    let mut sessions = Vec::new();
    for client in try_join_all(held).await.unwrap() {
        let row = client.query_typed_one(state, &[]).await.unwrap();
        let counts: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
        let settings: [&str; 3] = [row.get(3), row.get(4), row.get(5)];
        assert_eq!((counts, settings), ([0; 3], ["0"; 3]), "channels, statements, locks; settings");
        let pid = client.query_typed_one("SELECT pg_backend_pid()", &[]).await.unwrap();
        sessions.push(pid.get::<_, i32>(0));
    }
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!(sessions.len(), SESSIONS, "all of them");
}

macro_rules! topics_behind_a_pooler {
    ($($topic:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $topic() {
            behind_a_pooler(stringify!($topic)).await;
        })+
    };
}

topics_behind_a_pooler! { enqueue idempotency claim_order leases notes finish cancel limits items children sweep feed prune schedules }

/// The whole way, and what is told: no wake-ups, and who stands between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_worked_and_the_pooler_is_named() {
    let database = Postgres::start().unwrap();
    let pooler = Pooler::start(&database, SESSIONS).unwrap();
    let address = pooler.url(&database);
    assert_eq!(migrate(&address).await, Ok(vec![1]), "the schema comes through it as well");
    assert_eq!(migrate(&address).await, Ok(Vec::new()));

    let store = PostgresStore::open(&address).await.unwrap();
    while store.listen_state() == ListenState::Untried {
        store.changed(Duration::from_secs(1)).await;
    }
    assert_eq!(store.listen_state(), ListenState::Polling);
    let workers = (0..8).map(|at| {
        let store = store.clone();
        tokio::spawn(async move {
            store.enqueue(vec![deploy(); 100]).await.unwrap();
            let mut done = 0;
            loop {
                let claim = Claim { limit: 10, ..wants(&format!("w{at}"), 10) };
                let held = store.claim(claim).await.unwrap();
                let ends = held.iter().map(|claimed| FinishWrite {
                    run_id: claimed.run.id().to_owned(),
                    token: Some(claimed.token),
                    by: format!("w{at}"),
                    status: "success".into(),
                    ..FinishWrite::default()
                });
                for ended in store.finish(ends.collect()).await.unwrap() {
                    ended.unwrap();
                    done += 1;
                }
                if held.is_empty() {
                    return done;
                }
            }
        })
    });
    let done: usize = join_all(workers).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(done, 800);
    assert_clean(&store).await;

    let found = doctor(&address).await.unwrap();
    let about = |what: &str| found.iter().find(|finding| finding.what == what).unwrap();
    assert!(about("pooler").found.contains("PgBouncer"), "{:?}", about("pooler"));
    assert_eq!(about("listen").health, Health::Warning);
    assert!(about("listen").advice.as_ref().unwrap().contains("direct address"));
    drop(store);
    assert_untouched(&pooler, &database).await;
    let direct = doctor(&database.url()).await.unwrap();
    assert!(!direct.iter().any(|finding| finding.what == "pooler"));
}
