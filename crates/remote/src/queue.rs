//! Runs come in, and workers take them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use waypost_kernel::Span;
use waypost_store::codec::token_from;
use waypost_store::wire::{error_from, new_run};
use waypost_store::{
    Claim, Claimed, Each, Enqueued, EnqueuedClaim, NewRun, Result, RunRow, StoreError, Take, check_new,
    parse_time,
};

use super::RemoteStore;
use super::ask::{Ask, of_run};

/// Of one request: the server takes 1,000 runs and 16 MiB.
const MOST_RUNS: usize = 500;
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// A server that is away is asked again after this time at the soonest.
const AWAY: Duration = Duration::from_millis(500);

/// A claim that is under way holds up a shutdown, so that it does not wait for long.
pub(crate) const CLAIM_WAIT: Duration = Duration::from_secs(2);

impl RemoteStore {
    pub(crate) async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>> {
        if claim.limit == 0 {
            return Ok(Vec::new());
        }
        let mut body = json!({
            "worker": claim.worker,
            "queues": claim.queues,
            "lifecycles": Some(claim.lifecycles).filter(|names| !names.is_empty()),
            "playbooks": claim.can.as_ref().map(|can| &can.playbooks),
            "carried": claim.can.as_ref().map(|can| can.carried),
            "limit": claim.limit.clamp(1, 100),
            "lease_ms": claim.lease.map(Span::ms),
            "start": claim.start,
            "idempotency_key": claim.idempotency_key,
        });
        if let Some(wait) = claim.wait {
            body["wait_ms"] = wait.ms().into();
        }
        // A server of before does not know it.
        if let Some(most) = claim.bytes {
            body["max_bytes"] = most.into();
        }
        let answer = Ask::post("/v1/claims", body).only_of(claim.tenant).send(self).await?;
        let mut claims = Vec::new();
        for claimed in answer["claims"].as_array().into_iter().flatten() {
            claims.push(self.claimed(claimed).await?);
        }
        Ok(claims)
    }

    pub(crate) async fn claim_run(&self, run_id: String, take: Take) -> Result<Claimed> {
        let body =
            json!({ "worker": take.worker, "lease_ms": take.lease.map(Span::ms), "start": take.start });
        let answer = Ask::post(of_run(&run_id, "/claim")?, body).send(self).await?;
        self.claimed(&answer).await
    }

    pub(crate) async fn changed(&self, at_most: Duration) {
        let begun = Instant::now();
        let wait_ms = at_most.as_millis().min(30_000);
        let ask = Ask::get(format!("/v1/changes?wait_ms={wait_ms}"));
        if ask.within(at_most + Duration::from_secs(5)).send(self).await.is_err() {
            sleep_until(begun + at_most.min(AWAY)).await;
        }
    }

    /// One request, which the server answers when there is an event, or when the time is over.
    pub(crate) async fn event_after(&self, run_id: String, seq: u64, at_most: Duration) {
        let begun = Instant::now();
        let wait_ms = at_most.as_millis().min(30_000);
        let Ok(path) = of_run(&run_id, &format!("/events?after={seq}&limit=1&wait_ms={wait_ms}")) else {
            return;
        };
        if Ask::get(path).within(at_most + Duration::from_secs(5)).send(self).await.is_err() {
            sleep_until(begun + at_most.min(AWAY)).await;
        }
    }

    pub(crate) async fn enqueue_claimed(&self, run: NewRun, take: Take) -> Result<EnqueuedClaim> {
        check_new(&run)?;
        let body = json!({
            "run": new_run(&run),
            "worker": take.worker,
            "lease_ms": take.lease.map(Span::ms),
            "start": take.start,
        });
        let answer = Ask::post("/v1/runs/claimed", body).of(&run.tenant).send(self).await?;
        let claimed = if answer["lease"].is_object() { Some(self.claimed(&answer).await?) } else { None };
        let run = match &claimed {
            Some(claimed) => claimed.run.clone(),
            None => self.row(&answer["run"]).await?,
        };
        Ok(EnqueuedClaim { enqueued: Enqueued { run, replayed: answer["replayed"] == true }, claimed })
    }

