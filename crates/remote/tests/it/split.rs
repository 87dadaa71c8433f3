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

macro_rules! pass {
    ($($to:ident . $name:ident($($arg:ident: $kind:ty),*) -> $gives:ty;)+) => {
        $(fn $name(&self, $($arg: $kind),*) -> Reply<'_, $gives> { self.$to.$name($($arg),*) })+
    };
}

impl Store for Split {
    pass! {
        there.enqueue(runs: Vec<NewRun>) -> Each<Enqueued>;
        there.claim(claim: Claim) -> Vec<Claimed>;
        there.claim_run(run_id: String, take: Take) -> Claimed;
        there.renew(leases: Vec<Held>) -> Each<Renewed>;
        there.note(notes: Vec<NoteWrite>) -> Each<Noted>;
        there.finish(finishes: Vec<FinishWrite>) -> Each<RunRow>;
        there.release(leases: Vec<Held>) -> Each<RunRow>;
        there.require_cleanup(write: CleanupWrite) -> RunRow;
        there.put_items(write: ItemsWrite) -> Vec<ItemRow>;
        there.command(command: CommandWrite) -> RunRow;
        there.configure(setting: Setting, who: Who) -> ();
        there.change_schedule(change: ScheduleChange, who: Who) -> ScheduleChanged;
        there.add_lifecycle(text: String, who: Who) -> Arc<Lifecycle>;
        there.run(tenant: String, id: String) -> RunRow;
        there.runs(filter: Filter) -> Page;
        there.items(run_id: String, kind: Option<String>) -> Vec<ItemRow>;
        there.events(run_id: String, after_seq: u64, limit: usize) -> Vec<EventRow>;
        there.feed(after: Option<u64>, limit: usize) -> Feed;
        there.queues() -> Vec<QueueRow>;
        there.lifecycles() -> Catalog;
        there.schedules(filter: ScheduleFilter) -> Vec<ScheduleSummary>;
        there.scopes(schedule: String) -> Vec<ScopeRow>;
        there.executions(filter: ExecutionFilter) -> ExecutionPage;
        here.tokens(id: Option<String>) -> Vec<TokenRow>;
        here.audits(tenant: Option<String>, after: u64, limit: usize) -> Vec<AuditRow>;
        there.stats(tenant: Option<String>) -> Stats;
        there.holders(tenant: Option<String>) -> Vec<Holder>;
        there.now() -> Time;
    }

    /// A server makes tokens itself, and tells nobody their digests.
    fn change_token(&self, change: TokenChange, who: Who) -> Reply<'_, TokenRow> {
        self.here.change_token(change, who)
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Store::changed(&self.there, at_most)
    }
}

impl Housekeeping for Split {
    pass! {
        here.sweep(by: String, limit: usize) -> Swept;
        here.prune(limit: usize) -> Pruned;
        here.verify(progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Verified;
        here.advance_clock(by: Span) -> ();
        here.put_scopes(schedule: String, kind: String, ids: Vec<String>) -> ();
        here.ask_scopes(sql: String) -> Vec<String>;
        here.due(by: Ownership, limit: usize) -> Due;
        here.fire(firings: Vec<Firing>) -> Each<Option<Vec<Begun>>>;
        here.begin(begin: Begin) -> Option<Begun>;
        here.put_off(failed: Vec<Failed>) -> ();
        here.wake_executions(run_ids: Vec<String>) -> ();
    }

    /// Over the wire a schedule is always one that was applied.
    fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, ScheduleChanged> {
        match write.carried {
            true => self.there.change_schedule(ScheduleChange::Put(write), "tests".into()),
            false => self.here.put_schedule(write),
        }
    }
}
