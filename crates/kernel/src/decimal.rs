//! Decimal numbers, exact: an amount of money is no binary fraction. 0.1 + 0.2 is 0.3 here, and 1.005 rounds to 1.01.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

/// `digits` / 10^`scale`, with no 0 at the end of its decimals, so that equal numbers are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    digits: i128,
    scale: u32,
}

/// Decimals that a number may have; a quotient is rounded to so many.
const MAX_SCALE: u32 = 18;
/// Digits in all. Two of these have room in a product.
const MAX_DIGITS: i128 = 10_i128.pow(28);
/// JSON's numbers are read as binary fractions by most programs. One of so many digits comes out as it went in.
const JSON_DIGITS: i128 = 10_i128.pow(15);

impl Decimal {
    pub const ZERO: Decimal = Decimal { digits: 0, scale: 0 };
    pub const HUNDRED: Decimal = Decimal { digits: 100, scale: 0 };

    /// None: it has more digits than there is room for.
    pub const fn of_parts(digits: i128, scale: u32) -> Option<Decimal> {
        let (mut digits, mut scale) = (digits, scale);
        while scale > 0 && digits % 10 == 0 {
            digits /= 10;
            scale -= 1;
        }
        if scale > MAX_SCALE || digits >= MAX_DIGITS || digits <= -MAX_DIGITS {
            return None;
        }
        Some(Decimal { digits, scale })
    }

    /// `12.99`, `-0.5`, `1e3`; without separators of thousands, whose meaning depends on the country.
    pub fn parse(text: &str) -> Option<Decimal> {
        let text = text.trim();
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (sign, number) = match number.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, number),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || text.len() > 60 {
            return None;
        }
        let part = part.trim_end_matches('0');
        let digits: i128 = format!("{whole}{part}").parse().ok()?;
        let scale = i32::try_from(part.len()).ok()?.checked_sub(exponent)?;
        match u32::try_from(scale) {
            Ok(scale) => Decimal::of_parts(sign * digits, scale),
            Err(_) if digits == 0 => Some(Decimal::ZERO),
            Err(_) => {
                let power = 10_i128.checked_pow(scale.unsigned_abs())?;
                Decimal::of_parts(sign * digits.checked_mul(power)?, 0)
            }
        }
    }

    /// A number as it is written, or a text that is one. 0 is a value; nothing, true and an empty text are none.
    pub fn of_json(value: &Value) -> Option<Decimal> {
        match value {
            Value::Number(number) => Decimal::parse(&number.to_string()),
            Value::String(text) => Decimal::parse(text),
            _ => None,
        }
    }

    /// None: more digits than a number of JSON keeps.
    pub fn to_json(self) -> Option<Value> {
        if self.scale == 0 {
            return i64::try_from(self.digits).ok().map(Value::from);
        }
        let keeps = self.digits.abs() < JSON_DIGITS;
        let number = keeps.then(|| self.to_string().parse::<f64>().ok()).flatten();
        number.and_then(Number::from_f64).map(Value::Number)
    }

    pub fn plus(self, other: Decimal) -> Option<Decimal> {
        let scale = self.scale.max(other.scale);
        Decimal::of_parts(self.at_scale(scale)?.checked_add(other.at_scale(scale)?)?, scale)
    }

    pub fn minus(self, other: Decimal) -> Option<Decimal> {
        self.plus(other.negated())
    }

    pub fn times(self, other: Decimal) -> Option<Decimal> {
        let (digits, scale) = (self.digits.checked_mul(other.digits)?, self.scale + other.scale);
        match scale.checked_sub(MAX_SCALE) {
            None | Some(0) => Decimal::of_parts(digits, scale),
            Some(excess) => Decimal::of_parts(halved_up(digits, 10_i128.checked_pow(excess)?), MAX_SCALE),
        }
    }

    /// With as many decimals as there is room for. None also for a division by 0.
    pub fn over(self, other: Decimal) -> Option<Decimal> {
        if other.digits == 0 {
            return None;
        }
        let scaled = |scale: u32| {
            let numerator = self.digits.checked_mul(10_i128.checked_pow(scale + other.scale)?)?;
            let denominator = other.digits.checked_mul(10_i128.checked_pow(self.scale)?)?;
            Decimal::of_parts(halved_up(numerator, denominator), scale)
        };
        (0..=MAX_SCALE).rev().find_map(scaled)
    }

    pub const fn negated(self) -> Decimal {
        Decimal { digits: -self.digits, scale: self.scale }
    }

    pub const fn abs(self) -> Decimal {
        Decimal { digits: self.digits.abs(), scale: self.scale }
    }

    pub const fn is_zero(self) -> bool {
        self.digits == 0
    }

    pub const fn is_negative(self) -> bool {
        self.digits < 0
    }

    /// To so many decimals, halves away from 0, as prices are.
    pub fn round(self, places: u32) -> Decimal {
        match self.scale.checked_sub(places).filter(|excess| *excess > 0) {
            Some(excess) => self.shortened(places, |digits| halved_up(digits, 10_i128.pow(excess))),
            None => self,
        }
    }

    /// Down to the whole number.
    pub fn floor(self) -> Decimal {
        self.shortened(0, |digits| digits.div_euclid(10_i128.pow(self.scale)))
    }

    /// Up to the whole number.
    pub fn ceil(self) -> Decimal {
        self.negated().floor().negated()
    }

    /// To the nearest multiple of a step, such as 0.05, halves away from 0. None for a step of 0 or less.
    pub fn round_to(self, step: Decimal) -> Option<Decimal> {
        if step.digits <= 0 {
            return None;
        }
        self.over(step)?.round(0).times(step)
    }

    /// By how many percent of `before` this is more than it. None if that was 0: no percentage says it.
    pub fn percent_above(self, before: Decimal) -> Option<Decimal> {
        self.minus(before)?.times(Decimal::HUNDRED)?.over(before.abs())
    }

    fn shortened(self, scale: u32, digits: impl Fn(i128) -> i128) -> Decimal {
        // It has fewer digits than before.
        Decimal::of_parts(digits(self.digits), scale).unwrap_or(self)
    }

    fn at_scale(self, scale: u32) -> Option<i128> {
        self.digits.checked_mul(10_i128.checked_pow(scale - self.scale)?)
    }
}

