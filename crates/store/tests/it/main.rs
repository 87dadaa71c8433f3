//! One binary for all of the store tests.
#![allow(clippy::unwrap_used)]

mod conformance;
mod differential;
