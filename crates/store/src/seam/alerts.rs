//! Alerts, as they are stored: a row for each policy and what it is about.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use waypost_kernel::alert::{Condition, Delivery, POLICIES, Policy, Severity, Status};
use waypost_kernel::{Span, Time};

use super::error::{Result, StoreError};
use super::run::{iso, parse_time};
use crate::rules::intake::{check_name, check_text};

/// No longer than this is anybody left in the dark.
pub const MOST_SILENCE: Span = Span::from_seconds(30 * 86_400);
/// Throttled answers are counted so far back.
pub const WINDOW: Span = Span::from_seconds(300);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertRow {
    pub tenant: String,
    /// Of its policy.
    pub name: String,
    /// The destination that it is about; empty if it is about the tenant.
    pub subject: String,
    pub condition: Condition,
    /// For people.
    pub summary: String,
    /// What a counter said, and when, as far back as it matters.
    pub samples: Vec<(Time, u64)>,
    /// By the names of sinks.
    pub deliveries: BTreeMap<String, Delivery>,
    pub silence: Option<Silence>,
    /// Rises with each write; 0 of one that is not stored.
    pub revision: u64,
    pub updated_at: Time,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    pub until: Time,
    pub by: String,
    pub reason: String,
}

/// Nobody is told of an alert for a while; one without a subject stands for all subjects of its policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SilenceAlert {
    pub name: String,
    pub subject: String,
    /// None: people are told again.
    pub lasts: Option<Span>,
}

impl SilenceAlert {
    pub fn check(&self) -> Result<()> {
        check_policy(&self.name)?;
        if !self.subject.is_empty() {
            check_name("subject", &self.subject)?;
        }
        match self.lasts {
            Some(lasts) if lasts <= Span::ZERO || lasts > MOST_SILENCE => {
                let message = format!("is {} ms; allowed: 1 ms to 30 days", lasts.ms());
                Err(StoreError::invalid("lasts_ms", message))
            }
            _ => Ok(()),
        }
    }

    /// As the audit log calls it.
    pub fn action(&self) -> &'static str {
        if self.lasts.is_some() { "alert.silence" } else { "alert.unsilence" }
    }

    pub fn about(&self) -> String {
        match self.subject.as_str() {
            "" => self.name.clone(),
            subject => format!("{}/{subject}", self.name),
        }
    }
}

fn check_policy(name: &str) -> Result<()> {
    if Policy::named(name).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
    Err(StoreError::invalid("alert", format!("there is no alert {name:?}; allowed: {}", known.join(", "))))
}

impl AlertRow {
    pub fn policy(&self) -> Option<&'static Policy> {
        Policy::named(&self.name)
    }

    pub fn severity(&self) -> Severity {
        self.policy().map_or(Severity::Warning, |policy| policy.severity)
    }

    pub fn is_silenced(&self, now: Time) -> bool {
        self.silence.as_ref().is_some_and(|silence| silence.until > now)
    }

    /// What it is called by those who are told: the same for all notices of one firing.
    pub fn key(&self) -> String {
        format!("waypost/{}/{}/{}/{}", self.tenant, self.name, self.subject, self.condition.episode)
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_policy(&self.name)?;
        check_text("subject", &self.subject, waypost_kernel::text::MAX_NAME_BYTES)
    }

    pub fn object(&self) -> Value {
        let Condition {
            status,
            since,
            well_since,
            episode,
            fired_at,
            resolved_at,
            value_milli,
            evaluated_at,
        } = self.condition;
        let deliveries = self.deliveries.iter().map(|(sink, it)| {
            json!({
                "sink": sink,
                "episode": it.episode,
                "is_firing": it.is_firing,
                "sent_at": it.sent_at.map(iso),
                "next_at": it.sent_at.is_none().then(|| iso(it.next_at)),
                "tries": it.tries,
                "error": it.error,
            })
        });
        let silence = self.silence.as_ref();
        json!({
            "tenant": self.tenant,
            "name": self.name,
            "subject": self.subject,
            "severity": self.severity().name(),
            "status": status.name(),
            "summary": self.summary,
            "value": value_milli.map(|value| value as f64 / 1_000.0),
            "since": iso(since),
            "well_since": well_since.map(iso),
            "episode": episode,
            "fired_at": fired_at.map(iso),
            "resolved_at": resolved_at.map(iso),
            "evaluated_at": iso(evaluated_at),
            "silenced_until": silence.map(|it| iso(it.until)),
            "silenced_by": silence.map(|it| &it.by),
            "silence_reason": silence.map(|it| &it.reason),
            "deliveries": deliveries.collect::<Vec<_>>(),
        })
    }

    /// The row that such an object was made of, but for what only evaluations need.
    pub fn of_object(object: &Value) -> Option<AlertRow> {
        let text = |name: &str| object[name].as_str().map(str::to_owned);
        let time = |name: &str| object[name].as_str().and_then(parse_time);
        let delivery = |it: &Value| {
            let time = |name: &str| it[name].as_str().and_then(parse_time);
            let delivery = Delivery {
                episode: it["episode"].as_u64()?.try_into().ok()?,
                is_firing: it["is_firing"].as_bool()?,
                sent_at: time("sent_at"),
                next_at: time("next_at").unwrap_or_default(),
                tries: it["tries"].as_u64()?.try_into().ok()?,
                error: it["error"].as_str().map(str::to_owned),
            };
            Some((it["sink"].as_str()?.to_owned(), delivery))
        };
        let silence = |until: Time| Silence {
            until,
            by: text("silenced_by").unwrap_or_default(),
            reason: text("silence_reason").unwrap_or_default(),
        };
        Some(AlertRow {
            tenant: text("tenant")?,
            name: text("name")?,
            subject: text("subject")?,
            condition: Condition {
                status: Status::parse(object["status"].as_str()?)?,
                since: time("since")?,
                well_since: time("well_since"),
                episode: object["episode"].as_u64()?.try_into().ok()?,
                fired_at: time("fired_at"),
                resolved_at: time("resolved_at"),
                value_milli: object["value"].as_f64().map(|value| (value * 1_000.0).round() as i64),
                evaluated_at: time("evaluated_at")?,
            },
            summary: text("summary")?,
            samples: Vec::new(),
            deliveries: object["deliveries"].as_array()?.iter().filter_map(delivery).collect(),
            silence: time("silenced_until").map(silence),
            revision: 0,
            updated_at: time("evaluated_at")?,
        })
    }
}
