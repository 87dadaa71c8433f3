//! A history with what the checks look up in it.

use std::collections::BTreeMap;

use super::super::record::{Ask, Call, EventRow, History, RunRow};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Ready,
    Held,
    Parked,
    Settled,
}

/// Of the states of all lifecycles that histories use; the same name means the same in each.
pub fn phase(state: &str) -> Phase {
    match state {
        "queued" | "pending" => Phase::Ready,
        "claimed" | "running" | "RUNNING" => Phase::Held,
        "paused" => Phase::Parked,
        "success" | "completed" | "failed" | "cancelled" | "SUCCESS" | "FAILED" => Phase::Settled,
        other => panic!("no history has the state {other:?}"),
    }
}

impl EventRow {
    pub fn was(&self) -> Option<Phase> {
        self.from.as_deref().map(phase)
    }

    pub fn is(&self) -> Phase {
        phase(&self.to)
    }

    pub fn enters(&self, into: Phase) -> bool {
        self.is() == into && self.was() != Some(into)
    }

    /// A worker has it from here on.
    pub fn is_grant(&self) -> bool {
        self.is() == Phase::Held
            && (self.enters(Phase::Held) || matches!(&*self.command, "take-over" | "steal"))
    }
}

#[derive(Debug)]
pub struct Facts<'a> {
    pub history: &'a History,
    pub runs: BTreeMap<&'a str, &'a RunRow>,
    /// By run, in the order of their positions.
    pub events: BTreeMap<&'a str, Vec<&'a EventRow>>,
    pub by_position: BTreeMap<u64, &'a EventRow>,
    /// Claims and begins by hand, by the worker's name.
    pub grants: BTreeMap<&'a str, &'a Call>,
}

impl<'a> Facts<'a> {
    pub fn of(history: &'a History) -> Facts<'a> {
        let mut events: BTreeMap<&str, Vec<&EventRow>> = BTreeMap::new();
        for event in &history.tables.events {
            events.entry(&event.run_id).or_default().push(event);
        }
        let worker = |call: &'a Call| match &call.ask {
            Ask::Claim { worker, .. } | Ask::Begin { worker, .. } => Some((worker.as_str(), call)),
            _ => None,
        };
        Facts {
            history,
            runs: history.tables.runs.iter().map(|run| (run.run_id.as_str(), run)).collect(),
            events,
            by_position: history.tables.events.iter().map(|event| (event.position, event)).collect(),
            grants: history.calls.iter().filter_map(worker).collect(),
        }
    }

    pub fn done(&self) -> impl Iterator<Item = &'a Call> {
        self.history.calls.iter().filter(|call| call.is_done())
    }

    pub fn events_of(&self, run_id: &str) -> &[&'a EventRow] {
        self.events.get(run_id).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn end_of(&self, run_id: &str) -> Option<&'a EventRow> {
        self.events_of(run_id).iter().find(|event| event.enters(Phase::Settled)).copied()
    }

    /// An SQL user began it by setting its status.
    pub fn is_by_hand(&self, grant: &EventRow) -> bool {
        self.grants.get(grant.by.as_str()).is_some_and(|call| matches!(call.ask, Ask::Begin { .. }))
    }
}
