//! One binary for all of the store's proofs: it links once.
#![allow(clippy::unwrap_used)]

mod by_hand;
mod by_hand_beside;
mod by_hand_decisions;
mod by_hand_items;
mod by_hand_log;
mod by_hand_targets;
mod by_psql;
#[macro_use]
mod conformance;
mod copied_steps;
mod course;
mod differential;
mod enter;
mod full_disk;
mod group;
mod guards;
mod invariants;
mod lifecycle_rows;
mod ops;
mod postgres;
mod replay_keys;
mod schedule_costs;
mod tables;
mod turns;

/// The suite on each of them.
mod on {
    backend!(memory, crate::conformance::open_memory);
    backend!(sqlite, crate::conformance::open_sqlite);
    backend!(postgres, crate::conformance::open_postgres);
}
