//! Items that move because their run did, by a lifecycle whose items go where no shipped ones do.

use waypost_kernel::Failure;
use waypost_store::{Database, FinishWrite, ItemRow, ItemWrite, NewRun};

use super::kit::*;

const PART: &str = r#"
name    = "part"
kind    = "item"
version = 1
initial = ["todo"]

[states]
todo    = { phase = "ready", on_hold = "doing", on_end = "made" }
doing   = { phase = "held", on_lost = "todo", on_hold = "waiting", on_end = "made" }
waiting = { phase = "parked", on_promote = "todo", on_end = "late" }
made    = { phase = "settled", outcome = "succeeded" }
spared  = { phase = "settled", outcome = "skipped", on_end = "late" }
late    = { phase = "settled", outcome = "failed", on_promote = "todo" }

transitions = [
  ["todo",    "start",   "doing",   "worker, engine", ""],
  ["todo",    "spare",   "spared",  "worker",         ""],
  ["todo",    "make",    "made",    "engine",         ""],
  ["doing",   "retry",   "todo",    "worker",         "attempts-left"],
  ["doing",   "lose",    "todo",    "engine",         ""],
  ["doing",   "wait",    "waiting", "engine",         ""],
  ["doing",   "make",    "made",    "worker, engine", ""],
  ["doing",   "fail",    "late",    "worker",         ""],
  ["waiting", "resume",  "todo",    "engine",         ""],
  ["waiting", "give-up", "late",    "engine",         ""],
  ["spared",  "blame",   "late",    "engine",         ""],
  ["late",    "retry",   "todo",    "engine",         ""],
]
"#;

const WORK: &str = r#"
name    = "work"
version = 1
ids     = "work-{uuid7}"
initial = ["queued"]
items   = ["part"]

[states]
queued = { phase = "ready" }
going  = { phase = "held", lease = "60s", on_stale = "take-over" }
gate   = { phase = "parked" }
done   = { phase = "settled", outcome = "succeeded" }
broken = { phase = "settled", outcome = "failed" }

transitions = [
  ["queued", "claim",   "going",  "worker",          ""],
  ["queued", "cancel",  "broken", "client",          ""],
  ["going",  "deliver", "done",   "worker",          ""],
  ["going",  "fail",    "broken", "worker",          ""],
  ["going",  "hold",    "gate",   "worker",          "has-reason"],
  ["going",  "cancel",  "broken", "client, worker",  ""],
  ["going",  "lose",    "broken", "engine",          ""],
  ["gate",   "promote", "queued", "operator",        ""],
  ["gate",   "cancel",  "broken", "client",          ""],
]
"#;

/// A new run whose items go from state to state as their run does.
pub async fn work(store: &dyn Database, parts: &[&str]) -> NewRun {
    for text in [PART, WORK] {
        store.add_lifecycle(text.into(), "tests".into()).await.unwrap();
    }
    NewRun { items: parts.iter().map(|key| item("part", key)).collect(), ..new("work") }
}

async fn part(store: &dyn Database, run_id: &str, key: &str) -> ItemRow {
    let rows = store.items(run_id.into(), None).await.unwrap();
    rows.into_iter().find(|row| row.key == key).unwrap()
}

// proves X4: an item that its run's end leads into success is as one that its worker led there
pub async fn an_end_that_leads_items_into_success_makes_them_whole(store: &dyn Database) {
    let claimed = held_run(store, work(store, &["a", "b"]).await).await;
    let failure = Some(Failure::new("SLOW", "takes its time"));
    let retried = ItemWrite { failure, ..moving("part", "a", "todo") };
    let begun = ItemWrite { progress: Some(40), ..moving("part", "a", "doing") };
    write_items(store, &claimed, vec![begun]).await.unwrap();
    write_items(store, &claimed, vec![retried]).await.unwrap();
    let before = part(store, claimed.run.id(), "a").await;
    assert_eq!((before.progress, before.failure.is_some(), before.attempts), (40, true, 1));
    finish(store, &claimed, "done").await.unwrap();
    for key in ["a", "b"] {
        let after = part(store, claimed.run.id(), key).await;
        assert_eq!((after.status.as_str(), after.progress, after.failure), ("made", 100, None));
        assert!(after.finished_at.is_some());
    }
    assert_eq!(part(store, claimed.run.id(), "a").await.attempts, 1, "it was not settled before");
}

// proves X4: those that come to where others leave are not taken along with them
pub async fn all_items_follow_at_once(store: &dyn Database) {
    let claimed = held_run(store, work(store, &["a", "b", "c"]).await).await;
    move_items(store, &claimed, "part", &[("b", "doing")]).await.unwrap();
    let hold = FinishWrite { reason: Some("look at it".into()), ..ending(&claimed, "gate") };
    let row = write_finish(store, hold).await.unwrap();
    assert_eq!(items(store, row.id()).await, ["a=doing", "b=waiting", "c=doing"]);
    assert!(part(store, row.id(), "a").await.started_at.is_some(), "it has begun");
    command(store, row.id(), "promote").await.unwrap();
    assert_eq!(items(store, row.id()).await, ["a=doing", "b=todo", "c=doing"]);
}

// proves X4: a new budget is for what was settled and no longer is
pub async fn from_one_end_to_another_an_item_keeps_what_it_was(store: &dyn Database) {
    let claimed = held_run(store, work(store, &["a", "b"]).await).await;
    let spared = ItemWrite { progress: Some(30), ..moving("part", "a", "spared") };
    let failed = ItemWrite { failure: Some(Failure::new("BAD", "words")), ..moving("part", "b", "late") };
    write_items(store, &claimed, vec![spared, failed]).await.unwrap();
    let hold = FinishWrite { reason: Some("look at it".into()), ..ending(&claimed, "gate") };
    let row = write_finish(store, hold).await.unwrap();
    command(store, row.id(), "promote").await.unwrap();
    let again = part(store, row.id(), "b").await;
    assert_eq!((again.status.as_str(), again.failure, again.finished_at), ("todo", None, None));
    let claimed = claim(store, "w2").await.unwrap();
    finish(store, &claimed, "done").await.unwrap();
    let late = part(store, row.id(), "a").await;
    assert_eq!((late.status.as_str(), late.progress, late.finished_at.is_some()), ("late", 30, true));
}
