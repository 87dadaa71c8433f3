//! The parts of a run, fenced by its lease.

use serde_json::{Value, json};
use waypost_kernel::{Failure, Span};
use waypost_store::{Database, ItemFilter, ItemRow, ItemWrite, NewRun};

use super::kit::*;

async fn row(store: &dyn Database, run_id: &str, key: &str) -> ItemRow {
    let rows = store.items(run_id.into(), None).await.unwrap();
    rows.into_iter().find(|row| row.key == key).unwrap()
}

// proves X10
pub async fn items_are_listed_page_by_page(store: &dyn Database) {
    let names: Vec<String> = (0..9).map(|at| format!("s{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let claimed = held_run(store, job(&names)).await;
    let large = |name: &&str| ItemWrite {
        output: Some(json!("x".repeat(1_000_000))),
        ..moving("step", name, "completed")
    };
    write_items(store, &claimed, names[..6].iter().map(large).collect()).await.unwrap();
    let run_id = claimed.run.id().to_owned();
    let listed = async |mut filter: ItemFilter, most: usize| {
        let mut keys = Vec::new();
        loop {
            let page = store.item_page(filter.clone()).await.unwrap();
            assert!((1..=most).contains(&page.items.len()), "{}", page.items.len());
            keys.extend(page.items.into_iter().map(|item| item.key));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                return keys;
            }
        }
    };
    let all = ItemFilter { run_id: run_id.clone(), limit: 500, ..ItemFilter::default() };
    assert_eq!(listed(all.clone(), 8).await, names, "six of them do not fit into one page");
    let some = ItemFilter { status: Some("pending".into()), kind: Some("step".into()), limit: 2, ..all.clone() };
    assert_eq!(listed(some, 2).await, names[6..]);
    let one = ItemFilter { key: Some("s7".into()), kind: Some("step".into()), ..all.clone() };
    assert_eq!(listed(one.clone(), 1).await, ["s7"]);
    assert_eq!(listed(ItemFilter { kind: None, ..one.clone() }, 1).await, ["s7"]);
    let elsewhere = ItemFilter { status: Some("completed".into()), ..one };
    assert!(store.item_page(elsewhere).await.unwrap().items.is_empty());
    let (field, _) = invalid(store.item_page(ItemFilter { cursor: Some("x'; --".into()), ..all.clone() }).await);
    assert_eq!(field, "cursor");
    let first = store.item_page(all).await.unwrap();
    assert!(first.next.is_some() && first.items.len() < 9);
    assert_eq!(code(&store.item_page(ItemFilter { run_id: "run-none".into(), ..ItemFilter::default() }).await), "NOT_FOUND");
}

// proves J1
pub async fn steps_are_begun_and_done(store: &dyn Database) {
    let claimed = held_run(store, job(&["scan", "update"])).await;
    let begun = move_items(store, &claimed, "step", &[("scan", "running")]).await.unwrap();
    assert_eq!(begun.len(), 1);
    assert!(begun[0].started_at.is_some() && begun[0].finished_at.is_none());
    let done = ItemWrite {
        output: Some(json!({"hosts": ["h1"]})),
        details: map(json!({"seconds": 3})),
        ..moving("step", "scan", "completed")
    };
    let done = write_items(store, &claimed, vec![done]).await.unwrap().remove(0);
    assert_eq!((done.status.as_str(), done.progress), ("completed", 100));
    assert!(done.finished_at >= done.started_at);
    assert_eq!((done.output, Value::Object(done.details)), (json!({"hosts": ["h1"]}), json!({"seconds": 3})));
    assert_eq!(items(store, claimed.run.id()).await, ["scan=completed", "update=pending"]);
    let object = get(store, claimed.run.id()).await.object();
    assert_eq!(object["items"], json!({"step": {"completed": 1, "pending": 1}}));
    assert_eq!(commands(store, claimed.run.id()).await, ["create", "claim", "items", "items"]);
}

// proves J1 and J2
pub async fn new_steps_are_added_to_a_run_under_way(store: &dyn Database) {
    let claimed = held_run(store, job(&["scan"])).await;
    let named = ItemWrite { name: Some("Update h1".into()), ..moving("step", "update-h1", "pending") };
    let writes = vec![
        moving("step", "scan", "completed"),
        named,
        moving("task", "t1", "running"),
        moving("step", "update-h2", "skipped"),
    ];
    let rows = write_items(store, &claimed, writes).await.unwrap();
    let answered: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(answered, ["scan", "update-h1", "t1", "update-h2"], "as they were sent");
    assert_eq!((rows[1].name.as_str(), rows[2].name.as_str()), ("Update h1", "t1"));
    assert_eq!(
        items(store, claimed.run.id()).await,
        ["scan=completed", "update-h1=pending", "update-h2=skipped", "t1=running"]
    );
    let tasks = store.items(claimed.run.id().into(), Some("task".into())).await.unwrap();
    assert_eq!(tasks.len(), 1);
}

// proves J1
pub async fn done_without_having_begun_is_both(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    let rows = move_items(store, &claimed, "step", &[("a", "completed")]).await.unwrap();
    assert_eq!(rows[0].status, "completed");
    assert!(rows[0].started_at.is_some() && rows[0].finished_at.is_some());
}

// proves X3
pub async fn items_move_all_or_none(store: &dyn Database) {
    let claimed = held_run(store, job(&["a", "b"])).await;
    move_items(store, &claimed, "step", &[("b", "completed")]).await.unwrap();
    let before = get(store, claimed.run.id()).await.object();
    for moves in [
        [("a", "completed"), ("b", "running")],
        [("new", "pending"), ("a", "paused?")],
        [("a", "running"), ("new", "nowhere")],
    ] {
        assert!(move_items(store, &claimed, "step", &moves).await.is_err(), "{moves:?}");
        assert_eq!(items(store, claimed.run.id()).await, ["a=pending", "b=completed"], "{moves:?}");
    }
    assert_eq!(get(store, claimed.run.id()).await.object(), before);
}

pub async fn what_is_wrong_in_a_list_of_items_is_named(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    let (field, message) = invalid(move_items(store, &claimed, "target", &[("a", "running")]).await);
    assert_eq!(field, "items.kind");
    assert!(message.contains("step") && message.contains("task"), "{message}");
    for write in [moving("step", "", "running"), moving("step", "a\0", "running"), moving("step", "a", "nope")] {
        assert_eq!(code(&write_items(store, &claimed, vec![write]).await), "INVALID_INPUT");
    }
    let twice = move_items(store, &claimed, "step", &[("a", "running"), ("a", "completed")]).await;
    assert_eq!(code(&twice), "INVALID_INPUT");
    let far = ItemWrite { progress: Some(101), ..moving("step", "a", "running") };
    assert_eq!(code(&write_items(store, &claimed, vec![far]).await), "INVALID_INPUT");
    assert_eq!(items(store, claimed.run.id()).await, ["a=pending"]);
}

// proves J1
pub async fn progress_moves_within_a_state(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    for progress in [0, 40, 100, 70] {
        let write = ItemWrite { progress: Some(progress), ..moving("step", "a", "running") };
        let rows = write_items(store, &claimed, vec![write]).await.unwrap();
        assert_eq!((rows[0].status.as_str(), rows[0].progress), ("running", progress));
    }
    move_items(store, &claimed, "step", &[("a", "completed")]).await.unwrap();
    let late = ItemWrite { progress: Some(5), ..moving("step", "a", "completed") };
    assert_eq!(code(&write_items(store, &claimed, vec![late]).await), "INVALID_TRANSITION");
}

// proves X3
pub async fn the_same_items_again_write_nothing(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    let done = |output: Value| ItemWrite { output: Some(output), ..moving("step", "a", "completed") };
    let first = write_items(store, &claimed, vec![done(json!(1))]).await.unwrap();
    let before = get(store, claimed.run.id()).await.object();
    let again = write_items(store, &claimed, vec![done(json!(2))]).await.unwrap();
    assert_eq!(again, first, "what is done is done");
    assert_eq!(get(store, claimed.run.id()).await.object(), before);
    assert!(write_items(store, &claimed, Vec::new()).await.unwrap().is_empty());
}

// proves J7
pub async fn details_of_items_are_merged(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    for details in [json!({"x": 1, "y": {"a": 1}}), json!({"y": {"b": 2}, "z": null})] {
        let write = ItemWrite { details: map(details), ..moving("step", "a", "running") };
        write_items(store, &claimed, vec![write]).await.unwrap();
    }
    let row = row(store, claimed.run.id(), "a").await;
    assert_eq!(Value::Object(row.details), json!({"x": 1, "y": {"b": 2}, "z": null}), "member by member");
    assert_eq!(row.output, Value::Null);
}

// proves R4 and R9
pub async fn a_retry_uses_up_the_budget(store: &dyn Database) {
    let claimed = held_run(store, rule(&["a"])).await;
    let id = claimed.run.id();
    for attempt in 1..=3 {
        move_items(store, &claimed, "target", &[("a", "APPLYING")]).await.unwrap();
        let again = ItemWrite {
            command: Some("retry".into()),
            retry_in: Some(Span::from_seconds(2)),
            answered: true,
            failure: Some(Failure::new("TIMEOUT", "no answer")),
            ..moving("target", "a", "QUEUED")
        };
        let row = write_items(store, &claimed, vec![again]).await.unwrap().remove(0);
        assert_eq!((row.attempts, row.try_no), (attempt, attempt + 1));
        assert!(about(row.not_before.unwrap() - store.now().await.unwrap(), 2));
        assert_eq!(row.object()["error_code"], "TIMEOUT");
    }
    move_items(store, &claimed, "target", &[("a", "APPLYING")]).await.unwrap();
    let fourth = ItemWrite { command: Some("retry".into()), ..moving("target", "a", "QUEUED") };
    let refused = refusal(write_items(store, &claimed, vec![fourth]).await);
    assert_eq!(refused.guard.map(waypost_kernel::Guard::name), Some("attempts-left"));
    move_items(store, &claimed, "target", &[("a", "FAILED")]).await.unwrap();
    assert_eq!(row(store, id, "a").await.attempts, 3);
}

// proves R5 and R9
pub async fn a_wait_burns_no_retry_and_an_unknown_answer_keeps_its_key(store: &dyn Database) {
    let claimed = held_run(store, rule(&["a"])).await;
    for (answered, try_no) in [(true, 2), (false, 2), (true, 3)] {
        move_items(store, &claimed, "target", &[("a", "APPLYING")]).await.unwrap();
        let wait = ItemWrite { command: Some("wait".into()), answered, ..moving("target", "a", "QUEUED") };
        let row = write_items(store, &claimed, vec![wait]).await.unwrap().remove(0);
        assert_eq!((row.attempts, row.try_no), (0, try_no));
    }
}

// proves J6
pub async fn a_run_that_ends_takes_its_open_items_along(store: &dyn Database) {
    let asked = NewRun {
        items: vec![item("step", "a"), item("step", "b"), item("step", "c"), item("task", "t")],
        ..new("job")
    };
    let claimed = held_run(store, asked).await;
    move_items(store, &claimed, "step", &[("a", "completed"), ("b", "running")]).await.unwrap();
    command(store, claimed.run.id(), "cancel").await.unwrap();
    finish(store, &claimed, "cancelled").await.unwrap();
    assert_eq!(
        items(store, claimed.run.id()).await,
        ["a=completed", "b=failed", "c=skipped", "t=failed"]
    );
    for key in ["b", "t"] {
        let row = row(store, claimed.run.id(), key).await;
        assert_eq!(row.object()["error_code"], "CANCELLED");
        assert!(row.finished_at.is_some());
    }
    assert_eq!(row(store, claimed.run.id(), "c").await.failure, None);
}

// proves D4
pub async fn the_first_item_begins_the_work(store: &dyn Database) {
    let claimed = held_run(store, deploy()).await;
    move_items(store, &claimed, "step", &[("build", "running")]).await.unwrap();
    assert_eq!(status(store, claimed.run.id()).await, "running");
    let said = commands(store, claimed.run.id()).await;
    assert_eq!(said[..3], ["create", "claim", "start"]);
}

// proves X10
pub async fn what_items_bring_is_cleaned_and_cut(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    let write = ItemWrite {
        failure: Some(Failure::new("BAD\0", &"e".repeat(10_000))),
        output: Some(json!({"out": "x".repeat(2 * 1024 * 1024)})),
        details: map(json!({"k\0": "v\0"})),
        name: Some("ignored: it has one".into()),
        ..moving("step", "a", "failed")
    };
    let row = write_items(store, &claimed, vec![write]).await.unwrap().remove(0);
    let failure = row.failure.unwrap();
    assert_eq!((&*failure.code, failure.message.chars().count()), ("BAD\u{fffd}", 4_000));
    assert_eq!((&row.output["cut"], row.name.as_str()), (&json!(true), "a"));
    assert_eq!(Value::Object(row.details), json!({"k\u{fffd}": "v\u{fffd}"}));
}

// proves X4
pub async fn many_items_are_one_event(store: &dyn Database) {
    let keys: Vec<String> = (0..500).map(|at| format!("t{at:03}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let claimed = held_run(store, rule(&keys)).await;
    let moves: Vec<(&str, &str)> = keys.iter().map(|key| (*key, "APPLIED")).collect();
    move_items(store, &claimed, "target", &moves).await.unwrap();
    let row = finish(store, &claimed, "APPLIED").await.unwrap();
    assert_eq!(row.object()["items"], json!({"target": {"APPLIED": 500}}));
    assert_eq!(commands(store, row.id()).await, ["create", "claim", "items", "complete"]);
}

pub async fn items_of_an_unknown_run_are_not_found(store: &dyn Database) {
    assert_eq!(code(&store.items("run-none".into(), None).await), "NOT_FOUND");
    assert_eq!(code(&store.events("run-none".into(), 0, 10).await), "NOT_FOUND");
    let run = put(store, deploy()).await;
    assert!(store.items(run.id().into(), Some("step".into())).await.unwrap().is_empty());
}
