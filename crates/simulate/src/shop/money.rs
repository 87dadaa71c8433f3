//! Prices as text, counted in cents: no price is ever a float here.

use serde_json::Value;

/// Ten million: beyond it somebody has confused cents and euros.
const MAX_CENTS: i64 = 1_000_000_000;

pub fn shown(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// `"12.99"`, `12.99`, `"12"`, `0`.
pub fn parse(value: &Value) -> Result<i64, String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return Err("a price is a number or a text such as \"12.99\"".to_owned()),
    };
    if text.starts_with('-') {
        return Err(format!("a price is not negative: {text}"));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    // 12.50 and 12.500 are the same; 12.505 is no price.
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() || whole.len() > 12 || !is_digits(whole) || !is_digits(fraction) || fraction.len() > 2
    {
        return Err(format!(
            "a price is a number with two decimals at most, such as \"12.99\", not {text:?}"
        ));
    }
    let cents = format!("{whole}{fraction:0<2}").parse().unwrap_or(i64::MAX);
    bounded(cents)
}

pub fn bounded(cents: i64) -> Result<i64, String> {
    match cents {
        ..0 => Err("a price is not negative".to_owned()),
        0..=MAX_CENTS => Ok(cents),
        _ => Err("a price is 10000000.00 at most".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{parse, shown};

    #[test]
    fn prices_are_cents() {
        for (given, cents) in [
            (json!("12.99"), 1299),
            (json!(12.99), 1299),
            (json!(0.1), 10),
            (json!(0), 0),
            (json!("0.00"), 0),
            (json!("7.500"), 750),
            (json!(10_000_000), 1_000_000_000),
        ] {
            assert_eq!(parse(&given), Ok(cents), "{given}");
        }
        for given in
            [json!("12.999"), json!(-1), json!("x"), json!(""), json!(null), json!("1e3"), json!(10_000_001)]
        {
            assert!(parse(&given).is_err(), "{given}");
        }
        assert_eq!([shown(0), shown(5), shown(1299)], ["0.00", "0.05", "12.99"]);
    }
}
