//! The queue of jobs for the writer's thread or for the readers', and how long it is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;

use super::fault;
use super::session::{Job, Tx, closed};
use crate::seam::error::{Result, StoreError};
use crate::seam::stats::PoolStatus;

#[derive(Clone)]
pub struct JobQueue {
    name: &'static str,
    threads: usize,
    jobs: mpsc::Sender<Job>,
    waiting: Arc<AtomicUsize>,
    /// Begun, and not answered yet.
    under_way: Arc<AtomicUsize>,
}

/// Counts one more for as long as it lives.
struct CountGuard(Arc<AtomicUsize>);

impl CountGuard {
    fn of(count: &Arc<AtomicUsize>) -> CountGuard {
        count.fetch_add(1, Ordering::Relaxed);
        CountGuard(count.clone())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl JobQueue {
    pub fn new(name: &'static str, threads: usize, jobs: mpsc::Sender<Job>) -> JobQueue {
        JobQueue { name, threads, jobs, waiting: Arc::default(), under_way: Arc::default() }
    }

    pub fn status(&self) -> PoolStatus {
        let waiting = self.waiting.load(Ordering::Relaxed);
        // While a job waits, no thread counts as idle: it may itself be waiting for the file's lock.
        let busy = self.under_way.load(Ordering::Relaxed) + waiting;
        let idle = self.threads.saturating_sub(busy);
        PoolStatus { name: self.name, most: self.threads, open: self.threads, idle, waiting }
    }

    pub async fn ask<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> fault::Result<T> + Send + 'static,
    {
        let (send, receive) = oneshot::channel();
        let (waiting, under_way) = (CountGuard::of(&self.waiting), self.under_way.clone());
        let job: Job = Box::new(move |tx| {
            drop(waiting);
            let busy = CountGuard::of(&under_way);
            let result = tx.and_then(|tx| Ok(work(tx)?));
            Box::new(move |failed: Option<StoreError>| {
                drop(busy);
                let _ = send.send(failed.map_or(result, Err));
            })
        });
        self.jobs.send(job).map_err(|_| closed())?;
        receive.await.unwrap_or_else(|_| Err(closed()))
    }
}
