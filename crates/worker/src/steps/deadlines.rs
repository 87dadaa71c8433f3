//! When a run's steps may begin, and until when the run may take. The database's clock counts: its instant is known
//! from the claim, and how long ago that was by a clock that nobody sets.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use waypost_kernel::{Span, Time};
use waypost_store::{Claimed, RunRow, iso, parse_time};

use crate::pace;
use crate::playbook::{Opening, Outside, Playbook};

const WORKED: &str = "worked";

/// 9999-12-30: when a window opens whose next time is not in the calendar any more.
const LAST_DAY: Time = Time::from_micros(253_402_128_000_000_000);

/// The hours of one hold of a run.
#[derive(Debug)]
pub(crate) struct Deadlines {
    claimed_at: Time,
    asked_at: Instant,
    /// When this stretch of work began: by the claim after which nobody waited for a person.
    since: Time,
    /// How long earlier stretches took.
    before: Span,
    attempt: u32,
    timeout: Option<Span>,
}

/// Whether a step may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    Begin,
    Wait {
        until: Instant,
        opens: Time,
    },
    /// The window is closed, and the playbook does not wait for it.
    Closed {
        opens: Time,
    },
    TimedOut,
}

impl Deadlines {
    pub fn new(claimed: &Claimed, asked_at: Instant, playbook: &Playbook) -> Deadlines {
        let row = &claimed.run;
        let worked = row.details.get(WORKED).cloned().unwrap_or_default();
        let attempt = row.run.attempt;
        let same = worked["attempt"].as_u64() == Some(u64::from(attempt));
        let since = worked["since"].as_str().filter(|_| same).and_then(parse_time);
        let ms = |key: &str| Span::from_ms(worked[key].as_i64().unwrap_or(0).max(0));
        Deadlines {
            claimed_at: claimed.now,
            asked_at,
            since: since.unwrap_or(claimed.now),
            before: if same { ms("before_ms") } else { ms("spent_ms") },
            attempt,
            timeout: playbook.timeout,
        }
    }

    /// Whether the run's details say already when this stretch began.
    pub fn is_noted(&self, row: &RunRow) -> bool {
        let known = row.details.get(WORKED).and_then(|worked| worked["attempt"].as_u64());
        self.timeout.is_none() || known == Some(u64::from(self.attempt))
    }

    /// For the run's details: at the beginning of a stretch, and when a person is waited for.
    pub fn note(&self) -> Map<String, Value> {
        let spent_ms = self.before.ms() + (self.now() - self.since).ms();
        let worked = json!({
            "attempt": self.attempt,
            "since": iso(self.since),
            "before_ms": self.before.ms(),
            "spent_ms": spent_ms,
        });
        Map::from_iter([(WORKED.to_owned(), worked)])
    }

    pub fn now(&self) -> Time {
        self.claimed_at + pace::span(self.asked_at.elapsed())
    }

    /// When the run has taken as long as it may.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.asked_at + pace::duration(self.ends_at()? - self.claimed_at))
    }

    /// The same, by the database's clock.
    pub fn ends_at(&self) -> Option<Time> {
        Some(self.since + self.timeout? - self.before)
    }

    pub fn may_begin(&self, playbook: &Playbook) -> May {
        if self.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            return May::TimedOut;
        }
        let Some(window) = &playbook.window else { return May::Begin };
        let now = self.now();
        let opens = match window.at(now) {
            Opening::Open { .. } => return May::Begin,
            Opening::Closed { opens } => opens.unwrap_or(LAST_DAY),
        };
        if window.outside == Outside::Fail {
            return May::Closed { opens };
        }
        // A little late rather than a little early.
        let wait = pace::duration(opens - now) + Duration::from_millis(1);
        May::Wait { until: Instant::now() + wait, opens }
    }
}
