//! One call about one target: what it is made of, whose limit it counts for, and what it came to.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};
use waypost_kernel::Span;
use waypost_store::{ItemRow, RunRow};

use super::gather::ROW;
use super::row::in_templates;
use super::verdict::Verdict;
use crate::actions::http::host_of;
use crate::actions::{Action, Rendered, find};
use crate::execute::{Answer, Try};
use crate::handler::{TargetCall, TargetHandler};
use crate::lease::Lease;
use crate::outcome::Outcome;
use crate::pace;
use crate::pipeline::Shared;
use crate::playbook::{Context, Playbook, RenderError, Rule, Scope, Secrets, TargetAction};
use crate::report::journal::Journal;

/// What all calls of a run's pass share.
pub(crate) struct Caller {
    pub shared: Shared,
    pub run: RunRow,
    pub lease: Arc<Lease>,
    pub journal: Arc<Journal>,
    pub playbook: Arc<Playbook>,
    inputs: Map<String, Value>,
    context: Context,
    /// What the source calls a target's id and its value before.
    columns: (String, String),
    /// Of all targets, if the playbook says so.
    destination: Option<String>,
}

/// A call that is ready to be made.
pub(crate) struct Prepared {
    pub destination: String,
    what: What,
    target: Value,
}

enum What {
    Action(Rendered),
    Handler(Arc<dyn TargetHandler>),
}

impl Caller {
    /// The error says what is wrong with the inputs.
    pub fn new(
        shared: &Shared,
        run: &RunRow,
        lease: &Arc<Lease>,
        playbook: &Arc<Playbook>,
        rule: &Rule,
    ) -> Result<Caller, String> {
        let inputs = playbook
            .accept(&run.input)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        let scope = Scope { inputs: inputs.clone(), run: crate::steps::run_of(run), ..Scope::default() };
        let context = playbook.context(&scope);
        let destination = match &rule.limit.destination {
            Some(template) => {
                Some(playbook.text_of("destination", template, &context).map_err(|e| e.to_string())?)
            }
            None => None,
        };
        Ok(Caller {
            shared: shared.clone(),
            run: run.clone(),
            lease: lease.clone(),
            journal: Journal::new(shared.reporter.clone(), lease.clone(), &shared.options.name),
            playbook: playbook.clone(),
            inputs,
            context,
            columns: (rule.targets.id.clone(), rule.targets.before.clone()),
            destination,
        })
    }

    /// What a call about this target is, or what it comes to without one.
    pub fn prepare(&self, action: &TargetAction, item: &ItemRow) -> Result<Prepared, Box<Verdict>> {
        let none = Map::new();
        let detail = |name: &str| item.details.get(name).cloned().unwrap_or_default();
        let more = item.details.get(ROW).and_then(Value::as_object).unwrap_or(&none);
        let columns = (self.columns.0.as_str(), self.columns.1.as_str());
        let target = in_templates(columns, &item.key, (&detail("before"), &detail("after")), more);
        if let Some(name) = &action.handler {
            let handler = self.shared.options.target_handlers.get(name).cloned();
            let handler = handler.ok_or_else(|| Box::new(Verdict::no_handler(name)))?;
            let destination = self.destination.clone().unwrap_or_else(|| self.playbook.name.clone());
            return Ok(Prepared { destination, what: What::Handler(handler), target });
        }
        let context = self.context.with_target(&target);
        let unfit = |error: RenderError| Box::new(Verdict::unfit(&error.to_string()));
        let needs = self.playbook.needs(&action.action, &context).map_err(unfit)?;
        let secrets =
            Secrets::resolve(&needs, find).map_err(|problem| Box::new(Verdict::no_secret(&problem)))?;
        let rendered = self.playbook.render(&action.action, &context, &secrets).map_err(unfit)?;
        let own = || match &rendered.action {
            Action::Http(request) => host_of(&request.url),
            Action::Exec(_) | Action::Output(_) => None,
        };
        let destination = self.destination.clone().or_else(own).unwrap_or_else(|| self.playbook.name.clone());
        Ok(Prepared { destination, what: What::Action(rendered), target })
    }

    /// None: it was stopped, and what it left behind means nothing.
    pub async fn call(
        &self,
        prepared: Prepared,
        item: &ItemRow,
        key: &str,
        limit: Option<Span>,
    ) -> Option<Verdict> {
        let limit = limit.unwrap_or(TargetAction::TIMEOUT);
        let until = Instant::now() + pace::duration(limit);
        let it = Try {
            until: Some(until),
            step: Some(&item.key),
            // What is wanted of the run is waited for by who began it.
            is_cleanup: true,
            ..Try::of_run(&self.run, &self.lease, &self.journal, self.shared.options.grace, item.try_no)
        };
        let key = plain(key);
        let rendered = match prepared.what {
            What::Action(rendered) => rendered,
            What::Handler(handler) => {
                let call = TargetCall {
                    run_id: self.run.id().to_owned(),
                    target: prepared.target,
                    input: Value::Object(self.inputs.clone()),
                    idempotency_key: key,
                };
                return self.ask(handler.call(call), limit).await;
            }
        };
        let mut call = it.call(&item.key, key);
        call.input = Value::Object(self.inputs.clone());
        call.more.insert("target".to_owned(), prepared.target);
        if let Action::Http(request) = &rendered.action {
            let mask = rendered.mask.clone().and(&self.shared.own_secrets);
            let client = match self.shared.client() {
                Ok(client) => client,
                Err(problem) => return Some(Verdict::unfit(problem)),
            };
            return tokio::select! {
                biased;
                reply = client.send(request, &call, Some(pace::duration(limit)), &mask) => {
                    Some(Verdict::of_reply(&reply))
                }
                () = self.lease.lost() => None,
            };
        }
        match it.act(&self.shared, &rendered, &call, None).await {
            Some(answer) => Some(Verdict::of_answer(&answer)),
            None if until <= Instant::now() => Some(Verdict::too_late(limit)),
            None => None,
        }
    }

    /// A handler in Rust, which runs in the task of this call.
    async fn ask(&self, handling: impl Future<Output = Outcome>, limit: Span) -> Option<Verdict> {
        tokio::select! {
            biased;
            outcome = timeout(pace::duration(limit), handling) => Some(match outcome {
                Ok(outcome) => {
                    Verdict::of_answer(&Answer { outcome: Some(Ok(outcome.cleaned())), ..Answer::default() })
                }
                Err(_) => Verdict::too_late(limit),
            }),
            () = self.lease.lost() => None,
        }
    }
}

/// It travels in a header.
fn plain(key: &str) -> String {
    let mut plain = String::new();
    for byte in key.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => plain.push(char::from(byte)),
            other => plain.push_str(&format!("%{other:02X}")),
        }
    }
    plain
}
