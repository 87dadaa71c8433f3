//! Which runs are to be written to the object store, how far that has gone, and drafts that are taken on.

use std::collections::BTreeSet;

use waypost_store::{Database, LeftRun, NewRun, Projected};

use super::kit::*;

async fn whole(store: &dyn Database, limit: usize) -> (Vec<String>, u64) {
    let (mut runs, mut position) = (Vec::new(), 0);
    loop {
        let page = store.projected(position, limit).await.unwrap();
        runs.extend(page.runs.into_iter().map(|run| run.run_id));
        if page.position == position {
            return (runs, position);
        }
        position = page.position;
    }
}

// proves A4
pub async fn runs_of_projected_lifecycles_are_told_of_once_a_page(store: &dyn Database) {
    assert_eq!(store.projected(0, 10).await.unwrap(), Projected::default());
    put(store, deploy()).await;
    let one = put(store, new("agent")).await;
    put(store, deploy()).await;
    let two = put(store, NewRun { tenant: "acme".into(), ..new("agent") }).await;
    command(store, one.id(), "cancel").await.unwrap();
    let page = store.projected(0, 100).await.unwrap();
    let told: Vec<_> =
        page.runs.iter().map(|run| (run.tenant.as_str(), run.run_id.as_str(), run.at)).collect();
    let (born_one, born_two) = (events(store, one.id()).await[0].at, events(store, two.id()).await[0].at);
    assert_eq!(told, [("default", one.id(), born_one), ("acme", two.id(), born_two)]);
    assert!(!page.more);
    let rest = store.projected(page.position, 100).await.unwrap();
    assert_eq!(rest, Projected { position: page.position, ..Projected::default() });
    // Page by page a run comes again with each of its later events, and nobody is left out.
    for limit in 1..6 {
        let (runs, last) = whole(store, limit).await;
        assert_eq!(last, page.position);
        let all: BTreeSet<&str> = runs.iter().map(String::as_str).collect();
        assert_eq!(all, BTreeSet::from([one.id(), two.id()]), "{limit}");
        assert!(runs.len() <= 3, "{runs:?}");
    }
    assert!(store.projected(0, 2).await.unwrap().more);
    let beyond = store.projected(u64::MAX, 10).await.unwrap();
    assert_eq!((beyond.runs.len(), beyond.position), (0, u64::MAX));
}

// proves A4
pub async fn whoever_follows_skips_no_late_commit(store: &dyn Database) {
    const WRITERS: usize = 6;
    const RUNS: usize = 20;
    let seen = in_parallel(WRITERS + 1, |at| async move {
        let mut seen = BTreeSet::new();
        if at > 0 {
            for turn in 0..RUNS {
                put(store, deploy()).await;
                if turn % 2 == 0 {
                    seen.insert(put(store, new("agent")).await.id().to_owned());
                }
            }
            return seen;
        }
        let mut position = 0;
        while seen.len() < WRITERS * RUNS / 2 {
            let page = store.projected(position, 7).await.unwrap();
            seen.extend(page.runs.into_iter().map(|run| run.run_id));
            position = page.position;
        }
        seen
    });
    let made: BTreeSet<String> = seen[1..].iter().flatten().cloned().collect();
    assert_eq!(seen[0], made);
}

// proves A4
pub async fn a_cursor_only_rises(store: &dyn Database) {
    let at = async |name: &str| store.cursor(name.to_owned()).await.unwrap();
    assert_eq!(at("one").await, None);
    for (position, then) in [(5, 5), (3, 5), (9, 9), (9, 9), (0, 9)] {
        store.put_cursor("one".into(), position).await.unwrap();
        assert_eq!(at("one").await, Some(then));
    }
    assert_eq!(at("two").await, None);
    assert_eq!(invalid(store.put_cursor("a\0b".into(), 1).await).0, "name");
    assert_eq!(invalid(store.put_cursor(String::new(), 1).await).0, "name");
}

// proves A4
pub async fn a_run_is_left_behind_until_somebody_has_caught_up_with_it(store: &dyn Database) {
    let run = put(store, new("agent")).await;
    let left = async |name: &str| store.left_behind(name.to_owned()).await.unwrap();
    let leave = async |name: &str, position| {
        store.leave_behind(name.to_owned(), run.id().to_owned(), position).await.unwrap();
    };
    let catch_up = async |position| {
        store.catch_up_with("one".to_owned(), run.id().to_owned(), position).await.unwrap();
    };
    let it = LeftRun { tenant: "default".into(), run_id: run.id().to_owned() };
    assert_eq!(left("one").await, []);
    store.put_cursor("one".into(), 4).await.unwrap();
    leave("one", 5).await;
    leave("one", 3).await;
    leave("one left", 1).await;
    assert_eq!((left("one").await, left("on").await), (vec![it.clone()], vec![]));
    assert_eq!(store.cursor("one".into()).await.unwrap(), Some(4), "the reader's own place is another");
    catch_up(4).await;
    assert_eq!(left("one").await, std::slice::from_ref(&it), "it was left later than that");
    catch_up(5).await;
    catch_up(5).await;
    assert_eq!((left("one").await, left("one left").await), (vec![], vec![it]));
    // One that was pruned is still told of, so that it can be taken off.
    store.leave_behind("one".into(), "run_nobody".into(), 1).await.unwrap();
    let gone = LeftRun { tenant: String::new(), run_id: "run_nobody".into() };
    assert_eq!(left("one").await, [gone]);
    assert_eq!(invalid(store.leave_behind("a\0b".into(), "run_1".into(), 1).await).0, "name");
}

// proves A7
pub async fn a_draft_is_taken_on_once_by_the_engine(store: &dyn Database) {
    let run = put(store, new("agent")).await;
    let take_on = async |tenant: &str, id: &str| {
        store.acknowledge(tenant.to_owned(), id.to_owned(), "projector".to_owned()).await
    };
    assert_eq!(code(&take_on("acme", run.id()).await), "NOT_FOUND");
    assert_eq!(code(&take_on("default", "run_nobody").await), "NOT_FOUND");
    for _ in 0..2 {
        take_on("default", run.id()).await.unwrap();
        assert_eq!(status(store, run.id()).await, "queued");
    }
    let event = last_event(store, run.id()).await;
    assert_eq!(
        (event.seq, event.command.as_str(), event.actor.as_str(), event.by.as_str()),
        (2, "acknowledge", "engine", "projector")
    );
    assert_eq!(store.audits(None, 0, 10).await.unwrap(), [], "nobody asked for it");
    let ended = put(store, new("agent")).await;
    command(store, ended.id(), "cancel").await.unwrap();
    take_on("default", ended.id()).await.unwrap();
    assert_eq!(status(store, ended.id()).await, "failed");
    // A draft that waits for a person is not the engine's.
    let preview = put(store, new("rule")).await;
    take_on("default", preview.id()).await.unwrap();
    assert_eq!(get(store, preview.id()).await.run.seq, 1);
}
