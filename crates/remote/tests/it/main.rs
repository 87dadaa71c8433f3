//! The store's own suite, over HTTP: a real server on a port of its own, on SQLite.
#![allow(clippy::unwrap_used)]

#[macro_use]
#[path = "../../../store/tests/it/conformance/mod.rs"]
#[allow(dead_code)]
mod conformance;
mod endless;
mod example;
mod quiet;
mod split;

backend!(remote, crate::split::open);
