//! When a run's steps may begin, and until when the run may take. The database's clock counts: its instant is known
//! from the claim, and how long ago that was by a clock that nobody sets. It showed that at some moment between the question and its
//! answer; so there is an earliest and a latest that it can show now, and a step begins if the window is open at both.

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
    /// What the database's clock showed, and when it was asked and heard.
    known: Time,
    asked_at: Instant,
    heard_at: Instant,
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
    /// Made when the claim's answer has come.
    pub fn new(claimed: &Claimed, asked_at: Instant, playbook: &Playbook) -> Deadlines {
        let row = &claimed.run;
        let worked = row.details.get(WORKED).cloned().unwrap_or_default();
        let attempt = row.run.attempt;
        let same = worked["attempt"].as_u64() == Some(u64::from(attempt));
        let since = worked["since"].as_str().filter(|_| same).and_then(parse_time);
        let ms = |key: &str| Span::from_ms(worked[key].as_i64().unwrap_or(0).max(0));
        Deadlines {
            known: claimed.now,
            asked_at,
            heard_at: Instant::now(),
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

    /// The database's clock has just answered. Clocks drift apart, and this one counts.
    pub fn hear(&mut self, now: Time, asked_at: Instant) {
        (self.known, self.asked_at, self.heard_at) = (now, asked_at, Instant::now());
    }

    /// Never later than the database's clock: what waits for a time does not begin before it.
    pub fn now(&self) -> Time {
        self.known + pace::span(self.heard_at.elapsed())
    }

    /// Never earlier than the database's clock.
    fn at_latest(&self) -> Time {
        self.known + pace::span(self.asked_at.elapsed())
    }

    /// When the run has taken as long as it may.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.heard_at + pace::duration(self.ends_at()? - self.known))
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
        let opens = match (window.at(now), window.at(self.at_latest())) {
            (Opening::Open { .. }, Opening::Open { .. }) => return May::Begin,
            (Opening::Closed { opens }, _) | (_, Opening::Closed { opens }) => opens.unwrap_or(LAST_DAY),
        };
        if window.outside == Outside::Fail {
            return May::Closed { opens };
        }
        // A little late rather than a little early.
        let wait = pace::duration(opens - now) + Duration::from_millis(1);
        May::Wait { until: Instant::now() + wait, opens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use waypost_kernel::Catalog;

    const PLAYBOOK: &str = "name = \"n\"\nlifecycle = \"job\"\n[window]\nfrom = \"17:35\"\nto = \"18:00\"\n\
                            [[step]]\nname = \"s\"\nexec = [\"true\"]\n";

    fn at(text: &str) -> Time {
        parse_time(text).expect("a time")
    }

    // proves J4
    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_makes_no_step_begin_outside_of_its_window() {
        let catalog = Catalog::shipped().expect("shipped lifecycles load");
        let playbook = Playbook::of_text(PLAYBOOK, Path::new("n.toml"), &catalog).expect("a playbook");
        let asked_at = Instant::now();
        tokio::time::advance(Duration::from_millis(300)).await;
        let deadlines = |known: &str| Deadlines {
            known: at(known),
            asked_at,
            heard_at: Instant::now(),
            since: at(known),
            before: Span::ZERO,
            attempt: 1,
            timeout: None,
        };
        let opens = at("2026-02-14T17:35:00Z");
        let early = deadlines("2026-02-14T17:34:59.900Z");
        let until = Instant::now() + Duration::from_millis(101);
        assert_eq!(early.may_begin(&playbook), May::Wait { until, opens }, "it may be that early still");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(early.may_begin(&playbook), May::Begin);
        let late = deadlines("2026-02-14T17:59:59.900Z");
        let opens = at("2026-02-15T17:35:00Z");
        let waits = |may: May| matches!(may, May::Wait { opens: known, .. } if known == opens);
        assert!(waits(late.may_begin(&playbook)), "it may be that late already");
    }
}
