//! A lease is the right to write a held run, and nobody without it writes.

use serde_json::json;
use waypost_kernel::{Failure, Span, Token};
use waypost_store::{Claimed, CleanupWrite, Database, Take};

use super::kit::*;

// proves X5
pub async fn a_heartbeat_extends_the_lease(store: &dyn Database) {
    let claimed = held_run(store, job(&["s"])).await;
    for _ in 0..5 {
        advance(store, 50).await;
        let renewed = renew(store, &claimed).await.unwrap();
        assert!(about(renewed.expires_at - renewed.now, 60));
        assert_eq!((renewed.intent, renewed.graceful), (None, false));
    }
    assert!(claim(store, "w2").await.is_none());
    assert!(sweep(store).await.moved.is_empty());
    assert_eq!(commands(store, claimed.run.id()).await, ["create", "claim"], "heartbeats are no events");
}

// proves D7
pub async fn a_heartbeat_does_not_extend_a_deadline(store: &dyn Database) {
    let claimed = held_run(store, deploy()).await;
    for _ in 0..5 {
        advance(store, 59).await;
        assert_eq!(renew(store, &claimed).await.unwrap().expires_at, claimed.expires_at);
    }
    advance(store, 20).await;
    assert_eq!(sweep(store).await.moved, [(claimed.run.id().to_owned(), "expire".to_owned())]);
}

// proves X5
pub async fn the_lease_that_was_asked_for_is_given(store: &dyn Database) {
    let run = put(store, job(&["s"])).await;
    let length = Some(Span::from_seconds(600));
    let claimed = store.claim_run(run.id().into(), Take { lease: length, .."w1".into() }).await.unwrap();
    assert!(about(claimed.expires_at - claimed.now, 600));
    advance(store, 500).await;
    let renewed = renew(store, &claimed).await.unwrap();
    assert!(about(renewed.expires_at - renewed.now, 600));
    let begun = begun_run(store, deploy()).await;
    let lease = get(store, begun.run.id()).await.run.lease.unwrap();
    assert!(about(lease.until - store.now().await.unwrap(), 60), "from a deadline to a lease");
}

async fn every_write(store: &dyn Database, claimed: &Claimed) -> Vec<&'static str> {
    let require_cleanup = CleanupWrite { held: held(claimed), by: "w1".into(), required: true, failing: None };
    vec![
        code(&renew(store, claimed).await),
        code(&note(store, claimed, "still here").await),
        code(&move_items(store, claimed, "step", &[("s", "running")]).await),
        code(&store.require_cleanup(require_cleanup).await),
        code(&finish(store, claimed, "failed").await),
        code(&release(store, claimed).await),
    ]
}

// proves X5
pub async fn a_wrong_token_writes_nothing(store: &dyn Database) {
    let claimed = held_run(store, job(&["s"])).await;
    let before = get(store, claimed.run.id()).await.object();
    for token in [Token(0), Token(claimed.token.0 ^ 1), Token(u128::MAX)] {
        let wrong = Claimed { token, ..claimed.clone() };
        assert_eq!(every_write(store, &wrong).await, ["LEASE_LOST"; 6]);
    }
    assert_eq!(get(store, claimed.run.id()).await.object(), before);
}

// proves X5
pub async fn an_earlier_holder_writes_nothing(store: &dyn Database) {
    let first = held_run(store, job(&["s"])).await;
    advance(store, 61).await;
    let second = claim(store, "w2").await.unwrap();
    assert_eq!((second.run.id(), second.fence), (first.run.id(), first.fence + 1));
    let before = get(store, first.run.id()).await.object();
    assert_eq!(every_write(store, &first).await, ["LEASE_LOST"; 6]);
    assert_eq!(get(store, first.run.id()).await.object(), before);
    assert_eq!(code(&finish(store, &second, "failed").await), "OK");
}

// proves X5
pub async fn an_expired_lease_is_its_holders_until_another_has_it(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    advance(store, 600).await;
    assert_eq!(code(&note(store, &claimed, "slow, but here").await), "OK");
    assert!(sweep(store).await.moved.is_empty(), "the note renewed it");
    advance(store, 600).await;
    assert_eq!(finish(store, &claimed, "success").await.unwrap().status(), "success");
}

// proves X5 and X8
pub async fn a_heartbeat_tells_what_is_wanted(store: &dyn Database) {
    let claimed = held_run(store, job(&["s"])).await;
    let graceful = waypost_store::CommandWrite { graceful: true, ..asking(claimed.run.id(), "cancel") };
    store.command(graceful).await.unwrap();
    let renewed = renew(store, &claimed).await.unwrap();
    assert_eq!((renewed.intent, renewed.graceful), (Some("cancel"), true));
    command(store, claimed.run.id(), "cancel").await.unwrap();
    let renewed = renew(store, &claimed).await.unwrap();
    assert_eq!((renewed.intent, renewed.graceful), (Some("cancel"), false));
}

