//! What one client is sent. It is pulled by the connection: nothing is read for a client that takes nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::json;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, timeout};
use waypost_store::EventRow;

use super::hub::{Frame, Subscription};
use crate::answer::Result;
use crate::app::App;
use crate::guard::Caller;
use crate::metrics::Present;
use crate::room::bytes::Bytes as Held;
use crate::room::shares::Share;
use crate::tokens::FRESH;

const HEARTBEAT: Duration = Duration::from_secs(15);
/// Looked through for a client that comes back, whatever it wants of them; beyond that fetching anew is cheaper.
const MOST_REPLAYED: usize = 50_000;
const PAGE: usize = 500;
/// Of one write to the socket.
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub struct Want {
    pub tenant: String,
    pub run_id: Option<String>,
    /// Stored names: what the tenant may mean by the one that it gave.
    pub lifecycles: Option<Vec<String>>,
    pub topics: Option<Vec<String>>,
}

impl Want {
    fn takes(&self, frame: &Frame) -> bool {
        let is = |asked: &Option<String>, has: &str| asked.as_ref().is_none_or(|asked| asked == has);
        frame.tenant == self.tenant
            && is(&self.run_id, &frame.run_id)
            && self.lifecycles.as_ref().is_none_or(|names| names.contains(&frame.lifecycle))
            && self.topics.as_ref().is_none_or(|topics| topics.iter().any(|topic| topic == frame.topic))
    }
}

#[derive(Debug)]
pub struct Reader {
    app: Arc<App>,
    caller: Caller,
    _share: Option<Share>,
    /// When the caller's token was last looked at.
    checked_at: Instant,
    /// When something was last sent.
    sent_at: Instant,
    want: Want,
    live: Subscription,
    /// All up to here was looked at for this client.
    at: u64,
    /// Below the subscription's position: what lies between is read from the store.
    is_behind: bool,
    looked_through: usize,
    /// Of a stream of one run: the number of its last event that was looked at.
    run_seq: u64,
    ready: VecDeque<Bytes>,
    /// What was read from the store and the client has not taken.
    held: Option<Held>,
    _present: Present,
}

impl Reader {
    pub async fn begin(
        app: Arc<App>,
        (caller, share): (Caller, Option<Share>),
        want: Want,
        seen: Option<u64>,
        after: Option<u64>,
    ) -> Result<Reader> {
        let live = app.hub.subscribe(&app).await?;
        let present = app.metrics.streaming();
        let at = seen.or(after).unwrap_or(live.position);
        let mut reader = Reader {
            is_behind: at < live.position,
            app,
            caller,
            _share: share,
            checked_at: Instant::now(),
            sent_at: Instant::now(),
            want,
            live,
            at,
            looked_through: 0,
            run_seq: 0,
            ready: VecDeque::new(),
            held: None,
            _present: present,
        };
        let hello = json!({ "position": at });
        reader.ready.push_back(format!("retry: 1000\n: waypost\n\nevent: ready\ndata: {hello}\n\n").into());
        let is_ahead = at > reader.live.position;
        // 0 is before all of them.
        let is_id = is_ahead || seen.is_some_and(|seen| seen > 0) && reader.is_behind;
        if is_id && !reader.find(at).await? {
            reader.reset("the event that was seen last is not there (any more)");
        }
        Ok(reader)
    }

    /// Whether an event stands at this position. One of the run that is followed tells where to go on in the run: else every
    /// client that comes back would read it from its beginning.
    async fn find(&mut self, position: u64) -> Result<bool> {
        let found = self.app.store.feed(Some(position.saturating_sub(1)), 1).await?.events;
        let found = found.first().filter(|event| event.position == position);
        if let Some(event) = found.filter(|event| self.want.run_id.as_ref() == Some(&event.run_id)) {
            self.run_seq = event.seq;
        }
        Ok(found.is_some())
    }

    /// No id: a client that comes back before anything else was sent asks for the same again.
    fn reset(&mut self, why: &str) {
        self.app.metrics.resets.inc();
        self.at = self.live.position;
        self.is_behind = false;
        self.looked_through = 0;
        let data = json!({ "position": self.at, "reason": why });
        self.ready.push_back(format!("event: reset\ndata: {data}\n\n").into());
    }

