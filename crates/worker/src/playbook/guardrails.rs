//! Which changes are not made, whatever the targets say. 0 is a value: a floor of 0 is a floor, and a price of 0 a price.

use std::fmt;

use serde_json::Value;
use waypost_kernel::schedule::Zone;
use waypost_kernel::{Decimal, Time};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guardrails {
    pub floor: Option<Decimal>,
    pub ceiling: Option<Decimal>,
    pub max_rise: Option<Change>,
    pub max_fall: Option<Change>,
    /// Of one target.
    pub per_day: Option<u32>,
    /// Whose midnight begins a day; none is UTC.
    pub timezone: Option<Zone>,
    pub on_violation: OnViolation,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnViolation {
    /// The target fails, and the others go on.
    #[default]
    Fail,
    /// Nothing is changed at all.
    Stop,
}

/// How far a value may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Percent(Decimal),
    Amount(Decimal),
}

impl Change {
    /// `20%` or `5.00`.
    pub fn parse(text: &str) -> Option<Change> {
        let (number, change) = match text.strip_suffix('%') {
            Some(number) => (number, Change::Percent as fn(Decimal) -> Change),
            None => (text, Change::Amount as fn(Decimal) -> Change),
        };
        // As it is written: `1e3%` is none.
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        Decimal::parse(number).filter(|_| is_plain).map(change)
    }

    /// Whether a value that moved by so much from `before` has gone too far. Of 0 no percentage says how far: any rise is too far.
    fn is_passed(self, by: Decimal, before: Decimal) -> bool {
        match self {
            Change::Amount(most) => by > most,
            Change::Percent(most) => {
                let percent = by.times(Decimal::HUNDRED).and_then(|by| by.over(before.abs()));
                by > Decimal::ZERO && percent.is_none_or(|percent| percent > most)
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Percent(percent) => write!(f, "{percent}%"),
            Change::Amount(amount) => amount.fmt(f),
        }
    }
}

/// Which guardrail a change is past, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `floor`, `ceiling`, `max_rise`, `max_fall`, `per_day`.
    pub guardrail: &'static str,
    pub message: String,
}

impl Violation {
    /// The class of a target that failed for it.
    pub const CODE: &'static str = "GUARDRAIL";

    fn new(guardrail: &'static str, message: &str) -> Violation {
        Violation { guardrail, message: format!("{guardrail}: {message}") }
    }
}

impl Guardrails {
    /// The first guardrail that the values are past, if any; how often it changed today is another matter.
    pub fn judge(&self, before: &Value, after: &Value) -> Option<Violation> {
        let bounds = [("floor", self.floor), ("ceiling", self.ceiling)];
        let moves = [("max_rise", self.max_rise), ("max_fall", self.max_fall)];
        let first = bounds.iter().find(|(_, bound)| bound.is_some()).map(|(name, _)| *name);
        let first = first.or(moves.iter().find(|(_, most)| most.is_some()).map(|(name, _)| *name))?;
        let Some(value) = Decimal::of_json(after) else {
            return Some(Violation::new(first, &format!("{after} is no number, so it cannot be judged")));
        };
        if let Some(floor) = self.floor.filter(|floor| value < *floor) {
            return Some(Violation::new("floor", &format!("{value} is below {floor}")));
        }
        if let Some(ceiling) = self.ceiling.filter(|ceiling| value > *ceiling) {
            return Some(Violation::new("ceiling", &format!("{value} is above {ceiling}")));
        }
        for (name, most) in moves {
            let Some(most) = most else { continue };
            let Some(before) = Decimal::of_json(before) else {
                return Some(Violation::new(name, "the value of before is not known"));
            };
            let difference = value.minus(before)?;
            let by = if name == "max_rise" { difference } else { difference.negated() };
            if most.is_passed(by, before) {
                let verb = if name == "max_rise" { "rises" } else { "falls" };
                let message = format!("it {verb} from {before} to {value}, by more than {most}");
                return Some(Violation::new(name, &message));
            }
        }
        None
    }

    /// `made`: how often it was changed since midnight.
    pub fn judge_day(&self, made: u32) -> Option<Violation> {
        let most = self.per_day.filter(|most| made >= *most)?;
        let zone = self.timezone.as_ref().map_or("UTC", Zone::name);
        let message = format!("it was changed {made} times today ({zone}), and {most} are allowed");
        Some(Violation::new("per_day", &message))
    }

