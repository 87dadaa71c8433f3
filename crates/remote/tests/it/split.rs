//! A server and its store. What only a server does beside its database (time, care, plans) is asked there; everything
//! else goes over the wire.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use waypost_kernel::{Catalog, Lifecycle, Span, Time};
use waypost_remote::RemoteStore;
use waypost_server::{App, Options};
use waypost_store::*;
use waypost_worker::Stage;

use crate::conformance::{Opened, open_sqlite};

pub struct Split {
    here: Arc<dyn Database>,
    there: RemoteStore,
}

pub async fn open() -> Opened {
    let (here, url, lives) = serve().await;
    let there = RemoteStore::open(&url, None).await.unwrap();
    (Arc::new(Split { here, there }), lives)
}

/// A server on a port of its own: its store, its address, and what lives as long as it.
pub async fn serve() -> (Arc<dyn Database>, String, Box<dyn Any + Send>) {
    let (here, lives) = open_sqlite().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stage, shutdown) = watch::channel(Stage::Working);
    let app = App::new(here.clone(), Options::default(), shutdown);
    tokio::spawn(waypost_server::serve(app, listener));
    (here, format!("http://{address}"), Box::new((lives, stage)))
}

macro_rules! each {
    ($($(#[$_about:meta])* $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(one! { $verb($($name: $type),*) -> $answer })*
    };
}

macro_rules! one {
    // A server makes tokens itself, and tells nobody their digests; nor all tenants' audit log.
    (change_token $($rest:tt)*) => { one! { @here change_token $($rest)* } };
    (tokens $($rest:tt)*) => { one! { @here tokens $($rest)* } };
    (latest_audits $($rest:tt)*) => { one! { @here latest_audits $($rest)* } };
    (audits $($rest:tt)*) => { one! { @here audits $($rest)* } };
    // Nor what only those need who evaluate alerts.
    (alerts $($rest:tt)*) => { one! { @here alerts $($rest)* } };
    (silence_alert $($rest:tt)*) => { one! { @here silence_alert $($rest)* } };
    // It reads what is offered to it, and says itself what that is.
    (offer_playbooks $($rest:tt)*) => { one! { @here offer_playbooks $($rest)* } };
    ($verb:ident $($rest:tt)*) => { one! { @there $verb $($rest)* } };
    (@ $to:ident $verb:ident($($name:ident: $type:ty),*) -> $answer:ty) => {
        fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            self.$to.$verb($($name),*)
        }
    };
}

macro_rules! housekeeping {
    ($($(#[$_about:meta])* $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(kept! { $verb($($name: $type),*) -> $answer })*
    };
}

macro_rules! kept {
    (put_schedule $($_rest:tt)*) => {};
    ($($verb:tt)*) => { one! { @here $($verb)* } };
}

impl Store for Split {
    store_verbs!(each);

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Store::changed(&self.there, at_most)
    }
}

impl Housekeeping for Split {
    housekeeping_verbs!(housekeeping);

    /// Over the wire a schedule is always one that was applied.
    fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, ScheduleChanged> {
        match write.carried {
            true => {
                let who = Who::new(waypost_kernel::tenant::tenant_of(&write.name), "tests", None);
                self.there.change_schedule(ScheduleChange::Put(write), who)
            }
            false => self.here.put_schedule(write),
        }
    }
}
