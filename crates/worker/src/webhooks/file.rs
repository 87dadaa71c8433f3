//! From `waypost.toml` to rules: the form is declared with the schedules', which stand in the same file.

use std::path::Path;
use std::sync::Arc;

use waypost_schema::{Kind, Node, Problems, Report, Shape, instead_of, needed, optional, quoted};

use super::{Github, Pattern, Rule};
use crate::playbook::format::{EXPRESSION, JSON, NAME, TEXT, list};
use crate::playbook::{Expression, JsonTemplate, Playbooks, Reference, Template, Trouble, formats, text_of};
use crate::schedules::format::FILE;

pub(crate) static GITHUB: Shape = Shape::of_file(
    "a GitHub webhook",
    &[
        needed(
            "secret",
            Kind::Format(&formats::REFERENCE),
            "What GitHub signs deliveries with, as a reference: env:NAME or file:/path.",
        ),
        optional("on", list(&Kind::Of(&ON), 0, 200), "What happens when."),
    ],
);

pub(crate) static ON: Shape = Shape::of_file(
    "a rule",
    &[
        needed(
            "event",
            NAME,
            "As GitHub calls it: push, workflow_run, release, pull_request … `ping` is answered by itself.",
        ),
        optional(
            "action",
            NAME,
            "The event's `action`: `published` of a release, `completed` of a workflow_run.",
        ),
        optional(
            "repository",
            TEXT,
            "`owner/name`; `*` stands for anything without a slash, `**` for anything.",
        ),
        optional(
            "branch",
            TEXT,
            "The branch that was pushed to, that a pull request goes to, or that a workflow ran on: a pattern.",
        ),
        optional("tag", TEXT, "The tag that was pushed or released: a pattern."),
        optional("when", EXPRESSION, "A condition about `event`, the payload: `event.pull_request.merged`."),
        needed("playbook", NAME, "One of the server's folder of playbooks (`--playbooks`), by its name."),
        optional(
            "inputs",
            JSON,
            "What it is given, by name; texts are templates: `{ sha = \"{{ event.after }}\" }`.",
        ),
    ],
);

pub fn load(path: &Path, playbooks: &Playbooks) -> Result<Option<Github>, Problems> {
    let (root, report) = FILE.read(&text_of(path)?, path)?;
    let mut reader = Reader { report, playbooks };
    let github = root.get("github").map(|node| reader.github(node));
    reader.report.done(github)
}

struct Reader<'p> {
    report: Report,
    playbooks: &'p Playbooks,
}

impl Reader<'_> {
    fn github(&mut self, node: &Node) -> Github {
        let on = node.get("on").map(Node::items).unwrap_or_default();
        // What is missing or unreadable was told already.
        let secret = node.text_of("secret").and_then(|text| Reference::parse(text).ok());
        Github {
            secret: secret.unwrap_or(Reference::Env(String::new())),
            rules: on.iter().filter_map(|node| self.rule(node)).collect(),
        }
    }

    fn rule(&mut self, node: &Node) -> Option<Rule> {
        let pattern = |key: &str| node.text_of(key).map(Pattern::new);
        let when = node.get("when").and_then(|node| {
            let found = Expression::parse(node.text());
            found.map_err(|trouble| self.trouble(node, &trouble)).ok()
        });
        let inputs = match node.get("inputs") {
            Some(node) => self.json(node),
            None => JsonTemplate::Object(Vec::new()),
        };
        if let (Some(inputs), JsonTemplate::Text(_) | JsonTemplate::Plain(_) | JsonTemplate::List(_)) =
            (node.get("inputs"), &inputs)
        {
            let mend = "give them by name: { sha = \"{{ event.after }}\" }";
            self.report.of_node(inputs, "bad-playbook", "the inputs are no table", mend);
        }
        let named = node.get("playbook")?;
        let Some(playbook) = self.playbooks.get(named.text()) else {
            let known: Vec<&str> = self.playbooks.iter().map(|playbook| playbook.name.as_str()).collect();
            let message = format!("the server has no playbook {}", quoted(named.text()));
            let mend = match known.as_slice() {
                [] => "start it with --playbooks and the folder that has it".to_owned(),
                known => instead_of(named.text(), known),
            };
            self.report.of_node(named, "bad-playbook", &message, &mend);
            return None;
        };
        Some(Rule {
            event: node.text_of("event")?.to_owned(),
            action: node.of("action"),
            repository: pattern("repository"),
            branch: pattern("branch"),
            tag: pattern("tag"),
            when,
            playbook: Arc::clone(playbook),
            inputs,
        })
    }

    fn json(&mut self, node: &Node) -> JsonTemplate {
        JsonTemplate::of(node, &mut |text| {
            Template::parse(text.text()).unwrap_or_else(|trouble| {
                self.trouble(text, &trouble);
                Template::default()
            })
        })
    }

    fn trouble(&mut self, node: &Node, trouble: &Trouble) {
        self.report.add(node.line + trouble.line, &node.field, trouble.rule, &trouble.message, &trouble.mend);
    }
}
