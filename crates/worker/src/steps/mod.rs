//! Executing a playbook, step by step. What a step came to is stored before the next one begins; whoever takes the
//! run over goes on after the last one that was completed, and asks for a half-done one again under the same key.
//!
//! `play` goes through the steps, `once` does one of them with its tries, `ending` cleans up and says where the run
//! goes. `sheet` is what is stored of the steps, `hours` when they may begin, `scope` what templates see.

mod born;
mod durable;
mod ending;
mod hours;
mod once;
mod play;
mod scope;
mod sheet;
mod tasks;
mod words;

use serde_json::{Map, Value};
use waypost_kernel::Failure;
use waypost_kernel::run::Want;

pub(crate) use born::CLEANUP;
pub use born::first_steps;
pub(crate) use durable::Durable;
pub(crate) use play::perform;
pub(crate) use tasks::{Board, told};

/// How the steps of a run came to an end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Course {
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
    /// The run is left to others.
    Left,
}

/// After a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    On,
    End(Course),
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
