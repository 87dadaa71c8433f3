//! Follow all events, by pages and as streams, at one server until that fails, then at the next from where they were.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::record::{Reading, Seen};
use super::shared::Shared;
use super::wire::{request, stream};

/// After the last event is known, how long a reader may go without anything new.
const PATIENCE: Duration = Duration::from_secs(20);
const PAGE: usize = 200;

pub struct Reader {
    shared: Arc<Shared>,
    /// The position of the last event, once there will be no more.
    last: watch::Receiver<Option<u64>>,
    server: usize,
    seen: Seen,
    moved: Instant,
}

impl Reader {
    pub fn new(
        shared: &Arc<Shared>,
        last: watch::Receiver<Option<u64>>,
        how: Reading,
        number: usize,
    ) -> Reader {
        let reader = format!("{} {number}", if how == Reading::Feed { "feed reader" } else { "stream" });
        let seen = Seen { reader, how, events: Vec::new(), resets: Vec::new(), reconnects: 0 };
        let server = number % shared.addresses.len();
        Reader { shared: shared.clone(), last, server, seen, moved: Instant::now() }
    }

    fn position(&self) -> u64 {
        let reset = self.seen.resets.last().map_or(0, |(_, until)| *until);
        self.seen.events.last().map_or(0, |event| event.0).max(reset)
    }

    /// All was seen, or nothing more comes.
    fn is_done(&self) -> bool {
        let last = *self.last.borrow();
        last.is_some_and(|last| self.position() >= last || self.moved.elapsed() > PATIENCE)
    }

    fn take(&mut self, event: &Value) {
        let (position, seq) = (event["position"].as_u64().unwrap(), event["seq"].as_u64().unwrap());
        self.seen.events.push((position, event["run_id"].as_str().unwrap().to_owned(), seq));
        self.moved = Instant::now();
    }

    fn next_server(&mut self) {
        self.server = (self.server + 1) % self.shared.addresses.len();
        self.seen.reconnects += 1;
    }

    /// A moment, or until the end is known.
    async fn rest(&mut self, at_most_ms: u64) {
        if self.last.borrow().is_some() {
            tokio::task::yield_now().await;
        } else {
            let _ = timeout(Duration::from_millis(at_most_ms), self.last.changed()).await;
        }
    }

    pub async fn read(mut self) -> Seen {
        match self.seen.how {
            Reading::Feed => self.pages().await,
            Reading::Stream => self.streams().await,
        }
        self.seen
    }

    async fn pages(&mut self) {
        // Where to go on is the server's word, as it is for any reader.
        let mut after = 0;
        while !self.is_done() {
            let path = format!("/v1/events?after={after}&limit={PAGE}");
            match request(&self.shared.addresses[self.server], "GET", &path, "", &Value::Null).await {
                Ok(reply) if reply.status == 200 => {
                    let events = reply.body["events"].as_array().unwrap();
                    events.iter().for_each(|event| self.take(event));
                    after = reply.body["next_after"].as_u64().unwrap();
                    if events.len() < PAGE {
                        self.rest(10).await;
                    }
                }
                _ => {
                    self.next_server();
                    self.rest(20).await;
                }
            }
        }
    }

    async fn streams(&mut self) {
        while !self.is_done() {
            let address = self.shared.addresses[self.server].clone();
            if let Ok(mut socket) = stream(&address, self.position()).await {
                self.follow(&mut socket).await;
            }
            self.next_server();
            self.rest(20).await;
        }
    }

    /// Until the connection ends.
    async fn follow(&mut self, socket: &mut TcpStream) {
        let (mut bytes, mut chunk) = (Vec::new(), vec![0; 64 * 1_024]);
        while !self.is_done() {
            let read = match timeout(Duration::from_millis(500), socket.read(&mut chunk)).await {
                Err(_) => continue,
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(read)) => read,
            };
            bytes.extend_from_slice(&chunk[..read]);
            while let Some(end) = bytes.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = bytes.drain(..end + 2).collect();
                self.block(std::str::from_utf8(&block).unwrap());
            }
        }
    }

    fn block(&mut self, block: &str) {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let Some(data) = field("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok()) else {
            return;
        };
        if field("event: ") == Some("reset") {
            let after = self.position();
            self.seen.resets.push((after, data["position"].as_u64().unwrap()));
        } else if field("id: ").is_some() {
            self.take(&data);
        }
    }
}
