//! An IANA time zone: wall clocks to instants and back, from the database that is compiled in.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use crate::time::Time;

#[derive(Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    pub fn utc() -> Zone {
        Zone(TimeZone::UTC)
    }

    /// Nothing: there is none of that name.
    pub fn named(name: &str) -> Option<Zone> {
        TimeZone::get(name).ok().filter(|zone| zone.iana_name().is_some()).map(Zone)
    }

    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// What a clock on the wall shows.
    pub fn wall(&self, time: Time) -> Option<DateTime> {
        Some(self.0.to_datetime(timestamp(time)?))
    }

    /// `2026-02-14 02:00 +02:00`, for people.
    pub fn shown(&self, time: Time) -> String {
        let Some(at) = timestamp(time) else { return time.to_string() };
        let wall = self.0.to_datetime(at);
        let east_s = self.0.to_offset(at).seconds();
        let (sign, east_s) = if east_s < 0 { ('-', -east_s) } else { ('+', east_s) };
        format!(
            "{} {:02}:{:02}:{:02} {sign}{:02}:{:02}",
            wall.date(),
            wall.hour(),
            wall.minute(),
            wall.second(),
            east_s / 3_600,
            east_s / 60 % 60
        )
    }

    /// When the day of a date (`2026-02-14`) begins here, and when the next one does.
    pub fn day(&self, date: &str) -> Option<(Time, Time)> {
        let is_date = date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let day: Date = date.parse().ok().filter(|_| is_date)?;
        let begins = |day: Date| self.once(day.at(0, 0, 0, 0));
        Some((begins(day)?, begins(day.tomorrow().ok()?)?))
    }

    pub(super) fn offset(&self, time: Time) -> Option<Offset> {
        Some(self.0.to_offset(timestamp(time)?))
    }

    /// The first time that a wall clock shows this; the end of the gap if it never does.
    pub fn once(&self, wall: DateTime) -> Option<Time> {
        match self.0.to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                at_offset(wall, offset)
            }
            AmbiguousOffset::Gap { after, .. } => self.next_change(at_offset(wall, after)?),
        }
    }

    /// When clocks are next set forward or back. Not for a change of name alone.
    pub fn next_change(&self, after: Time) -> Option<Time> {
        let mut offset = self.offset(after)?;
        self.0.following(timestamp(after)?).find_map(|change| {
            let old = std::mem::replace(&mut offset, change.offset());
            (old != offset).then(|| Time::from_micros(change.timestamp().as_microsecond()))
        })
    }
}

pub(super) fn at_offset(wall: DateTime, offset: Offset) -> Option<Time> {
    Some(Time::from_micros(offset.to_timestamp(wall).ok()?.as_microsecond()))
}

fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::from_microsecond(time.micros()).ok()
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_from_midnight_to_midnight_of_its_zone() {
        let kyiv = Zone::named("Europe/Kyiv").expect("it is there");
        let hours =
            |date: &str| kyiv.day(date).map(|(from, to)| (kyiv.shown(from), (to - from).ms() / 3_600_000));
        assert_eq!(hours("2026-02-14"), Some(("2026-02-14 00:00:00 +02:00".into(), 24)));
        assert_eq!(hours("2026-03-29"), Some(("2026-03-29 00:00:00 +02:00".into(), 23)));
        for bad in ["", "2026-02-30", "2026-2-14", "2026-02-14T00:00:00", "20260214  "] {
            assert_eq!(hours(bad), None, "{bad}");
        }
    }

    #[test]
    fn zones_have_the_names_of_the_database_and_no_others() {
        for name in ["UTC", "Europe/Kyiv", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            assert_eq!(Zone::named(name).map(|zone| zone.name().to_owned()), Some(name.to_owned()));
        }
        for name in ["", "Europe/Nowhere", "+02:00", "CET-1CEST", "Europe/Kyiv ", "../etc/passwd"] {
            assert_eq!(Zone::named(name), None, "{name}");
        }
    }
}
