//! How waiting claimers learn of work: a notification without content on channel `waypost`, which says "look".
//!
//! It is never part of a commit that writes (it takes a lock of the whole server there: commits of eight clients fell
//! from 11.6k/s to 3.5k/s). The first goes out at once; while there is always another one to send, the time between two of
//! them grows to 20 ms. Claimers look from time to time in any case, so that a lost notification costs time and nothing else.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;

use super::address::Address;
use super::fault::Result;
use super::open::connect;
use super::pooler;
use crate::tokens::random;

/// Between two that are sent, at first and at most: it doubles as long as each finds the next one waiting.
const SHORTEST_SPACING: Duration = Duration::from_millis(1);
const LONGEST_SPACING: Duration = Duration::from_millis(20);
/// How often a waiting claimer looks although it was not notified: while it listens, and while it cannot.
const LOOK_LISTENING: Duration = Duration::from_secs(1);
const LOOK_POLLING: Duration = Duration::from_millis(100);
/// A connection that died without a word is noticed within this.
const PULSE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(5);
const RECONNECT: Duration = Duration::from_secs(1);

/// Whether this store hears of other processes' changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenState {
    /// Nobody has waited for a change yet.
    Untried,
    Listening,
    /// Notifications do not arrive: there is no connection at the moment, or only one through a pooler.
    Polling,
}

#[derive(Debug)]
pub struct Notifier {
    address: Address,
    changed: Arc<Notify>,
    orders: mpsc::Sender<()>,
    /// Taken by the task when it starts.
    ordered: std::sync::Mutex<Option<mpsc::Receiver<()>>>,
    begun: Once,
    has_notified: AtomicBool,
    listens: Arc<AtomicBool>,
    state: Arc<AtomicU8>,
}

impl Notifier {
    pub fn new(address: Address) -> Notifier {
        // Room for one order: it also serves those who come while it waits.
        let (orders, ordered) = mpsc::channel(1);
        Notifier {
            address,
            changed: Arc::new(Notify::new()),
            orders,
            ordered: std::sync::Mutex::new(Some(ordered)),
            begun: Once::new(),
            has_notified: AtomicBool::new(false),
            listens: Arc::new(AtomicBool::new(false)),
            state: Arc::new(AtomicU8::new(ListenState::Untried as u8)),
        }
    }

    pub fn listen_state(&self) -> ListenState {
        match self.state.load(Ordering::Acquire) {
            at if at == ListenState::Untried as u8 => ListenState::Untried,
            at if at == ListenState::Listening as u8 => ListenState::Listening,
            _ => ListenState::Polling,
        }
    }

    /// After a commit. The first notification goes out on the connection at hand, so that a process that ends at once
    /// (`run start`) has told of its run; the others go out on a connection of their own.
    pub async fn notify(&self, made_ready: bool, client: &Client) {
        self.changed.notify_waiters();
        if !made_ready {
            return;
        }
        if self.has_notified.swap(true, Ordering::AcqRel) {
            self.begin();
            let _ = self.orders.try_send(());
        } else {
            let _ = client.batch_execute("NOTIFY waypost").await;
        }
    }

    pub async fn wait(&self, at_most: Duration) {
        let changed = self.changed.notified();
        if !self.listens.swap(true, Ordering::AcqRel) {
            self.begin();
        }
        let look = if self.listen_state() == ListenState::Listening { LOOK_LISTENING } else { LOOK_POLLING };
        // Not all at once.
        let look = look.mul_f64(0.8 + (random() as u32 as f64 / f64::from(u32::MAX)) * 0.4);
        let _ = timeout(at_most.min(look), changed).await;
    }

    fn begin(&self) {
        self.begun.call_once(|| {
            let ordered = self.ordered.lock().ok().and_then(|mut ordered| ordered.take());
            let Some(ordered) = ordered else { return };
            let task = NotifyTask {
                address: self.address.clone(),
                changed: self.changed.clone(),
                listens: self.listens.clone(),
                state: self.state.clone(),
                warned: false,
            };
            tokio::spawn(task.run(ordered));
        });
    }
}

/// The task with the connection of its own. Ends with the store.
struct NotifyTask {
    address: Address,
    changed: Arc<Notify>,
    listens: Arc<AtomicBool>,
    state: Arc<AtomicU8>,
    warned: bool,
}

