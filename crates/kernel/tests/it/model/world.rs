//! One state of the model: the row, its items, the clock, what workers were told, and what must be remembered
//! to judge the next step.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use waypost_kernel::item::Item;
use waypost_kernel::{Event, Run, StateId, Time, Token};

use super::law::Faults;

pub const WORKERS: [&str; 2] = ["w0", "w1"];

#[derive(Clone, Debug)]
pub struct World {
    pub now: Time,
    pub run: Option<Run>,
    pub items: Vec<Item>,
    /// Every lease that was ever given, in order.
    pub grants: Vec<Grant>,
    /// Which lease each worker believes to hold.
    pub beliefs: [Option<usize>; 2],
    /// Claims sent with a token of the worker's own: who, and which. They may arrive again at any time.
    pub claims: Vec<(usize, Token)>,
    /// The lease's end as the sweeper read it.
    pub read: Option<Time>,
    /// A cancel was answered while the run was not settled, and nobody asked for a new start since.
    pub cancelled: bool,
    /// Expired leases taken over since the last attempt began.
    pub expired_in_a_row: u32,
    pub successes: u32,
    /// An abandoned vacant lease was given up.
    pub abandoned: bool,
    pub faults: Faults,
    /// Not part of the state: of all logs that make a row one is kept, since folding a further event depends
    /// on the row alone.
    pub log: Log,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    pub worker: usize,
    pub token: Token,
    /// The row's fence when it was given.
    pub fence: u64,
    /// The reply arrived: from now on anything may come in under its token.
    pub known: bool,
    /// The end that was accepted under it, while the run still stands there.
    pub ended: Option<StateId>,
}

#[derive(Clone, Debug, Default)]
pub struct Log(Option<Arc<Link>>);

#[derive(Debug)]
struct Link {
    event: Event,
    earlier: Log,
}

impl Log {
    pub fn push(&mut self, event: Event) {
        let earlier = std::mem::take(self);
        self.0 = Some(Arc::new(Link { event, earlier }));
    }

    pub fn events(&self) -> Vec<&Event> {
        let mut events = Vec::new();
        let mut at = self;
        while let Some(link) = &at.0 {
            events.push(&link.event);
            at = &link.earlier;
        }
        events.reverse();
        events
    }
}

impl World {
    pub fn empty() -> World {
        World {
            now: Time::from_ms(1_000_000),
            run: None,
            items: Vec::new(),
            grants: Vec::new(),
            beliefs: [None; 2],
            claims: Vec::new(),
            read: None,
            cancelled: false,
            expired_in_a_row: 0,
            successes: 0,
            abandoned: false,
            faults: Faults::default(),
            log: Log::default(),
        }
    }

    /// The row and its items, apart from what workers know: what a drain depends on.
    pub fn row_key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_row(&mut hasher);
        hasher.finish()
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// How far off an instant is; one that has passed has just passed.
    fn ahead(&self, at: Time) -> i64 {
        (at - self.now).micros().max(-1)
    }

    /// Leaves out what no decision looks at: the seq, and when the run was made, begun and ended.
    fn hash_row(&self, hasher: &mut impl Hasher) {
        let Some(run) = &self.run else { return false.hash(hasher) };
        (run.state, run.attempt, run.take_overs, run.fence).hash(hasher);
        (run.ended_by, &run.last_command, &run.intent, &run.reason).hash(hasher);
        (run.requires_cleanup, run.cleanup_failed, run.operating).hash(hasher);
        (&run.failure, run.started_at.is_some(), run.finished_at.is_some()).hash(hasher);
        run.available_at.map(|at| self.ahead(at)).hash(hasher);
        run.expires_at.map(|at| self.ahead(at)).hash(hasher);
        run.tallies.hash(hasher);
        if let Some(lease) = &run.lease {
            // A vacant lease counts its day from its end, so that one keeps its distance.
            let until =
                if lease.is_vacant() { (lease.until - self.now).micros() } else { self.ahead(lease.until) };
            (lease.token, &lease.worker, lease.length, until).hash(hasher);
        }
        for item in &self.items {
            (item.state, item.attempts, item.discarded).hash(hasher);
        }
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.hash_row(hasher);
        (&self.grants, &self.beliefs, &self.claims).hash(hasher);
        self.read.map(|at| self.ahead(at)).hash(hasher);
        (self.cancelled, self.expired_in_a_row, self.successes, self.abandoned, self.faults).hash(hasher);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &World) -> bool {
        self.key() == other.key()
    }
}