    /// The next bytes; nothing: the stream ends, and the client comes back by itself.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            let went_well = self.check_token().await;
            if went_well.is_ok()
                && let Some(chunk) = self.chunk()
            {
                self.sent_at = Instant::now();
                return Some(chunk);
            }
            if self.app.is_stopping() {
                return None;
            }
            let went_well = match went_well {
                Ok(()) if self.is_behind => self.catch_up().await,
                Ok(()) => self.listen().await,
                Err(problem) => Err(problem),
            };
            if let Err(problem) = went_well {
                tracing::debug!(code = problem.code, "a stream ends: {}", problem.detail);
                return None;
            }
        }
    }

    /// Who may no longer look is not sent more, whatever else happens: by a clock, and before anything is sent.
    async fn check_token(&mut self) -> Result<()> {
        if self.checked_at.elapsed() >= FRESH {
            self.caller.check_again(&self.app).await?;
            self.checked_at = Instant::now();
        }
        Ok(())
    }

    /// What is ready, in one piece.
    fn chunk(&mut self) -> Option<Bytes> {
        let Some(first) = self.ready.pop_front() else {
            self.held = None;
            return None;
        };
        if self.ready.is_empty() {
            return Some(first);
        }
        let mut chunk = BytesMut::from(&first[..]);
        while self.ready.front().is_some_and(|next| chunk.len() + next.len() <= CHUNK_BYTES) {
            self.ready.pop_front().into_iter().for_each(|next| chunk.put(next));
        }
        Some(chunk.freeze())
    }

    fn take(&mut self, frame: &Frame) {
        if frame.position <= self.at {
            return;
        }
        self.at = frame.position;
        if self.want.run_id.as_ref() == Some(&frame.run_id) {
            self.run_seq = frame.seq;
        }
        if self.want.takes(frame) {
            self.app.metrics.streamed.inc();
            self.ready.push_back(frame.text.clone());
        }
    }

    async fn catch_up(&mut self) -> Result<()> {
        let page: Vec<EventRow> = match &self.want.run_id {
            Some(run_id) => self.app.store.events(run_id.clone(), self.run_seq, PAGE).await?,
            None => self.app.store.feed(Some(self.at), PAGE).await?.events,
        };
        let position = self.live.position;
        // A page of large ones is short, and not the last.
        let is_last = page.is_empty();
        for event in page {
            // What came later comes live; a run's events are in the order of their positions too. It was not sent yet: if the
            // ring goes on without this client once more, it is read here again.
            if event.position > position {
                self.is_behind = false;
                break;
            }
            self.run_seq = event.seq;
            self.looked_through += 1;
            self.take(&Frame::of(&event));
        }
        if is_last {
            self.is_behind = false;
        }
        let mut held = self.app.answers.open(self.caller.token_id());
        held.hold(self.ready.iter().map(Bytes::len).sum())?;
        self.held = Some(held);
        if !self.is_behind {
            self.at = self.at.max(position);
            self.looked_through = 0;
        } else if self.looked_through > MOST_REPLAYED && self.want.run_id.is_none() {
            self.reset("more happened since than is shown again");
        }
        Ok(())
    }

    async fn listen(&mut self) -> Result<()> {
        let stopping = self.app.clone();
        let received = tokio::select! {
            received = timeout(FRESH, self.live.frames.recv()) => received,
            () = stopping.stopping() => return Ok(()),
        };
        match received {
            Ok(Ok(frame)) => match self.take_live(&frame) {
                true => self.take_waiting().await,
                false => Ok(()),
            },
            Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) => self.go_back().await,
            Err(_) => {
                if self.sent_at.elapsed() >= HEARTBEAT {
                    self.ready.push_back(Bytes::from_static(b": beat\n\n"));
                }
                Ok(())
            }
        }
    }

    /// False: what the ring has no room for is read from the store, and what follows after it.
    fn take_live(&mut self, frame: &Frame) -> bool {
        if frame.text.is_empty() && frame.position > self.at && self.want.takes(frame) {
            self.live.position = self.live.position.max(frame.position);
            self.is_behind = true;
            return false;
        }
        self.take(frame);
        true
    }

    async fn take_waiting(&mut self) -> Result<()> {
        let mut bytes = 0;
        while bytes < CHUNK_BYTES {
            match self.live.frames.try_recv() {
                Ok(frame) => {
                    bytes += frame.text.len();
                    if !self.take_live(&frame) {
                        break;
                    }
                }
                Err(TryRecvError::Empty) => break,
                // It is told once: what comes next would leave out what was lost.
                Err(TryRecvError::Lagged(_) | TryRecvError::Closed) => return self.go_back().await,
            }
        }
        Ok(())
    }

    /// The ring has gone on without this client: what it missed is in the store.
    async fn go_back(&mut self) -> Result<()> {
        self.app.metrics.fell_behind.inc();
        self.live = self.app.hub.subscribe(&self.app).await?;
        self.is_behind = self.at < self.live.position;
        Ok(())
    }
}
