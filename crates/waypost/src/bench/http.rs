//! New runs over HTTP: one per request, each answered after its commit. Server and clients share this process.

use std::net::SocketAddr;
use std::time::Instant;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::runs::{INPUT, METADATA, PLAYBOOK, fresh_key};
use super::worker::Server;
use super::{Bench, PAIRS, Pairs, Row, row};
use crate::output::{ERROR, Failed, Result};

const PER_CONNECTION: usize = 60;

pub async fn measure(bench: &Bench, connections: usize) -> Result<Row> {
    let store = bench.database("http").await?;
    let mut raw = bench.raw("http", connections).await?;
    let server = Server::start(store).await?;
    bench.begin("single enqueues over HTTP", PAIRS);
    let mut pairs = Pairs::new();
    for _ in 0..PAIRS {
        let raw = raw.enqueued(connections * PER_CONNECTION, 1).await?;
        pairs.add(raw, from_clients(server.address, connections).await?);
        bench.bar.inc(1);
    }
    server.stop().await;
    let mut found = row("enqueue-http", pairs.fields());
    found.insert("connections".into(), connections.into());
    Ok(found)
}

async fn from_clients(address: SocketAddr, connections: usize) -> Result<f64> {
    let mut streams = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(address).await.map_err(|error| broken(&error))?;
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        streams.push(BufReader::new(stream));
    }
    let start = Instant::now();
    let clients: Vec<_> = streams
        .into_iter()
        .map(|mut stream| {
            tokio::spawn(async move {
                for _ in 0..PER_CONNECTION {
                    post(&mut stream, address).await?;
                }
                Ok::<(), std::io::Error>(())
            })
        })
        .collect();
    for client in clients {
        client
            .await
            .map_err(|error| Failed::new(ERROR, format!("a client ended: {error}")))?
            .map_err(|error| broken(&error))?;
    }
    Ok((connections * PER_CONNECTION) as f64 / start.elapsed().as_secs_f64())
}

/// What raw writes too.
async fn post(stream: &mut BufReader<TcpStream>, address: SocketAddr) -> std::io::Result<()> {
    let run = json!({
        "lifecycle": "deploy",
        "playbook": PLAYBOOK,
        "unknown_playbook": true,
        "idempotency_key": fresh_key(),
        "input": *INPUT,
        "metadata": *METADATA,
    });
    let body = run.to_string();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(head.as_bytes()).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    if !line.contains(" 201 ") {
        return Err(std::io::Error::other(format!("the server answered {:?}", line.trim())));
    }
    let mut length = 0;
    while line.trim() != "" {
        line.clear();
        stream.read_line(&mut line).await?;
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.trim().parse().unwrap_or_default();
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.map(drop)
}

fn broken(error: &std::io::Error) -> Failed {
    Failed::new(ERROR, format!("the connection to the server broke: {error}"))
}
