//! Executing one try: a command as a process, a handler as a task.

mod chunk;
pub(crate) mod command;
pub(crate) mod environment;
mod lines;
mod output;
pub(crate) mod process;
mod rust;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};
use waypost_kernel::Span;
use waypost_store::RunRow;

use crate::actions::http::Reply;
use crate::actions::{Action, Call, Mask, Rendered, find};
use crate::lease::Lease;
use crate::outcome::Outcome;
use crate::pace;
use crate::pipeline::Shared;
use crate::playbook::{Playbook, Scope, Secrets};
use crate::report::journal::Journal;
use crate::resolve::{Plan, Work};
use crate::steps::TaskBoard;

/// A run's own command has one step.
const STEP: &str = "run";
/// A request is stopped by the limit of its execution. Its own timeout, which the client asks for, comes so much later
/// that the two never race: what takes too long is a `run_timeout` whatever it was doing.
const AFTER_THE_LIMIT: Duration = Duration::from_secs(3_600);

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
    pub board: Option<&'a Arc<TaskBoard>>,
    /// The key of the step that its output is of.
    pub step: Option<&'a str>,
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

impl Answer {
    pub fn not_started(problem: String) -> Answer {
        Answer { exit: Some(Exit::NotStarted(problem)), ..Answer::default() }
    }

    /// It was stopped because its own time was over. Nobody knows what was done by then: it is asked for again under the same key.
    pub fn too_late(limit: Span) -> Answer {
        let retry = Outcome::retry(&format!("no end within {limit}"));
        let outcome = Outcome { code: Some("TIMEOUT".to_owned()), ..retry };
        Answer { outcome: Some(Ok(outcome)), is_unknown: true, ..Answer::default() }
    }
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
        Try { row, lease, journal, grace, number, until: None, is_cleanup: false, board: None, step: None }
    }

    /// `None`: it was stopped, and what it left behind means nothing.
    pub async fn execute(&self, shared: &Shared, plan: &Plan) -> Option<Answer> {
        match &plan.work {
            Work::Command(carried) => {
                let rendered = Rendered { action: Action::Exec(carried.exec()), mask: Mask::default() };
                self.act(shared, &rendered, &self.call(STEP, self.idempotency_key()), None).await
            }
            Work::Action(playbook) => {
                let rendered = match rendered(playbook, self.row.input.as_object()) {
                    Ok(rendered) => rendered,
                    Err(problem) => return Some(Answer::not_started(problem)),
                };
                let call = self.call(&playbook.name, self.row.idempotency_key.clone().unwrap_or_default());
                let timeout = plan.timeout.map(|limit| pace::duration(limit).saturating_add(AFTER_THE_LIMIT));
                self.act(shared, &rendered, &call, timeout).await
            }
            Work::Handler(handler) => rust::execute(self, handler.as_ref()).await,
            Work::Playbook(_) | Work::Bulk => None,
            Work::Unfit(problem) => Some(Answer::not_started(problem.clone())),
        }
    }

    /// The one place where commands and requests are executed. `timeout` is what the receiver of a request is told.
    pub async fn act(
        &self,
        shared: &Shared,
        rendered: &Rendered,
        call: &Call,
        timeout: Option<Duration>,
    ) -> Option<Answer> {
        let mask = rendered.mask.clone().and(&shared.own_secrets);
        let request = match &rendered.action {
            Action::Exec(exec) => return command::execute(self, exec, call, &mask, &shared.options).await,
            Action::Http(request) => request,
            Action::Output(output) => {
                let outcome = Outcome::done_with(output.clone()).masked(&mask).cleaned();
                return Some(Answer { outcome: Some(Ok(outcome)), ..Answer::default() });
            }
        };
        let client = match shared.client() {
            Ok(client) => client,
            Err(problem) => {
                let outcome = Some(Ok(Outcome::fail("NO_CLIENT", problem)));
                return Some(Answer { outcome, ..Answer::default() });
            }
        };
        tokio::select! {
            biased;
            reply = client.send(request, call, timeout, &mask) => Some(reply.into()),
            () = self.stopped() => None,
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
            tenant: row.tenant.clone(),
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

/// The one action of a playbook, with its secrets.
pub(crate) fn rendered(playbook: &Playbook, inputs: Option<&Map<String, Value>>) -> Result<Rendered, String> {
    let step = playbook.steps.first().ok_or("there is nothing to do")?;
    let scope = Scope { inputs: inputs.cloned().unwrap_or_default(), ..Scope::default() };
    let context = playbook.context(&scope);
    let needs = playbook.needs(&step.action, &context).map_err(|error| error.to_string())?;
    let secrets = Secrets::resolve(&needs, find)?;
    playbook.render(&step.action, &context, &secrets).map_err(|error| error.to_string())
}
