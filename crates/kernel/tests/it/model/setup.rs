//! What is modelled: a lifecycle, who may ask what, and how far it goes.

use std::sync::Arc;

use waypost_kernel::item::Role;
use waypost_kernel::{Failure, Lifecycle, Run, StateId};

use super::world::World;

#[derive(Clone, Debug)]
pub struct Setup {
    pub name: &'static str,
    pub lifecycle: Arc<Lifecycle>,
    /// The state to be born in; nothing where the first claim is the birth (cron).
    pub born: Option<&'static str>,
    pub targets: u8,
    /// Of the targets in order; a step where there is none.
    pub roles: &'static [Role],
    /// A target that failed ends the run's course.
    pub stops: bool,
    /// How often one target may be tried again.
    pub max_retries: u32,
    pub words: Words,
    pub max_attempts: u32,
    pub reentrant: bool,
    /// How often the run may change hands. Fences only rise, so this is what bounds the model.
    pub max_grants: usize,
    /// A claim begins the work too.
    pub starts: bool,
    /// How many attempts a client's retries may begin.
    pub attempt_bound: u32,
    pub endings: Vec<Ending>,
    pub holder: Holder,
    pub commands: Vec<Command>,
    /// The sweeper looks first and acts later.
    pub sweeper_reads: bool,
    pub tokens: Tokens,
    pub sights: Vec<Sight>,
}

/// How a worker may report its end.
#[derive(Clone, Debug)]
pub struct Ending {
    pub to: &'static str,
    pub failure: Option<Failure>,
    pub retry: bool,
}

/// The item lifecycle's names for what a worker reports.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    pub begun: &'static str,
    pub done: &'static str,
    pub failed: &'static str,
    pub open: &'static str,
}

/// What a holder does beside heartbeats and finishing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holder {
    pub notes: bool,
    pub releases: bool,
    pub required: bool,
    /// Target 1 may be tried again before it is given up.
    pub tries_again: bool,
    /// An answer that was counted may arrive again.
    pub repeats_answers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    Queue,
    Cancel,
    Pause,
    Resume,
    Retry,
    /// Retries target 0 only.
    RetryFirst,
    /// Puts target 1 back by itself, without its run.
    RequeueTarget,
    Rollback,
}

/// Who draws a claim's token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokens {
    /// The server, anew for each claim that arrives.
    ByServer,
    /// The worker: a claim that arrives twice brings the same one.
    InRequest,
}

/// Something that must be reachable, or the model proves nothing.
#[derive(Clone, Copy, Debug)]
pub struct Sight(pub &'static str, pub fn(&Place<'_>) -> bool);

/// A state that was reached.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub setup: &'a Setup,
    pub world: &'a World,
    pub run: &'a Run,
}

impl Place<'_> {
    pub fn is_in(&self, state: &str) -> bool {
        Some(self.run.state) == self.setup.state(state)
    }

    pub fn failed_as(&self, code: &str) -> bool {
        self.run.failure.as_ref().is_some_and(|failure| &*failure.code == code)
    }
}

impl Setup {
    pub fn new(name: &'static str, lifecycle: Arc<Lifecycle>) -> Setup {
        Setup {
            name,
            lifecycle,
            born: None,
            targets: 0,
            roles: &[],
            stops: false,
            max_retries: 1,
            words: Words { begun: "APPLYING", done: "APPLIED", failed: "FAILED", open: "QUEUED" },
            max_attempts: 1,
            reentrant: false,
            max_grants: 3,
            starts: false,
            attempt_bound: u32::MAX,
            endings: Vec::new(),
            holder: Holder::default(),
            commands: vec![Command::Cancel],
            sweeper_reads: false,
            tokens: Tokens::ByServer,
            sights: Vec::new(),
        }
    }

    pub fn state(&self, name: &str) -> Option<StateId> {
        self.lifecycle.state_named(name)
    }
}
