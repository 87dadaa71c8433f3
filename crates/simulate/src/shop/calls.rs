//! The way of every call through the shop: who asks, the limits, what goes wrong before, a key that was seen, the call
//! itself, the ledger, what goes wrong after.

use std::sync::Arc;

use super::ledger::{Answered, Record};
use super::settings::FAULTS;
use super::stats::{Api, Met};
use super::{Shop, graphql, rest};
use crate::serving::{Answer, FaultKind, Now, Reply, Request, Route, hash};

/// What a call is about, before it is done.
#[derive(Debug)]
pub struct Intent {
    pub api: Api,
    /// Whose faults it meets.
    pub products: Vec<u64>,
    pub is_change: bool,
    /// In points, for GraphQL.
    pub cost: f64,
}

/// What a call would do; nothing of it is done yet.
#[derive(Debug)]
pub struct Done {
    pub answer: Answer,
    /// Number and new price, each number once.
    pub changes: Vec<(u64, i64)>,
    /// What it cost in the end; the rest is given back.
    pub cost: f64,
}

impl Done {
    pub fn looked(answer: Answer) -> Done {
        Done { answer, changes: Vec::new(), cost: 0.0 }
    }
}

impl Shop {
    pub fn call(&mut self, request: &Request, now: Now) -> Reply {
        if let Some(refusal) = self.stranger(request) {
            return refusal.into();
        }
        let reply = Route::dispatch(rest::ROUTES, self, request, now);
        reply.held(self.settings.latency_ms)
    }

    fn stranger(&self, request: &Request) -> Option<Answer> {
        let token = self.token.as_deref()?;
        if request.token("x-shopify-access-token") == Some(token) {
            return None;
        }
        Some(Answer::refusal(401, "UNAUTHORIZED", "the access token is missing or wrong"))
    }

    /// Does it and everything that comes with it, once the limits and the faults let it. `act` is told which products
    /// are refused for good.
    pub fn perform(
        &mut self,
        request: &Request,
        now: Now,
        intent: &Intent,
        act: impl FnOnce(&Shop, &[u64]) -> Done,
    ) -> Reply {
        let (reply, met, cost) = match self.admit(request, now, intent) {
            Ok(()) => self.execute(request, now, intent, act),
            Err((reply, met)) => (reply, met, 0.0),
        };
        self.stats.count(now.elapsed_us, now.unix_ms, intent.api, met, cost);
        match reply {
            Reply::Answer(answer) if intent.api == Api::Rest => {
                let used = (self.settings.burst - self.requests.available(now.elapsed_us)).ceil();
                let limit = format!("{used}/{}", self.settings.burst);
                answer.with("x-shopify-shop-api-call-limit", limit).into()
            }
            reply => reply,
        }
    }

    /// The limits, and what keeps a call from being done at all.
    fn admit(&mut self, request: &Request, now: Now, intent: &Intent) -> Result<(), (Reply, Met)> {
        let key = request.key();
        let taken = match intent.api {
            Api::Rest => self.requests.take(1.0, now.elapsed_us),
            Api::Graphql => self.costs.take(intent.cost, now.elapsed_us),
        };
        if let Err(wait_s) = taken {
            return Err(self.limited(&key, now, intent, wait_s));
        }
        for kind in FAULTS {
            let hit = match kind.name {
                "rate_limited" | "server_error" | "cut" | "timeout" => self.request_hit(kind, &key, intent),
                "transient" if intent.is_change => self.any_product_hit(kind, &intent.products),
                _ => false,
            };
            if !hit {
                continue;
            }
            return Err(match kind.name {
                "rate_limited" => {
                    self.give_back(intent, intent.cost);
                    self.limited(&key, now, intent, 1.0)
                }
                "cut" => (Reply::Cut, Met::Cut),
                "timeout" => {
                    let then = Answer::refusal(504, "TIMEOUT", "it took too long; nothing was changed");
                    (Reply::from(then).held(self.settings.hold_ms), Met::Held)
                }
                name => server_error(name, self.settings.seed, &key),
            });
        }
        Ok(())
    }

