//! The circuit breaker of one destination: a stored row that all workers share by compare-and-set, so that a
//! pause holds for everybody and survives a restart.

use crate::time::{Span, Time};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Throttled answers in a row.
    pub consecutive: u32,
    pub state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Closed,
    Open {
        until: Time,
    },
    /// One call is out to try the destination. After `until` it counts as lost.
    Probing {
        since: Time,
        until: Time,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// More than this many throttled answers in a row open the breaker.
    pub after: u32,
    pub pause: Span,
    /// Should be longer than a call may take: then a lost probe is one whose caller died.
    pub probe_timeout: Span,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { after: 5, pause: Span::from_seconds(60), probe_timeout: Span::from_seconds(60) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go,
    /// Store this state by compare-and-set, and call only if that succeeded: one caller gets the probe.
    Probe(Breaker),
    Wait(Span),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alert {
    Opened,
    Closed,
}

/// While a probe is out, ask again this soon: waiting for its timeout would double the pause each time, and
/// most answers take less than a second.
const PROBE_POLL: Span = Span::from_seconds(1);

impl Breaker {
    pub fn may_call(&self, settings: &Settings, now: Time) -> Verdict {
        match self.state {
            State::Closed => Verdict::Go,
            State::Open { until } if now < until => Verdict::Wait(until - now),
            State::Probing { until, .. } if now < until => Verdict::Wait((until - now).min(PROBE_POLL)),
            State::Open { .. } | State::Probing { .. } => {
                // With no time at all every caller would find the probe lost.
                let timeout = settings.probe_timeout.max(PROBE_POLL);
                let state = State::Probing { since: now, until: now + timeout };
                Verdict::Probe(Breaker { state, ..*self })
            }
        }
    }

    /// The state after an answer; `throttled` is a 429 or `THROTTLED`. If it equals this one there is nothing
    /// to store.
    pub fn report(&self, settings: &Settings, throttled: bool, now: Time) -> (Breaker, Option<Alert>) {
        if !throttled {
            let alert = (self.state != State::Closed).then_some(Alert::Closed);
            return (Breaker::default(), alert);
        }
        let consecutive = self.consecutive.saturating_add(1);
        let opened = Breaker { consecutive, state: State::Open { until: now + settings.pause } };
        match self.state {
            State::Closed if consecutive > settings.after => (opened, Some(Alert::Opened)),
            State::Closed => (Breaker { consecutive, ..*self }, None),
            // The answer to a call that was sent before the pause began: it says nothing new.
            State::Open { .. } => (*self, None),
            // Still the same trouble, so nobody is alerted again.
            State::Probing { .. } => (opened, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Alert::{Closed, Opened};
    use Event::{Answered, Goes, Probes, Throttled, WaitsMs};

    /// What happens at a second, and what must come of it.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Throttled(Option<Alert>),
        Answered(Option<Alert>),
        Goes,
        Probes,
        WaitsMs(i64),
    }
    fn at(second: i64) -> Time {
        Time::from_ms(1_771_056_000_000 + second * 1_000)
    }

    /// Plays the events; a probe is stored, as the caller must.
    fn play(name: &str, start: Breaker, events: &[(i64, Event)]) {
        let settings = Settings { probe_timeout: Span::from_seconds(30), ..Settings::default() };
        let mut breaker = start;
        for (second, event) in events {
            let now = at(*second);
            let place = format!("{name}: {event:?} at {second}");
            match (*event, breaker.may_call(&settings, now)) {
                (Throttled(alert), _) => {
                    let (next, found) = breaker.report(&settings, true, now);
                    assert_eq!(found, alert, "{place}");
                    breaker = next;
                }
                (Answered(alert), _) => {
                    let (next, found) = breaker.report(&settings, false, now);
                    assert_eq!(found, alert, "{place}");
                    breaker = next;
                }
                (Probes, Verdict::Probe(next)) => breaker = next,
                (Goes, verdict) => assert_eq!(verdict, Verdict::Go, "{place}"),
                (WaitsMs(ms), verdict) => assert_eq!(verdict, Verdict::Wait(Span::from_ms(ms)), "{place}"),
                (Probes, verdict) => panic!("{place}: {verdict:?}"),
            }
        }
    }

    fn opened_at_zero() -> Breaker {
        Breaker { consecutive: 6, state: State::Open { until: at(60) } }
    }

    // proves R6
    #[test]
    fn sequences_of_answers() {
        let five = [(0, Throttled(None)); 5];
        let cases = [
            ("five are not enough", Breaker::default(), [&five[..], &[(1, Goes)]].concat()),
            (
                "the sixth opens",
                Breaker::default(),
                [&five[..], &[(1, Throttled(Some(Opened))), (1, WaitsMs(60_000)), (60, WaitsMs(1_000))]]
                    .concat(),
            ),
            (
                "an answer between starts the count again",
                Breaker::default(),
                [&five[..], &[(1, Answered(None))], &five[..], &[(2, Goes)]].concat(),
            ),
            (
                "late 429s neither prolong nor alert",
                opened_at_zero(),
                vec![(5, Throttled(None)), (59, Throttled(None)), (59, WaitsMs(1_000)), (60, Probes)],
            ),
            (
                "one probe only, and its answer closes",
                opened_at_zero(),
                vec![(60, Probes), (60, WaitsMs(1_000)), (61, Answered(Some(Closed))), (61, Goes)],
            ),
            (
                "a throttled probe pauses again without a second alert",
                opened_at_zero(),
                vec![
                    (60, Probes),
                    (61, Throttled(None)),
                    (62, WaitsMs(59_000)),
                    (121, Probes),
                    (122, Answered(Some(Closed))),
                    (122, Goes),
                ],
            ),
            (
                "a lost probe is followed by another",
                opened_at_zero(),
                vec![(70, Probes), (99, WaitsMs(1_000)), (100, Probes), (100, WaitsMs(1_000))],
            ),
            (
                "a late good answer closes",
                opened_at_zero(),
                vec![(1, Answered(Some(Closed))), (1, Goes), (1, Throttled(None)), (1, Goes)],
            ),
        ];
        for (name, start, events) in cases {
            play(name, start, &events);
        }
    }

    #[test]
    fn what_says_nothing_new_needs_no_write() {
        let settings = Settings::default();
        let open = opened_at_zero();
        assert_eq!(open.report(&settings, true, at(3)).0, open);
        assert_eq!(Breaker::default().report(&settings, false, at(3)).0, Breaker::default());
    }

    // proves R6
    #[test]
    fn of_callers_that_saw_the_same_state_one_stores_the_probe() {
        for probe_timeout in [Span::ZERO, Span::from_seconds(30)] {
            let settings = Settings { probe_timeout, ..Settings::default() };
            let lost = Breaker { state: State::Probing { since: at(60), until: at(90) }, consecutive: 6 };
            for seen in [opened_at_zero(), lost] {
                let mut stored = seen;
                let mut probes = 0;
                for _ in 0..3 {
                    let Verdict::Probe(next) = seen.may_call(&settings, at(90)) else { continue };
                    if stored == seen {
                        stored = next;
                        probes += 1;
                    }
                }
                assert_eq!(probes, 1, "{seen:?}");
                assert!(matches!(stored.may_call(&settings, at(90)), Verdict::Wait(_)), "{stored:?}");
            }
        }
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let never = Settings { after: u32::MAX, ..Settings::default() };
        let full = Breaker { consecutive: u32::MAX, state: State::Closed };
        assert_eq!(full.report(&never, true, at(0)), (full, None));
        let end = Time::from_micros(i64::MAX);
        let (open, _) = full.report(&Settings::default(), true, end);
        assert!(matches!(open.may_call(&never, end), Verdict::Probe(_)));
    }
}
