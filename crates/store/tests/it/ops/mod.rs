//! Seed 000's SQL interface on PostgreSQL, called as its users call it: through psql, by the seed's own statements.

mod admin;
mod bad_input;
mod begins;
mod by_hand;
mod by_hand_limits;
mod catalogue;
mod claims;
mod cron;
mod documented;
mod events;
mod finish;
mod interplay;
mod jobs;
mod jobs_held;
mod keys;
pub mod kit;
mod monitoring;
mod parity;
mod roles;
mod rules;
mod seed;
mod tenants;
mod transactions;
mod verify;
mod worker_script;
