//! One of the two stores, and what it has answered so far.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::waiting::Reason;
use waypost_kernel::{Lease as HeldLease, Lifecycle, Phase, Span, Token};
use waypost_store::{Database, EventRow, Filter, Held, ItemRow, Needs, Result, RunRow, WorkerBeat};

use super::normal::{error, normal, queue, why};
use super::op::{Lease, Op};

pub struct Side {
    pub store: Arc<dyn Database>,
    /// In the order of their appearance.
    pub runs: Vec<String>,
    tenants: HashMap<String, String>,
    /// With the run's place in the list.
    pub leases: Vec<(usize, Token)>,
    /// Lifecycles that were generated.
    pub made: Vec<Arc<Lifecycle>>,
}

/// The first is whose name sorts among the others, and has the last turn.
const TENANTS: [&str; 3] = ["default", "acme", "zoo"];

pub fn tenant_named(at: u8) -> String {
    TENANTS[usize::from(at) % TENANTS.len()].to_owned()
}

/// The `back`th from the end.
pub fn lately(len: usize, back: u8) -> Option<usize> {
    len.checked_sub(1).map(|last| last - usize::from(back) % len)
}

impl Side {
    pub fn new(store: Arc<dyn Database>) -> Side {
        Side { store, runs: Vec::new(), tenants: HashMap::new(), leases: Vec::new(), made: Vec::new() }
    }

    /// Whosever it is.
    pub async fn find(&self, id: &str) -> Result<RunRow> {
        let tenant = self.tenants.get(id).cloned().unwrap_or_default();
        self.store.run(tenant, id.to_owned()).await
    }

    pub async fn apply(&mut self, op: &Op) -> Value {
        match op {
            Op::Enqueue(asked) => self.enqueue(asked).await,
            Op::Claim { .. } | Op::ClaimRun { .. } | Op::ClaimPlan { .. } => self.claim(op).await,
            Op::Renew(lease) => match self.held(*lease).await {
                Some(held) => self.keep(held).await,
                None => Value::Null,
            },
            Op::Release { lease, wait } => match self.held(*lease).await {
                Some(held) => self.leave(held, *wait).await,
                None => Value::Null,
            },
            Op::Note { lease, .. } | Op::Finish { lease, .. } | Op::RequireCleanup { lease, .. } => {
                match self.held(*lease).await {
                    Some(held) => self.report(op, held).await,
                    None => Value::Null,
                }
            }
            Op::FailThenBegin { lease, fails, then } => match self.held(*lease).await {
                Some(held) => self.fail_then_begin(held, fails, then).await,
                None => Value::Null,
            },
            Op::PutItems { lease, items } => match self.held(*lease).await {
                Some(held) => self.put_items(held, items).await,
                None => Value::Null,
            },
            Op::Work { lease, failing } => match self.held(*lease).await {
                Some(held) => self.work(held, *failing).await,
                None => Value::Null,
            },
            Op::Command(command) => self.command(command).await,
            Op::Targets(asked) => self.targets(asked).await,
            _ => self.care(op).await,
        }
    }

    /// All that there is to see.
    pub async fn everything(&mut self) -> Vec<Value> {
        let mut rows = Vec::new();
        for tenant in (0..TENANTS.len() as u8).map(tenant_named) {
            let (limit, include) = (500, waypost_store::Parts::ALL);
            let filter = Filter { tenant, limit, include, ..Filter::default() };
            rows.extend(self.store.runs(filter).await.unwrap().runs);
        }
        let mut all = Vec::new();
        for row in &rows {
            all.push(self.see(row));
            let items = self.store.items(row.id().into(), None).await.unwrap();
            all.push(self.see_items(&items));
            let mut events = Vec::new();
            loop {
                // A page of large ones is short, and not the last.
                let after = events.last().map_or(0, |event: &EventRow| event.seq);
                let page = self.store.events(row.id().into(), after, 500).await.unwrap();
                if page.is_empty() {
                    break;
                }
                events.extend(page);
            }
            all.push(events.iter().map(|event| self.see_event(event)).collect());
        }
        let mut feed = Vec::new();
        loop {
            let after = feed.last().map_or(0, |event: &EventRow| event.position);
            let page = self.store.feed(Some(after), 500).await.unwrap().events;
            if page.is_empty() {
                break;
            }
            feed.extend(page);
        }
        all.push(feed.iter().map(|it| normal(json!([it.run_id, it.seq]), &self.ids())).collect());
        // One for which nothing is set and nothing waits may be told of or not.
        let queues = self.store.queues(None).await.unwrap();
        let told = queues
            .iter()
            .filter(|it| (it.ready, it.scheduled, it.held, it.at_most, &it.paused) != (0, 0, 0, None, &None));
        all.extend(told.map(queue));
        let verified = self.store.verify(Arc::new(|_, _| {})).await.unwrap();
        all.push(json!([verified.runs, verified.events, verified.differences]));
        self.see_why(&rows, &mut all).await;
        all
    }

