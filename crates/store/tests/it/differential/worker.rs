//! What workers ask for.

use serde_json::{Value, json};
use waypost_kernel::request::Level;
use waypost_kernel::{Actor, Failure, Span};
use waypost_store::{
    Claim, Claimed, CleanupWrite, FinishWrite, Held, ItemWrite, ItemsWrite, NewRun, NoteWrite, ReleaseWrite,
    Repeat, Result, Take, Wait,
};

use super::normal::error;
use super::op::{ItemMove, Op, Pick};
use super::pick::{done_item, failed_item, pick_end, pick_item};
use super::side::{Side, lately, tenant_named};
use crate::conformance::kit::claim_plan;

impl Side {
    pub async fn claim(&mut self, op: &Op) -> Value {
        let lease = Span::from_seconds(100);
        let answer: Result<Vec<Claimed>> = match *op {
            Op::Claim { worker, queues, tenant, limit, lease: length, start } => {
                let named = (0..2).filter(|at| queues & (1 << at) != 0).map(|at| format!("q{at}"));
                let claim = Claim {
                    worker: format!("w{worker}"),
                    queues: named.collect(),
                    tenant: tenant.map(tenant_named),
                    limit: limit.into(),
                    lease: length.map(|_| lease),
                    start,
                    ..Claim::default()
                };
                self.store.claim(claim).await
            }
            Op::ClaimRun { run, worker, start } => {
                let Some(at) = lately(self.runs.len(), run) else { return Value::Null };
                let id = self.runs[at].clone();
                let take = Take { worker: format!("w{worker}"), lease: None, start };
                self.store.claim_run(id, take).await.map(|it| vec![it])
            }
            Op::ClaimPlan { plan, worker, attempts, reentrant } => {
                let key = format!("waypost:schedule:plan{plan}");
                let run = NewRun {
                    lifecycle: "cron".into(),
                    queue: "q0".into(),
                    idempotency_key: Some(key.clone()),
                    by: format!("w{worker}"),
                    actor: Actor::Worker,
                    max_attempts: attempts.into(),
                    reentrant,
                    ..NewRun::default()
                };
                let claimed = claim_plan(&*self.store, &key, run, lease).await;
                claimed.map(|it| it.into_iter().collect())
            }
            _ => return Value::Null,
        };
        match answer {
            Ok(claims) => claims.iter().map(|claimed| self.took(claimed)).collect(),
            Err(refused) => error(&refused, &self.ids()),
        }
    }

    fn took(&mut self, claimed: &Claimed) -> Value {
        let seen = self.see(&claimed.run);
        if let Some(at) = self.runs.iter().position(|id| id == claimed.run.id()) {
            self.leases.push((at, claimed.token));
        }
        json!([seen, claimed.fence])
    }

    pub async fn leave(&mut self, held: Held, minutes: Option<u8>) -> Value {
        let row = self.row_of(&held).await;
        let end = row.and_then(|row| row.run.lease).map(|lease| lease.until);
        let wait = minutes.zip(end).map(|(minutes, end)| Wait {
            until: end + Span::from_seconds(i64::from(minutes) * 60),
            reason: Wait::WINDOW.to_owned(),
        });
        let answer = self.store.release(vec![ReleaseWrite { held, wait }]).await.unwrap().remove(0);
        self.row(answer)
    }

    pub async fn keep(&mut self, held: Held) -> Value {
        match self.store.renew(vec![held]).await.unwrap().remove(0) {
            Ok(renewed) => json!([renewed.intent, renewed.graceful]),
            Err(refused) => error(&refused, &self.ids()),
        }
    }

