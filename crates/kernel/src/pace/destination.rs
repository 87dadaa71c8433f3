//! A destination that all workers share: its bucket and its breaker, asked together for many calls at once.

use super::breaker::{Alert, Breaker, Settings, Verdict};
use super::bucket::{Bucket, Reported};
use crate::time::{Span, Time};

/// At a burst of throttled answers so much less of the rate is used, and without one so much more.
const SLOWER_PERCENT: u8 = 10;
const FASTER_PERCENT: u8 = 5;
const SLOWEST_PERCENT: u8 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    pub bucket: Bucket,
    pub breaker: Breaker,
    pub settings: Settings,
}

/// What calls to a destination are limited by, as whoever calls it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub capacity_milli: u64,
    pub rate_milli_per_s: u64,
    pub breaker: Settings,
}

/// How many calls may be made now. None: not before so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub calls: u32,
    /// The one call that tries a destination after a pause: its answer is to be told.
    pub is_probe: bool,
    pub wait: Option<Span>,
}

/// What one call was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallAnswer {
    /// A 429, or `THROTTLED`.
    pub throttled: bool,
    pub retry_after: Option<Span>,
    /// What the destination says of its own count.
    pub reported: Option<Reported>,
}

impl Destination {
    pub fn new(limit: &Limit, now: Time) -> Destination {
        let bucket = Bucket {
            capacity_milli: limit.capacity_milli,
            rate_milli_per_s: limit.rate_milli_per_s,
            available_milli: limit.capacity_milli,
            ..Bucket::standard(now)
        };
        Destination { bucket, breaker: Breaker::default(), settings: limit.breaker }
    }

    /// With another limit: what is available stays, as far as there is room for it.
    pub fn limited(&self, limit: &Limit, now: Time) -> Destination {
        let bucket = self.bucket.refilled(now);
        let bucket = Bucket {
            capacity_milli: limit.capacity_milli,
            rate_milli_per_s: limit.rate_milli_per_s,
            available_milli: bucket.available_milli.min(limit.capacity_milli),
            ..bucket
        };
        Destination { bucket, settings: limit.breaker, ..*self }
    }

    /// Takes permits for as many of `calls` as there are, each at `cost_milli`.
    pub fn admit(&self, calls: u32, cost_milli: u64, now: Time) -> (Destination, Grant) {
        let refused = |wait: Span| (*self, Grant { calls: 0, is_probe: false, wait: Some(wait) });
        let (breaker, most, is_probe) = match self.breaker.may_call(&self.settings, now) {
            Verdict::Go => (self.breaker, calls, false),
            Verdict::Probe(breaker) => (breaker, calls.min(1), true),
            Verdict::Wait(wait) => return refused(wait),
        };
        if most == 0 {
            return (*self, Grant { calls: 0, is_probe: false, wait: None });
        }
        let available = self.bucket.refilled(now).available_milli;
        let affordable = available.checked_div(cost_milli).unwrap_or(u64::MAX);
        // One at least: a cost above the capacity takes the whole bucket, and the bucket tells how long to wait for that.
        let granted = u32::try_from(affordable).unwrap_or(u32::MAX).clamp(1, most);
        match self.bucket.take(cost_milli.saturating_mul(u64::from(granted)), now) {
            Ok(bucket) => {
                (Destination { bucket, breaker, ..*self }, Grant { calls: granted, is_probe, wait: None })
            }
            Err(wait) => refused(wait),
        }
    }

    /// What calls were answered, in their order, and permits of `unused_milli` that nobody used.
    pub fn answered(
        &self,
        answers: &[CallAnswer],
        unused_milli: u64,
        now: Time,
    ) -> (Destination, Option<Alert>) {
        let mut after = *self;
        let mut alert = None;
        for answer in answers {
            let (breaker, told) = after.breaker.report(&after.settings, answer.throttled, now);
            after.breaker = breaker;
            alert = told.or(alert);
            if let Some(reported) = answer.reported {
                after.bucket = after.bucket.correct(reported, now);
            }
            if answer.throttled {
                after.bucket = after.bucket.emptied(answer.retry_after.unwrap_or(Span::ZERO), now);
            }
        }
        if unused_milli > 0 && answers.iter().all(|answer| !answer.throttled) {
            after.bucket = after.bucket.returned(unused_milli, now);
        }
        (after, alert)
    }

