//! A schedule whose run names a playbook that workers have: what the playbook says is looked up when it fires, as when a person starts it.

use waypost_kernel::tenant::tenant_of;
use waypost_store::{Birth, Result, Store};

use super::schedule::{Schedule, What};
use crate::playbook::Playbooks;
use crate::playbook::known::{self, LeftOpen, NotKnown};

/// Fills in what the playbook says and the schedule left open. A name that nobody has yet stays as it is: whoever takes the run knows more,
/// and so does an input that does not fit, which fails the run with words.
pub async fn fill(store: &dyn Store, schedule: &Schedule, birth: &mut Birth) -> Result<()> {
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