    fn limited(&mut self, key: &str, now: Now, intent: &Intent, wait_s: f64) -> (Reply, Met) {
        if intent.api == Api::Graphql {
            let answer = graphql::throttled(intent.cost, &self.throttle_status(now));
            return (answer.into(), Met::Throttled);
        }
        let answer = Answer::refusal(429, "RATE_LIMITED", "Exceeded the shop's limit of calls per second");
        let answer = self.settings.retry_after.put(answer, wait_s, now, self.settings.seed, key);
        (answer.into(), Met::Status(429))
    }

    pub fn throttle_status(&mut self, now: Now) -> graphql::ThrottleStatus {
        graphql::ThrottleStatus {
            maximum: self.settings.cost_burst,
            available: self.costs.available(now.elapsed_us).floor(),
            restore_rate: self.settings.cost_rate,
        }
    }

    fn give_back(&mut self, intent: &Intent, cost: f64) {
        match intent.api {
            Api::Rest => self.requests.give_back(1.0),
            Api::Graphql => self.costs.give_back(cost),
        }
    }

    fn execute(
        &mut self,
        request: &Request,
        now: Now,
        intent: &Intent,
        act: impl FnOnce(&Shop, &[u64]) -> Done,
    ) -> (Reply, Met, f64) {
        let key = request.idempotency_key().filter(|_| intent.is_change && self.settings.honours_keys);
        let fingerprint = fingerprint(request);
        let (answer, cost) = match key.and_then(|key| self.ledger.answered(key)) {
            Some(first) if first.fingerprint == fingerprint => {
                self.stats.replayed += 1;
                let mut answer = Answer::ok(&serde_json::Value::Null).with("idempotency-replayed", "true");
                (answer.status, answer.body) = (first.status, first.body.clone());
                (answer, intent.cost)
            }
            Some(_) => {
                let message = "this Idempotency-Key came with another request before";
                (Answer::refusal(422, "IDEMPOTENCY_KEY_REUSED", message), intent.cost)
            }
            None => {
                let refused = self.refused(intent);
                let done = act(self, &refused);
                let cost = done.cost;
                (self.commit(request, now, intent, fingerprint, done), cost)
            }
        };
        let mut answer = answer;
        if intent.api == Api::Graphql {
            self.costs.give_back(intent.cost - cost);
            graphql::append_cost(&mut answer, intent.cost, cost, &self.throttle_status(now));
        }
        let (reply, met) = self.after(&request.key(), intent, answer);
        (reply, met, cost)
    }

    fn refused(&mut self, intent: &Intent) -> Vec<u64> {
        let Some(kind) = FAULTS.iter().find(|kind| kind.name == "permanent" && intent.is_change) else {
            return Vec::new();
        };
        intent.products.iter().copied().filter(|&id| self.product_hit(kind, id)).collect()
    }

    /// The ledger has it before the shop does, and the shop before the client.
    fn commit(
        &mut self,
        request: &Request,
        now: Now,
        intent: &Intent,
        fingerprint: u64,
        done: Done,
    ) -> Answer {
        if !intent.is_change {
            return done.answer;
        }
        let changes: Vec<(u64, i64, i64)> = done
            .changes
            .iter()
            .filter_map(|&(id, to_cents)| Some((id, self.price_cents(id)?, to_cents)))
            .collect();
        let answered = request.idempotency_key().map(|key| Answered {
            key: Arc::from(key),
            fingerprint,
            status: done.answer.status,
            body: done.answer.body.clone(),
        });
        if changes.is_empty() && answered.is_none() {
            return done.answer;
        }
        let record = Record { at_ms: now.unix_ms, via: intent.api.name().to_owned(), changes, answered };
        if let Err(problem) = self.write(record) {
            return problem;
        }
        let drift = FAULTS.iter().find(|kind| kind.name == "drift");
        let drifting: Vec<u64> = done.changes.iter().map(|&(id, _)| id).collect();
        let drifting =
            drifting.into_iter().filter(|id| drift.is_some_and(|kind| self.product_hit(kind, *id)));
        let drifting: Vec<u64> = drifting.collect();
        match self.drift(&drifting, self.settings.drift_percent, now) {
            Ok(_) => done.answer,
            Err(problem) => problem,
        }
    }

