//! Who works: signs of life of workers, and what is known of each.

use serde_json::{Value, json};
use waypost_kernel::{Span, Time};

use crate::seam::access::EVERY_TENANT;
use crate::seam::run::iso;
use crate::seam::stats::Holder;
use crate::seam::verbs::Can;

/// How often a worker gives a sign of life.
pub const BEAT: Span = Span::from_seconds(15);
/// A worker that was silent for longer does not count: three signs of life were missed.
pub const LIVE: Span = Span::from_seconds(45);
/// A worker that was silent for longer is forgotten.
pub const KEPT: Span = Span::from_seconds(600);

/// A worker's sign of life: who it is and what it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerBeat {
    pub name: String,
    /// Whose runs it takes; everybody's if it is not given.
    pub tenant: Option<String>,
    pub queues: Vec<String>,
    /// Runs of any lifecycle if this is empty.
    pub lifecycles: Vec<String>,
    /// What it can execute. Anything if it is not given.
    pub can: Option<Can>,
    /// The one run that it is for, if it takes no other.
    pub only: Option<String>,
    /// Runs at once; of one that is known by its claims alone, what it asked for last.
    pub slots: u64,
    pub version: String,
    /// It did not say so itself: its claims told. What a worker says of itself is not replaced by that.
    pub by_claims: bool,
}

/// What is known of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerRow {
    pub name: String,
    /// Whose runs it takes; `*` is everybody's.
    pub tenant: String,
    pub queues: Vec<String>,
    pub lifecycles: Vec<String>,
    pub can: Option<Can>,
    pub only: Option<String>,
    /// None of one that never gave a sign of life and holds runs: a caller in SQL, an older binary.
    pub slots: Option<u64>,
    /// How many runs it holds, by its leases.
    pub busy: u64,
    /// The first of its leases ends then.
    pub stale_after: Option<Time>,
    pub version: Option<String>,
    pub started_at: Option<Time>,
    pub seen_at: Option<Time>,
    pub by_claims: bool,
}

impl WorkerRow {
    pub fn is_live(&self, now: Time) -> bool {
        self.seen_at.is_some_and(|seen| now - seen <= LIVE)
    }

    pub fn object(&self) -> Value {
        // Each playbook is there with its hash and without: people know it by its name.
        let names = |can: &Can| -> Vec<String> {
            let own = can.playbooks.iter().filter(|name| !name.contains('@'));
            own.cloned().collect()
        };
        json!({
            "name": self.name,
            "tenant": self.tenant,
            "queues": self.queues,
            "lifecycles": self.lifecycles,
            "playbooks": self.can.as_ref().map(names),
            "embedded": self.can.as_ref().map(|can| can.carried),
            "only": self.only,
            "slots": self.slots,
            "busy": self.busy,
            "stale_after": self.stale_after.map(iso),
            "version": self.version,
            "started_at": self.started_at.map(iso),
            "seen_at": self.seen_at.map(iso),
        })
    }
}

/// Those who gave signs of life together with those who hold runs, by name and tenant. Of all tenants, one that works everybody's
/// stands there once, whosever runs it holds.
pub(crate) fn with_holders(registered: Vec<WorkerRow>, holders: Vec<Holder>) -> Vec<WorkerRow> {
    let mut rows = registered;
    for holder in holders {
        let place =
            |tenant: &str| rows.iter().position(|row| row.name == holder.worker && row.tenant == tenant);
        match place(&holder.tenant).or_else(|| place(EVERY_TENANT)) {
            Some(at) => {
                let row = &mut rows[at];
                row.busy += holder.held;
                row.stale_after = row.stale_after.into_iter().chain([holder.stale_after]).min();
            }
            None => rows.push(WorkerRow {
                name: holder.worker,
                tenant: holder.tenant,
                busy: holder.held,
                stale_after: Some(holder.stale_after),
                ..WorkerRow::default()
            }),
        }
    }
    for row in rows.iter_mut().filter(|row| row.by_claims) {
        // It asks for as many as it has free.
        row.slots = row.slots.map(|free| free + row.busy);
    }
    rows.sort_by(|one, other| (&one.name, &one.tenant).cmp(&(&other.name, &other.tenant)));
    rows
}

/// Why somebody should look at a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It is held, and whoever worked it is gone: its lease ran out. What was given back waits as what is ready does.
    Worker,
    /// It is parked, or a draft that a person may send on.
    Person,
}
