//! Targets of which an answer was lost: the key that went out stays until an answer settles what came of it.

use serde_json::{Value, json};
use waypost_store::{Database, End, ItemRow, Tried, WorkTargets, target_key};

use super::kit::*;
use super::targets::{applying, failed, one, report, result, retry, take, throttled, work};

const KEY: &str = "t0000";

fn shown(row: &ItemRow) -> (&str, u32, bool) {
    (&row.status, row.try_no, row.in_doubt)
}

// proves R9
pub async fn the_key_stays_until_an_answer_settles_it(store: &dyn Database) {
    let claimed = applying(store, 1).await;
    let id = claimed.run.id().to_owned();
    // A timeout, a 503 and a 429: none of the later two is about the first.
    for tried in [retry(1, false), retry(1, true), throttled(1)] {
        let taken = take(store, &claimed, 1).await;
        assert_eq!(taken[0].try_no, 1);
        report(store, &claimed, vec![result(&taken[0], tried)]).await.unwrap();
        assert_eq!(shown(&one(store, &id, KEY).await), ("QUEUED", 1, true));
        advance(store, 5).await;
    }
    // The last of its retries, and a person's after that: still the same key.
    for status in ["QUEUED", "FAILED"] {
        let taken = take(store, &claimed, 1).await;
        let end = if status == "FAILED" { End::WhenDone } else { End::Later };
        let write = WorkTargets { end, ..work(&claimed, vec![result(&taken[0], retry(1, true))], 0) };
        store.work_targets(write).await.unwrap();
        assert_eq!(shown(&one(store, &id, KEY).await), (status, 1, true));
        advance(store, 5).await;
    }
    command(store, &id, "retry").await.unwrap();
    let next = store.claim_run(id.clone(), "w2".into()).await.unwrap();
    let taken = take(store, &next, 1).await;
    assert_eq!(shown(&taken[0]), ("APPLYING", 1, true));
    report(store, &next, vec![result(&taken[0], Tried::Applied)]).await.unwrap();
    assert_eq!(shown(&one(store, &id, KEY).await), ("APPLIED", 2, false));
}

// proves R2, R9
pub async fn whoever_takes_over_keeps_the_key_of_what_was_outside(store: &dyn Database) {
    let claimed = applying(store, 3).await;
    let id = claimed.run.id().to_owned();
    let taken = take(store, &claimed, 2).await;
    // One of them has failed before, with an answer; then both are outside when their holder is lost.
    report(store, &claimed, vec![result(&taken[0], retry(1, true))]).await.unwrap();
    advance(store, 5).await;
    assert_eq!(shown(&take(store, &claimed, 1).await[0]), ("APPLYING", 2, false));
    advance(store, HOUR).await;
    let next = store.claim_run(id.clone(), "w2".into()).await.unwrap();
    let again = take(store, &next, 2).await;
    let found: Vec<(u32, bool)> = again.iter().map(|row| (row.try_no, row.in_doubt)).collect();
    assert_eq!(found, [(2, true), (1, true)]);
    assert!(!one(store, &id, "t0002").await.in_doubt, "it was never tried");
    report(store, &next, vec![result(&again[0], retry(1, true)), result(&again[1], failed("NOT_FOUND"))]).await.unwrap();
    assert_eq!(shown(&one(store, &id, KEY).await), ("QUEUED", 2, true));
    assert_eq!(shown(&one(store, &id, "t0001").await), ("FAILED", 2, false), "a refusal is an answer");
    // A stop ends what is outside too.
    advance(store, 5).await;
    take(store, &next, 1).await;
    let end = End::Stop(failure("STOPPED"));
    store.work_targets(WorkTargets { end, ..work(&next, Vec::new(), 0) }).await.unwrap();
    assert_eq!(shown(&one(store, &id, KEY).await), ("FAILED", 2, true));
    assert_eq!(shown(&one(store, &id, "t0002").await), ("FAILED", 1, false));
}

fn failure(code: &str) -> waypost_kernel::Failure {
    waypost_kernel::Failure::new(code, "it said so")
}

// proves R9: the event of a batch says what it is, and which keys go outside with it
pub async fn the_event_of_a_batch_has_its_type_and_the_keys_of_its_tries(store: &dyn Database) {
    let claimed = applying(store, 2).await;
    let id = claimed.run.id().to_owned();
    let taken = take(store, &claimed, 2).await;
    let results = vec![result(&taken[0], retry(1, true)), result(&taken[1], Tried::Applied)];
    report(store, &claimed, results).await.unwrap();
    advance(store, 5).await;
    take(store, &claimed, 1).await;
    let told = events(store, &id).await.into_iter().map(|event| event.payload);
    let applies: Vec<Value> = told.filter(|it| it["eventType"] == "automation.target.apply").collect();
    let keys = |event: &Value| -> Vec<Value> {
        event["items"].as_array().unwrap().iter().map(|item| item["eventKey"].clone()).collect()
    };
    let sent: Vec<Vec<Value>> = applies.iter().map(keys).collect();
    let key = |target: &str, try_no: u32| json!(target_key(&id, target, try_no));
    assert_eq!(sent, [vec![key("t0000", 1), key("t0001", 1)], vec![key("t0000", 2)]]);
}
