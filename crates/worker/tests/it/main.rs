//! One binary for all of the worker's proofs: it links once. Processes and databases are real.
#![allow(clippy::unwrap_used)]

mod agent_times;
mod alerts;
mod bulk;
mod claiming;
mod commands;
mod faulty;
mod guardian;
mod handlers;
mod http;
mod leases;
mod loops;
mod output;
mod playbook;
mod projection;
mod schedules;
mod sdk;
mod shared_keys;
mod shutdown;
mod slots;
mod steps;
mod stopping;
mod support;
mod targets;
