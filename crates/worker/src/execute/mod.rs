//! Executing one try: a command as a process, a handler as a task.

mod chunk;
pub(crate) mod command;
mod lines;
mod output;
mod process;
mod rust;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use tokio::time::{Instant, sleep_until};
use waypost_store::RunRow;

use crate::actions::http::Reply;
use crate::actions::{Call, Mask};
use crate::journal::Journal;
use crate::lease::Lease;
use crate::outcome::Outcome;
use crate::resolve::Plan;
use crate::steps::Board;

/// A run's own command has one step.
const STEP: &str = "run";

/// One try of a held run.
pub(crate) struct Try<'a> {
    pub row: &'a RunRow,
    pub lease: &'a Arc<Lease>,
    pub journal: &'a Arc<Journal>,
    pub grace: Duration,
    /// From 1.
    pub number: u32,
    /// It is stopped then.
    pub until: Option<Instant>,
    /// What is wanted of the run does not stop it.
    pub is_cleanup: bool,
    /// What it tells about its parts.
    pub board: Option<&'a Arc<Board>>,
}

/// What a try of any kind left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// Of processes.
    pub exit: Option<Exit>,
    /// What the handler itself said, or what is wrong with that.
    pub outcome: Option<Result<Outcome, String>>,
    /// A process's last words on its standard error.
    pub last_line: Option<String>,
    /// It may have been carried out although no answer came.
    pub is_unknown: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    NotStarted(String),
}

/// A request has no process, and all that it came to is its outcome.
impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer { outcome: Some(reply.outcome), is_unknown: !reply.is_known, ..Answer::default() }
    }
}

impl<'a> Try<'a> {
    /// Of a run that is executed as a whole.
    pub fn of_run(
        row: &'a RunRow,
        lease: &'a Arc<Lease>,
        journal: &'a Arc<Journal>,
        grace: Duration,
        number: u32,
    ) -> Try<'a> {
        Try { row, lease, journal, grace, number, until: None, is_cleanup: false, board: None }
    }

    /// `None`: it was stopped, and what it left behind means nothing.
    pub async fn execute(&self, plan: &Plan, guardian: Option<&[std::ffi::OsString]>) -> Option<Answer> {
        match plan {
            Plan::Command(carried) => {
                let call = self.call(STEP, self.idempotency_key());
                command::execute(self, &carried.exec(), &call, &Mask::default(), guardian).await
            }
            Plan::Handler(handler) => rust::execute(self, handler.as_ref()).await,
            Plan::Playbook(_) => None,
            Plan::Unfit(problem) => {
                let exit = Some(Exit::NotStarted(problem.clone()));
                Some(Answer { exit, ..Answer::default() })
            }
        }
    }

    /// Returns when it must end: something else is wanted of the run, or its time is over.
    pub async fn stopped(&self) {
        let late = async {
            match self.until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let asked =
            async { if self.is_cleanup { self.lease.leaving().await } else { self.lease.stopped().await } };
        tokio::select! {
            biased;
            () = asked => {}
            () = late => {}
        }
    }

    /// What a handler of this try is told.
    pub fn call(&self, step: &str, idempotency_key: String) -> Call {
        let row = self.row;
        // A server keeps the caller's in the details: metadata are a part of what an idempotency key stands for.
        let kept = [&row.metadata, &row.details].into_iter().find_map(|map| map.get("traceparent")?.as_str());
        Call {
            run_id: row.id().to_owned(),
            step: step.to_owned(),
            attempt: row.run.attempt,
            try_no: self.number,
            idempotency_key,
            traceparent: kept.map(str::to_owned),
            input: (*row.input).clone(),
            metadata: (*row.metadata).clone(),
            more: Map::new(),
        }
    }

    /// The same when this try is repeated by another worker because its result was lost; another one for each
    /// try whose result is known.
    fn idempotency_key(&self) -> String {
        format!("{}:{}:{}", self.row.id(), self.row.run.attempt, self.number)
    }
}
