//! What stands in the documents.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use waypost_kernel::{Phase, Span};
use waypost_store::Database;
use waypost_testkit::documents::Judge;
use waypost_worker::loops::{Lag, Loop, More, Projector};
use waypost_worker::projection::Projection;
use waypost_worker::projection::objects::Objects;

use super::places::{Mortal, Place, Where};
use super::stories::{End, STEPS, Story};
use crate::support::{On, open};

async fn read(objects: &dyn Objects, id: &str, name: &str) -> Value {
    let stored = objects.read(&format!("runs/{id}/{name}")).await.unwrap();
    stored.map_or(Value::Null, |stored| serde_json::from_slice(&stored.bytes).unwrap())
}

async fn ended(store: &Arc<dyn Database>, projector: &mut Projector, end: End) -> String {
    let mut story = Story::begin(store, end).await;
    projector.run_once().await.unwrap();
    while !story.go_on().await {}
    projector.run_once().await.unwrap();
    story.id
}

fn at(instant: Option<waypost_kernel::Time>) -> Value {
    let text = waypost_store::iso(instant.unwrap());
    json!(format!("{}Z", text.split_once('.').unwrap().0))
}

// proves A2, A3 and A5
#[tokio::test]
async fn the_documents_of_a_run_that_completed() {
    let (store, _kept) = open(On::Sqlite).await;
    let place = Place::at(Where::Folder).await;
    let projection = Arc::new(Projection::new(place.objects.clone()));
    let mut projector = Projector::new(store.clone(), projection, "projector");
    let id = ended(&store, &mut projector, End::Completed).await;
    let row = store.run("default".into(), id.clone()).await.unwrap();
    let status = read(&*place.objects, &id, "status.json").await;
    assert_eq!(
        status,
        json!({
            "run_id": id, "agent_slug": "archivist-violin", "status": "completed", "trigger": "cron",
            "started_at": at(row.run.started_at), "finished_at": at(row.run.finished_at),
            "current_step": "finalize", "steps_total": 4, "steps_completed": 4,
            "proposals_created": [], "error": null,
        })
    );
    let manifest = read(&*place.objects, &id, "manifest.json").await;
    let names: Vec<&str> =
        manifest["steps"].as_array().unwrap().iter().filter_map(|step| step["name"].as_str()).collect();
    assert_eq!(names, STEPS);
    assert_eq!(manifest["finished_at"], status["finished_at"]);
    assert_eq!((&manifest["proposals"], &manifest["artifacts"]), (&json!([]), &json!([])));
    let step = read(&*place.objects, &id, "steps/2.json").await;
    assert_eq!(
        (&step["n"], &step["name"], &step["status"], &step["attempts"], &step["output"], &step["error"]),
        (
            &json!(2),
            &json!("execute-agent"),
            &json!("completed"),
            &json!(1),
            &json!({"step": 1}),
            &Value::Null
        )
    );
}

// proves A3
#[tokio::test]
async fn the_documents_of_runs_that_did_not() {
    let (store, _kept) = open(On::Sqlite).await;
    let place = Place::at(Where::Folder).await;
    let projection = Arc::new(Projection::new(place.objects.clone()));
    let mut projector = Projector::new(store.clone(), projection, "projector");
    let judge = Judge::default();
    let id = ended(&store, &mut projector, End::Failed).await;
    let status = read(&*place.objects, &id, "status.json").await;
    judge.check_fields(&status);
    assert_eq!(
        (&status["status"], &status["current_step"], &status["steps_completed"], &status["error"]),
        (
            &json!("failed"),
            &json!("execute-agent"),
            &json!(1),
            &json!("AGENT_TIMEOUT: execute-agent: execution exceeded 600s limit")
        )
    );
    assert_eq!(read(&*place.objects, &id, "manifest.json").await, Value::Null);
    let step = read(&*place.objects, &id, "steps/2.json").await;
    assert_eq!(step["error"], "AGENT_TIMEOUT: execution exceeded 600s limit");
    // What nobody took on in time.
    let late = Story::begin(&store, End::Completed).await.id;
    store.advance_clock(Span::from_seconds(61)).await.unwrap();
    store.sweep("sweeper".into(), 10).await.unwrap();
    projector.run_once().await.unwrap();
    let status = read(&*place.objects, &late, "status.json").await;
    judge.check_fields(&status);
    assert!(status["error"].as_str().unwrap().starts_with("UPSTREAM_UNAVAILABLE: "), "{status}");
}