    /// Why each waits: before anybody works, and a while later beside workers with few slots, of one tenant and of all.
    async fn see_why(&self, rows: &[RunRow], all: &mut Vec<Value>) {
        for workers in [&[][..], &[("w0", None, 2), ("own", Some("acme"), 1)]] {
            for (name, tenant, slots) in workers {
                let beat = WorkerBeat {
                    name: (*name).to_owned(),
                    tenant: tenant.map(str::to_owned),
                    queues: vec!["q0".into()],
                    slots: *slots,
                    ..WorkerBeat::default()
                };
                self.store.beat(beat).await.unwrap();
            }
            for few in rows.chunks(40) {
                let explained = self.store.explain(few.to_vec()).await.unwrap();
                let why = explained.iter().map(|row| json!([row.id(), why(row.waiting(), &self.ids())]));
                all.extend(why.map(|it| normal(it, &self.ids())));
            }
            for tenant in (0..TENANTS.len() as u8).map(tenant_named) {
                let filter = Filter { tenant, limit: 500, needs: Some(Needs::Worker), ..Filter::default() };
                let stuck = self.store.runs(filter).await.unwrap().runs;
                all.push(normal(stuck.iter().map(RunRow::id).collect(), &self.ids()));
            }
            self.store.advance_clock(Span::from_seconds(70)).await.unwrap();
        }
        for row in rows {
            self.try_why(row.id()).await;
        }
    }

    /// A reason is true if a claim of the very run goes as it says.
    async fn try_why(&self, id: &str) {
        let row = self.find(id).await.unwrap();
        let now = self.store.now().await.unwrap();
        // What has outlived its time is the sweep's, and is not told of: that comes every second.
        let is_over = row.run.expires_at.is_some_and(|at| at <= now);
        let never = row.phase() == Phase::Ready && row.run.available_at.is_none();
        let is_a_plans = row.phase() == Phase::Settled;
        let row = self.store.explain(vec![row]).await.unwrap().remove(0);
        let waiting = row.waiting();
        let says = |words: &str| waiting.is_some_and(|it| it.text.contains(words));
        let may_be_taken = match waiting.map(|waiting| waiting.reason) {
            _ if is_over || never || is_a_plans || says("its schedule takes it up") => return,
            None => row.phase() == Phase::Ready || row.run.lease.as_ref().is_some_and(HeldLease::is_vacant),
            Some(Reason::NoWorker | Reason::NoPlaybook | Reason::SlotsBusy | Reason::NotTaken) => true,
            Some(Reason::Orphaned) => !says("sweep") && !says("is paused") && !says("cannot end it"),
            Some(_) => false,
        };
        let taken = self.store.claim_run(id.to_owned(), "somebody".into()).await;
        assert_eq!(taken.is_ok(), may_be_taken, "{waiting:?}: {taken:?}");
    }

    pub fn ids(&self) -> Vec<String> {
        self.runs.clone()
    }

    /// As it is now; nothing if it has left.
    pub async fn row_of(&self, held: &Held) -> Option<RunRow> {
        self.find(&held.run_id.clone()).await.ok()
    }

    pub async fn held(&self, lease: Lease) -> Option<Held> {
        let mut granted: Vec<Held> = Vec::new();
        for (run, token) in &self.leases {
            let held = Held { run_id: self.runs[*run].clone(), token: *token };
            let current = self.row_of(&held).await.and_then(|row| row.run.lease);
            if lease.any || current.is_some_and(|lease| lease.token == *token) {
                granted.push(held);
            }
        }
        let Held { run_id, token } = granted.get(lately(granted.len(), lease.back)?)?.clone();
        Some(Held { run_id, token: Token(token.0 ^ u128::from(lease.wrong_token)) })
    }

    pub fn row(&mut self, answer: Result<RunRow>) -> Value {
        match answer {
            Ok(row) => self.see(&row),
            Err(refused) => error(&refused, &self.ids()),
        }
    }

    /// A run that was not known yet.
    pub fn appeared(&mut self, id: &str, tenant: &str) {
        if !self.runs.iter().any(|known| known == id) {
            self.runs.push(id.to_owned());
            self.tenants.insert(id.to_owned(), tenant.to_owned());
        }
    }

    /// The one that a command of this run has begun.
    pub async fn operation_appeared(&mut self, parent: &RunRow) {
        let filter = Filter {
            tenant: parent.tenant.clone(),
            lifecycle: Some("operation".into()),
            limit: 500,
            ..Filter::default()
        };
        let found = self.store.runs(filter).await.unwrap().runs;
        let is_its = |run: &&RunRow| run.parent_run_id.as_deref() == Some(parent.id());
        if let Some(run) = found.iter().find(is_its) {
            self.appeared(run.id(), &parent.tenant);
        }
    }

    pub fn see(&mut self, row: &RunRow) -> Value {
        self.appeared(row.id(), &row.tenant);
        normal(row.object(), &self.ids())
    }

    /// Its number among all events is the store's own.
    fn see_event(&self, event: &EventRow) -> Value {
        let mut object = event.object();
        object["event_id"].take();
        object["position"].take();
        normal(object, &self.ids())
    }

    pub fn see_items(&self, rows: &[ItemRow]) -> Value {
        rows.iter().map(|row| normal(row.object(), &self.ids())).collect()
    }
}