/// A quotient of whole numbers, halves away from 0.
fn halved_up(numerator: i128, denominator: i128) -> i128 {
    let (quotient, rest) = (numerator / denominator, numerator % denominator);
    let away = if (numerator < 0) == (denominator < 0) { 1 } else { -1 };
    // Not twice the rest, which may be out of range.
    if rest.unsigned_abs() >= denominator.unsigned_abs() - rest.unsigned_abs() {
        quotient + away
    } else {
        quotient
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Decimal {
        Decimal { digits: number.into(), scale: 0 }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        let scale = self.scale.max(other.scale);
        match (self.at_scale(scale), other.at_scale(scale)) {
            (Some(own), Some(other)) => own.cmp(&other),
            // One of them has too many digits before the point for the other's decimals: it is larger by far.
            (None, _) => self.digits.cmp(&0),
            (_, None) => 0.cmp(&other.digits),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.digits < 0 { "-" } else { "" };
        let (digits, scale) = (self.digits.unsigned_abs().to_string(), self.scale as usize);
        if scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        let digits = format!("{digits:0>width$}", width = scale + 1);
        let (whole, part) = digits.split_at(digits.len() - scale);
        write!(f, "{sign}{whole}.{part}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text} is a decimal"))
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        for (text, shown) in [
            ("12.99", "12.99"),
            (" 0 ", "0"),
            ("-0.50", "-0.5"),
            ("1e3", "1000"),
            ("1.5E-3", "0.0015"),
            ("0e99", "0"),
            ("007.10", "7.1"),
            ("0.000000000000000001", "0.000000000000000001"),
        ] {
            assert_eq!(decimal(text).to_string(), shown, "{text}");
        }
        for text in
            ["", ".", "1.", ".5", "1,299.00", "1 000", "+1", "NaN", "inf", "--1", "1e", "0x10", "1e40"]
        {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        for value in [json!(null), json!(true), json!(""), json!([1]), json!({})] {
            assert_eq!(Decimal::of_json(&value), None, "{value}");
        }
        assert_eq!(Decimal::of_json(&json!(0)), Some(Decimal::ZERO), "0 is a value");
        assert_eq!(Decimal::of_json(&json!(19.99)).map(|it| it.to_string()).as_deref(), Some("19.99"));
    }

    #[test]
    fn sums_and_products_are_exact() {
        let sum = decimal("0.1").plus(decimal("0.2"));
        assert_eq!(sum, Some(decimal("0.3")));
        assert_eq!(decimal("19.99").times(decimal("1.1")), Some(decimal("21.989")));
        assert_eq!(decimal("1").over(decimal("3")), Some(decimal("0.333333333333333333")));
        assert_eq!(decimal("1").over(Decimal::ZERO), None);
        assert_eq!(decimal("10").over(decimal("-4")), Some(decimal("-2.5")));
        let largest = decimal("9999999999999999999999999999");
        assert_eq!((largest.plus(decimal("1")), largest.times(largest)), (None, None));
    }

    #[test]
    fn halves_go_away_from_zero() {
        for (text, places, rounded) in [
            ("1.005", 2, "1.01"),
            ("2.675", 2, "2.68"),
            ("-1.005", 2, "-1.01"),
            ("1.004", 2, "1"),
            ("21.989", 2, "21.99"),
            ("0.5", 0, "1"),
            ("5", 2, "5"),
        ] {
            assert_eq!(decimal(text).round(places), decimal(rounded), "{text}");
        }
        for (text, step, rounded) in [
            ("12.97", "0.05", "12.95"),
            ("12.98", "0.05", "13"),
            ("12.975", "0.05", "13"),
            ("149", "10", "150"),
        ] {
            assert_eq!(decimal(text).round_to(decimal(step)), Some(decimal(rounded)), "{text}");
        }
        assert_eq!(decimal("1").round_to(Decimal::ZERO), None);
        assert_eq!((decimal("-1.5").floor(), decimal("-1.5").ceil()), (decimal("-2"), decimal("-1")));
    }

    #[test]
    fn percentages_of_zero_are_none() {
        assert_eq!(decimal("12").percent_above(decimal("10")), Some(decimal("20")));
        assert_eq!(decimal("7").percent_above(decimal("10")), Some(decimal("-30")));
        assert_eq!(decimal("7").percent_above(Decimal::ZERO), None);
    }

    #[test]
    fn json_keeps_what_it_has_room_for() {
        for text in ["0", "12.99", "-5", "999999999.999999", "0.1"] {
            let value = decimal(text).to_json().expect(text);
            assert_eq!(value.to_string(), text);
            assert_eq!(Decimal::of_json(&value), Some(decimal(text)));
        }
        assert_eq!(decimal("0.1234567890123456").to_json(), None);
    }

    proptest! {
        #[test]
        fn order_and_text_agree_with_whole_numbers(a in -1_000_000_i64..1_000_000, b in -1_000_000_i64..1_000_000, scale in 0_u32..6) {
            let of = |digits: i64| Decimal::of_parts(digits.into(), scale).expect("small");
            prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
            prop_assert_eq!(Decimal::parse(&of(a).to_string()), Some(of(a)));
            prop_assert_eq!(of(a).plus(of(b)).and_then(|sum| sum.minus(of(b))), Some(of(a)));
        }
    }
}
