//! When steps may begin: a span of the wall clock on some days of the week. Pure: the instant is an argument.

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use waypost_kernel::Time;

#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// From Monday on: the days on which it opens.
    pub weekdays: [bool; 7],
    pub from_minute: u16,
    /// Of the next day if it is not later than `from_minute`.
    pub to_minute: u16,
    pub timezone: TimeZone,
    pub outside: Outside,
}

/// What becomes of a step that is due while the window is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    Wait,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Open { until: Time },
    Closed { opens: Time },
}

/// `22:00` in minutes of the day.
pub fn clock(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let two = |digits: &str, limit: u16| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| digits.parse::<u16>().ok())?.filter(|number| *number < limit)
    };
    Some(two(hours, 24)? * 60 + two(minutes, 60)?)
}

/// From the database that is compiled in, so that a file is right or wrong on every machine alike.
pub fn zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok()
}

impl Window {
    pub fn is_always_open(&self) -> bool {
        self.from_minute == self.to_minute && self.weekdays.iter().all(|opens| *opens)
    }

    /// Nothing only for instants at the very ends of the calendar.
    pub fn at(&self, now: Time) -> Option<Opening> {
        let instant = Timestamp::from_microsecond(now.micros()).ok()?;
        let today = instant.to_zoned(self.timezone.clone()).date();
        // Yesterday's may still be open; a week and a day ahead there is always another.
        for days in -1..=8 {
            let date = today.checked_add(days.days()).ok()?;
            if !self.weekdays[day_number(date.weekday())] {
                continue;
            }
            let (opens, closes) = self.of(date)?;
            // On the day that clocks go forward it may be gone before it came.
            if now >= closes || opens >= closes {
                continue;
            }
            return Some(if opens <= now {
                Opening::Open { until: closes }
            } else {
                Opening::Closed { opens }
            });
        }
        None
    }

    fn of(&self, date: Date) -> Option<(Time, Time)> {
        let ends_on = if self.to_minute > self.from_minute { date } else { date.tomorrow().ok()? };
        let instant = |date: Date, minute: u16| {
            let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
            let zoned = date.at(hour, minute, 0, 0).to_zoned(self.timezone.clone()).ok()?;
            Some(Time::from_micros(zoned.timestamp().as_microsecond()))
        };
        Some((instant(date, self.from_minute)?, instant(ends_on, self.to_minute)?))
    }
}

fn day_number(weekday: Weekday) -> usize {
    usize::try_from(weekday.to_monday_zero_offset()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::from_micros(text.parse::<Timestamp>().expect(text).as_microsecond())
    }

    fn window(days: &str, from: &str, to: &str, timezone: &str) -> Window {
        Window {
            weekdays: std::array::from_fn(|day| days.contains(&day.to_string())),
            from_minute: clock(from).expect(from),
            to_minute: clock(to).expect(to),
            timezone: zone(timezone).expect(timezone),
            outside: Outside::Wait,
        }
    }

    // proves J4
    #[test]
    fn windows_open_and_close_by_the_wall_clock() {
        let nightly = window("5", "22:00", "04:00", "UTC"); // Saturdays
        let office = window("01234", "09:00", "17:00", "Europe/Kyiv");
        let whole = window("6", "00:00", "00:00", "UTC");
        // 2026-02-14 is a Saturday.
        for (window, now, expected) in [
            (&nightly, "2026-02-14T21:59:59Z", Opening::Closed { opens: at("2026-02-14T22:00:00Z") }),
            (&nightly, "2026-02-14T22:00:00Z", Opening::Open { until: at("2026-02-15T04:00:00Z") }),
            (&nightly, "2026-02-15T03:59:59Z", Opening::Open { until: at("2026-02-15T04:00:00Z") }),
            (&nightly, "2026-02-15T04:00:00Z", Opening::Closed { opens: at("2026-02-21T22:00:00Z") }),
            (&office, "2026-02-13T15:30:00Z", Opening::Closed { opens: at("2026-02-16T07:00:00Z") }),
            (&office, "2026-07-13T06:00:00Z", Opening::Open { until: at("2026-07-13T14:00:00Z") }),
            (&whole, "2026-02-15T12:00:00Z", Opening::Open { until: at("2026-02-16T00:00:00Z") }),
            (&whole, "2026-02-16T00:00:00Z", Opening::Closed { opens: at("2026-02-22T00:00:00Z") }),
        ] {
            assert_eq!(window.at(at(now)), Some(expected), "{now}");
        }
    }

    /// New York leaves out 02:00 to 03:00 on 2026-03-08 and has 01:00 to 02:00 twice on 2026-11-01.
    #[test]
    fn clock_changes_neither_lose_nor_double_a_window() {
        let inside = window("6", "02:15", "02:45", "America/New_York");
        let opens = at("2026-03-08T07:15:00Z");
        assert_eq!(inside.at(at("2026-03-08T05:00:00Z")), Some(Opening::Closed { opens }));
        let twice = window("6", "01:30", "03:00", "America/New_York");
        let until = at("2026-11-01T08:00:00Z");
        assert_eq!(twice.at(at("2026-11-01T06:30:00Z")), Some(Opening::Open { until }));
    }

    #[test]
    fn clocks_and_zones_are_read_strictly() {
        for (text, minutes) in [("00:00", Some(0)), ("23:59", Some(1_439)), ("24:00", None), ("9:00", None)] {
            assert_eq!(clock(text), minutes, "{text}");
        }
        for text in ["", ":", "12", "12:60", "+1:00", "１２:00", "12:00:00"] {
            assert_eq!(clock(text), None, "{text}");
        }
        assert!(zone("Europe/Kyiv").is_some() && zone("UTC").is_some());
        assert!(zone("Europe/Nowhere").is_none() && zone("").is_none());
    }
}
