//! The sections of a bulk change.

use std::path::Path;

use super::place::Place;
use super::{Builder, target_retries};
use crate::playbook::action::{ActionTemplate, BodyTemplate, HttpTemplate, JsonTemplate, Way};
use crate::playbook::rule::{Breaker, Fetch, Limit, Rate, Reconcile, Rule, Source, TargetAction, Targets};
use crate::playbook::template::Named;
use waypost_schema::Node;

/// They mean nothing without targets.
const SECTIONS: [&str; 6] = ["apply", "fetch", "rollback", "limit", "breaker", "reconcile"];

impl Builder<'_> {
    pub(super) fn rule(&mut self, root: &Node, folder: &Path) -> Option<Rule> {
        let Some(targets) = root.get("targets") else {
            for section in SECTIONS.iter().filter_map(|section| root.get(section)) {
                let message = "there are no targets for it";
                self.problem(section, "section-alone", message, "add [targets], or remove this section");
            }
            return None;
        };
        let targets_found = self.targets(targets, folder);
        let apply = root.get("apply").map(|node| self.target_action(node));
        if apply.is_none() {
            let message = "nothing is said about how a target is changed";
            self.problem(targets, "section-alone", message, "add [apply] with http or exec");
        }
        let fetch = root.get("fetch").map(|node| Fetch {
            action: self.target_action(node),
            value: node.of("value").unwrap_or_default(),
        });
        let reconcile = root.get("reconcile");
        let fetch = fetch.or_else(|| apply.as_ref().filter(|_| reconcile.is_some()).and_then(read_back));
        if let Some(node) = reconcile.filter(|_| apply.is_some() && fetch.is_none()) {
            let message = "nothing is said about how a target's value is read";
            self.problem(node, "section-alone", message, "add [fetch] with http or exec");
        }
        Some(Rule {
            targets: targets_found,
            apply: apply.unwrap_or_else(|| TargetAction {
                action: super::no_action(),
                timeout: None,
                retries: 0,
            }),
            fetch,
            rollback: root.get("rollback").map(|node| self.target_action(node)),
            limit: root.get("limit").and_then(limit),
            breaker: root.get("breaker").and_then(breaker),
            reconcile: reconcile.map(|node| self.reconcile(node)),
        })
    }

    fn targets(&mut self, node: &Node, folder: &Path) -> Targets {
        let source = if let Some(file) = node.get("csv") {
            Source::Csv(folder.join(file.text()))
        } else if let Some(file) = node.get("jsonl") {
            Source::Jsonl(folder.join(file.text()))
        } else {
            Source::Action(self.action(node, &Place::before_all_steps()))
        };
        if let (Source::Csv(_) | Source::Jsonl(_), Some(env)) = (&source, node.get("env")) {
            self.problem(env, "misplaced-key", "a file has no environment", "remove it");
        }
        Targets { source, timeout: node.of("timeout") }
    }

    fn target_action(&mut self, node: &Node) -> TargetAction {
        let (retries, timeout) = target_retries(node);
        TargetAction { action: self.action(node, &Place::with_target()), timeout, retries }
    }

    fn reconcile(&mut self, node: &Node) -> Reconcile {
        let tolerance = node.get("tolerance");
        for (_, value) in tolerance.map(Node::entries).unwrap_or_default() {
            if value.to_json().as_f64().is_some_and(|number| number < 0.0) {
                self.problem(value, "bad-number", "a tolerance is 0 or more", "write 0 for none");
            }
        }
        let number = |key: &str| tolerance.and_then(|node| node.of(key)).unwrap_or(0.0);
        Reconcile {
            after: node.of("after").unwrap_or_default(),
            daily_for: node.of("daily_for"),
            amount: number("amount"),
            percent: number("percent"),
        }
    }
}

/// What is written over http can be read from there, at the key that `target.after` is written to.
fn read_back(apply: &TargetAction) -> Option<Fetch> {
    let Way::Http(http) = &apply.action.way else { return None };
    let names_after = |value: &JsonTemplate| {
        let is_after = |named: &Named| named.path.iter().map(String::as_str).eq(["target", "after"]);
        matches!(value, JsonTemplate::Text(template) if template.named().any(is_after))
    };
    let key = match &http.body {
        BodyTemplate::Json(JsonTemplate::Object(entries)) => {
            entries.iter().find(|(_, value)| names_after(value)).map(|(key, _)| key)
        }
        _ => None,
    };
    let get = HttpTemplate { method: "GET".to_owned(), body: BodyTemplate::None, ..(**http).clone() };
    let secret_inputs = apply.action.secret_inputs.clone();
    let action = ActionTemplate::new(Way::Http(Box::new(get)), |name| secret_inputs.contains(name));
    Some(Fetch {
        action: TargetAction { action, ..apply.clone() },
        value: key.map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).unwrap_or_default(),
    })
}

fn limit(node: &Node) -> Option<Limit> {
    let rate = Rate::parse(node.get("rate")?.text())?;
    let burst = node.of::<u32>("burst").unwrap_or(1);
    Some(Limit { rate, burst })
}

fn breaker(node: &Node) -> Option<Breaker> {
    let after = node.of("after")?;
    Some(Breaker { after, pause: node.of("pause")? })
}
