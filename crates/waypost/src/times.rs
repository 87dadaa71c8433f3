//! Times as people type them. One without a zone is nobody's: it is refused, and not taken for UTC.

use waypost_kernel::schedule::Zone;
use waypost_kernel::{Span, Time};
use waypost_store::parse_time;

use crate::output::{BAD_INPUT, Failed, Result};

/// An instant with its zone, or a length of time from `now` on.
pub fn not_before(field: &str, text: &str, now: Time) -> Result<Time> {
    match Span::parse(text) {
        Some(span) => Ok(now + span),
        None => instant(field, text, "2026-02-14T08:00:00Z, 2026-02-14T09:00:00+01:00, 10m (from now)"),
    }
}

/// `allowed`: what the field takes, for who typed something else.
pub fn instant(field: &str, text: &str, allowed: &str) -> Result<Time> {
    let bad =
        |problem: &str| Failed::new(BAD_INPUT, format!("{field}: {text:?} {problem}; allowed: {allowed}"));
    match parse_time(text) {
        // What can be given a zone has none.
        Some(_) if parse_time(&format!("{}Z", text.trim())).is_some() => {
            Err(bad("has no time zone: put Z for UTC, or an offset like +02:00, behind it"))
        }
        Some(time) => Ok(time),
        None => Err(bad("is no time")),
    }
}

/// A day of that zone, with the instant at which the next one begins; or an instant.
pub fn day_or_instant(field: &str, text: &str, zone: &Zone) -> Result<(Time, Option<Time>)> {
    match zone.day(text) {
        Some((begins, next)) => Ok((begins, Some(next))),
        None => {
            Ok((instant(field, text, "2026-02-14, 2026-02-14T08:00:00Z, 2026-02-14T09:00:00+01:00")?, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves U12
    #[test]
    fn times_are_instants_with_a_zone_or_lengths() {
        let now = parse_time("2026-02-14T08:00:00Z").expect("a time");
        let read = |text: &str| not_before("schedule-at", text, now);
        for (text, expected) in [
            ("10m", "2026-02-14T08:10:00Z"),
            ("2d", "2026-02-16T08:00:00Z"),
            ("2026-02-14T10:00:00+02:00", "2026-02-14T08:00:00Z"),
            ("2026-02-14 08:00:00Z", "2026-02-14T08:00:00Z"),
        ] {
            assert_eq!(read(text).ok(), parse_time(expected), "{text}");
        }
        for (text, words) in [
            ("2026-02-14T10:00:00", "has no time zone"),
            ("2026-02-14 10:00:00.5", "has no time zone"),
            ("2026-02-14", "is no time"),
            ("tomorrow", "is no time"),
            ("10 m", "is no time"),
            ("", "is no time"),
        ] {
            let refused = read(text).expect_err(text).message;
            assert!(refused.starts_with("schedule-at: ") && refused.contains(words), "{text}: {refused}");
        }
    }
}
