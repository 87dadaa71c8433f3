//! Who works for a server: its loops and its worker, by what the files say.

use std::sync::Arc;

use tokio::sync::watch;
use waypost_server::App;
use waypost_store::{Database, RunRow, Store};
use waypost_worker::agents::Agents;
use waypost_worker::alerts::Alerts;
use waypost_worker::loops::{Supervised, Supervisor};
use waypost_worker::playbook::{Playbooks, known};
use waypost_worker::projection::Projection;
use waypost_worker::schedules::SchedulerOptions;
use waypost_worker::{Options, Stage, Worker};

use super::serve::Flags;
use crate::agent;
use crate::output::Result;
use crate::place::{named_tenant, tenant};
use crate::schedule::with_schedules;
use crate::worker::playbooks;

/// What the folder of playbooks and `waypost.toml` say, all of it sound.
pub struct Files {
    pub playbooks: Playbooks,
    agents: Agents,
    pub scheduled: SchedulerOptions,
}

impl Files {
    pub async fn read(store: &dyn Store, flags: &Flags) -> Result<Files> {
        let mut agents = agent::declared(store).await?;
        let playbooks = playbooks(store, flags.playbooks.as_deref()).await?;
        let playbooks = playbooks.and(std::mem::take(&mut agents.playbooks));
        Ok(Files { playbooks, agents, scheduled: schedules(store, flags).await? })
    }
}

/// Schedules are fired here, pruning among them; without a worker, pruning alone.
async fn schedules(store: &dyn Store, flags: &Flags) -> Result<SchedulerOptions> {
    if flags.no_worker {
        // Others fire what stands in the file; how long runs are kept is for whoever prunes.
        let SchedulerOptions { retention, .. } =
            with_schedules(store, None, SchedulerOptions::default()).await?;
        return Ok(SchedulerOptions { retention, ..SchedulerOptions::default() });
    }
    let options = SchedulerOptions {
        carried: flags.allow_commands,
        tenant: named_tenant().map(str::to_owned),
        grace: flags.grace,
        passed_env: flags.passed_env(),
        ..SchedulerOptions::default()
    };
    with_schedules(store, None, options).await
}

/// What does not change while a server runs.
pub struct Crew {
    pub store: Arc<dyn Database>,
    pub projection: Option<Arc<Projection>>,
    pub alerts: Alerts,
    pub flags: Flags,
    pub app: Arc<App>,
    /// Whom others see to have its playbooks.
    pub name: String,
}

/// Loops that go on, and a worker that has not begun.
pub struct Started {
    supervised: Supervised,
    worker: Option<Worker>,
}

impl Crew {
    /// Declares what the files have, and starts the loops.
    pub async fn start(&self, files: Files, shutdown: watch::Receiver<Stage>) -> Result<Started> {
        let Files { playbooks, agents, scheduled } = files;
        let has_agents = !agents.agents.is_empty();
        if has_agents || agents.limit.is_some() {
            self.store.put_agents(tenant().to_owned(), agents.agents, agents.limit).await?;
        }
        known::offer(&*self.store, &playbooks, std::iter::empty(), named_tenant(), &self.name).await?;
        known::withdraw(&*self.store, &playbooks, named_tenant(), &self.name).await?;
        let may_work = !self.flags.no_worker && (self.flags.allow_commands || !playbooks.is_empty());
        let options = self.worker_options(playbooks);
        let options = if has_agents { agent::taking(options) } else { options };
        let worker = Worker::new(self.store.clone(), options);
        let (applied, claimed, finished) = (self.app.clone(), self.app.clone(), self.app.clone());
        let ended = move |row: &RunRow| finished.metrics.finished.count(row);
        worker.counts().observe(
            move || {
                claimed.metrics.claimed.inc();
            },
            ended,
        );
        worker.counts().applies.observe(move |it| applied.metrics.applied(it));
        let (swept, behind) = (self.app.clone(), self.app.clone());
        let supervisor =
            Supervisor::new(self.store.clone(), worker.name(), shutdown).counting(move |moved| {
                swept.metrics.sweeps.inc();
                swept.metrics.swept.inc_by(moved as u64);
            });
        let supervisor = supervisor.projecting(self.projection.clone()).telling(move |lag| {
            behind.metrics.projection_behind.set(lag.runs as i64);
            behind.metrics.projection_lag.set(lag.seconds);
            behind.metrics.projection_left.set(lag.left as i64);
        });
        let supervised = supervisor.firing(scheduled).alerting(self.alerts.clone()).start().await?;
        Ok(Started { supervised, worker: may_work.then_some(worker) })
    }

    fn worker_options(&self, playbooks: Playbooks) -> Options {
        let flags = &self.flags;
        Options {
            tenant: named_tenant().map(str::to_owned),
            queues: flags.queues.clone(),
            slots: flags.slots,
            lease: flags.lease,
            grace: flags.grace,
            allow_commands: flags.allow_commands,
            playbooks,
            projection: self.projection.clone(),
            passed_env: flags.passed_env(),
            ..Options::default()
        }
    }
}

impl Started {
    /// Until the shutdown.
    pub async fn run(self) -> Result {
        self.supervised.run(self.worker).await?;
        Ok(())
    }
}