impl NotifyTask {
    async fn run(mut self, mut orders: mpsc::Receiver<()>) {
        loop {
            let ended = self.run_once(&mut orders).await;
            self.hear(ListenState::Polling);
            match ended {
                Ok(()) => return,
                Err(fault) => tracing::debug!(error = %fault.into_error(), "no connection for notifications"),
            }
            sleep(RECONNECT).await;
        }
    }

    fn hear(&self, state: ListenState) {
        if self.listens.load(Ordering::Acquire) {
            self.state.store(state as u8, Ordering::Release);
        }
    }

    /// As long as the connection lasts; `Ok` when the store is gone.
    async fn run_once(&mut self, orders: &mut mpsc::Receiver<()>) -> Result<()> {
        let (client, mut heard) = connect(&self.address).await?;
        let mut listening = false;
        // Nothing is lost with such a commit but a hint, so it waits for no disk.
        client.batch_execute("SET synchronous_commit = off").await?;
        let mut spacing = Spacing::new(Instant::now());
        let mut due: Option<Instant> = None;
        let mut pulse = Instant::now() + PULSE;
        loop {
            if self.listens.load(Ordering::Acquire) && !listening {
                listening = true;
                let hears = self.listen(&client, &mut heard).await?;
                self.set_listening(hears);
            }
            let turn = pulse.min(Instant::now() + LOOK_LISTENING);
            tokio::select! {
                order = orders.recv(), if due.is_none() => {
                    let Some(()) = order else { return Ok(()) };
                    due = Some(spacing.due(Instant::now()));
                }
                () = tokio::time::sleep_until(due.unwrap_or(turn)), if due.is_some() => {
                    // Counted from when it was to go out: a timer's lateness would add up.
                    spacing.sent(due.take().unwrap_or(turn));
                    client.batch_execute("NOTIFY waypost").await?;
                }
                sound = heard.recv() => match sound {
                    Some(()) => self.changed.notify_waiters(),
                    None => client.batch_execute("").await?,
                },
                () = tokio::time::sleep_until(turn) => {
                    if client.is_closed() || Instant::now() >= pulse {
                        timeout(PATIENCE, client.batch_execute("")).await.unwrap_or(Ok(()))?;
                        pulse = Instant::now() + PULSE;
                    }
                }
            }
        }
    }

    /// A pooler accepts a LISTEN, leaves it in a session that others get, and never delivers. So nothing listens through a
    /// pooler, and without one a notification from another connection has to arrive before this counts as listening.
    async fn listen(&self, client: &Client, heard: &mut mpsc::Receiver<()>) -> Result<bool> {
        let (other, _hears) = connect(&self.address).await?;
        if pooler::is_between(client, &other).await? {
            return Ok(false);
        }
        client.batch_execute("LISTEN waypost").await?;
        other.batch_execute("NOTIFY waypost").await?;
        Ok(timeout(PATIENCE, heard.recv()).await.is_ok_and(|sound| sound.is_some()))
    }

    fn set_listening(&mut self, hears: bool) {
        self.hear(if hears { ListenState::Listening } else { ListenState::Polling });
        if !hears && !self.warned {
            self.warned = true;
            tracing::warn!(
                "notifications do not arrive: behind a pooler, give the server's own address. Work is looked for every 100 ms instead"
            );
        }
    }
}

/// When the next notification may go out.
struct Spacing {
    not_before: Instant,
    spacing: Duration,
}

impl Spacing {
    fn new(now: Instant) -> Spacing {
        Spacing { not_before: now, spacing: SHORTEST_SPACING }
    }

    /// At once if the last one is long enough ago.
    fn due(&mut self, now: Instant) -> Instant {
        let waits = now < self.not_before;
        self.spacing = if waits { (self.spacing * 2).min(LONGEST_SPACING) } else { SHORTEST_SPACING };
        self.not_before.max(now)
    }

    fn sent(&mut self, at: Instant) {
        self.not_before = at + self.spacing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_is_told_at_once_and_a_crowd_less_and_less_often() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut spacing = Spacing::new(begun);
        for now in [0, 20, 40, 41, 60] {
            assert_eq!(spacing.due(at(now)), at(now), "one by one, at {now} ms");
            spacing.sent(at(now));
        }
        // Another one is there as soon as one was sent.
        let mut sent = vec![60];
        for _ in 0..7 {
            let due = spacing.due(at(sent[sent.len() - 1]));
            spacing.sent(due);
            sent.push((due - begun).as_millis() as u64);
        }
        assert_eq!(sent, [60, 61, 63, 67, 75, 91, 111, 131]);
        assert_eq!(spacing.due(at(200)), at(200));
    }
}
