//! Commands for many runs that people asked for: taken beside whatever the process's worker does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use waypost_store::{Claim, Database, Result};

use super::{Loop, More};
use crate::bulk;
use crate::claim::slots::Slots;
use crate::options::Options;
use crate::pace;
use crate::pipeline::{Job, Shared};
use crate::resolve::{Plan, Work};
use crate::shutdown::Stage;

const EVERY: Duration = Duration::from_secs(1);
/// Operations at once: one that takes long does not keep the next one waiting.
const AT_ONCE: usize = 4;

pub struct Operator {
    shared: Shared,
    slots: Slots,
}

impl Operator {
    pub fn new(database: Arc<dyn Database>) -> Operator {
        let options = Options { slots: AT_ONCE, queues: vec![bulk::QUEUE.to_owned()], ..Options::default() };
        let shared = Shared::new(database, options);
        Operator { slots: Slots::new(shared.clone()), shared }
    }

    /// Works what waits now, to its end.
    pub async fn work_all(&mut self) -> Result<()> {
        self.run_once().await?;
        while self.slots.ended().await.is_some() {}
        Ok(())
    }
}

impl Loop for Operator {
    const WORK: &'static str = "taking operations";

    fn every(&self) -> Duration {
        pace::about(EVERY)
    }

    async fn run_once(&mut self) -> Result<More> {
        while self.slots.try_ended().is_some() {}
        let (room, asked_at) = (self.slots.room(), Instant::now());
        if room == 0 {
            return Ok(More::Later);
        }
        let options = &self.shared.options;
        let claim = Claim {
            worker: options.name.clone(),
            queues: options.queues.clone(),
            lifecycles: vec![bulk::LIFECYCLE.to_owned()],
            limit: room,
            lease: Some(pace::span(options.lease)),
            start: true,
            ..Claim::default()
        };
        for claimed in self.shared.store.claim(claim).await? {
            let keeping = options.keeping();
            self.slots.begin(Job { claimed, asked_at, keeping, plan: Some(Plan::from(Work::Bulk)) });
        }
        Ok(More::Later)
    }

    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = sleep(wait) => {}
            // What came in while all were busy is taken at once.
            Some(_) = self.slots.ended() => {}
        }
    }

    async fn close(&mut self, shutdown: &mut watch::Receiver<Stage>) {
        self.slots.close(shutdown).await;
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("name", &self.shared.options.name).finish_non_exhaustive()
    }
}
