//! The parts of a run.

use waypost_kernel::Token;
use waypost_kernel::event::Change;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::tenant::local_name;
use waypost_kernel::text::MAX_PAGE;
use waypost_store::{
    ItemFilter, ItemPage, ItemRow, ItemWrite, ItemsWrite, PAGE_BYTES, Reply, Result, StoreError,
};

use super::MemoryStore;
use super::rules::intake::{cleaned_output, merge};
use super::rules::item_writes::{Wanted, decide, wanted};
use super::state::{Entry, State};

impl MemoryStore {
    pub(crate) fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        self.verb(move |state| state.put_items(&write))
    }

    pub(crate) fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>> {
        self.verb(move |state| {
            let number = state.number_of(&run_id)?;
            let rows = state.entry(number)?.item_rows();
            let wanted = |row: &ItemRow| kind.as_ref().is_none_or(|kind| is_called(row, kind));
            Ok(rows.into_iter().filter(wanted).collect())
        })
    }

    pub(crate) fn item_page(&self, filter: ItemFilter) -> Reply<'_, ItemPage> {
        self.verb(move |state| state.item_page(&filter))
    }
}

/// By the stored name of its kind, or as the tenant calls it.
fn is_called(row: &ItemRow, kind: &str) -> bool {
    row.kind == kind || local_name(&row.kind) == kind
}

impl State {
    fn item_page(&mut self, filter: &ItemFilter) -> Result<ItemPage> {
        let number = self.number_of(&filter.run_id)?;
        let is = |asked: &Option<String>, it: &str| asked.as_ref().is_none_or(|asked| asked == it);
        let after: Option<(String, String)> = match &filter.cursor {
            None => None,
            Some(text) => Some(
                serde_json::from_str(text)
                    .map_err(|_| StoreError::invalid("cursor", "is none that an earlier page gave"))?,
            ),
        };
        let all = self.entry(number)?.item_rows();
        let begin = match &after {
            None => 0,
            Some((kind, key)) => {
                let at = all.iter().position(|row| row.kind == *kind && row.key == *key);
                at.map_or(all.len(), |at| at + 1)
            }
        };
        let mut page: Vec<ItemRow> = Vec::new();
        let mut bytes = 0;
        let mut next = None;
        for row in all.into_iter().skip(begin).filter(|row| {
            let code = row.failure.as_ref().map(|failure| &*failure.code);
            filter.kind.as_ref().is_none_or(|kind| is_called(row, kind))
                && is(&filter.key, &row.key)
                && is(&filter.status, &row.status)
                && filter.code.as_deref().is_none_or(|asked| code == Some(asked))
        }) {
            bytes += row.object().to_string().len();
            if page.len() == filter.limit.clamp(1, MAX_PAGE) || !page.is_empty() && bytes > PAGE_BYTES {
                next = page.last().map(|last| serde_json::json!([last.kind, last.key]).to_string());
                break;
            }
            page.push(row);
        }
        Ok(ItemPage { items: page, next })
    }
}

impl State {
    fn put_items(&mut self, write: &ItemsWrite) -> Result<Vec<ItemRow>> {
        let number = self.number_of(&write.held.run_id)?;
        let (wanted, change) = self.moves(number, (write.held.token, &write.by), &write.items)?;
        self.commit_items(number, &wanted, change)?;
        let rows = self.entry(number)?.item_rows();
        let of =
            |it: &ItemWrite| rows.iter().find(|row| is_called(row, &it.kind) && row.key == it.key).cloned();
        Ok(write.items.iter().filter_map(of).collect())
    }

    /// What writes of items come to; nothing is written yet.
    pub fn moves<'w>(
        &self,
        number: u64,
        holder: (Token, &str),
        writes: &'w [ItemWrite],
    ) -> Result<(Vec<Wanted<'w>>, Change)> {
        let row = self.row(number)?;
        let entry = self.runs.get(&number);
        let items = entry.map(|entry| entry.items.as_slice()).unwrap_or_default();
        let name = |item: &Item| entry.map(|entry| entry.item_row(item).name).unwrap_or_default();
        let find = |at: u8, key: &str| {
            let item = items.iter().find(|item| item.kind == at && *item.key == *key);
            item.map(|item| (item.clone(), name(item)))
        };
        let wanted = wanted(&row.lifecycle, writes, self.now, find)?;
        let kinds = &row.lifecycle.items;
        let failed = items.iter().filter(|item| item.ends_course(&kinds[usize::from(item.kind)]));
        let failed: Vec<Item> = failed.cloned().collect();
        let change = decide(row, holder, (&wanted, &failed), self.now)?;
        Ok((wanted, change))
    }

    pub fn commit_items(&mut self, number: u64, wanted: &[Wanted<'_>], change: Change) -> Result<()> {
        let moved: Vec<(u8, String)> = change
            .events
            .iter()
            .flat_map(|event| &event.effect.moved)
            .map(|moved| (moved.item.kind, moved.item.key.to_string()))
            .collect();
        self.commit(number, change)?;
        let entry = self.entry(number)?;
        for it in wanted {
            let of = (it.kind, it.write.key.clone());
            let settled = entry.row.lifecycle.items[usize::from(it.kind)].phase(it.item.state);
            // The same again, of an item that is done, is a replay and changes nothing.
            if moved.contains(&of) || settled != Phase::Settled {
                entry.store_beside(of, it);
            }
        }
        Ok(())
    }
}

impl Entry {
    fn store_beside(&mut self, of: (u8, String), wanted: &Wanted<'_>) {
        let write = wanted.write;
        let beside = self.beside.entry(of).or_default();
        if wanted.is_new {
            beside.name.clone_from(&wanted.name);
        }
        if let Some(output) = &write.output {
            beside.output = cleaned_output(output.clone());
        }
        merge(&mut beside.details, &write.details);
    }

    /// By the name of their kind, then in the order in which they were added.
    pub fn item_rows(&self) -> Vec<ItemRow> {
        let mut rows: Vec<ItemRow> = self.items.iter().map(|item| self.item_row(item)).collect();
        rows.sort_by(|one, other| one.kind.cmp(&other.kind));
        rows
    }

    fn item_row(&self, item: &Item) -> ItemRow {
        let kind = &self.row.lifecycle.items[usize::from(item.kind)];
        let beside = self.beside.get(&(item.kind, item.key.to_string())).cloned().unwrap_or_default();
        ItemRow {
            kind: kind.name.to_string(),
            key: item.key.to_string(),
            name: if beside.name.is_empty() { item.key.to_string() } else { beside.name },
            status: kind.state(item.state).name.to_string(),
            attempts: item.attempts,
            max_retries: item.max_retries,
            try_no: item.try_no,
            throttled: item.throttled,
            waited_ms: item.waited_ms,
            in_doubt: item.in_doubt,
            progress: item.progress,
            not_before: item.not_before,
            discarded: item.discarded,
            reruns: item.reruns,
            role: item.role,
            failure: item.failure.clone(),
            started_at: item.started_at,
            finished_at: item.finished_at,
            output: beside.output,
            details: beside.details,
        }
    }
}
