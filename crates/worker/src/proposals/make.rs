//! From a step's outcome to rows: each of its proposals becomes an entry of the inbox, and then a proposal that names it. Both have
//! keys made of the run, the step and a number, so that whoever does it again finds what is there.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use waypost_kernel::Actor;
use waypost_kernel::item::Role;
use waypost_kernel::text::{MAX_NAME_BYTES, refuse_text};
use waypost_store::codec::hex;
use waypost_store::{
    AGENT_SLUG, AGENTS_QUEUE, INBOX, INBOX_ID, ItemRow, NewRun, PROPOSAL, Result, RunRow, Store, StoreError,
};

use super::entry::source;
use crate::playbook::{Playbooks, known};

/// The member of a step's details that its outcome put there.
const PROPOSALS: &str = "proposals";
/// Of a title.
const MAX_TITLE_CHARS: usize = 200;

/// Stored by one write.
const AT_ONCE: usize = 100;

/// Whether what is not there yet is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    New,
    /// Of a run that is shown once more: what was pruned since does not come back.
    KnownOnly,
}

/// One that a step made, and which of its own it is.
struct Proposed<'r> {
    step: &'r str,
    number: usize,
    body: &'r Value,
}

/// The ids of what a run's ended steps propose, in their order.
pub(crate) async fn made(
    store: &dyn Store,
    row: &RunRow,
    steps: &[ItemRow],
    making: Making,
) -> Result<Vec<String>> {
    let proposed = proposed(steps);
    if proposed.is_empty() {
        return Ok(Vec::new());
    }
    let playbook = applied_by(store, row).await?;
    let entries = stored(store, proposed.iter().map(|one| entry(row, one)).collect(), making).await?;
    let with_entries = proposed.iter().zip(entries).filter_map(|(one, entry)| Some((one, entry?)));
    let proposals = with_entries.map(|(one, entry)| proposal(row, one, &entry, playbook.clone()));
    let ids = stored(store, proposals.collect(), making).await?;
    Ok(ids.into_iter().flatten().collect())
}

fn proposed(steps: &[ItemRow]) -> Vec<Proposed<'_>> {
    let ended = steps.iter().filter(|item| item.role != Role::Cleanup && item.finished_at.is_some());
    let mut all = Vec::new();
    for item in ended {
        let list = item.details.get(PROPOSALS).and_then(Value::as_array).into_iter().flatten();
        all.extend(list.enumerate().map(|(at, body)| Proposed { step: &item.key, number: at + 1, body }));
    }
    all
}

/// The run's playbook as it is pinned, if that says how proposals are applied.
async fn applied_by(store: &dyn Store, row: &RunRow) -> Result<Option<String>> {
    let Some(pin) = row.playbook.as_deref() else { return Ok(None) };
    let catalog = store.lifecycles().await?.of_tenant(&row.tenant);
    match known::find(store, &Playbooks::default(), &catalog, &row.tenant, pin).await {
        Ok(known) => {
            let applies = known.playbook.filter(|playbook| playbook.apply.is_some());
            Ok(applies.map(|playbook| playbook.pin()))
        }
        Err(known::NotKnown::Store(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The id of each; none if it cannot be stored, ever: its run is shown without it.
async fn stored(store: &dyn Store, new: Vec<NewRun>, making: Making) -> Result<Vec<Option<String>>> {
    let mut ids = Vec::with_capacity(new.len());
    for new in new.chunks(AT_ONCE) {
        match making {
            Making::New => {
                let made = store.enqueue(new.to_vec()).await?.into_iter();
                let found = made.map(|made| made.map(|made| Some(made.run.id().to_owned())));
                for (new, found) in new.iter().zip(found) {
                    ids.push(id_of(new, found)?);
                }
            }
            Making::KnownOnly => {
                for new in new {
                    ids.push(id_of(new, store.dry_run(new.clone()).await)?);
                }
            }
        }
    }
    Ok(ids)
}

fn id_of(new: &NewRun, found: Result<Option<String>>) -> Result<Option<String>> {
    let key = new.idempotency_key.as_deref().unwrap_or_default();
    match found {
        // A step that ran again, and proposes otherwise: what people may have decided on already stays.
        Err(StoreError::KeyReused { run_id, .. }) => Ok(Some(run_id)),
        Err(error @ (StoreError::Invalid { .. } | StoreError::Refused(_))) => {
            tracing::warn!(key, %error, "a proposal cannot be stored");
            Ok(None)
        }
        found => found,
    }
}

fn entry(row: &RunRow, one: &Proposed<'_>) -> NewRun {
    NewRun {
        lifecycle: INBOX.to_owned(),
        input: json!({ "title": title(one.body) }),
        metadata: Map::from_iter([source()].into_iter().chain(origin(row, one))),
        ..of_run(row, one, INBOX)
    }
}

fn proposal(row: &RunRow, one: &Proposed<'_>, entry: &str, playbook: Option<String>) -> NewRun {
    let mut metadata = Map::from_iter(origin(row, one));
    metadata.insert(INBOX_ID.to_owned(), json!(entry));
    for name in ["kind", "target", "base_revision"] {
        if let Some(value) = one.body.get(name).filter(|value| value.is_string() || value.is_number()) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    NewRun {
        lifecycle: PROPOSAL.to_owned(),
        input: json!({ "proposal": one.body, "run_id": row.id(), "agent_slug": row.metadata.get(AGENT_SLUG) }),
        concurrency_key: metadata.get("target").map(target_key),
        metadata,
        playbook,
        ..of_run(row, one, PROPOSAL)
    }
}

/// Two changes of one thing are not made at once. What is no name for a key is known by its digest.
fn target_key(target: &Value) -> String {
    let text = target.as_str().map_or_else(|| target.to_string(), str::to_owned);
    let key = format!("{PROPOSAL}/{text}");
    match refuse_text("target", &key, MAX_NAME_BYTES) {
        Ok(()) => key,
        Err(_) => format!("{PROPOSAL}/sha256:{}", hex(&Sha256::digest(text))),
    }
}

fn of_run(row: &RunRow, one: &Proposed<'_>, kind: &str) -> NewRun {
    NewRun {
        tenant: row.tenant.clone(),
        queue: AGENTS_QUEUE.to_owned(),
        title: Some(title(one.body)),
        parent_run_id: Some(row.id().to_owned()),
        correlation_id: row.correlation_id.clone(),
        idempotency_key: Some(format!("{kind}/{}/{}/{}", row.id(), one.step, one.number)),
        by: row.metadata.get(AGENT_SLUG).and_then(Value::as_str).unwrap_or("agent").to_owned(),
        actor: Actor::Client,
        ..NewRun::default()
    }
}

fn origin(row: &RunRow, one: &Proposed<'_>) -> Vec<(String, Value)> {
    let slug = row.metadata.get(AGENT_SLUG).cloned();
    let slug = slug.map(|slug| (AGENT_SLUG.to_owned(), slug));
    let rest = [("run_id", json!(row.id())), ("step", json!(one.step)), ("number", json!(one.number))];
    slug.into_iter().chain(rest.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// What people read first: its title, or its beginning.
fn title(body: &Value) -> String {
    let named = ["title", "summary", "text"].into_iter().find_map(|name| body.get(name)?.as_str());
    let text = named.or(body.as_str()).map_or_else(|| body.to_string(), str::to_owned);
    let plain: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    let cut: String = plain.trim().chars().take(MAX_TITLE_CHARS).collect();
    if cut.is_empty() { "a proposal".to_owned() } else { cut }
}
