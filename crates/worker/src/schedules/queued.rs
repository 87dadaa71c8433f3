//! `run = { … }`: a run for a queue, with a command or a playbook that it brings along, or a playbook that workers have.

use std::path::Path;

use serde_json::json;
use waypost_schema::{instead_of, quoted};

use super::file::Builder;
use super::schedule::QueuedRun;
use crate::playbook::{CannotStart, Playbook};
use waypost_schema::Node;

const RULE: &str = "bad-playbook";

impl Builder<'_> {
    pub(super) fn run(&mut self, node: &Node) -> Option<QueuedRun> {
        if let Some(agent) = node.get("agent") {
            return self.run_of_agent(node, agent);
        }
        let Some(lifecycle) = node.get("lifecycle") else {
            let mend = "write lifecycle = \"deploy\", or agent = \"SLUG\"";
            self.problem(node, "missing-key", "the run says neither its lifecycle nor its agent", mend);
            return None;
        };
        let known = self.catalog.latest(lifecycle.text());
        if known.is_none_or(|known| !super::is_queueable(known)) {
            let fit: Vec<&str> =
                self.catalog.iter().filter(|it| super::is_queueable(it)).map(|it| &*it.name).collect();
            let message = format!("no run of {} can be queued", quoted(lifecycle.text()));
            let mend = instead_of(lifecycle.text(), &fit);
            self.problem(lifecycle, "unknown-lifecycle", &message, &mend);
        }
        if known.is_some_and(|known| crate::targets::is_bulk(known)) {
            let message = "a bulk change waits for somebody who has seen its preview";
            let mend = "fire a playbook of another lifecycle, whose steps start and queue it (`waypost run start`, `run queue`)";
            self.problem(lifecycle, "unknown-lifecycle", message, mend);
            return None;
        }
        let command: Vec<&str> =
            node.get("exec").map(Node::items).unwrap_or_default().iter().map(Node::text).collect();
        let directory = self.folder.display().to_string();
        let run = QueuedRun {
            agent: None,
            lifecycle: lifecycle.text().to_owned(),
            playbook: node.of("playbook"),
            carried: (!command.is_empty()).then(|| json!({ "command": command, "directory": directory })),
            queue: node.of("queue"),
            priority: node.of("priority"),
            input: node.get("input").map_or(json!({}), Node::to_json),
            concurrency_key: None,
            max_attempts: 1,
            items: Vec::new(),
        };
        match node.get("playbook") {
            Some(named) if named.text().ends_with(".toml") => self.with_playbook(node, named, run),
            _ => Some(run),
        }
    }

    fn run_of_agent(&mut self, node: &Node, agent: &Node) -> Option<QueuedRun> {
        for key in ["lifecycle", "queue", "brought"].into_iter().filter_map(|key| node.get(key)) {
            self.problem(key, "misplaced-key", "the agent says that", "remove it");
        }
        Some(QueuedRun {
            agent: Some(agent.text().to_owned()),
            lifecycle: crate::agents::LIFECYCLE.to_owned(),
            playbook: None,
            carried: None,
            queue: None,
            priority: node.of("priority"),
            input: node.get("input").map_or(json!({}), Node::to_json),
            concurrency_key: None,
            max_attempts: 1,
            items: Vec::new(),
        })
    }

    /// As `run start FILE` does: its very content goes along, by its hash a worker that has it knows it.
    fn with_playbook(&mut self, node: &Node, named: &Node, run: QueuedRun) -> Option<QueuedRun> {
        let (file, text) = self.text_of(node, named)?;
        let playbook = match Playbook::parse_with(&text, Path::new(&file), self.catalog) {
            Ok(playbook) => playbook,
            Err(problems) => {
                let first = problems.0.first().map(ToString::to_string).unwrap_or_default();
                self.problem(named, RULE, &first, "`waypost playbook check` tells more");
                return None;
            }
        };
        let mend = "name another playbook, or write this lifecycle";
        if playbook.lifecycle != run.lifecycle || playbook.rule.is_some() {
            let message = format!("the playbook is one of {}", quoted(&playbook.lifecycle));
            self.problem(named, RULE, &message, mend);
            return None;
        }
        let started = match playbook.new_run(self.catalog, &run.input) {
            Ok(started) => started,
            Err(error) => {
                let (at, mend) = match &error {
                    CannotStart::Key(_) => (named, "give it the inputs that its key is made of"),
                    _ => {
                        (node.get("input").unwrap_or(named), "give the playbook the inputs that it declares")
                    }
                };
                self.problem(at, RULE, &on_one_line(&error), mend);
                return None;
            }
        };
        Some(QueuedRun {
            playbook: started.playbook,
            queue: run.queue.or(Some(started.queue)),
            priority: run.priority.or(Some(started.priority)),
            carried: Some(json!({ "playbook": { "file": file, "text": text } })),
            concurrency_key: started.concurrency_key,
            max_attempts: started.max_attempts,
            items: started.items,
            input: started.input,
            ..run
        })
    }

    /// What was stored brings its text along; only a file of schedules is read beside.
    fn text_of(&mut self, node: &Node, named: &Node) -> Option<(String, String)> {
        if let Some(brought) = node.get("brought") {
            return Some((brought.of::<String>("file")?, brought.of::<String>("text")?));
        }
        if !self.may_read {
            let mend =
                "name one that workers have, or apply a file with the command line, which brings it along";
            self.problem(named, RULE, "a playbook's file is not read here", mend);
            return None;
        }
        let file = self.folder.join(named.text());
        let text = match std::fs::read_to_string(&file) {
            Ok(text) if text.len() <= crate::playbook::format::MAX_FILE_BYTES => Ok(text),
            Ok(_) => Err("the file is larger than 256 KiB".to_owned()),
            Err(error) => Err(format!("the file cannot be read: {error}")),
        };
        let unfit = |message: String| {
            let mend = format!("name a playbook's file beside this one: {} is none", file.display());
            self.problem(named, RULE, &message, &mend);
        };
        let text = text.map_err(unfit).ok()?;
        Some((file.display().to_string(), text))
    }
}

/// All that keeps a run from being started.
fn on_one_line(error: &CannotStart) -> String {
    match error {
        CannotStart::Inputs(problems) => {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    }
}
