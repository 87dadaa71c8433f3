//! Sixty-four at once for each of many idempotency keys: one run each, no error, whichever way they come.
// proves X7

use std::sync::Arc;

use tokio::sync::Barrier;
use waypost_store::postgres::client;
use waypost_store::{NewRun, Store};

use super::{assert_clean, deploy, open};

const CALLERS: usize = 64;

/// A thousand in `./scripts/soak keys`.
fn keys() -> usize {
    std::env::var("WAYPOST_KEYS").map_or(60, |keys| keys.parse().unwrap())
}

/// What each caller was told, key by key.
async fn all_alike(callers: Vec<tokio::task::JoinHandle<Vec<String>>>) {
    let mut first: Option<Vec<String>> = None;
    for caller in callers {
        let told = caller.await.unwrap();
        assert_eq!(first.get_or_insert_with(|| told.clone()), &told, "all have the same runs");
    }
    let mut told = first.unwrap();
    told.sort();
    told.dedup();
    assert_eq!(told.len(), keys(), "each key has its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sessions_that_queue_one_key_make_one_run() {
    let (store, database) = open().await;
    let together = Arc::new(Barrier::new(CALLERS));
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let (client, together) = (client(&database.url()).await.unwrap(), together.clone());
        callers.push(tokio::spawn(async move {
            let mut told = Vec::new();
            for key in 0..keys() {
                let sql =
                    format!("SELECT run_id FROM ops.queue_run('p', 'e', 's', 'r', '{{}}', 'key {key}')");
                together.wait().await;
                told.push(client.query_typed_one(&sql, &[]).await.unwrap().get(0));
            }
            told
        }));
    }
    all_alike(callers).await;
    assert_eq!(database.psql("SELECT count(*) FROM ops.runs").unwrap(), keys().to_string());
    println!("{CALLERS} sessions queued {} keys: one run each", keys());
    assert_clean(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_of_a_store_that_queue_one_key_make_one_run() {
    let (store, database) = open().await;
    let others =
        [store.clone(), waypost_store::postgres::PostgresStore::open(&database.url()).await.unwrap()];
    let together = Arc::new(Barrier::new(CALLERS));
    let callers = (0..CALLERS).map(|at| {
        let (store, together) = (others[at % 2].clone(), together.clone());
        tokio::spawn(async move {
            let mut told = Vec::new();
            for key in 0..keys() {
                let run = NewRun { idempotency_key: Some(format!("key {key}")), ..deploy() };
                together.wait().await;
                told.push(store.enqueue(vec![run]).await.unwrap().remove(0).unwrap().run.id().to_owned());
            }
            told
        })
    });
    all_alike(callers.collect()).await;
    assert_eq!(database.psql("SELECT count(*) FROM ops.runs").unwrap(), keys().to_string());
    println!("{CALLERS} callers of two processes' stores queued {} keys: one run each", keys());
    assert_clean(&store).await;
}
