//! A delay that spreads schedules with the same times, the same for a plan on whichever server computes it.

use crate::time::{Span, Time};

/// From zero to less than `most`, by the schedule's name and the plan time.
pub fn jitter(most: Span, schedule: &str, scope: &str, plan: Time) -> Span {
    let Ok(most) = u64::try_from(most.micros()) else { return Span::ZERO };
    let parts = [schedule.as_bytes(), b"\0", scope.as_bytes(), b"\0", &plan.micros().to_le_bytes()];
    // FNV-1a, and a last stir: its upper bits alone differ little between neighbours.
    let hash = parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Span::from_micros(((u128::from(hash) * u128::from(most)) >> 64) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_the_same_everywhere_and_spreads() {
        let most = Span::from_seconds(60);
        let at = |minute: i64| jitter(most, "backup", "global", Time::from_ms(minute * 60_000));
        assert_eq!(at(1), at(1));
        assert_eq!(jitter(Span::ZERO, "backup", "global", Time::from_ms(1)), Span::ZERO);
        let mut tenths = [0; 10];
        for minute in 0..10_000 {
            let found = at(minute);
            assert!(found >= Span::ZERO && found < most);
            tenths[(found.micros() / 6_000_000) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (800..1_200).contains(count)), "{tenths:?}");
    }
}
