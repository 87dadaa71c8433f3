//! Lifecycles are data: a user's own works as the shipped ones do.

use serde_json::json;
use waypost_kernel::{Actor, Failure};
use waypost_store::{Claimed, CommandWrite, Database, FinishWrite, ItemRow, ItemWrite, NewRun, RunRow};

use super::kit::*;

const RELEASE: &str = r#"
name    = "release"
version = 1
ids     = "rel-{uuid7}"
initial = ["proposed"]

[states]
proposed = { phase = "draft", ttl = "7d" }
approved = { phase = "ready" }
rolling  = { phase = "held", lease = "2m", on_stale = "take-over", max_take_overs = 1 }
gate     = { phase = "parked" }
live     = { phase = "settled", outcome = "succeeded", keep = "1d" }
broken   = { phase = "settled", outcome = "failed" }
dropped  = { phase = "settled", outcome = "cancelled" }

transitions = [
  ["proposed", "approve", "approved", "operator",        ""],
  ["proposed", "reject",  "dropped",  "client",          ""],
  ["proposed", "expire",  "dropped",  "engine",          ""],
  ["approved", "claim",   "rolling",  "worker",          ""],
  ["approved", "cancel",  "dropped",  "client",          ""],
  ["rolling",  "deliver", "live",     "worker",          ""],
  ["rolling",  "fail",    "broken",   "worker",          ""],
  ["rolling",  "hold",    "gate",     "worker",          "has-reason"],
  ["rolling",  "cancel",  "dropped",  "client, worker",  ""],
  ["rolling",  "lose",    "dropped",  "engine",          ""],
  ["gate",     "promote", "approved", "operator",        ""],
  ["gate",     "reject",  "dropped",  "client",          ""],
]
"#;

/// Parts of a release that follow it into work and into success.
const PART: &str = r#"
name    = "part"
kind    = "item"
version = 1
initial = ["todo"]

[states]
todo    = { phase = "ready", on_hold = "doing", on_end = "left" }
doing   = { phase = "held", on_lost = "todo", on_end = "done" }
broken  = { phase = "settled", outcome = "failed", on_promote = "todo", on_end = "done" }
done    = { phase = "settled", outcome = "succeeded" }
left    = { phase = "settled", outcome = "skipped" }

transitions = [
  ["todo",   "start", "doing",  "worker, engine", ""],
  ["todo",   "leave", "left",   "worker, engine", ""],
  ["doing",  "lose",  "todo",   "engine",         ""],
  ["doing",  "end",   "done",   "worker, engine", ""],
  ["doing",  "fail",  "broken", "worker",         ""],
  ["broken", "again", "todo",   "engine",         ""],
  ["broken", "mend",  "done",   "engine",         ""],
]
"#;

async fn add(store: &dyn Database, text: &str) {
    store.add_lifecycle(text.into(), "tests".into()).await.unwrap();
}

// proves X1
pub async fn the_shipped_ones_are_known(store: &dyn Database) {
    let catalog = store.lifecycles().await.unwrap();
    let names: Vec<&str> = catalog.iter().map(|lifecycle| &*lifecycle.name).collect();
    for name in ["deploy", "agent", "cron", "job", "rule", "operation", "proposal", "inbox", "step", "task", "target"] {
        assert!(names.contains(&name), "{name}");
    }
}

// proves X1
pub async fn a_users_own_lifecycle_runs(store: &dyn Database) {
    let added = store.add_lifecycle(RELEASE.into(), "tests".into()).await.unwrap();
    assert_eq!((&*added.name, added.version), ("release", 1));
    let run = put(store, new("release")).await;
    assert!(run.id().starts_with("rel-"));
    assert_eq!(run.object()["allowed"], json!(["approve", "reject"]));
    assert!(claim(store, "w1").await.is_none());
    let client = CommandWrite { actor: Some(Actor::Client), ..asking(run.id(), "approve") };
    assert_eq!(code(&store.command(client).await), "ACTOR_NOT_ALLOWED");
    assert_eq!(command(store, run.id(), "approve").await.unwrap().status(), "approved");
    let claimed = claim(store, "w1").await.unwrap();
    assert!(about(claimed.expires_at - claimed.now, 120));
    let hold = FinishWrite { reason: Some("canary looks odd".into()), ..ending(&claimed, "gate") };
    assert_eq!(write_finish(store, hold).await.unwrap().object()["allowed"], json!(["promote", "reject"]));
    command(store, run.id(), "promote").await.unwrap();
    let claimed = claim(store, "w2").await.unwrap();
    assert_eq!((claimed.run.run.attempt, claimed.fence), (2, 2));
    assert_eq!(finish(store, &claimed, "live").await.unwrap().status(), "live");
    let said = ["create", "approve", "claim", "hold", "promote", "claim", "deliver"];
    assert_eq!(commands(store, run.id()).await, said);
}

