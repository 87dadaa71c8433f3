//! One command for many runs: an `operation` without a parent, which asks them one by one.
//!
//! What was asked for stands in the operation's input, how far it is in its details. Before a batch is asked it is written which runs it
//! has, and at which event each is: whoever takes the operation over finds out by their logs which of them were asked already.

mod batch;
mod perform;

use serde_json::{Map, Value, json};
use waypost_kernel::text::MAX_REASON_CHARS;
use waypost_store::{CommandWrite, Filter, NewRun, RunRow, Store, StoreError, Who};

use crate::schedules;
use crate::targets::check_command;

pub(crate) use perform::perform;

/// Where such operations wait. Every process that has the database takes them, beside whatever its worker does: they are not to wait
/// behind the very runs that they are about.
pub const QUEUE: &str = "waypost.operations";
pub const LIFECYCLE: &str = "operation";
/// In the input of such an operation, what it is to do.
const COMMAND: &str = "command";
/// In an operation's details.
pub const REPORT: &str = "report";
/// Of a reason: the operation's id comes after it.
pub const REASON_CHARS: usize = MAX_REASON_CHARS - 100;

/// Which runs are asked.
#[derive(Clone, Debug)]
pub enum Which {
    Ids(Vec<String>),
    /// Those that fit when it is their turn: what has moved on meanwhile is left alone.
    Fitting(Box<Filter>),
}

#[derive(Clone, Debug)]
pub struct BulkCommand {
    pub command: String,
    pub which: Which,
    pub reason: Option<String>,
    pub force: bool,
    /// How many there were when it was asked for.
    pub total: Option<u64>,
}

impl BulkCommand {
    /// The operation that carries it out.
    pub fn operation(&self, tenant: &str, by: &str, idempotency_key: Option<String>) -> NewRun {
        let mut input = json!({ LIFECYCLE: COMMAND, COMMAND: self.command, "force": self.force });
        if let Some(input) = input.as_object_mut() {
            match &self.which {
                Which::Ids(ids) => input.insert("ids".to_owned(), json!(ids)),
                Which::Fitting(filter) => input.insert("filter".to_owned(), Value::Object(filter.object())),
            };
            input.extend(self.reason.iter().map(|reason| ("reason".to_owned(), json!(reason))));
            input.extend(self.total.map(|total| ("total".to_owned(), json!(total))));
        }
        let runs = match self.total {
            Some(1) => "1 run".to_owned(),
            Some(total) => format!("{total} runs"),
            None => "all runs that fit".to_owned(),
        };
        NewRun {
            tenant: tenant.to_owned(),
            lifecycle: LIFECYCLE.to_owned(),
            queue: QUEUE.to_owned(),
            input,
            title: Some(format!("{} {runs}", self.command)),
            by: by.to_owned(),
            idempotency_key,
            ..NewRun::default()
        }
    }

    /// What an operation is to do; none if it is another kind of operation. The error is in words.
    pub fn of(run: &RunRow) -> Option<Result<BulkCommand, String>> {
        let is_one = &*run.lifecycle.name == LIFECYCLE && run.input[LIFECYCLE] == COMMAND;
        is_one.then(|| BulkCommand::read(&run.tenant, &run.input))
    }

    fn read(tenant: &str, input: &Value) -> Result<BulkCommand, String> {
        let text = |name: &str| input[name].as_str().map(str::to_owned);
        let which = match (&input["ids"], &input["filter"]) {
            (Value::Array(ids), Value::Null) => {
                let ids: Option<Vec<String>> = ids.iter().map(|id| id.as_str().map(str::to_owned)).collect();
                Which::Ids(ids.ok_or("its ids are no texts")?)
            }
            (Value::Null, Value::Object(filter)) => {
                let filter = Filter::of_object(tenant, filter).map_err(|error| error.to_string())?;
                Which::Fitting(Box::new(filter))
            }
            _ => return Err("it names no runs: either ids or a filter".to_owned()),
        };
        Ok(BulkCommand {
            command: text(COMMAND).filter(|name| !name.is_empty()).ok_or("it names no command")?,
            which,
            reason: text("reason"),
            force: input["force"].as_bool().unwrap_or_default(),
            total: input["total"].as_u64(),
        })
    }
}

/// What a run that did not refuse made of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Done,
    Unchanged,
}

/// How far an operation is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub done: u64,
    /// Those that were so already.
    pub unchanged: u64,
    pub refused: u64,
    /// The first ones of those that refused: `run_id`, `code` and `message`.
    pub refusals: Vec<Value>,
}

/// Refusals that are listed with an operation. All of them are in its log.
const LISTED: usize = 200;
/// Of the words of one.
const WORDS: usize = 200;

impl Progress {
    pub fn of(details: &Map<String, Value>) -> Progress {
        let report = details.get(REPORT).unwrap_or(&Value::Null);
        let count = |name: &str| report[name].as_u64().unwrap_or_default();
        Progress {
            done: count("done"),
            unchanged: count("unchanged"),
            refused: count("refused"),
            refusals: report["refusals"].as_array().cloned().unwrap_or_default(),
        }
    }

    /// How many were asked.
    pub fn told(&self) -> u64 {
        self.done + self.unchanged + self.refused
    }

    pub fn object(&self) -> Value {
        json!({ "done": self.done, "unchanged": self.unchanged, "refused": self.refused, "refusals": self.refusals })
    }

    /// Counts what came of one run; gives the refusal, if it was one.
    fn count(&mut self, run_id: &str, answer: Result<Answered, StoreError>) -> Option<Value> {
        let error = match answer {
            Ok(Answered::Done) => {
                self.done += 1;
                return None;
            }
            Ok(Answered::Unchanged) => {
                self.unchanged += 1;
                return None;
            }
            Err(error) => error,
        };
        let code = match &error {
            StoreError::Refused(refusal) => refusal.code.name(),
            StoreError::NotFound { .. } => "NOT_FOUND",
            StoreError::Changed { .. } => "CHANGED",
            StoreError::Denied(_) => "FORBIDDEN",
            _ => "INVALID_INPUT",
        };
        let message: String = error.to_string().chars().take(WORDS).collect();
        let refusal = json!({ "run_id": run_id, "code": code, "message": message });
        self.refused += 1;
        if self.refusals.len() < LISTED {
            self.refusals.push(refusal.clone());
        }
        Some(refusal)
    }
}

/// What stands between a person's command and a bulk change, beside what the store decides.
pub async fn check(store: &dyn Store, write: &CommandWrite) -> waypost_store::Result<()> {
    if write.force {
        return Ok(());
    }
    let run = store.run(write.tenant.clone(), write.run_id.clone()).await?;
    check_command(store, &run, &write.name, write.force).await
}

/// A person's command that was checked. The retry of a schedule's execution is that of its plan.
pub async fn give(store: &dyn Store, write: CommandWrite) -> waypost_store::Result<RunRow> {
    let (tenant, run_id) = (write.tenant.clone(), write.run_id.clone());
    let retried = (write.name == "retry").then(|| Who::new(&write.tenant, &write.by, write.reason.clone()));
    match (store.command(write).await, retried) {
        // Nobody but its scheduler retries an execution; people have its plan executed again.
        (Err(StoreError::Refused(refusal)), Some(who))
            if refusal.code == waypost_kernel::Code::ActorNotAllowed =>
        {
            match schedules::again(store, &run_id, who).await? {
                Some(1..) => store.run(tenant, run_id).await,
                _ => Err(StoreError::Refused(refusal)),
            }
        }
        (answer, _) => answer,
    }
}
