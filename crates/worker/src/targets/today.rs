//! How often targets of a rule were changed since midnight.

use std::collections::HashMap;

use waypost_kernel::{Outcome, Span, Time};
use waypost_store::{Filter, ItemFilter, RunRow, Store};

use super::alone::name_of;
use super::row::hashes;
use crate::playbook::{Guardrails, Violation};

/// A draft is kept for a week: a run that was begun earlier than this has ended before today.
const OLDEST: Span = Span::from_seconds(8 * 24 * 3_600);
const PAGE: usize = 500;

/// Counted by two hashes of their keys: the keys themselves would take ten times the room.
#[derive(Debug, Default)]
pub struct Today(HashMap<(u64, u64), u32>);

impl Today {
    /// Reads what runs of the same rule have changed today, page by page; nothing where no guardrail asks for it.
    pub async fn of(
        store: &dyn Store,
        run: &RunRow,
        guardrails: &Guardrails,
        now: Time,
    ) -> waypost_store::Result<Today> {
        let mut today = Today::default();
        if guardrails.per_day.is_none() {
            return Ok(today);
        }
        let midnight = guardrails.midnight(now);
        let mut filter = Filter {
            tenant: run.tenant.clone(),
            lifecycle: Some(run.lifecycle.name.to_string()),
            limit: 200,
            ..Filter::default()
        };
        loop {
            let page = store.runs(filter.clone()).await?;
            let is_over = page.runs.iter().any(|other| other.run.created_at < midnight - OLDEST);
            for other in page.runs.iter().filter(|other| name_of(other) == name_of(run)) {
                let ended_before = other.run.finished_at.is_some_and(|at| at < midnight);
                if !ended_before {
                    today.count_run(store, other, midnight).await?;
                }
            }
            match page.next.filter(|_| !is_over) {
                Some(next) => filter.cursor = Some(next),
                None => return Ok(today),
            }
        }
    }

    async fn count_run(
        &mut self,
        store: &dyn Store,
        run: &RunRow,
        midnight: Time,
    ) -> waypost_store::Result<()> {
        let Some(kind) = run.lifecycle.items.first() else { return Ok(()) };
        let changed = kind
            .states
            .iter()
            .filter(|state| matches!(state.outcome, Some(Outcome::Succeeded | Outcome::Reverted)));
        for state in changed {
            let mut filter = ItemFilter {
                run_id: run.id().to_owned(),
                kind: Some(kind.name.to_string()),
                status: Some(state.name.to_string()),
                limit: PAGE,
                ..ItemFilter::default()
            };
            loop {
                let page = store.item_page(filter.clone()).await?;
                for item in page.items.iter().filter(|item| item.finished_at.is_some_and(|at| at >= midnight))
                {
                    *self.0.entry(hashes(&item.key)).or_default() += 1;
                }
                match page.next {
                    Some(next) => filter.cursor = Some(next),
                    None => break,
                }
            }
        }
        Ok(())
    }

    pub fn judge(&self, guardrails: &Guardrails, key: &str) -> Option<Violation> {
        guardrails.judge_day(self.0.get(&hashes(key)).copied().unwrap_or_default())
    }
}
