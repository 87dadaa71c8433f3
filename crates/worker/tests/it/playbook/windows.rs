//! Maintenance windows around every clock change of every time zone, against a slow reader of the clock that looks
//! at it every five minutes: all windows here and all changes of these years are at such times.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use waypost_kernel::Time;
use waypost_kernel::schedule::Zone;
use waypost_worker::playbook::{Opening, Outside, Window};

/// In minutes.
const DAY: i64 = 24 * 60;
const STEP: i64 = 5;
/// What is looked at before and after a change: the week before, and two windows after it.
const LOOKS_BEFORE: usize = (9 * DAY / STEP) as usize;
const LOOKS_AFTER: usize = (17 * DAY / STEP) as usize;

/// One change of some zone's clocks; many zones share theirs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    at: Timestamp,
    before_s: i32,
    after_s: i32,
}

fn changes(zone: &TimeZone, years: std::ops::Range<i16>) -> Vec<Change> {
    let day = |year: i16| jiff::civil::date(year, 1, 1).to_zoned(TimeZone::UTC).unwrap().timestamp();
    let (first, last) = (day(years.start), day(years.end));
    let mut before_s = zone.to_offset(first).seconds();
    let mut found = Vec::new();
    for change in zone.following(first).take_while(|change| change.timestamp() < last) {
        let after_s = change.offset().seconds();
        if after_s != before_s {
            found.push(Change { at: change.timestamp(), before_s, after_s });
        }
        before_s = after_s;
    }
    found
}

/// The minutes of the wall clock since 1970-01-01 00:00, at each look around a change: the most that it has shown by
/// then, since a window begins and ends with the first showing of its times.
struct Clock {
    begins_s: i64,
    highest: Vec<i64>,
}

impl Clock {
    fn around(zone: &TimeZone, change: &Change) -> Clock {
        let begins_s = change.at.as_second() - LOOKS_BEFORE as i64 * STEP * 60;
        let mut highest = Vec::new();
        let mut most = i64::MIN;
        for look in 0..(LOOKS_BEFORE + LOOKS_AFTER) as i64 {
            let at_s = begins_s + look * STEP * 60;
            let offset = zone.to_offset(Timestamp::from_second(at_s).unwrap());
            most = most.max((at_s + i64::from(offset.seconds())).div_euclid(60));
            highest.push(most);
        }
        Clock { begins_s, highest }
    }

    /// Whether the window is open at each look. 1970-01-01 was a Thursday.
    fn is_open(&self, weekday: usize, from: i64, to: i64) -> Vec<bool> {
        let length = if to > from { to - from } else { to - from + DAY };
        let open = |shown: &i64| {
            (-1..=0).any(|days| {
                let date = shown.div_euclid(DAY) + days;
                let begins = date * DAY + from;
                (date + 3).rem_euclid(7) == weekday as i64 && (begins..begins + length).contains(shown)
            })
        };
        self.highest.iter().map(open).collect()
    }

    fn time(&self, look: usize) -> Time {
        Time::from_micros((self.begins_s + look as i64 * STEP * 60) * 1_000_000)
    }
}

/// Once a week, on the day of the change and the one before, for spans that the change swallows, cuts and touches.
fn check(name: &str, zone: &TimeZone, change: &Change) -> usize {
    let clock = Clock::around(zone, change);
    let local = |offset_s: i32| (change.at.as_second() + i64::from(offset_s)).div_euclid(60);
    let (low, high) =
        (local(change.before_s.min(change.after_s)), local(change.before_s.max(change.after_s)));
    let of_day = |minute: i64| minute.rem_euclid(DAY);
    let mut checked = 0;
    for (from, to) in [
        (low, high),
        (low, high + 60),
        (low - 60, high),
        (low + 5, high - 5),
        (low - 30, low + 15),
        (high - 15, high + 30),
        (low - 45, low),
        (high, high + 45),
        (low - 120, high + 120),
        (low - 20 * 60, low),
        (high, high + DAY),
    ] {
        for day in [low.div_euclid(DAY) - 1, low.div_euclid(DAY), high.div_euclid(DAY)] {
            let weekday = (day + 3).rem_euclid(7) as usize;
            let window = Window {
                weekdays: std::array::from_fn(|it| it == weekday),
                from_minute: of_day(from) as u16,
                to_minute: of_day(to) as u16,
                timezone: Zone::named(name).unwrap(),
                outside: Outside::Wait,
            };
            let open = clock.is_open(weekday, of_day(from), of_day(to));
            checked += compare(name, &window, &clock, &open);
        }
    }
    checked
}

/// At the edges of what the slow reader found, once on each day of the week before, and at the change.
fn compare(name: &str, window: &Window, clock: &Clock, open: &[bool]) -> usize {
    let a_day = (DAY / STEP) as usize;
    let edges = (1..LOOKS_BEFORE + a_day).filter(|look| open[*look] != open[look - 1]);
    let mut looks: BTreeSet<usize> = edges.flat_map(|look| [look - 1, look]).collect();
    looks.extend((1..10).map(|day| day * a_day));
    looks.extend([LOOKS_BEFORE - 1, LOOKS_BEFORE + 1]);
    for look in &looks {
        let later = |wanted: bool| (*look..open.len()).find(|later| open[*later] == wanted);
        let expected = if open[*look] {
            Opening::Open { until: clock.time(later(false).unwrap()) }
        } else {
            Opening::Closed { opens: Some(clock.time(later(true).unwrap())) }
        };
        let now = clock.time(*look);
        assert_eq!(window.at(now), expected, "{name} at {now}: {window:?}");
    }
    looks.len()
}

// proves J4
#[test]
fn windows_are_kept_around_every_clock_change() {
    let mut seen = BTreeSet::new();
    let mut checked = 0;
    for name in jiff::tz::db().available() {
        let zone = TimeZone::get(name.as_str()).unwrap();
        // Among them Samoa's missing day, half hours, and clocks that are set at midnight or twice in a month.
        for years in [2010..2012, 2026..2027] {
            for change in changes(&zone, years) {
                if seen.insert(change.clone()) {
                    checked += check(name.as_str(), &zone, &change);
                }
            }
        }
    }
    println!("{checked} instants around {} changes", seen.len());
    assert!(seen.len() > 150 && checked > 50_000, "{checked} instants around {} changes", seen.len());
}
