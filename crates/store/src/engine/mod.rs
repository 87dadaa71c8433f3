//! Each verb's meaning, once: what is read, what the kernel is asked, what is written and what is answered. The
//! databases supply the primitives of [`Tx`] and know nothing of verbs.
//!
//! A verb works on a list and is optimistic: rows are read (or remembered), the kernel decides on each, and one
//! [`Tx::save`] compares and sets. What lost a race is read and decided again. A database that writes alone, as SQLite's
//! writer does, never loses.

mod access;
mod agents;
mod alerts;
mod alone;
mod batch;
mod changes;
mod children;
mod claim;
mod command;
mod copies;
mod destinations;
mod edit;
mod enqueue;
mod hold;
mod items;
mod keys;
mod lifecycle_rows;
mod messages;
mod operations;
mod playbooks;
mod projection;
mod proposals;
mod retention;
mod schedules;
mod sound;
mod sweep;
mod targets;
pub(crate) mod turns;
mod tx;
mod waiting;
mod workers;

pub(crate) use access::{audits, latest_audits, token_used, tokens};
pub(crate) use agents::{agent_ended, agents, change_agent, put_agents};
pub(crate) use alerts::{alerts, put_alert, silence_alert};
pub(crate) use changes::{add_lifecycle, change_schedule, change_token, configure};
pub(crate) use claim::{Taken, claim, claim_run};
pub(crate) use command::{cancel_children, command, command_claimed, own_command};
pub(crate) use destinations::{admit, answered, destinations, pace_destination};
pub(crate) use edit::{Edit, Extra, ItemChange, NewItemRow, Stored, StoredItem};
pub(crate) use enqueue::{CheckedRun, NewRow, Queued, dry_run, enqueue, enqueue_claimed, made_by, own_claim};
pub(crate) use hold::{CleanedFinish, finish, note, release, renew, require_cleanup};
pub(crate) use items::put_items;
pub(crate) use keys::keys;
pub(crate) use messages::receive;
pub(crate) use playbooks::{offer_playbooks, playbooks, withdraw_playbooks};
pub(crate) use projection::{acknowledge, catch_up_with, cursor, leave_behind, left_behind, put_cursor};
pub(crate) use retention::{put_retention, retention};
pub(crate) use schedules::firing::{begin, due, due_scopes, fire, put_off};
pub(crate) use schedules::{
    executions, put_schedule, put_scopes, scheduler_seen, schedules, scopes, wake_executions,
};
pub(crate) use sound::unsound;
pub(crate) use sweep::sweep;
pub(crate) use targets::{add_targets, discard_targets, roll_back_targets, work_targets};
pub(crate) use tx::{
    AdminTx, Asked, BEGINNING, Candidate, Counted, Inserted, ItemsIn, ItemsOf, NoteKey, Overdue, Room, Saved,
    Scan, Slot, Targets, TargetsOf, TimeKey, Tx,
};
pub(crate) use waiting::{WaitTx, explain};
pub(crate) use workers::{beat, registered, remove_worker};