// proves X1 and X5
pub async fn its_rules_for_time_count(store: &dyn Database) {
    add(store, RELEASE).await;
    let draft = put(store, new("release")).await;
    let run = put(store, new("release")).await;
    command(store, run.id(), "approve").await.unwrap();
    claim(store, "w1").await.unwrap();
    advance(store, 125).await;
    assert_eq!(claim(store, "w2").await.unwrap().run.id(), run.id());
    advance(store, 125).await;
    assert!(claim(store, "w3").await.is_none(), "one take-over, it says");
    assert_eq!(sweep(store).await.moved, [(run.id().to_owned(), "lose".to_owned())]);
    advance(store, 8 * DAY).await;
    assert_eq!(sweep(store).await.moved, [(draft.id().to_owned(), "expire".to_owned())]);
    let live = put(store, new("release")).await;
    command(store, live.id(), "approve").await.unwrap();
    let claimed = claim(store, "w1").await.unwrap();
    finish(store, &claimed, "live").await.unwrap();
    advance(store, 25 * HOUR).await;
    put(store, deploy()).await;
    assert_eq!(store.prune(10).await.unwrap().runs, 1, "kept for a day, it says");
}

// proves X1
pub async fn a_broken_one_is_refused_with_its_line(store: &dyn Database) {
    let broken = RELEASE.replace(r#"["gate",     "promote", "approved""#, r#"["gate",     "promote", "aproved""#);
    let (field, message) = invalid(store.add_lifecycle(broken, "tests".into()).await);
    assert_eq!(field, "lifecycle");
    assert!(message.contains("line 27") && message.contains("aproved"), "{message}");
    assert_eq!(code(&store.add_lifecycle("name = ".into(), "tests".into()).await), "INVALID_INPUT");
    assert_eq!(code(&try_put(store, new("release")).await), "INVALID_INPUT");
}

// proves X1
pub async fn a_version_means_one_thing(store: &dyn Database) {
    add(store, RELEASE).await;
    add(store, RELEASE).await;
    let changed = RELEASE.replace("lease = \"2m\"", "lease = \"3m\"");
    assert_eq!(code(&store.add_lifecycle(changed, "tests".into()).await), "INVALID_INPUT");
    let catalog = store.lifecycles().await.unwrap();
    assert_eq!(catalog.iter().filter(|lifecycle| &*lifecycle.name == "release").count(), 1);
}

// proves X1
pub async fn a_run_keeps_the_version_it_was_born_with(store: &dyn Database) {
    add(store, RELEASE).await;
    let old = put(store, new("release")).await;
    let second = RELEASE.replace("version = 1", "version = 2").replace("\"promote\"", "\"ship\"");
    add(store, &second).await;
    let new_run = put(store, new("release")).await;
    let asked = put(store, NewRun { version: Some(1), ..new("release") }).await;
    let versions = [&old, &new_run, &asked].map(|run| run.lifecycle.version);
    assert_eq!(versions, [1, 2, 1]);
    for (run, gate) in [(&old, "promote"), (&new_run, "ship")] {
        command(store, run.id(), "approve").await.unwrap();
        let claimed = claim(store, "w1").await.unwrap();
        let hold = FinishWrite { reason: Some("why".into()), ..ending(&claimed, "gate") };
        write_finish(store, hold).await.unwrap();
        assert_eq!(get(store, run.id()).await.object()["allowed"], json!([gate, "reject"]));
        assert_eq!(command(store, run.id(), gate).await.unwrap().status(), "approved");
        command(store, run.id(), "cancel").await.unwrap();
    }
}

/// Key, state and progress; whether it has begun and ended; its failure.
async fn parts(store: &dyn Database, run: &RunRow) -> Vec<String> {
    let parts = store.items(run.id().to_owned(), None).await.unwrap();
    let words = |it: &ItemRow| {
        let (begun, ended) = (it.started_at.is_some(), it.finished_at.is_some());
        let failure = it.failure.as_ref().map_or("", |failure| &failure.code);
        format!("{} {} {} {begun} {ended} {failure}", it.key, it.status, it.progress).trim_end().to_owned()
    };
    parts.iter().map(words).collect()
}

async fn break_part(store: &dyn Database, claimed: &Claimed, key: &str) {
    let failure = Some(Failure::new("E_PART", "it broke"));
    let item = ItemWrite { failure, progress: Some(60), ..moving("part", key, "broken") };
    write_items(store, claimed, vec![item]).await.unwrap();
}

/// What an item is that followed its run: begun, done with all of its progress and no failure, or as new.
// proves X1 and X2
pub async fn items_follow_as_the_log_says(store: &dyn Database) {
    add(store, PART).await;
    add(store, &RELEASE.replace("initial =", "items   = [\"part\"]\ninitial =")).await;
    let items = ["a", "b", "c"].map(|key| item("part", key)).to_vec();
    let run = put(store, NewRun { items, ..new("release") }).await;
    command(store, run.id(), "approve").await.unwrap();
    let claimed = claim(store, "w1").await.unwrap();
    let doing = ItemWrite { progress: Some(40), ..moving("part", "a", "doing") };
    write_items(store, &claimed, vec![doing]).await.unwrap();
    break_part(store, &claimed, "c").await;
    let reason = Some("canary looks odd".into());
    write_finish(store, FinishWrite { reason, ..ending(&claimed, "gate") }).await.unwrap();
    let held_ones = ["a doing 40 true false", "b doing 0 true false", "c broken 60 true true E_PART"];
    assert_eq!(parts(store, &run).await, held_ones);

    command(store, run.id(), "promote").await.unwrap();
    assert_eq!(parts(store, &run).await[2], "c todo 0 true false");
    let claimed = claim(store, "w2").await.unwrap();
    break_part(store, &claimed, "b").await;
    finish(store, &claimed, "live").await.unwrap();
    assert_eq!(parts(store, &run).await, ["a done 100 true true", "b done 100 true true", "c left 0 true true"]);
}
