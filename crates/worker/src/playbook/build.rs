//! From a file of the right form to a playbook that means something: names resolved, templates checked, parts
//! that belong together compared. Where something is missing it goes on with less, to tell all problems at once.

mod action;
mod ask;
mod bulk;
mod keys;
mod needs;
mod place;
mod shopify;
mod single;

use std::path::Path;

use waypost_kernel::backoff::Backoff;
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::tenant::local_name;
use waypost_kernel::{Catalog, Lifecycle, Span};
use waypost_schema::{Node, Problems, Report, instead_of, quoted};

use super::action::{ActionTemplate, ExecTemplate, JsonTemplate, Way};
use super::canonical::Hash;
use super::format::{DEFAULT_PARALLEL, WEEKDAYS};
use super::inputs::{Input, Type};
use super::secret::Reference;
use super::template::{Expression, Template, Trouble};
use super::window::{self, Outside, Window};
use super::{Playbook, Step, Tasks, Unattended};
use crate::agents;
use needs::Needs;
use place::Place;

pub use place::RUN_KEYS;
pub(crate) use single::single;

pub fn build(root: &Node, mut report: Report, file: &Path, catalog: &Catalog) -> Result<Playbook, Problems> {
    let mut builder = Builder {
        report: &mut report,
        declares_inputs: root.get("inputs").is_some(),
        inputs: Vec::new(),
        secrets: Vec::new(),
        steps: Vec::new(),
        needs: Needs::default(),
        is_agents: false,
    };
    let playbook = builder.playbook(root, file, catalog);
    report.done(playbook)
}

struct Builder<'t> {
    report: &'t mut Report,
    declares_inputs: bool,
    inputs: Vec<Input>,
    secrets: Vec<(String, Reference)>,
    /// The key of every step of the file, in order.
    steps: Vec<String>,
    needs: Needs,
    /// Runs of it are agents'.
    is_agents: bool,
}

