//! Somebody who reads the documents again and again, and knows of them what seed 001 says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
pub use waypost_testkit::documents::is_terminal;
use waypost_testkit::documents::{Documents, Judge};
use waypost_worker::projection::objects::Objects;

pub struct Watcher {
    objects: Arc<dyn Objects>,
    judge: Judge,
}

impl Watcher {
    pub fn new(objects: &Arc<dyn Objects>) -> Watcher {
        Watcher { objects: objects.clone(), judge: Judge::default() }
    }

    async fn read(&self, id: &str, name: &str) -> Option<Value> {
        let stored = self.objects.read(&format!("runs/{id}/{name}")).await.unwrap()?;
        Some(serde_json::from_slice(&stored.bytes).unwrap_or_else(|error| panic!("{name}: {error}")))
    }

    /// Looks at all documents of a run; gives its status.
    pub async fn look(&mut self, id: &str) -> Option<Value> {
        let Some(status) = self.read(id, "status.json").await else {
            assert!(!self.judge.has_seen(id), "it was there");
            return None;
        };
        // What was written before it is read after it.
        let mut steps = BTreeMap::new();
        for n in 1..=status["steps_total"].as_u64().unwrap_or(0) {
            steps.extend(self.read(id, &format!("steps/{n}.json")).await.map(|step| (n, step)));
        }
        let manifest = self.read(id, "manifest.json").await;
        self.judge.look(id, Documents { status: status.clone(), steps, manifest });
        Some(status)
    }
}
