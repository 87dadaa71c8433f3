//! All runs' events, in the order of their commits, and what is read of one run's.

use std::time::Duration;

use waypost_store::{Database, EventRow};

use super::kit::*;
use super::targets::{applying, take};

async fn whole_feed(store: &dyn Database) -> Vec<EventRow> {
    let mut all: Vec<EventRow> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.position);
        let page = store.feed(Some(after), 100).await.unwrap().events;
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

// proves X4
pub async fn positions_rise_over_all_runs(store: &dyn Database) {
    let (one, two) = (held_run(store, deploy()).await, held_run(store, deploy()).await);
    note(store, &two, "b").await.unwrap();
    note(store, &one, "a").await.unwrap();
    finish(store, &two, "success").await.unwrap();
    let feed = whole_feed(store).await;
    assert!(feed.is_sorted_by(|one, next| one.position < next.position), "each comes after the one before");
    let said: Vec<&str> = feed.iter().map(|event| event.command.as_str()).collect();
    assert_eq!(said, ["create", "claim", "create", "claim", "start", "start", "succeed"]);
    for run in [&one, &two] {
        let own: Vec<EventRow> =
            feed.iter().filter(|event| event.run_id == run.run.id()).cloned().collect();
        assert_eq!(own, events(store, run.run.id()).await, "the same events, seen twice");
    }
}

pub async fn a_reader_goes_on_where_it_was(store: &dyn Database) {
    store.enqueue(vec![deploy(); 5]).await.unwrap();
    let all = whole_feed(store).await;
    assert_eq!(all.len(), 5);
    let first = store.feed(Some(0), 2).await.unwrap().events;
    assert_eq!(first, all[..2]);
    let rest = store.feed(Some(first[1].position), 100).await.unwrap().events;
    assert_eq!(rest, all[2..]);
    assert!(store.feed(Some(rest[2].position), 100).await.unwrap().events.is_empty());
    assert!(store.feed(Some(0), 0).await.unwrap().events.is_empty());
    let run = begun_run(store, deploy()).await;
    let later = store.events(run.run.id().into(), 1, 1).await.unwrap();
    assert_eq!(later.iter().map(|event| event.seq).collect::<Vec<_>>(), [2]);
}

pub async fn a_refusal_leaves_no_event(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let before = whole_feed(store).await.len();
    assert!(command(store, claimed.run.id(), "promote").await.is_err());
    assert!(finish(store, &claimed, "queued").await.is_err());
    assert!(try_put(store, new("nope")).await.is_err());
    renew(store, &claimed).await.unwrap();
    assert_eq!(whole_feed(store).await.len(), before);
}

// proves X4
pub async fn a_reader_skips_no_late_commit(store: &dyn Database) {
    const WRITERS: usize = 6;
    const RUNS: usize = 30;
    let seen = in_parallel(WRITERS + 1, |at| async move {
        if at > 0 {
            for _ in 0..RUNS {
                put(store, deploy()).await;
            }
            return Vec::new();
        }
        let mut seen: Vec<EventRow> = Vec::new();
        while seen.len() < WRITERS * RUNS {
            let after = seen.last().map_or(0, |event| event.position);
            seen.extend(store.feed(Some(after), 7).await.unwrap().events);
        }
        seen
    });
    assert_eq!(seen[0], whole_feed(store).await, "each once, none left out");
}

// proves D13
pub async fn who_waits_for_a_change_is_woken(store: &dyn Database) {
    let done = std::sync::atomic::AtomicBool::new(false);
    in_parallel(2, |at| {
        let done = &done;
        async move {
            if at == 0 {
                store.changed(Duration::from_secs(60)).await;
                done.store(true, std::sync::atomic::Ordering::Release);
                return;
            }
            // The waiter may not wait yet: what changes before that is not for it.
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                put(store, deploy()).await;
                tokio::task::yield_now().await;
            }
        }
    });
}

pub async fn a_wait_ends(store: &dyn Database) {
    store.changed(Duration::ZERO).await;
    store.changed(Duration::from_millis(5)).await;
}

/// A bulk change has hundreds of events that name hundreds of targets each: who looks at all of them reads no such list. The rest is as it is.
pub async fn events_in_brief_leave_out_what_is_about_many_targets(store: &dyn Database) {
    let many = applying(store, 1_000).await;
    take(store, &many, 2).await;
    take(store, &many, 500).await;
    let id = many.run.id().to_owned();
    let whole = store.events(id.clone(), 0, 100).await.unwrap();
    let brief = store.events_in_brief(id.clone(), 0, 100).await.unwrap();
    let large: Vec<u64> =
        whole.iter().filter(|it| it.payload.to_string().len() > 20_000).map(|it| it.seq).collect();
    assert_eq!(large.len(), 2, "gathered, and taken");
    for (whole, brief) in whole.iter().zip(&brief) {
        if brief.payload.get("left_out_bytes").is_none() {
            assert_eq!(whole, brief);
            continue;
        }
        assert!(large.contains(&brief.seq) && brief.payload["left_out_bytes"].as_u64() > Some(4_096), "{brief:?}");
        let words = (whole.payload.clone(), whole.message.clone());
        assert_eq!(*whole, EventRow { payload: words.0, message: words.1, ..brief.clone() });
    }
    assert_eq!(whole.len(), brief.len());
    let later = store.events_in_brief(id, large[0], 1).await.unwrap();
    assert_eq!(later[0].seq, large[0] + 1);
}
