//! What clients and people ask for.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::item::Role;
use waypost_kernel::{Lifecycle, Phase, Span};
use waypost_store::{CommandWrite, Filter, NewItem, NewRun, QueueRow, RunRow, Setting, Who};

use super::normal::{error, normal, queue};
use super::op::{Command, Enqueue, Op};
use super::pick::{self, KEYS, pick_actor, pick_command};
use super::side::{Side, lately, tenant_named};

/// In units of 70 seconds: up to 25 hours and 30 days.
const ADVANCES: [i64; 5] = [1, 2, 5, 1_300, 37_500];

/// How many kinds of runs there are: shipped ones, and twice as many as there are generated lifecycles.
pub const TEMPLATES: u8 = 16;

/// Lifecycle, first state and kind of items.
const SHIPPED: [(&str, Option<&str>, &str); 10] = [
    ("deploy", None, ""),
    ("deploy", None, "step"),
    ("job", None, "step"),
    ("job", None, ""),
    ("rule", Some("QUEUED"), "target"),
    ("rule", Some("QUEUED"), "target"),
    ("rule", Some("QUEUED"), "target"),
    ("rule", None, "target"),
    ("agent", None, ""),
    (OPERATION, None, ""),
];
const OPERATION: &str = "operation";

/// What a run is made from.
struct Template {
    lifecycle: String,
    status: Option<String>,
    /// With the state that they start in.
    kinds: Vec<(String, Option<String>)>,
}

impl Template {
    fn shipped(at: usize) -> Option<Template> {
        let (lifecycle, status, kind) = SHIPPED.get(at)?;
        let status = status.map(str::to_owned);
        let kind = Some((*kind).to_owned()).filter(|kind| !kind.is_empty());
        let kinds = kind.map(|kind| (kind, status.clone())).into_iter().collect();
        Some(Template { lifecycle: (*lifecycle).to_owned(), status, kinds })
    }

    /// With each way in which a run and its items may start in turn.
    fn made(made: &[Arc<Lifecycle>], at: usize) -> Template {
        let (lifecycle, variant) = (&made[at % made.len()], at / made.len());
        let initial = |of: &Lifecycle| {
            let state = of.initial[variant % of.initial.len()];
            Some(of.state(state).name.to_string())
        };
        Template {
            lifecycle: lifecycle.name.to_string(),
            status: initial(lifecycle),
            kinds: lifecycle.items.iter().map(|kind| (kind.name.to_string(), initial(kind))).collect(),
        }
    }
}

fn items_of(kind: &str, status: Option<&str>, roles: u8) -> Vec<NewItem> {
    let item = |(at, key): (usize, &&str)| NewItem {
        kind: kind.into(),
        key: (*key).into(),
        name: (*key).into(),
        status: status.map(Into::into),
        max_retries: 1,
        reruns: at == 0,
        role: Role::ALL[usize::from(roles) / (1 + 2 * at) % Role::ALL.len()],
        details: Map::new(),
        copied: false,
    };
    KEYS[..2].iter().enumerate().map(item).collect()
}

/// Of what runs ask about, or some of it.
fn decided(all: bool) -> Map<String, Value> {
    let hosts = ["h1", "h2"].into_iter().take(if all { 2 } else { 1 });
    hosts.map(|host| (host.to_owned(), json!("skip"))).collect()
}

impl Side {
    pub async fn enqueue(&mut self, asked: &Enqueue) -> Value {
        let now = self.store.now().await.unwrap();
        let at = usize::from(asked.template);
        let template =
            Template::shipped(at).unwrap_or_else(|| Template::made(&self.made, at - SHIPPED.len()));
        let Template { lifecycle, status, kinds } = template;
        let parent = asked.parent.and_then(|back| lately(self.runs.len(), back));
        let new = NewRun {
            parent_run_id: parent.filter(|_| lifecycle == OPERATION).map(|at| self.runs[at].clone()),
            tenant: tenant_named(asked.tenant),
            lifecycle,
            status,
            queue: format!("q{}", asked.queue),
            priority: asked.priority.into(),
            input: json!(asked.input),
            metadata: [("input".to_owned(), json!(asked.input))].into_iter().collect(),
            idempotency_key: asked.key.map(|key| format!("key{key}")),
            concurrency_key: asked.concurrency_key.map(|key| format!("k{key}")),
            schedule_at: asked.delayed.then(|| now + Span::from_seconds(200)),
            ttl: asked.mortal.then_some(Span::from_seconds(200)),
            items: kinds
                .iter()
                .flat_map(|(kind, status)| items_of(kind, status.as_deref(), asked.roles))
                .collect(),
            ..NewRun::default()
        };
        let answer = self.store.enqueue(vec![new]).await.unwrap().remove(0);
        match answer {
            Ok(enqueued) => json!([self.see(&enqueued.run), enqueued.replayed]),
            Err(refused) => error(&refused, &self.ids()),
        }
    }

