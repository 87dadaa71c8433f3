//! A database that cannot grow: nothing is half-written, the error says what to do, and it works again with more room.
// proves X10

use std::sync::Arc;

use serde_json::json;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Claim, Filter, FinishWrite, Housekeeping, NewRun, Store, StoreError};

const NO_LIMIT: u32 = u32::MAX - 1;

fn runs(count: usize) -> Vec<NewRun> {
    let input = json!({ "text": "x".repeat(2_000) });
    vec![NewRun { lifecycle: "deploy".into(), input, ..NewRun::default() }; count]
}

async fn count(store: &SqliteStore) -> usize {
    let filter = Filter { tenant: "default".into(), limit: 1_000, ..Filter::default() };
    store.runs(filter).await.unwrap().runs.len()
}

async fn differences(store: &SqliteStore) -> Vec<String> {
    store.verify(Arc::new(|_, _| {})).await.unwrap().differences
}

#[tokio::test]
async fn a_full_database_refuses_whole_requests_and_works_again_with_more_room() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("waypost.db")).unwrap();
    store.enqueue(runs(10)).await.unwrap();
    store.at_most_pages(1).await.unwrap();
    let refused = store.enqueue(runs(200)).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unavailable(_)), "{refused}");
    assert!(refused.to_string().contains("full"), "{refused}");
    assert_eq!(count(&store).await, 10);

    // Neighbours in one group are all written or all told that nothing was.
    let (one, two, three) =
        tokio::join!(store.enqueue(runs(1)), store.enqueue(runs(200)), store.enqueue(runs(1)));
    let accepted = [&one, &three].into_iter().filter(|answer| answer.is_ok()).count();
    assert!(two.is_err());
    assert_eq!(count(&store).await, 10 + accepted);
    assert_eq!(differences(&store).await, Vec::<String>::new());

    store.at_most_pages(NO_LIMIT).await.unwrap();
    store.enqueue(runs(200)).await.unwrap();
    let claim = Claim { worker: "w".into(), queues: vec!["default".into()], limit: 5, ..Claim::default() };
    for claimed in store.claim(claim).await.unwrap() {
        let finish = FinishWrite {
            run_id: claimed.run.id().to_owned(),
            token: Some(claimed.token),
            by: "w".into(),
            status: "success".into(),
            ..FinishWrite::default()
        };
        store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
    }
    assert_eq!(count(&store).await, 210 + accepted);
    assert_eq!(differences(&store).await, Vec::<String>::new());
}
