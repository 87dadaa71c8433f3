//! A run's events as entries of its log, for people: what its commands printed, what its workers said, how its steps go.

use std::collections::HashMap;

use serde_json::Value;
use waypost_kernel::Time;
use waypost_store::log::{is_said, output_lines};
use waypost_store::{EventRow, ItemRow, PLACEHOLDER};

/// Something that an event says.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// What a command printed.
    Line { step: Option<String>, stream: String, text: String },
    /// What a worker said, or somebody for it.
    Message { step: Option<String>, level: String, text: String },
    /// A step has moved. `took` is how long it ran, of one that ran.
    Step { name: String, to: String, took: Option<waypost_kernel::Span>, error: Option<String> },
    /// A part of a step is that far.
    Task { name: String, to: String, percent: u64 },
}

/// Knows the names of steps, and which of them run.
#[derive(Debug, Default)]
pub struct EntryReader {
    names: HashMap<String, String>,
    /// Which step a part belongs to is in its key: `STEP: PART`.
    running: Vec<(String, Time)>,
}

impl EntryReader {
    pub fn learn(&mut self, items: Vec<ItemRow>) {
        self.names = items.into_iter().map(|item| (item.key, item.name)).collect();
    }

    /// Whether an event names an item that is not known yet.
    pub fn needs_names(&self, events: &[EventRow]) -> bool {
        let items = events.iter().filter_map(|event| event.payload["items"].as_array()).flatten();
        // Only these are told of: targets are a hundred thousand, and counted.
        let items = items.filter(|item| item["kind"] == "step" || item["kind"] == "task");
        items.filter_map(|item| item["key"].as_str()).any(|key| !self.names.contains_key(key))
    }

    fn name(&self, key: &str) -> String {
        self.names.get(key).cloned().unwrap_or_else(|| key.to_owned())
    }

    /// As the event says, or the one that runs if it is alone.
    fn step_of(&self, payload: &Value) -> Option<String> {
        let said = payload["step"].as_str();
        let alone = match &self.running[..] {
            [(key, _)] => Some(key.as_str()),
            _ => None,
        };
        said.or(alone).map(|key| self.name(key))
    }

    pub fn read(&mut self, event: &EventRow) -> Vec<Entry> {
        let payload = &event.payload;
        if payload["lines"].is_array() {
            let step = self.step_of(payload);
            let line = |(stream, text): (&str, &str)| Entry::Line {
                step: step.clone(),
                stream: stream.to_owned(),
                text: text.to_owned(),
            };
            return output_lines(payload).map(line).collect();
        }
        if let Some(items) = payload["items"].as_array() {
            return items.iter().filter_map(|item| self.item(item, event.at)).collect();
        }
        if !is_said(event) {
            return Vec::new();
        }
        let step = self.step_of(payload);
        vec![Entry::Message { step, level: event.level.clone(), text: event.message.clone() }]
    }

    fn item(&mut self, item: &Value, at: Time) -> Option<Entry> {
        let text = |key: &str| item[key].as_str().unwrap_or_default();
        let (key, to) = (text("key"), text("to"));
        if text("kind") == "task" {
            let percent = item["progress"].as_u64().unwrap_or_default();
            let is_news = percent > 0 || !text("from").is_empty();
            let name = self.name(key);
            return is_news.then(|| Entry::Task { name, to: to.to_owned(), percent });
        }
        if text("kind") != "step" || key == PLACEHOLDER || text("from").is_empty() || text("from") == to {
            return None;
        }
        let began = self.running.iter().position(|(running, _)| running == key);
        let began = began.map(|place| self.running.remove(place).1);
        if to == "running" {
            self.running.push((key.to_owned(), at));
        }
        let error = item["error_code"].as_str().filter(|_| to == "failed").map(str::to_owned);
        Some(Entry::Step {
            name: self.name(key),
            to: to.to_owned(),
            took: began.map(|began| at - began),
            error,
        })
    }
}