    pub async fn report(&mut self, op: &Op, held: Held) -> Value {
        let row = self.row_of(&held).await;
        let state = |to: Pick| row.as_ref().map(|row| pick_end(row, to)).unwrap_or_default();
        let patch = |patch: bool| patch.then(|| ("patch".to_owned(), json!(1))).into_iter().collect();
        let by = "worker".to_owned();
        match *op {
            Op::Note { message, repeat, patch: patched, .. } => {
                // A message of its own for each rule, so that no rule meets another one's events.
                let (name, repeat) = match repeat {
                    0 => ("never", Repeat::Never),
                    1 => ("window", Repeat::Window),
                    _ => ("key", Repeat::Key(format!("key{message}"))),
                };
                let message = format!("{name} {message}");
                let (metadata, details, payload) = (patch(patched), patch(!patched), json!({}));
                let run_id = held.run_id.clone();
                let note =
                    NoteWrite { held, by, level: Level::Info, message, payload, repeat, metadata, details };
                match self.store.note(vec![note]).await.unwrap().remove(0) {
                    Ok(noted) => {
                        // Its number is the store's own; that it is this event's is not.
                        let event = self.store.events(run_id, noted.seq - 1, 1).await.unwrap().remove(0);
                        json!([event.object()["event_id"] == noted.event_id, noted.seq, noted.repeated])
                    }
                    Err(refused) => error(&refused, &self.ids()),
                }
            }
            Op::Finish { to, reason, failure, retry, ref items, .. } => {
                let items = self.moves(&held, items).await;
                let lease = row.as_ref().and_then(|row| row.run.lease.as_ref());
                let end = lease.filter(|_| retry).map(|lease| lease.until);
                let write = FinishWrite {
                    run_id: held.run_id,
                    token: Some(held.token),
                    by,
                    status: state(to),
                    failure: failure.then(|| Failure::new("CODE", "words")),
                    reason: reason.then(|| "why".to_owned()),
                    retry_in: retry.then_some(Span::from_seconds(100)),
                    goes_on_at: end.map(|end| end + Span::from_seconds(100)),
                    metadata: patch(reason),
                    details: patch(failure),
                    items,
                };
                let answer = self.store.finish(vec![write]).await.unwrap().remove(0);
                self.row(answer)
            }
            Op::RequireCleanup { required, failing, .. } => {
                let failing = failing.map(|to| (state(to), Failure::new("OWED", "words")));
                let answer = self.store.require_cleanup(CleanupWrite { held, by, required, failing }).await;
                self.row(answer)
            }
            _ => Value::Null,
        }
    }

    async fn moves(&self, held: &Held, moves: &[ItemMove]) -> Vec<ItemWrite> {
        let Some(row) = self.row_of(held).await else { return Vec::new() };
        let there = self.store.items(held.run_id.clone(), None).await.unwrap();
        let mut items: Vec<_> = moves.iter().map(|it| pick_item(&row.lifecycle, &there, it)).collect();
        if !moves.iter().any(|it| it.state.any) {
            items.sort_by(|one, other| one.key.cmp(&other.key));
            items.dedup_by(|one, other| one.key == other.key);
        }
        items
    }

    pub async fn fail_then_begin(&mut self, held: Held, fails: &ItemMove, then: &[ItemMove]) -> Value {
        let Some(row) = self.row_of(&held).await else { return Value::Null };
        let there = self.store.items(held.run_id.clone(), None).await.unwrap();
        let items = vec![failed_item(&row.lifecycle, &there, fails)];
        let write = ItemsWrite { held: held.clone(), by: "worker".into(), items };
        let failed = match self.store.put_items(write).await {
            Ok(rows) => self.see_items(&rows),
            Err(refused) => error(&refused, &self.ids()),
        };
        let mut answers = vec![failed];
        for it in then {
            answers.push(self.put_items(held.clone(), std::slice::from_ref(it)).await);
        }
        json!(answers)
    }

    pub async fn put_items(&mut self, held: Held, moves: &[ItemMove]) -> Value {
        if self.row_of(&held).await.is_none() {
            return Value::Null;
        }
        let items = self.moves(&held, moves).await;
        match self.store.put_items(ItemsWrite { held, by: "worker".into(), items }).await {
            Ok(rows) => self.see_items(&rows),
            Err(refused) => error(&refused, &self.ids()),
        }
    }

    pub async fn work(&mut self, held: Held, failing: u8) -> Value {
        let Some(row) = self.row_of(&held).await else { return Value::Null };
        let there = self.store.items(held.run_id.clone(), None).await.unwrap();
        let items =
            there.iter().enumerate().map(|(at, item)| done_item(&row, item, failing & (1 << at) != 0));
        let write = ItemsWrite { held: held.clone(), by: "worker".into(), items: items.collect() };
        let mut answers = vec![match self.store.put_items(write).await {
            Ok(rows) => self.see_items(&rows),
            Err(refused) => error(&refused, &self.ids()),
        }];
        for at in failing..failing + 8 {
            let status = pick_end(&row, Pick { at, any: false });
            let write = FinishWrite {
                run_id: held.run_id.clone(),
                token: Some(held.token),
                by: "worker".into(),
                status,
                reason: Some("why".into()),
                ..FinishWrite::default()
            };
            let answer = self.store.finish(vec![write]).await.unwrap().remove(0);
            let ended = answer.is_ok();
            answers.push(self.row(answer));
            if ended {
                break;
            }
        }
        json!(answers)
    }
}
