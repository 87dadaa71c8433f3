//! How long to wait before a retry. The answer is a span to store, never a sleep.

use crate::time::Span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// One wait per retry; the last repeats. Empty means no retry.
    List(Vec<Span>),
    /// `base` × `factor`^(retry − 1), spread by ± `jitter_percent`, never above `cap`.
    Exponential { base: Span, factor: u32, cap: Span, jitter_percent: u8 },
}

impl Backoff {
    /// Scheduled executions: 1 m, 5 m, then 15 m each.
    pub fn cron() -> Backoff {
        Backoff::seconds(&[60, 300, 900])
    }

    /// Tries of a deploy run: 5 s, 10 s.
    pub fn deploy() -> Backoff {
        Backoff::seconds(&[5, 10])
    }

    /// Steps of an agent run: 1 s, 2 s, 4 s.
    pub fn step() -> Backoff {
        Backoff::seconds(&[1, 2, 4])
    }

    /// Targets of a rule: 2 s, 4 s, 8 s and so on up to 64 s, ± 20 %.
    pub const fn target() -> Backoff {
        Backoff::Exponential {
            base: Span::from_seconds(2),
            factor: 2,
            cap: Span::from_seconds(64),
            jitter_percent: 20,
        }
    }

    /// A 429 without Retry-After: 16 s, 32 s, then 64 s. No jitter: the shared bucket spreads the callers,
    /// and a wait that is shorter than 16 s only earns the next 429.
    pub const fn throttled() -> Backoff {
        Backoff::Exponential {
            base: Span::from_seconds(16),
            factor: 2,
            cap: Span::from_seconds(64),
            jitter_percent: 0,
        }
    }

    fn seconds(waits: &[i64]) -> Backoff {
        Backoff::List(waits.iter().map(|wait| Span::from_seconds(*wait)).collect())
    }

    /// The wait before retry number `retry`, which counts from 1. `None`: do not retry.
    pub fn wait(&self, retry: u32, random: u64) -> Option<Span> {
        let earlier_retries = retry.saturating_sub(1);
        match self {
            Backoff::List(waits) => {
                let index = usize::try_from(earlier_retries).unwrap_or(usize::MAX);
                waits.get(index).or(waits.last()).map(|wait| (*wait).max(Span::ZERO))
            }
            Backoff::Exponential { base, factor, cap, jitter_percent } => {
                // A factor of 0 would retry without any wait from the second retry on.
                let growth = u128::from(*factor).max(1).saturating_pow(earlier_retries);
                let cap = positive(*cap);
                let middle = positive(*base).saturating_mul(growth).min(cap);
                Some(jittered(middle, cap, *jitter_percent, random))
            }
        }
    }
}

/// Draws from the part of the jitter's range that is below the cap. Clamping afterwards would put half of all
/// waits on exactly the cap, which is the crowd that jitter is there to spread.
fn jittered(middle: u128, cap: u128, percent: u8, random: u64) -> Span {
    let reach = middle * u128::from(percent.min(100)) / 100;
    let lowest = middle - reach;
    let width = (middle + reach).min(cap) - lowest;
    let offset = (u128::from(random) * (width + 1)) >> 64;
    Span::from_micros(i64::try_from(lowest + offset).unwrap_or(i64::MAX))
}

fn positive(span: Span) -> u128 {
    u128::try_from(span.micros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIDDLE: u64 = u64::MAX / 2;

    // proves C7, D9, A6, R4, R5
    #[test]
    fn shipped_policies_wait_as_documented() {
        for (backoff, waits_ms) in [
            (Backoff::cron(), vec![60_000, 300_000, 900_000, 900_000, 900_000]),
            (Backoff::deploy(), vec![5_000, 10_000, 10_000]),
            (Backoff::step(), vec![1_000, 2_000, 4_000, 4_000]),
            (Backoff::target(), vec![2_000, 4_000, 8_000, 16_000, 32_000]),
            (Backoff::throttled(), vec![16_000, 32_000, 64_000, 64_000]),
        ] {
            for (retry, expected_ms) in (1..).zip(&waits_ms) {
                let wait = backoff.wait(retry, MIDDLE).expect("these policies always retry");
                assert_eq!(wait, Span::from_ms(*expected_ms), "{backoff:?}, retry {retry}");
            }
        }
    }

    // proves C7
    #[test]
    fn an_empty_list_never_retries() {
        for retry in [0, 1, 2, u32::MAX] {
            assert_eq!(Backoff::List(vec![]).wait(retry, MIDDLE), None);
        }
    }

    // proves R4
    #[test]
    fn jitter_reaches_both_ends_and_never_passes_the_cap() {
        for (retry, random, micros) in [
            (1, 0, 1_600_000),
            (1, u64::MAX, 2_400_000),
            (2, 0, 3_200_000),
            (3, u64::MAX, 9_600_000),
            (6, 0, 51_200_000),
            (6, u64::MAX, 64_000_000),
            (u32::MAX, u64::MAX, 64_000_000),
            (0, 0, 1_600_000),
        ] {
            let wait = Backoff::target().wait(retry, random);
            assert_eq!(wait, Some(Span::from_micros(micros)), "retry {retry}, random {random}");
        }
        let at_the_cap = (0..100)
            .filter(|step| Backoff::target().wait(6, u64::MAX / 100 * step) == Some(Span::from_seconds(64)));
        assert_eq!(at_the_cap.count(), 0, "waits near the cap are spread below it");
    }

    #[test]
    fn senseless_settings_still_give_a_wait_between_zero_and_the_cap() {
        let second = Span::from_seconds(1);
        for (base, factor, cap, expected) in [
            (second, 0, Span::from_seconds(9), second),
            (Span::from_seconds(-5), 2, second, Span::ZERO),
            (second, 2, Span::from_seconds(-1), Span::ZERO),
        ] {
            let backoff = Backoff::Exponential { base, factor, cap, jitter_percent: 0 };
            assert_eq!(backoff.wait(7, MIDDLE), Some(expected), "{backoff:?}");
        }
        assert_eq!(Backoff::List(vec![Span::from_seconds(-1)]).wait(1, 0), Some(Span::ZERO));
    }

    proptest! {
        #[test]
        fn any_policy_stays_between_zero_and_its_cap(
            base: i64, factor: u32, cap: i64, jitter_percent: u8, retry: u32, random: u64,
        ) {
            let (base, cap) = (Span::from_micros(base), Span::from_micros(cap));
            let wait = Backoff::Exponential { base, factor, cap, jitter_percent }.wait(retry, random);
            prop_assert!(wait >= Some(Span::ZERO) && wait <= Some(cap.max(Span::ZERO)));
        }
    }
}
