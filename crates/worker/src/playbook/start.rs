//! A run of a playbook that workers have: what the playbook itself says about it.

use std::fmt;

use serde_json::Value;
use waypost_kernel::lifecycle::OnStale;
use waypost_kernel::{Catalog, Lifecycle};
use waypost_store::NewRun;

use super::{InputProblem, Playbook, RenderError, Scope};
use crate::first_steps;

/// Why a playbook cannot be started.
#[derive(Clone, Debug, PartialEq)]
pub enum CannotStart {
    UnknownLifecycle(String),
    /// The request names another lifecycle than the playbook.
    OtherLifecycle {
        asked: String,
        own: String,
    },
    Inputs(Vec<InputProblem>),
    /// The request has steps that are not the playbook's.
    Items(String),
    Key(RenderError),
}

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotStart::UnknownLifecycle(name) => write!(f, "there is no lifecycle {name:?}"),
            CannotStart::OtherLifecycle { asked, own } => {
                write!(f, "the playbook is one of {own:?}, not of {asked:?}: leave the lifecycle out")
            }
            CannotStart::Inputs(problems) => {
                let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
                f.write_str(&told.join("\n"))
            }
            CannotStart::Items(message) => write!(f, "items: {message}"),
            CannotStart::Key(error) => error.fmt(f),
        }
    }
}

impl Playbook {
    /// Where a lost worker would lose the run, as many as the step with most of them has tries: it costs one of these.
    fn max_attempts(&self, lifecycle: &Lifecycle) -> u32 {
        let loses = lifecycle.states.iter().any(|state| state.on_stale == Some(OnStale::Lose));
        let retries = self.steps.iter().map(|step| step.retries).max().filter(|_| loses);
        1 + retries.unwrap_or_default()
    }

    /// Its queue, priority, key and first steps, and the inputs that it declares, filled in and checked. It is named by its
    /// pin: a worker with another content leaves the run alone.
    pub fn new_run(&self, catalog: &Catalog, given: &Value) -> Result<NewRun, CannotStart> {
        let unknown = || CannotStart::UnknownLifecycle(self.lifecycle.clone());
        let lifecycle = catalog.latest(&self.lifecycle).ok_or_else(unknown)?;
        let inputs = self.accept(given).map_err(CannotStart::Inputs)?;
        let scope = Scope { inputs: inputs.clone(), ..Scope::default() };
        let key = self.concurrency_key_for(&self.context(&scope)).map_err(CannotStart::Key)?;
        // Two runs of a rule would change the same targets by turns.
        let key = key.or_else(|| self.rule.as_ref().map(|_| format!("rule:{}", self.name)));
        let plain = NewRun::default();
        Ok(NewRun {
            lifecycle: self.lifecycle.clone(),
            queue: self.queue.clone().unwrap_or(plain.queue),
            priority: i16::try_from(self.priority).unwrap_or_default(),
            concurrency_key: key,
            playbook: Some(self.pin()),
            max_attempts: self.max_attempts(lifecycle),
            items: first_steps(self, lifecycle, &inputs),
            input: Value::Object(inputs),
            ..NewRun::default()
        })
    }
}
