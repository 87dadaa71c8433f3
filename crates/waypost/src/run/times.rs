//! Times as people say them: how long ago, and by the clock on their wall.

use jiff::tz::TimeZone;
use waypost_kernel::{Span, Time};

pub fn age(span: Span) -> String {
    span.rounded()
}

/// When it is, and where: all that decides how a time is shown.
#[derive(Clone, Debug)]
pub struct Clock {
    pub now: Time,
    pub zone: TimeZone,
}

impl Clock {
    /// `now` is the database's; the zone is this machine's.
    pub fn at(now: Time) -> Clock {
        Clock { now, zone: TimeZone::system() }
    }

    /// `2026-11-16 16:36:52 CET`.
    pub fn local(&self, time: Time) -> String {
        self.shown(time, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// `16:36:52.696`, with the day before it if that is not today.
    pub fn of_day(&self, time: Time) -> String {
        let day = |time: Time| self.shown(time, "%Y-%m-%d");
        let format = if day(time) == day(self.now) { "%H:%M:%S%.3f" } else { "%Y-%m-%d %H:%M:%S%.3f" };
        self.shown(time, format)
    }

    /// `3m12s ago (2026-11-16 16:36:52 CET)`, or `in 2h05m (…)`.
    pub fn relative(&self, time: Time) -> String {
        let relative = if time > self.now {
            format!("in {}", age(time - self.now))
        } else {
            format!("{} ago", age(self.now - time))
        };
        format!("{relative} ({})", self.local(time))
    }

    fn shown(&self, time: Time, format: &str) -> String {
        match jiff::Timestamp::from_microsecond(time.micros()) {
            Ok(instant) => instant.to_zoned(self.zone.clone()).strftime(format).to_string(),
            Err(_) => time.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_and_local() {
        let at = |text: &str| Time::parse(text).unwrap_or_default();
        let zone = TimeZone::get("Europe/Kyiv").unwrap_or(TimeZone::UTC);
        let clock = Clock { now: at("2026-02-14T08:00:00Z"), zone };
        assert_eq!(clock.relative(at("2026-02-14T07:56:48Z")), "3m12s ago (2026-02-14 09:56:48 EET)");
        assert_eq!(clock.relative(at("2026-02-14T10:05:00Z")), "in 2h05m (2026-02-14 12:05:00 EET)");
        assert_eq!(clock.of_day(at("2026-02-14T07:56:48.120Z")), "09:56:48.120");
        assert_eq!(clock.of_day(at("2026-02-13T07:56:48Z")), "2026-02-13 09:56:48.000");
    }
}
