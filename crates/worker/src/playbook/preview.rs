//! What a run of a playbook would do, as far as that is known before it begins. Nothing is executed, and no secret is read.

use serde_json::{Map, Value, json};
use waypost_kernel::Lifecycle;
use waypost_store::{NewRun, iso};

use super::action::{ActionTemplate, BodyTemplate, Way};
use super::template::{Expression, Named, Template};
use super::{Context, Playbook, Scope, Step, Window};

/// Where an answer to a question is only known while a run is under way.
const LATER: &str = "known later";

/// What would become of a request for a run.
pub fn preview(new: &NewRun, lifecycle: &Lifecycle, playbook: Option<&Playbook>) -> Value {
    let first = lifecycle.initial.first().map(|state| &*lifecycle.state(*state).name);
    let none = Map::new();
    let command = new.carried.as_ref().and_then(|carried| carried.get("command"));
    let steps = match (playbook, command) {
        (Some(playbook), _) => playbook.preview(new.input.as_object().unwrap_or(&none)),
        (None, Some(command)) => vec![json!({
            "key": "command", "name": "command", "kind": "step", "does": { "exec": command }, "needs_output_of": [],
        })],
        (None, None) => Vec::new(),
    };
    json!({
        "dry_run": true,
        "playbook": new.playbook,
        "lifecycle": &*lifecycle.name,
        "status": new.status.as_deref().or(first),
        "queue": new.queue,
        "priority": new.priority,
        "concurrency_key": new.concurrency_key,
        "schedule_at": new.schedule_at.map(iso),
        "window": playbook.and_then(|playbook| playbook.window.as_ref()).map(Window::to_json),
        "input": new.input,
        "steps": steps,
    })
}

impl Playbook {
    /// Each step and cleanup, in order. `inputs` as [`Playbook::accept`] gave them.
    pub fn preview(&self, inputs: &Map<String, Value>) -> Vec<Value> {
        let context = self.context(&Scope { inputs: inputs.clone(), ..Scope::default() });
        self.steps.iter().chain(&self.cleanups).map(|step| self.preview_of(step, &context)).collect()
    }

    fn preview_of(&self, step: &Step, context: &Context) -> Value {
        let items = match &step.for_each {
            None => None,
            Some(list) if is_later(list.named()) => Some(json!(LATER)),
            Some(_) => self.items_of(step, context).ok().flatten().map(|items| json!(items)),
        };
        // Of the first item, if there are any: that shows what is done for each.
        let first = items.as_ref().and_then(|items| items.get(0)).map(|item| context.with_item(item));
        let context = first.as_ref().unwrap_or(context);
        let has_item = step.for_each.is_none() || first.is_some();
        let knows = |named: &[&Named]| {
            let is_known = |named: &&Named| {
                !is_later(std::slice::from_ref(*named)) && (has_item || !roots(named, &["item"]))
            };
            named.iter().all(is_known)
        };
        let shown = |template: &Template| {
            let named: Vec<&Named> = template.named().collect();
            knows(&named).then(|| context.text_of(template)).flatten().unwrap_or_else(|| template.source())
        };
        let when = step.when.as_ref().map(|when| {
            let named: Vec<&Named> = when.named().iter().collect();
            let applies = knows(&named).then(|| self.applies(step, context).ok()).flatten();
            json!({ "expression": when.source(), "is": applies.map_or(json!(LATER), Value::from) })
        });
        let mut preview = json!({
            "key": step.key,
            "name": shown(&step.name),
            "kind": if step.is_cleanup { "cleanup" } else { "step" },
            "does": match &step.ask {
                Some(ask) => json!({ "ask": shown(&ask.question), "choices": ask.choices }),
                None => does(&step.action, &shown),
            },
            "needs_output_of": outputs_of(step),
        });
        let optional = [
            (
                "for_each",
                step.for_each.as_ref().map(|list| json!({ "expression": list.source(), "items": items })),
            ),
            ("when", when),
            ("needs", self.needs_of(step)),
            ("parallel", (step.parallel > 1).then(|| json!(step.parallel))),
            ("after", step.after.as_ref().map(|after| json!(after))),
            ("timeout", step.timeout.map(|timeout| json!(timeout.to_string()))),
            ("retries", (step.retries > 0).then(|| json!(step.retries))),
            ("continue_on_failure", step.continue_on_failure.then_some(json!(true))),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                preview[name] = value;
            }
        }
        preview
    }
}

impl Playbook {
    /// What it waits for, if that is not what stands before it.
    fn needs_of(&self, step: &Step) -> Option<Value> {
        let at = self.steps.iter().position(|other| other.key == step.key).filter(|_| !step.is_cleanup)?;
        let follows = if at == 0 { Vec::new() } else { vec![at - 1] };
        let keys = || step.needs.iter().map(|need| self.steps[*need].key.clone()).collect::<Vec<_>>();
        (step.needs != follows).then(|| json!(keys()))
    }
}

fn does(action: &ActionTemplate, shown: &dyn Fn(&Template) -> String) -> Value {
    match &action.way {
        Way::Exec(exec) => {
            let words = std::iter::once(exec.program.clone()).chain(exec.arguments.iter().map(shown));
            json!({ "exec": words.collect::<Vec<_>>() })
        }
        Way::Http(http) => {
            let has_body = !matches!(http.body, BodyTemplate::None);
            json!({ "http": { "method": http.method, "url": shown(&http.url), "has_body": has_body } })
        }
        Way::Output(_) => json!({ "output": true }),
    }
}

/// The steps whose outputs it is made of.
fn outputs_of(step: &Step) -> Vec<String> {
    let mut named: Vec<&Named> = step.name.named().collect();
    named.extend(step.for_each.iter().chain(&step.when).flat_map(Expression::named));
    named.extend(step.ask.iter().flat_map(|ask| ask.question.named()));
    match &step.action.way {
        Way::Exec(exec) => {
            let templates = exec.arguments.iter().chain(exec.env.iter().map(|(_, template)| template));
            named.extend(templates.flat_map(Template::named));
        }
        Way::Http(http) => {
            let headers = http.headers.iter().map(|(_, template)| template);
            named.extend(headers.chain([&http.url]).flat_map(Template::named));
            match &http.body {
                BodyTemplate::Text(template) => named.extend(template.named()),
                BodyTemplate::Json(json) => {
                    named.extend(json.templates().into_iter().flat_map(Template::named));
                }
                BodyTemplate::None | BodyTemplate::Envelope => {}
            }
        }
        Way::Output(output) => named.extend(output.templates().into_iter().flat_map(Template::named)),
    }
    let mut steps: Vec<String> = named
        .iter()
        .filter(|named| roots(named, &["steps"]))
        .filter_map(|named| named.path.get(1).cloned())
        .collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// It looks at what only a run that is under way has, or at what is never shown.
fn is_later(named: &[Named]) -> bool {
    named.iter().any(|named| roots(named, &["steps", "run", "secrets"]))
}

fn roots(named: &Named, roots: &[&str]) -> bool {
    named.path.first().is_some_and(|first| roots.contains(&first.as_str()))
}
