//! Only a server asks for a replay by a key: no client says of a new run what it repeats.

use waypost_store::{Database, NewRun};

use crate::conformance::kit::{code, deploy, put, try_put};
use crate::conformance::{open_memory, open_postgres, open_sqlite};

// proves X7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_stands_for_what_a_replay_asked_for() {
    for (store, _folder) in [open_memory().await, open_sqlite().await, open_postgres().await] {
        a_key_stands_for_it(&*store).await;
    }
}

async fn a_key_stands_for_it(store: &dyn Database) {
    let asked =
        |from: &str| NewRun { idempotency_key: Some("k".into()), replay: Some(from.into()), ..deploy() };
    let first = put(store, asked("all")).await;
    assert_eq!(put(store, asked("all")).await.id(), first.id());
    let other = try_put(store, asked("from a step")).await;
    assert_eq!(code(&other), "IDEMPOTENCY_KEY_REUSED", "though it comes to the same run");
}
