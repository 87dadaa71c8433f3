//! Plan times: the UTC grid that a cadence lays over time, counted from 1970-01-01T00:00:00Z. Every server
//! computes the same ones, so the unique key alone decides who runs a plan.

use crate::time::{Span, Time};

/// What one call may list, whatever limit it was given. The rest is counted; ask again after the last one.
pub const MAX_BUCKETS_PER_CALL: usize = 10_000;

/// The latest plan time whose delay has passed: `now` − `delay`, rounded down to the cadence.
pub fn bucket(now: Time, delay: Span, cadence: Span) -> Option<Time> {
    let cadence = positive_micros(cadence)?;
    let eligible = (now - delay).micros();
    eligible.checked_sub(eligible.rem_euclid(cadence)).map(Time::from_micros)
}

/// The first plan time that is later than `after`.
pub fn next_bucket(after: Time, cadence: Span) -> Option<Time> {
    let cadence = positive_micros(cadence)?;
    after.micros().checked_add(cadence - after.micros().rem_euclid(cadence)).map(Time::from_micros)
}

/// The oldest `limit` plan times later than `after` and not later than `until_inclusive`, and how many more
/// there are. A year of missed minutes costs no more than `limit`.
pub fn buckets_between(after: Time, until_inclusive: Time, cadence: Span, limit: usize) -> (Vec<Time>, u64) {
    let Some(cadence) = positive_micros(cadence) else { return (Vec::new(), 0) };
    let first = i128::from(after.micros().div_euclid(cadence)) + 1;
    let last = i128::from(until_inclusive.micros().div_euclid(cadence));
    let total = u64::try_from(last - first + 1).unwrap_or(0);
    let times: Vec<Time> = (first..=last)
        .take(limit.min(MAX_BUCKETS_PER_CALL))
        .filter_map(|index| i64::try_from(index * i128::from(cadence)).ok())
        .map(Time::from_micros)
        .collect();
    let skipped = total.saturating_sub(times.len() as u64);
    (times, skipped)
}

