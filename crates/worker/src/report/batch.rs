//! Writes of many runs that go out together: the first at once, and those that come while it is under way with the next
//! one. No timer: what waits, waits for an answer and not for company.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use waypost_store::{Each, Result, StoreError};

/// A batch without an answer for this long holds up nobody else: what came meanwhile goes out beside it.
const HANGING: Duration = Duration::from_secs(5);

type Sent<A> = Pin<Box<dyn Future<Output = Result<Each<A>>> + Send>>;

pub(crate) struct Batcher<W, A>(Arc<Inner<W, A>>);

struct Inner<W, A> {
    send: Box<dyn Fn(Vec<W>) -> Sent<A> + Send + Sync>,
    /// Of one batch.
    most: usize,
    queue: Mutex<Queue<W, A>>,
}

struct Queue<W, A> {
    waiting: VecDeque<(W, oneshot::Sender<Result<A>>)>,
    /// Somebody sends what waits.
    is_sending: bool,
}

impl<W: Send + 'static, A: Send + 'static> Batcher<W, A> {
    pub fn new(most: usize, send: impl Fn(Vec<W>) -> Sent<A> + Send + Sync + 'static) -> Batcher<W, A> {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), is_sending: false });
        Batcher(Arc::new(Inner { send: Box::new(send), most, queue }))
    }

    /// The answer to this write, after its commit. Writes go out in the order in which they come; a caller that goes away
    /// takes nobody's with it.
    pub async fn write(&self, write: W) -> Result<A> {
        let (answer, answered) = oneshot::channel();
        let begins = {
            let mut queue = self.0.queue();
            queue.waiting.push_back((write, answer));
            !std::mem::replace(&mut queue.is_sending, true)
        };
        if begins {
            tokio::spawn(self.0.clone().send_all());
        }
        answered.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the write was given up".into())))
    }
}

impl<W: Send + 'static, A: Send + 'static> Inner<W, A> {
    async fn send_all(self: Arc<Self>) {
        while let Some(batch) = self.next() {
            let (writes, answers): (Vec<W>, Vec<_>) = batch.into_iter().unzip();
            let sent = (self.send)(writes);
            let batch = tokio::spawn(async move { answer(sent.await, answers) });
            let _ = timeout(HANGING, batch).await;
        }
    }

    fn next(&self) -> Option<Vec<(W, oneshot::Sender<Result<A>>)>> {
        let mut queue = self.queue();
        // Whose caller is gone is not sent any more.
        queue.waiting.retain(|(_, answer)| !answer.is_closed());
        let count = queue.waiting.len().min(self.most);
        queue.is_sending = count > 0;
        (count > 0).then(|| queue.waiting.drain(..count).collect())
    }

    fn queue(&self) -> MutexGuard<'_, Queue<W, A>> {
        // One push or drain at a time: a panic elsewhere leaves nothing half done.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store that is away is away for all of them.
fn answer<A>(sent: Result<Each<A>>, answers: Vec<oneshot::Sender<Result<A>>>) {
    match sent {
        Ok(each) => {
            for (answer, to) in each.into_iter().zip(answers) {
                let _ = to.send(answer);
            }
        }
        Err(error) => {
            for to in answers {
                let _ = to.send(Err(error.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Notify;
    use tokio::task::{JoinHandle, yield_now};

    type Asked = JoinHandle<Result<u32>>;

    fn ask(batcher: &Arc<Batcher<u32, u32>>, number: u32) -> Asked {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.write(number).await })
    }

    async fn answer(asked: Asked) -> Result<u32> {
        asked.await.expect("no panic")
    }

    fn doubled(write: u32) -> Result<u32> {
        if write % 10 == 9 { Err(StoreError::no_run("nine")) } else { Ok(write * 2) }
    }

    #[tokio::test]
    async fn the_first_goes_at_once_and_those_that_come_meanwhile_go_together() {
        let (sizes, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (seen, opened) = (sizes.clone(), gate.clone());
        let batcher = Arc::new(Batcher::new(40, move |writes: Vec<u32>| {
            let opened = opened.clone();
            seen.lock().expect("no panic").push(writes.len());
            Box::pin(async move {
                opened.notified().await;
                Ok(writes.into_iter().map(doubled).collect())
            })
        }));
        let is_sent = || !sizes.lock().expect("no panic").is_empty();
        let mut asked = vec![ask(&batcher, 0)];
        while !is_sent() {
            yield_now().await;
        }
        asked.extend((1..101).map(|number| ask(&batcher, number)));
        while !asked.iter().all(Asked::is_finished) {
            yield_now().await;
            gate.notify_one();
        }
        for (number, asked) in (0..).zip(asked) {
            assert_eq!(answer(asked).await.ok(), (number % 10 != 9).then_some(number * 2));
        }
        assert_eq!(*sizes.lock().expect("no panic"), [1, 40, 40, 20]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_hangs_holds_up_nobody_for_long() {
        let batcher = Arc::new(Batcher::new(10, |writes: Vec<u32>| {
            Box::pin(async move {
                if writes[0] == 0 {
                    std::future::pending::<()>().await;
                }
                Ok(writes.into_iter().map(Ok).collect())
            })
        }));
        let hangs = ask(&batcher, 0);
        yield_now().await;
        assert_eq!(batcher.write(1).await.ok(), Some(1));
        assert!(!hangs.is_finished());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_sent() {
        let (sent, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (seen, opened) = (sent.clone(), gate.clone());
        let batcher = Arc::new(Batcher::new(10, move |writes: Vec<u32>| {
            seen.lock().expect("no panic").extend(writes.iter().copied());
            let opened = opened.clone();
            Box::pin(async move {
                opened.notified().await;
                Ok(writes.into_iter().map(Ok).collect())
            })
        }));
        let [first, gone, last] = [0, 1, 2].map(|number| ask(&batcher, number));
        while sent.lock().expect("no panic").is_empty() {
            yield_now().await;
        }
        let late = [3, 4].map(|number| ask(&batcher, number));
        yield_now().await;
        gone.abort();
        late.iter().take(1).for_each(JoinHandle::abort);
        while !(first.is_finished() && last.is_finished() && late[1].is_finished()) {
            gate.notify_one();
            yield_now().await;
        }
        assert!(!sent.lock().expect("no panic").contains(&3));
    }

    #[tokio::test]
    async fn a_store_that_is_away_is_away_for_all() {
        let away =
            |_: Vec<u32>| -> Sent<u32> { Box::pin(async { Err(StoreError::Unavailable("away".into())) }) };
        let batcher = Arc::new(Batcher::new(10, away));
        for asked in (0..5).map(|number| ask(&batcher, number)).collect::<Vec<_>>() {
            assert!(matches!(answer(asked).await, Err(StoreError::Unavailable(_))));
        }
    }
}
