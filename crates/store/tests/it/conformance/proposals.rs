//! Proposals and the inbox: what people decide of one moves the other, in one write.

use serde_json::json;
use waypost_store::{CommandWrite, Database, INBOX, INBOX_ID, NewRun, PROPOSAL, Result, RunRow, StoreError};

use super::kit::*;
use super::why_held_ones_wait::why;

async fn entry(store: &dyn Database) -> String {
    put(store, new(INBOX)).await.id().to_owned()
}

async fn proposed(store: &dyn Database, entry: &str, playbook: Option<&str>) -> RunRow {
    let new = NewRun {
        metadata: map(json!({ INBOX_ID: entry })),
        playbook: playbook.map(str::to_owned),
        ..new(PROPOSAL)
    };
    put(store, new).await
}

async fn decide(store: &dyn Database, id: &str, name: &str, note: Option<&str>) -> Result<RunRow> {
    let write = CommandWrite {
        tenant: TENANT.into(),
        run_id: id.into(),
        name: name.into(),
        by: "ann".into(),
        reason: note.map(str::to_owned),
        ..CommandWrite::default()
    };
    store.command(write).await
}

async fn status(store: &dyn Database, id: &str) -> String {
    store.run(TENANT.into(), id.into()).await.unwrap().status().to_owned()
}

// proves A8
pub async fn an_entry_follows_what_is_decided_of_its_proposal(store: &dyn Database) {
    let first = entry(store).await;
    assert!(first.starts_with("inbox_20"), "{first}");
    let approved = proposed(store, &first, None).await;
    assert!(approved.id().starts_with("prop_20"), "{}", approved.id());
    assert_eq!(approved.status(), "pending");
    for _ in 0..2 {
        let row = decide(store, approved.id(), "approve", None).await.unwrap();
        assert_eq!(row.status(), "approved", "without [apply] that is its end");
        assert_eq!(status(store, &first).await, "processed");
    }
    let second = entry(store).await;
    let rejected = proposed(store, &second, None).await;
    let refused = decide(store, rejected.id(), "reject", None).await.unwrap_err();
    assert!(refused.to_string().contains("a reason is given"), "{refused}");
    assert_eq!(status(store, &second).await, "pending");
    assert_eq!(decide(store, rejected.id(), "reject", Some("no")).await.unwrap().status(), "rejected");
    assert_eq!(status(store, &second).await, "rejected");
    for command in ["approve", "apply", "retry"] {
        let refused = decide(store, rejected.id(), command, None).await.unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{command}: {refused}");
    }
    let lost = proposed(store, "inbox_gone", None).await;
    assert_eq!(decide(store, lost.id(), "approve", None).await.unwrap().status(), "approved");
}

