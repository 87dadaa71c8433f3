//! One binary for all of the store's proofs: it links once.
#![allow(clippy::unwrap_used)]

mod by_hand;
mod by_psql;
mod conformance;
mod differential;
mod full_disk;
mod group;
mod guards;
mod ops;
mod postgres;
