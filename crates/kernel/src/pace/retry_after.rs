//! The Retry-After header of RFC 9110: seconds, or an HTTP date in any of its three forms. The seed's
//! `parseInt` made NaN of a date and let 0, a negative and a huge number through.

use crate::time::{Civil, Span, Time};

/// What an outside answer may make us wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub at_least: Span,
    pub at_most: Span,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { at_least: Span::from_seconds(1), at_most: Span::from_seconds(3_600) }
    }
}

impl Bounds {
    fn bound(self, wait: Span) -> Span {
        wait.max(self.at_least).min(self.at_most)
    }
}

/// The wait that the header asks for, within the bounds. `None`: not a Retry-After, use the backoff.
pub fn retry_after(header: &str, now: Time, bounds: Bounds) -> Option<Span> {
    let header = header.trim_ascii();
    if header.is_empty() {
        return None;
    }
    if header.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits that overflow ask for more than any bound allows.
        let seconds = header.parse().unwrap_or(i64::MAX);
        return Some(bounds.bound(Span::from_seconds(seconds)));
    }
    http_date(header, now).map(|date| bounds.bound(date - now))
}

fn http_date(text: &str, now: Time) -> Option<Time> {
    // One word more than the longest form, so that a long header is not split to its end.
    let words: Vec<&str> = text.split_ascii_whitespace().take(7).collect();
    match words.as_slice() {
        [weekday, day, month, year, clock, "GMT"] => {
            short_weekday(weekday.strip_suffix(',')?)?;
            instant(digits(year, 4, 4)?, month, day, clock)
        }
        [weekday, date, clock, "GMT"] => {
            long_weekday(weekday.strip_suffix(',')?)?;
            let (day, rest) = date.split_once('-')?;
            let (month, year) = rest.split_once('-')?;
            full_year(digits(year, 2, 2)?, now, |year| instant(year, month, day, clock))
        }
        [weekday, month, day, clock, year] => {
            short_weekday(weekday)?;
            instant(digits(year, 4, 4)?, month, day, clock)
        }
        _ => None,
    }
}

/// Two digits mean the latest such year that is at most 50 years ahead (RFC 9110, 5.6.7).
fn full_year(two_digits: u32, now: Time, instant: impl Fn(u32) -> Option<Time>) -> Option<Time> {
    let today = Civil::of(now);
    let in_fifty_years = Civil { year: today.year.saturating_add(50), ..today };
    // A leap day has no anniversary in 50 years.
    let limit = in_fifty_years.time().or_else(|| Civil { day: 28, ..in_fifty_years }.time())?;
    let century = u32::try_from(today.year).ok()? / 100;
    let centuries = [century + 1, century, century.saturating_sub(1)];
    centuries.into_iter().find_map(|century| {
        instant(century.saturating_mul(100).saturating_add(two_digits)).filter(|time| *time <= limit)
    })
}

fn instant(year: u32, month: &str, day: &str, clock: &str) -> Option<Time> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = (1..).zip(MONTHS).find(|(_, name)| *name == month)?.0;
    let (hour, rest) = clock.split_once(':')?;
    let (minute, second) = rest.split_once(':')?;
    let second = digits(second, 2, 2)?;
    // The grammar allows a leap second, the calendar does not.
    let leap_second = u32::from(second == 60);
    let civil = Civil {
        year: i64::from(year),
        month,
        day: digits(day, 1, 2)?,
        hour: digits(hour, 2, 2)?,
        minute: digits(minute, 2, 2)?,
        second: second - leap_second,
        micros: 0,
    };
    Some(civil.time()? + Span::from_seconds(i64::from(leap_second)))
}

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The name is checked, its agreement with the date is not: the date alone says how long to wait.
fn long_weekday(name: &str) -> Option<()> {
    WEEKDAYS.contains(&name).then_some(())
}

fn short_weekday(name: &str) -> Option<()> {
    (name.len() == 3 && WEEKDAYS.iter().any(|day| day.starts_with(name))).then_some(())
}

