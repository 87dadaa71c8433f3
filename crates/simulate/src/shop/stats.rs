//! What the shop saw of its clients: whether they keep to the limits, and whether they use them.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::{Change, Settings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Rest,
    Graphql,
}

impl Api {
    pub fn name(self) -> &'static str {
        match self {
            Api::Rest => "rest",
            Api::Graphql => "graphql",
        }
    }
}

/// What a call met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    Status(u16),
    /// GraphQL's 429, inside a 200.
    Throttled,
    Cut,
    Held,
}

impl Met {
    fn is_rate_limited(self) -> bool {
        matches!(self, Met::Status(429) | Met::Throttled)
    }

    fn name(self) -> String {
        match self {
            Met::Status(status) => status.to_string(),
            Met::Throttled => "throttled".to_owned(),
            Met::Cut => "cut".to_owned(),
            Met::Held => "held".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Call {
    at_us: u64,
    api: Api,
    met: Met,
    cost: f32,
}

#[derive(Debug, Default)]
pub struct Stats {
    calls: Vec<Call>,
    first_at_ms: Option<u64>,
    last_at_ms: Option<u64>,
    pub replayed: u64,
    /// How often each fault hit somebody.
    faults: BTreeMap<&'static str, u64>,
}

impl Stats {
    pub fn count(&mut self, at_us: u64, at_ms: u64, api: Api, met: Met, cost: f64) {
        self.first_at_ms.get_or_insert(at_ms);
        self.last_at_ms = Some(at_ms);
        self.calls.push(Call { at_us, api, met, cost: cost as f32 });
    }

    pub fn met_fault(&mut self, name: &'static str) {
        *self.faults.entry(name).or_default() += 1;
    }

    pub fn faults(&self) -> &BTreeMap<&'static str, u64> {
        &self.faults
    }

    pub fn throttled(&self) -> u64 {
        self.calls.iter().filter(|call| call.met.is_rate_limited()).count() as u64
    }

    pub fn shown(&self, after_s: u64, settings: &Settings, changes: &[Change]) -> Value {
        let limited = self.throttled();
        let mut answers: BTreeMap<String, u64> = BTreeMap::new();
        for call in &self.calls {
            *answers.entry(call.met.name()).or_default() += 1;
        }
        json!({
            "calls": self.calls.len(),
            "answers": answers,
            "faults": self.faults,
            "rate_limited": limited,
            "rate_limited_share": ratio(limited as f64, self.calls.len() as f64),
            "first_call_at_ms": self.first_at_ms,
            "last_call_at_ms": self.last_at_ms,
            "longest_gap_ms": longest_gap_ms(&self.calls),
            "after": self.after(after_s, settings),
            "replayed": self.replayed,
            "changes": changed(changes),
        })
    }

    /// The steady state: the first calls may use the burst.
    fn after(&self, after_s: u64, settings: &Settings) -> Value {
        let first_us = self.calls.first().map_or(0, |call| call.at_us);
        let last_us = self.calls.last().map_or(0, |call| call.at_us);
        let from_us = first_us + after_s * 1_000_000;
        let seconds = last_us.saturating_sub(from_us) as f64 / 1e6;
        let calls: Vec<Call> = self.calls.iter().copied().filter(|call| call.at_us >= from_us).collect();
        let limited = calls.iter().filter(|call| call.met.is_rate_limited()).count();
        let taken =
            |api: Api| calls.iter().filter(move |call| call.api == api && !call.met.is_rate_limited());
        let used = |taken: f64, allowed: f64| {
            let per_second = ratio(taken, seconds);
            json!({
                "taken": taken,
                "per_second": per_second,
                "allowed_per_second": allowed,
                "used_share": per_second.map(|per_second| per_second / allowed),
            })
        };
        json!({
            "after_s": after_s,
            "seconds": seconds,
            "calls": calls.len(),
            "rate_limited": limited,
            "rate_limited_share": ratio(limited as f64, calls.len() as f64),
            "longest_gap_ms": longest_gap_ms(&calls),
            "rest_calls": used(taken(Api::Rest).count() as f64, settings.rate),
            "graphql_points": used(
                taken(Api::Graphql).fold(0.0, |sum, call| sum + f64::from(call.cost)),
                settings.cost_rate,
            ),
        })
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn longest_gap_ms(calls: &[Call]) -> u64 {
    calls.windows(2).map(|two| (two[1].at_us - two[0].at_us) / 1_000).max().unwrap_or(0)
}

/// `repeated`: a client set the price that the product had.
fn changed(changes: &[Change]) -> Value {
    let by_clients = || changes.iter().filter(|change| change.via != "drift");
    let mut products = HashSet::new();
    let again = by_clients().filter(|change| !products.insert(change.id)).count();
    let by_clients_count = by_clients().count();
    json!({
        "by_clients": by_clients_count,
        "products": by_clients_count - again,
        "repeated": by_clients().filter(|change| change.from_cents == change.to_cents).count(),
        "drifted": changes.len() - by_clients_count,
    })
}