// proves A8
pub async fn an_approved_proposal_is_applied_by_a_worker_and_again_if_that_failed(store: &dyn Database) {
    let entry = entry(store).await;
    let row = proposed(store, &entry, Some("archivist@1")).await;
    for _ in 0..2 {
        let row = decide(store, row.id(), "approve", None).await.unwrap();
        assert_eq!(row.status(), "applying", "the same approval again is answered as the first");
    }
    let claimed = store.claim_run(row.id().to_owned(), "w1".into()).await.unwrap();
    finish(store, &claimed, "failed").await.unwrap();
    assert_eq!(decide(store, row.id(), "retry", None).await.unwrap().status(), "applying");
    let claimed = store.claim_run(row.id().to_owned(), "w1".into()).await.unwrap();
    finish(store, &claimed, "applied").await.unwrap();
    let refused = decide(store, row.id(), "reject", Some("late")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    assert_eq!(status(store, &entry).await, "processed");
}

// proves A8
pub async fn what_nobody_decides_expires_after_three_days(store: &dyn Database) {
    let entry = entry(store).await;
    let row = proposed(store, &entry, None).await;
    advance(store, 71 * 3_600).await;
    sweep(store).await;
    assert_eq!(status(store, row.id()).await, "pending");
    advance(store, 3_601).await;
    sweep(store).await;
    assert_eq!((status(store, row.id()).await, status(store, &entry).await), ("expired".into(), "expired".into()));
    let refused = decide(store, row.id(), "approve", None).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
}

async fn about(store: &dyn Database, target: serde_json::Value, base: serde_json::Value) -> RunRow {
    let new = NewRun {
        metadata: map(json!({ "target": target, "base_revision": base })),
        concurrency_key: Some(format!("proposal/{target}").chars().take(50).collect()),
        playbook: Some("archivist@1".into()),
        ..new(PROPOSAL)
    };
    put(store, new).await
}

// proves A8: whoever asks, and by whichever way
pub async fn of_the_proposals_for_one_revision_one_is_approved(store: &dyn Database) {
    let first = about(store, json!("notes/1"), json!(7)).await;
    let second = about(store, json!("notes/1"), json!("7")).await;
    let next = about(store, json!("notes/1"), json!(8)).await;
    let other = about(store, json!("notes/2"), json!(7)).await;
    decide(store, first.id(), "approve", None).await.unwrap();
    for _ in 0..2 {
        let refused = decide(store, second.id(), "approve", None).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Outdated(_)), "{refused}");
        assert!(refused.to_string().contains(first.id()), "{refused}");
        assert_eq!(status(store, second.id()).await, "pending", "nothing of it was written");
    }
    decide(store, first.id(), "approve", None).await.unwrap();
    for row in [&next, &other] {
        decide(store, row.id(), "approve", None).await.unwrap();
    }
    // One that failed leaves the revision to another, and is not tried again beside it.
    let claimed = store.claim_run(first.id().to_owned(), "w1".into()).await.unwrap();
    finish(store, &claimed, "failed").await.unwrap();
    decide(store, second.id(), "approve", None).await.unwrap();
    let refused = decide(store, first.id(), "retry", None).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Outdated(_)), "{refused}");
    assert_eq!(status(store, first.id()).await, "failed");
    decide(store, first.id(), "reject", Some("too late")).await.unwrap();
    let long = "x".repeat(100_000);
    let long = [about(store, json!(long), json!(1)).await, about(store, json!(long), json!(1)).await];
    decide(store, long[0].id(), "approve", None).await.unwrap();
    decide(store, long[1].id(), "approve", None).await.unwrap_err();
}

// proves A8
pub async fn what_is_approved_of_one_target_is_applied_one_after_the_other(store: &dyn Database) {
    let mut ids = Vec::new();
    for base in 1..=3 {
        ids.push(about(store, json!("notes/1"), json!(base)).await.id().to_owned());
    }
    // In the order in which people decided, not in that in which they were made.
    for at in [2, 0, 1] {
        advance(store, 1).await;
        decide(store, &ids[at], "approve", None).await.unwrap();
    }
    for at in [2, 0, 1] {
        let taken = store.claim(wants("w1", 10)).await.unwrap();
        assert_eq!(taken.iter().map(|it| it.run.id()).collect::<Vec<_>>(), [&ids[at]]);
        assert_eq!(store.claim(wants("w2", 10)).await.unwrap().len(), 0);
        for id in ids.iter().filter(|id| **id != ids[at]) {
            if status(store, id).await == "applying" {
                let refused = store.claim_run(id.clone(), "w2".into()).await.unwrap_err();
                assert!(refused.to_string().contains("concurrency key"), "{refused}");
                let row = store.run(TENANT.into(), id.clone()).await.unwrap();
                let waiting = why(store, &row).await.unwrap();
                assert!(waiting.text.contains(&ids[at]), "{}", waiting.text);
            }
        }
        finish(store, &taken[0], "applied").await.unwrap();
    }
    assert_eq!(store.claim(wants("w1", 10)).await.unwrap().len(), 0);
}
