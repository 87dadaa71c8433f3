//! As much of HTTP/1.1 as curl and an HTTP action send: one request per connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

const MAX_BODY_BYTES: usize = 1024 * 1024;
const MAX_HEAD_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub struct Asked {
    pub method: String,
    /// Without the query.
    pub path: String,
    pub is_expanded: bool,
    pub authorization: Option<String>,
    pub idempotency_key: Option<String>,
    pub body: Value,
}

impl Asked {
    /// The inner error is the client's.
    pub fn read(stream: &TcpStream) -> io::Result<Result<Asked, String>> {
        let mut reader = BufReader::new(stream);
        let mut head = (&mut reader).take(MAX_HEAD_BYTES);
        let mut first = String::new();
        head.read_line(&mut first)?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            head.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let header =
            |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if length > MAX_BODY_BYTES {
            return Ok(Err("the body is too long".to_owned()));
        }
        let mut body = vec![0; length];
        if header("expect").is_some() {
            let mut stream = stream;
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        reader.read_exact(&mut body)?;
        let mut words = first.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Ok(Err("this is not HTTP".to_owned()));
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let body = match serde_json::from_slice(&body) {
            Ok(body) => body,
            Err(_) if body.is_empty() => Value::Null,
            Err(error) => return Ok(Err(format!("the body is not JSON: {error}"))),
        };
        Ok(Ok(Asked {
            method: method.to_owned(),
            path: decoded(path.trim_end_matches('/')),
            is_expanded: decoded(query).starts_with("$expand="),
            authorization: header("authorization"),
            idempotency_key: header("idempotency-key"),
            body,
        }))
    }
}

/// `%20` and the like.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let code = (byte == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Option<Value>,
}

impl Answer {
    pub fn ok(body: Value) -> Answer {
        Answer { status: 200, headers: Vec::new(), body: Some(body) }
    }

    pub fn empty(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: None }
    }

    pub fn with(mut self, name: &'static str, value: String) -> Answer {
        self.headers.push((name, value));
        self
    }

    pub fn error(status: u16, message: &str) -> Answer {
        let info =
            json!([{ "Message": message, "MessageId": "Base.1.12.GeneralError", "Severity": "Critical" }]);
        let body = json!({ "error": {
            "code": "Base.1.12.GeneralError",
            "message": message,
            "@Message.ExtendedInfo": info,
        }});
        let answer = Answer { status, headers: Vec::new(), body: Some(body) };
        match status {
            401 => answer.with("WWW-Authenticate", "Basic realm=\"RedfishService\"".to_owned()),
            503 => answer.with("Retry-After", "1".to_owned()),
            _ => answer,
        }
    }

    pub fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        let body = self.body.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut text = format!("HTTP/1.1 {} .\r\n", self.status);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!(
            "Content-Type: application/json\r\nOData-Version: 4.0\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ));
        stream.write_all(text.as_bytes())?;
        stream.flush()
    }
}
