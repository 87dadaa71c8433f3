//! What is written down: every call with its answer, every fault, what readers saw, and the tables as they are in the
//! end. The checks judge from this alone.

use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Microseconds since the history began.
pub type Moment = u64;

/// The code of a call that found nobody listening: nothing was done.
pub const NOT_REACHED: &str = "NOT_REACHED";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRun {
    pub lifecycle: String,
    pub queue: String,
    pub concurrency_key: Option<String>,
    pub idempotency_key: Option<String>,
    /// Stands for the body: another number is another body.
    pub body: u64,
    pub priority: i16,
    pub ttl_ms: Option<u64>,
    pub parent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Enqueue(NewRun),
    /// Each call has a worker's name of its own, so that the log says which one it was.
    Claim {
        worker: String,
        queues: Vec<String>,
    },
    /// A status that an SQL user sets by hand.
    Begin {
        worker: String,
        run_id: String,
    },
    Heartbeat {
        worker: String,
        run_id: String,
    },
    Note {
        worker: String,
        run_id: String,
        message: String,
    },
    Item {
        worker: String,
        run_id: String,
        key: String,
        status: String,
    },
    Finish {
        worker: String,
        run_id: String,
        status: String,
    },
    Release {
        worker: String,
        run_id: String,
    },
    Cancel {
        run_id: String,
    },
    /// How many of a queue may be held; none: any number.
    QueueLimit {
        queue: String,
        at_most: Option<u64>,
    },
    KeyLimit {
        key: String,
        at_most: u64,
    },
    Pause {
        queue: String,
        paused: bool,
    },
    Lifecycle {
        version: u64,
    },
    Look {
        run_id: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Made {
        run_id: String,
        is_new: bool,
    },
    /// The transaction that made it was rolled back by its owner.
    TakenBack {
        run_id: String,
    },
    Claims(Vec<Granted>),
    Noted {
        position: u64,
    },
    /// The run's status afterwards.
    Status(String),
    Done,
    Refused {
        status: u16,
        code: String,
    },
    /// It may have been done, or not, until this moment or a little later.
    Unknown {
        status: Option<u16>,
        why: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub run_id: String,
    /// SQL users are told none.
    pub fence: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub client: String,
    /// The server that was asked; none: SQL.
    pub server: Option<usize>,
    pub ask: Ask,
    pub invoked: Moment,
    pub answered: Moment,
    pub answer: Answer,
}

impl Call {
    pub fn is_unknown(&self) -> bool {
        matches!(self.answer, Answer::Unknown { .. })
    }

    pub fn is_refused(&self) -> bool {
        matches!(self.answer, Answer::Refused { .. } | Answer::TakenBack { .. })
    }

    pub fn is_done(&self) -> bool {
        !self.is_unknown() && !self.is_refused()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub what: String,
    pub began: Moment,
    /// Everything answers again.
    pub ended: Moment,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRow {
    pub run_id: String,
    pub lifecycle: String,
    pub status: String,
    pub queue: String,
    pub priority: i16,
    pub seq: u64,
    pub fence: u64,
    pub concurrency_key: Option<String>,
    pub idempotency_key: Option<String>,
    pub parent: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRow {
    pub position: u64,
    pub run_id: String,
    pub seq: u64,
    /// By the database's clock.
    pub at_ms: u64,
    pub command: String,
    pub from: Option<String>,
    pub to: String,
    pub actor: String,
    pub by: String,
    pub message: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemRow {
    pub run_id: String,
    pub key: String,
    pub status: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    pub runs: Vec<RunRow>,
    /// By position.
    pub events: Vec<EventRow>,
    pub items: Vec<ItemRow>,
    /// Rows of the tables that are empty when nothing waits: table and run.
    pub left_over: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    Feed,
    Stream,
}

/// What one reader saw, in the order in which it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub reader: String,
    pub how: Reading,
    /// Position, run and seq.
    pub events: Vec<(u64, String, u64)>,
    /// Told to fetch anew: after the first position, up to the second.
    pub resets: Vec<(u64, u64)>,
    pub reconnects: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedError {
    pub message: String,
    /// Beginnings of those who waited for each other.
    pub statements: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub calls: Vec<Call>,
    pub faults: Vec<Fault>,
    pub tables: Tables,
    pub seen: Vec<Seen>,
    /// What `waypost verify` found.
    pub differences: Vec<String>,
    pub database_log: Vec<LoggedError>,
    /// Lines of all servers.
    pub server_log: Vec<String>,
}

/// Shared by all who ask.
#[derive(Clone, Debug)]
pub struct Recorder {
    began: Instant,
    calls: Arc<Mutex<Vec<Call>>>,
    faults: Arc<Mutex<Vec<Fault>>>,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder { began: Instant::now(), calls: Arc::default(), faults: Arc::default() }
    }

    pub fn now(&self) -> Moment {
        u64::try_from(self.began.elapsed().as_micros()).unwrap()
    }

    pub fn add(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    pub fn fault(&self, what: String, began: Moment) {
        let ended = self.now();
        self.faults.lock().unwrap().push(Fault { what, began, ended });
    }

    pub fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    pub fn take(&self) -> (Vec<Call>, Vec<Fault>) {
        (std::mem::take(&mut self.calls.lock().unwrap()), std::mem::take(&mut self.faults.lock().unwrap()))
    }
}