impl Builder<'_> {
    fn playbook(&mut self, root: &Node, file: &Path, catalog: &Catalog) -> Playbook {
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        self.inputs = self.inputs(root);
        self.secrets = secrets(root);
        self.is_agents = root.text_of("lifecycle") == Some(agents::LIFECYCLE);
        let (steps, cleanups) = self.steps_and_cleanups(root);
        let rule = self.rule(root, &folder);
        let apply = self.application(root).map(Box::new);
        self.lifecycle(root, catalog);
        self.has_work(root);
        let concurrency_key = root.get("concurrency_key").map(|node| {
            self.not_empty(node);
            self.template(node, &Place::before_all_steps())
        });
        Playbook {
            name: root.of("name").unwrap_or_default(),
            lifecycle: root.of("lifecycle").unwrap_or_default(),
            description: root.of("description"),
            hash: Hash::of(&root.to_json()),
            file: file.to_owned(),
            text: String::new(),
            folder,
            takes_any_input: !self.declares_inputs,
            inputs: self.inputs.clone(),
            secrets: self.secrets.clone(),
            steps,
            cleanups,
            queue: root.of("queue"),
            priority: root.of("priority").unwrap_or(0),
            concurrency_key,
            max_parallel: root.of("max_parallel").unwrap_or(DEFAULT_PARALLEL),
            timeout: root.of("timeout").or(self.of_agents(agents::RUN_TIMEOUT)),
            window: root.get("window").and_then(|node| self.window(node)),
            details: self.details(root, &Place::before_all_steps()),
            unattended: match root.text_of("unattended") {
                Some("skip") => Unattended::Skip,
                _ => Unattended::Fail,
            },
            rule,
            apply,
        }
    }

    fn inputs(&mut self, root: &Node) -> Vec<Input> {
        let mut inputs = Vec::new();
        for (name, node) in root.get("inputs").map(Node::entries).unwrap_or_default() {
            let word = node.of::<String>("type").unwrap_or_default();
            // Without a type that is known, which was told already, nothing follows from it.
            let kind = Type::ALL.into_iter().find(|kind| kind.name() == word);
            let default = node.get("default");
            let is_secret = node.of::<bool>("secret").unwrap_or(false);
            if let (Some(default), Some(kind)) = (default, kind)
                && !kind.fits(&default.to_json())
            {
                let message = format!("the default is not a {word}");
                let mend = format!("write a {word}, or change the type");
                self.problem(default, "bad-default", &message, &mend);
            } else if let Some(default) = default.filter(|_| is_secret)
                && let Err(mend) = Reference::parse(default.text())
            {
                self.problem(default, "bad-reference", "the default of a secret is a reference", mend);
            }
            if let Some(required) = node.get("required").filter(|_| default.is_some())
                && node.of::<bool>("required") == Some(true)
            {
                let message = "it is required and has a default";
                self.problem(required, "default-and-required", message, "remove one of the two");
            }
            if is_secret && kind.is_some_and(|kind| kind != Type::String) {
                let message = "a secret is given as a text";
                self.problem(node, "secret-input", message, "write type = \"string\"");
            }
            inputs.push(Input {
                name: name.clone(),
                kind: kind.unwrap_or(Type::String),
                default: default.map(Node::to_json),
                required: node.of("required").unwrap_or(default.is_none()),
                description: node.of("description"),
                secret: is_secret,
            });
        }
        inputs
    }

    fn steps_and_cleanups(&mut self, root: &Node) -> (Vec<Step>, Vec<Step>) {
        let nodes = root.get("step").map(Node::items).unwrap_or_default();
        self.steps = nodes.iter().map(key_of).collect();
        self.keys_of_steps(nodes);
        self.needs = self.needs(nodes);
        let steps = nodes.iter().enumerate().map(|(at, node)| self.step(node, Some(at))).collect();
        let cleanups = root.get("cleanup").map(Node::items).unwrap_or_default();
        self.keys_of_cleanups(cleanups);
        (steps, cleanups.iter().map(|node| self.step(node, None)).collect())
    }

    /// `at`: its place among the steps; nothing for a cleanup, which sees all of them.
    fn step(&mut self, node: &Node, at: Option<usize>) -> Step {
        let once = Place::in_step(at, false);
        let for_each = node.get("for_each").map(|node| self.expression(node, &once));
        let for_each_is_given = for_each.is_some();
        let each = Place::in_step(at, for_each_is_given);
        let name = node.get("name").map(|node| {
            self.not_empty(node);
            self.template(node, &each)
        });
        let when = node.get("when").map(|node| self.expression(node, &each));
        let (retries, backoff) = self.retries(node);
        Step {
            is_cleanup: at.is_none(),
            key: key_of(node),
            name: name.unwrap_or_default(),
            action: self.action(node, &each),
            needs: at.map(|at| self.needs.own[at].clone()).unwrap_or_default(),
            before: at.map(|at| self.needs.all[at].clone()).unwrap_or_default(),
            parallel: self.parallel(node),
            ask: self.ask(node, &each),
            for_each: for_each.flatten(),
            when: when.flatten(),
            tasks: self.tasks(node, &each),
            // What it came to itself is told as well.
            details: self.details(node, &each.and_itself()),
            timeout: node
                .of("timeout")
                .or(self.of_agents(agents::STEP_TIMEOUT).filter(|_| node.get("ask").is_none())),
            retries,
            backoff,
            continue_on_failure: node.of("continue_on_failure").unwrap_or(false),
            after: self.after(node),
            line: node.line,
        }
    }

    /// What applies a proposal sees that, and nothing of the run that made it.
    fn application(&mut self, root: &Node) -> Option<Step> {
        let node = root.get("apply").filter(|_| self.is_agents && root.get("targets").is_none())?;
        for key in ["shopify", "handler", "parallel"].into_iter().filter_map(|key| node.get(key)) {
            let message = "a proposal is applied by a command or a request";
            self.problem(key, "misplaced-key", message, "write exec or http");
        }
        let declared = (std::mem::take(&mut self.inputs), self.declares_inputs);
        self.declares_inputs = false;
        let action = self.action(node, &Place::before_all_steps());
        (self.inputs, self.declares_inputs) = declared;
        let (retries, backoff) = self.retries(node);
        let timeout = node.of("timeout").or(self.of_agents(agents::STEP_TIMEOUT));
        Some(Step {
            retries,
            backoff,
            timeout,
            line: node.line,
            name: Template::parse("apply").ok()?,
            ..Step::only("apply", action)
        })
    }

    /// What holds for runs of agents where the file leaves it open.
    fn of_agents<T>(&self, value: T) -> Option<T> {
        self.is_agents.then_some(value)
    }

    fn details(&mut self, node: &Node, place: &Place) -> Vec<(String, JsonTemplate)> {
        let entries = node.get("details").map(Node::entries).unwrap_or_default();
        entries.iter().map(|(name, value)| (name.clone(), self.json(value, place))).collect()
    }

    fn parallel(&mut self, node: &Node) -> usize {
        if let Some(parallel) = node.get("parallel").filter(|_| node.get("for_each").is_none()) {
            let message = "it has no items that could be under way at once";
            self.problem(parallel, "misplaced-key", message, "add for_each = \"…\", or remove it");
        }
        node.of("parallel").unwrap_or(1)
    }

    fn tasks(&mut self, node: &Node, place: &Place) -> Tasks {
        match node.get("tasks") {
            None => Tasks::None,
            Some(list) if list.items().is_empty() => {
                self.expression(list, place).map_or(Tasks::None, Tasks::Given)
            }
            Some(list) => {
                let mut names = Vec::new();
                for item in list.items() {
                    self.not_empty(item);
                    names.push(self.template(item, place));
                }
                Tasks::Named(names)
            }
        }
    }

    fn retries(&mut self, node: &Node) -> (u32, Backoff) {
        let waits = node.of::<Vec<Span>>("backoff").unwrap_or_default();
        let given = node.of::<usize>("retries");
        if let (Some(list), Some(retries)) = (node.get("backoff"), given)
            && waits.len() > retries
        {
            let message = format!("there are {} waits for {retries} retries", waits.len());
            self.problem(list, "bad-backoff", &message, "write at most one wait for each retry");
        }
        let left_open =
            self.of_agents(agents::STEP_RETRIES).filter(|_| waits.is_empty()).unwrap_or(waits.len());
        let retries = u32::try_from(given.unwrap_or(left_open)).unwrap_or(0);
        (retries, if waits.is_empty() { Backoff::step() } else { Backoff::List(waits) })
    }

    fn after(&mut self, node: &Node) -> Option<String> {
        let after = node.get("after")?;
        if !self.steps.iter().any(|key| key == after.text()) {
            let message = format!("there is no step {}", quoted(after.text()));
            let mend = self.instead_of_step(after.text());
            self.problem(after, "unknown-step", &message, &mend);
        }
        Some(after.text().to_owned())
    }

    fn window(&mut self, node: &Node) -> Option<Window> {
        let mut weekdays = [false; 7];
        let listed = node.get("weekdays").map(Node::items).unwrap_or_default();
        for day in listed {
            let Some(at) = WEEKDAYS.iter().position(|known| *known == day.text()) else { continue };
            if weekdays[at] {
                let message = format!("{} stands twice", quoted(day.text()));
                self.problem(day, "duplicate-name", &message, "remove one of the two");
            }
            weekdays[at] = true;
        }
        if listed.is_empty() {
            weekdays = [true; 7];
        }
        let minute = |key: &str| node.get(key).and_then(|node| window::clock(node.text()));
        let window = Window {
            weekdays,
            from_minute: minute("from")?,
            to_minute: minute("to")?,
            timezone: window::zone(node.get("timezone").map_or("UTC", Node::text))?,
            outside: if node.text_of("outside") == Some("fail") { Outside::Fail } else { Outside::Wait },
        };
        if window.is_always_open() {
            self.problem(node, "bad-window", "the window never closes", "remove it, or name fewer weekdays");
        }
        Some(window)
    }

    fn lifecycle(&mut self, root: &Node, catalog: &Catalog) {
        let Some(node) = root.get("lifecycle") else { return };
        let runs: Vec<_> = catalog.iter().filter(|lifecycle| lifecycle.kind == Kind::Run).collect();
        let found = catalog.latest(node.text()).filter(|lifecycle| lifecycle.kind == Kind::Run);
        let Some(lifecycle) = found else {
            let known: Vec<&str> = runs.iter().map(|lifecycle| &*lifecycle.name).collect();
            let message = format!("there is no lifecycle {}", quoted(node.text()));
            let mend = format!("{}; or name the file of your own", instead_of(node.text(), &known));
            return self.problem(node, "unknown-lifecycle", &message, &mend);
        };
        self.can_ask(root, lifecycle, &runs);
        for (section, item) in [("targets", "target"), ("step", "step")] {
            let has =
                |lifecycle: &Lifecycle| lifecycle.items.iter().any(|kind| local_name(&kind.name) == item);
            if root.get(section).is_some() && !has(lifecycle) {
                let fit: Vec<&str> =
                    runs.iter().filter(|it| has(it)).map(|lifecycle| &*lifecycle.name).collect();
                let message = format!("runs of {} have no {item}s", quoted(node.text()));
                let mend = format!("use one that has: {}", fit.join(", "));
                self.problem(node, "lifecycle-without-items", &message, &mend);
            }
        }
    }

    fn has_work(&mut self, root: &Node) {
        let has_steps = root.get("step").is_some_and(|steps| !steps.items().is_empty());
        match root.get("targets") {
            // Their form was told already, if they were there at all.
            None if !has_steps && root.get("step").is_none() => {
                let mend = "add a [[step]], or [targets] and [apply]";
                self.problem(root, "nothing-to-do", "the playbook has no steps", mend);
            }
            None if !has_steps => {
                self.problem(root, "nothing-to-do", "the playbook has no steps", "add a [[step]]");
            }
            Some(targets) if has_steps => {
                let message = "the playbook has steps and targets";
                self.problem(targets, "steps-and-targets", message, "make two playbooks of it");
            }
            _ => {}
        }
    }

    /// The template, empty where it is not sound.
    fn template(&mut self, node: &Node, place: &Place) -> Template {
        self.template_of(node, node.text(), place)
    }

    fn template_of(&mut self, node: &Node, text: &str, place: &Place) -> Template {
        match Template::parse(text) {
            Ok(template) => {
                for named in template.named() {
                    self.variable(node, named, place);
                }
                template
            }
            Err(trouble) => {
                self.trouble(node, &trouble);
                Template::default()
            }
        }
    }

    fn expression(&mut self, node: &Node, place: &Place) -> Option<Expression> {
        match Expression::parse(node.text()) {
            Ok(expression) => {
                for named in expression.named() {
                    self.variable(node, named, place);
                }
                Some(expression)
            }
            Err(trouble) => {
                self.trouble(node, &trouble);
                None
            }
        }
    }

    fn trouble(&mut self, node: &Node, trouble: &Trouble) {
        self.report.add(node.line + trouble.line, &node.field, trouble.rule, &trouble.message, &trouble.mend);
    }

    fn not_empty(&mut self, node: &Node) {
        if node.text().trim().is_empty() {
            self.problem(node, "empty", "the text is empty", "write what belongs there");
        }
    }

    fn problem(&mut self, node: &Node, rule: &'static str, message: &str, mend: &str) {
        self.report.of_node(node, rule, message, mend);
    }

    fn instead_of_step(&self, name: &str) -> String {
        let known: Vec<&str> = self.steps.iter().map(String::as_str).filter(|key| !key.is_empty()).collect();
        if known.is_empty() {
            "add the [[step]] that it is about".to_owned()
        } else {
            instead_of(name, &known)
        }
    }
}

fn secrets(root: &Node) -> Vec<(String, Reference)> {
    let entries = root.get("secrets").map(Node::entries).unwrap_or_default();
    let reference = |node: &Node| Reference::parse(node.text()).unwrap_or(Reference::Env(String::new()));
    entries.iter().map(|(name, node)| (name.clone(), reference(node))).collect()
}

fn key_of(node: &Node) -> String {
    node.of::<String>("id").or(node.of::<String>("name")).unwrap_or_default()
}

/// Stands in for an action that is not there, which was told already.
fn no_action() -> ActionTemplate {
    let exec = ExecTemplate { program: String::new(), arguments: Vec::new(), env: Vec::new() };
    ActionTemplate::new(Way::Exec(exec), |_| false)
}

const TARGET_RETRIES: u32 = 3;

fn target_retries(node: &Node) -> (u32, Option<Span>) {
    let retries = node.of::<u32>("retries");
    (retries.unwrap_or(TARGET_RETRIES), node.of::<Span>("timeout"))
}
