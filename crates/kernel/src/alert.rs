//! Alerts: when a figure has been bad for long enough that somebody is told, when it is well again, and which notice is due at a
//! sink. Policies, states and notices are data; whoever evaluates them reads the figures and sends what is due.

use crate::time::{Span, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Warning,
    Critical,
}

impl Severity {
    pub const ALL: [Severity; 2] = [Severity::Warning, Severity::Critical];
    pub const NAMES: [&'static str; 2] = ["warning", "critical"];

    pub const fn name(self) -> &'static str {
        Severity::NAMES[self as usize]
    }

    pub fn parse(name: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// What a policy looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Of a tenant: per cent of the targets that finished lately.
    SuccessRate,
    /// Of a tenant: failed targets that nobody has retried or discarded.
    DeadLetters,
    /// Of a destination: throttled answers in the last five minutes.
    Throttled,
    /// Of a destination: 1 while its breaker is not closed, or if it has opened since the last look.
    Breaker,
}

impl Metric {
    pub const fn is_of_destination(self) -> bool {
        matches!(self, Metric::Throttled | Metric::Breaker)
    }
}

/// When somebody is told. Figures are thousandths: 97 per cent is 97,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: &'static str,
    pub description: &'static str,
    pub severity: Severity,
    pub metric: Metric,
    /// It is bad below the threshold, and not above it.
    pub is_floor: bool,
    pub threshold_milli: i64,
    /// Once it fires, it is well again from here on: a figure that trembles around the threshold tells nobody twice.
    pub clears_at_milli: i64,
    /// For how long it has to be bad, and well again.
    pub lasts: Span,
}

