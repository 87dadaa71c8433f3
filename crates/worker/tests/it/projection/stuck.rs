//! Runs that can never be written beside others that can.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use waypost_kernel::Span;
use waypost_store::Database;
use waypost_worker::loops::{Lag, Loop, Projector};
use waypost_worker::projection::Projection;
use waypost_worker::projection::objects::{Answer, Content, Objects, Stored};

use super::places::{Place, Where};
use super::stories::{End, Story};
use crate::support::{On, open};

/// Refuses the documents of one run.
#[derive(Debug)]
struct Picky {
    inner: Arc<dyn Objects>,
    refuses: Mutex<String>,
}

impl Picky {
    fn is_refused(&self, key: &str) -> bool {
        let refused = self.refuses.lock().unwrap();
        !refused.is_empty() && key.contains(&*refused)
    }
}

impl Objects for Picky {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Stored>> {
        self.inner.read(key)
    }

    fn write<'a>(&'a self, key: &'a str, new: &'a Content, was: Option<&'a Stored>) -> Answer<'a, bool> {
        match self.is_refused(key) {
            true => Box::pin(async { Err(waypost_store::StoreError::Unavailable("403".into())) }),
            false => self.inner.write(key, new, was),
        }
    }
}

struct Site {
    store: Arc<dyn Database>,
    _kept: Box<dyn std::any::Any>,
    place: Place,
    picky: Arc<Picky>,
    lags: Arc<Mutex<Vec<Lag>>>,
}

impl Site {
    async fn new(on: On, at: Where) -> Site {
        let (store, kept) = open(on).await;
        let place = Place::at(at).await;
        let picky = Arc::new(Picky { inner: place.objects.clone(), refuses: Mutex::default() });
        Site { store, _kept: Box::new(kept), place, picky, lags: Arc::default() }
    }

    fn projection(&self) -> Arc<Projection> {
        Arc::new(Projection::new(self.picky.clone()))
    }

    fn projector(&self) -> Projector {
        let lags = self.lags.clone();
        Projector::new(self.store.clone(), self.projection(), "projector")
            .telling(move |lag| lags.lock().unwrap().push(lag))
    }

    fn lag(&self) -> Lag {
        self.lags.lock().unwrap().last().copied().unwrap_or_default()
    }

    async fn status(&self, id: &str) -> Value {
        let stored = self.place.objects.read(&format!("runs/{id}/status.json")).await.unwrap();
        stored.map_or(Value::Null, |stored| serde_json::from_slice(&stored.bytes).unwrap())["status"].clone()
    }

    async fn cursor(&self) -> u64 {
        self.store.cursor(self.projection().reader()).await.unwrap().unwrap_or(0)
    }

    async fn left(&self) -> Vec<String> {
        let left = self.store.left_behind(self.projection().reader()).await.unwrap();
        left.into_iter().map(|left| left.run_id).collect()
    }

    /// A run from its beginning to its end.
    async fn another(&self, projector: &mut Projector) -> String {
        let mut story = Story::begin(&self.store, End::Completed).await;
        projector.run_once().await.unwrap();
        while !story.go_on().await {}
        projector.run_once().await.unwrap();
        assert_eq!(self.status(&story.id).await, "completed");
        story.id
    }