    /// When the day began.
    pub fn midnight(&self, now: Time) -> Time {
        let utc = Zone::utc();
        let zone = self.timezone.as_ref().unwrap_or(&utc);
        let date = zone.wall(now).map(|wall| wall.date().to_string());
        date.and_then(|date| zone.day(&date)).map_or(now, |(begins, _)| begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(floor: Option<&str>, rise: Option<&str>, fall: Option<&str>) -> Guardrails {
        Guardrails {
            floor: floor.map(|text| Decimal::parse(text).expect(text)),
            max_rise: rise.map(|text| Change::parse(text).expect(text)),
            max_fall: fall.map(|text| Change::parse(text).expect(text)),
            ..Guardrails::default()
        }
    }

    // proves R12
    #[test]
    fn changes_past_a_guardrail_are_named() {
        let cases = [
            (of(Some("1"), None, None), json!(5), json!(1), None),
            (of(Some("1"), None, None), json!(5), json!(0.99), Some("floor")),
            (of(Some("0"), None, None), json!(5), json!(0), None),
            (of(Some("0"), None, None), json!(5), json!(-0.01), Some("floor")),
            (of(Some("0"), None, None), json!(5), json!("-1"), Some("floor")),
            (of(None, Some("20%"), None), json!(10), json!(12), None),
            (of(None, Some("20%"), None), json!(10), json!(12.01), Some("max_rise")),
            (of(None, Some("20%"), None), json!(10), json!(1), None),
            (of(None, Some("20%"), None), json!(0), json!(0), None),
            (of(None, Some("20%"), None), json!(0), json!(0.01), Some("max_rise")),
            (of(None, Some("0%"), None), json!(10), json!(10.01), Some("max_rise")),
            (of(None, Some("2.50"), None), json!(0), json!(2.5), None),
            (of(None, Some("2.50"), None), json!(0), json!(2.51), Some("max_rise")),
            (of(None, None, Some("30%")), json!(10), json!(7), None),
            (of(None, None, Some("30%")), json!(10), json!(6.99), Some("max_fall")),
            (of(None, None, Some("30%")), json!(10), json!(0), Some("max_fall")),
            (of(None, None, Some("100%")), json!(10), json!(0), None),
            (of(None, None, Some("1")), json!(0), json!(-1), None),
            (of(None, Some("20%"), None), json!(null), json!(5), Some("max_rise")),
            (of(Some("1"), None, None), json!(null), json!(5), None),
            (of(Some("1"), None, None), json!(1), json!("cheap"), Some("floor")),
            (Guardrails::default(), json!(1), json!("cheap"), None),
        ];
        for (guardrails, before, after, expected) in cases {
            let found = guardrails.judge(&before, &after);
            assert_eq!(found.as_ref().map(|it| it.guardrail), expected, "{before} to {after}: {found:?}");
        }
        let ceiling = Guardrails { ceiling: Some(Decimal::ZERO), ..Guardrails::default() };
        assert_eq!(
            ceiling.judge(&json!(0), &json!(1)).map(|it| it.guardrail),
            Some("ceiling"),
            "0 is a value"
        );
    }

    // proves R12
    #[test]
    fn a_day_begins_at_midnight_of_its_zone() {
        let at = |text: &str| Time::parse(text).expect(text);
        let midnight = |zone: Option<&str>, now: &str| {
            let timezone = zone.map(|name| Zone::named(name).expect(name));
            Guardrails { timezone, ..Guardrails::default() }.midnight(at(now))
        };
        assert_eq!(midnight(None, "2026-02-14T23:30:00Z"), at("2026-02-14T00:00:00Z"));
        assert_eq!(midnight(Some("Europe/Kyiv"), "2026-02-14T23:30:00Z"), at("2026-02-14T22:00:00Z"));
        assert_eq!(midnight(Some("Europe/Kyiv"), "2026-02-14T21:30:00Z"), at("2026-02-13T22:00:00Z"));
        // The day on which clocks go forward has 23 hours.
        assert_eq!(midnight(Some("Europe/Kyiv"), "2026-03-29T20:30:00Z"), at("2026-03-28T22:00:00Z"));
    }

    #[test]
    fn so_many_changes_a_day_and_no_more() {
        let of = |per_day| Guardrails { per_day, ..Guardrails::default() };
        assert_eq!(of(None).judge_day(1_000), None);
        assert_eq!(of(Some(2)).judge_day(1), None);
        assert!(of(Some(2)).judge_day(2).is_some());
        assert!(of(Some(0)).judge_day(0).is_some(), "0 is a value");
    }

    #[test]
    fn shares_and_amounts_are_read() {
        for (text, expected) in
            [("20%", Some("20%")), ("5.00", Some("5")), ("0%", Some("0%")), ("0", Some("0"))]
        {
            assert_eq!(Change::parse(text).map(|it| it.to_string()).as_deref(), expected, "{text}");
        }
        for text in ["-5", "%", "", "5 %", "1e3%", "5€", "%5", "5%%"] {
            assert_eq!(Change::parse(text), None, "{text}");
        }
    }
}
