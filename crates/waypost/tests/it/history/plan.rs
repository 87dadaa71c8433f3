//! What each client does next: the same for the same seed. Whom it meets is up to the machine.

use super::record::NewRun;

/// Where SQL users queue and claim.
pub const OPS: &str = "ops";
/// Has a limit, from time to time.
pub const LIMITED: &str = "limited";
/// Every run has a concurrency key; the same keys in both.
pub const KEYED: [&str; 2] = ["keyed-a", "keyed-b"];
/// Plain runs of several priorities, and nothing else.
pub const PRIORITIES: &str = "priorities";
/// Jobs with steps.
pub const JOBS: &str = "jobs";

/// Get a limit while claims are under way, in turn.
pub const RACED: [&str; 3] = ["raced-0", "raced-1", "raced-2"];

/// Runs of a version that one server has just been told of.
pub const VERSIONS: &str = "versions";

/// Of parents, and of their children.
pub const FAMILIES: [&str; 2] = ["parents", "children"];

/// What workers ask for at once.
pub const CLAIMED: &[&[&str]] =
    &[&[OPS], &KEYED, &[LIMITED], &[PRIORITIES], &KEYED, &[LIMITED], &[JOBS], &[LIMITED]];
pub const QUEUES: &[&str] = &[
    OPS,
    LIMITED,
    KEYED[0],
    KEYED[1],
    PRIORITIES,
    JOBS,
    VERSIONS,
    RACED[0],
    RACED[1],
    RACED[2],
    FAMILIES[0],
    FAMILIES[1],
];
pub const PAUSED: &[&str] = &[LIMITED, OPS, KEYED[0], JOBS];
const KEYS: u64 = 6;

/// The deploy lifecycle's states with deadlines that pass while the history goes on. Versions are alike.
pub fn lifecycle(version: u64) -> String {
    format!(
        r#"name    = "history"
version = {version}
ids     = "history-{{uuid7}}"
initial = ["queued"]

[states]
queued    = {{ phase = "ready", ttl = "never" }}
claimed   = {{ phase = "held", deadline = "3s", on_stale = "expire" }}
running   = {{ phase = "held", lease = "3s", on_stale = "lose" }}
success   = {{ phase = "settled", outcome = "succeeded" }}
failed    = {{ phase = "settled", outcome = "failed" }}
cancelled = {{ phase = "settled", outcome = "cancelled" }}

transitions = [
  ["queued",  "claim",    "claimed",   "worker",          ""],
  ["queued",  "cancel",   "cancelled", "client",          ""],
  ["queued",  "expire",   "cancelled", "engine",          ""],
  ["claimed", "start",    "running",   "worker",          ""],
  ["claimed", "expire",   "cancelled", "engine",          ""],
  ["claimed", "cancel",   "cancelled", "client, worker",  ""],
  ["running", "succeed",  "success",   "worker",          ""],
  ["running", "fail",     "failed",    "worker",          ""],
  ["running", "cancel",   "cancelled", "client, worker",  ""],
  ["running", "lose",     "failed",    "engine",          ""],
]
"#
    )
}

#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Of one client of a history.
    pub fn new(seed: u64, client: &str) -> Dice {
        let mixed = client.bytes().fold(seed ^ 0x9E37_79B9_7F4A_7C15, |mixed, byte| {
            (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3).rotate_left(23)
        });
        Dice(mixed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A run to start over HTTP; `waiting` says of which queues there are enough.
pub fn next_run(
    dice: &mut Dice,
    client: &str,
    number: u64,
    has_enough: impl Fn(&str) -> bool,
) -> Option<NewRun> {
    let queue =
        dice.one_of(&[OPS, LIMITED, LIMITED, KEYED[0], KEYED[1], KEYED[0], KEYED[1], PRIORITIES, JOBS]);
    let (kind, key, body, idempotent) =
        (dice.below(4), dice.below(KEYS), dice.below(1_000_000), dice.below(3));
    let (priority, ttl_ms, is_job) = (dice.below(4) as i16, 300 + dice.below(3_000), dice.one_in(4));
    let (has_priority, has_ttl) = (dice.one_in(4), dice.one_in(8));
    if has_enough(queue) {
        return None;
    }
    let is_plain = queue == PRIORITIES;
    let has_jobs = KEYED.contains(&queue) || queue == JOBS;
    let lifecycle = match kind {
        _ if queue == JOBS || is_job && has_jobs => "job",
        0 if !is_plain => "history",
        _ => "deploy",
    };
    Some(NewRun {
        lifecycle: lifecycle.to_owned(),
        queue: queue.to_owned(),
        concurrency_key: KEYED.contains(&queue).then(|| format!("k{key}")),
        idempotency_key: (idempotent > 0).then(|| format!("{client}-{number}")),
        body,
        priority: if is_plain || has_priority { priority } else { 0 },
        // The job's lifecycle has no end for what nobody takes.
        ttl_ms: (has_ttl && !is_plain && lifecycle != "job").then_some(ttl_ms),
        parent: None,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Success,
    Failed,
    Cancelled,
    /// For another worker, where the lifecycle lets one go on.
    Release,
    /// Never heard of again.
    Abandon,
    /// Says nothing for longer than its lease, and then goes on as if nothing had happened.
    Oversleep,
}

/// What a worker does with one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub notes: u64,
    pub has_item: bool,
    pub has_heartbeat: bool,
    pub hold_ms: u64,
    pub end: End,
    /// Afterwards it writes once more with its old lease.
    pub is_zombie: bool,
}

pub fn next_work(dice: &mut Dice, queues: &[&str]) -> Work {
    let end = match dice.below(40) {
        0 => End::Abandon,
        1 => End::Oversleep,
        2 | 3 => End::Release,
        4..=6 => End::Failed,
        7..=9 => End::Cancelled,
        _ => End::Success,
    };
    Work {
        notes: dice.below(3),
        has_item: dice.one_in(3),
        has_heartbeat: dice.one_in(4),
        hold_ms: if queues == [LIMITED] || dice.one_in(4) { dice.below(400) } else { dice.below(60) },
        end,
        is_zombie: dice.one_in(6),
    }
}
