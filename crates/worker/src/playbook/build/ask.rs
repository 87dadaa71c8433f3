//! Steps that ask a person.

use std::sync::Arc;

use waypost_kernel::lifecycle::{Actor, Lifecycle, Phase};
use waypost_schema::{Node, instead_of, quoted};

use super::Builder;
use super::place::Place;
use crate::playbook::Ask;

const CHOICES: [&str; 2] = ["yes", "no"];
/// As long as what is decided may be.
const MAX_CHOICE_CHARS: usize = 255;

impl Builder<'_> {
    pub(super) fn ask(&mut self, node: &Node, place: &Place) -> Option<Ask> {
        let Some(question) = node.get("ask") else {
            for key in ["choices", "on_timeout"] {
                if let Some(misplaced) = node.get(key) {
                    let message = "only a step that asks a person has it";
                    self.problem(misplaced, "misplaced-key", message, "add ask = \"…\", or remove it");
                }
            }
            return None;
        };
        self.not_empty(question);
        for key in ["env", "tasks", "retries", "backoff"] {
            if let Some(misplaced) = node.get(key) {
                let message = "a step that asks a person executes nothing";
                self.problem(misplaced, "misplaced-key", message, "remove it");
            }
        }
        let choices = self.choices(node);
        let on_timeout = node.get("on_timeout").map(|choice| {
            if !choices.iter().any(|known| known == choice.text()) {
                let message = format!("{} is no choice", quoted(choice.text()));
                let known: Vec<&str> = choices.iter().map(String::as_str).collect();
                self.problem(choice, "unknown-word", &message, &instead_of(choice.text(), &known));
            }
            choice.text().to_owned()
        });
        Some(Ask { question: self.template(question, place), choices, on_timeout })
    }

    fn choices(&mut self, node: &Node) -> Vec<String> {
        let Some(listed) = node.get("choices").map(Node::items) else {
            return CHOICES.map(str::to_owned).to_vec();
        };
        let mut choices: Vec<String> = Vec::new();
        for choice in listed {
            self.not_empty(choice);
            let word = choice.text().trim();
            if choices.iter().any(|known| known == word) {
                let message = format!("{} stands twice", quoted(word));
                self.problem(choice, "duplicate-name", &message, "remove one of the two");
            }
            if word != choice.text()
                || word.chars().count() > MAX_CHOICE_CHARS
                || word.chars().any(char::is_control)
            {
                let message = format!(
                    "a choice is one line of at most {MAX_CHOICE_CHARS} characters, without spaces around it"
                );
                self.problem(choice, "bad-name", &message, "write a word or a few");
            }
            choices.push(word.to_owned());
        }
        choices
    }

    /// A run that asks has to have a state to wait in, and a place for what is answered.
    pub(super) fn can_ask(&mut self, root: &Node, lifecycle: &Lifecycle, runs: &[&Arc<Lifecycle>]) {
        let steps = root.get("step").map(Node::items).unwrap_or_default();
        let Some(question) = steps.iter().find_map(|step| step.get("ask")) else { return };
        if waits_for_people(lifecycle) {
            return;
        }
        let fit: Vec<&str> =
            runs.iter().filter(|it| waits_for_people(it)).map(|lifecycle| &*lifecycle.name).collect();
        let message = format!("runs of {} cannot wait for a person", quoted(&lifecycle.name));
        let mend = format!("use a lifecycle with a parked state and [decisions]: {}", fit.join(", "));
        self.problem(question, "misplaced-key", &message, &mend);
    }
}

fn waits_for_people(lifecycle: &Lifecycle) -> bool {
    let parks = |lifecycle: &Lifecycle| {
        lifecycle
            .transitions
            .iter()
            .any(|row| row.by.contains(Actor::Worker) && lifecycle.phase(row.to) == Phase::Parked)
    };
    lifecycle.decisions.is_some() && parks(lifecycle) && lifecycle.counted_items().is_some_and(parks)
}
