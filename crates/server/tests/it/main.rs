//! One binary for all of the server's proofs: it links once. Real sockets, real stores.
#![allow(clippy::unwrap_used)]

mod bulk;
mod console;
mod console_hostile;
mod console_scale;
mod fuzz;
mod generated;
mod health;
mod limits;
mod lists;
mod old_names;
mod openapi;
mod playbook_names;
mod revoked;
mod roles;
mod room;
mod rules;
mod runs;
mod schedules;
mod stream;
mod support;
mod tenant_names;
mod tenants;
mod told_apart;
mod webhooks;
mod working;
