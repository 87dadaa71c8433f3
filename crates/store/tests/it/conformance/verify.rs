//! The log makes the rows.

use std::sync::{Arc, Mutex};

use serde_json::json;
use waypost_kernel::{Actor, Failure, Span};
use waypost_store::{CommandWrite, Database, FinishWrite, HOUSEKEEPING, NewRun, Verified};

use super::kit::*;

// proves X4
pub async fn a_busy_store_is_what_its_log_says(store: &dyn Database) {
    let asked = NewRun { metadata: map(json!({"a": 1})), max_attempts: 3, ..deploy() };
    put(store, asked).await;
    held_run(store, deploy()).await;
    let begun = begun_run(store, deploy()).await;
    command(store, begun.run.id(), "cancel").await.unwrap();
    let parked = held_run(store, job(&["a", "b"])).await;
    move_items(store, &parked, "step", &[("a", "completed"), ("b", "running")]).await.unwrap();
    let pause = FinishWrite { reason: Some("why".into()), ..ending(&parked, "paused") };
    write_finish(store, pause).await.unwrap();
    let failed = begun_run(store, deploy()).await;
    let end = FinishWrite { failure: Some(Failure::new("X", "y")), ..ending(&failed, "failed") };
    write_finish(store, end).await.unwrap();
    let released = held_run(store, rule(&["a", "b"])).await;
    move_items(store, &released, "target", &[("a", "APPLYING")]).await.unwrap();
    release(store, &released).await.unwrap();
    let plan = NewRun {
        idempotency_key: Some("waypost:schedule:backup:p".into()),
        by: "s1".into(),
        actor: Actor::Worker,
        reentrant: true,
        ..new("cron")
    };
    claim_plan(store, "backup", plan, Span::from_seconds(300)).await.unwrap().unwrap();
    let forced = CommandWrite { force: true, ..asking(parked.run.id(), "resume") };
    store.command(forced).await.unwrap();
    advance(store, 400).await;
    sweep(store).await;
    let feed = store.feed(Some(0), 500).await.unwrap().events.len() as u64;
    let verified = store.verify(Arc::new(|_, _| {})).await.unwrap();
    assert_eq!(verified, Verified { runs: 7, events: feed, ..Verified::default() });
}

pub async fn the_engines_own_runs_are_counted_apart(store: &dyn Database) {
    put(store, deploy()).await;
    put(store, NewRun { queue: HOUSEKEEPING.into(), ..deploy() }).await;
    let verified = store.verify(Arc::new(|_, _| {})).await.unwrap();
    assert_eq!((verified.runs, verified.housekeeping), (2, 1));
}

pub async fn progress_is_told(store: &dyn Database) {
    assert_eq!(store.verify(Arc::new(|_, _| {})).await.unwrap(), Verified::default());
    store.enqueue(vec![deploy(); 20]).await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = told.clone();
    let progress = move |done, of| listener.lock().unwrap().push((done, of));
    store.verify(Arc::new(progress)).await.unwrap();
    let told = told.lock().unwrap();
    assert!(told.is_sorted());
    assert_eq!(told.last(), Some(&(20, 20)));
}