const fn policy(
    (name, severity, metric): (&'static str, Severity, Metric),
    (is_floor, threshold, clears_at): (bool, i64, i64),
    lasts_s: i64,
    description: &'static str,
) -> Policy {
    let (threshold_milli, clears_at_milli) = (threshold * 1_000, clears_at * 1_000);
    let lasts = Span::from_seconds(lasts_s);
    Policy { name, description, severity, metric, is_floor, threshold_milli, clears_at_milli, lasts }
}

/// Those of bulk changes, and the breaker's.
pub const POLICIES: [Policy; 6] = [
    policy(
        ("low-success-rate", Severity::Warning, Metric::SuccessRate),
        (true, 97, 98),
        60,
        "Fewer than 97 % of the targets that finished lately were applied.",
    ),
    policy(
        ("critical-success-rate", Severity::Critical, Metric::SuccessRate),
        (true, 90, 92),
        60,
        "Fewer than 90 % of the targets that finished lately were applied.",
    ),
    policy(
        ("dlq-backlog", Severity::Warning, Metric::DeadLetters),
        (false, 50, 45),
        60,
        "More than 50 failed targets wait for a decision.",
    ),
    policy(
        ("dlq-critical", Severity::Critical, Metric::DeadLetters),
        (false, 100, 90),
        60,
        "More than 100 failed targets wait for a decision.",
    ),
    policy(
        ("429-burst", Severity::Warning, Metric::Throttled),
        (false, 3, 1),
        0,
        "More than 3 answers of a destination were 429 in 5 minutes: it is called more slowly.",
    ),
    policy(
        ("breaker-open", Severity::Critical, Metric::Breaker),
        (false, 0, 0),
        0,
        "A destination's breaker opened: it is not called until a probe is answered.",
    ),
];

impl Policy {
    pub fn named(name: &str) -> Option<&'static Policy> {
        POLICIES.iter().find(|policy| policy.name == name)
    }

    /// Without a figure nothing is bad: no targets, no alert.
    fn is_bad(&self, value_milli: Option<i64>) -> bool {
        value_milli.is_some_and(|value| match self.is_floor {
            true => value < self.threshold_milli,
            false => value > self.threshold_milli,
        })
    }

    fn is_well(&self, value_milli: Option<i64>) -> bool {
        value_milli.is_none_or(|value| match self.is_floor {
            true => value >= self.clears_at_milli,
            false => value <= self.clears_at_milli,
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Ok,
    /// Bad, and not yet for long enough.
    Pending,
    Firing,
}

impl Status {
    pub const NAMES: [&'static str; 3] = ["ok", "pending", "firing"];

    pub const fn name(self) -> &'static str {
        Status::NAMES[self as usize]
    }

    pub fn parse(name: &str) -> Option<Status> {
        [Status::Ok, Status::Pending, Status::Firing].into_iter().find(|it| it.name() == name)
    }
}

/// What is stored of one alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub status: Status,
    /// Since when it is in that status.
    pub since: Time,
    /// While it fires: since when the figure is well.
    pub well_since: Option<Time>,
    /// How often it has fired. All notices of one firing have this number.
    pub episode: u32,
    pub fired_at: Option<Time>,
    pub resolved_at: Option<Time>,
    pub value_milli: Option<i64>,
    pub evaluated_at: Time,
}

impl Condition {
    /// One evaluation.
    #[must_use]
    pub fn evaluated(&self, policy: &Policy, value_milli: Option<i64>, now: Time) -> Condition {
        let seen = Condition { value_milli, evaluated_at: now, ..*self };
        let bad = policy.is_bad(value_milli);
        match self.status {
            Status::Ok if bad && policy.lasts == Span::ZERO => seen.fired(now),
            Status::Ok if bad => Condition { status: Status::Pending, since: now, ..seen },
            Status::Pending if bad && now - self.since >= policy.lasts => seen.fired(now),
            Status::Pending if !bad => Condition { status: Status::Ok, since: now, ..seen },
            Status::Ok | Status::Pending => seen,
            Status::Firing if !policy.is_well(value_milli) => Condition { well_since: None, ..seen },
            Status::Firing => {
                let well_since = self.well_since.unwrap_or(now);
                if now - well_since < policy.lasts {
                    return Condition { well_since: Some(well_since), ..seen };
                }
                let ended = Condition { status: Status::Ok, since: now, well_since: None, ..seen };
                Condition { resolved_at: Some(now), ..ended }
            }
        }
    }

    fn fired(self, now: Time) -> Condition {
        let episode = self.episode.saturating_add(1);
        Condition { status: Status::Firing, since: now, episode, fired_at: Some(now), ..self }
    }
}

/// What a sink was told last, or is being told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    pub episode: u32,
    /// That it fires; else that it is over.
    pub is_firing: bool,
    pub sent_at: Option<Time>,
    /// Not sent yet: whoever sends it has until then, or the next try is then.
    pub next_at: Time,
    pub tries: u32,
    pub error: Option<String>,
}

/// Whoever sends a notice has so long: after it, another one does.
pub const SEND_WITHIN: Span = Span::from_seconds(60);
const FIRST_RETRY_S: i64 = 15;
const LONGEST_RETRY_S: i64 = 900;

/// The notice that is due at a sink, taken: whoever stores it first sends it. `again`: sinks that forget want it again so often
/// while it fires. `silenced`: nobody is told that it fires; that it is over is told to whom it was told to fire.
pub fn due(
    condition: &Condition,
    last: Option<&Delivery>,
    again: Option<Span>,
    silenced: bool,
    now: Time,
) -> Option<Delivery> {
    let is_firing = condition.status == Status::Firing;
    let same = last.filter(|it| it.episode == condition.episode);
    let is_due = match (is_firing, same) {
        (true, _) if silenced => false,
        (true, None) => true,
        (true, Some(last)) if !last.is_firing => false,
        (true, Some(last)) => match last.sent_at {
            Some(sent_at) => again.is_some_and(|again| now - sent_at >= again),
            None => now >= last.next_at,
        },
        // Nobody was told.
        (false, None) => false,
        (false, Some(last)) if last.is_firing => true,
        (false, Some(last)) => last.sent_at.is_none() && now >= last.next_at,
    };
    let tries =
        same.filter(|last| last.is_firing == is_firing && last.sent_at.is_none()).map_or(0, |it| it.tries);
    is_due.then(|| Delivery {
        episode: condition.episode,
        is_firing,
        sent_at: None,
        next_at: now + SEND_WITHIN,
        tries: tries.saturating_add(1),
        error: None,
    })
}

impl Delivery {
    #[must_use]
    pub fn sent(self, now: Time) -> Delivery {
        Delivery { sent_at: Some(now), error: None, ..self }
    }

    /// After 15 s, and twice as long each time, up to 15 minutes; later if the sink says so.
    #[must_use]
    pub fn failed(self, error: &str, wait: Option<Span>, now: Time) -> Delivery {
        let doubled = FIRST_RETRY_S << self.tries.saturating_sub(1).min(10);
        let own = Span::from_seconds(doubled.min(LONGEST_RETRY_S));
        let wait = wait.map_or(own, |wait| wait.max(own).min(Span::from_seconds(3_600)));
        Delivery { next_at: now + wait, error: Some(error.to_owned()), ..self }
    }
}

#[cfg(test)]
mod tests;
