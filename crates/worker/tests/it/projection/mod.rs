//! Runs as documents of an object store: what stands in them, and that no crash and no neighbour moves them back.

mod documents;
mod killed;
mod manifests;
mod places;
mod stores;
mod stories;
mod stuck;
mod watcher;
