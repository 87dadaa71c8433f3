//! What charts and figures are made of, and a filter as requests write it.

use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::{Lifecycle, Outcome, Phase, Span, StateId, Time};

use super::error::{Result, StoreError};
use super::run::{iso, parse_time};
use super::verbs::{Filter, Needs};

/// Runs get their numbers in the order of their times, but for those that came in at once: by as much may the two differ.
pub(crate) const SLACK: Span = Span::from_seconds(60);

#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The newest first.
    pub runs: Vec<SampledRun>,
    /// Runs that came in before this were not looked at, although the filter allows for them. None: it is all of them.
    pub cut_at: Option<Time>,
}

#[derive(Clone, Debug)]
pub struct SampledRun {
    pub lifecycle: Arc<Lifecycle>,
    pub state: StateId,
    pub created_at: Time,
    pub finished_at: Option<Time>,
    /// How long it was worked, over all attempts; none if it never began, or its events were too many to be read.
    pub took: Option<Span>,
}

impl SampledRun {
    pub fn status(&self) -> &str {
        &self.lifecycle.state(self.state).name
    }

    pub fn phase(&self) -> Phase {
        self.lifecycle.phase(self.state)
    }

    pub fn outcome(&self) -> Option<Outcome> {
        self.lifecycle.state(self.state).outcome
    }
}

impl Filter {
    /// What a run's playbook begins with if it is one with its hash.
    pub(crate) fn pinned(&self) -> Option<String> {
        self.playbook.as_ref().map(|name| format!("{name}@"))
    }

    /// As requests name it; without page and tenant.
    pub fn object(&self) -> Map<String, Value> {
        let needs = self.needs.map(|needs| if needs == Needs::Worker { "worker" } else { "person" });
        let fields = [
            ("lifecycle", self.lifecycle.clone()),
            ("status", self.status.clone()),
            ("queue", self.queue.clone()),
            ("parent_run_id", self.parent.clone()),
            ("playbook", self.playbook.clone()),
            ("needs", needs.map(str::to_owned)),
            ("q", self.text.clone()),
            ("since", self.since.map(iso)),
            ("until", self.until.map(iso)),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        given.collect()
    }

    /// The same read again. What it does not know it refuses: a filter that is read for another one would be too wide.
    pub fn of_object(tenant: &str, object: &Map<String, Value>) -> Result<Filter> {
        let mut filter = Filter { tenant: tenant.to_owned(), ..Filter::default() };
        for (name, value) in object {
            let wrong = || StoreError::invalid("filter", format!("{name} is none that a filter has"));
            let text = value.as_str().ok_or_else(wrong)?;
            let time = || parse_time(text).ok_or_else(wrong);
            match (name.as_str(), text) {
                ("lifecycle", _) => filter.lifecycle = Some(text.to_owned()),
                ("status", _) => filter.status = Some(text.to_owned()),
                ("queue", _) => filter.queue = Some(text.to_owned()),
                ("parent_run_id", _) => filter.parent = Some(text.to_owned()),
                ("playbook", _) => filter.playbook = Some(text.to_owned()),
                ("needs", "worker") => filter.needs = Some(Needs::Worker),
                ("needs", "person") => filter.needs = Some(Needs::Person),
                ("q", _) => filter.text = Some(text.to_owned()),
                ("since", _) => filter.since = Some(time()?),
                ("until", _) => filter.until = Some(time()?),
                _ => return Err(wrong()),
            }
        }
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_filter_is_read_as_it_is_written() {
        let whole = json!({
            "lifecycle": "deploy", "status": "queued", "queue": "builds", "playbook": "ship", "needs": "person", "q": "x",
            "since": "2026-01-01T00:00:00.000Z", "until": "2026-01-02T00:00:00.000Z",
        });
        let whole = whole.as_object().expect("an object");
        let filter = Filter::of_object("acme", whole).expect("a filter");
        assert_eq!((filter.tenant.as_str(), filter.object()), ("acme", whole.clone()));
        for wrong in
            [json!({"stauts": "x"}), json!({"needs": "food"}), json!({"since": "soon"}), json!({"q": 1})]
        {
            assert!(Filter::of_object("acme", wrong.as_object().expect("an object")).is_err(), "{wrong}");
        }
    }
}
