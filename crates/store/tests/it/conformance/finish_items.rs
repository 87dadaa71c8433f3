//! The last moves of items and the end of their run are one write: both, or neither.

use serde_json::json;
use waypost_kernel::Failure;
use waypost_store::{Claimed, Database, FinishWrite, ItemWrite};

use super::kit::*;

fn ending_with(claimed: &Claimed, status: &str, items: &[(&str, &str)]) -> FinishWrite {
    let items = items.iter().map(|(key, status)| moving("step", key, status)).collect();
    FinishWrite { items, ..ending(claimed, status) }
}

async fn working(store: &dyn Database) -> Claimed {
    let claimed = held_run(store, job(&["a", "b"])).await;
    move_items(store, &claimed, "step", &[("a", "completed"), ("b", "running")]).await.unwrap();
    claimed
}

pub async fn a_finish_moves_its_items_first(store: &dyn Database) {
    let claimed = working(store).await;
    let before = events(store, claimed.run.id()).await.len();
    let mut end = ending_with(&claimed, "completed", &[("b", "completed")]);
    end.items[0].output = Some(json!({ "hosts": 2 }));
    end.items[0].details = map(json!({ "does": "scan" }));
    end.details = map(json!({ "made": 1 }));
    let row = write_finish(store, end).await.unwrap();
    assert_eq!((row.status(), &row.details["made"]), ("completed", &json!(1)));
    assert_eq!(commands(store, row.id()).await[before..], ["items", "complete"]);
    let rows = store.items(row.id().into(), None).await.unwrap();
    assert_eq!((rows[1].status.as_str(), &rows[1].output), ("completed", &json!({ "hosts": 2 })));
    assert_eq!((rows[1].progress, &rows[1].details["does"]), (100, &json!("scan")));
    assert_eq!(row.object()["items"], json!({ "step": { "completed": 2 } }));
}

pub async fn a_step_that_fails_with_its_run_is_why_it_failed(store: &dyn Database) {
    let claimed = working(store).await;
    let failed = Failure::new("EXIT_2", "exit code 2");
    let mut end = ending_with(&claimed, "failed", &[("b", "failed")]);
    end.items[0].failure = Some(failed);
    let row = write_finish(store, end).await.unwrap();
    assert_eq!(row.run.failure, Some(Failure::new("EXIT_2", "b: exit code 2")));
    assert_eq!(items(store, row.id()).await, ["a=completed", "b=failed"]);
}

pub async fn a_refused_item_leaves_the_run_held_and_a_refused_end_leaves_the_items(store: &dyn Database) {
    let claimed = working(store).await;
    let id = claimed.run.id();
    let before = (get(store, id).await.object(), items(store, id).await);
    let too_far = ItemWrite { progress: Some(101), ..moving("step", "b", "completed") };
    for (refused, told) in [
        (ending_with(&claimed, "completed", &[("a", "running")]), "INVALID_TRANSITION"),
        (ending_with(&claimed, "completed", &[("b", "completed"), ("b", "failed")]), "INVALID_INPUT"),
        (ending_with(&claimed, "nowhere", &[("b", "completed")]), "INVALID_INPUT"),
        (ending_with(&claimed, "paused", &[("b", "completed")]), "INVALID_TRANSITION"),
        (ending_with(&claimed, "completed", &[("b", "failed")]), "FAILURE_RECORDED"),
        (FinishWrite { items: vec![too_far], ..ending(&claimed, "completed") }, "INVALID_INPUT"),
    ] {
        assert_eq!(code(&write_finish(store, refused.clone()).await), told, "{refused:?}");
        let mut now = (get(store, id).await.object(), items(store, id).await);
        now.0["stale_after"].clone_from(&before.0["stale_after"]);
        assert_eq!(now, before, "{refused:?}");
    }
    write_finish(store, ending_with(&claimed, "completed", &[("b", "completed")])).await.unwrap();
}

pub async fn a_lost_lease_moves_nothing(store: &dyn Database) {
    let claimed = working(store).await;
    release(store, &claimed).await.unwrap();
    let next = store.claim_run(claimed.run.id().into(), "w2".into()).await.unwrap();
    let late = write_finish(store, ending_with(&claimed, "completed", &[("b", "completed")])).await;
    assert_eq!(code(&late), "LEASE_LOST");
    assert_eq!(items(store, next.run.id()).await, ["a=completed", "b=pending"]);
    write_finish(store, ending_with(&next, "completed", &[("b", "completed")])).await.unwrap();
}

// proves X3
pub async fn the_same_finish_with_items_again_is_answered_as_the_first(store: &dyn Database) {
    let claimed = working(store).await;
    let end = || ending_with(&claimed, "completed", &[("b", "completed"), ("late", "completed")]);
    let first = write_finish(store, end()).await.unwrap().object();
    let again = write_finish(store, end()).await.unwrap().object();
    assert_eq!(again, first);
    let other = write_finish(store, ending_with(&claimed, "failed", &[("b", "failed")])).await;
    assert_eq!(code(&other), "INVALID_TRANSITION");
    assert_eq!(items(store, claimed.run.id()).await, ["a=completed", "b=completed", "late=completed"]);
}

pub async fn finishes_with_items_in_one_list_are_answered_each_by_itself(store: &dyn Database) {
    let (one, two, three) = (working(store).await, working(store).await, held_run(store, deploy()).await);
    let list = vec![
        ending_with(&one, "completed", &[("b", "completed")]),
        ending_with(&two, "completed", &[("a", "running")]),
        ending(&three, "success"),
        ending_with(&one, "completed", &[("b", "completed")]),
        ending_with(&two, "completed", &[("b", "completed")]),
    ];
    let answers = store.finish(list).await.unwrap();
    let codes: Vec<&str> = answers.iter().map(code).collect();
    assert_eq!(codes, ["OK", "INVALID_TRANSITION", "OK", "OK", "OK"]);
    assert_eq!(answers[3].as_ref().unwrap().object(), answers[0].as_ref().unwrap().object());
    for claimed in [&one, &two] {
        assert_eq!(items(store, claimed.run.id()).await, ["a=completed", "b=completed"]);
    }
}

/// The first write of a worker begins the work, be it its last.
pub async fn a_run_that_was_only_claimed_begins_moves_and_ends(store: &dyn Database) {
    let new = waypost_store::NewRun { items: vec![item("step", "a")], ..deploy() };
    let claimed = held_run(store, new).await;
    let row = write_finish(store, ending_with(&claimed, "success", &[("a", "completed")])).await.unwrap();
    assert_eq!(commands(store, row.id()).await, ["create", "claim", "start", "items", "succeed"]);
}
