//! Alerts: what a process evaluates, and whom it tells. `file` reads `[alert]` of `waypost.toml`, `notice` writes what each kind of
//! sink takes, and [`Alerts::send`] sends it. When something is sent is the alerter's (`loops/alerter.rs`).

mod file;
mod notice;

use std::time::Duration;

use waypost_kernel::alert::{POLICIES, Policy, Severity};
use waypost_kernel::{Span, Time};
use waypost_store::AlertRow;

use crate::actions::http::Client;
use crate::actions::secrets;
use crate::actions::{Body, Call, Http, Mask, Reads};
use crate::playbook::{Reference, Sealed};
pub use file::load;
pub(crate) use file::{ALERT, POLICY, SINK};
pub use notice::{Kind, Told};

/// Of a sink's answer.
const WITHIN: Duration = Duration::from_secs(10);
const MOST_ANSWER_BYTES: usize = 64 * 1024;

/// Alertmanager forgets what it is not told again.
const AGAIN: Span = Span::from_seconds(60);

/// What `waypost.toml` says.
#[derive(Clone, Debug)]
pub struct Alerts {
    pub policies: Vec<Policy>,
    pub sinks: Vec<Sink>,
    /// Where people look, for links.
    pub link: Option<String>,
    /// `http://` and private addresses may be called, whatever a sink says.
    pub allow_private: bool,
}

impl Default for Alerts {
    fn default() -> Alerts {
        let allow_private = Client::allowed_by_environment();
        Alerts { policies: POLICIES.to_vec(), sinks: Vec::new(), link: None, allow_private }
    }
}

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Sink {
    pub name: String,
    pub kind: Kind,
    pub url: Text,
    /// PagerDuty's routing key; of the others a token for `Authorization: Bearer`.
    pub token: Option<Reference>,
    /// What is less severe is not told.
    pub severity: Severity,
    pub allow_private: bool,
}

/// A text of the file, or where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Plain(String),
    Secret(Reference),
}

impl Text {
    fn find(&self) -> Result<String, String> {
        match self {
            Text::Plain(text) => Ok(text.clone()),
            Text::Secret(reference) => {
                secrets::find(reference).map_err(|error| format!("{reference}: {error}"))
            }
        }
    }
}

/// Why a notice was not taken. It is tried again, whatever the reason: people mend what is wrong while it fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSent {
    pub words: String,
    /// Not before this.
    pub wait: Option<Span>,
}

impl Sink {
    /// How often it wants to be told again.
    pub fn again(&self) -> Option<Span> {
        (self.kind == Kind::Alertmanager).then_some(AGAIN)
    }

    /// Whether its secrets can be read; the error names none of them.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |error| format!("alert.sink {:?}: {error}", self.name);
        self.secrets().map(drop).map_err(wrong)
    }

    fn secrets(&self) -> Result<(String, Option<String>), String> {
        let token = self.token.as_ref().map(|token| Text::Secret(token.clone()).find()).transpose()?;
        Ok((self.url.find()?, token))
    }
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    pub sink: String,
    pub kind: Kind,
    pub error: Option<String>,
}

impl Tested {
    pub fn object(&self) -> serde_json::Value {
        serde_json::json!({ "sink": self.sink, "kind": self.kind.name(), "sent": self.error.is_none(), "error": self.error })
    }
}

impl Alerts {
    /// Tells all sinks, or one, that nothing is wrong. None if there is no such sink.
    pub async fn test(&self, only: Option<&str>, tenant: &str, now: Time) -> Option<Vec<Tested>> {
        let sinks: Vec<&Sink> =
            self.sinks.iter().filter(|sink| only.is_none_or(|only| only == sink.name)).collect();
        if sinks.is_empty() && only.is_some() {
            return None;
        }
        let alert = AlertRow {
            tenant: tenant.to_owned(),
            name: "test".to_owned(),
            summary: "A test of Waypost's alerts: nothing is wrong.".to_owned(),
            ..AlertRow::default()
        };
        let mut tested = Vec::new();
        for sink in sinks {
            let sent = self.send(sink, &alert, Told::Test { at: now }).await;
            let error = sent.err().map(|error| error.words);
            tested.push(Tested { sink: sink.name.clone(), kind: sink.kind, error });
        }
        Some(tested)
    }

    /// What to say of a name that is no sink's.
    pub fn no_sink(&self, name: &str) -> String {
        let known: Vec<&str> = self.sinks.iter().map(|sink| sink.name.as_str()).collect();
        format!("there is no sink {name:?}; allowed: {}", known.join(", "))
    }

    /// Secrets are read now: one that was changed needs no restart.
    pub async fn send(&self, sink: &Sink, alert: &AlertRow, told: Told) -> Result<(), NotSent> {
        let not_sent = |words: String| NotSent { words, wait: None };
        let client = Client::new(self.allow_private).map_err(not_sent)?;
        let (url, token) = sink.secrets().map_err(not_sent)?;
        let body = notice::body(sink.kind, alert, told, token.as_deref(), self.link.as_deref());
        let bearer = token.as_deref().filter(|_| sink.kind != Kind::PagerDuty);
        let bearer = bearer.map(|token| ("authorization".to_owned(), Sealed::new(format!("Bearer {token}"))));
        let request = Http {
            method: "POST".to_owned(),
            url: notice::address(sink.kind, &url),
            headers: bearer.into_iter().collect(),
            body: Body::Json(Sealed::new(body.to_string())),
            allow_private: sink.allow_private,
            reads: Reads::default(),
        };
        let call = Call { idempotency_key: notice::id(alert, told), ..Call::default() };
        // An address of Slack's is a secret as a whole.
        let hidden = matches!(sink.url, Text::Secret(_)).then_some(url.as_str());
        let mask = Mask::new(token.as_deref().into_iter().chain(hidden));
        let sent = client.page(&request, &call, WITHIN, &mask, MOST_ANSWER_BYTES).await;
        sent.map(drop).map_err(|error| NotSent {
            words: mask.hide(&error.words).into_owned(),
            wait: error.wait.map(|wait| Span::from_ms(wait.as_millis().try_into().unwrap_or(i64::MAX))),
        })
    }
}
