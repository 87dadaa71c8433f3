//! Alerts.

use serde_json::{Value, json};
use waypost_store::{AlertRow, Result, SilenceAlert, Who};

use super::RemoteStore;
use super::ask::{Ask, part};

impl RemoteStore {
    pub(crate) async fn alerts(&self, tenant: Option<String>) -> Result<Vec<AlertRow>> {
        let answer = Ask::get("/v1/alerts").only_of(tenant).send(self).await?;
        let rows: Option<Vec<AlertRow>> =
            answer["alerts"].as_array().into_iter().flatten().map(AlertRow::of_object).collect();
        rows.ok_or_else(|| self.unread("an alert"))
    }

    /// Has the server tell its sinks, or one of them, that nothing is wrong: what came of each.
    pub async fn test_alerts(&self, tenant: &str, sink: Option<&str>, by: &str) -> Result<Vec<Value>> {
        let ask = Ask::post("/v1/alerts/test", json!({ "sink": sink, "by": by }));
        let answer = ask.of(tenant).send(self).await?;
        answer["sinks"].as_array().cloned().ok_or_else(|| self.unread("what came of a test"))
    }

    pub(crate) async fn silence_alert(&self, silence: SilenceAlert, who: Who) -> Result<AlertRow> {
        silence.check()?;
        let subject = Some(&silence.subject).filter(|subject| !subject.is_empty());
        let mut body = json!({ "subject": subject, "by": who.by, "reason": who.reason });
        if let Some(lasts) = silence.lasts {
            body["lasts_ms"] = lasts.ms().into();
        }
        let verb = if silence.lasts.is_some() { "silence" } else { "unsilence" };
        let path = format!("/v1/alerts/{}/{verb}", part(&silence.name));
        let answer = Ask::post(path, body).of(&who.tenant).send(self).await?;
        AlertRow::of_object(&answer).ok_or_else(|| self.unread("an alert"))
    }
}
