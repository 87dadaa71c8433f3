//! One binary for all of the kernel's proofs: it links once.
#![allow(clippy::unwrap_used)]

mod broken;
mod examples;
mod prop;
mod purity;
mod shipped;
