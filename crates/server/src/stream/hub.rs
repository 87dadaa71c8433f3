//! One reader of the feed for all clients of this server. What it read lies in a ring of bounded length: a client that is
//! slower than the ring reads what it missed from the store, so nobody's slowness costs memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;
use waypost_store::{EventRow, Store};

use crate::answer::Result;
use crate::app::App;

/// Events that the ring holds, 16 KiB of each at most: a larger one is read again by whoever wants it.
const RING: usize = 1_024;
const FRAME_BYTES: usize = 16 * 1024;
const PAGE: usize = 500;
/// A page that has so much may have been cut for its length.
const FULL_BYTES: usize = 256 * 1024;
/// Other servers' events come without a word.
const LOOK: Duration = Duration::from_millis(250);
const AFTER_AN_ERROR: Duration = Duration::from_secs(1);

/// An event as it is sent, made once for all who want it.
#[derive(Debug)]
pub struct Frame {
    pub position: u64,
    pub run_id: String,
    /// Its number in the run.
    pub seq: u64,
    pub tenant: String,
    pub lifecycle: String,
    pub topic: &'static str,
    /// Empty: it is too large for the ring.
    pub text: Bytes,
}

pub const STATUS: &str = "run.status.changed";
pub const ITEMS: &str = "run.items.changed";
pub const NOTE: &str = "run.noted";
pub const TOPICS: [&str; 3] = [STATUS, ITEMS, NOTE];

impl Frame {
    pub fn of(event: &EventRow) -> Frame {
        let topic = match &event.from {
            Some(from) if *from == event.to && event.command == "items" => ITEMS,
            Some(from) if *from == event.to => NOTE,
            _ => STATUS,
        };
        let text = format!("id: {}\nevent: {topic}\ndata: {}\n\n", event.position, event.object());
        Frame {
            position: event.position,
            run_id: event.run_id.clone(),
            seq: event.seq,
            tenant: event.tenant.clone(),
            lifecycle: event.lifecycle.clone(),
            topic,
            text: text.into(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Hub {
    live: Mutex<Option<Live>>,
    /// One at a time begins.
    beginning: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Live {
    frames: broadcast::Sender<Arc<Frame>>,
    /// All up to here was sent.
    position: u64,
}

/// Everything after `position` comes here.
#[derive(Debug)]
pub struct Subscription {
    pub frames: broadcast::Receiver<Arc<Frame>>,
    pub position: u64,
}

impl Hub {
    /// The reader starts with the first client, and ends with the last.
    pub async fn subscribe(&self, app: &Arc<App>) -> Result<Subscription> {
        if let Some(subscription) = self.join() {
            return Ok(subscription);
        }
        let _alone = self.beginning.lock().await;
        if let Some(subscription) = self.join() {
            return Ok(subscription);
        }
        let position = app.store.feed(None, 0).await?.position;
        let (sender, frames) = broadcast::channel(RING);
        *self.lock() = Some(Live { frames: sender, position });
        tokio::spawn(follow(app.clone(), position));
        Ok(Subscription { frames, position })
    }

    fn join(&self) -> Option<Subscription> {
        let live = self.lock();
        live.as_ref().map(|live| Subscription { frames: live.frames.subscribe(), position: live.position })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under one lock with the position, so that whoever joins has either the frame or a position before it. Nothing:
    /// there is nobody left to read for.
    fn send(&self, page: &[EventRow]) -> Option<(u64, usize)> {
        let mut live = self.lock();
        let current = live.as_mut()?;
        let mut bytes = 0;
        for event in page {
            let mut frame = Frame::of(event);
            bytes += frame.text.len();
            if frame.text.len() > FRAME_BYTES {
                frame.text = Bytes::new();
            }
            // Nobody listening is told of below.
            let _ = current.frames.send(Arc::new(frame));
            current.position = event.position;
        }
        let position = current.position;
        if current.frames.receiver_count() == 0 {
            *live = None;
            return None;
        }
        Some((position, bytes))
    }
}

async fn follow(app: Arc<App>, from: u64) {
    let mut position = from;
    loop {
        let page = match read(&*app.store, position).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "the feed could not be read; trying again");
                tokio::time::sleep(AFTER_AN_ERROR).await;
                Vec::new()
            }
        };
        let bytes = match app.hub.send(&page) {
            Some((sent, bytes)) => {
                position = sent;
                bytes
            }
            None => return,
        };
        // A page of large ones is short, and not the last.
        if page.len() < PAGE && bytes < FULL_BYTES {
            app.store.changed(LOOK).await;
        }
    }
}

async fn read(store: &dyn Store, after: u64) -> waypost_store::Result<Vec<EventRow>> {
    Ok(store.feed(Some(after), PAGE).await?.events)
}
