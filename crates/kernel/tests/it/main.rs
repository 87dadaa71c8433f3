//! One binary for all of the kernel's proofs: it links once.
#![allow(clippy::unwrap_used)]

mod broken;
mod examples;
mod exhaustive;
mod generated;
mod model;
mod prop;
mod purity;
mod schedule;
mod shipped;
mod tenants;
mod tries;
mod waits;
