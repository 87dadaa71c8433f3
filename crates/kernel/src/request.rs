//! What is asked of a run, by whom.

use serde_json::Value;

use crate::item::Item;
use crate::lifecycle::Actor;
use crate::run::{Failure, Text, Token};
use crate::time::{Span, Time};

#[derive(Clone, Debug, PartialEq)]
pub struct Request<'a> {
    pub who: Who<'a>,
    pub ask: Ask<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Who<'a> {
    pub actor: Actor,
    /// The worker's or person's name, for the log.
    pub by: &'a str,
    /// A new random token: the claimer's, or that of a lease left vacant. Drawn for each delivery, never sent by
    /// the asker: a request that arrives twice must not bring an old token back.
    pub fresh: Token,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ask<'a> {
    /// Take the run: claim, take over, steal or retry, whichever its state calls for. With `start` the work begins with
    /// it, where the state that it comes to waits for that.
    Claim { lease: Option<Span>, start: bool },
    /// A heartbeat.
    Renew { token: Token },
    /// A worker's own event. The first one begins the work where a state says so.
    Note { token: Token, note: &'a Note },
    /// Move a held run to a state by name.
    Finish { token: Token, finish: Finish<'a> },
    /// Give the run back unharmed: at shutdown, or because there is nothing to do before a time.
    Release { token: Token, wait: Option<Wait<'a>> },
    /// From now on the run requires cleanup, or no longer does; `failing` says where it goes afterwards.
    RequireCleanup { token: Token, required: bool, failing: Option<(&'a str, &'a Failure)> },
    /// A command of the lifecycle by its name.
    Command { name: &'a str, with: With<'a> },
    /// The engine looks whether a lease or a time to live has run out.
    Sweep,
    /// The engine looks at a run whose queue is paused: nobody can take it, so that the time does not count.
    QueuePaused,
    /// The operation that works on this run has settled.
    OperationEnded,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finish<'a> {
    pub to: &'a str,
    pub failure: Option<&'a Failure>,
    pub reason: Option<&'a str>,
    /// When a state that can be retried should be; nothing means never.
    pub retry_in: Option<Span>,
    /// Of a parked state: when the run goes on by itself if no person has let it. Nothing means never.
    pub goes_on_at: Option<Time>,
    /// A digest of all that the finish brings along, for whoever tells a repeat from another finish. None if it brings nothing.
    pub brings: Option<Token>,
}

/// What a run waits for in nobody's hands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait<'a> {
    /// Nobody takes the run before.
    pub until: Time,
    pub reason: &'a str,
}

/// The event that keeps decisions of a run that goes on waiting for others.
pub const DECIDE: &str = "decide";

/// What comes along with a command.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct With<'a> {
    pub reason: Option<&'a str>,
    pub force: bool,
    /// Everything that the run asks people is decided.
    pub resolved: bool,
    /// Some of it is decided and some is not: the decisions are kept, and the run goes on waiting.
    pub partly: bool,
    pub graceful: bool,
    pub failure: Option<&'a Failure>,
    pub available_at: Option<Time>,
    /// The items that the command is about, where it is not about all of them: those of them that can follow do.
    pub chosen: Option<&'a [Item]>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    pub level: Level,
    pub message: Text,
    pub payload: Value,
    /// Makes a repeat of the same event known as one.
    pub key: Option<Text>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::Debug, Level::Info, Level::Warn, Level::Error];

    pub fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

impl Ask<'_> {
    /// Who may ask this at all. Commands look at their table.
    pub fn is_for(&self, actor: Actor) -> bool {
        match self {
            Ask::Claim { .. }
            | Ask::Renew { .. }
            | Ask::Note { .. }
            | Ask::Finish { .. }
            | Ask::Release { .. }
            | Ask::RequireCleanup { .. } => actor == Actor::Worker,
            Ask::Command { .. } => actor != Actor::Worker,
            Ask::Sweep | Ask::QueuePaused | Ask::OperationEnded => actor == Actor::Engine,
        }
    }
}
