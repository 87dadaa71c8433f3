//! A server that takes notices as Slack, PagerDuty, Alertmanager and a webhook do: each checks its format, and refuses what it would not
//! understand.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use waypost_store::parse_time;

#[derive(Clone, Debug)]
pub struct Notice {
    pub path: String,
    pub key: Option<String>,
    pub authorization: Option<String>,
    pub body: Value,
}

pub struct Receiver {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Notice>>>,
    /// Answers of this status to all that comes, instead of taking it.
    pub refuses: Arc<Mutex<Option<u16>>>,
}

pub const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";

impl Receiver {
    pub async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, refuses) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let (to, asked) = (heard.clone(), refuses.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, to.clone(), asked.clone()));
            }
        });
        Receiver { address, heard, refuses }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What was taken since the last look.
    pub fn taken(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

async fn answer(mut socket: TcpStream, heard: Arc<Mutex<Vec<Notice>>>, refuses: Arc<Mutex<Option<u16>>>) {
    let mut read = Vec::new();
    loop {
        let Some(notice) = request(&mut socket, &mut read).await else { return };
        let refused = *refuses.lock().unwrap();
        let (status, kind, body) = match (refused, wrong(&notice)) {
            (Some(status), _) => (status, "text/plain", "no_service".to_owned()),
            (None, Some(wrong)) => {
                (400, "application/json", json!({ "status": "invalid", "errors": [wrong] }).to_string())
            }
            (None, None) => {
                heard.lock().unwrap().push(notice.clone());
                match notice.path.as_str() {
                    "/v2/enqueue" => (202, "application/json", json!({ "status": "success", "message": "Event processed", "dedup_key": notice.body["dedup_key"] }).to_string()),
                    "/services/T0/B0/secret" => (200, "text/html", "ok".to_owned()),
                    _ => (200, "application/json", String::new()),
                }
            }
        };
        let wait = if refused.is_some() { "retry-after: 120\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\n{wait}content-length: {}\r\n\r\n",
            body.len()
        );
        if socket.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn request(socket: &mut TcpStream, read: &mut Vec<u8>) -> Option<Notice> {
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).into_owned();
            let header = |name: &str| {
                let found = head.lines().filter_map(|line| line.split_once(": "));
                found
                    .into_iter()
                    .find(|(it, _)| it.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value.to_owned())
            };
            let length: usize = header("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
            if read.len() >= end + 4 + length {
                let body = serde_json::from_slice(&read[end + 4..end + 4 + length]).unwrap_or(Value::Null);
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let (key, authorization) = (header("idempotency-key"), header("authorization"));
                read.drain(..end + 4 + length);
                return Some(Notice { path, key, authorization, body });
            }
        }
        let mut chunk = [0; 4_096];
        match socket.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&chunk[..count]),
        }
    }
}

fn wrong(notice: &Notice) -> Option<&'static str> {
    match notice.path.as_str() {
        "/services/T0/B0/secret" => slack(&notice.body),
        "/v2/enqueue" => pagerduty(&notice.body),
        "/api/v2/alerts" => alertmanager(&notice.body),
        "/hook" => (!notice.body["type"].is_string()).then_some("no type"),
        _ => Some("no such path"),
    }
}

/// https://api.slack.com/messaging/webhooks: a text, and attachments with one.
fn slack(body: &Value) -> Option<&'static str> {
    let has_text = |value: &Value| value["text"].as_str().is_some_and(|text| !text.is_empty());
    if !has_text(body) {
        return Some("no_text");
    }
    let attachments = body["attachments"].as_array().cloned().unwrap_or_default();
    (!attachments.iter().all(has_text)).then_some("invalid_attachments")
}

/// Events API v2, as its reference has it.
fn pagerduty(body: &Value) -> Option<&'static str> {
    let text = |value: &Value, most: usize| {
        value.as_str().is_some_and(|it| !it.is_empty() && it.chars().count() <= most)
    };
    if body["routing_key"].as_str() != Some(ROUTING_KEY) {
        return Some("'routing_key' is invalid");
    }
    if !["trigger", "acknowledge", "resolve"].contains(&body["event_action"].as_str().unwrap_or_default()) {
        return Some("'event_action' is invalid");
    }
    if !text(&body["dedup_key"], 255) {
        return Some("'dedup_key' is too long");
    }
    let payload = &body["payload"];
    if body["event_action"] != "resolve"
        && !(text(&payload["summary"], 1_024) && text(&payload["source"], 255))
    {
        return Some("'payload' is incomplete");
    }
    if !["critical", "error", "warning", "info"].contains(&payload["severity"].as_str().unwrap_or_default()) {
        return Some("'severity' is invalid");
    }
    payload["timestamp"].as_str().and_then(parse_time).is_none().then_some("'timestamp' is invalid")
}

/// `postableAlerts` of Alertmanager's API v2.
fn alertmanager(body: &Value) -> Option<&'static str> {
    let Some(alerts) = body.as_array() else { return Some("no list") };
    for alert in alerts {
        let is_label = |(name, value): (&String, &Value)| {
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && value.is_string()
        };
        let labels = alert["labels"].as_object().cloned().unwrap_or_default();
        if !labels.contains_key("alertname") || !labels.iter().all(is_label) {
            return Some("labels are invalid");
        }
        if !alert["annotations"].as_object().is_some_and(|it| it.iter().all(is_label)) {
            return Some("annotations are invalid");
        }
        let time = |name: &str| alert[name].as_str().and_then(parse_time);
        match (time("startsAt"), time("endsAt")) {
            (Some(starts), Some(ends)) if starts <= ends => {}
            _ => return Some("start time must be before end time"),
        }
    }
    None
}
