//! A store, a scheduler on it, and ways to see what became of executions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use waypost_kernel::{Catalog, Span, Time};
use waypost_store::{Database, ExecutionFilter, ExecutionRow, ScopeRow, Who};
use waypost_testkit::oracle::MemoryStore;
use waypost_worker::Handlers;
use waypost_worker::schedules::{Schedule, Scheduler, SchedulerOptions, Tick, apply, parse};

use crate::support;

pub struct Stage {
    pub folder: TempDir,
    pub store: Arc<dyn Database>,
    pub handlers: Handlers,
}

impl Stage {
    /// On a real database.
    pub fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let store = support::store(folder.path());
        Stage { folder, store, handlers: Handlers::default() }
    }

    /// On the model, whose clock moves only when it is told to.
    pub fn model() -> Stage {
        let store = Arc::new(MemoryStore::new(Catalog::shipped().unwrap()));
        Stage { folder: tempfile::tempdir().unwrap(), store, handlers: Handlers::default() }
    }

    pub fn options(&self, name: &str) -> SchedulerOptions {
        SchedulerOptions {
            name: name.to_owned(),
            carried: true,
            handlers: self.handlers.clone(),
            grace: Duration::from_millis(300),
            guardian: Some(support::guardian()),
            allow_private: true,
            ..SchedulerOptions::default()
        }
    }

    pub async fn scheduler(&self, name: &str) -> Scheduler {
        Scheduler::new(self.store.clone(), self.options(name)).await.unwrap()
    }

    /// One schedule of these lines, called `job`.
    pub async fn apply(&self, lines: &str) -> Schedule {
        self.apply_as("job", lines, &Catalog::shipped().unwrap()).await
    }

    /// As somebody reads it who knows these lifecycles: the catalog's tenant's.
    pub async fn apply_as(&self, name: &str, lines: &str, catalog: &Catalog) -> Schedule {
        let text = format!("[[schedule]]\nname = \"{name}\"\n{lines}\n");
        let schedule = parse(&text, Path::new("test.toml"), self.folder.path(), catalog)
            .unwrap_or_else(|problems| panic!("{problems}"))
            .remove(0);
        apply(&*self.store, &schedule, Who::new(catalog.tenant(), "tests", None)).await.unwrap();
        schedule
    }

    /// Ticks once, and waits for what that began.
    pub async fn tick(&self, scheduler: &mut Scheduler) -> Tick {
        let tick = scheduler.run_once().await.unwrap();
        scheduler.settle().await;
        // Their ends are noticed by the next one.
        self.store.due(waypost_store::Ownership { carried: true, ..Default::default() }, 0).await.unwrap();
        tick
    }

    pub async fn executions(&self) -> Vec<ExecutionRow> {
        self.executions_of("job").await
    }

    pub async fn executions_of(&self, name: &str) -> Vec<ExecutionRow> {
        let mut filter =
            ExecutionFilter { schedule: Some(name.into()), limit: 500, ..ExecutionFilter::default() };
        let mut all = Vec::new();
        loop {
            let page = self.store.executions(filter.clone()).await.unwrap();
            all.extend(page.executions);
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                return all;
            }
        }
    }

    /// The only one there is.
    pub async fn only(&self) -> serde_json::Value {
        let all = self.executions().await;
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].run.as_ref().unwrap().object()
    }

    pub async fn scope(&self) -> ScopeRow {
        self.store.scopes("job".into()).await.unwrap().remove(0)
    }

    pub async fn advance(&self, seconds: i64) {
        self.store.advance_clock(Span::from_seconds(seconds)).await.unwrap();
    }

    pub async fn now(&self) -> Time {
        self.store.now().await.unwrap()
    }
}
