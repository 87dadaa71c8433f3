//! A key stands for what was asked for in the caller's own words, and not for what that came to.

use waypost_store::{Database, NewRun};

use crate::conformance::kit::{code, deploy, put, try_put};
use crate::conformance::{open_memory, open_postgres, open_sqlite};

// proves X7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_stands_for_what_was_asked_for_alone() {
    for (store, _folder) in [open_memory().await, open_sqlite().await, open_postgres().await] {
        a_key_stands_for_it(&*store).await;
    }
}

async fn a_key_stands_for_it(store: &dyn Database) {
    let asked = |words: &str, title: &str| NewRun {
        idempotency_key: Some("k".into()),
        asked: Some(words.into()),
        title: Some(title.into()),
        ..deploy()
    };
    let made_by = |key: &str, words: &str| store.made_by("default".into(), key.into(), words.into());
    assert!(made_by("k", "all").await.unwrap().is_none());
    let first = put(store, asked("all", "one")).await;
    assert_eq!(put(store, asked("all", "one")).await.id(), first.id());
    assert_eq!(put(store, asked("all", "another")).await.id(), first.id(), "whatever it comes to by now");
    let refused = NewRun { lifecycle: "gone".into(), ..asked("all", "one") };
    assert_eq!(put(store, refused).await.id(), first.id(), "whether it could be made now or not");
    let other = try_put(store, asked("from a step", "one")).await;
    assert_eq!(code(&other), "IDEMPOTENCY_KEY_REUSED", "though it comes to the same run");
    let unsaid = try_put(store, NewRun { asked: None, ..asked("all", "one") }).await;
    assert_eq!(code(&unsaid), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(made_by("k", "all").await.unwrap().unwrap().id(), first.id());
    assert_eq!(code(&made_by("k", "from a step").await), "IDEMPOTENCY_KEY_REUSED");
    assert!(store.made_by("other".into(), "k".into(), "all".into()).await.unwrap().is_none());
    assert_eq!(code(&made_by("k\0", "all").await), "INVALID_INPUT");
    assert!(made_by("k", "a\0b").await.is_err());
}
