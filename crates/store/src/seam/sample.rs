//! What charts and figures are made of, and a filter as requests write it.

use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::{Lifecycle, Outcome, Phase, Span, StateId, Time};

use super::error::{Result, StoreError};
use super::run::{iso, parse_time};
use super::verbs::{Filter, Needs};

/// Runs get their numbers in the order of their times, but for those that came in at once: by as much may the two differ.
pub(crate) const SLACK: Span = Span::from_seconds(60);

#[derive(Clone, Debug)]
pub struct Sample {
    /// The newest first.
    pub runs: Vec<SampledRun>,
    /// Runs that came in before this were not looked at, although the filter allows for them. None: it is of all of them.
    pub cut_at: Option<Time>,
    /// How many runs there are, roughly, for each that was looked at: of many a part is, spread over their time. 1: all that came in since `cut_at`.
    pub one_in: u64,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { runs: Vec::new(), cut_at: None, one_in: 1 }
    }
}

/// Runs that follow each other stand in the same pages: groups of them cost a few reads each, and single ones would one each.
pub(crate) const GROUP: i64 = 8;

/// Which groups of runs stand for all, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    pub one_in: u64,
    /// The first number of each group, the newest first.
    pub groups: Vec<i64>,
}

impl Spread {
    /// At most `look_at` of the numbers from `first` to `last`. What each stands for is a round number, which holds until there are a tenth more: figures
    /// do not jump because a run came in.
    pub fn over(first: i64, last: i64, look_at: usize) -> Spread {
        let most = (look_at as i64 / GROUP).max(1);
        let mut one_in = 1_i64;
        while last / (GROUP * one_in) - first / (GROUP * one_in) >= most {
            one_in += 10_i64.pow(one_in.ilog10().saturating_sub(1));
        }
        let stride = GROUP * one_in;
        let groups = (first / stride..=last / stride).rev().map(|place| place * stride);
        Spread { one_in: one_in as u64, groups: groups.collect() }
    }
}

#[derive(Clone, Debug)]
pub struct SampledRun {
    pub lifecycle: Arc<Lifecycle>,
    pub state: StateId,
    pub created_at: Time,
    pub finished_at: Option<Time>,
    /// So many are counted for it: those too that were not looked at in its place.
    pub stands_for: u64,
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
    fn a_spread_has_its_share_of_any_range() {
        assert_eq!(Spread::over(1, 30, 1_000), Spread { one_in: 1, groups: vec![24, 16, 8, 0] });
        for (first, last, round) in
            [(1, 1_100, 2), (1, 1_000_002, 1_100), (77_777, 5_000_000, 5_000), (0, 7_999, 8)]
        {
            let Spread { one_in, groups } = Spread::over(first, last, 1_000);
            assert_eq!(one_in, round, "{first} to {last}");
            assert!((62..=125).contains(&groups.len()), "{first} to {last}: {}", groups.len());
            let stride = GROUP * one_in as i64;
            let stands_for = groups.len() as i64 * stride;
            assert!((stands_for - (last - first)).abs() <= 2 * stride, "{first} to {last}: {stands_for}");
        }
    }

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
