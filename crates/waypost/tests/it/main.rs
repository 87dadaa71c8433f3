//! One binary for all of the command's tests: it links once.
#![allow(clippy::unwrap_used)]

mod tidy;
