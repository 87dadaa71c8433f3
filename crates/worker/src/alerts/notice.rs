//! What each kind of sink is sent.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use waypost_kernel::alert::Condition;
use waypost_kernel::{Span, Time};
use waypost_store::{AlertRow, DEFAULT_TENANT, iso};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Slack,
    PagerDuty,
    Alertmanager,
    Webhook,
}

impl Kind {
    pub const NAMES: [&'static str; 4] = ["slack", "pagerduty", "alertmanager", "webhook"];

    pub const fn name(self) -> &'static str {
        Kind::NAMES[self as usize]
    }

    pub fn parse(name: &str) -> Option<Kind> {
        use Kind::{Alertmanager, PagerDuty, Slack, Webhook};
        [Slack, PagerDuty, Alertmanager, Webhook].into_iter().find(|it| it.name() == name)
    }
}

/// What somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Firing {
        at: Time,
    },
    Resolved {
        at: Time,
    },
    /// Nothing is wrong: somebody tries whether notices arrive.
    Test {
        at: Time,
    },
}

impl Told {
    const fn at(self) -> Time {
        match self {
            Told::Firing { at } | Told::Resolved { at } | Told::Test { at } => at,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Told::Firing { .. } => "firing",
            Told::Resolved { .. } => "resolved",
            Told::Test { .. } => "test",
        }
    }
}

/// Where PagerDuty takes events.
pub const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

/// An alert that is told again in time does not end by itself.
const ENDS_AFTER: Span = Span::from_seconds(300);
/// Of PagerDuty.
const MOST_KEY_CHARS: usize = 255;
const MOST_SUMMARY_CHARS: usize = 1_024;

pub fn address(kind: Kind, url: &str) -> String {
    const ALERTS: &str = "/api/v2/alerts";
    match kind {
        Kind::Alertmanager if !url.trim_end_matches('/').ends_with(ALERTS) => {
            format!("{}{ALERTS}", url.trim_end_matches('/'))
        }
        _ => url.to_owned(),
    }
}

/// The same for all tries of one notice, so that whoever knows it takes it once.
pub fn id(alert: &AlertRow, told: Told) -> String {
    let test = matches!(told, Told::Test { .. }).then(|| format!("/{}", told.at().ms())).unwrap_or_default();
    format!("{}/{}{test}", dedup_key(alert), told.word())
}

/// Of one firing.
fn dedup_key(alert: &AlertRow) -> String {
    let key = alert.key();
    if key.is_ascii() && key.len() <= MOST_KEY_CHARS {
        return key;
    }
    let digest = Sha256::digest(key.as_bytes());
    format!("waypost/{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

pub fn body(kind: Kind, alert: &AlertRow, told: Told, token: Option<&str>, link: Option<&str>) -> Value {
    match kind {
        Kind::Slack => slack(alert, told, link),
        Kind::PagerDuty => pagerduty(alert, told, token, link),
        Kind::Alertmanager => alertmanager(alert, told, link),
        Kind::Webhook => webhook(alert, told, link),
    }
}

/// `name` of one about a tenant, `name: destination` of one about a destination; the tenant if there are several.
fn title(alert: &AlertRow) -> String {
    let tenant = match alert.tenant.as_str() {
        DEFAULT_TENANT => String::new(),
        tenant => format!(" ({tenant})"),
    };
    let subject = if alert.subject.is_empty() { String::new() } else { format!(": {}", alert.subject) };
    format!("{}{subject}{tenant}", alert.name)
}

fn slack(alert: &AlertRow, told: Told, link: Option<&str>) -> Value {
    // Slack's own marks are escaped, and nothing else is.
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (mark, color) = match told {
        Told::Firing { .. } if alert.severity().name() == "critical" => (":rotating_light:", "danger"),
        Told::Firing { .. } => (":warning:", "warning"),
        Told::Resolved { .. } | Told::Test { .. } => (":white_check_mark:", "good"),
    };
    let more = link.map(|link| format!(" <{link}|Waypost>")).unwrap_or_default();
    let head = format!("{mark} *{}* {}{more}", told.word(), plain(&title(alert)));
    json!({
        "text": head,
        "attachments": [{
            "color": color,
            "text": plain(&alert.summary),
            "fallback": plain(&alert.summary),
            "footer": format!("{} · {}", alert.severity().name(), iso(told.at())),
        }],
    })
}

fn details(alert: &AlertRow) -> Value {
    let Condition { value_milli, fired_at, resolved_at, .. } = alert.condition;
    json!({
        "alert": alert.name,
        "tenant": alert.tenant,
        "destination": Some(&alert.subject).filter(|subject| !subject.is_empty()),
        "value": value_milli.map(|value| value as f64 / 1_000.0),
        "fired_at": fired_at.map(iso),
        "resolved_at": resolved_at.map(iso),
    })
}

fn pagerduty(alert: &AlertRow, told: Told, token: Option<&str>, link: Option<&str>) -> Value {
    let action = if matches!(told, Told::Resolved { .. }) { "resolve" } else { "trigger" };
    let key = match told {
        // What is tried must not stand in an incident's way.
        Told::Test { .. } => id(alert, told),
        _ => dedup_key(alert),
    };
    let summary: String = format!("{} {}: {}", told.word(), title(alert), alert.summary)
        .chars()
        .take(MOST_SUMMARY_CHARS)
        .collect();
    let mut event = json!({
        "routing_key": token,
        "event_action": action,
        "dedup_key": key,
        "client": "Waypost",
        "payload": {
            "summary": summary,
            "source": format!("waypost/{}", alert.tenant),
            "severity": if matches!(told, Told::Test { .. }) { "info" } else { alert.severity().name() },
            "timestamp": iso(told.at()),
            "component": alert.subject,
            "class": alert.name,
            "custom_details": details(alert),
        },
    });
    if let Some(link) = link {
        event["client_url"] = link.into();
    }
    event
}

fn alertmanager(alert: &AlertRow, told: Told, link: Option<&str>) -> Value {
    let mut labels = json!({
        "alertname": if matches!(told, Told::Test { .. }) { "waypost-test" } else { &alert.name },
        "severity": alert.severity().name(),
        "tenant": alert.tenant,
        "source": "waypost",
    });
    if !alert.subject.is_empty() {
        labels["destination"] = alert.subject.as_str().into();
    }
    let ends_at = match told {
        Told::Firing { at } => at + ENDS_AFTER,
        Told::Resolved { at } => alert.condition.resolved_at.unwrap_or(at),
        // It is seen, and over soon.
        Told::Test { at } => at + Span::from_seconds(60),
    };
    let starts_at = alert.condition.fired_at.unwrap_or(told.at());
    let mut entry = json!({
        "labels": labels,
        "annotations": { "summary": alert.summary },
        "startsAt": iso(starts_at.min(ends_at)),
        "endsAt": iso(ends_at),
    });
    if let Some(link) = link {
        entry["generatorURL"] = link.into();
    }
    json!([entry])
}

fn webhook(alert: &AlertRow, told: Told, link: Option<&str>) -> Value {
    json!({
        "type": format!("alert.{}", told.word()),
        "id": id(alert, told),
        "dedup_key": dedup_key(alert),
        "at": iso(told.at()),
        "severity": alert.severity().name(),
        "title": title(alert),
        "summary": alert.summary,
        "link": link,
        "details": details(alert),
    })
}