    pub(crate) async fn dry_run(&self, run: NewRun) -> Result<Option<String>> {
        check_new(&run)?;
        let answer = Ask::post("/v1/runs/dry-run", new_run(&run)).of(&run.tenant).send(self).await?;
        Ok(answer["run_id"].as_str().map(str::to_owned))
    }

    pub(crate) async fn made_by(&self, tenant: String, key: String, asked: String) -> Result<Option<RunRow>> {
        let body = json!({ "idempotency_key": key, "asked": asked });
        match Ask::post("/v1/runs/known", body).of(&tenant).send(self).await {
            Ok(answer) => self.row(&answer).await.map(Some),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Each is answered by itself, in the order in which they were given.
    pub(crate) async fn enqueue(&self, runs: Vec<NewRun>) -> Result<Each<Enqueued>> {
        let mut answers: Vec<Option<Result<Enqueued>>> = runs.iter().map(|_| None).collect();
        let mut by_tenant: BTreeMap<&str, Vec<(usize, Value)>> = BTreeMap::new();
        for (place, run) in runs.iter().enumerate() {
            match check_new(run) {
                Ok(()) => by_tenant.entry(&run.tenant).or_default().push((place, new_run(run))),
                Err(error) => answers[place] = Some(Err(error)),
            }
        }
        for (tenant, mut objects) in by_tenant {
            while !objects.is_empty() {
                let mut bytes = 0;
                let fits = |(_, object): &&(usize, Value)| {
                    bytes += object.to_string().len();
                    bytes <= MOST_BYTES
                };
                let count = objects.iter().take(MOST_RUNS).take_while(fits).count().max(1);
                let rest = objects.split_off(count);
                let (places, batch): (Vec<usize>, Vec<Value>) = objects.into_iter().unzip();
                for (place, answer) in places.into_iter().zip(self.enqueue_batch(tenant, batch).await?) {
                    answers[place] = Some(answer);
                }
                objects = rest;
            }
        }
        let unanswered = || Err(StoreError::Unavailable("the server left it unanswered".into()));
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect())
    }

    /// A request that is refused as a whole is tried one by one: what is wrong with one must not fail its neighbours.
    async fn enqueue_batch(&self, tenant: &str, batch: Vec<Value>) -> Result<Each<Enqueued>> {
        let count = batch.len();
        let answer = Ask::post("/v1/runs/batch", json!({ "runs": &batch })).of(tenant).send(self).await;
        let mut made = Vec::new();
        match answer {
            Ok(answer) => {
                for at in 0..count {
                    made.push(self.made(&answer["runs"][at]).await);
                }
            }
            Err(error @ StoreError::Invalid { .. }) if count == 1 => made.push(Err(error)),
            Err(StoreError::Invalid { .. }) => {
                for one in batch {
                    made.extend(Box::pin(self.enqueue_batch(tenant, vec![one])).await?);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(made)
    }

    async fn made(&self, answer: &Value) -> Result<Enqueued> {
        if let Some(problem) = answer.get("error") {
            let unread =
                || StoreError::Unavailable(problem["detail"].as_str().unwrap_or_default().to_owned());
            return Err(error_from(problem).unwrap_or_else(unread));
        }
        Ok(Enqueued { run: self.row(&answer["run"]).await?, replayed: answer["replayed"] == true })
    }

    pub(crate) async fn claimed(&self, answer: &Value) -> Result<Claimed> {
        let mut run = self.row(&answer["run"]).await?;
        let lease = &answer["lease"];
        let read = || {
            let token = token_from(lease["token"].as_str()?)?;
            let time = |name: &str| parse_time(lease[name].as_str()?);
            Some((token, lease["fence"].as_u64()?, time("expires_at")?, time("now")?))
        };
        let unread = || StoreError::Unusable(format!("{} sent a lease without its parts", self.base));
        let (token, fence, expires_at, now) = read().ok_or_else(unread)?;
        if let Some(lease) = &mut run.run.lease {
            lease.token = token;
        }
        Ok(Claimed { run, token, fence, expires_at, now })
    }
}
