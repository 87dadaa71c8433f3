//! A store that knows when the last end of a run was accepted. A worker that is told to drain waits for the claim that it has at a
//! server, for up to two seconds: its stop says nothing about how long its runs took.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use waypost_kernel::{Catalog, Lifecycle, Time};
use waypost_store::*;

pub struct Ends {
    inner: Arc<dyn Store>,
    last: Mutex<Option<Instant>>,
}

impl Ends {
    pub fn of(inner: Arc<dyn Store>) -> Ends {
        Ends { inner, last: Mutex::new(None) }
    }

    pub fn last(&self) -> Option<Instant> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

macro_rules! each {
    ($($(#[$_about:meta])* $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(one! { $verb($($name: $type),*) -> $answer })*
    };
}

macro_rules! one {
    (finish $($_rest:tt)*) => {};
    ($verb:ident($($name:ident: $type:ty),*) -> $answer:ty) => {
        fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            self.inner.$verb($($name),*)
        }
    };
}

impl Store for Ends {
    store_verbs!(each);

    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        Box::pin(async move {
            let answers = self.inner.finish(finishes).await;
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            answers
        })
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.inner.changed(at_most)
    }

    fn event_after(
        &self,
        run_id: &str,
        seq: u64,
        at_most: Duration,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let run_id = run_id.to_owned();
        Box::pin(async move { self.inner.event_after(&run_id, seq, at_most).await })
    }

    fn claim_wait(&self) -> Option<Duration> {
        self.inner.claim_wait()
    }
}
