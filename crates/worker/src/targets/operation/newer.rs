//! What later runs of the same rule made of a target. What one of them changed since, or is about to change, is no drift: a run that set
//! its own value again would undo the newer one, whose reconciliation would then do the reverse.

use serde_json::{Map, Value, json};
use waypost_kernel::{Outcome, Phase, Span};
use waypost_store::{Filter, ItemFilter, ItemRow, Parts, RunRow, Store};

use super::doubt::is_in_doubt;
use super::reconcile::RECONCILE;
use crate::targets::alone::name_of;

/// A draft is kept for a week: what was begun earlier had ended before.
const OLDEST: Span = Span::from_seconds(8 * 24 * 3_600);
/// In the metadata of a run that sets mismatches of another one again: that one's id.
const CORRECTS: &str = "corrects";

/// The metadata of a run that sets mismatches of this one again.
pub(super) fn corrects(parent: &RunRow) -> Map<String, Value> {
    Map::from_iter([(CORRECTS.to_owned(), json!(root_of(parent)))])
}

/// Whether a run sets mismatches of another one again. The series of that one looks at what it did.
pub(in crate::targets) fn is_correction(run: &RunRow) -> bool {
    run.metadata.contains_key(CORRECTS)
}

/// The run whose values a run sets: its own id, unless it corrects another one.
fn root_of(run: &RunRow) -> &str {
    run.metadata.get(CORRECTS).and_then(Value::as_str).unwrap_or_else(|| run.id())
}

/// By this the run that an operation starts is one, however often it is asked for.
pub(super) fn retry_key(operation: &RunRow) -> String {
    format!("{RECONCILE}-retry:{}", operation.id())
}

/// Other runs of a rule, as they are at one moment.
pub(super) struct Others {
    /// Those that set other values and have ended since, or have not.
    newer: Vec<RunRow>,
    /// An unsettled run that corrects the same one, for another operation.
    pub open: Option<String>,
}

impl Others {
    pub async fn of(store: &dyn Store, parent: &RunRow, operation: &RunRow) -> waypost_store::Result<Others> {
        let mut filter = Filter {
            tenant: parent.tenant.clone(),
            lifecycle: Some(parent.lifecycle.name.to_string()),
            playbook: name_of(parent).map(str::to_owned),
            since: Some(parent.run.created_at - OLDEST),
            limit: 200,
            include: Parts { metadata: true, ..Parts::NONE },
            ..Filter::default()
        };
        let (root, own_key) = (root_of(parent), retry_key(operation));
        let mut others = Others { newer: Vec::new(), open: None };
        loop {
            let page = store.runs(filter.clone()).await?;
            for other in page.runs.into_iter().filter(|other| other.id() != parent.id()) {
                if root_of(&other) != root {
                    let is_newer = match other.phase() {
                        Phase::Draft => false,
                        Phase::Settled => other.run.finished_at > parent.run.started_at,
                        _ => true,
                    };
                    others.newer.extend(Some(other).filter(|_| is_newer));
                } else if is_correction(&other)
                    && other.phase() != Phase::Settled
                    && other.idempotency_key.as_ref() != Some(&own_key)
                {
                    others.open = Some(other.id().to_owned());
                }
            }
            match page.next {
                Some(next) => filter.cursor = Some(next),
                None => return Ok(others),
            }
        }
    }

    /// The run that changed the target since, or is about to; each is asked for by its key.
    pub async fn changed(&self, store: &dyn Store, item: &ItemRow) -> waypost_store::Result<Option<&RunRow>> {
        for other in &self.newer {
            let filter = ItemFilter {
                run_id: other.id().to_owned(),
                kind: Some(item.kind.clone()),
                key: Some(item.key.clone()),
                limit: 1,
                ..ItemFilter::default()
            };
            let found = store.item_page(filter).await?.items.pop();
            if found.is_some_and(|found| is_change_after(other, &found, item)) {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }
}

fn is_change_after(run: &RunRow, found: &ItemRow, item: &ItemRow) -> bool {
    let mut kinds = run.lifecycle.items.iter().filter(|kind| *kind.name == *found.kind);
    let state = kinds.find_map(|kind| kind.states.iter().find(|state| *state.name == *found.status));
    let Some(state) = state else { return false };
    let is_later = found.finished_at > item.finished_at;
    match (state.phase, state.outcome) {
        (Phase::Ready | Phase::Held, _) => true,
        (_, Some(Outcome::Succeeded | Outcome::Reverted)) => is_later,
        (_, Some(Outcome::Failed)) => is_later && is_in_doubt(found),
        _ => false,
    }
}
