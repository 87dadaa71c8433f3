//! Limits that come while runs are held.

use waypost_store::{FinishWrite, Store};
use waypost_testkit::Shorthand;

use super::{assert_clean, deploy, open, wants};

/// The process that claimed a run remembers it as one that needs no slot; the limit has counted it since.
#[tokio::test]
async fn a_run_that_a_new_limit_counts_gives_its_slot_back() {
    let (store, database) = open().await;
    store.enqueue(vec![deploy(); 6]).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.extend(store.claim(wants("w", 1)).await.unwrap());
    }
    store.limit_queue("default", Some(1)).await.unwrap();
    let holders = || database.psql("SELECT count(*) FROM waypost.holders").unwrap();
    assert_eq!(holders(), "4", "who is held is counted");
    for claimed in &held {
        let finish = FinishWrite {
            run_id: claimed.run.id().into(),
            token: Some(claimed.token),
            by: "w".into(),
            status: "success".into(),
            ..FinishWrite::default()
        };
        let ended = store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
        assert_eq!(ended.status(), "success");
    }
    assert_eq!(holders(), "0", "the slots are free");
    assert_eq!(store.claim(wants("w", 5)).await.unwrap().len(), 1, "one at a time from now on");
    assert_clean(&store).await;
}