    /// The runs that a command may mean.
    async fn meant(&self, asked: &Command) -> Vec<String> {
        let mut meant = Vec::new();
        for id in &self.runs {
            let row = self.find(id).await;
            let waits = |row: RunRow| {
                matches!(row.phase(), Phase::Parked | Phase::Settled) && !pick::allowed(&row).is_empty()
            };
            if !asked.ended || row.is_ok_and(waits) {
                meant.push(id.clone());
            }
        }
        meant
    }

    pub async fn command(&mut self, asked: &Command) -> Value {
        let meant = self.meant(asked).await;
        let Some(at) = lately(meant.len(), asked.run) else { return Value::Null };
        let id = &meant[at];
        let Ok(row) = self.find(id).await else { return Value::Null };
        let chosen =
            |mask: u8| (0..5).filter(|at| mask & (1 << at) != 0).map(|at| KEYS[at].to_owned()).collect();
        let name = pick_command(&row, asked);
        let write = CommandWrite {
            tenant: row.tenant.clone(),
            run_id: id.clone(),
            actor: pick_actor(&row, &name, asked),
            name: name.clone(),
            by: "ann".into(),
            reason: asked.reason.then(|| "why".to_owned()),
            force: asked.force,
            graceful: asked.graceful,
            items: asked.items.filter(|_| pick::moves_items(&row, &name)).map(chosen),
            resolutions: if asked.resolved { decided(asked.graceful) } else { Map::new() },
            if_seq: None,
        };
        let answer = self.store.command(write).await;
        if answer.as_ref().is_ok_and(|now| now.run.operating && !row.run.operating) {
            self.operation_appeared(&row).await;
        }
        match answer {
            // Whether the command or the choice is wrong first is a matter of taste.
            Err(_) if asked.items.is_some() => json!("refused"),
            answer => self.row(answer),
        }
    }

    pub async fn care(&mut self, op: &Op) -> Value {
        match *op {
            Op::Sweep => {
                // All of them: which few come first hangs on times that two clocks do not share to the end.
                let swept = self.store.sweep("sweeper".into(), 500).await.unwrap();
                let mut moved: Vec<String> = swept
                    .moved
                    .iter()
                    .map(|it| normal(json!([it.0, it.1]), &self.ids()).to_string())
                    .collect();
                moved.sort();
                json!(moved)
            }
            Op::Advance { by } => {
                let by = Span::from_seconds(70 * ADVANCES[usize::from(by)]);
                self.store.advance_clock(by).await.unwrap();
                Value::Null
            }
            Op::Pause { tenant, queue: at, paused } => {
                let (tenant, name) = (tenant_named(tenant), format!("q{at}"));
                let setting = if paused {
                    Setting::PauseQueue(name.clone())
                } else {
                    Setting::ResumeQueue(name.clone())
                };
                let who = Who { tenant: tenant.clone(), by: "ann".into(), reason: Some("why".into()) };
                self.store.configure(setting, who).await.unwrap();
                let found = self.store.queues(Some(tenant.clone())).await.unwrap();
                let found = found.into_iter().find(|row| row.name == name);
                queue(&found.unwrap_or(QueueRow { tenant, name, ..QueueRow::default() }))
            }
            Op::Limit { tenant, of_queue, name, at_most } => {
                let at_most = at_most.map(u32::from);
                let setting = match of_queue {
                    true => Setting::QueueLimit(format!("q{name}"), at_most),
                    false => Setting::KeyLimit(format!("k{name}"), at_most),
                };
                let who = Who { tenant: tenant_named(tenant), ..Who::from("ann") };
                self.store.configure(setting, who).await.unwrap();
                Value::Null
            }
            Op::Prune => {
                // A store may keep the run of the newest event, and prune in another order.
                let newest = NewRun { lifecycle: "deploy".into(), queue: "q9".into(), ..NewRun::default() };
                let newest = self.store.enqueue(vec![newest]).await.unwrap().remove(0).unwrap();
                self.see(&newest.run);
                let pruned = self.store.prune(500).await.unwrap();
                json!([pruned.runs, pruned.events])
            }
            Op::Look { text, limit } => self.look(text, limit).await,
            _ => Value::Null,
        }
    }

    /// Page by page to the end.
    async fn look(&mut self, text: u8, limit: u8) -> Value {
        let mut filter = Filter {
            tenant: "default".into(),
            limit: limit.into(),
            include: waypost_store::Parts::ALL,
            ..Filter::default()
        };
        match text {
            0 => filter.lifecycle = Some("rule".into()),
            1 => filter.status = Some("queued".into()),
            2 => filter.queue = Some("q1".into()),
            _ => filter.text = Some("patch".into()),
        }
        let mut pages = Vec::new();
        loop {
            let page = self.store.runs(filter.clone()).await.unwrap();
            pages.push(page.runs.iter().map(|row| self.see(row)).collect::<Vec<_>>());
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                return json!(pages);
            }
        }
    }
}