fn digits(text: &str, at_least: usize, at_most: usize) -> Option<u32> {
    let right_length = (at_least..=at_most).contains(&text.len());
    (right_length && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(year: i64, month: u32, day: u32, hour: u32, minute: u32, second: u32) -> Time {
        Civil { year, month, day, hour, minute, second, micros: 0 }.time().expect("a real date")
    }

    fn now() -> Time {
        at(1994, 11, 6, 8, 49, 7)
    }

    // proves R5
    #[test]
    fn seconds_and_all_three_date_forms_are_read() {
        for (header, seconds) in [
            ("30", 30),
            ("  30\t", 30),
            ("007", 7),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 30),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 30),
            ("Sun Nov  6 08:49:37 1994", 30),
            ("Sun Nov 06 08:49:37 1994", 30),
            (" Sun, 06 Nov 1994 08:49:37 GMT ", 30),
            ("Sun, 06 Nov 1994 08:49:60 GMT", 53),
            ("Mon, 06 Nov 1994 08:49:37 GMT", 30),
        ] {
            let wait = retry_after(header, now(), Bounds::default());
            assert_eq!(wait, Some(Span::from_seconds(seconds)), "{header:?}");
        }
    }

    // proves R5
    #[test]
    fn every_wait_is_bounded() {
        let narrow = Bounds { at_least: Span::from_seconds(5), at_most: Span::from_seconds(60) };
        for (header, seconds) in [
            ("0", 5),
            ("4", 5),
            ("60", 60),
            ("61", 60),
            ("99999999999999999999999999999999", 60),
            ("Sun, 06 Nov 1994 08:49:07 GMT", 5),
            ("Sat, 01 Jan 1972 00:00:00 GMT", 5),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 60),
        ] {
            assert_eq!(retry_after(header, now(), narrow), Some(Span::from_seconds(seconds)), "{header:?}");
        }
        let inverted = Bounds { at_least: narrow.at_most, at_most: narrow.at_least };
        assert_eq!(retry_after("30", now(), inverted), Some(inverted.at_most));
    }

    // proves R5
    #[test]
    fn anything_else_is_no_answer() {
        for header in [
            "",
            " ",
            "-1",
            "+1",
            "1.5",
            "1e3",
            "0x10",
            "30s",
            "30, 30",
            "٣٠",
            "soon",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 6Nov 1994 08:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov -994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994 GMT extra",
            "1994-11-06T08:49:37Z",
        ] {
            assert_eq!(retry_after(header, now(), Bounds::default()), None, "{header:?}");
        }
    }

    #[test]
    fn two_digit_years_reach_fifty_years_ahead() {
        for (now, header, expected) in [
            (at(1999, 12, 31, 23, 59, 0), "Saturday, 01-Jan-00 00:00:00 GMT", at(2000, 1, 1, 0, 0, 0)),
            (at(2026, 2, 14, 8, 0, 0), "Friday, 14-Feb-76 08:00:00 GMT", at(2076, 2, 14, 8, 0, 0)),
            (at(2026, 2, 14, 8, 0, 0), "Friday, 14-Feb-76 08:00:01 GMT", at(1976, 2, 14, 8, 0, 1)),
            (at(2026, 1, 31, 8, 0, 0), "Friday, 31-Jan-76 08:00:00 GMT", at(2076, 1, 31, 8, 0, 0)),
            (at(2024, 2, 29, 8, 0, 0), "Wednesday, 28-Feb-74 08:00:00 GMT", at(2074, 2, 28, 8, 0, 0)),
            (at(2080, 3, 1, 0, 0, 0), "Tuesday, 29-Feb-00 00:00:00 GMT", at(2000, 2, 29, 0, 0, 0)),
        ] {
            assert_eq!(http_date(header, now), Some(expected), "{header}");
        }
    }

    proptest! {
        #[test]
        fn no_header_and_no_clock_break_the_bounds(
            header in "\\PC{0,40}|[0-9:, GMTa-zA-Z-]{0,40}|Sunday, [0-3][0-9]-Feb-[0-9]{2} 08:49:37 GMT",
            now: i64,
        ) {
            let bounds = Bounds::default();
            if let Some(wait) = retry_after(&header, Time::from_micros(now), bounds) {
                prop_assert!(bounds.at_least <= wait && wait <= bounds.at_most);
            }
        }
    }
}
