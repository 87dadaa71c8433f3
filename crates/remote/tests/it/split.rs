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
    here: Arc<dyn Store>,
    there: RemoteStore,
}

pub async fn open() -> Opened {
    let (here, url, lives) = serve().await;
    let there = RemoteStore::open(&url, None).await.unwrap();
    (Arc::new(Split { here, there }), lives)
}

/// A server on a port of its own: its store, its address, and what lives as long as it.
pub async fn serve() -> (Arc<dyn Store>, String, Box<dyn Any + Send>) {
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

impl Queue for Split {
    pass! {
        there.enqueue(runs: Vec<NewRun>) -> Each<Enqueued>;
        there.claim(claim: Claim) -> Vec<Claimed>;
        here.claim_plan(run: NewRun, lease: Option<Span>) -> Option<Claimed>;
        there.claim_run(run_id: String, take: Take) -> Claimed;
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.there.changed(at_most)
    }
}

impl Leases for Split {
    pass! {
        there.renew(leases: Vec<Held>) -> Each<Renewed>;
        there.note(notes: Vec<NoteWrite>) -> Each<Noted>;
        there.finish(finishes: Vec<FinishWrite>) -> Each<RunRow>;
        there.release(leases: Vec<Held>) -> Each<RunRow>;
        there.require_cleanup(require_cleanup: CleanupWrite) -> RunRow;
        here.sweep(by: String, limit: usize) -> Swept;
    }
}

impl Items for Split {
    pass! {
        there.put_items(write: ItemsWrite) -> Vec<ItemRow>;
        there.items(run_id: String, kind: Option<String>) -> Vec<ItemRow>;
    }
}

impl Log for Split {
    pass! {
        there.events(run_id: String, after_seq: u64, limit: usize) -> Vec<EventRow>;
        there.feed(after_position: u64, limit: usize) -> Vec<EventRow>;
        there.last_position() -> u64;
    }
}

impl Tokens for Split {
    pass! {
        here.add_token(token: NewToken) -> TokenRow;
        here.token(id: String) -> Option<TokenRow>;
        here.tokens() -> Vec<TokenRow>;
        here.revoke_token(id: String, by: String) -> TokenRow;
    }
}

impl Deeds for Split {
    pass! {
        there.keep(entry: NewAudit) -> ();
        there.order(command: CommandWrite) -> RunRow;
        there.close_queue(queue: String, who: Who) -> QueueRow;
        there.open_queue(queue: String, who: Who) -> QueueRow;
        there.set_limit(what: LimitOf, name: String, at_most: Option<u32>, who: Who) -> ();
        here.issue_token(token: NewToken, who: Who) -> TokenRow;
        there.end_token(id: String, who: Who) -> TokenRow;
    }
}

impl Audit for Split {
    pass! {
        here.audit(entry: NewAudit) -> u64;
        here.audits(tenant: Option<String>, after: u64, limit: usize) -> Vec<AuditRow>;
    }
}

impl Looks for Split {
    pass! {
        there.stats(tenant: Option<String>) -> Stats;
        there.holders(tenant: Option<String>) -> Vec<Holder>;
    }
}

impl Schedules for Split {
    /// Over the wire a schedule is always one that was applied.
    fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, Put> {
        match write.carried {
            true => self.there.put_schedule(write),
            false => self.here.put_schedule(write),
        }
    }

    pass! {
        there.remove_schedule(name: String) -> bool;
        there.schedules(name: Option<String>) -> Vec<ScheduleRow>;
        there.pause_schedule(name: String, pause: Option<Pause>) -> ScheduleRow;
        here.put_scopes(schedule: String, kind: String, ids: Vec<String>) -> ();
        there.scopes(schedule: String) -> Vec<ScopeRow>;
        here.ask_scopes(sql: String) -> Vec<String>;
        here.due(mine: Mine, limit: usize) -> Due;
        here.fire(firings: Vec<Firing>) -> Each<Option<Vec<Begun>>>;
        here.begin(begin: Begin) -> Option<Begun>;
        here.put_off(failed: Vec<Failed>) -> ();
        there.add_plans(plans: ManualPlans) -> u64;
        here.look_again(run_ids: Vec<String>) -> ();
        there.executions(filter: ExecutionFilter) -> ExecutionPage;
        there.look_at_schedules(filter: ScheduleFilter) -> Vec<ScheduleLook>;
    }
}

impl Admin for Split {
    pass! {
        there.command(command: CommandWrite) -> RunRow;
        there.run(tenant: String, id: String) -> RunRow;
        there.runs(filter: Filter) -> Page;
        there.queues() -> Vec<QueueRow>;
        there.pause_queue(queue: String, pause: Option<Pause>) -> QueueRow;
        there.limit(what: LimitOf, name: String, at_most: Option<u32>) -> ();
        here.prune(limit: usize) -> Pruned;
        here.verify(progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Verified;
        there.lifecycles() -> Catalog;
        there.add_lifecycle(text: String) -> Arc<Lifecycle>;
        there.now() -> Time;
        here.advance_clock(by: Span) -> ();
    }
}
