//! How the server behaves: flags at the start, `/admin/faults` from then on.

use serde::{Deserialize, Serialize};

use crate::serving::{Bucket, FaultKind, Faults, RetryAfter, Subject};

const fn of_request(name: &'static str, what: &'static str) -> FaultKind {
    FaultKind { name, of: Subject::Request, times: 1, what }
}

/// Each is a marker too.
pub const FAULTS: &[FaultKind] = &[
    of_request("slow", "the answer takes `slow_ms` longer"),
    of_request("rate_limited", "429, whatever the limit"),
    of_request("fail", "500, 502 or 503"),
    of_request("cut", "the connection is closed without an answer"),
    of_request("timeout", "the answer is held back for `hold_ms`"),
    of_request("garbage", "200 with a page of HTML in place of JSON"),
    of_request("truncated", "the content ends in its middle, with `finish_reason` `length`"),
    of_request("prose", "the content is prose, though JSON was asked for"),
    of_request("empty", "the content is empty"),
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Draws whom faults hit, and what is answered.
    pub seed: u64,
    /// Requests per second, and how many at once; a rate of 0 is no limit.
    pub rate: f64,
    pub burst: f64,
    pub retry_after: RetryAfter,
    /// Every answer takes this long.
    pub latency_ms: u64,
    /// How much longer `slow` ones take.
    pub slow_ms: u64,
    /// For how long `timeout` holds an answer back.
    pub hold_ms: u64,
    pub faults: Faults,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            rate: 0.0,
            burst: 10.0,
            retry_after: RetryAfter::Seconds,
            latency_ms: 0,
            slow_ms: 5_000,
            hold_ms: 600_000,
            faults: Faults::default(),
        }
    }
}

impl Settings {
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1e9).contains(&self.rate) {
            return Err(format!("rate: {} is not from 0 (no limit) to 1000000000", self.rate));
        }
        if !(1.0..=1e9).contains(&self.burst) {
            return Err(format!("burst: {} is not from 1 to 1000000000", self.burst));
        }
        for (name, ms) in
            [("latency_ms", self.latency_ms), ("slow_ms", self.slow_ms), ("hold_ms", self.hold_ms)]
        {
            if ms > 3_600_000 {
                return Err(format!("{name}: {ms} is more than an hour (3600000)"));
            }
        }
        self.faults.check(FAULTS)
    }

    pub fn bucket(&self) -> Option<Bucket> {
        (self.rate > 0.0).then(|| Bucket::new(self.rate, self.burst))
    }
}
