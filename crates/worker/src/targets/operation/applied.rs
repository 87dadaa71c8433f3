//! The targets of a run that an operation is about, page by page: those that are in doubt, then those that were applied.

use std::collections::HashSet;

use serde_json::{Value, json};
use waypost_kernel::Outcome;
use waypost_store::{ItemFilter, ItemRow, RunRow, Store};

use super::doubt::is_in_doubt;

const PAGE: usize = 250;

/// Which targets a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Failed, and perhaps changed all the same.
    Doubt,
    Applied,
}

pub(super) struct Applied {
    filter: ItemFilter,
    of: Of,
    applied: Option<String>,
    /// None: all of them.
    chosen: Option<HashSet<String>>,
    is_done: bool,
}

/// Targets, and where those after them begin; null at the end.
pub(super) struct AppliedPage {
    pub of: Of,
    pub items: Vec<ItemRow>,
    pub next: Value,
}

impl Applied {
    /// `cursor` is the `next` of a page, or nothing.
    pub fn new(parent: &RunRow, chosen: Option<&Value>, cursor: Option<&Value>) -> Applied {
        let kind = parent.lifecycle.items.first();
        let state = |outcome: Outcome| {
            let mut states = kind.map(|kind| &kind.states).into_iter().flatten();
            states.find(|state| state.outcome == Some(outcome)).map(|state| state.name.to_string())
        };
        let keys = |keys: &Vec<Value>| keys.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let chosen: Option<HashSet<String>> = chosen.and_then(Value::as_array).map(keys);
        let cursor = cursor.unwrap_or(&Value::Null);
        let begins = cursor["past_doubts"].as_bool().unwrap_or_default();
        // Chosen targets are applied ones.
        let of = if begins || chosen.is_some() { Of::Applied } else { Of::Doubt };
        let (failed, applied) = (state(Outcome::Failed), state(Outcome::Succeeded));
        Applied {
            filter: ItemFilter {
                run_id: parent.id().to_owned(),
                kind: kind.map(|kind| kind.name.to_string()),
                status: if of == Of::Doubt { failed } else { applied.clone() },
                limit: PAGE,
                cursor: cursor["after"].as_str().map(str::to_owned),
                ..ItemFilter::default()
            },
            of,
            applied,
            chosen,
            is_done: false,
        }
    }

    pub fn is_done(&self) -> bool {
        self.is_done
    }

    pub async fn next(&mut self, store: &dyn Store) -> waypost_store::Result<AppliedPage> {
        let page = store.item_page(self.filter.clone()).await?;
        let of = self.of;
        self.filter.cursor = page.next;
        if self.filter.cursor.is_none() {
            self.is_done = of == Of::Applied;
            self.of = Of::Applied;
            self.filter.status.clone_from(&self.applied);
        }
        let next = match self.is_done {
            true => Value::Null,
            false => json!({ "past_doubts": self.of == Of::Applied, "after": self.filter.cursor }),
        };
        let is_meant = |item: &ItemRow| match of {
            Of::Doubt => is_in_doubt(item),
            Of::Applied => self.chosen.as_ref().is_none_or(|keys| keys.contains(&item.key)),
        };
        Ok(AppliedPage { of, items: page.items.into_iter().filter(is_meant).collect(), next })
    }
}
