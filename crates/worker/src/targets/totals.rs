//! What a preview adds up to, beside its targets.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use waypost_kernel::Decimal;

use super::row::{Made, Target, amount_in};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Rows with nothing to change, or nothing to change it to.
    pub no_value: u64,
    pub rises: u64,
    pub falls: u64,
    /// Of all values; none once they are no numbers, or too large.
    before: Sum,
    after: Sum,
    largest_rise: Option<(Decimal, String)>,
    largest_fall: Option<(Decimal, String)>,
    /// What guardrails stop, by their names.
    stopped: BTreeMap<&'static str, u64>,
}

/// A sum, as long as it is one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sum(Option<Decimal>);

impl Default for Sum {
    fn default() -> Sum {
        Sum(Some(Decimal::ZERO))
    }
}

impl Sum {
    fn add(&mut self, value: Option<Decimal>) {
        self.0 = self.0.zip(value).and_then(|(sum, value)| sum.plus(value));
    }

    fn shown(self) -> Value {
        self.0.and_then(Decimal::to_json).unwrap_or_default()
    }
}

impl Totals {
    pub fn count(&mut self, made: &Made) {
        match made {
            Made::Unchanged => {}
            Made::NoValue => self.no_value += 1,
            Made::Target(target) => self.count_target(target),
        }
    }

    fn count_target(&mut self, target: &Target) {
        if let Some(violation) = &target.violation {
            *self.stopped.entry(violation.guardrail).or_default() += 1;
            // It is not changed: it adds to nothing.
            return;
        }
        let amount = |value: &Value| Decimal::of_json(amount_in(value));
        let (before, after) = (amount(&target.before), amount(&target.after));
        self.before.add(before);
        self.after.add(after);
        let Some((before, after)) = before.zip(after) else { return };
        let (count, largest) = if after > before {
            (&mut self.rises, &mut self.largest_rise)
        } else {
            (&mut self.falls, &mut self.largest_fall)
        };
        *count += 1;
        let Some(percent) = after.percent_above(before).map(|percent| percent.abs().round(2)) else { return };
        if largest.as_ref().is_none_or(|(known, _)| percent > *known) {
            *largest = Some((percent, target.key.clone()));
        }
    }

    /// For `details.preview.totals`.
    pub fn to_json(&self) -> Map<String, Value> {
        let largest = |largest: &Option<(Decimal, String)>| match largest {
            Some((percent, key)) => json!({ "target": key, "percent": percent.to_json() }),
            None => Value::Null,
        };
        let difference = self.after.0.zip(self.before.0).and_then(|(after, before)| after.minus(before));
        let totals = json!({
            "before": self.before.shown(),
            "after": self.after.shown(),
            "difference": difference.and_then(Decimal::to_json),
            "rises": self.rises,
            "falls": self.falls,
            "largest_rise": largest(&self.largest_rise),
            "largest_fall": largest(&self.largest_fall),
            "no_value": self.no_value,
            "stopped_by": self.stopped,
        });
        totals.as_object().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playbook::Violation;

    fn target(key: &str, before: Value, after: Value, stopped: bool) -> Made {
        let violation =
            stopped.then(|| Violation { guardrail: "floor", message: "floor: too low".to_owned() });
        let more = Map::new();
        Made::Target(Box::new(Target { key: key.to_owned(), before, after, more, violation }))
    }

    // proves R1
    #[test]
    fn what_changes_is_added_up_and_what_is_stopped_is_not() {
        let mut totals = Totals::default();
        for made in [
            target("a", json!(10), json!(12.1), false),
            target("b", json!(0.1), json!(0.2), false),
            target("c", json!(0), json!(5), false),
            target("d", json!(8), json!(6), false),
            target("e", json!(8), json!(0), true),
            Made::Unchanged,
            Made::NoValue,
        ] {
            totals.count(&made);
        }
        let expected = json!({
            "before": 18.1, "after": 23.3, "difference": 5.2, "rises": 3, "falls": 1,
            "largest_rise": {"target": "b", "percent": 100}, "largest_fall": {"target": "d", "percent": 25},
            "no_value": 1, "stopped_by": {"floor": 1},
        });
        assert_eq!(Value::Object(totals.to_json()), expected);
        totals.count(&target("f", json!("red"), json!("blue"), false));
        assert_eq!(totals.to_json()["before"], Value::Null, "texts have no sum");
    }
}
