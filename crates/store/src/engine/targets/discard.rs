//! Failed targets that are given up: a chunk at a time, so that however many there are, few are held.

use serde_json::{Map, json};
use waypost_kernel::item::{Item, ItemAsk, decide_items};
use waypost_kernel::lifecycle::{Actor, Outcome};

use super::{item_changes, kind_of};
use crate::engine::access::audit;
use crate::engine::edit::{Edit, Extra, ItemChange, Stored, StoredItem};
use crate::engine::tx::{ItemsIn, ItemsOf, Saved, Tx};
use crate::rules::intake::{check_name, check_reason, merge};
use crate::seam::access::Who;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::iso;
use crate::seam::targets::{DiscardTargets, MOST_TARGETS};
use crate::statement::Sql;
use crate::tokens::who;

/// Others write the run at the same time.
const ROUNDS: usize = 24;

/// Gives how many were discarded now, in one transaction with its entry in the audit log.
pub(crate) async fn discard_targets<T: Tx + Sql>(tx: &mut T, write: &DiscardTargets) -> Result<u64> {
    check_name("by", &write.by)?;
    check_name("reason", write.reason.trim())?;
    check_reason(Some(&write.reason))?;
    let mut count = 0;
    let mut from = 0;
    let mut names = write.keys.as_deref();
    loop {
        let (chunk, rest) = match names {
            Some(names) => {
                let (chunk, rest) = names.split_at(names.len().min(MOST_TARGETS));
                (Some(chunk), rest)
            }
            None => (None, &[][..]),
        };
        let (discarded, last) = discard(tx, write, chunk, from).await?;
        count += discarded;
        match last {
            Some(last) if chunk.is_none() => from = last + 1,
            None if chunk.is_none() => break,
            _ if rest.is_empty() => break,
            _ => names = Some(rest),
        }
    }
    let who = Who::new(&write.tenant, &write.by, Some(write.reason.clone()));
    audit(tx, &who, "discard", &write.run_id).await?;
    Ok(count)
}

/// The next of them; also the place of the last that was looked at.
async fn discard<T: Tx>(
    tx: &mut T,
    write: &DiscardTargets,
    keys: Option<&[String]>,
    from: usize,
) -> Result<(u64, Option<usize>)> {
    for _ in 0..ROUNDS {
        let stored = tx.runs(&[&write.run_id]).await?.pop();
        let stored = stored.filter(|stored| stored.row.tenant == write.tenant);
        let stored = stored.ok_or_else(|| StoreError::no_run(&write.run_id))?;
        let (found, last) = failed(tx, &stored, write, keys, from).await?;
        if found.is_empty() {
            return Ok((0, last));
        }
        let edit = decide(tx, stored, write, &found)?;
        if tx.save(vec![edit]).await?.first() != Some(&Saved::Lost) {
            return Ok((found.len() as u64, last));
        }
    }
    Err(StoreError::Unavailable(format!("{} changed each time; try again", write.run_id)))
}

async fn failed<T: Tx>(
    tx: &mut T,
    stored: &Stored,
    write: &DiscardTargets,
    keys: Option<&[String]>,
    from: usize,
) -> Result<(Vec<StoredItem>, Option<usize>)> {
    let kind = kind_of(stored)?;
    let state = kind.states.iter().find(|state| state.outcome == Some(Outcome::Failed));
    let Some(state) = state else { return Ok((Vec::new(), None)) };
    let Some(keys) = keys else {
        let code = write.code.as_deref();
        let ask = ItemsIn { stored, kind: &kind.name, status: &state.name, code, from, limit: MOST_TARGETS };
        let found = tx.items_in(&ask).await?;
        let last = found.last().map(|(place, _)| *place);
        return Ok((found.into_iter().map(|(_, it)| it).collect(), last));
    };
    let names = keys.iter().map(|key| (&*kind.name, key.as_str())).collect();
    let found = tx.items(&[ItemsOf { stored, names, failed: Vec::new() }]).await?;
    let found: Vec<StoredItem> = found.into_iter().filter(|it| keys.contains(&it.row.key)).collect();
    for key in keys {
        let Some(it) = found.iter().find(|it| it.row.key == *key) else {
            return Err(StoreError::invalid("keys", format!("there is no {} {key:?}", kind.name)));
        };
        if it.row.status != *state.name {
            let message = format!("{key:?} is {}; only what failed is discarded", it.row.status);
            return Err(StoreError::invalid("keys", message));
        }
    }
    let meant = |it: &StoredItem| {
        let code = it.row.failure.as_ref().map(|failure| &*failure.code);
        !it.row.discarded && write.code.as_deref().is_none_or(|asked| code == Some(asked))
    };
    Ok((found.into_iter().filter(meant).collect(), None))
}

fn decide<T: Tx>(tx: &T, stored: Stored, write: &DiscardTargets, found: &[StoredItem]) -> Result<Edit> {
    let ask = ItemAsk { discard: true, ..ItemAsk::default() };
    let asks: Vec<(Item, ItemAsk<'_>)> = found.iter().map(|it| (it.item.clone(), ask)).collect();
    let who = who(Actor::Operator, &write.by);
    let change = decide_items(&stored.row.lifecycle, &stored.row.run, &who, None, (&asks, &[]), tx.now())?;
    let patch = Map::from_iter([
        ("discarded_at".to_owned(), json!(iso(tx.now()))),
        ("discarded_by".to_owned(), json!(write.by)),
        ("discard_reason".to_owned(), json!(write.reason)),
    ]);
    let items = item_changes(&change, |key, it| {
        let was = found.iter().find(|found| found.row.key == key);
        let mut details = was.map(|was| was.row.details.clone()).unwrap_or_default();
        merge(&mut details, &patch);
        ItemChange { details: Some(details), patch: patch.clone(), ..it }
    });
    let mut edit = Edit::new(stored);
    edit.items.extend(items);
    edit.add(change, Extra::default());
    Ok(edit)
}
