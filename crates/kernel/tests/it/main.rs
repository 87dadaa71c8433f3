//! One binary for all of the kernel's proofs: it links once.
#![allow(clippy::unwrap_used)]

mod exhaustive;
mod generated;
mod model;
mod shipped;
