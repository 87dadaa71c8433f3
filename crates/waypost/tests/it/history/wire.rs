//! As little of HTTP as clients need that meet servers which die: one connection per request.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than any server is stopped.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub is_replay: bool,
    pub body: Value,
}

#[derive(Debug)]
pub enum Failed {
    /// Nobody listens: nothing was asked.
    NotReached,
    BrokeOff(String),
}

pub async fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &Value,
) -> Result<Reply, Failed> {
    let socket = TcpStream::connect(address).await.map_err(|_| Failed::NotReached)?;
    let asked = timeout(PATIENCE, exchange(socket, address, method, path, headers, body)).await;
    asked.unwrap_or_else(|_| Err("no answer".to_owned())).map_err(Failed::BrokeOff)
}

async fn exchange(
    mut socket: TcpStream,
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &Value,
) -> Result<Reply, String> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).await.map_err(|error| error.to_string())?;
    let mut text = String::new();
    socket.read_to_string(&mut text).await.map_err(|error| error.to_string())?;
    let broke_off = || format!("the answer broke off: {text:?}");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broke_off)?;
    let head = head.to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broke_off)?;
    let told = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    if told.is_some_and(|told| told != body.len()) {
        return Err(broke_off());
    }
    let is_replay = head.contains("idempotency-replayed: true");
    let body =
        if body.is_empty() { Value::Null } else { serde_json::from_str(body).map_err(|_| broke_off())? };
    Ok(Reply { status, is_replay, body })
}

/// A stream of events from a position on. The old protocol has no chunks, so what comes is what was sent.
pub async fn stream(address: &str, after: u64) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address).await?;
    let last = if after > 0 { format!("last-event-id: {after}\r\n") } else { String::new() };
    let head = format!("GET /v1/events/stream?after={after} HTTP/1.0\r\nhost: {address}\r\n{last}\r\n");
    socket.write_all(head.as_bytes()).await?;
    Ok(socket)
}
