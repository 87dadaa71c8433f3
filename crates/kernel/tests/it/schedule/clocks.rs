//! The written policy for clock changes, in examples, and laws that hold for every expression and zone.

use proptest::prelude::*;
use waypost_kernel::schedule::{Cron, Timing, Zone};
use waypost_kernel::{Span, Time};

use super::{HOUR, at, cron};

fn fires(timing: &Timing, from: &str, until: &str) -> Vec<String> {
    let found = timing.between(at(from) - Span::from_micros(1), at(until), 100);
    found.into_iter().map(|time| time.to_string().replace(":00Z", "Z")).collect()
}

// proves C2
#[test]
fn a_named_hour_happens_once_a_day_whatever_the_clock_does() {
    for (text, zone, from, until, expected) in [
        // Left out: at the end of the gap, once.
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-08T05:00Z",
            "2026-03-09T04:00Z",
            vec!["2026-03-08T07:00Z"],
        ),
        (
            "*/15 2 * * *",
            "America/New_York",
            "2026-03-08T05:00Z",
            "2026-03-09T04:00Z",
            vec!["2026-03-08T07:00Z"],
        ),
        (
            "0 2,14 * * *",
            "America/New_York",
            "2026-03-08T05:00Z",
            "2026-03-09T04:00Z",
            vec!["2026-03-08T07:00Z", "2026-03-08T18:00Z"],
        ),
        // Two that meet there are one.
        (
            "0 2,3 * * *",
            "America/New_York",
            "2026-03-08T05:00Z",
            "2026-03-09T04:00Z",
            vec!["2026-03-08T07:00Z"],
        ),
        // Shown twice: the first time.
        (
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T04:00Z",
            "2026-11-02T05:00Z",
            vec!["2026-11-01T05:30Z"],
        ),
        // A day that never was: Samoa went over the date line, and 30 December 2011 is missing.
        (
            "0 2 * * *",
            "Pacific/Apia",
            "2011-12-29T12:00Z",
            "2011-12-31T12:00Z",
            vec!["2011-12-29T12:00Z", "2011-12-30T10:00Z", "2011-12-30T12:00Z", "2011-12-31T12:00Z"],
        ),
        // Half an hour.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T14:00Z",
            "2026-10-04T13:00Z",
            vec!["2026-10-03T15:30Z"],
        ),
        // Midnight itself is left out.
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00Z", "2026-04-24T12:00Z", vec!["2026-04-23T22:00Z"]),
    ] {
        assert_eq!(fires(&cron(text, zone), from, until), expected, "{text} {zone}");
    }
}

// proves C2
#[test]
fn a_starred_hour_follows_the_clock() {
    let quarter = cron("*/30 * * * *", "America/New_York");
    let spring = ["06:00Z", "06:30Z", "07:00Z", "07:30Z"].map(|time| format!("2026-03-08T{time}"));
    assert_eq!(fires(&quarter, "2026-03-08T06:00Z", "2026-03-08T07:30Z"), spring);
    let autumn = ["05:00Z", "05:30Z", "06:00Z", "06:30Z", "07:00Z"].map(|time| format!("2026-11-01T{time}"));
    assert_eq!(fires(&quarter, "2026-11-01T05:00Z", "2026-11-01T07:00Z"), autumn);
    let two_hours = cron("0 */2 * * *", "America/New_York");
    let spring = ["05:00Z", "08:00Z", "10:00Z"].map(|time| format!("2026-03-08T{time}"));
    assert_eq!(fires(&two_hours, "2026-03-08T05:00Z", "2026-03-08T10:00Z"), spring);
}

#[test]
fn the_ends_of_the_calendar_are_no_panic() {
    for text in ["* * * * *", "0 2 * * *", "0 0 29 2 *"] {
        let timing = cron(text, "Europe/Kyiv");
        for time in [Time::from_micros(i64::MIN), Time::from_micros(i64::MAX), at("9999-12-31T23:59Z")] {
            let _ = (timing.next(time), timing.latest(time), timing.count(time - HOUR, time));
        }
    }
}

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Kyiv",
    "America/New_York",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
];

fn field(first: u32, last: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        3 => (first..=last).prop_map(|value| value.to_string()),
        1 => (2..(last - first + 1).min(12)).prop_map(|step| format!("*/{step}")),
        1 => (first..=last, first..=last)
            .prop_map(|(one, other)| format!("{}-{}", one.min(other), one.max(other))),
    ]
}

fn any_timing() -> impl Strategy<Value = Timing> {
    let fields = (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6));
    (fields, 0..ZONES.len()).prop_map(|((minute, hour, day, month, weekday), zone)| {
        cron(&format!("{minute} {hour} {day} {month} {weekday}"), ZONES[zone])
    })
}

proptest! {
    // proves C2
    #[test]
    fn latest_and_next_enclose_every_instant(timing in any_timing(), second in 946_684_800_i64..2_145_916_800) {
        let now = Time::from_micros(second * 1_000_000);
        let latest = timing.latest(now).unwrap();
        let next = timing.next(now).unwrap();
        prop_assert!(latest <= now && next > now);
        prop_assert_eq!(timing.next(latest), Some(next), "nothing lies between");
        prop_assert_eq!(timing.latest(next - Span::from_micros(1)), Some(latest));
        prop_assert_eq!(timing.latest(next), Some(next));
        prop_assert_eq!(timing.count(latest, next), 1);
    }

    #[test]
    fn any_text_is_an_expression_or_a_problem(text in "\\PC{0,40}") {
        if let Ok(cron) = Cron::parse(&text) {
            let found = cron.next(&Zone::utc(), Time::default());
            prop_assert!(found.is_some(), "{}", cron.as_str());
        }
    }

    #[test]
    fn mangled_expressions_are_no_panic(text in "[0-9*/,\\- ]{0,24}") {
        let _ = Cron::parse(&text);
    }
}
