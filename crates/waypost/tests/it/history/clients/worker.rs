//! Claim runs and work them: well, badly, too late, or not at all.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::plan::{CLAIMED, End, Work, next_work};
use super::super::record::{Answer, Ask, Granted};
use super::super::shared::Shared;
use super::super::wire::Reply;
use super::{Client, Sent, done, status};

const LEASE_MS: u64 = 3_000;

/// A run that was given to a worker of this name.
#[derive(Clone, Debug)]
pub struct Hold {
    pub worker: String,
    pub run_id: String,
    pub lifecycle: String,
    pub token: String,
}

fn granted(reply: &Reply) -> Answer {
    let claims = reply.body["claims"].as_array().unwrap().iter();
    let granted = claims.map(|claim| Granted {
        run_id: claim["run"]["run_id"].as_str().unwrap().to_owned(),
        fence: claim["lease"]["fence"].as_u64(),
    });
    Answer::Claims(granted.collect())
}

fn noted(reply: &Reply) -> Answer {
    let position = reply.body["event_id"].as_str().and_then(|id| id.strip_prefix("evt-")?.parse().ok());
    Answer::Noted { position: position.unwrap() }
}

impl Client {
    pub async fn claim(&mut self, queues: &[&str], limit: u64, wait_ms: u64) -> Vec<Hold> {
        let number = self.number();
        let worker = format!("{}-{number}", self.name);
        let body = json!({
            "worker": worker, "queues": queues, "limit": limit, "wait_ms": wait_ms, "lease_ms": LEASE_MS,
        });
        let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
        let holds = std::sync::Mutex::new(Vec::new());
        let read = |reply: &Reply| {
            let hold = |claim: &Value| Hold {
                worker: worker.clone(),
                run_id: claim["run"]["run_id"].as_str().unwrap().to_owned(),
                lifecycle: claim["run"]["lifecycle"].as_str().unwrap().to_owned(),
                token: claim["lease"]["token"].as_str().unwrap().to_owned(),
            };
            *holds.lock().unwrap() = reply.body["claims"].as_array().unwrap().iter().map(hold).collect();
            granted(reply)
        };
        let ask = Ask::Claim { worker: worker.clone(), queues };
        self.ask(ask, &Sent::post("/v1/claims", body), read).await;
        holds.into_inner().unwrap()
    }

    async fn note(&mut self, hold: &Hold) -> Answer {
        let number = self.number();
        let message = format!("{} note {number}", self.name);
        let body =
            json!({ "lease_token": hold.token, "message": message, "once": "never", "by": hold.worker });
        let ask = Ask::Note { worker: hold.worker.clone(), run_id: hold.run_id.clone(), message };
        self.ask(ask, &Sent::post(format!("/v1/runs/{}/events", hold.run_id), body), noted).await
    }

    async fn item(&mut self, hold: &Hold, key: &str, item_status: &str) -> Answer {
        let item = json!({ "kind": "step", "key": key, "status": item_status });
        let body = json!({ "lease_token": hold.token, "items": [item], "by": hold.worker });
        let ask = Ask::Item {
            worker: hold.worker.clone(),
            run_id: hold.run_id.clone(),
            key: key.to_owned(),
            status: item_status.to_owned(),
        };
        self.ask(ask, &Sent::post(format!("/v1/runs/{}/items", hold.run_id), body), done).await
    }

    async fn heartbeat(&mut self, hold: &Hold) {
        let ask = Ask::Heartbeat { worker: hold.worker.clone(), run_id: hold.run_id.clone() };
        let body = json!({ "lease_token": hold.token });
        self.ask(ask, &Sent::post(format!("/v1/runs/{}/heartbeat", hold.run_id), body), done).await;
    }

    /// Sent again until it is answered: it counts once. Whoever is told of a cancel finishes as that.
    pub async fn finish(&mut self, hold: &Hold, end: &str) {
        let answer = self.finish_as(hold, end).await;
        if matches!(answer, Answer::Refused { code, .. } if code == "CANCEL_REQUESTED") {
            self.finish_as(hold, "cancelled").await;
        }
    }

    async fn finish_as(&mut self, hold: &Hold, end: &str) -> Answer {
        let body = json!({ "lease_token": hold.token, "status": end, "by": hold.worker });
        let ask =
            Ask::Finish { worker: hold.worker.clone(), run_id: hold.run_id.clone(), status: end.to_owned() };
        self.insist(ask, &Sent::post(format!("/v1/runs/{}/finish", hold.run_id), body), status).await
    }

    async fn release(&mut self, hold: &Hold) {
        let ask = Ask::Release { worker: hold.worker.clone(), run_id: hold.run_id.clone() };
        let body = json!({ "lease_token": hold.token });
        self.ask(ask, &Sent::post(format!("/v1/runs/{}/release", hold.run_id), body), done).await;
    }

    async fn carry_out(&mut self, hold: &Hold, work: Work) {
        for _ in 0..work.notes {
            self.note(hold).await;
        }
        if work.has_item && hold.lifecycle != "history" {
            let key = if hold.lifecycle == "job" { "first" } else { "added" };
            self.item(hold, key, "running").await;
            self.item(hold, key, "completed").await;
        }
        self.shared.rest(work.hold_ms).await;
        if work.has_heartbeat {
            self.heartbeat(hold).await;
        }
        let success = if hold.lifecycle == "job" { "completed" } else { "success" };
        match work.end {
            End::Abandon => {}
            End::Release if hold.lifecycle == "job" => self.release(hold).await,
            End::Oversleep => {
                self.shared.rest(LEASE_MS + 1_500).await;
                self.note(hold).await;
                self.heartbeat(hold).await;
                self.finish(hold, success).await;
            }
            End::Failed => self.finish(hold, "failed").await,
            End::Cancelled => self.finish(hold, "cancelled").await,
            End::Success | End::Release => self.finish(hold, success).await,
        }
    }

    /// Writes with a lease that is over, to all servers but its own.
    async fn haunt(&mut self, hold: &Hold) {
        self.next_server();
        match self.dice.below(4) {
            0 => drop(self.note(hold).await),
            1 => self.heartbeat(hold).await,
            2 if hold.lifecycle != "history" => drop(self.item(hold, "late", "running").await),
            _ => drop(self.finish_as(hold, "failed").await),
        }
    }
}

pub async fn work(shared: Arc<Shared>, number: usize) {
    let mut client = Client::new(&shared, "worker", number);
    let queues = CLAIMED[number % CLAIMED.len()];
    while !shared.is_over() {
        let limit = if client.dice.one_in(3) { 3 } else { 1 };
        let holds = client.claim(queues, limit, 300).await;
        if holds.is_empty() {
            shared.rest(10).await;
        }
        for hold in holds {
            let work = next_work(&mut client.dice, queues);
            client.carry_out(&hold, work).await;
            if work.is_zombie && work.end != End::Abandon {
                client.haunt(&hold).await;
            }
        }
    }
}
