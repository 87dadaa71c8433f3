//! One binary for all of the command's tests: it links once.
#![allow(clippy::unwrap_used)]

mod attacks;
mod cli_backup;
mod cli_bad_database;
mod cli_bad_input;
mod cli_golden;
mod cli_jobs;
mod cli_playbook;
mod cli_postgres;
mod cli_run;
mod cli_schedule;
mod cli_stopping;
mod cli_tenants;
mod cli_workers;
mod cron_faults;
mod demo;
mod examples_http;
mod history;
mod hostile_steps;
mod http;
mod kill_workers;
mod late_commits;
mod metrics;
mod postgres_faults;
mod projection;
mod rolling_update;
mod schemathesis;
mod serve;
mod serve_kills;
mod sse;
mod support;
mod tidy;
mod webhooks;
