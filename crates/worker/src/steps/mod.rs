//! Executing a playbook, step by step. What a step came to is stored before the next one begins; whoever takes the
//! run over goes on after the last one that was completed, and asks for a half-done one again under the same key.
//!
//! `play` goes through the steps, `once` does one of them with its tries, `ending` cleans up and says where the run
//! goes. `sheet` is what is stored of the steps, `hours` when they may begin, `scope` what templates see.

mod born;
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

pub use born::first_steps;
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
