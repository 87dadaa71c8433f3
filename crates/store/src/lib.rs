//! Where runs live. The traits speak in domain verbs, one trait per subject; no driver or transaction type
//! crosses them, and nothing above knows which database runs.
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
mod deeds;
mod details;
pub mod doctor;
mod engine;
mod error;
mod fingerprint;
mod follow;
mod intake;
mod item_writes;
mod looks;
mod messages;
pub mod postgres;
mod replay;
mod run;
mod schedule_looks;
mod schedule_wire;
mod schedules;
pub mod sqlite;
mod tokens;
mod verbs;
pub mod wire;

pub use access::{Audit, AuditRow, EVERY_TENANT, NewAudit, NewToken, ROLES, Secret, TokenRow, Tokens};
pub use birth::PLACEHOLDER;
pub use deeds::{Deeds, Who};
pub use error::{Result, StoreError};
pub use intake::check_new;
pub use looks::{Ended, Holder, Looks, Stats, Way};
pub use replay::Written;
pub use run::{EventRow, ItemRow, RunRow, iso, parse_time};
pub use schedule_looks::{ExecutionFilter, ExecutionPage, ExecutionRow, ScheduleFilter, ScheduleLook};
pub use schedules::*;
pub use verbs::*;