    /// Turns until the run is written: what is left behind is tried again after a second at first.
    async fn until_written(&self, projector: &mut Projector, id: &str, status: &str) {
        tokio::time::timeout(std::time::Duration::from_secs(60), async {
            while self.status(id).await != status || self.lag().left > 0 {
                projector.run_once().await.unwrap();
                self.store.changed(std::time::Duration::from_millis(50)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{id} is written"));
    }
}

async fn one_does_not_hold_the_others(on: On, at: Where) {
    let site = Site::new(on, at).await;
    let mut projector = site.projector();
    let mut story = Story::begin(&site.store, End::Failed).await;
    projector.run_once().await.unwrap();
    *site.picky.refuses.lock().unwrap() = story.id.clone();
    while !story.go_on().await {}
    // Alone it may as well be the store: nothing is passed by.
    let before = site.cursor().await;
    projector.run_once().await.unwrap_err();
    assert_eq!((site.cursor().await, site.lag().runs, site.lag().left), (before, 1, 0));
    for _ in 0..3 {
        site.another(&mut projector).await;
    }
    assert_eq!((site.lag().runs, site.lag().left), (0, 1), "{:?}", site.lag());
    assert_eq!(site.left().await, [story.id.clone()]);
    let passed = site.cursor().await;
    assert!(passed > before);
    assert_eq!(site.status(&story.id).await, "requested");
    // Whoever comes next knows of it, and does not hold the others up either.
    let mut next = site.projector();
    site.another(&mut next).await;
    assert_eq!((site.lag().left, site.left().await), (1, vec![story.id.clone()]));
    assert!(site.cursor().await > passed);
    // It is written once that is possible, by all who know of it.
    site.picky.refuses.lock().unwrap().clear();
    site.until_written(&mut next, &story.id, "failed").await;
    assert_eq!(site.left().await, Vec::<String>::new());
    site.until_written(&mut projector, &story.id, "failed").await;
    site.another(&mut projector).await;
    assert_eq!(site.lag(), Lag::default());
}

// proves A4
#[tokio::test]
async fn a_run_that_a_folder_refuses_does_not_hold_the_others() {
    one_does_not_hold_the_others(On::Sqlite, Where::Folder).await;
}

// proves A4
#[tokio::test]
async fn a_run_that_a_bucket_refuses_does_not_hold_the_others() {
    one_does_not_hold_the_others(On::Postgres, Where::S3).await;
}

fn versions(site: &Site, id: &str, name: &str) -> PathBuf {
    site.place.folder.path().join("objects/.versions/runs").join(id).join(name)
}

// proves A2 and A4
#[tokio::test]
async fn a_document_that_lost_its_version_is_written_anew_by_a_rebuild_alone() {
    let site = Site::new(On::Sqlite, Where::Folder).await;
    let mut projector = site.projector();
    let mut story = Story::begin(&site.store, End::Completed).await;
    projector.run_once().await.unwrap();
    fs::write(versions(&site, &story.id, "status.json"), "{\"now\": {\"ver").unwrap();
    while !story.go_on().await {}
    for _ in 0..3 {
        site.another(&mut projector).await;
    }
    assert_eq!((site.lag().left, site.status(&story.id).await), (1, "requested".into()));
    let shown = site.projection().rebuild(&*site.store, "default", &story.id).await.unwrap();
    assert!(shown.written > 0);
    assert_eq!(site.status(&story.id).await, "completed");
    site.until_written(&mut projector, &story.id, "completed").await;
    assert_eq!((site.left().await, site.lag().left), (Vec::new(), 0));
}

// proves A2
#[tokio::test]
async fn a_rebuild_mends_what_was_edited() {
    let site = Site::new(On::Sqlite, Where::Folder).await;
    let mut projector = site.projector();
    let id = site.another(&mut projector).await;
    let folder = site.place.folder.path().join("objects/runs").join(&id);
    for name in ["status.json", "manifest.json", "steps/4.json"] {
        let whole = fs::read(folder.join(name)).unwrap();
        fs::write(folder.join(name), &whole[..whole.len() / 2]).unwrap();
        let shown = site.projection().rebuild(&*site.store, "default", &id).await.unwrap();
        assert_eq!((shown.written, fs::read(folder.join(name)).unwrap()), (1, whole), "{name}");
    }
    assert_eq!(site.projection().rebuild(&*site.store, "default", &id).await.unwrap().written, 0);
}

// proves A11
#[tokio::test]
async fn the_lag_is_told_before_and_while_it_catches_up() {
    let site = Site::new(On::Sqlite, Where::Folder).await;
    let mut projector = site.projector();
    for _ in 0..20 {
        Story::begin(&site.store, End::Completed).await;
    }
    site.store.advance_clock(Span::from_seconds(30)).await.unwrap();
    projector.run_once().await.unwrap();
    let lags = site.lags.lock().unwrap().clone();
    assert_eq!(lags.iter().map(|lag| lag.runs).collect::<Vec<_>>(), [20, 12, 4, 0]);
    assert!(lags[..3].iter().all(|lag| lag.seconds >= 30.0), "{lags:?}");
    assert_eq!(lags[3], Lag::default());
}
