//! A store that can be made to fail, or to answer never.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use waypost_kernel::{Catalog, Lifecycle, Span, Time};
use waypost_store::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Here,
    Away,
    Hanging,
}

pub struct Faulty {
    pub inner: Arc<dyn Database>,
    mode: AtomicU8,
    /// Verbs that were not answered.
    pub missed: AtomicU64,
    /// Writes until it answers no more, as when a worker dies: the last one is carried out or not.
    fuse: AtomicI64,
    carries_out_the_last: AtomicBool,
    /// No end of a run is accepted.
    pub refuses_ends: AtomicBool,
    /// Ends wait before this.
    pub ends: Gate,
    /// Claims are carried out, and their answers wait before this.
    pub claims: Gate,
    /// Heartbeats bring no news of what people want.
    pub is_deaf: AtomicBool,
    /// How many ends each request had.
    pub batches: Mutex<Vec<usize>>,
}

/// Open, until a test closes it.
pub struct Gate(watch::Sender<bool>);

impl Gate {
    fn open() -> Gate {
        Gate(watch::Sender::new(true))
    }

    pub fn set(&self, open: bool) {
        self.0.send_replace(open);
    }

    /// Somebody stands before it.
    pub async fn until_one_waits(&self) {
        crate::support::eventually("somebody waits at a gate", async || {
            (self.0.receiver_count() > 0).then_some(())
        })
        .await;
    }

    async fn pass(&self) {
        self.0.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

impl Faulty {
    pub fn new(inner: Arc<dyn Database>) -> Arc<Faulty> {
        Arc::new(Faulty {
            inner,
            mode: AtomicU8::new(Mode::Here as u8),
            missed: AtomicU64::new(0),
            fuse: AtomicI64::new(i64::MAX),
            carries_out_the_last: AtomicBool::new(false),
            refuses_ends: AtomicBool::new(false),
            ends: Gate::open(),
            claims: Gate::open(),
            is_deaf: AtomicBool::new(false),
            batches: Mutex::default(),
        })
    }

    /// The `number`-th write from now is the last that it is asked for.
    pub fn die_at_write(&self, number: i64, carried_out: bool) {
        self.carries_out_the_last.store(carried_out, Ordering::SeqCst);
        self.fuse.store(number, Ordering::SeqCst);
    }

    /// How many writes it was asked for, if it was not told to die.
    pub fn writes(&self) -> i64 {
        i64::MAX - self.fuse.load(Ordering::SeqCst)
    }

    pub fn is_dead(&self) -> bool {
        self.fuse.load(Ordering::SeqCst) <= 0
    }

    fn write<'a, T: Send + 'a>(&'a self, reply: impl FnOnce() -> Reply<'a, T>) -> Reply<'a, T> {
        let left = self.fuse.fetch_sub(1, Ordering::SeqCst) - 1;
        if left > 0 {
            return self.pass(reply);
        }
        let carried_out = (left == 0 && self.carries_out_the_last.load(Ordering::SeqCst)).then(reply);
        self.set(Mode::Hanging);
        Box::pin(async {
            if let Some(reply) = carried_out {
                let _ = reply.await;
            }
            std::future::pending().await
        })
    }

    pub fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
    }

    fn pass<'a, T: Send + 'a>(&'a self, reply: impl FnOnce() -> Reply<'a, T>) -> Reply<'a, T> {
        let mode = self.mode.load(Ordering::SeqCst);
        if mode == Mode::Here as u8 {
            return reply();
        }
        self.missed.fetch_add(1, Ordering::SeqCst);
        if mode == Mode::Hanging as u8 {
            return Box::pin(std::future::pending());
        }
        Box::pin(async { Err(StoreError::Unavailable("the test took it away".to_owned())) })
    }
}

macro_rules! each {
    ($($(#[$_about:meta])* $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(one! { $verb($($name: $type),*) -> $answer })*
    };
}

macro_rules! one {
    // Those that have gates are written out below.
    (claim $($_rest:tt)*) => {};
    (finish $($_rest:tt)*) => {};
    (renew $($_rest:tt)*) => {};
    // Those that a dying worker may be in the middle of.
    (command $($rest:tt)*) => { one! { @write command $($rest)* } };
    (note $($rest:tt)*) => { one! { @write note $($rest)* } };
    (require_cleanup $($rest:tt)*) => { one! { @write require_cleanup $($rest)* } };
    (put_items $($rest:tt)*) => { one! { @write put_items $($rest)* } };
    (put_cursor $($rest:tt)*) => { one! { @write put_cursor $($rest)* } };
    (leave_behind $($rest:tt)*) => { one! { @write leave_behind $($rest)* } };
    (catch_up_with $($rest:tt)*) => { one! { @write catch_up_with $($rest)* } };
    (acknowledge $($rest:tt)*) => { one! { @write acknowledge $($rest)* } };
    ($verb:ident $($rest:tt)*) => { one! { @pass $verb $($rest)* } };
    (@ $how:ident $verb:ident($($name:ident: $type:ty),*) -> $answer:ty) => {
        fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            self.$how(move || self.inner.$verb($($name),*))
        }
    };
}

impl Store for Faulty {
    store_verbs!(each);

    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>> {
        let claimed = self.pass(move || self.inner.claim(claim));
        Box::pin(async move {
            let claimed = claimed.await;
            self.claims.pass().await;
            claimed
        })
    }

    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>> {
        let renewed = self.pass(move || self.inner.renew(leases));
        let is_deaf = self.is_deaf.load(Ordering::SeqCst);
        let heard =
            move |renewed: Renewed| if is_deaf { Renewed { intent: None, ..renewed } } else { renewed };
        Box::pin(async move { Ok(renewed.await?.into_iter().map(|each| each.map(heard)).collect()) })
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.inner.changed(at_most)
    }

    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        if self.refuses_ends.load(Ordering::SeqCst) {
            let refused = |_| Err(StoreError::invalid("status", "the test takes none"));
            return Box::pin(async move { Ok(finishes.into_iter().map(refused).collect()) });
        }
        self.batches.lock().unwrap().push(finishes.len());
        let ended = self.write(move || self.inner.finish(finishes));
        Box::pin(async move {
            self.ends.pass().await;
            ended.await
        })
    }
}

impl Housekeeping for Faulty {
    housekeeping_verbs!(each);
}
