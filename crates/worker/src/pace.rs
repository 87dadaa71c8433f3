//! Waits, and the randomness that keeps many workers from waiting in step.

use std::time::Duration;

use uuid::Uuid;
use waypost_kernel::Span;
use waypost_kernel::backoff::Backoff;

/// A store that does not answer is asked again after 100 ms, 200 ms and so on up to 5 s: a full disk must not
/// become a storm of polls on top.
const STORE_AWAY: Backoff = Backoff::Exponential {
    base: Span::from_ms(100),
    factor: 2,
    cap: Span::from_seconds(5),
    jitter_percent: 20,
};

pub(crate) fn random() -> u64 {
    // The upper two bits of this half are the variant's.
    Uuid::new_v4().as_u64_pair().1 << 2
}

pub(crate) fn between(low: Duration, high: Duration) -> Duration {
    let width = high.saturating_sub(low).as_micros() as u64;
    low + Duration::from_micros(((u128::from(random()) * u128::from(width)) >> 64) as u64)
}

/// Give or take a fifth.
pub(crate) fn about(pace: Duration) -> Duration {
    between(pace * 4 / 5, pace * 6 / 5)
}

/// How long to leave the store alone before asking it for the `retry`-th time again.
pub(crate) fn store_away(retry: u32) -> Duration {
    STORE_AWAY.wait(retry, random()).map_or(Duration::from_secs(1), duration)
}

pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_micros(u64::try_from(span.micros()).unwrap_or(0))
}

pub(crate) fn span(duration: Duration) -> Span {
    Span::from_micros(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_within_their_bounds() {
        let (low, high) = (Duration::from_millis(250), Duration::from_secs(1));
        for _ in 0..1_000 {
            assert!((low..=high).contains(&between(low, high)));
            assert!((low..=high).contains(&about(Duration::from_millis(500))));
        }
        assert_eq!(between(high, low), high, "an empty range is its lower end");
        assert!(store_away(1) <= Duration::from_millis(120));
        assert!(store_away(u32::MAX) <= Duration::from_secs(5));
    }
}
