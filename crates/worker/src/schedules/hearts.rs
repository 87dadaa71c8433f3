//! Signs of life and ends of all executions of a process, each in one request for many: with a hundred executions at once,
//! one request each is what a scheduler would spend its time on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use waypost_store::{FinishWrite, Result, RunRow, Store, StoreError};

use crate::heartbeat;
use crate::lease::Lease;
use crate::shutdown::Stage;

/// How often it is looked who is to give a sign.
const LOOK: Duration = Duration::from_millis(100);
/// Of one request.
const MOST: usize = 200;
/// An answer that takes longer is not waited for before the next sign.
const ANSWER: Duration = Duration::from_secs(3);

struct Beating {
    lease: Arc<Lease>,
    every: Duration,
    next: Instant,
}

pub(super) struct Hearts {
    store: Arc<dyn Store>,
    held: Mutex<HashMap<String, Beating>>,
    finishes: mpsc::UnboundedSender<Ended>,
    /// Runs whose ends are to be noticed by the next tick.
    ended: Mutex<Vec<String>>,
}

struct Ended {
    write: FinishWrite,
    answer: oneshot::Sender<Result<RunRow>>,
}

/// A lease that is kept alive until this is dropped.
pub(super) struct Beats<'h> {
    hearts: &'h Hearts,
    lease: Arc<Lease>,
}

impl Drop for Beats<'_> {
    fn drop(&mut self) {
        let mut held = self.hearts.held();
        let run_id = &self.lease.held.run_id;
        if held.get(run_id).is_some_and(|it| Arc::ptr_eq(&it.lease, &self.lease)) {
            held.remove(run_id);
        }
    }
}

impl Hearts {
    /// With the tasks that are to be stopped when nobody needs it any more.
    pub fn new(store: Arc<dyn Store>) -> (Arc<Hearts>, [JoinHandle<()>; 2]) {
        let (finishes, waiting) = mpsc::unbounded_channel();
        let hearts = Arc::new(Hearts { store, held: Mutex::default(), finishes, ended: Mutex::default() });
        let tasks = [
            tokio::spawn(hearts.clone().beat()),
            tokio::spawn(Hearts::report(hearts.store.clone(), waiting)),
        ];
        (hearts, tasks)
    }

    pub fn hold(&self, lease: &Arc<Lease>, every: Duration) -> Beats<'_> {
        let beating = Beating { lease: lease.clone(), every, next: Instant::now() + every };
        self.held().insert(lease.held.run_id.clone(), beating);
        Beats { hearts: self, lease: lease.clone() }
    }

    pub fn stop_all(&self, stage: Stage) {
        self.held().values().for_each(|it| it.lease.stop(stage));
    }

    async fn beat(self: Arc<Hearts>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let due = self.due(Instant::now());
            if !due.is_empty() {
                let hearts = self.clone();
                // One that hangs does not hold up the next.
                tokio::spawn(async move { timeout(ANSWER, hearts.renew(due)).await });
            }
        }
    }

    fn due(&self, now: Instant) -> Vec<Arc<Lease>> {
        let mut due = Vec::new();
        for it in self.held().values_mut().filter(|it| it.next <= now && !it.lease.is_lost()) {
            it.next = now + it.every;
            due.push(it.lease.clone());
        }
        due
    }

    async fn renew(&self, leases: Vec<Arc<Lease>>) {
        heartbeat::renew(&*self.store, &leases, |run_id| self.held().contains_key(run_id)).await;
    }

    /// With whatever else ends at the same time.
    pub async fn finish(&self, write: FinishWrite) -> Result<RunRow> {
        let (answer, answered) = oneshot::channel();
        let stopped = || StoreError::Unavailable("the scheduler has stopped".into());
        self.finishes.send(Ended { write, answer }).map_err(|_| stopped())?;
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }

    async fn report(store: Arc<dyn Store>, mut waiting: mpsc::UnboundedReceiver<Ended>) {
        let mut ended = Vec::new();
        while waiting.recv_many(&mut ended, MOST).await > 0 {
            let (writes, answers): (Vec<_>, Vec<_>) =
                ended.drain(..).map(|Ended { write, answer }| (write, answer)).unzip();
            match store.finish(writes).await {
                Ok(results) => {
                    answers.into_iter().zip(results).for_each(|(answer, result)| drop(answer.send(result)));
                }
                Err(error) => answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone())))),
            }
        }
    }

    pub fn notice(&self, run_id: &str) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(run_id.to_owned());
    }

    /// What ended since is looked at by the next tick, whoever's it is. If that cannot be told, it is noticed when its
    /// lease would end.
    pub async fn tell(&self) {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        if ended.is_empty() {
            return;
        }
        if let Err(error) = self.store.look_again(ended).await {
            tracing::debug!(%error, "ends of executions are noticed later");
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Beating>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
