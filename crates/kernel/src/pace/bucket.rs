//! The rate limit of one destination as a leaky bucket: a stored row that all workers share by
//! compare-and-set. Amounts are whole thousandths of a unit, so that no float decides who may call.

use crate::time::{Span, Time};

pub const MILLI_PER_UNIT: u64 = 1_000;

/// A rate times a percentage counts thousandths per 100 seconds.
const MICROS_PER_100_S: u128 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// What an idle destination allows at once. Below one unit it counts as one unit.
    pub capacity_milli: u64,
    /// What comes back per second. 0 counts as 1, so that every wait ends.
    pub rate_milli_per_s: u64,
    /// How much of the rate is used: 100 but for a slowed destination.
    pub pace_percent: u8,
    pub available_milli: u64,
    /// The instant that `available_milli` is true of. Later than now after a clock went back.
    pub at: Time,
}

/// What the destination says of itself: Shopify's `currentlyAvailable`, `restoreRate`, `maximumAvailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    pub available_milli: u64,
    pub rate_milli_per_s: Option<u64>,
    pub capacity_milli: Option<u64>,
}

impl Bucket {
    /// A full bucket; both arguments in whole units.
    pub const fn full(capacity: u64, rate_per_s: u64, now: Time) -> Bucket {
        let capacity_milli = capacity.saturating_mul(MILLI_PER_UNIT);
        Bucket {
            capacity_milli,
            rate_milli_per_s: rate_per_s.saturating_mul(MILLI_PER_UNIT),
            pace_percent: 100,
            available_milli: capacity_milli,
            at: now,
        }
    }

    /// 2 per second, 40 at once: the seed's figures for Shopify.
    pub const fn standard(now: Time) -> Bucket {
        Bucket::full(40, 2, now)
    }

    /// Takes `cost_milli`, or says how long until there is room if nobody else takes any. A cost above the
    /// capacity would wait for ever, so it takes the whole bucket instead.
    pub fn take(&self, cost_milli: u64, now: Time) -> Result<Bucket, Span> {
        let cost = cost_milli.min(self.capacity());
        let refilled = self.refilled(now);
        match refilled.available_milli.checked_sub(cost) {
            Some(available_milli) => Ok(Bucket { available_milli, ..refilled }),
            None => {
                let missing = cost.saturating_sub(self.available_milli);
                let wait = (self.at + self.time_to_gain(missing)) - now;
                Err(wait.max(Span::from_micros(1)))
            }
        }
    }

    /// Believes the more pessimistic of the two: our count has calls in it that the destination had not yet
    /// seen, and its count has calls in it that are not ours. A reported rate or capacity of 0 is ignored.
    pub fn correct(&self, reported: Reported, now: Time) -> Bucket {
        let refilled = self.refilled(now);
        let told = |value: Option<u64>, ours: u64| value.filter(|value| *value > 0).unwrap_or(ours);
        let corrected = Bucket {
            capacity_milli: told(reported.capacity_milli, self.capacity_milli),
            rate_milli_per_s: told(reported.rate_milli_per_s, self.rate_milli_per_s),
            ..refilled
        };
        let available_milli =
            refilled.available_milli.min(reported.available_milli).min(corrected.capacity());
        Bucket { available_milli, ..corrected }
    }

    /// The destination says that there is nothing left: our count was wrong. What comes back counts from when it says.
    pub fn emptied(&self, wait: Span, now: Time) -> Bucket {
        Bucket { available_milli: 0, at: self.at.max(now + wait.max(Span::ZERO)), ..*self }
    }

    /// Gives back what was taken and not used.
    pub fn returned(&self, milli: u64, now: Time) -> Bucket {
        let refilled = self.refilled(now);
        let available_milli = refilled.available_milli.saturating_add(milli).min(self.capacity());
        Bucket { available_milli, ..refilled }
    }

    /// Uses only so much of the rate from now on; 100 ends it. Apart from the rate, which a correction sets.
    pub fn slowed(&self, percent: u8, now: Time) -> Bucket {
        Bucket { pace_percent: percent.min(100), ..self.refilled(now) }
    }

