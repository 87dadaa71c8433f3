//! People's commands, looking things up, and care.

use std::sync::Arc;

use waypost_kernel::{Catalog, Lifecycle, Span, Time};
use waypost_store::{
    Admin, CommandWrite, Filter, LimitOf, Page, Pause, Pruned, QueueRow, Reply, Result, RunRow, StoreError,
    Verified,
};

use super::MemoryStore;
use super::rules::intake::{check_name, check_pause};
use super::state::State;

impl Admin for MemoryStore {
    fn command(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        self.verb(move |state| state.command(&command))
    }

    fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow> {
        self.verb(move |state| state.run(&tenant, &id))
    }

    fn runs(&self, filter: Filter) -> Reply<'_, Page> {
        self.verb(move |state| state.runs(&filter))
    }

    fn queues(&self) -> Reply<'_, Vec<QueueRow>> {
        self.verb(|state| Ok(state.queue_rows()))
    }

    fn pause_queue(&self, queue: String, pause: Option<Pause>) -> Reply<'_, QueueRow> {
        self.verb(move |state| state.pause_queue(&queue, pause))
    }

    fn limit(&self, what: LimitOf, name: String, at_most: Option<u32>) -> Reply<'_, ()> {
        self.verb(move |state| state.limit(what, name, at_most))
    }

    fn prune(&self, limit: usize) -> Reply<'_, Pruned> {
        self.verb(move |state| Ok(state.prune(limit)))
    }

    fn verify(&self, progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Reply<'_, Verified> {
        self.verb(move |state| Ok(state.verify(&*progress)))
    }

    fn lifecycles(&self) -> Reply<'_, Catalog> {
        self.verb(|state| Ok(state.catalog.clone()))
    }

    fn add_lifecycle(&self, text: String) -> Reply<'_, Arc<Lifecycle>> {
        self.verb(move |state| {
            state.writes += 1;
            let added = state.catalog.add(&text);
            added.map_err(|problems| StoreError::invalid("lifecycle", problems.to_string()))
        })
    }

    fn now(&self) -> Reply<'_, Time> {
        self.verb(|state| Ok(state.now))
    }

    fn advance_clock(&self, by: Span) -> Reply<'_, ()> {
        self.verb(move |state| {
            if by < Span::ZERO {
                return Err(StoreError::invalid("by", "the clock goes ahead only"));
            }
            state.writes += 1;
            state.now = state.now + by;
            Ok(())
        })
    }
}

impl State {
    fn pause_queue(&mut self, queue: &str, pause: Option<Pause>) -> Result<QueueRow> {
        check_name("queue", queue)?;
        check_pause(pause.as_ref())?;
        self.writes += 1;
        let now = self.now;
        let settings = self.queues.entry(queue.to_owned()).or_default();
        settings.paused = pause.map(|pause| Pause { at: Some(now), ..pause });
        self.forget_defaults();
        Ok(self.queue_row(queue))
    }

    fn limit(&mut self, what: LimitOf, name: String, at_most: Option<u32>) -> Result<()> {
        check_name("name", &name)?;
        self.writes += 1;
        match (what, at_most) {
            (LimitOf::Queue, at_most) => self.queues.entry(name).or_default().at_most = at_most,
            (LimitOf::Key, Some(at_most)) => {
                self.key_limits.insert(name, at_most);
            }
            (LimitOf::Key, None) => {
                self.key_limits.remove(&name);
            }
        }
        self.forget_defaults();
        Ok(())
    }

    /// A queue for which nothing is set is none that anybody needs to see.
    fn forget_defaults(&mut self) {
        self.queues.retain(|_, settings| settings.at_most.is_some() || settings.paused.is_some());
    }
}
