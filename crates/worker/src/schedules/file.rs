//! From a file to schedules: TOML with the line of every value kept, all problems at once.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::schedule::{CatchUp, Cron, First, Overlap, Policy, Timing, Zone};
use waypost_kernel::tenant::{DEFAULT, own_name};
use waypost_kernel::{Catalog, Span};
use waypost_schema::{Node, Problems, Report, quoted, read_json};

use super::format::{FILE, SCHEDULE};
use super::schedule::{QueuedRun, Schedule, Scopes, What};
use crate::playbook::build::single;
use crate::playbook::{ActionTemplate, Hash, Playbook, Reference, Unattended, text_of};
use crate::retention;

const MINUTE: Span = Span::from_seconds(60);
const SECOND: Span = Span::from_seconds(1);
const LONGEST_JITTER: Span = Span::from_seconds(3_600);
const MAX_ID_BYTES: usize = 200;

/// Reads and checks a file of schedules. They are the catalog's tenant's.
pub fn load(path: &Path, catalog: &Catalog) -> Result<Vec<Schedule>, Problems> {
    let text = text_of(path)?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    parse(&text, path, absolute.parent().unwrap_or(Path::new("/")), catalog)
}

/// `path` is for messages, `folder` for what is relative.
pub fn parse(text: &str, path: &Path, folder: &Path, catalog: &Catalog) -> Result<Vec<Schedule>, Problems> {
    let (root, report) = FILE.read(text, path)?;
    let mut builder = Builder { report, folder, catalog, may_read: true };
    let mut schedules: Vec<Schedule> = Vec::new();
    let of_agents = of_agents(&root, &mut builder.report);
    let written = root.get("schedule").map(Node::items).unwrap_or_default();
    for node in written.iter().chain(&of_agents) {
        let Some(schedule) = builder.schedule(node) else { continue };
        if schedules.iter().any(|other| other.name == schedule.name) {
            let message = format!("there are two schedules {}", quoted(&schedule.name));
            let name = node.get("name").unwrap_or(node);
            builder.problem(name, "duplicate-name", &message, "give one of them another name");
        }
        schedules.push(schedule);
    }
    retention::rules(&root, &mut builder.report, catalog);
    builder.report.done(schedules)
}

/// Agents that begin runs by themselves, each as the schedule that it stands for.
fn of_agents(root: &Node, report: &mut Report) -> Vec<Node> {
    let mut schedules = Vec::new();
    for agent in root.get("agent").map(Node::items).unwrap_or_default() {
        let Some(slug) = agent.text_of("slug") else { continue };
        if agent.get("cron").is_none() {
            for key in ["timezone", "input"].into_iter().filter_map(|key| agent.get(key)) {
                let message = "no run of it begins by itself";
                report.of_node(key, "misplaced-key", message, "add cron = \"0 8 * * *\", or remove it");
            }
            continue;
        }
        let member = |key: &str| agent.get(key).map(|node| (key.to_owned(), node.to_json()));
        let mut run = Map::from_iter([("agent".to_owned(), json!(slug))]);
        run.extend(member("input"));
        let mut members = Map::from_iter([
            ("name".to_owned(), json!(format!("agent-{slug}"))),
            ("run".to_owned(), Value::Object(run)),
        ]);
        members.extend(member("cron").into_iter().chain(member("timezone")));
        let (mut node, found) = read_json(members, &SCHEDULE);
        node.line = agent.line;
        if let Err(problems) = found.done(()) {
            let told = problems.0.first().map(|problem| problem.message.clone()).unwrap_or_default();
            report.of_node(agent, "bad-schedule", &told, "see the keys of a schedule");
            continue;
        }
        schedules.push(node);
    }
    schedules
}

/// As `parse` made it once, of the same tenant. No other file is read.
pub fn stored(definition: &Value, folder: &Path, catalog: &Catalog) -> Result<Schedule, Problems> {
    let members = definition.as_object().cloned().unwrap_or_default();
    let (node, report) = read_json(members, &SCHEDULE);
    let mut builder = Builder { report, folder, catalog, may_read: false };
    let schedule = builder.schedule(&node);
    // Without one, why was told.
    let none = || Problems::one(Path::new(""), 0, "missing-key", "there is no schedule", "apply it again");
    builder.report.done(schedule)?.ok_or_else(none)
}

