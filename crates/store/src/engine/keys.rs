//! Concurrency keys: who holds them, and how many wait.

use std::collections::BTreeMap;

use waypost_kernel::text::MAX_PAGE;

use super::tx::Slot;
use super::waiting::{KEY_LIMIT, WaitTx, held, read_key_limits};
use crate::seam::error::Result;
use crate::seam::verbs::{KeyFilter, KeyRow, MOST_HOLDERS_NAMED};
use crate::statement::{query, values};

/// By key; as many statements however many there are.
pub(crate) async fn keys<T: WaitTx>(tx: &mut T, filter: &KeyFilter) -> Result<Vec<KeyRow>> {
    let (key, tenant) = filter.after.as_ref().map_or(("", ""), |(key, tenant)| (key, tenant));
    let asked = values![key, tenant, &filter.tenant, filter.limit.min(MAX_PAGE + 1)];
    let mut found: Vec<Slot> = Vec::new();
    for row in query(tx, T::KEYS, asked).await? {
        found.push((row.get(0)?, row.get(1)?));
    }
    let mut limits: BTreeMap<Slot, u64> = found.iter().map(|slot| (slot.clone(), KEY_LIMIT)).collect();
    if limits.is_empty() {
        return Ok(Vec::new());
    }
    read_key_limits(tx, &mut limits).await?;
    let keys: Vec<String> = found.iter().map(|(_, key)| key.clone()).collect();
    let mut facts = held(tx, T::HELD_WITH_KEYS, limits, MOST_HOLDERS_NAMED).await?;
    let mut waiting: BTreeMap<Slot, u64> = BTreeMap::new();
    let now = tx.now();
    for row in query(tx, T::WAITING_WITH_KEYS, values![keys, now]).await? {
        waiting.insert((row.get(0)?, row.get(1)?), row.get(2)?);
    }
    let row = |slot: Slot| {
        let facts = facts.remove(&slot).unwrap_or_default();
        let waiting = waiting.get(&slot).copied().unwrap_or_default();
        let (tenant, key) = slot;
        KeyRow { tenant, key, at_most: facts.at_most, held: facts.held, held_by: facts.by, waiting }
    };
    Ok(found.into_iter().map(row).collect())
}
