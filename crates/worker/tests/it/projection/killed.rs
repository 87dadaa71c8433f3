//! Projectors that end at any of their writes, and several at once, beside a reader who never sees anything go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use waypost_store::Database;
use waypost_worker::loops::{Loop, Projector};
use waypost_worker::projection::Projection;
use waypost_worker::projection::objects::Objects;

use super::places::{Mortal, Place, Where};
use super::stories::{End, Story};
use super::watcher::{Watcher, is_terminal};
use crate::faulty::Faulty;
use crate::support::{On, open};

fn projector(database: Arc<dyn Database>, objects: Arc<dyn Objects>) -> Projector {
    Projector::new(database, Arc::new(Projection::new(objects)), "projector")
}

/// A run to its end, with a projector that dies once. `every`: how many moves it sees at a time. Gives whether it died.
async fn one_death(store: &Arc<dyn Database>, place: &Place, end: End, every: usize, death: Death) -> bool {
    let (mut watcher, faulty) = (Watcher::new(&place.objects), Faulty::new(store.clone()));
    let mortal = match death {
        Death::AtObject(number, done) => Mortal::new(&place.objects, number, done),
        Death::AtRow(number, done) => {
            faulty.die_at_write(number, done);
            Mortal::immortal(&place.objects)
        }
    };
    let mut living = Some(projector(faulty.clone(), mortal.clone()));
    let mut story = Story::begin(store, end).await;
    let mut is_over = false;
    for moves in 0.. {
        assert!(moves < 100, "{} ends", story.id);
        if moves % every == 0 || is_over {
            if let Some(it) = &mut living {
                tokio::select! {
                    _ = it.run_once() => {}
                    // A dead worker's store answers no more.
                    () = dies(&faulty) => {}
                }
                if mortal.is_dead() || faulty.is_dead() {
                    living = None;
                    watcher.look(&story.id).await;
                }
            }
            if living.is_none() {
                projector(store.clone(), place.objects.clone()).run_once().await.unwrap();
            }
            let status = watcher.look(&story.id).await.unwrap_or_default();
            if is_terminal(&status) {
                assert_eq!(status["status"] == "completed", end == End::Completed, "{status}");
                break;
            }
        }
        is_over = story.go_on().await;
    }
    living.is_none()
}

#[derive(Clone, Copy, Debug)]
enum Death {
    AtObject(i64, bool),
    AtRow(i64, bool),
}

async fn dies(faulty: &Faulty) {
    while !faulty.is_dead() {
        tokio::task::yield_now().await;
    }
}

/// Each end with how many moves the projector sees at a time.
async fn every_death(on: On, at: Where, ends: &[(End, usize)]) {
    let (store, _kept) = open(on).await;
    let place = Place::at(at).await;
    for &(end, every) in ends {
        for death in [Death::AtObject as fn(i64, bool) -> Death, Death::AtRow] {
            let mut deaths = 0;
            for number in 1.. {
                let mut died = false;
                for done in [false, true] {
                    died |= one_death(&store, &place, end, every, death(number, done)).await;
                }
                if !died {
                    break;
                }
                deaths += 1;
            }
            assert!(deaths >= 3, "{end:?}: {deaths}");
        }
    }
}

// proves A4 and A2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projector_may_die_at_any_write_into_a_folder() {
    let ends = [(End::Completed, 1), (End::Completed, 3), (End::Failed, 1), (End::Cancelled, 2)];
    every_death(On::Sqlite, Where::Folder, &ends).await;
}

// proves A4 and A2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projector_may_die_at_any_write_over_s3() {
    every_death(On::Postgres, Where::S3, &[(End::Completed, 3), (End::Failed, 2)]).await;
}

const RUNS: usize = 6;

/// Dies after a few writes, and another one takes its place, until all is over.
async fn restless(store: Arc<dyn Database>, objects: Arc<dyn Objects>, seed: i64, is_over: Arc<AtomicBool>) {
    for life in 1.. {
        let fuse = (life * 7 + seed * 3) % 11 + 1;
        let mortal = Mortal::new(&objects, fuse, life % 2 == 0);
        let mut it = projector(store.clone(), mortal.clone());
        while !mortal.is_dead() {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            let _ = it.run_once().await;
            tokio::task::yield_now().await;
        }
    }
}

async fn many_at_once(on: On, at: Where) {
    let (store, _kept) = open(on).await;
    let place = Place::at(at).await;
    let ends = [End::Completed, End::Failed, End::Cancelled];
    let mut stories = Vec::new();
    for at in 0..RUNS {
        stories.push(Story::begin(&store, ends[at % ends.len()]).await);
    }
    let ids: Vec<String> = stories.iter().map(|story| story.id.clone()).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..2 {
        tasks.spawn(restless(store.clone(), place.objects.clone(), seed, is_over.clone()));
    }
    for mut story in stories {
        tasks.spawn(async move {
            while !story.go_on().await {
                tokio::task::yield_now().await;
            }
        });
    }
    let mut watcher = Watcher::new(&place.objects);
    loop {
        let mut ended = 0;
        for id in &ids {
            ended += usize::from(watcher.look(id).await.as_ref().is_some_and(is_terminal));
        }
        if ended == ids.len() {
            break;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    // Whoever comes last changes nothing.
    projector(store, place.objects.clone()).run_once().await.unwrap();
    for id in &ids {
        let status: Option<Value> = watcher.look(id).await;
        assert!(is_terminal(&status.unwrap()));
    }
}

// proves A4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_restless_projectors_of_a_folder_move_nothing_back() {
    many_at_once(On::Sqlite, Where::Folder).await;
}

// proves A4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_restless_projectors_over_s3_move_nothing_back() {
    many_at_once(On::Postgres, Where::S3).await;
}
