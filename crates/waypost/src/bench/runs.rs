//! The runs that are measured: real ones, with a playbook, an idempotency key, 200 bytes of input and some metadata, as
//! raw writes them too.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};
use uuid::Uuid;
use waypost_store::NewRun;

/// What works the runs.
pub const PLAYBOOK: &str = "bench";

/// As JSON 200 bytes long.
pub static INPUT: LazyLock<Value> = LazyLock::new(|| {
    let frame = json!({ "service": "checkout", "version": "2026.11.3", "notes": "" }).to_string().len();
    json!({ "service": "checkout", "version": "2026.11.3", "notes": "n".repeat(200 - frame) })
});

pub static METADATA: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let metadata = json!({ "k": "v", "trace": "abcdef0123456789" });
    metadata.as_object().cloned().unwrap_or_default()
});

/// Runs with these many concurrency keys; a claim meets none of them twice.
const KEYS: u64 = 50_000;

/// What runs have beside what all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// A concurrency key each.
    Keyed,
}

impl Kind {
    /// The scenario's name for such runs.
    pub fn of(self, scenario: &str) -> String {
        match self {
            Kind::Plain => scenario.to_owned(),
            Kind::Keyed => format!("{scenario}-keyed"),
        }
    }
}

/// A key that nobody used before, in this process or another.
pub fn fresh_key() -> String {
    static PREFIX: LazyLock<String> =
        LazyLock::new(|| format!("{:08x}", Uuid::new_v4().as_u64_pair().0 as u32));
    format!("order-{}-{}", *PREFIX, next())
}

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub fn new_runs(count: usize) -> Vec<NewRun> {
    of_kind(Kind::Plain, count)
}

pub fn of_kind(kind: Kind, count: usize) -> Vec<NewRun> {
    let one = |_| NewRun {
        lifecycle: "deploy".into(),
        playbook: Some(PLAYBOOK.into()),
        idempotency_key: Some(fresh_key()),
        concurrency_key: (kind == Kind::Keyed).then(|| format!("host-{}", next() % KEYS)),
        input: INPUT.clone(),
        metadata: METADATA.clone(),
        by: "bench".into(),
        ..NewRun::default()
    };
    (0..count).map(one).collect()
}
