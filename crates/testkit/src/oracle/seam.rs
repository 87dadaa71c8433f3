//! The seam, verb by verb: each is the function of the same name.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use waypost_kernel::{Catalog, Lifecycle, Span, Time};
use waypost_store::*;

use super::MemoryStore;

macro_rules! verbs {
    ($($verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            MemoryStore::$verb(self, $($name),*)
        })*
    };
}

impl Store for MemoryStore {
    verbs! {
        enqueue(runs: Vec<NewRun>) -> Each<Enqueued>;
        claim(claim: Claim) -> Vec<Claimed>;
        claim_run(run_id: String, take: Take) -> Claimed;
        renew(leases: Vec<Held>) -> Each<Renewed>;
        note(notes: Vec<NoteWrite>) -> Each<Noted>;
        finish(finishes: Vec<FinishWrite>) -> Each<RunRow>;
        release(leases: Vec<Held>) -> Each<RunRow>;
        require_cleanup(write: CleanupWrite) -> RunRow;
        put_items(write: ItemsWrite) -> Vec<ItemRow>;
        command(command: CommandWrite) -> RunRow;
        configure(setting: Setting, who: Who) -> ();
        change_schedule(change: ScheduleChange, who: Who) -> ScheduleChanged;
        change_token(change: TokenChange, who: Who) -> TokenRow;
        add_lifecycle(text: String, who: Who) -> Arc<Lifecycle>;
        run(tenant: String, id: String) -> RunRow;
        runs(filter: Filter) -> Page;
        items(run_id: String, kind: Option<String>) -> Vec<ItemRow>;
        events(run_id: String, after_seq: u64, limit: usize) -> Vec<EventRow>;
        feed(after: Option<u64>, limit: usize) -> Feed;
        queues() -> Vec<QueueRow>;
        lifecycles() -> Catalog;
        schedules(filter: ScheduleFilter) -> Vec<ScheduleSummary>;
        scopes(schedule: String) -> Vec<ScopeRow>;
        executions(filter: ExecutionFilter) -> ExecutionPage;
        tokens(id: Option<String>) -> Vec<TokenRow>;
        audits(tenant: Option<String>, after: u64, limit: usize) -> Vec<AuditRow>;
        stats(tenant: Option<String>) -> Stats;
        holders(tenant: Option<String>) -> Vec<Holder>;
        now() -> Time;
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.wait_for_change(at_most))
    }
}

impl Housekeeping for MemoryStore {
    verbs! {
        sweep(by: String, limit: usize) -> Swept;
        prune(limit: usize) -> Pruned;
        verify(progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Verified;
        advance_clock(by: Span) -> ();
        put_schedule(write: ScheduleWrite) -> ScheduleChanged;
        put_scopes(schedule: String, kind: String, ids: Vec<String>) -> ();
        ask_scopes(sql: String) -> Vec<String>;
        due(by: Ownership, limit: usize) -> Due;
        fire(firings: Vec<Firing>) -> Each<Option<Vec<Begun>>>;
        begin(begin: Begin) -> Option<Begun>;
        put_off(failed: Vec<Failed>) -> ();
        wake_executions(run_ids: Vec<String>) -> ();
    }
}
