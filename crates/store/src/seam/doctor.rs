//! What `waypost doctor` reports: each finding says what is, whether that is well, and what to do if not.

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub health: Health,
    /// What was looked at.
    pub what: &'static str,
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Ok,
    Warning,
    Error,
}

impl Health {
    pub fn name(self) -> &'static str {
        match self {
            Health::Ok => "ok",
            Health::Warning => "warning",
            Health::Error => "error",
        }
    }
}

impl Finding {
    pub fn ok(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { health: Health::Ok, what, found: found.into(), advice: None }
    }

    pub fn warning(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { health: Health::Warning, what, found: found.into(), advice: Some(advice.into()) }
    }

    pub fn error(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { health: Health::Error, what, found: found.into(), advice: Some(advice.into()) }
    }

    pub fn object(&self) -> Value {
        json!({ "health": self.health.name(), "what": self.what, "found": self.found, "advice": self.advice })
    }
}