// proves X5 and C7
pub async fn a_release_leaves_the_lease_vacant(store: &dyn Database) {
    let claimed = held_run(store, job(&["s"])).await;
    move_items(store, &claimed, "step", &[("s", "running")]).await.unwrap();
    let row = release(store, &claimed).await.unwrap();
    assert_eq!((row.status(), row.run.attempt, row.run.fence), ("running", 1, 1));
    assert_eq!(row.object()["claimed_by"], json!(null));
    assert_eq!(items(store, row.id()).await, ["s=pending"], "what was under way can be begun again");
    assert_eq!(every_write(store, &claimed).await, ["LEASE_LOST"; 6]);
    assert!(sweep(store).await.moved.is_empty());
    let next = claim(store, "w2").await.unwrap();
    assert_eq!((next.run.id(), next.fence, next.run.run.attempt), (row.id(), 2, 1));
    assert_eq!(next.run.run.take_overs, 0, "nobody died");
    assert_ne!(next.token, claimed.token);
}

// proves X8 and J5
pub async fn a_run_that_requires_its_cleanup_ends_only_after_it(store: &dyn Database) {
    let claimed = held_run(store, job(&["s"])).await;
    let require_cleanup = |required| CleanupWrite { held: held(&claimed), by: "w1".into(), required, failing: None };
    assert!(store.require_cleanup(require_cleanup(true)).await.unwrap().run.requires_cleanup);
    for status in ["completed", "failed", "cancelled"] {
        assert_eq!(code(&finish(store, &claimed, status).await), "CLEANUP_OWED");
    }
    store.require_cleanup(require_cleanup(false)).await.unwrap();
    assert_eq!(code(&finish(store, &claimed, "completed").await), "OK");
}

// proves X8
pub async fn a_recorded_failure_is_where_the_run_ends(store: &dyn Database) {
    let claimed = held_run(store, job(&["s"])).await;
    let failing = Some(("failed".to_owned(), Failure::new("DISK_FULL", "no space left")));
    let require_cleanup = |required, failing| CleanupWrite { held: held(&claimed), by: "w1".into(), required, failing };
    store.require_cleanup(require_cleanup(true, failing)).await.unwrap();
    assert_eq!(renew(store, &claimed).await.unwrap().intent, Some("fail"));
    store.require_cleanup(require_cleanup(false, None)).await.unwrap();
    assert_eq!(code(&finish(store, &claimed, "completed").await), "FAILURE_RECORDED");
    let row = finish(store, &claimed, "failed").await.unwrap();
    assert_eq!(row.object()["error_code"], "DISK_FULL");
    let nowhere = Some(("nowhere".to_owned(), Failure::new("A", "b")));
    let other = held_run(store, job(&["s"])).await;
    let wrong = CleanupWrite { held: held(&other), by: "w1".into(), required: true, failing: nowhere };
    assert_eq!(code(&store.require_cleanup(wrong).await), "INVALID_INPUT");
}

// proves X10: a client that is told to try again later would try for ever
pub async fn a_recorded_failure_is_cleaned_and_cut(store: &dyn Database) {
    let claimed = held_run(store, job(&["s"])).await;
    let message = format!("a\0b\u{1b}[31m{}", "z".repeat(300_000));
    let failing = Some(("failed".to_owned(), Failure::new(&format!("a\0b{}", "C".repeat(300)), &message)));
    let require_cleanup = |required, failing| CleanupWrite { held: held(&claimed), by: "w\0a".into(), required, failing };
    store.require_cleanup(require_cleanup(true, failing)).await.unwrap();
    store.require_cleanup(require_cleanup(false, None)).await.unwrap();
    let failure = finish(store, &claimed, "failed").await.unwrap().run.failure.unwrap();
    assert!(failure.code.starts_with("a\u{fffd}bC") && failure.code.len() <= 255, "{}", failure.code);
    assert!(failure.message.starts_with("a\u{fffd}bz"), "{:?}", &failure.message[..20]);
    assert_eq!(failure.message.chars().count(), 4_000);
}

pub async fn lists_are_answered_each_by_itself(store: &dyn Database) {
    let (one, two) = (held_run(store, deploy()).await, held_run(store, deploy()).await);
    let none = waypost_store::Held { run_id: "run-none".into(), token: one.token };
    let crossed = waypost_store::Held { token: two.token, ..held(&one) };
    let leases = vec![held(&one), none, crossed, held(&two)];
    let expected = ["OK", "NOT_FOUND", "LEASE_LOST", "OK"];
    let codes: Vec<&str> = store.renew(leases.clone()).await.unwrap().iter().map(code).collect();
    assert_eq!(codes, expected);
    let codes: Vec<&str> = store.release(leases.into_iter().map(Into::into).collect()).await.unwrap().iter().map(code).collect();
    assert_eq!(codes, expected);
    let notes = vec![saying(&one, "a"), saying(&two, "b")];
    let codes: Vec<&str> = store.note(notes).await.unwrap().iter().map(code).collect();
    assert_eq!(codes, ["LEASE_LOST"; 2]);
    assert!(store.renew(Vec::new()).await.unwrap().is_empty());
}
