//! A cron expression in a time zone. What happens when clocks change is in docs/schedules.md: a named hour
//! happens once a day, a starred hour follows the clock.

use jiff::ToSpan;
use jiff::civil::DateTime;

use super::cron::Cron;
use super::zone::{Zone, at_offset};
use crate::time::{Span, Time};

/// Beyond what any expression can skip: a leap day that is a Tuesday comes every 28 years, every 40 over 1900 and 2100.
const LONGEST_LOOK_BACK: Span = Span::from_seconds(42 * 366 * 86_400);

impl Cron {
    /// The first plan time that is later than `after`. Nothing only at the end of the calendar.
    pub fn next(&self, zone: &Zone, after: Time) -> Option<Time> {
        let wall = minute_after(zone.wall(after)?)?;
        if self.any_hour {
            self.next_by_the_clock(zone, after, wall)
        } else {
            self.next_once_a_day(zone, after, wall)
        }
    }

    /// Every minute of the wall clock that is named happens once: at its first showing, or at the end of the gap
    /// that swallowed it. Several that fell into one gap are one.
    fn next_once_a_day(&self, zone: &Zone, after: Time, mut wall: DateTime) -> Option<Time> {
        loop {
            let named = self.first_from(wall)?;
            let time = zone.once(named)?;
            if time > after {
                return Some(time);
            }
            // The clock shows it a second time.
            wall = minute_after(named)?;
        }
    }

    /// Every instant at which the clock shows a minute that is named, between one change of the clock and the next.
    fn next_by_the_clock(&self, zone: &Zone, after: Time, mut wall: DateTime) -> Option<Time> {
        let mut since = after;
        loop {
            let time = at_offset(self.first_from(wall)?, zone.offset(since)?)?;
            match zone.next_change(since) {
                Some(change) if change <= time => {
                    since = change;
                    wall = whole_minute_from(zone.wall(change)?)?;
                }
                _ => return Some(time),
            }
        }
    }

    /// The last plan time that is not later than `until`. Looks back twice as far each time, so that what lies
    /// between is never much more than what was found.
    pub fn latest(&self, zone: &Zone, until: Time) -> Option<Time> {
        let mut back = Span::from_seconds(60);
        loop {
            let found = self.next(zone, until - back).filter(|time| *time <= until);
            if let Some(mut latest) = found {
                while let Some(later) = self.next(zone, latest).filter(|time| *time <= until) {
                    latest = later;
                }
                return Some(latest);
            }
            if back > LONGEST_LOOK_BACK {
                return None;
            }
            back = Span::from_micros(back.micros() * 2);
        }
    }
}

fn minute_after(wall: DateTime) -> Option<DateTime> {
    let whole = wall.date().at(wall.hour(), wall.minute(), 0, 0);
    whole.checked_add(1.minute()).ok()
}

fn whole_minute_from(wall: DateTime) -> Option<DateTime> {
    let whole = wall.date().at(wall.hour(), wall.minute(), 0, 0);
    if whole == wall { Some(wall) } else { minute_after(wall) }
}
