//! Where runs live. [`Store`] speaks in domain verbs, and so does [`Housekeeping`], which only a database does; no driver or
//! transaction type crosses them, and nothing above knows which database runs.
//!
//! Every verb is one transaction: rows are read, the kernel decides, what it says is written together with its
//! events. Verbs that take lists answer each entry by itself: a refusal never fails its neighbours.

mod access;
mod birth;
mod cancelled_metadata;
mod children;
mod chosen;
pub mod codec;
mod columns;
mod decisions;
mod details;
pub mod doctor;
mod engine;
mod error;
mod fingerprint;
mod follow;
mod intake;
mod item_writes;
mod messages;
pub mod postgres;
mod replay;
mod run;
mod schedule_reads;
mod schedule_wire;
mod schedules;
mod seam;
pub mod sqlite;
mod statement;
mod stats;
mod tokens;
mod verbs;
pub mod wire;

pub use access::{AuditRow, EVERY_TENANT, NewToken, ROLES, Secret, TokenChange, TokenRow, Who};
pub use birth::PLACEHOLDER;
pub use error::{Result, StoreError};
pub use intake::check_new;
pub use replay::Written;
pub use run::{EventRow, ItemRow, RunRow, iso, parse_time};
pub use schedule_reads::{ExecutionFilter, ExecutionPage, ExecutionRow, ScheduleFilter, ScheduleSummary};
pub use schedules::*;
pub use seam::{Database, Housekeeping, Store};
pub use stats::{Ended, Holder, PoolStatus, Stats};
pub use verbs::*;
