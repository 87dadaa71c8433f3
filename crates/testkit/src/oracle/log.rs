//! What happened.

use waypost_kernel::text::MAX_PAGE;
use waypost_store::{EventRow, Feed, LeftRun, MovedRun, Projected, Reply, RunRow};

use super::MemoryStore;
use super::rules::intake::check_name;

impl MemoryStore {
    pub(crate) fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.verb(move |state| {
            let number = state.number_of(&run_id)?;
            let events = state.entry(number)?.events.iter().map(|logged| &logged.row);
            Ok(events.filter(|event| event.seq > after_seq).take(limit.min(MAX_PAGE)).cloned().collect())
        })
    }

    /// Nothing is too large for it.
    pub(crate) fn events_in_brief(
        &self,
        run_id: String,
        after_seq: u64,
        limit: usize,
    ) -> Reply<'_, Vec<EventRow>> {
        self.events(run_id, after_seq, limit)
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

    pub(crate) fn projected(&self, after: u64, limit: usize) -> Reply<'_, Projected> {
        self.verb(move |state| {
            let mut events: Vec<(&RunRow, &EventRow)> = Vec::new();
            for entry in state.runs.values() {
                events.extend(entry.events.iter().map(|logged| (&entry.row, &logged.row)));
            }
            events.retain(|(_, event)| event.position > after);
            events.sort_by_key(|(_, event)| event.position);
            let more = events.len() >= limit;
            events.truncate(limit);
            let mut runs: Vec<MovedRun> = Vec::new();
            for (row, event) in &events {
                if row.lifecycle.projected && runs.iter().all(|known| known.run_id != event.run_id) {
                    let (tenant, run_id) = (event.tenant.clone(), event.run_id.clone());
                    runs.push(MovedRun { tenant, run_id, at: event.at });
                }
            }
            Ok(Projected { runs, position: events.last().map_or(after, |(_, event)| event.position), more })
        })
    }

    pub(crate) fn cursor(&self, name: String) -> Reply<'_, Option<u64>> {
        self.verb(move |state| Ok(state.cursors.get(&name).copied()))
    }

    pub(crate) fn put_cursor(&self, name: String, position: u64) -> Reply<'_, ()> {
        self.verb(move |state| {
            check_name("name", &name)?;
            let known = state.cursors.entry(name).or_default();
            *known = (*known).max(position);
            Ok(())
        })
    }

    pub(crate) fn leave_behind(&self, name: String, run_id: String, position: u64) -> Reply<'_, ()> {
        self.verb(move |state| {
            check_name("name", &format!("{name} left {run_id}"))?;
            let left = state.left.entry((name, run_id)).or_default();
            *left = (*left).max(position);
            Ok(())
        })
    }

    pub(crate) fn catch_up_with(&self, name: String, run_id: String, position: u64) -> Reply<'_, ()> {
        self.verb(move |state| {
            let key = (name, run_id);
            if state.left.get(&key).is_some_and(|left| *left <= position) {
                state.left.remove(&key);
            }
            Ok(())
        })
    }

    pub(crate) fn left_behind(&self, name: String) -> Reply<'_, Vec<LeftRun>> {
        self.verb(move |state| {
            let of_reader = state.left.keys().filter(|(reader, _)| *reader == name);
            let row = |id: &str| state.runs.values().map(|entry| &entry.row).find(|row| row.id() == id);
            let left = of_reader.map(|(_, run_id)| LeftRun {
                tenant: row(run_id).map(|row| row.tenant.clone()).unwrap_or_default(),
                run_id: run_id.clone(),
            });
            Ok(left.collect())
        })
    }
}