    /// The bucket as it stands at `now`. What came back is counted once: `at` moves on by the time that whole
    /// thousandths took, so that frequent takes lose no fractions, and never moves back.
    pub fn refilled(&self, now: Time) -> Bucket {
        let elapsed = u128::try_from((now - self.at).micros()).unwrap_or(0);
        let room = self.capacity().saturating_sub(self.available_milli);
        let gained =
            u64::try_from(elapsed.saturating_mul(self.pace()) / MICROS_PER_100_S).unwrap_or(u64::MAX);
        if gained >= room {
            let at = self.at.max(now);
            return Bucket { available_milli: self.capacity(), at, ..*self };
        }
        let at = self.at + self.time_to_gain(gained);
        Bucket { available_milli: self.available_milli + gained, at, ..*self }
    }

    fn time_to_gain(&self, milli: u64) -> Span {
        let micros = (u128::from(milli) * MICROS_PER_100_S).div_ceil(self.pace());
        Span::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    /// Thousandths per 100 seconds: no division that rounds a slow rate to nothing.
    fn pace(&self) -> u128 {
        u128::from(self.rate_milli_per_s.max(1)) * u128::from(self.pace_percent.clamp(1, 100))
    }

    fn capacity(&self) -> u64 {
        self.capacity_milli.max(MILLI_PER_UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u64 = MILLI_PER_UNIT;

    fn seconds(seconds: i64) -> Time {
        Time::from_ms(1_771_056_000_000 + seconds * 1_000)
    }

    fn holding(units: u64) -> Bucket {
        Bucket { available_milli: units * UNIT, ..Bucket::standard(seconds(0)) }
    }

    fn taken(bucket: Bucket, cost_milli: u64, at: Time) -> Bucket {
        bucket.take(cost_milli, at).expect("there is room")
    }

    // proves R6
    #[test]
    fn forty_at_once_then_two_a_second() {
        let mut bucket = Bucket::standard(seconds(0));
        for _ in 0..40 {
            bucket = taken(bucket, UNIT, seconds(0));
        }
        assert_eq!(bucket.take(UNIT, seconds(0)), Err(Span::from_ms(500)));
        bucket = taken(bucket, UNIT, seconds(1));
        bucket = taken(bucket, UNIT, seconds(1));
        assert_eq!(bucket.take(UNIT, seconds(1)), Err(Span::from_ms(500)));
    }

    #[test]
    fn waits_are_exact() {
        for (units, cost_milli, elapsed_ms, wait_micros) in [
            (0, UNIT, 0, 500_000),
            (0, 1, 0, 500),
            (0, 10 * UNIT, 1_000, 4_000_000),
            (5, 10 * UNIT, 1_000, 1_500_000),
            (0, 40 * UNIT, 0, 20_000_000),
            (0, u64::MAX, 0, 20_000_000),
            (0, UNIT, -1_000, 1_500_000),
        ] {
            let now = seconds(0) + Span::from_ms(elapsed_ms);
            let wait = holding(units).take(cost_milli, now);
            assert_eq!(wait, Err(Span::from_micros(wait_micros)), "{units} {cost_milli} {elapsed_ms}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let mut bucket = taken(Bucket::standard(seconds(60)), 40 * UNIT, seconds(60));
        for second in [0, 59, 60, 0, 60] {
            assert_eq!(bucket.refilled(seconds(second)).available_milli, 0, "at {second}");
            bucket = taken(bucket, 0, seconds(second));
        }
        assert_eq!(bucket.refilled(seconds(61)).available_milli, 2 * UNIT);
    }

    #[test]
    fn frequent_takes_lose_no_fractions() {
        let mut bucket = Bucket { rate_milli_per_s: 4, ..holding(0) };
        for ms in (0..=1_000).step_by(7) {
            bucket = taken(bucket, 0, seconds(0) + Span::from_ms(ms));
        }
        assert_eq!(bucket.refilled(seconds(1)).available_milli, 4);
    }

    #[test]
    fn the_outside_can_only_lower_what_is_available() {
        for (ours, available, rate, capacity, expected) in [
            (30, 10, None, None, (10, 40, 2)),
            (10, 30, None, None, (10, 40, 2)),
            (30, 990, Some(100), Some(1_000), (30, 1_000, 100)),
            (30, 30, None, Some(20), (20, 20, 2)),
            (30, 30, Some(0), Some(0), (30, 40, 2)),
        ] {
            let milli = |units: Option<u64>| units.map(|units| units * UNIT);
            let reported = Reported {
                available_milli: available * UNIT,
                rate_milli_per_s: milli(rate),
                capacity_milli: milli(capacity),
            };
            let bucket = holding(ours).correct(reported, seconds(0));
            let found = (bucket.available_milli, bucket.capacity_milli, bucket.rate_milli_per_s);
            assert_eq!(found, (expected.0 * UNIT, expected.1 * UNIT, expected.2 * UNIT), "{reported:?}");
        }
    }

    // proves R12
    #[test]
    fn a_slowed_bucket_refills_slower_until_it_is_let_go() {
        let slow = holding(0).slowed(50, seconds(10));
        assert_eq!(slow.available_milli, 20 * UNIT, "the time before counts at the full rate");
        assert_eq!(slow.refilled(seconds(14)).available_milli, 24 * UNIT);
        let told_rate =
            Reported { available_milli: 20 * UNIT, rate_milli_per_s: Some(4 * UNIT), capacity_milli: None };
        assert_eq!(slow.correct(told_rate, seconds(10)).refilled(seconds(11)).available_milli, 22 * UNIT);
        assert_eq!(slow.slowed(100, seconds(10)).refilled(seconds(11)).available_milli, 22 * UNIT);
        assert_eq!(slow.slowed(0, seconds(10)).pace(), u128::from(2 * UNIT), "never a full stop");
    }

    #[test]
    fn senseless_settings_still_limit() {
        let nothing = Bucket { available_milli: 0, ..Bucket::full(0, 0, seconds(0)) };
        assert_eq!(nothing.take(5 * UNIT, seconds(0)), Err(Span::from_seconds(1_000)));
    }

    prop_compose! {
        fn any_bucket()(
            capacity_milli: u64, rate_milli_per_s: u64, pace_percent: u8, available_milli: u64, micros: i64,
        ) -> Bucket {
            let at = Time::from_micros(micros);
            Bucket { capacity_milli, rate_milli_per_s, pace_percent, available_milli, at }
        }
    }

    proptest! {
        // proves R6
        #[test]
        fn no_window_lets_more_through_than_capacity_and_rate(
            capacity in 1_u64..50, rate_milli in 1_u64..5_000,
            steps in proptest::collection::vec((-200_000_i64..900_000, 0_u64..60_000), 1..60),
        ) {
            let mut bucket = Bucket { rate_milli_per_s: rate_milli, ..Bucket::full(capacity, 1, seconds(0)) };
            let (mut now, mut newest) = (seconds(0), seconds(0));
            let mut takes = Vec::new();
            for (step, cost_milli) in steps {
                now = now + Span::from_micros(step);
                newest = newest.max(now);
                if let Ok(next) = bucket.take(cost_milli, now) {
                    takes.push((newest, cost_milli.min(capacity * UNIT)));
                    bucket = next;
                }
            }
            for first in 0..takes.len() {
                let mut sum = 0;
                for (at, cost_milli) in &takes[first..] {
                    sum += cost_milli;
                    let elapsed = (*at - takes[first].0).micros() as u64;
                    // One thousandth more: what was less than one when the window began.
                    prop_assert!(sum <= capacity * UNIT + elapsed * rate_milli / 1_000_000 + 1);
                }
            }
        }

        #[test]
        fn waiting_suffices_and_a_microsecond_less_does_not(
            capacity_milli in 1_u64..1_000_000_000, rate_milli_per_s in 0_u64..1_000_000_000,
            pace_percent: u8, available_milli in 0_u64..1_000_000_000,
            cost_milli in 0_u64..2_000_000_000, elapsed in -9_000_000_i64..9_000_000,
        ) {
            let at = seconds(0);
            let bucket = Bucket { capacity_milli, rate_milli_per_s, pace_percent, available_milli, at };
            let now = at + Span::from_micros(elapsed);
            if let Err(wait) = bucket.take(cost_milli, now) {
                prop_assert!(wait > Span::ZERO);
                prop_assert!(bucket.take(cost_milli, now + wait).is_ok());
                prop_assert!(bucket.take(cost_milli, now + wait - Span::from_micros(1)).is_err());
            }
        }

        #[test]
        fn no_stored_row_and_no_clock_break_it(bucket in any_bucket(), cost_milli: u64, now: i64) {
            let now = Time::from_micros(now);
            if let Ok(next) = bucket.take(cost_milli, now) {
                prop_assert!(next.available_milli <= next.capacity() && next.at >= bucket.at);
            }
        }
    }
}
