//! Targets of bulk changes, and what they are sent to.

use serde_json::{Map, Value, json};
use waypost_kernel::breaker::{Settings, State};
use waypost_kernel::destination::{CallAnswer, Limit};
use waypost_kernel::{Failure, Phase, Span};
use waypost_store::{
    AddTargets, Admit, Answered, DeadLetterFilter, DiscardTargets, End, Held, ItemRow, NewTarget, Preview,
    RollBackTargets, RunRow, TargetResult, Tried, WorkTargets,
};

use super::normal::{error, normal};
use super::op::Targets;
use super::pick::KEYS;
use super::side::{Side, lately, tenant_named};

const CODES: [&str; 2] = ["TIMEOUT", "NOT_FOUND"];

fn keys(mask: u8) -> Vec<String> {
    (0..KEYS.len()).filter(|at| mask & (1 << at) != 0).map(|at| KEYS[at].to_owned()).collect()
}

fn tried(dice: u8) -> Tried {
    let failure = Failure::new(CODES[usize::from(dice / 8) % 2], "why");
    let wait = Span::from_seconds(if dice & 64 == 0 { 0 } else { 200 });
    match dice % 5 {
        0 | 1 => Tried::Applied,
        2 => Tried::Retry { failure, wait, answered: dice & 32 == 0 },
        3 => Tried::Throttled { failure, wait, answered: dice & 32 == 0 },
        _ if dice & 128 == 0 => Tried::Failed { failure },
        _ if dice & 64 == 0 => Tried::Refused { failure },
        _ => Tried::Unsent { wait },
    }
}

impl Side {
    pub async fn targets(&mut self, asked: &Targets) -> Value {
        match asked {
            Targets::Add { run, mask, last, behind } => self.add_targets(*run, *mask, *last, *behind).await,
            Targets::Work { lease, dice, take, end } => match self.held(*lease).await {
                Some(held) => self.work_targets(held, *dice, *take, *end).await,
                None => Value::Null,
            },
            Targets::Discard { run, mask, code } => self.discard(*run, *mask, *code).await,
            Targets::RollBack { lease, mask } => match self.held(*lease).await {
                Some(held) => {
                    let write = RollBackTargets { held, by: "worker".into(), keys: keys(*mask) };
                    let answer = self.store.roll_back_targets(write).await;
                    self.row(answer)
                }
                None => Value::Null,
            },
            Targets::Letters { tenant, code } => {
                let filter = DeadLetterFilter {
                    tenant: tenant_named(*tenant),
                    run_id: None,
                    code: code.map(|at| CODES[usize::from(at) % 2].to_owned()),
                };
                let found = self.store.dead_letters(filter).await.unwrap();
                let found = found.iter().map(|it| {
                    json!([it.code, it.count, it.oldest_at.is_some(), it.sample.run_id, it.sample.key])
                });
                normal(found.collect(), &self.ids())
            }
            Targets::Destination { tenant, calls, throttled, burst } => {
                self.destination(&tenant_named(*tenant), *calls, *throttled, *burst).await
            }
        }
    }

    async fn drafted(&self, run: u8) -> Option<RunRow> {
        let id = self.runs.get(lately(self.runs.len(), run)?)?.clone();
        self.find(&id).await.ok()
    }

    async fn add_targets(&mut self, run: u8, mask: u8, last: bool, behind: bool) -> Value {
        let Some(row) = self.drafted(run).await else { return Value::Null };
        let rows = Preview::of(&row.details).map_or(0, |preview| preview.rows);
        let new = |key: String| NewTarget {
            violation: (key == "d").then(|| Failure::new("GUARDRAIL", "too much")),
            key,
            before: json!(1),
            after: json!(2),
            ..NewTarget::default()
        };
        let write = AddTargets {
            tenant: row.tenant.clone(),
            run_id: row.id().to_owned(),
            by: "ann".into(),
            at: if behind { rows.saturating_sub(1) } else { rows },
            rows: 2,
            targets: keys(mask).into_iter().map(new).collect(),
            unchanged: 1,
            cursor: Some(json!({ "page": mask })),
            totals: Map::from_iter([("sum".to_owned(), json!(mask))]),
            last,
        };
        match self.store.add_targets(write).await {
            Ok(preview) => preview.object(),
            Err(refused) => error(&refused, &self.ids()),
        }
    }

