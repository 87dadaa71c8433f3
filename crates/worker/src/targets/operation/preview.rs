//! A preview that a worker gathers: of a rule that was started by its name, where whoever asked has no targets at hand. It is a run
//! of its own, a child of the run that it is for.

use serde_json::json;
use waypost_kernel::Phase;
use waypost_store::{CommandWrite, NewRun, RunRow, Store, StoreError};

use super::{LIFECYCLE, Operation, failed, unfit};
use crate::interpret::{Ending, Goal, Parting};
use crate::targets::gather::{NotGathered, gather};
use crate::targets::source::Reader;

pub(super) const PREVIEW: &str = "preview";

/// The run that gathers the targets of another one. Asked for twice, it is one.
pub fn preview_of(run: &RunRow, by: &str) -> NewRun {
    NewRun {
        tenant: run.tenant.clone(),
        lifecycle: LIFECYCLE.to_owned(),
        queue: run.queue.clone(),
        priority: run.priority,
        input: json!({ LIFECYCLE: PREVIEW }),
        parent_run_id: Some(run.id().to_owned()),
        playbook: run.playbook.clone(),
        carried: run.carried.clone(),
        title: Some(format!("preview of {}", run.title.as_deref().unwrap_or_else(|| run.id()))),
        idempotency_key: Some(format!("{PREVIEW}:{}", run.id())),
        by: by.to_owned(),
        ..NewRun::default()
    }
}

pub(super) async fn perform(operation: &Operation<'_>) -> Parting {
    let Operation { shared, lease, playbook, rule, parent, .. } = operation;
    if parent.phase() != Phase::Draft {
        return unfit(&format!("{} is {} already", parent.id(), parent.status()));
    }
    let reader = match Reader::of_worker(shared, parent) {
        Ok(reader) => reader,
        Err(problem) => return failed("NO_CLIENT", &problem),
    };
    let name = &shared.options.name;
    let gathered = tokio::select! {
        biased;
        () = lease.stopped() => return operation.stopped(|ending| ending),
        gathered = gather(&*shared.store, parent, (playbook, rule), name, reader) => gathered,
    };
    match gathered {
        Ok(preview) => {
            let mut ending = Ending::new(Goal::Succeed);
            ending.details.insert(PREVIEW.to_owned(), preview.object());
            Parting::End(ending)
        }
        // Whoever goes on begins at the row that was stored last.
        Err(NotGathered::Store(StoreError::Unavailable(_))) => Parting::GiveBack(None),
        Err(error) => {
            let message = error.to_string();
            give_up(&*shared.store, parent, name, &message).await;
            failed("NOT_GATHERED", &message)
        }
    }
}

/// A run whose targets cannot be gathered is not one that could be queued.
pub async fn give_up(store: &dyn Store, run: &RunRow, by: &str, why: &str) {
    let cancel = CommandWrite {
        tenant: run.tenant.clone(),
        run_id: run.id().to_owned(),
        name: "cancel".to_owned(),
        by: by.to_owned(),
        reason: Some(why.chars().take(900).collect()),
        ..CommandWrite::default()
    };
    if let Err(error) = store.command(cancel).await {
        tracing::warn!(run_id = run.id(), %error, "it stays a draft without its targets");
    }
}
