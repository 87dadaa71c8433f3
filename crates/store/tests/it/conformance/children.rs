//! Runs that a run has brought forth, when it is cancelled.

use waypost_kernel::run::Want;
use waypost_store::{CommandWrite, Database, NewRun, RunRow};

use super::kit::*;

fn of(parent: &str, new: NewRun) -> NewRun {
    NewRun { parent_run_id: Some(parent.into()), ..new }
}

fn asked(row: &RunRow) -> Option<(Want, bool)> {
    row.run.intent.as_ref().map(|intent| (intent.want, intent.graceful))
}

// proves J6
pub async fn a_cancel_goes_down_to_all_that_is_open(store: &dyn Database) {
    let parent = put(store, job(&["a"])).await;
    let done = begun_run(store, of(parent.id(), deploy())).await;
    finish(store, &done, "success").await.unwrap();
    let queued = put(store, of(parent.id(), deploy())).await;
    let held = held_run(store, of(parent.id(), job(&["b"]))).await;
    let below = put(store, of(held.run.id(), deploy())).await;
    let other = put(store, deploy()).await;
    assert_eq!(command(store, parent.id(), "cancel").await.unwrap().status(), "cancelled");
    assert_eq!(status(store, done.run.id()).await, "success");
    assert_eq!(status(store, queued.id()).await, "cancelled");
    assert_eq!(status(store, below.id()).await, "cancelled");
    assert_eq!(status(store, other.id()).await, "queued");
    let row = get(store, held.run.id()).await;
    assert_eq!((row.status(), asked(&row)), ("running", Some((Want::Cancel, false))));
    let event = last_event(store, queued.id()).await;
    assert_eq!((event.command.as_str(), event.by.as_str()), ("cancel", "parent"));
    let told = get(store, queued.id()).await.run.failure.unwrap();
    assert_eq!((&*told.code, &*told.message), ("CANCELLED", "its parent is cancelled"));
    assert_eq!(finish(store, &held, "cancelled").await.unwrap().status(), "cancelled");
    assert_eq!(sweep(store).await.moved, [], "nobody is left");
}

// proves J6, X8
pub async fn a_held_parents_children_are_asked_at_once(store: &dyn Database) {
    let parent = held_run(store, job(&["a"])).await;
    let child = put(store, of(parent.run.id(), deploy())).await;
    let row = command(store, parent.run.id(), "cancel").await.unwrap();
    assert_eq!((row.status(), asked(&row)), ("running", Some((Want::Cancel, false))));
    assert_eq!(status(store, child.id()).await, "cancelled");
    assert_eq!(finish(store, &parent, "cancelled").await.unwrap().status(), "cancelled");
}

// proves J6
pub async fn a_graceful_cancel_is_passed_on_and_so_is_a_hard_one(store: &dyn Database) {
    let parent = held_run(store, job(&["a"])).await;
    let child = held_run(store, of(parent.run.id(), job(&["b"]))).await;
    let graceful = CommandWrite { graceful: true, ..asking(parent.run.id(), "cancel") };
    store.command(graceful).await.unwrap();
    assert_eq!(asked(&get(store, child.run.id()).await), Some((Want::Cancel, true)));
    command(store, parent.run.id(), "cancel").await.unwrap();
    assert_eq!(asked(&get(store, child.run.id()).await), Some((Want::Cancel, false)));
    let events = events(store, child.run.id()).await.len();
    command(store, parent.run.id(), "cancel").await.unwrap();
    assert_eq!(get(store, child.run.id()).await.run.seq as usize, events, "the same again writes nothing");
}

// proves J6
pub async fn what_came_after_the_cancel_is_found_by_a_sweep(store: &dyn Database) {
    let parent = held_run(store, job(&["a"])).await;
    command(store, parent.run.id(), "cancel").await.unwrap();
    let late = put(store, of(parent.run.id(), deploy())).await;
    assert_eq!(status(store, late.id()).await, "queued");
    finish(store, &parent, "cancelled").await.unwrap();
    assert_eq!(sweep(store).await.moved, [(late.id().to_owned(), "cancel".to_owned())]);
    assert_eq!(status(store, late.id()).await, "cancelled");
    assert_eq!(sweep(store).await.moved, []);

    // The holder dies instead: the sweep that carries the cancel out asks them too.
    let parent = held_run(store, job(&["a"])).await;
    command(store, parent.run.id(), "cancel").await.unwrap();
    let late = put(store, of(parent.run.id(), deploy())).await;
    advance(store, HOUR).await;
    sweep(store).await;
    assert_eq!(status(store, parent.run.id()).await, "cancelled");
    assert_eq!(status(store, late.id()).await, "cancelled");
}

// proves J6
pub async fn other_ends_leave_children_alone(store: &dyn Database) {
    for end in ["completed", "failed", "paused"] {
        let parent = held_run(store, job(&["a"])).await;
        let child = put(store, of(parent.run.id(), deploy())).await;
        let mut ending = ending(&parent, end);
        ending.reason = Some("a look".into());
        write_finish(store, ending).await.unwrap();
        sweep(store).await;
        assert_eq!(status(store, child.id()).await, "queued", "{end}");
    }
}

/// More than are asked in one transaction.
// proves J6, X10
pub async fn as_many_as_there_are_are_asked(store: &dyn Database) {
    let parent = put(store, job(&["a"])).await;
    let children = vec![of(parent.id(), deploy()); 1_050];
    let ids: Vec<String> =
        store.enqueue(children).await.unwrap().into_iter().map(|it| it.unwrap().run.id().to_owned()).collect();
    command(store, parent.id(), "cancel").await.unwrap();
    let swept = store.sweep("sweeper".into(), 30).await.unwrap();
    assert_eq!((swept.moved.len(), swept.more), (30, true));
    let swept = store.sweep("sweeper".into(), 30).await.unwrap();
    assert_eq!((swept.moved.len(), swept.more), (20, false));
    for id in [&ids[0], &ids[999], &ids[1_000], &ids[1_049]] {
        assert_eq!(status(store, id).await, "cancelled");
    }
}

// proves X10
pub async fn a_parent_that_is_not_there_is_refused(store: &dyn Database) {
    let other = put(store, NewRun { tenant: "shop".into(), ..deploy() }).await;
    for id in ["run-none", other.id()] {
        let child = NewRun { parent_run_id: Some(id.into()), ..deploy() };
        let again = NewRun { retry_of: Some(id.into()), ..deploy() };
        for (field, new) in [("parent_run_id", child), ("retry_of", again)] {
            let expected = (field.to_owned(), format!("there is no run {id:?} here"));
            assert_eq!(invalid(store.dry_run(new.clone()).await), expected);
            assert_eq!(invalid(try_put(store, new).await), expected);
        }
    }
    let parent = put(store, deploy()).await;
    let child = of(parent.id(), NewRun { retry_of: Some(parent.id().into()), ..deploy() });
    assert_eq!(put(store, child).await.parent_run_id.as_deref(), Some(parent.id()));
}
