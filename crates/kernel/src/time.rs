//! Instants and spans as the database's clock gives them: whole microseconds, which PostgreSQL stores
//! exactly, so that a lease's end read back compares equal to the one written.

use std::fmt;
use std::ops::{Add, Sub};

use jiff::civil::DateTime;

/// An instant: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// A length of time in microseconds. Never negative when it comes from a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

impl Time {
    pub const fn from_micros(micros: i64) -> Time {
        Time(micros)
    }

    pub const fn from_ms(ms: i64) -> Time {
        Time(ms.saturating_mul(1_000))
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    pub const fn ms(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// 0001-01-01T00:00:00Z.
    const FIRST: Time = Time(-62_135_596_800_000_000);
    /// The last microsecond of the year 9999.
    const LAST: Time = Time(253_402_300_799_999_999);

    /// Reads RFC 3339 of the years 1 to 9999, and what `datetime('now')` makes: a space for the T, no zone meaning UTC.
    pub fn parse(text: &str) -> Option<Time> {
        let bytes = text.trim().as_bytes();
        let number = |from: usize, digits: usize| -> Option<u32> {
            let part = bytes.get(from..from + digits)?;
            part.iter()
                .try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
        };
        let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
        let separated = bytes.len() >= 19
            && marks.iter().all(|(at, mark)| bytes[*at] == *mark)
            && matches!(bytes[10], b'T' | b't' | b' ');
        if !separated {
            return None;
        }
        let (micros, zone) = split_fraction(&bytes[19..])?;
        let civil = Civil {
            year: i64::from(number(0, 4)?),
            month: number(5, 2)?,
            day: number(8, 2)?,
            hour: number(11, 2)?,
            minute: number(14, 2)?,
            second: number(17, 2)?,
            micros,
        };
        let time = civil.time()? - Span::from_seconds(zone_seconds(zone)?);
        // Those that every reader has, in whatever zone they were written.
        (Time::FIRST..=Time::LAST).contains(&time).then_some(time)
    }
}

impl Span {
    /// `5 minutes`: in the largest unit in which it is a whole number.
    pub fn in_words(self) -> String {
        const UNITS: [(i64, &str); 4] =
            [(86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second")];
        let ms = self.ms();
        let unit = UNITS.into_iter().find(|(length, _)| ms != 0 && ms % length == 0);
        let (count, name) = unit.map_or((ms, "millisecond"), |(length, name)| (ms / length, name));
        format!("{count} {name}{}", if count == 1 { "" } else { "s" })
    }

    pub const ZERO: Span = Span(0);

    pub const fn from_micros(micros: i64) -> Span {
        Span(micros)
    }

    pub const fn from_ms(ms: i64) -> Span {
        Span(ms.saturating_mul(1_000))
    }

    pub const fn from_seconds(seconds: i64) -> Span {
        Span(seconds.saturating_mul(1_000_000))
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    pub const fn ms(self) -> i64 {
        self.0 / 1_000
    }

    /// The two largest units, for people: `4m07s`.
    pub fn rounded(self) -> String {
        let ms = self.ms().max(0);
        let seconds = ms / 1_000;
        match seconds {
            0..10 => format!("{seconds}.{}s", ms % 1_000 / 100),
            10..60 => format!("{seconds}s"),
            60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
            3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
            _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
        }
    }

    /// Reads `500ms`, `60s`, `5m`, `24h`, `7d`: one whole number and one unit, nothing else.
    pub fn parse(text: &str) -> Option<Span> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit_micros: i64 = match unit {
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => return None,
        };
        number.parse::<i64>().ok()?.checked_mul(unit_micros).map(Span)
    }
}

impl Add<Span> for Time {
    type Output = Time;

    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Time;

    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Sub<Time> for Time {
    type Output = Span;

    fn sub(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// The largest unit that divides the span: `5m`, not `300s`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(i64, &str); 4] =
            [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s")];
        for (micros, unit) in UNITS {
            if self.0 >= micros && self.0 % micros == 0 {
                return write!(f, "{}{unit}", self.0 / micros);
            }
        }
        write!(f, "{}ms", self.ms())
    }
}

/// A calendar date and time of day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    pub micros: u32,
}

impl Civil {
    /// Days are counted in eras of 400 years that start on 1 March, so that the leap day comes last. By hand, since every
    /// row that is shown has half a dozen of these: 25 ns, and 40 ns by jiff, which reads dates below.
    pub fn of(time: Time) -> Civil {
        let days = time.seconds().div_euclid(86_400);
        let second_of_day = time.seconds().rem_euclid(86_400) as u32;
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Civil {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u32,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32,
            hour: second_of_day / 3_600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            micros: time.micros().rem_euclid(1_000_000) as u32,
        }
    }

    /// The instant, or none when a field is out of range (30 February, 25:00, the year 10000).
    pub fn time(self) -> Option<Time> {
        const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
        let small = |number: u32| i8::try_from(number).ok();
        let nanos = i32::try_from(i64::from(self.micros) * 1_000).ok()?;
        let civil = DateTime::new(
            i16::try_from(self.year).ok()?,
            small(self.month)?,
            small(self.day)?,
            small(self.hour)?,
            small(self.minute)?,
            small(self.second)?,
            nanos,
        );
        i64::try_from(civil.ok()?.duration_since(EPOCH).as_micros()).ok().map(Time)
    }
}

/// Six decimals count; more are read and dropped.
fn split_fraction(rest: &[u8]) -> Option<(u32, &[u8])> {
    let Some(digits) = rest.strip_prefix(b".") else { return Some((0, rest)) };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut micros = 0;
    for place in 0..6 {
        let digit = digits.get(place).filter(|_| place < count).map_or(0, |byte| u32::from(byte - b'0'));
        micros = micros * 10 + digit;
    }
    (count > 0).then_some((micros, &digits[count..]))
}

fn zone_seconds(zone: &[u8]) -> Option<i64> {
    let sign = match zone {
        [] | b"Z" | b"z" => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    let digits: Vec<i64> = zone[1..]
        .iter()
        .filter(|byte| **byte != b':')
        .map(|byte| i64::from(*byte) - i64::from(b'0'))
        .collect();
    let fits = matches!(digits.len(), 2 | 4) && digits.iter().all(|digit| (0..=9).contains(digit));
    let two = |at: usize| digits.get(at).unwrap_or(&0) * 10 + digits.get(at + 1).unwrap_or(&0);
    // No more than a day of them, as RFC 3339 has it.
    (fits && two(0) < 24 && two(2) < 60).then(|| sign * (two(0) * 3_600 + two(2) * 60))
}

/// RFC 3339 in UTC with as many decimals as the instant needs: `2026-02-14T08:00:00Z`.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second, micros } = Civil::of(*self);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match micros {
            0 => f.write_str("Z"),
            _ if micros % 1_000 == 0 => write!(f, ".{:03}Z", micros / 1_000),
            _ => write!(f, ".{micros:06}Z"),
        }
    }
}

impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_by_their_two_largest_units() {
        for (ms, told) in [
            (-1, "0.0s"),
            (1_250, "1.2s"),
            (32_000, "32s"),
            (247_000, "4m07s"),
            (3_600_000, "1h00m"),
            (90_000_000, "1d01h"),
        ] {
            assert_eq!(Span::from_ms(ms).rounded(), told);
        }
    }

    #[test]
    fn spans_read_and_print_the_same() {
        for text in ["500ms", "60s", "5m", "24h", "7d", "0ms", "90m"] {
            let span = Span::parse(text).expect(text);
            assert_eq!(Span::parse(&span.to_string()), Some(span), "{text}");
        }
        assert_eq!(Span::parse("60s").map(|span| span.to_string()), Some("1m".into()));
        for text in ["", "5", "m", "-5m", "5 m", "1.5h", "5m3s", "99999999999999d", "5w"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }

    #[test]
    fn civil_dates_round_trip_across_leap_years_and_the_epoch() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_771_056_000_000_000, "2026-02-14T08:00:00Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (-1_000, "1969-12-31T23:59:59.999Z"),
            (1_771_056_000_000_001, "2026-02-14T08:00:00.000001Z"),
        ] {
            assert_eq!(Time(micros).to_string(), text);
        }
        for day in (-800_000..800_000).step_by(97) {
            let time = Time(day * 86_400_000_000 + 12_345_678);
            assert_eq!(Civil::of(time).time(), Some(time));
        }
        for (text, is_read) in [
            ("9999-12-31T23:59:59.999999Z", true),
            ("9999-12-31T23:59:59-14:00", false),
            ("0001-01-01T00:00:00Z", true),
            ("0001-01-01T00:00:00+00:01", false),
            ("0000-06-01T00:00:00Z", false),
        ] {
            assert_eq!(Time::parse(text).is_some(), is_read, "{text}");
        }
        let leap = Civil { year: 2025, month: 2, day: 29, hour: 0, minute: 0, second: 0, micros: 0 };
        assert_eq!(leap.time(), None);
    }
}