// proves A4 and A7
#[tokio::test]
async fn what_moved_many_times_is_written_once_and_a_draft_before_it_is_taken_on() {
    let (store, _kept) = open(On::Sqlite).await;
    let place = Place::at(Where::Folder).await;
    let mortal = Mortal::immortal(&place.objects);
    let mut projector = Projector::new(store.clone(), Arc::new(Projection::new(mortal.clone())), "projector");
    let mut story = Story::begin(&store, End::Completed).await;
    let written = || mortal.written.swap(0, Ordering::SeqCst);
    let status = async || read(&*place.objects, &story.id, "status.json").await["status"].clone();
    projector.run_once().await.unwrap();
    assert_eq!((written(), status().await), (1, json!("requested")));
    let row = store.run("default".into(), story.id.clone()).await.unwrap();
    assert_eq!(row.status(), "queued", "taken on once its readers can see it");
    // Claimed, and two steps begun and done.
    let id = story.id.clone();
    for _ in 0..5 {
        story.go_on().await;
    }
    projector.run_once().await.unwrap();
    assert_eq!(written(), 3, "two steps and the status");
    assert_eq!(read(&*place.objects, &id, "status.json").await["steps_completed"], 2);
    while !story.go_on().await {}
    projector.run_once().await.unwrap();
    assert_eq!(written(), 4, "two steps, the manifest and the status");
    projector.run_once().await.unwrap();
    assert_eq!(written(), 0);
}

// proves A11
#[tokio::test]
async fn while_the_object_store_is_away_runs_go_on_and_it_catches_up() {
    let (store, _kept) = open(On::Sqlite).await;
    let place = Place::at(Where::Folder).await;
    let mortal = Mortal::immortal(&place.objects);
    let lag = Arc::new(std::sync::Mutex::new(Lag::default()));
    let told = lag.clone();
    let mut projector = Projector::new(store.clone(), Arc::new(Projection::new(mortal.clone())), "projector")
        .telling(move |now| *told.lock().unwrap() = now);
    let mut story = Story::begin(&store, End::Failed).await;
    projector.run_once().await.unwrap();
    mortal.is_away.store(true, Ordering::SeqCst);
    while !story.go_on().await {}
    store.advance_clock(Span::from_seconds(30)).await.unwrap();
    for _ in 0..3 {
        projector.run_once().await.unwrap_err();
    }
    let behind = *lag.lock().unwrap();
    assert!(behind.runs == 1 && behind.seconds >= 30.0, "{behind:?}");
    assert_eq!(read(&*place.objects, &story.id, "status.json").await["status"], "requested");
    mortal.is_away.store(false, Ordering::SeqCst);
    assert_eq!(projector.run_once().await.unwrap(), More::Later);
    assert_eq!(*lag.lock().unwrap(), Lag::default());
    assert_eq!(read(&*place.objects, &story.id, "status.json").await["status"], "failed");
}

// proves A3
#[tokio::test]
async fn pruning_leaves_the_documents_where_they_are() {
    let (store, _kept) = open(On::Sqlite).await;
    let place = Place::at(Where::Folder).await;
    let projection = Arc::new(Projection::new(place.objects.clone()));
    let mut projector = Projector::new(store.clone(), projection, "projector");
    let id = ended(&store, &mut projector, End::Completed).await;
    let names = ["status.json", "manifest.json", "steps/1.json", "steps/4.json"];
    let mut before = Vec::new();
    for name in names {
        before.push(read(&*place.objects, &id, name).await);
    }
    store.advance_clock(Span::from_seconds(400 * 86_400)).await.unwrap();
    // The run of the newest event may stay a little longer.
    ended(&store, &mut projector, End::Completed).await;
    assert!(store.prune(100).await.unwrap().runs > 0);
    assert!(store.run("default".into(), id.clone()).await.is_err(), "it is gone");
    projector.run_once().await.unwrap();
    for (name, before) in names.into_iter().zip(before) {
        assert!(before.is_object());
        assert_eq!(read(&*place.objects, &id, name).await, before, "{name}");
    }
}

// proves A2 and A4
#[tokio::test]
async fn a_rebuild_writes_what_is_missing_and_nothing_goes_back() {
    let (store, _kept) = open(On::Sqlite).await;
    let place = Place::at(Where::Folder).await;
    let projection = Arc::new(Projection::new(place.objects.clone()));
    let mut projector = Projector::new(store.clone(), projection.clone(), "projector");
    let id = ended(&store, &mut projector, End::Completed).await;
    let rebuild = async || projection.rebuild(&*store, "default", &id).await.unwrap();
    assert_eq!(rebuild().await.written, 0);
    let folder = place.folder.path().join("objects/runs").join(&id);
    let before = std::fs::read(folder.join("status.json")).unwrap();
    std::fs::remove_file(folder.join("steps/3.json")).unwrap();
    std::fs::remove_file(folder.join("status.json")).unwrap();
    let shown = rebuild().await;
    assert_eq!((shown.written, shown.run.unwrap().phase()), (2, Phase::Settled));
    assert_eq!(std::fs::read(folder.join("status.json")).unwrap(), before);
    // Whoever has seen the steps' files before writes them again too.
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(projection.show(&*store, "default", &id).await.unwrap().written, 6);
    assert!(folder.join("steps/4.json").exists());
    let gone = projection.show(&*store, "default", "run_that_was_pruned").await.unwrap();
    assert!(gone.run.is_none() && gone.written == 0);
}
