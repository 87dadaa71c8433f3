//! Executing a playbook, step by step. What a step came to is stored before the next one begins; whoever takes the
//! run over goes on after the last one that was completed, and asks for a half-done one again under the same key.
//!
//! `playbook_run` is one holder's way from the claim on, `course` says which steps may begin and waits for those under way,
//! `once` is one of them with its tries, `attempt` one try, `asking` a step that asks a person, `ending` cleans up and says where the
//! run goes, `lost` what a lost worker cost. `step_log` is what is stored of the steps, `deadlines` when they may begin, `waiting` when that is worth giving the
//! run back for, `state_names` what the lifecycle calls their states, `scope` what templates see.

mod asking;
mod attempt;
mod course;
mod deadlines;
mod durable;
mod ending;
mod lost;
mod once;
mod planned_steps;
mod playbook_run;
mod scope;
mod state_names;
mod step_log;
mod tasks;
mod waiting;
mod words;

use serde_json::{Map, Value};
use tokio::time::Instant;
use waypost_kernel::Failure;
use waypost_kernel::run::Want;
use waypost_store::{Claimed, Wait};

use crate::playbook::Playbook;

pub(crate) use durable::{Durable, NOT_BEGUN};
pub(crate) use once::is_finish;
pub use planned_steps::first_steps;
pub(crate) use planned_steps::{CLEANUP, is_untold, planned_part, untold_part};
pub(crate) use playbook_run::perform;
pub(crate) use scope::run as run_of;
pub(crate) use state_names::{StateNames, StepState};
pub(crate) use step_log::{AGAIN, is_dropped, was_left_out, was_not_wanted};
pub(crate) use tasks::{TaskBoard, task_progress};
pub(crate) use waiting::WORTH_GIVING_BACK;
pub use words::{blockers_in_words, cleanup_failed_in_words, in_order, left_in_words, worked};

/// How the steps of a run came to an end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlaybookEnd {
    /// All are done, or one said that nothing more is needed.
    Done,
    Failed(Failure),
    /// A handler asks for a person.
    Paused {
        reason: String,
        details: Map<String, Value>,
    },
    /// A person asks for it, or an earlier holder recorded a failure.
    Wanted(Want),
    /// There is nothing to do before a time: the run waits in nobody's hands.
    Waits(Wait),
    /// The run is left to others.
    Left,
}

/// After a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    On,
    /// Nothing more is needed: what has begun goes on, and nothing else begins.
    Finish,
    End(PlaybookEnd),
}

/// When a run of this playbook has taken as long as it may.
pub(crate) fn deadline(claimed: &Claimed, asked_at: Instant, playbook: &Playbook) -> Option<Instant> {
    deadlines::Deadlines::new(claimed, asked_at, playbook).deadline()
}

/// The same when a try is repeated because its result was lost. It travels in a header, so it is plain.
fn idempotency_key(run_id: &str, step: &str, try_no: u32) -> String {
    let mut plain = String::new();
    for byte in step.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'[' | b']' => {
                plain.push(char::from(byte));
            }
            other => plain.push_str(&format!("%{other:02X}")),
        }
    }
    format!("{run_id}:{plain}:{try_no}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_plain_and_stay_apart() {
        for (step, plain) in [
            ("update[1]", "r:update[1]:1"),
            ("disable HA", "r:disable%20HA:1"),
            ("a%20b", "r:a%2520b:1"),
            ("й", "r:%D0%B9:1"),
        ] {
            assert_eq!(idempotency_key("r", step, 1), plain);
        }
    }
}