    async fn work_targets(&mut self, held: Held, dice: u8, take: u8, end: u8) -> Value {
        let Some(row) = self.row_of(&held).await else { return Value::Null };
        // Which items of generated lifecycles are due is no store's promise.
        let is_rule = &*row.lifecycle.name == "rule";
        let Some(kind) = row.lifecycle.items.first().filter(|_| is_rule).cloned() else { return Value::Null };
        let there = self.store.items(held.run_id.clone(), None).await.unwrap();
        let is_held = |item: &&ItemRow| {
            let state = kind.states.iter().find(|state| *state.name == *item.status);
            item.kind == *kind.name && state.is_some_and(|state| state.phase == Phase::Held)
        };
        let results = there.iter().filter(is_held).enumerate().filter(|(at, _)| dice & (1 << at) != 0);
        let results = results.map(|(at, item)| TargetResult {
            key: item.key.clone(),
            try_no: item.try_no,
            tried: tried(dice.wrapping_mul(31).wrapping_add(at as u8)),
            output: (dice & 4 != 0).then(|| json!({ "price": at })),
        });
        let write = WorkTargets {
            held,
            by: "worker".into(),
            results: results.collect(),
            take: usize::from(take),
            give_up_after: Span::from_seconds(300),
            end: match end {
                0 => End::Later,
                1 => End::Stop(Failure::new("STOPPED", "a stop")),
                _ => End::WhenDone,
            },
        };
        match self.store.work_targets(write).await {
            Ok(worked) => {
                let ended = worked.ended.as_ref().map(|row| self.see(row));
                json!([
                    self.see_items(&worked.taken),
                    worked.ignored,
                    worked.next_due.is_some(),
                    worked.counts,
                    worked.open,
                    ended
                ])
            }
            Err(refused) => error(&refused, &self.ids()),
        }
    }

    async fn discard(&mut self, run: u8, mask: Option<u8>, code: Option<u8>) -> Value {
        let Some(row) = self.drafted(run).await else { return Value::Null };
        let write = DiscardTargets {
            tenant: row.tenant.clone(),
            run_id: row.id().to_owned(),
            by: "ann".into(),
            reason: "given up".into(),
            keys: mask.map(keys),
            code: code.map(|at| CODES[usize::from(at) % 2].to_owned()),
        };
        match self.store.discard_targets(write).await {
            Ok(count) => json!(count),
            Err(refused) => error(&refused, &self.ids()),
        }
    }

    /// So slow that what comes back between two requests is not worth a call.
    async fn destination(&mut self, tenant: &str, calls: u8, throttled: u8, burst: bool) -> Value {
        let limit = Limit { capacity_milli: 5_000, rate_milli_per_s: 1, breaker: Settings::default() };
        let ask = Admit {
            tenant: tenant.to_owned(),
            destination: "shop".into(),
            limit,
            calls: calls.into(),
            cost_milli: 1_000,
        };
        let admitted = self.store.admit(ask).await.unwrap();
        let answer = |at: u8| CallAnswer { throttled: at < throttled, ..CallAnswer::default() };
        let report = Answered {
            tenant: tenant.to_owned(),
            destination: "shop".into(),
            answers: (0..calls).map(answer).collect(),
            unused_milli: 0,
        };
        let told = self.store.answered(report).await.unwrap();
        let paced = self.store.pace_destination(tenant.to_owned(), "shop".into(), burst).await.unwrap();
        let breaker = match paced.state.breaker.state {
            State::Closed => "closed",
            State::Open { .. } => "open",
            State::Probing { .. } => "probing",
        };
        json!([
            admitted.granted,
            admitted.is_probe,
            told.alert.is_some(),
            told.calls,
            told.throttled,
            breaker
        ])
    }
}
