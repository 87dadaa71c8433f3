//! What happened.

use waypost_kernel::text::MAX_PAGE;
use waypost_store::{EventRow, Feed, Reply};

use super::MemoryStore;

impl MemoryStore {
    pub(crate) fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.verb(move |state| {
            let number = state.number_of(&run_id)?;
            let events = state.entry(number)?.events.iter().map(|logged| &logged.row);
            Ok(events.filter(|event| event.seq > after_seq).take(limit.min(MAX_PAGE)).cloned().collect())
        })
    }

    pub(crate) fn feed(&self, after: Option<u64>, limit: usize) -> Reply<'_, Feed> {
        self.verb(move |state| {
            let Some(after) = after else { return Ok(Feed::after(state.last_position, Vec::new())) };
            let all = state.runs.values().flat_map(|entry| &entry.events).map(|logged| &logged.row);
            let mut events: Vec<&EventRow> = all.filter(|event| event.position > after).collect();
            events.sort_by_key(|event| event.position);
            Ok(Feed::after(after, events.into_iter().take(limit.min(MAX_PAGE)).cloned().collect()))
        })
    }
}
