//! `waypost worker --metrics ADDRESS`: what this worker does, as a page in the text format of Prometheus.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use waypost_worker::{APPLY_BUCKETS_MS, Counts, Labels};

use crate::output::{ERROR, Failed, Result, tell};

/// Whoever scrapes has asked by then.
const WITHIN: Duration = Duration::from_secs(5);
const MOST_HEAD_BYTES: usize = 8 * 1024;
/// Requests at once.
const MOST: usize = 16;

#[derive(Clone, Debug)]
pub struct Measured {
    pub name: String,
    pub slots: usize,
    pub counts: Arc<Counts>,
}

/// Listens; gives where. Off loopback whoever reaches the address may read the page, and that is said.
pub async fn listen(address: SocketAddr, measured: Measured) -> Result<SocketAddr> {
    let cannot = |error| {
        Failed::new(ERROR, format!("cannot listen on {address}: {error}; name another with --metrics"))
    };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    if !bound.ip().is_loopback() {
        tell(&format!("warning: metrics: whoever reaches {bound} may read them, without a token"));
    }
    tokio::spawn(answer(listener, Arc::new(measured)));
    Ok(bound)
}

async fn answer(listener: TcpListener, measured: Arc<Measured>) {
    let room = Arc::new(Semaphore::new(MOST));
    while let Ok((socket, _)) = listener.accept().await {
        let Ok(place) = room.clone().try_acquire_owned() else { continue };
        let measured = measured.clone();
        tokio::spawn(async move {
            let _ = timeout(WITHIN, one(socket, &measured)).await;
            drop(place);
        });
    }
}

/// One request, one answer, and the connection ends.
async fn one(mut socket: TcpStream, measured: &Measured) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") && head.len() < MOST_HEAD_BYTES {
        let mut chunk = [0; 1_024];
        match socket.read(&mut chunk).await? {
            0 => break,
            count => head.extend_from_slice(&chunk[..count]),
        }
    }
    let (status, kind, body) = match head.split(|byte| *byte == b' ').nth(1) {
        Some(b"/metrics" | b"/") if head.starts_with(b"GET ") => {
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", page(measured))
        }
        _ => ("404 Not Found", "text/plain; charset=utf-8", "here is GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body.as_bytes()).await?;
    socket.shutdown().await
}

pub fn page(measured: &Measured) -> String {
    let Measured { name, slots, counts } = measured;
    let mut text = String::new();
    let _ = write!(
        text,
        "# TYPE waypost_worker_info gauge\nwaypost_worker_info{{worker=\"{}\",version=\"{}\"}} 1\n\
         # TYPE waypost_worker_slots gauge\nwaypost_worker_slots {slots}\n\
         # TYPE waypost_worker_busy gauge\nwaypost_worker_busy {}\n\
         # TYPE waypost_worker_runs_claimed_total counter\nwaypost_worker_runs_claimed_total {}\n\
         # TYPE waypost_worker_runs_ended_total counter\n",
        escaped(name),
        env!("CARGO_PKG_VERSION"),
        counts.busy(),
        counts.claimed(),
    );
    for ((Labels { lifecycle, queue, playbook }, outcome), count) in counts.ended() {
        let _ = writeln!(
            text,
            "waypost_worker_runs_ended_total{{lifecycle=\"{}\",queue=\"{}\",playbook=\"{}\",outcome=\"{outcome}\"}} {count}",
            escaped(&lifecycle),
            escaped(&queue),
            escaped(&playbook),
        );
    }
    applies(&mut text, counts);
    text
}

/// How bulk changes went here, under the names that the server's page has for them.
fn applies(text: &mut String, counts: &Counts) {
    let took = counts.applies.took();
    let all: u64 = took.iter().sum();
    let _ = write!(
        text,
        "# TYPE waypost_rules_apply_total counter\nwaypost_rules_apply_total {all}\n\
         # TYPE waypost_rules_target_retries_total counter\nwaypost_rules_target_retries_total {}\n\
         # TYPE waypost_rules_apply_duration_ms histogram\n",
        counts.applies.retries(),
    );
    let mut so_far = 0;
    for (most, count) in APPLY_BUCKETS_MS.iter().zip(&took) {
        so_far += count;
        let _ = writeln!(text, "waypost_rules_apply_duration_ms_bucket{{le=\"{most}\"}} {so_far}");
    }
    let _ = write!(
        text,
        "waypost_rules_apply_duration_ms_bucket{{le=\"+Inf\"}} {all}\nwaypost_rules_apply_duration_ms_sum {}\n\
         waypost_rules_apply_duration_ms_count {all}\n",
        counts.applies.took_ms(),
    );
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
