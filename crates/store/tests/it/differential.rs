//! The same requests, sent to the oracle and to another store, get the same answers and leave the same rows, items
//! and events behind. Ids and tokens are random and times are another clock's: runs are named in the order of their
//! appearance, and of a time only counts whether there is one.
//!
//! Runs are of the shipped lifecycles and of two that nobody meant: their items go where no shipped ones do.
//!
//! The other clock may be a real one. Time goes ahead by at least a millisecond with every request, so that no
//! order hangs on two equal times, and by multiples of 70 seconds where leases and the like should end: none of
//! the lengths in use ends within 10 seconds of such a multiple.

mod client;
mod hostile;
mod made;
mod normal;
mod op;
mod pairs;
mod pick;
mod side;
mod targets;
mod worker;

use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};
use waypost_kernel::Span;
use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_testkit::Postgres;
use waypost_testkit::Shorthand;

use crate::conformance::{Opened, open_memory, open_sqlite};
use op::{Op, Story};
use side::Side;

/// Sends every request to both; the first difference is what is wrong.
async fn compare(ops: &[Op], one: &mut Side, other: &mut Side) -> Result<(), String> {
    for (at, op) in ops.iter().enumerate() {
        for side in [&mut *one, &mut *other] {
            side.store.advance_clock(Span::from_ms(1)).await.unwrap();
        }
        let (expected, found) = (one.apply(op).await, other.apply(op).await);
        if expected != found {
            return Err(format!("request {at}, {op:?}:\n  expected {expected}\n  found    {found}"));
        }
    }
    let (expected, found) = (one.everything().await, other.everything().await);
    let mut both = expected.iter().zip(&found);
    if let Some((expected, found)) = both.find(|(expected, found)| expected != found) {
        return Err(format!("in the end:\n  expected {expected}\n  found    {found}"));
    }
    if expected.len() != found.len() {
        return Err(format!("in the end: {} things expected, {} found", expected.len(), found.len()));
    }
    Ok(())
}

fn agree(story: &Story, open: impl AsyncFn() -> Opened) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (memory, _) = open_memory().await;
        let (store, _folder) = open().await;
        let (mut one, mut other) = (Side::new(memory), Side::new(store));
        for side in [&mut one, &mut other] {
            side.add_made(story.made).await;
        }
        compare(&story.ops, &mut one, &mut other).await.map_err(TestCaseError::fail)
    })
}

/// The same sequences each time, so that a red run is a bug and not bad luck; `PROPTEST_CASES` asks for more, and
/// for others each time.
fn config(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return config;
    }
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(20_261_115), ..config }
}

proptest! {
    #![proptest_config(config(40))]

    /// Or a difference between two stores may be the test's own.
    #[test]
    fn memory_agrees_with_itself(story in op::story()) {
        agree(&story, open_memory)?;
    }
}

proptest! {
    #![proptest_config(config(180))]

    // proves X3 and X6
    #[test]
    fn sqlite_agrees_with_memory(story in op::story()) {
        agree(&story, open_sqlite)?;
    }
}

/// One database for all cases; each begins with empty tables.
const RESET: &str = "SET session_replication_role = replica; \
  TRUNCATE waypost.runs, waypost.ready, waypost.lanes, waypost.watch, waypost.holders, waypost.blocked, waypost.queues, waypost.key_limits, \
    waypost.items, waypost.events, waypost.schedules, waypost.schedule_scopes, waypost.executions, waypost.pruned, waypost.meta, waypost.clock, waypost.workers, waypost.destinations; \
  ALTER SEQUENCE waypost.rids RESTART; ALTER SEQUENCE waypost.positions RESTART;";

async fn reopen_postgres() -> Opened {
    static DATABASE: OnceLock<Postgres> = OnceLock::new();
    let database = DATABASE.get_or_init(|| Postgres::with_schema(&migration_sql()).unwrap());
    database.psql(RESET).unwrap();
    (Arc::new(PostgresStore::open(&database.url()).await.unwrap()), Box::new(()))
}

proptest! {
    // Fewer: each request is a transaction or two of a server's.
    #![proptest_config(config(30))]

    // proves X3 and X6
    #[test]
    fn postgres_agrees_with_memory(story in op::story()) {
        agree(&story, reopen_postgres)?;
    }
}

#[tokio::test]
async fn a_difference_is_found() {
    let (memory, other) = (open_memory().await.0, open_memory().await.0);
    other.limit_key("k0", Some(2)).await.unwrap();
    let run = op::Enqueue { concurrency_key: Some(0), ..op::Enqueue::default() };
    let ops = [
        Op::Enqueue(run.clone()),
        Op::Enqueue(run),
        Op::Claim { worker: 0, queues: 3, tenant: None, limit: 5, lease: None, start: false },
    ];
    let found = compare(&ops, &mut Side::new(memory), &mut Side::new(other)).await;
    assert!(found.is_err_and(|difference| difference.starts_with("request 2")));
}
