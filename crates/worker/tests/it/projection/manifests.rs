//! A run is told as completed once its manifest is in the object store, and fails if that does not come to pass in time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use waypost_store::NewRun;
use waypost_worker::projection::Projection;

use super::places::{Mortal, Place, Where};
use crate::steps::kit::step;
use crate::support::{Running, Shop, code, eventually};

struct Site {
    shop: Shop,
    place: Place,
    mortal: Arc<Mortal>,
    id: String,
}

impl Site {
    /// A run of an agent, taken on, with an object store that is away.
    async fn new(more: &str) -> Site {
        let mut shop = Shop::new();
        let place = Place::at(Where::Folder).await;
        let mortal = Mortal::immortal(&place.objects);
        mortal.is_away.store(true, Ordering::SeqCst);
        shop.options.projection = Some(Arc::new(Projection::new(mortal.clone())));
        let steps = [step("load-context", "", ""), step("finalize", "", "")].concat();
        let playbook =
            shop.playbook(&format!("name = \"archivist\"\nlifecycle = \"agent\"\n{more}\n{steps}"));
        let id = shop.queue(&playbook, NewRun::default()).await;
        shop.store.acknowledge("default".into(), id.clone(), "test".into()).await.unwrap();
        Site { shop, place, mortal, id }
    }

    /// Its steps are done, and it waits.
    async fn waits(&self) -> Running {
        let running = self.shop.start();
        eventually("both steps are done", async || {
            let steps = self.shop.standings(&self.id).await;
            (steps == ["load-context=completed", "finalize=completed"]).then_some(())
        })
        .await;
        assert_eq!(self.shop.run(&self.id).await.status(), "running");
        running
    }

    async fn manifest(&self) -> Option<Value> {
        let stored = self.place.objects.read(&format!("runs/{}/manifest.json", self.id)).await.unwrap()?;
        Some(serde_json::from_slice(&stored.bytes).unwrap())
    }
}

// proves A11
#[tokio::test]
async fn completed_waits_for_the_manifest() {
    let site = Site::new("").await;
    let running = site.waits().await;
    assert_eq!(site.manifest().await, None);
    site.mortal.is_away.store(false, Ordering::SeqCst);
    let row = site.shop.until_settled(&site.id).await;
    assert_eq!((row.status(), code(&row)), ("completed", None));
    let manifest = site.manifest().await.unwrap();
    assert_eq!((manifest["steps"].as_array().unwrap().len(), &manifest["finished_at"]), (2, &Value::Null));
    assert_eq!(manifest["agent_slug"], "archivist");
    running.stop().await;
    site.shop.verify().await;
}

// proves A11
#[tokio::test]
async fn a_run_whose_manifest_does_not_come_in_time_fails() {
    let site = Site::new("timeout = \"1s\"").await;
    let running = site.shop.start();
    let row = site.shop.until_settled(&site.id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("UPSTREAM_UNAVAILABLE")));
    assert_eq!(site.manifest().await, None);
    assert_eq!(site.shop.standings(&site.id).await, ["load-context=completed", "finalize=completed"]);
    running.stop().await;
    site.shop.verify().await;
}

// proves A11
#[tokio::test]
async fn a_run_that_waits_for_its_manifest_can_be_cancelled_and_taken_over() {
    let site = Site::new("").await;
    // Its worker goes, and the next one waits again.
    site.waits().await.stop().await;
    let running = site.waits().await;
    assert_eq!(site.shop.executed(), ["load-context", "finalize"], "nothing is done twice");
    site.shop.cancel(&site.id).await;
    let row = site.shop.until_settled(&site.id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("CANCELLED")));
    running.stop().await;
    site.shop.verify().await;
}
