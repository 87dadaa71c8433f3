//! Three processes that share a destination's permits call a shop with its own limit, in simulated time: how often they are refused, and
//! how much of the limit they use. Both sides count from the call, but calls arrive late, and not in the order in which they were sent.

use std::collections::BTreeMap;

use waypost_kernel::breaker::Settings;
use waypost_kernel::bucket::MILLI_PER_UNIT as UNIT;
use waypost_kernel::destination::{CallAnswer, Destination, Limit};
use waypost_kernel::{Span, Time};

const STEP_US: i64 = 10_000;
const PROCESSES: u64 = 3;
/// What the shop allows.
const RATE: u64 = 2;
const BURST: u64 = 40;

fn at(us: i64) -> Time {
    Time::from_micros(1_771_056_000_000_000 + us)
}

/// From 20 ms to half a second, by chance that is the same each time.
fn latency_us(seed: &mut u64) -> i64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    20_000 + (*seed >> 33) as i64 % 480_000
}

/// Calls of the minutes after the first one, and those of them that were refused. `skew` is what is in the shop's bucket when it begins, of
/// which the processes do not know.
fn played(minutes: i64, skew: u64) -> (u64, u64) {
    let limit =
        Limit { capacity_milli: BURST * UNIT, rate_milli_per_s: RATE * UNIT, breaker: Settings::default() };
    let mut ours = Destination::new(&limit, at(0));
    let mut shop = Destination::new(&limit, at(0));
    shop.bucket.available_milli = (BURST - skew) * UNIT;
    let mut arrivals: BTreeMap<(i64, u64), ()> = BTreeMap::new();
    let mut answers: BTreeMap<(i64, u64), CallAnswer> = BTreeMap::new();
    let (mut seed, mut number, mut calls, mut refused) = (7, 0, 0, 0);
    let mut not_before = [0; PROCESSES as usize];
    for step in 0..minutes * 60 * 1_000_000 / STEP_US {
        let now = step * STEP_US;
        while let Some(((came, id), ())) =
            arrivals.first_key_value().map(|(key, ())| (*key, ())).filter(|(key, ())| key.0 <= now)
        {
            arrivals.remove(&(came, id));
            let throttled = shop.bucket.take(UNIT, at(now)).map(|bucket| shop.bucket = bucket).is_err();
            if now > 60_000_000 {
                calls += 1;
                refused += u64::from(throttled);
            }
            let retry_after = throttled.then(|| Span::from_seconds(1));
            let answer = CallAnswer { throttled, retry_after, reported: None };
            answers.insert((now + latency_us(&mut seed), id), answer);
        }
        while let Some((key, answer)) =
            answers.first_key_value().map(|(key, it)| (*key, *it)).filter(|(key, _)| key.0 <= now)
        {
            answers.remove(&key);
            ours = ours.answered(&[answer], 0, at(now)).0;
        }
        for process in not_before.iter_mut().filter(|it| **it <= now) {
            let (after, grant) = ours.admit(5, UNIT, at(now));
            ours = after;
            for _ in 0..grant.calls {
                number += 1;
                arrivals.insert((now + latency_us(&mut seed), number), ());
            }
            *process = now + grant.wait.map_or(STEP_US, Span::micros);
        }
    }
    (calls, refused)
}

// proves R6
#[test]
fn three_processes_are_hardly_ever_refused_and_use_the_limit() {
    for skew in [0, 20, BURST] {
        let (calls, refused) = played(11, skew);
        let allowed = RATE * 10 * 60;
        println!("{skew} unknown: {calls} calls of {allowed} allowed, {refused} refused");
        assert!(calls * 10 >= allowed * 9, "{skew}: {calls} of {allowed}");
        assert!(refused * 100 <= calls, "{skew}: {refused} of {calls} refused");
    }
}
