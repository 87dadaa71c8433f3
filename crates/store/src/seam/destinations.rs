//! What runs call outside, with the limit that all workers share.

use serde_json::{Value, json};
use waypost_kernel::breaker::{Alert, Breaker, Settings, State};
use waypost_kernel::bucket::Bucket;
use waypost_kernel::destination::{CallAnswer, Destination, Limit};
use waypost_kernel::{Span, Time};

/// Permits for calls to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    pub tenant: String,
    pub destination: String,
    /// What holds from now on, if it is another one than before.
    pub limit: Limit,
    pub calls: u32,
    /// Of each call; 1,000 is one unit.
    pub cost_milli: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub granted: u32,
    /// The one call that tries whether a pause may end: its answer is to be told.
    pub is_probe: bool,
    /// None were granted: not before then.
    pub until: Option<Time>,
    pub now: Time,
}

/// What calls to a destination were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    pub tenant: String,
    pub destination: String,
    /// In the order in which they came.
    pub answers: Vec<CallAnswer>,
    /// Permits that were not used.
    pub unused_milli: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationRow {
    pub tenant: String,
    pub name: String,
    pub state: Destination,
    /// Answers that were told of, and those of them that were throttled.
    pub calls: u64,
    pub throttled: u64,
    /// How often its breaker has opened.
    pub opened: u64,
    pub changed_at: Time,
    /// What this report did to the breaker.
    pub alert: Option<Alert>,
}

impl DestinationRow {
    /// As the wire has it: instants to the microsecond, so that it can be read again.
    pub fn object(&self) -> Value {
        let Destination { bucket, breaker, settings } = self.state;
        let (state, since, until) = match breaker.state {
            State::Closed => ("closed", None, None),
            State::Open { until } => ("open", None, Some(until)),
            State::Probing { since, until } => ("probing", Some(since), Some(until)),
        };
        json!({
            "tenant": self.tenant,
            "name": self.name,
            "capacity_milli": bucket.capacity_milli,
            "rate_milli_per_s": bucket.rate_milli_per_s,
            "pace_percent": bucket.pace_percent,
            "available_milli": bucket.available_milli,
            "at_us": bucket.at.micros(),
            "breaker": state,
            "breaker_after": settings.after,
            "pause_ms": settings.pause.ms(),
            "probe_timeout_ms": settings.probe_timeout.ms(),
            "consecutive": breaker.consecutive,
            "since_us": since.map(Time::micros),
            "until_us": until.map(Time::micros),
            "calls": self.calls,
            "throttled": self.throttled,
            "opened": self.opened,
            "changed_us": self.changed_at.micros(),
            "alert": self.alert.map(alert_name),
        })
    }

    /// The row that such an object was made of.
    pub fn of_object(object: &Value) -> Option<DestinationRow> {
        let number = |name: &str| object[name].as_u64();
        let time = |name: &str| object[name].as_i64().map(Time::from_micros);
        let span = |name: &str| object[name].as_i64().map(Span::from_ms);
        let state = match (object["breaker"].as_str()?, time("since_us"), time("until_us")) {
            ("open", _, Some(until)) => State::Open { until },
            ("probing", Some(since), Some(until)) => State::Probing { since, until },
            _ => State::Closed,
        };
        let alert = object["alert"].as_str();
        Some(DestinationRow {
            tenant: object["tenant"].as_str()?.to_owned(),
            name: object["name"].as_str()?.to_owned(),
            state: Destination {
                bucket: Bucket {
                    capacity_milli: number("capacity_milli")?,
                    rate_milli_per_s: number("rate_milli_per_s")?,
                    pace_percent: number("pace_percent")?.try_into().ok()?,
                    available_milli: number("available_milli")?,
                    at: time("at_us")?,
                },
                breaker: Breaker { consecutive: number("consecutive")?.try_into().ok()?, state },
                settings: Settings {
                    after: number("breaker_after")?.try_into().ok()?,
                    pause: span("pause_ms")?,
                    probe_timeout: span("probe_timeout_ms")?,
                },
            },
            calls: number("calls")?,
            throttled: number("throttled")?,
            opened: number("opened")?,
            changed_at: time("changed_us")?,
            alert: [Alert::Opened, Alert::Closed].into_iter().find(|known| Some(alert_name(*known)) == alert),
        })
    }
}

const fn alert_name(alert: Alert) -> &'static str {
    match alert {
        Alert::Opened => "opened",
        Alert::Closed => "closed",
    }
}
