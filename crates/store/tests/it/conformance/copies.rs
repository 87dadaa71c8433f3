//! A run that repeats another may begin with what that one did.

use serde_json::json;
use waypost_kernel::item::Role;
use waypost_store::{Claimed, Database, ItemRow, ItemWrite, ItemsWrite, NewItem, NewRun, StoreError};

use super::kit::*;

fn write(key: &str, status: &str) -> ItemWrite {
    moving("step", key, status)
}

async fn items_of(store: &dyn Database, run_id: &str) -> Vec<ItemRow> {
    store.items(run_id.into(), Some("step".into())).await.unwrap()
}

fn ends_with(claimed: &Claimed, items: Vec<ItemWrite>) -> ItemsWrite {
    ItemsWrite { held: held(claimed), by: "w1".into(), items }
}

fn copy(key: &str) -> NewItem {
    NewItem { copied: true, name: String::new(), ..item("step", key) }
}

/// `scan` is done, `test` was left out, `ship` failed and `tell` never began.
async fn failed_run(store: &dyn Database) -> String {
    let claimed = held_run(store, job(&["scan", "test", "ship", "tell"])).await;
    let done = ItemWrite { output: Some(json!({"hosts": ["a", 1.5e300]})), ..write("scan", "completed") };
    let left_out = ItemWrite { details: map(json!({"left_out": true})), ..write("test", "skipped") };
    let items = vec![done, left_out, write("ship", "failed")];
    store.put_items(ends_with(&claimed, items)).await.unwrap();
    finish(store, &claimed, "failed").await.unwrap();
    claimed.run.id().to_owned()
}

fn repeats(old: &str, items: Vec<NewItem>) -> NewRun {
    NewRun { retry_of: Some(old.into()), items, ..new("job") }
}

// proves U3
pub async fn a_repeated_run_begins_with_what_was_done(store: &dyn Database) {
    let old = failed_run(store).await;
    let items = vec![copy("scan"), copy("test"), item("step", "ship"), item("step", "tell")];
    let run = put(store, repeats(&old, items)).await;
    assert_eq!(run.status(), "pending");
    let (were, are) = (items_of(store, &old).await, items_of(store, run.id()).await);
    assert_eq!(are[0], were[0], "the step as it was, with its output, its times and its tries");
    assert_eq!((are[1].status.as_str(), &are[1].details["left_out"]), ("skipped", &json!(true)));
    assert_eq!((are[2].status.as_str(), are[3].status.as_str()), ("pending", "pending"));
    let first = &store.events(run.id().into(), 0, 10).await.unwrap()[0];
    assert_eq!(first.payload["copied"], json!(["scan", "test"]), "the log says so");
    let claimed = store.claim_run(run.id().into(), "w2".into()).await.unwrap();
    let again = ends_with(&claimed, vec![write("scan", "running")]);
    assert!(matches!(store.put_items(again).await, Err(StoreError::Refused(_))), "it is done for good");
    let end = vec![write("ship", "completed"), write("tell", "completed")];
    store.put_items(ends_with(&claimed, end)).await.unwrap();
    finish(store, &claimed, "completed").await.unwrap();
    let third = put(store, repeats(run.id(), vec![copy("scan"), item("step", "tell")])).await;
    assert_eq!(items_of(store, third.id()).await[0].output, were[0].output, "a copy of a copy");
}

// proves U3
pub async fn only_what_ended_well_in_that_very_run_is_copied(store: &dyn Database) {
    let old = failed_run(store).await;
    let refused = async |new: NewRun, field: &str, words: &str| {
        let error = try_put(store, new).await.map(|made| made.run.id().to_owned()).unwrap_err();
        let StoreError::Invalid { field: named, message } = &error else { panic!("{error}") };
        assert_eq!(named, field, "{message}");
        assert!(message.contains(words), "{message}");
    };
    let one = |item: NewItem| repeats(&old, vec![item]);
    refused(one(copy("ship")), "items.copied", "is failed there").await;
    refused(one(copy("none")), "items.copied", "has no step").await;
    refused(one(NewItem { reruns: true, ..copy("scan") }), "items.copied", "which a cleanup undid").await;
    refused(one(NewItem { role: Role::Cleanup, ..copy("scan") }), "items.copied", "to be done again").await;
    refused(NewRun { retry_of: None, ..one(copy("scan")) }, "items.copied", "retry_of").await;
    refused(repeats("01950000-0000-7000-8000-000000000000", vec![copy("scan")]), "retry_of", "no run").await;
    refused(NewRun { tenant: "other".into(), ..one(copy("scan")) }, "retry_of", "no run").await;
    let elsewhere = NewRun { playbook: Some("other".into()), ..one(copy("scan")) };
    refused(elsewhere, "retry_of", "another playbook").await;
    refused(NewRun { lifecycle: "deploy".into(), ..one(copy("scan")) }, "retry_of", "or lifecycle").await;
    refused(
        one(NewItem { status: Some("completed".into()), ..item("step", "scan") }),
        "items.status",
        "starts as",
    )
    .await;
    let open = put(store, job(&["scan"])).await;
    refused(repeats(open.id(), vec![copy("scan")]), "retry_of", "once it has ended").await;
    // Of targets of a bulk change each is its own run's to take back.
    let rule = put(store, rule(&["t"])).await;
    let target = NewItem { copied: true, ..item("target", "t") };
    let copied = NewRun { retry_of: Some(rule.id().into()), items: vec![target], ..new("rule") };
    assert!(try_put(store, copied).await.is_err());
}

pub async fn a_key_stands_for_whose_copies_they_are(store: &dyn Database) {
    let (one, other) = (failed_run(store).await, failed_run(store).await);
    let keyed = |old: &str| NewRun { idempotency_key: Some("k".into()), ..repeats(old, vec![copy("scan")]) };
    let first = try_put(store, keyed(&one)).await.unwrap();
    assert!(try_put(store, keyed(&one)).await.unwrap().replayed);
    assert!(
        matches!(try_put(store, keyed(&other)).await, Err(StoreError::KeyReused { run_id, .. }) if run_id == first.run.id())
    );
}

/// It would be ignored, and who sent it would not know.
pub async fn a_copy_has_no_state_of_its_own(store: &dyn Database) {
    let old = failed_run(store).await;
    let stated = NewItem { status: Some("skipped".into()), ..copy("scan") };
    let refused = try_put(store, repeats(&old, vec![stated])).await;
    let Err(StoreError::Invalid { field, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(field, "items.status");
}
