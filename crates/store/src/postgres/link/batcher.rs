//! Group commit on the client's side: the first of several writes goes out at once, those that come while it is under way go
//! out together as one list. Each is answered after its commit.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::seam::error::{Result, StoreError};
use crate::seam::verbs::Each;

/// Writes in one list.
const MOST: usize = 200;
/// A list that takes longer does not hold up the next one: a write of it may be waiting for somebody else's transaction. One that
/// takes as long as lists do is waited for: what a list costs by itself is worth ten of its writes.
const LONG: Duration = Duration::from_millis(20);
/// Lists under way at once.
const LISTS: usize = 4;

type Waiting<W, A> = Vec<(W, oneshot::Sender<Result<A>>)>;

pub struct Batcher<W, A> {
    waiting: Arc<Mutex<Waiting<W, A>>>,
    /// Of the one who sends what waits.
    turns: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

impl<W, A> fmt::Debug for Batcher<W, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("waiting", &lock(&self.waiting).len()).finish_non_exhaustive()
    }
}

impl<W: Send + 'static, A: Send + 'static> Batcher<W, A> {
    pub fn new() -> Batcher<W, A> {
        Batcher {
            waiting: Arc::default(),
            turns: Arc::new(Semaphore::new(1)),
            lists: Arc::new(Semaphore::new(LISTS)),
        }
    }

    /// A list of one is put together with others; a longer one goes out by itself. If the database is away, either fails as a
    /// whole.
    pub async fn list<F>(
        &self,
        mut list: Vec<W>,
        all: impl Fn(Vec<W>) -> F + Send + Sync + Clone + 'static,
    ) -> Result<Each<A>>
    where
        F: Future<Output = Result<Each<A>>> + Send + 'static,
    {
        let one = if list.len() == 1 { list.pop() } else { None };
        let Some(one) = one else { return all(list).await };
        match self.write(one, all).await {
            Err(error @ StoreError::Unavailable(_)) => Err(error),
            answer => Ok(vec![answer]),
        }
    }

    /// A caller that goes away does not stop the writes that were put together with its own.
    pub async fn write<F>(
        &self,
        one: W,
        all: impl Fn(Vec<W>) -> F + Send + Sync + Clone + 'static,
    ) -> Result<A>
    where
        F: Future<Output = Result<Each<A>>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).push((one, answer));
        if let Ok(turn) = self.turns.clone().try_acquire_owned() {
            tokio::spawn(drain(self.waiting.clone(), self.turns.clone(), self.lists.clone(), turn, all));
        }
        answered.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the write was given up".into())))
    }
}

async fn drain<W: Send, A: Send + 'static, F>(
    waiting: Arc<Mutex<Waiting<W, A>>>,
    turns: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    turn: OwnedSemaphorePermit,
    all: impl Fn(Vec<W>) -> F,
) where
    F: Future<Output = Result<Each<A>>> + Send + 'static,
{
    let mut turn = Some(turn);
    while turn.is_some() {
        let place = lists.clone().acquire_owned().await;
        let next: Waiting<W, A> = {
            let mut waiting = lock(&waiting);
            let count = waiting.len().min(MOST);
            waiting.drain(..count).collect()
        };
        if next.is_empty() {
            // A write that came after this look found no free turn, so the turn is given back before looking once more.
            turn = None;
            if !lock(&waiting).is_empty() {
                turn = turns.clone().try_acquire_owned().ok();
            }
            continue;
        }
        let (writes, answers): (Vec<W>, Vec<oneshot::Sender<Result<A>>>) = next.into_iter().unzip();
        let written = all(writes);
        let list = tokio::spawn(async move {
            answer(written.await, answers);
            drop(place);
        });
        let _ = timeout(LONG, list).await;
    }
}

/// A store that is away is away for all of them.
fn answer<A>(written: Result<Each<A>>, answers: Vec<oneshot::Sender<Result<A>>>) {
    match written {
        Ok(each) => each.into_iter().zip(answers).for_each(|(answer, to)| _ = to.send(answer)),
        Err(error) => answers.into_iter().for_each(|to| _ = to.send(Err(error.clone()))),
    }
}

fn lock<T>(waiting: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // One push or drain at a time: a panic elsewhere leaves nothing half done.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_write_is_answered_and_those_that_come_meanwhile_go_together() {
        let batcher = Arc::new(Batcher::<u32, u32>::new());
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..1_000_u32)
            .map(|number| {
                let (batcher, sizes) = (batcher.clone(), sizes.clone());
                tokio::spawn(async move {
                    let all = move |writes: Vec<u32>| {
                        lock(&sizes).push(writes.len());
                        async move {
                            tokio::task::yield_now().await;
                            let one = |write: u32| {
                                if write % 10 == 9 { Err(StoreError::no_run("nine")) } else { Ok(write * 2) }
                            };
                            Ok(writes.into_iter().map(one).collect())
                        }
                    };
                    batcher.write(number, all).await
                })
            })
            .collect();
        for (number, task) in (0..).zip(tasks) {
            let answer = task.await.expect("no panic");
            assert_eq!(answer.ok(), (number % 10 != 9).then_some(number * 2));
        }
        let sizes = lock(&sizes).clone();
        assert_eq!(sizes.iter().sum::<usize>(), 1_000);
        assert!(sizes.len() < 500 && sizes.iter().all(|size| *size <= MOST), "{sizes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_waits_for_somebody_holds_up_no_other() {
        let batcher = Arc::new(Batcher::<u32, u32>::new());
        let all = |writes: Vec<u32>| async move {
            if writes[0] == 0 {
                std::future::pending::<()>().await;
            }
            Ok(writes.into_iter().map(Ok).collect())
        };
        let first = batcher.clone();
        let hangs = tokio::spawn(async move { first.write(0, all).await });
        tokio::task::yield_now().await;
        for number in 1..10 {
            assert_eq!(batcher.write(number, all).await.ok(), Some(number));
        }
        assert!(!hangs.is_finished());
    }
}
