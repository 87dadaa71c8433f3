//! What happened.

use waypost_kernel::text::MAX_PAGE;
use waypost_store::{EventRow, Log, Reply};

use super::MemoryStore;

impl Log for MemoryStore {
    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.verb(move |state| {
            let number = state.number_of(&run_id)?;
            let events = state.entry(number)?.events.iter().map(|logged| &logged.row);
            Ok(events.filter(|event| event.seq > after_seq).take(limit.min(MAX_PAGE)).cloned().collect())
        })
    }

    fn feed(&self, after_position: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.verb(move |state| {
            let all = state.runs.values().flat_map(|entry| &entry.events).map(|logged| &logged.row);
            let mut events: Vec<&EventRow> = all.filter(|event| event.position > after_position).collect();
            events.sort_by_key(|event| event.position);
            Ok(events.into_iter().take(limit.min(MAX_PAGE)).cloned().collect())
        })
    }

    fn last_position(&self) -> Reply<'_, u64> {
        self.verb(|state| Ok(state.last_position))
    }
}
