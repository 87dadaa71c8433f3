//! A schedule whose run names an agent, or a playbook that workers have: what those say is looked up when it fires, as when a person
//! starts it.

use waypost_kernel::tenant::tenant_of;
use waypost_store::{Birth, Result, Store};

use super::schedule::{QueuedRun, Schedule, What};
use crate::agents::{AgentRun, CRON, CannotRun, new_run};
use crate::playbook::Playbooks;
use crate::playbook::known::{self, LeftOpen, NotKnown};

/// What came of looking at what a plan is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filled {
    Ready,
    /// There is no run to be begun, and why: its agent takes none.
    Passed(String),
}

/// Fills in what the agent or the playbook says and the schedule left open.
pub async fn fill(store: &dyn Store, schedule: &Schedule, birth: &mut Birth) -> Result<Filled> {
    match &schedule.what {
        What::Run(QueuedRun { agent: Some(slug), .. }) => of_agent(store, schedule, slug, birth).await,
        _ => of_playbook(store, schedule, birth).await.map(|()| Filled::Ready),
    }
}

/// As whoever else starts a run of an agent has it made: its limit, its playbook, and whether it takes one at all are the agent's.
async fn of_agent(store: &dyn Store, schedule: &Schedule, slug: &str, birth: &mut Birth) -> Result<Filled> {
    let tenant = tenant_of(&schedule.name);
    let catalog = store.lifecycles().await?.of_tenant(tenant);
    let run = &birth.run;
    let asked = AgentRun {
        tenant: tenant.to_owned(),
        slug: slug.to_owned(),
        trigger: CRON.to_owned(),
        input: run.input.clone(),
        correlation_id: None,
        by: run.by.clone(),
    };
    match new_run(store, &catalog, asked).await {
        Ok(mut new) => {
            new.metadata.extend(run.metadata.clone());
            new.idempotency_key = run.idempotency_key.clone();
            new.priority = run.priority;
            birth.run = new;
            Ok(Filled::Ready)
        }
        Err(CannotRun::Store(error) | CannotRun::NoPlaybook(NotKnown::Store(error))) => Err(error),
        Err(error) => Ok(Filled::Passed(error.to_string())),
    }
}

/// A name that nobody has yet stays as it is: whoever takes the run knows more, and so does an input that does not fit, which fails the
/// run with words.
async fn of_playbook(store: &dyn Store, schedule: &Schedule, birth: &mut Birth) -> Result<()> {
    let What::Run(queued) = &schedule.what else { return Ok(()) };
    let Some(name) = queued.playbook.as_deref().filter(|_| queued.carried.is_none()) else { return Ok(()) };
    let tenant = tenant_of(&schedule.name);
    let catalog = store.lifecycles().await?.of_tenant(tenant);
    let known = match known::find(store, &Playbooks::default(), &catalog, tenant, name).await {
        Ok(known) => known,
        Err(NotKnown::Store(error)) => return Err(error),
        Err(NotKnown::Unknown(_) | NotKnown::Unsound(_)) => return Ok(()),
    };
    let Some(playbook) = known.playbook else { return Ok(()) };
    let open =
        LeftOpen { queue: queued.queue.is_none(), priority: queued.priority.is_none(), lifecycle: false };
    match known::fill(&playbook, &catalog, birth.run.clone(), open) {
        Ok(filled) => birth.run = filled,
        Err(error) => tracing::warn!(schedule = schedule.name, "{name} cannot be started so: {error}"),
    }
    Ok(())
}
