//! When steps may begin: a span of the wall clock on some days of the week. Pure: the instant is an argument.

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use serde_json::{Value as Json, json};
use waypost_kernel::Time;
use waypost_kernel::schedule::Zone;

use super::format::WEEKDAYS;

/// A week, the day before and the day after are not enough: the window of the week in which clocks go forward may be
/// left out as a whole, and a place may set its clocks twice in a few weeks.
const DAYS_AHEAD: i32 = 35;

#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// From Monday on: the days on which it opens.
    pub weekdays: [bool; 7],
    pub from_minute: u16,
    /// Of the next day if it is not later than `from_minute`.
    pub to_minute: u16,
    pub timezone: Zone,
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
    Open {
        until: Time,
    },
    /// `opens` is absent only at the very end of the calendar. Closed is closed even then.
    Closed {
        opens: Option<Time>,
    },
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
pub fn zone(name: &str) -> Option<Zone> {
    Zone::named(name)
}

impl Window {
    /// As the file has it.
    pub fn to_json(&self) -> Json {
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        let opens = WEEKDAYS.iter().zip(self.weekdays).filter(|(_, opens)| *opens);
        json!({
            "weekdays": opens.map(|(day, _)| *day).collect::<Vec<_>>(),
            "from": clock(self.from_minute),
            "to": clock(self.to_minute),
            "timezone": self.timezone.name(),
            "outside": match self.outside {
                Outside::Wait => "wait",
                Outside::Fail => "fail",
            },
        })
    }

    pub fn is_always_open(&self) -> bool {
        self.from_minute == self.to_minute && self.weekdays.iter().all(|opens| *opens)
    }

    pub fn at(&self, now: Time) -> Opening {
        match self.next(now) {
            Some((opens, closes)) if opens <= now => Opening::Open { until: closes },
            Some((opens, _)) => Opening::Closed { opens: Some(opens) },
            None => Opening::Closed { opens: None },
        }
    }

    /// The first span that has not ended: from when, until when.
    fn next(&self, now: Time) -> Option<(Time, Time)> {
        let today = self.timezone.wall(now)?.date();
        // Yesterday's may still be open, and the clock may have gone back over midnight since.
        (-2..=DAYS_AHEAD).find_map(|days| {
            let date = today.checked_add(days.days()).ok()?;
            let has_window = self.weekdays[day_number(date.weekday())];
            has_window.then(|| self.of(date))?.filter(|(_, closes)| now < *closes)
        })
    }

    /// The span that begins on this date: from the first time that the clock shows `from` or more until the first
    /// time that it shows `to` or more. Absent if the clock jumps over all of it.
    fn of(&self, date: Date) -> Option<(Time, Time)> {
        let ends_on = if self.to_minute > self.from_minute { date } else { date.tomorrow().ok()? };
        let instant = |date: Date, minute: u16| {
            let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
            self.timezone.once(date.at(hour, minute, 0, 0))
        };
        let span = (instant(date, self.from_minute)?, instant(ends_on, self.to_minute)?);
        (span.0 < span.1).then_some(span)
    }
}

fn day_number(weekday: Weekday) -> usize {
    usize::try_from(weekday.to_monday_zero_offset()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::from_micros(text.parse::<jiff::Timestamp>().expect(text).as_microsecond())
    }

    fn closed(opens: &str) -> Opening {
        Opening::Closed { opens: Some(at(opens)) }
    }

    fn open(until: &str) -> Opening {
        Opening::Open { until: at(until) }
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
            (&nightly, "2026-02-14T21:59:59Z", closed("2026-02-14T22:00:00Z")),
            (&nightly, "2026-02-14T22:00:00Z", open("2026-02-15T04:00:00Z")),
            (&nightly, "2026-02-15T03:59:59Z", open("2026-02-15T04:00:00Z")),
            (&nightly, "2026-02-15T04:00:00Z", closed("2026-02-21T22:00:00Z")),
            (&office, "2026-02-13T15:30:00Z", closed("2026-02-16T07:00:00Z")),
            (&office, "2026-07-13T06:00:00Z", open("2026-07-13T14:00:00Z")),
            (&whole, "2026-02-15T12:00:00Z", open("2026-02-16T00:00:00Z")),
            (&whole, "2026-02-16T00:00:00Z", closed("2026-02-22T00:00:00Z")),
        ] {
            assert_eq!(window.at(at(now)), expected, "{now}");
        }
    }

    /// New York leaves out 02:00 to 03:00 on 2026-03-08 and has 01:00 to 02:00 twice on 2026-11-01, both Sundays.
    #[test]
    fn a_window_is_what_the_clock_shows_of_it_when_clocks_change() {
        for (from, to, now, expected) in [
            // What is left out as a whole does not open that week, and is no open window the week before.
            ("02:15", "02:45", "2026-03-02T12:00:00Z", closed("2026-03-15T06:15:00Z")),
            ("02:00", "03:00", "2026-03-02T12:00:00Z", closed("2026-03-15T06:00:00Z")),
            ("02:00", "03:00", "2026-03-08T07:00:00Z", closed("2026-03-15T06:00:00Z")),
            // Of others the rest is left.
            ("01:30", "02:30", "2026-03-08T06:30:00Z", open("2026-03-08T07:00:00Z")),
            ("02:30", "03:30", "2026-03-08T06:59:00Z", closed("2026-03-08T07:00:00Z")),
            ("02:30", "03:30", "2026-03-08T07:00:00Z", open("2026-03-08T07:30:00Z")),
            // It begins and ends with the first showing of the hour that comes twice, and has no hole in it.
            ("01:30", "03:00", "2026-11-01T05:30:00Z", open("2026-11-01T08:00:00Z")),
            ("01:30", "03:00", "2026-11-01T06:15:00Z", open("2026-11-01T08:00:00Z")),
            ("00:30", "01:30", "2026-11-01T05:00:00Z", open("2026-11-01T05:30:00Z")),
            ("00:30", "01:30", "2026-11-01T06:15:00Z", closed("2026-11-08T05:30:00Z")),
        ] {
            let window = window("6", from, to, "America/New_York");
            assert_eq!(window.at(at(now)), expected, "{from} to {to} at {now}");
        }
    }

    #[test]
    fn what_cannot_be_found_is_closed() {
        let window = window("6", "02:00", "03:00", "UTC");
        for micros in [i64::MIN, i64::MAX] {
            assert_eq!(window.at(Time::from_micros(micros)), Opening::Closed { opens: None });
        }
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