fn positive_micros(span: Span) -> Option<i64> {
    Some(span.micros()).filter(|micros| *micros > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Civil;
    use proptest::prelude::*;

    const MINUTE: Span = Span::from_seconds(60);
    const FIVE_MINUTES: Span = Span::from_seconds(300);
    const HOUR: Span = Span::from_seconds(3_600);

    fn at(hour: u32, minute: u32, second: u32) -> Time {
        on(2026, hour, minute, second)
    }

    fn on(year: i64, hour: u32, minute: u32, second: u32) -> Time {
        Civil { year, month: 2, day: 14, hour, minute, second, micros: 0 }.time().expect("a real date")
    }

    // proves C2
    #[test]
    fn plan_times_are_rounded_down_to_the_cadence() {
        for (now, delay, cadence, expected) in [
            (at(8, 17, 42), Span::ZERO, FIVE_MINUTES, at(8, 15, 0)),
            (at(8, 17, 42), FIVE_MINUTES, FIVE_MINUTES, at(8, 10, 0)),
            (at(8, 15, 0), Span::ZERO, FIVE_MINUTES, at(8, 15, 0)),
            (at(8, 14, 59), Span::ZERO, FIVE_MINUTES, at(8, 10, 0)),
            (at(0, 2, 0), FIVE_MINUTES, HOUR, at(0, 0, 0) - HOUR),
            (at(8, 17, 42), Span::ZERO, Span::from_seconds(86_400), at(0, 0, 0)),
            (on(1960, 8, 17, 42), Span::ZERO, FIVE_MINUTES, on(1960, 8, 15, 0)),
            (Time::from_micros(-1), Span::ZERO, HOUR, Time::default() - HOUR),
        ] {
            assert_eq!(bucket(now, delay, cadence), Some(expected), "{now} {delay} {cadence}");
        }
    }

    #[test]
    fn the_next_plan_time_is_always_later() {
        for (after, expected) in [
            (at(8, 15, 0), at(8, 20, 0)),
            (at(8, 17, 42), at(8, 20, 0)),
            (on(1960, 8, 19, 59), on(1960, 8, 20, 0)),
        ] {
            assert_eq!(next_bucket(after, FIVE_MINUTES), Some(expected), "{after}");
        }
    }

    // proves C5
    #[test]
    fn missed_plans_come_oldest_first_and_the_rest_is_counted() {
        for (after, until, cadence, limit, minutes, skipped) in [
            (at(8, 0, 0), at(8, 15, 0), FIVE_MINUTES, 3, vec![5, 10, 15], 0),
            (at(8, 0, 0), at(8, 14, 59), FIVE_MINUTES, 3, vec![5, 10], 0),
            (at(8, 1, 0), at(8, 30, 0), FIVE_MINUTES, 3, vec![5, 10, 15], 3),
            (at(8, 0, 0), at(8, 30, 0), FIVE_MINUTES, 0, vec![], 6),
            (at(8, 15, 0), at(8, 15, 0), FIVE_MINUTES, 3, vec![], 0),
            (at(8, 30, 0), at(8, 0, 0), FIVE_MINUTES, 3, vec![], 0),
            (at(8, 0, 0), on(2027, 8, 0, 0), MINUTE, 2, vec![1, 2], 365 * 24 * 60 - 2),
            (at(8, 0, 0), at(9, 0, 0), Span::ZERO, 3, vec![], 0),
        ] {
            let expected: Vec<Time> = minutes.into_iter().map(|minute| at(8, minute, 0)).collect();
            assert_eq!(buckets_between(after, until, cadence, limit), (expected, skipped), "{after} {until}");
        }
    }

    #[test]
    fn a_cadence_that_is_not_positive_has_no_plan_times() {
        for cadence in [Span::ZERO, Span::from_micros(-1), Span::from_micros(i64::MIN)] {
            assert_eq!(bucket(at(8, 0, 0), Span::ZERO, cadence), None);
            assert_eq!(next_bucket(at(8, 0, 0), cadence), None);
        }
    }

    #[test]
    fn the_widest_range_is_counted_without_being_walked() {
        let (oldest, newest) = (Time::from_micros(i64::MIN), Time::from_micros(i64::MAX));
        let (times, skipped) = buckets_between(oldest, newest, Span::from_micros(1), usize::MAX);
        assert_eq!(times.len(), MAX_BUCKETS_PER_CALL);
        assert_eq!(skipped, u64::MAX - MAX_BUCKETS_PER_CALL as u64);
    }

    proptest! {
        #[test]
        fn a_moment_lies_between_its_bucket_and_the_next(now: i64, cadence in 1_i64..) {
            let (now, cadence) = (Time::from_micros(now), Span::from_micros(cadence));
            let earlier = bucket(now, Span::ZERO, cadence);
            let later = next_bucket(now, cadence);
            prop_assert!(earlier.is_none_or(|earlier| earlier <= now));
            prop_assert!(later.is_none_or(|later| later > now));
            for on_grid in [earlier, later].into_iter().flatten() {
                prop_assert_eq!(bucket(on_grid, Span::ZERO, cadence), Some(on_grid));
            }
            if let (Some(earlier), Some(later)) = (earlier, later) {
                prop_assert_eq!(earlier + cadence, later);
            }
        }

        #[test]
        fn listing_in_pages_is_the_same_as_listing_at_once(
            start in -5_000_i64..5_000, length in 0_i64..5_000, cadence in 1_i64..400, limit in 1_usize..9,
        ) {
            let (mut after, until) = (Time::from_micros(start), Time::from_micros(start + length));
            let cadence = Span::from_micros(cadence);
            let (all, none_left) = buckets_between(after, until, cadence, usize::MAX);
            prop_assert_eq!(none_left, 0);
            let mut paged = Vec::new();
            loop {
                let (page, left) = buckets_between(after, until, cadence, limit);
                prop_assert_eq!(paged.len() + page.len() + left as usize, all.len());
                let Some(last) = page.last() else { break };
                after = *last;
                paged.extend(page);
            }
            prop_assert_eq!(paged, all);
        }
    }
}
