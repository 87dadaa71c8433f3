//! How long a target waits after an answer, as SPEC's table has it, with the bounds that are shipped.
// proves R4 and R5

use waypost_kernel::backoff::Backoff;
use waypost_kernel::retry_after::{Bounds, retry_after};
use waypost_kernel::{Span, Time};

/// 2026-02-14T08:00:00Z.
const NOW: i64 = 1_771_056_000;

fn seconds(seconds: i64) -> Span {
    Span::from_seconds(seconds)
}

/// What is waited after the `n`-th throttled answer.
fn throttled(header: Option<&str>, n: u32) -> Span {
    let now = Time::from_ms(NOW * 1_000);
    let asked = header.and_then(|header| retry_after(header, now, Bounds::default()));
    asked.or_else(|| Backoff::throttled().wait(n, u64::MAX / 2)).unwrap()
}

#[test]
fn a_throttled_target_waits_as_it_is_told_or_as_long_as_the_table_says() {
    for (header, n, expected) in [
        (Some("0"), 1, 1),
        (Some("5"), 1, 5),
        (Some("5"), 3, 5),
        (Some("Sat, 14 Feb 2026 08:00:30 GMT"), 1, 30),
        (Some("Sat, 14 Feb 2026 07:59:00 GMT"), 1, 1),
        (Some("1000000000"), 1, 3_600),
        (Some("soon"), 1, 16),
        (Some("-5"), 2, 32),
        (Some(""), 1, 16),
        (None, 1, 16),
        (None, 2, 32),
        (None, 3, 64),
        (None, 4, 64),
        (None, 40, 64),
    ] {
        assert_eq!(throttled(header, n), seconds(expected), "{header:?}, answer {n}");
    }
}

#[test]
fn a_failed_target_waits_twice_as_long_each_time_a_fifth_more_or_less() {
    for (retry, least_ms, most_ms) in [
        (1, 1_600, 2_400),
        (2, 3_200, 4_800),
        (3, 6_400, 9_600),
        (4, 12_800, 19_200),
        (5, 25_600, 38_400),
        (6, 51_200, 64_000),
        (7, 51_200, 64_000),
        (100, 51_200, 64_000),
    ] {
        let wait = |random: u64| Backoff::target().wait(retry, random).unwrap();
        assert_eq!((wait(0).ms(), wait(u64::MAX).ms()), (least_ms, most_ms), "retry {retry}");
        for random in (0..1_000).map(|n| n * (u64::MAX / 1_000)) {
            assert!((least_ms..=most_ms).contains(&wait(random).ms()), "retry {retry}, {random}");
        }
    }
}