    /// One evaluation of whether throttled answers come in a burst.
    pub fn paced(&self, burst: bool, now: Time) -> Destination {
        let percent = self.bucket.pace_percent;
        let percent = match burst {
            true => percent.saturating_sub(SLOWER_PERCENT).max(SLOWEST_PERCENT),
            false => percent.saturating_add(FASTER_PERCENT).min(100),
        };
        Destination { bucket: self.bucket.slowed(percent, now), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::bucket::MILLI_PER_UNIT as UNIT;

    fn at(ms: i64) -> Time {
        Time::from_ms(1_771_056_000_000 + ms)
    }

    fn limit(capacity: u64, rate: u64) -> Limit {
        Limit { capacity_milli: capacity * UNIT, rate_milli_per_s: rate * UNIT, breaker: Settings::default() }
    }

    const OK: CallAnswer = CallAnswer { throttled: false, retry_after: None, reported: None };
    const THROTTLED: CallAnswer = CallAnswer { throttled: true, ..OK };

    // proves R6
    #[test]
    fn permits_are_given_for_as_many_calls_as_there_are() {
        for (calls, cost_milli, granted, left_milli) in [
            (10, UNIT, 10, 30 * UNIT),
            (100, UNIT, 40, 0),
            (10, 7 * UNIT, 5, 5 * UNIT),
            (3, 0, 3, 40 * UNIT),
            (5, 90 * UNIT, 1, 0),
            (0, UNIT, 0, 40 * UNIT),
        ] {
            let (after, grant) = Destination::new(&limit(40, 2), at(0)).admit(calls, cost_milli, at(0));
            let expected = Grant { calls: granted, is_probe: false, wait: None };
            assert_eq!(
                (grant, after.bucket.available_milli),
                (expected, left_milli),
                "{calls} at {cost_milli}"
            );
        }
        let (empty, _) = Destination::new(&limit(40, 2), at(0)).admit(40, UNIT, at(0));
        let (same, grant) = empty.admit(10, UNIT, at(100));
        assert_eq!((same, grant.calls, grant.wait), (empty, 0, Some(Span::from_ms(400))));
        assert_eq!(empty.admit(10, UNIT, at(1_500)).1.calls, 3);
    }

    // proves R6
    #[test]
    fn the_sixth_throttled_answer_of_whomever_opens_for_all_and_one_call_probes() {
        let five = [THROTTLED; 5];
        let (after, alert) = Destination::new(&limit(40, 1_000), at(0)).answered(&five, 0, at(0));
        assert_eq!((alert, after.admit(1, UNIT, at(1_000)).1.calls), (None, 1));
        let (open, alert) = after.answered(&[THROTTLED], 0, at(0));
        assert_eq!(alert, Some(Alert::Opened));
        assert_eq!(
            open.admit(9, UNIT, at(1_000)).1,
            Grant { calls: 0, is_probe: false, wait: Some(Span::from_ms(59_000)) }
        );
        let (probing, grant) = open.admit(9, UNIT, at(60_000));
        assert_eq!(grant, Grant { calls: 1, is_probe: true, wait: None });
        assert_eq!(probing.admit(9, UNIT, at(60_000)).1.calls, 0, "one probe");
        let (closed, alert) = probing.answered(&[OK], 0, at(60_100));
        assert_eq!((alert, closed.admit(9, UNIT, at(60_100)).1.calls), (Some(Alert::Closed), 9));
    }

    // proves R5
    #[test]
    fn a_throttled_answer_empties_the_bucket_until_its_time_has_come() {
        for (retry_after, ms, granted) in [
            (None, 0, 0),
            (None, 500, 1),
            (Some(2_000), 1_999, 0),
            (Some(2_000), 3_000, 2),
            (Some(0), 1_000, 2),
        ] {
            let answer = CallAnswer { retry_after: retry_after.map(Span::from_ms), ..THROTTLED };
            let (after, _) = Destination::new(&limit(40, 2), at(0)).answered(&[OK, answer], 5 * UNIT, at(0));
            assert_eq!(after.admit(40, UNIT, at(ms)).1.calls, granted, "{retry_after:?} {ms}");
        }
    }

    #[test]
    fn unused_permits_come_back_and_a_report_corrects() {
        let (after, _) = Destination::new(&limit(40, 2), at(0)).admit(40, UNIT, at(0));
        let (after, _) = after.answered(&[OK], 15 * UNIT, at(0));
        assert_eq!(after.bucket.available_milli, 15 * UNIT);
        let (full, _) = after.answered(&[], 900 * UNIT, at(0));
        assert_eq!(full.bucket.available_milli, 40 * UNIT, "never more than fits");
        let reported = Reported {
            available_milli: 3 * UNIT,
            rate_milli_per_s: Some(50 * UNIT),
            capacity_milli: Some(1_000 * UNIT),
        };
        let (told, _) = full.answered(&[CallAnswer { reported: Some(reported), ..OK }], 0, at(0));
        assert_eq!((told.bucket.available_milli, told.bucket.capacity_milli), (3 * UNIT, 1_000 * UNIT));
    }

    // proves R12
    #[test]
    fn a_burst_slows_by_ten_down_to_half_and_quiet_gives_back_five() {
        let mut it = Destination::new(&limit(40, 2), at(0));
        let paces = [true, true, true, true, true, true, false, false].map(|burst| {
            it = it.paced(burst, at(0));
            it.bucket.pace_percent
        });
        assert_eq!(paces, [90, 80, 70, 60, 50, 50, 55, 60]);
        for _ in 0..20 {
            it = it.paced(false, at(0));
        }
        assert_eq!(it.bucket.pace_percent, 100);
    }

    #[test]
    fn another_limit_keeps_what_was_used() {
        let (used, _) = Destination::new(&limit(40, 2), at(0)).admit(30, UNIT, at(0));
        assert_eq!(used.limited(&limit(1_000, 50), at(0)).bucket.available_milli, 10 * UNIT);
        assert_eq!(used.limited(&limit(5, 1), at(0)).bucket.available_milli, 5 * UNIT);
    }
}
