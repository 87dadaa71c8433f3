//! What an operation found, target by target, and how two values differ.

use serde_json::{Map, Value, json};
use waypost_kernel::{Decimal, Failure};

use crate::playbook::Reconcile;
use crate::targets::row::{amount_in, difference, number_in};

/// In an operation's details.
pub(super) const REPORT: &str = "report";
/// Of each list of a report. All of them are in the operation's log.
pub(super) const LISTED: usize = 1_000;
/// Of a failure's words in a list.
const WORDS: usize = 200;

/// One target whose value outside is another than was applied.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mismatch {
    pub key: String,
    pub expected: Value,
    pub actual: Value,
}

impl Mismatch {
    /// None: it is what was applied, or as near as is tolerated. Both the amount and the percentage have to be exceeded.
    pub fn of(key: &str, after: &Value, actual: &Value, tolerance: Option<&Reconcile>) -> Option<Mismatch> {
        let expected = amount_in(after);
        let actual = amount_in(actual);
        let is_same = match (number_in(expected), number_in(actual)) {
            (Some(expected), Some(actual)) => is_near(expected, actual, tolerance),
            _ => expected == actual,
        };
        let found = || Mismatch { key: key.to_owned(), expected: expected.clone(), actual: actual.clone() };
        (!is_same).then(found)
    }

    pub fn object(&self) -> Value {
        let difference = difference(&self.expected, &self.actual).and_then(Decimal::to_json);
        json!({ "targetId": self.key, "expected": self.expected, "actual": self.actual, "difference": difference })
    }
}

fn is_near(expected: Decimal, actual: Decimal, tolerance: Option<&Reconcile>) -> bool {
    if expected == actual {
        return true;
    }
    let Some(tolerance) = tolerance else { return false };
    let by_amount = actual.minus(expected).is_some_and(|it| it.abs() <= tolerance.amount);
    // Nothing is a percentage of 0.
    let by_percent = actual.percent_above(expected).is_some_and(|it| it.abs() <= tolerance.percent);
    by_amount || by_percent
}

/// A failure about a target.
pub(super) fn failure_object(key: &str, failure: &Failure) -> Value {
    let message: String = failure.message.chars().take(WORDS).collect();
    json!({ "targetId": key, "code": &*failure.code, "message": message })
}

/// Adds to a list of a report, as long as there is room.
pub(super) fn list(list: &mut Vec<Value>, object: Value) {
    if list.len() < LISTED {
        list.push(object);
    }
}

/// A list of a report that an earlier holder wrote.
pub(super) fn listed(report: Option<&Value>, name: &str) -> Vec<Value> {
    report.and_then(|report| report[name].as_array()).cloned().unwrap_or_default()
}

pub(super) fn counted(report: Option<&Value>, name: &str) -> u64 {
    report.and_then(|report| report[name].as_u64()).unwrap_or_default()
}

pub(super) fn in_details(report: Value) -> Map<String, Value> {
    Map::from_iter([(REPORT.to_owned(), report)])
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves R11
    #[test]
    fn a_mismatch_is_past_the_amount_and_past_the_percentage() {
        let tolerance = |amount: &str, percent: &str| Reconcile {
            after: Vec::new(),
            daily_for: None,
            amount: Decimal::parse(amount).expect(amount),
            percent: Decimal::parse(percent).expect(percent),
            retries: false,
        };
        for (after, actual, amount, percent, is_mismatch) in [
            (json!(10), json!("10.00"), "0", "0", false),
            (json!(10), json!(10.01), "0", "0", true),
            (json!(10), json!(10.01), "0.01", "0", false),
            (json!(10), json!(10.02), "0.01", "0", true),
            (json!(1000), json!(1009), "0.01", "1", false),
            (json!(1000), json!(1011), "0.01", "1", true),
            (json!(0), json!(0), "0", "0", false),
            (json!(0), json!("0.00"), "0", "0", false),
            (json!(0), json!(5), "0.01", "50", true),
            (json!(5), json!(0), "0.01", "1", true),
            (json!({"unit_amount": 7}), json!({"unit_amount": "7.0"}), "0", "0", false),
            (json!("red"), json!("red"), "0", "0", false),
            (json!("red"), json!("blue"), "0", "0", true),
            (json!(5), json!(null), "0", "0", true),
        ] {
            let found = Mismatch::of("t", &after, &actual, Some(&tolerance(amount, percent)));
            assert_eq!(found.is_some(), is_mismatch, "{after} {actual} {amount} {percent}");
        }
        let found = Mismatch::of("t", &json!(10), &json!("12.5"), None).map(|it| it.object());
        assert_eq!(
            found,
            Some(json!({"targetId": "t", "expected": 10, "actual": "12.5", "difference": 2.5}))
        );
    }
}
