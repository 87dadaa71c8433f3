//! How the shop behaves: flags at the start, `/admin/faults` from then on.

use serde::{Deserialize, Serialize};

use crate::serving::{FaultKind, Faults, RetryAfter, Subject};

const fn of_product(name: &'static str, times: u32, what: &'static str) -> FaultKind {
    FaultKind { name, of: Subject::Product, times, what }
}

const fn of_request(name: &'static str, what: &'static str) -> FaultKind {
    FaultKind { name, of: Subject::Request, times: 1, what }
}

/// In the order in which they are looked at.
pub const FAULTS: &[FaultKind] = &[
    of_request("rate_limited", "429 though the limit has room; THROTTLED in GraphQL"),
    of_request("server_error", "500, 502, 503 or 504; nothing was changed"),
    of_request("cut", "the connection is closed without an answer; nothing was changed"),
    of_request("timeout", "the answer is held back; nothing was changed"),
    of_product("transient", 1, "changing it answers 503"),
    of_product("permanent", 0, "changing it is refused for good: 422 or 403, in GraphQL a userError"),
    of_request("lost", "the change is made, then the connection is closed without an answer"),
    of_request("late", "the change is made, and the answer is held back"),
    of_product("drift", 1, "something else changes its price right after a client did"),
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Draws whom faults hit.
    pub seed: u64,
    /// REST requests per second, and how many at once.
    pub rate: f64,
    pub burst: f64,
    /// The same in points of GraphQL's cost.
    pub cost_rate: f64,
    pub cost_burst: f64,
    pub retry_after: RetryAfter,
    /// Every answer takes this long.
    pub latency_ms: u64,
    /// For how long `timeout` and `late` hold an answer back.
    pub hold_ms: u64,
    /// By how much `drift` raises a price.
    pub drift_percent: f64,
    /// Whether a second request with an `Idempotency-Key` makes no second change.
    pub honours_keys: bool,
    pub faults: Faults,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            rate: 2.0,
            burst: 40.0,
            cost_rate: 100.0,
            cost_burst: 2_000.0,
            retry_after: RetryAfter::Seconds,
            latency_ms: 0,
            hold_ms: 60_000,
            drift_percent: 7.0,
            honours_keys: true,
            faults: Faults::default(),
        }
    }
}

impl Settings {
    pub fn check(&self) -> Result<(), String> {
        for (name, value, least) in [
            ("rate", self.rate, 0.001),
            ("burst", self.burst, 1.0),
            ("cost_rate", self.cost_rate, 0.001),
            ("cost_burst", self.cost_burst, 10.0),
        ] {
            if !(least..=1e9).contains(&value) {
                return Err(format!("{name}: {value} is not from {least} to 1000000000"));
            }
        }
        if !(-100.0..=1000.0).contains(&self.drift_percent) {
            return Err(format!("drift_percent: {} is not from -100 to 1000", self.drift_percent));
        }
        for (name, ms) in [("latency_ms", self.latency_ms), ("hold_ms", self.hold_ms)] {
            if ms > 3_600_000 {
                return Err(format!("{name}: {ms} is more than an hour (3600000)"));
            }
        }
        self.faults.check(FAULTS)
    }
}
