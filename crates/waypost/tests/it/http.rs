//! As little of HTTP as a client needs that tries again: one request per connection.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

/// An error is a connection that was refused or broke off: what became of the request is not known.
pub fn post(url: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Result<Answer> {
    let address = url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let body = body.to_string();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes())?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    let broke_off = || std::io::Error::other(format!("the answer broke off: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broke_off)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broke_off)?;
    let body = serde_json::from_str(body).map_err(|_| broke_off())?;
    Ok(Answer { status, head: head.to_lowercase(), body })
}
