//! Where runs live. [`Store`] speaks in domain verbs, and so does [`Housekeeping`], which only a database does; no driver or
//! transaction type crosses them, and nothing above knows which database runs.
//!
//! Every verb is one transaction: rows are read, the kernel decides, what it says is written together with its
//! events. Verbs that take lists answer each entry by itself: a refusal never fails its neighbours.

mod columns;
mod engine;
mod json;
pub mod postgres;
mod rules;
mod seam;
pub mod sqlite;
mod statement;
mod tokens;

pub use json::fingerprint::digest as asked_digest;
pub use json::{codec, log, wire};
pub use rules::artifacts::marked as marked_artifact;
pub use rules::decisions::answer_by;
pub use rules::intake::check_new;
pub use rules::new_run::PLACEHOLDER;
pub use rules::replay::Written;
pub use seam::access::{
    AuditRow, EVERY_TENANT, MAX_TOKEN_SPAN, NewToken, ROLES, Secret, TokenChange, TokenRow, USE_NOTED_EVERY,
    Who,
};
pub use seam::agents::{
    AGENT_SLUG, AGENTS_QUEUE, AgentChange, AgentEnd, AgentRow, AgentState, AgentWrite, MOST_FAILURES,
    agent_from, agent_key,
};
pub use seam::alerts::{AlertRow, MOST_SILENCE, Silence, SilenceAlert, WINDOW as ALERT_WINDOW};
pub use seam::destinations::{Admit, Admitted, Answered, DestinationRow};
pub use seam::doctor;
pub use seam::error::{Result, StoreError};
pub use seam::messages::{Message, REMEMBERED, Received};
pub use seam::playbooks::{
    KEPT_VERSIONS, MOST_PLAYBOOK_TEXT, MOST_PLAYBOOKS, OfferedPlaybook, PlaybookFilter, PlaybookRow,
};
pub use seam::projection::{LeftRun, MovedRun, Projected};
pub use seam::proposals::{APPROVE, INBOX, INBOX_ID, PROPOSAL, REJECT, Revision};
pub use seam::retention::Retention;
pub use seam::run::{EventRow, ItemRow, RunRow, iso, parse_time};
pub use seam::sample::{Sample, SampledRun};
pub use seam::schedule_reads::{
    ExecutionFilter, ExecutionPage, ExecutionRow, ScheduleFilter, ScheduleSummary,
};
pub use seam::schedules::*;
pub use seam::stats::{Ended, ForPeople, Holder, PoolStatus, Stats, TargetFigures};
pub use seam::targets::{
    AddTargets, DeadLetter, DeadLetterClass, DeadLetterFilter, DiscardTargets, End, MOST_TARGETS, NewTarget,
    Preview, RollBackTargets, TargetResult, WorkTargets, Worked, target_key,
};
pub use seam::verbs::*;
pub use seam::worked::{Begun as WorkBegun, worked};
pub use seam::workers::{BEAT, LIVE, WorkerBeat, WorkerRow};
pub use seam::{Database, Housekeeping, Store};
pub use waypost_kernel::item::Tried;