pub(super) struct Builder<'t> {
    report: Report,
    pub folder: &'t Path,
    pub catalog: &'t Catalog,
    /// Files that are named beside it.
    pub may_read: bool,
}

impl Builder<'_> {
    fn schedule(&mut self, node: &Node) -> Option<Schedule> {
        // By the catalog's tenant: the installation's name, or the tenant's own.
        let name = own_name(self.catalog.tenant(), &node.of::<String>("name").unwrap_or_default());
        let timing = self.timing(node);
        let policy = Policy {
            name: name.clone(),
            first: first(node),
            catch_up: self.catch_up(node),
            max_lateness: self.max_lateness(node),
            overlap: overlap(node),
            jitter: self.jitter(node, timing.as_ref()),
            timing: timing.unwrap_or(Timing::Every { cadence: MINUTE, delay: Span::ZERO }),
        };
        let span = |key: &str, default: Span| node.of::<Span>(key).unwrap_or(default);
        let backoff = match node.get("backoff") {
            Some(_) => node.of::<Vec<Span>>("backoff").unwrap_or_default(),
            None => [1, 5, 15].map(|minutes| Span::from_seconds(60 * minutes)).to_vec(),
        };
        let what = self.what(node, &name)?;
        let mut definition = node.to_json();
        if let What::Run(QueuedRun { carried: Some(carried), .. }) = &what
            && let Some(playbook) = carried.get("playbook")
        {
            definition["run"]["brought"] = playbook.clone();
        }
        let schedule = Schedule {
            description: node.of("description"),
            policy,
            run_timeout: span("run_timeout", Span::from_seconds(25 * 60)),
            stale_timeout: span("stale_timeout", Span::from_seconds(30 * 60)),
            heartbeat: span("heartbeat", Span::from_seconds(30)),
            max_attempts: node.of("max_attempts").unwrap_or(3),
            backoff,
            reentry: node.of("reentry").unwrap_or(true),
            scopes: self.scopes(node)?,
            what,
            hash: self.hash(&definition),
            definition,
            folder: self.folder.to_owned(),
            line: node.line,
            name,
        };
        self.times_fit(node, &schedule);
        Some(schedule)
    }

    /// Two tenants' schedules are two, whatever they say.
    fn hash(&self, definition: &Value) -> Hash {
        let folder = self.folder.display().to_string();
        match self.catalog.tenant() {
            DEFAULT => Hash::of(&json!([definition, folder])),
            tenant => Hash::of(&json!([definition, folder, tenant])),
        }
    }

    fn timing(&mut self, node: &Node) -> Option<Timing> {
        match (node.get("cron"), node.get("cadence")) {
            (Some(cron), None) => {
                if let Some(delay) = node.get("delay") {
                    self.problem(
                        delay,
                        "misplaced-key",
                        "a delay is a cadence's",
                        "remove it, or name a later time",
                    );
                }
                let zone =
                    node.of::<String>("timezone").and_then(|name| Zone::named(&name)).unwrap_or(Zone::utc());
                match Cron::parse(cron.text()) {
                    Ok(cron) => Some(Timing::Cron { cron, zone }),
                    Err(problem) => {
                        self.problem(cron, "bad-cron", &problem.message, &problem.mend);
                        None
                    }
                }
            }
            (None, Some(cadence)) => {
                if let Some(zone) = node.get("timezone") {
                    let message = "a cadence is counted in UTC";
                    self.problem(
                        zone,
                        "misplaced-key",
                        message,
                        "remove it, or write cron instead of cadence",
                    );
                }
                let delay = self.span(node, "delay").unwrap_or(Span::ZERO);
                let span = cadence.typed::<Span>()?;
                if span.micros() % SECOND.micros() != 0 {
                    self.problem(cadence, "bad-schedule", "a cadence has whole seconds", "write 1s or more");
                }
                Some(Timing::Every { cadence: span, delay })
            }
            (Some(_), Some(cadence)) => {
                self.problem(
                    cadence,
                    "bad-schedule",
                    "there is cron already",
                    "keep one of cron and cadence",
                );
                None
            }
            // Each was told already if it was there and unreadable.
            (None, None) => {
                let mend = "add cron = \"0 2 * * *\" or cadence = \"5m\"";
                self.problem(node, "bad-schedule", "the schedule does not say when", mend);
                None
            }
        }
    }

    fn catch_up(&mut self, node: &Node) -> CatchUp {
        if node.text_of("catch_up") == Some("every_plan") {
            let window = node.of::<Span>("catch_up_window").unwrap_or(Span::from_seconds(86_400));
            let at_once = node.of::<u32>("max_plans_per_tick");
            return CatchUp::EveryPlan { window, at_once: at_once.unwrap_or(3) };
        }
        CatchUp::LatestOnly
    }

    fn max_lateness(&mut self, node: &Node) -> Option<Span> {
        if node.get("max_lateness").is_some_and(|node| node.text() == "never") {
            return None;
        }
        self.span(node, "max_lateness")
    }

    fn jitter(&mut self, node: &Node, timing: Option<&Timing>) -> Span {
        let jitter = self.span(node, "jitter").unwrap_or(Span::ZERO);
        let limit = match timing {
            Some(Timing::Every { cadence, .. }) => LONGEST_JITTER.min(*cadence),
            _ => LONGEST_JITTER,
        };
        if let Some(node) = node.get("jitter").filter(|_| jitter > limit) {
            let message = format!("{jitter} of jitter is too much");
            self.problem(node, "bad-schedule", &message, &format!("write at most {limit}"));
        }
        jitter
    }

    /// A length of time that may be none.
    fn span(&mut self, node: &Node, key: &str) -> Option<Span> {
        let node = node.get(key)?;
        let found = Span::parse(node.text());
        if found.is_none() {
            let message = format!("{} is no length of time", quoted(node.text()));
            let mut mend = "write a whole number and a unit: 0s, 60s, 5m, 24h".to_owned();
            if key == "max_lateness" {
                mend.push_str("; or never");
            }
            self.problem(node, "bad-duration", &message, &mend);
        }
        found
    }

    fn times_fit(&mut self, node: &Node, schedule: &Schedule) {
        let at = |key: &str| node.get(key).unwrap_or(node).clone();
        if schedule.stale_timeout <= schedule.run_timeout {
            let message = format!(
                "stale_timeout ({}) is not longer than run_timeout ({})",
                schedule.stale_timeout, schedule.run_timeout
            );
            let at =
                if node.get("stale_timeout").is_some() { at("stale_timeout") } else { at("run_timeout") };
            self.problem(
                &at,
                "bad-schedule",
                &message,
                "an execution ends before it counts as lost: raise stale_timeout, which is longer than run_timeout and heartbeat",
            );
        }
        if schedule.heartbeat >= schedule.stale_timeout {
            let message = format!(
                "heartbeat ({}) is not shorter than stale_timeout ({})",
                schedule.heartbeat, schedule.stale_timeout
            );
            let at = if node.get("heartbeat").is_some() { at("heartbeat") } else { at("stale_timeout") };
            self.problem(
                &at,
                "bad-schedule",
                &message,
                "several signs of life belong into stale_timeout: lower heartbeat",
            );
        }
        if matches!(schedule.policy.catch_up, CatchUp::LatestOnly) {
            for key in ["catch_up_window", "max_plans_per_tick"] {
                if let Some(node) = node
                    .get(key)
                    .filter(|_| node.get("catch_up").is_some_and(|it| it.text() == "latest_only"))
                {
                    // The shipped defaults may be written out; other values would mean something that does not happen.
                    let is_default =
                        node.typed() == Some(Span::from_seconds(86_400)) || node.to_json() == json!(3);
                    if !is_default {
                        self.problem(
                            node,
                            "misplaced-key",
                            "it is for every_plan",
                            "write catch_up = \"every_plan\", or remove it",
                        );
                    }
                }
            }
        }
    }

    fn scopes(&mut self, node: &Node) -> Option<Scopes> {
        let Some(scopes) = node.get("scopes") else { return Some(Scopes::Global) };
        let kind = scopes.of::<String>("kind")?;
        let providers = ["ids", "sql", "http", "handler"];
        let given: Vec<&Node> = providers.iter().filter_map(|key| scopes.get(key)).collect();
        match (kind.as_str(), given.as_slice()) {
            ("global", []) => Some(Scopes::Global),
            ("global", [one, ..]) => {
                let mend = "remove it, or give the scopes a kind of their own";
                self.problem(one, "bad-scopes", "global is one scope alone", mend);
                None
            }
            (_, [only]) if std::ptr::eq(*only, scopes.get("ids").unwrap_or(node)) => {
                let ids = self.ids(only);
                Some(Scopes::Listed { kind, ids })
            }
            (_, [only]) if std::ptr::eq(*only, scopes.get("sql").unwrap_or(node)) => {
                Some(Scopes::Sql { kind, sql: only.text().to_owned() })
            }
            (_, [only]) if std::ptr::eq(*only, scopes.get("handler").unwrap_or(node)) => {
                Some(Scopes::Handler { kind, name: only.text().to_owned() })
            }
            (_, [_]) => {
                let ask = self.action(scopes, node, &kind)?;
                Some(Scopes::Http { kind, ask })
            }
            (_, []) => {
                let mend = format!("add one of: {}", providers.join(", "));
                self.problem(
                    scopes,
                    "bad-scopes",
                    &format!("where do scopes of {} come from?", quoted(&kind)),
                    &mend,
                );
                None
            }
            (_, [_, second, ..]) => {
                let mend = format!("keep one of: {}", providers.join(", "));
                self.problem(second, "bad-scopes", "the scopes come from two places", &mend);
                None
            }
        }
    }

    fn ids(&mut self, node: &Node) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for item in node.items() {
            let id = item.text().to_owned();
            if id.len() > MAX_ID_BYTES {
                let message = format!("the id is longer than {MAX_ID_BYTES} bytes");
                self.problem(item, "bad-scopes", &message, "use a shorter one");
            }
            if ids.contains(&id) {
                self.problem(
                    item,
                    "bad-scopes",
                    &format!("{} stands twice", quoted(&id)),
                    "remove one of the two",
                );
            }
            ids.push(id);
        }
        ids
    }

    fn what(&mut self, node: &Node, name: &str) -> Option<What> {
        if let Some(run) = node.get("run") {
            return self.run(run).map(What::Run);
        }
        if let Some(handler) = node.get("handler") {
            return Some(What::Handler(handler.text().to_owned()));
        }
        self.action(node, node, name).map(|action| What::Action(Arc::from(action)))
    }

    /// `exec` or `http` of a node, with the secrets of its schedule.
    fn action(&mut self, node: &Node, schedule: &Node, name: &str) -> Option<Box<Playbook>> {
        node.get("exec").or(node.get("http"))?;
        let secrets: Vec<(String, Reference)> = schedule
            .get("secrets")
            .map(Node::entries)
            .unwrap_or_default()
            .iter()
            .filter_map(|(name, node)| Some((name.clone(), Reference::parse(node.text()).ok()?)))
            .collect();
        let action = single(node, &mut self.report, &secrets);
        Some(Box::new(self.playbook_of(name, action, secrets)))
    }

    fn playbook_of(&self, name: &str, action: ActionTemplate, secrets: Vec<(String, Reference)>) -> Playbook {
        Playbook {
            text: String::new(),
            name: name.to_owned(),
            lifecycle: super::LIFECYCLE.to_owned(),
            description: None,
            hash: Hash::default(),
            file: self.folder.join("schedule"),
            folder: self.folder.to_owned(),
            inputs: Vec::new(),
            takes_any_input: true,
            secrets,
            steps: vec![crate::playbook::Step::only(name, action)],
            cleanups: Vec::new(),
            queue: None,
            priority: 0,
            concurrency_key: None,
            max_parallel: 1,
            timeout: None,
            window: None,
            details: Vec::new(),
            unattended: Unattended::default(),
            rule: None,
            apply: None,
        }
    }

    pub(super) fn problem(&mut self, node: &Node, rule: &'static str, message: &str, mend: &str) {
        self.report.of_node(node, rule, message, mend);
    }
}

fn overlap(node: &Node) -> Overlap {
    match (node.text_of("overlap"), node.text_of("catch_up")) {
        (Some("allow"), _) => Overlap::Allow,
        (Some("queue"), _) | (None, Some("every_plan")) => Overlap::Queue,
        _ => Overlap::Skip,
    }
}

/// Who writes a cadence wants the bucket that has just passed; who writes a time of day does not want yesterday's.
fn first(node: &Node) -> First {
    match (node.text_of("first"), node.get("cron")) {
        (Some("next"), _) | (None, Some(_)) => First::Next,
        _ => First::Latest,
    }
}