    fn write(&mut self, record: Record) -> Result<(), Answer> {
        let (at_ms, changes) = (record.at_ms, record.changes.clone());
        self.ledger.append(record).map_err(|error| {
            Answer::refusal(500, "LEDGER", &format!("the ledger cannot be written: {error}"))
        })?;
        for (id, _, to_cents) in changes {
            if let Some(product) = self.catalogue.index(id).and_then(|at| self.products.get_mut(at)) {
                product.change(to_cents, at_ms);
            }
        }
        Ok(())
    }

    /// Something else changes these prices; gives which.
    pub fn drift(&mut self, ids: &[u64], percent: f64, now: Now) -> Result<Vec<u64>, Answer> {
        let drifted = |&id: &u64| {
            let from = self.price_cents(id)?;
            let to = (from as f64 * (1.0 + percent / 100.0)).round() as i64;
            // A price of 0, or a small one, drifts too.
            let to = super::money::bounded(to).unwrap_or(from);
            Some((id, from, if to == from { from + 1 } else { to }))
        };
        let changes: Vec<(u64, i64, i64)> = ids.iter().filter_map(drifted).collect();
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let ids = changes.iter().map(|change| change.0).collect();
        self.write(Record { at_ms: now.unix_ms, via: "drift".to_owned(), changes, answered: None })?;
        Ok(ids)
    }

    fn after(&mut self, key: &str, intent: &Intent, answer: Answer) -> (Reply, Met) {
        for kind in FAULTS.iter().filter(|kind| ["lost", "late"].contains(&kind.name)) {
            if intent.is_change && self.request_hit(kind, key, intent) {
                return match kind.name {
                    "lost" => (Reply::Cut, Met::Cut),
                    _ => (Reply::from(answer).held(self.settings.hold_ms), Met::Held),
                };
            }
        }
        let met = Met::Status(answer.status);
        (answer.into(), met)
    }

    /// By its key, or by a product that it is about, if the fault names that: `/products/12`.
    fn request_hit(&mut self, kind: &FaultKind, key: &str, intent: &Intent) -> bool {
        let Some(chance) = self.settings.faults.0.get(kind.name) else { return false };
        let paths = intent.products.iter().map(|id| format!("/products/{id}"));
        let named = paths.into_iter().find(|path| chance.only.contains(path));
        let subject = named.as_deref().unwrap_or(key).to_owned();
        self.hit(kind, &subject)
    }

    /// All of them count, so that a call about many fails no more often than one about one.
    fn any_product_hit(&mut self, kind: &FaultKind, ids: &[u64]) -> bool {
        ids.iter().filter(|&&id| self.product_hit(kind, id)).count() > 0
    }

    fn product_hit(&mut self, kind: &FaultKind, id: u64) -> bool {
        self.hit(kind, &id.to_string())
    }

    fn hit(&mut self, kind: &FaultKind, subject: &str) -> bool {
        let is_hit = self.tally.hits(&self.settings.faults, self.settings.seed, kind, subject);
        if is_hit {
            self.stats.met_fault(kind.name);
        }
        is_hit
    }
}

fn server_error(name: &str, seed: u64, key: &str) -> (Reply, Met) {
    let (status, code) = match name {
        "server_error" => {
            const CODES: [(u16, &str); 4] = [
                (500, "INTERNAL_ERROR"),
                (502, "BAD_GATEWAY"),
                (503, "TEMPORARILY_UNAVAILABLE"),
                (504, "GATEWAY_TIMEOUT"),
            ];
            CODES[(hash(seed, "status", key) % 4) as usize]
        }
        _ => (503, "TEMPORARILY_UNAVAILABLE"),
    };
    (Answer::refusal(status, code, "try again later; nothing was changed").into(), Met::Status(status))
}

fn fingerprint(request: &Request) -> u64 {
    let body = String::from_utf8_lossy(&request.body);
    hash(0, &format!("{} {}", request.method, request.path), &body)
}
