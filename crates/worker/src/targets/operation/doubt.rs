//! Failed targets that may have been changed outside all the same: a request went out, and nobody knows what came of it. They stay
//! failed, whatever is found; a retry sends the same key again.

use serde_json::{Value, json};
use waypost_store::ItemRow;

use super::report::{Mismatch, counted, list, listed};
use crate::playbook::{Reconcile, Violation};
use crate::targets::verdict::Class;

/// Whether it was tried, and what it failed with is no word of the destination's that it was not changed. A 5xx is none: it may be a
/// proxy's. A 429 is one, unless other tries failed before it, or the answer to one was lost.
pub(super) fn is_in_doubt(item: &ItemRow) -> bool {
    let Some(failure) = item.failure.as_ref().filter(|_| item.started_at.is_some()) else { return false };
    match Class::of_code(&failure.code) {
        Some(Class::NotFound | Class::Validation | Class::Authorization) => false,
        Some(Class::RateLimit) => item.attempts > 0 || item.in_doubt,
        _ => *failure.code != *Violation::CODE,
    }
}

/// What a target in doubt is outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// What it was to become.
    Made,
    /// What it was before.
    NotMade,
    /// Neither: it is left as it is.
    Other,
}

impl Found {
    pub fn of(item: &ItemRow, actual: &Value, tolerance: Option<&Reconcile>) -> Found {
        let is = |name: &str| {
            let value = item.details.get(name).cloned().unwrap_or_default();
            Mismatch::of(&item.key, &value, actual, tolerance).is_none()
        };
        // What is as near to both was changed, for all that anybody can see: undoing it does no harm.
        match (is("after"), is("before")) {
            (true, _) => Found::Made,
            (false, true) => Found::NotMade,
            (false, false) => Found::Other,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Found::Made => "made",
            Found::NotMade => "not made",
            Found::Other => "neither",
        }
    }

    pub fn object(self, item: &ItemRow, actual: &Value) -> Value {
        let code = item.failure.as_ref().map(|failure| failure.code.to_string());
        json!({ "targetId": item.key, "code": code, "found": self.name(), "actual": actual })
    }
}

/// What a report says of them.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    count: u64,
    made: u64,
    listed: Vec<Value>,
}

impl Doubts {
    /// As an earlier holder left them.
    pub fn known(report: Option<&Value>) -> Doubts {
        Doubts {
            count: counted(report, "inDoubt"),
            made: counted(report, "made"),
            listed: listed(report, "doubts"),
        }
    }

    pub fn add(&mut self, found: Found, object: Value) {
        self.count += 1;
        self.made += u64::from(found == Found::Made);
        list(&mut self.listed, object);
    }

    pub fn tell(&self, report: &mut Value) {
        report["inDoubt"] = json!(self.count);
        report["made"] = json!(self.made);
        report["doubts"] = json!(self.listed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::{Failure, Time};

    fn failed(code: &str, attempts: u32) -> ItemRow {
        ItemRow {
            key: "t".to_owned(),
            failure: Some(Failure::new(code, "")),
            started_at: Some(Time::default()),
            attempts,
            details: serde_json::from_value(json!({ "before": 10, "after": 11 })).unwrap_or_default(),
            ..ItemRow::default()
        }
    }

    // proves R9, R11
    #[test]
    fn what_was_sent_and_not_refused_is_in_doubt() {
        for (code, attempts, expected) in [
            ("TIMEOUT", 3, true),
            ("NETWORK", 3, true),
            ("SERVER_ERROR", 3, true),
            ("STOPPED", 0, true),
            ("CANCELLED", 0, true),
            ("WORKER_LOST", 0, true),
            ("UNKNOWN", 0, true),
            ("RATE_LIMIT", 0, false),
            ("RATE_LIMIT", 1, true),
            ("NOT_FOUND", 1, false),
            ("VALIDATION", 0, false),
            ("AUTHORIZATION", 0, false),
            ("GUARDRAIL", 0, false),
        ] {
            assert_eq!(is_in_doubt(&failed(code, attempts)), expected, "{code} {attempts}");
        }
        assert!(is_in_doubt(&ItemRow { in_doubt: true, ..failed("RATE_LIMIT", 0) }), "a holder was lost");
        assert!(!is_in_doubt(&ItemRow { started_at: None, ..failed("CANCELLED", 0) }), "it was never tried");
        assert!(!is_in_doubt(&ItemRow { failure: None, ..failed("TIMEOUT", 0) }));
        for (actual, found) in
            [(json!("11.00"), Found::Made), (json!(10), Found::NotMade), (json!(12), Found::Other)]
        {
            assert_eq!(Found::of(&failed("TIMEOUT", 3), &actual, None), found, "{actual}");
        }
    }
}
