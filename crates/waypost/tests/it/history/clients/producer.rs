//! Start runs, look for them at other servers, cancel some.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::plan::next_run;
use super::super::record::{Answer, Ask, NewRun};
use super::super::shared::Shared;
use super::super::wire::Reply;
use super::{Client, Sent, done, must_ask_again, status};

fn body(new: &NewRun) -> Value {
    let mut body = json!({
        "lifecycle": new.lifecycle,
        "queue": new.queue,
        "priority": new.priority,
        "input": { "number": new.body },
    });
    if let Some(key) = &new.concurrency_key {
        body["concurrency_key"] = json!(key);
    }
    if let Some(ttl_ms) = new.ttl_ms {
        body["ttl_ms"] = json!(ttl_ms);
    }
    if let Some(parent) = &new.parent {
        body["parent_run_id"] = json!(parent);
    }
    if new.lifecycle == "job" {
        body["items"] = json!([{ "kind": "step", "key": "first" }]);
    }
    body
}

fn made(reply: &Reply) -> Answer {
    let run_id = reply.body["run_id"].as_str().unwrap().to_owned();
    Answer::Made { run_id, is_new: !reply.is_replay }
}

impl Client {
    /// With a key until it is answered; without one once, because nobody could tell two runs apart.
    pub async fn start(&mut self, new: &NewRun) -> Option<String> {
        let key = new.idempotency_key.as_ref();
        let headers = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
        let sent = Sent { method: "POST", path: "/v1/runs".into(), headers, body: body(new) };
        let ask = Ask::Enqueue(new.clone());
        let answer = match key {
            Some(_) => self.insist(ask, &sent, made).await,
            None => self.ask(ask, &sent, made).await,
        };
        match answer {
            Answer::Made { run_id, .. } => Some(run_id),
            _ => None,
        }
    }

    async fn look(&mut self, run_id: &str) {
        let path = format!("/v1/runs/{run_id}");
        let sent = Sent { method: "GET", path, headers: String::new(), body: Value::Null };
        self.ask(Ask::Look { run_id: run_id.to_owned() }, &sent, done).await;
    }
}

pub async fn produce(shared: Arc<Shared>, number: usize) {
    let mut client = Client::new(&shared, "producer", number);
    let name = client.name.clone();
    let mut parent: Option<String> = None;
    while !shared.is_over() {
        let at = client.number();
        let next = next_run(&mut client.dice, &name, at, |queue| shared.has_enough(queue));
        let (again, look, bears) = (client.dice.below(12), client.dice.one_in(6), client.dice.one_in(3));
        let Some(mut new) = next else {
            shared.rest(20).await;
            continue;
        };
        new.parent = parent.take().filter(|_| bears);
        if let Some(run_id) = client.start(&new).await {
            shared.remember(&run_id);
            if look {
                client.next_server();
                client.look(&run_id).await;
            }
            if new.idempotency_key.is_some() && again < 2 {
                // The same once more is the same run; with another body it is refused.
                client.next_server();
                new.body += again;
                client.start(&new).await;
            }
            parent = Some(run_id);
        }
        shared.rest(15 + client.dice.below(40)).await;
    }
}

pub async fn cancel(shared: Arc<Shared>, number: usize) {
    let mut client = Client::new(&shared, "canceller", number);
    while !shared.is_over() {
        shared.rest(50 + client.dice.below(200)).await;
        let Some(run_id) = shared.some_run(&mut client.dice) else { continue };
        let sent = Sent::post(format!("/v1/runs/{run_id}/cancel"), json!({ "reason": "no longer wanted" }));
        let answer = client.ask(Ask::Cancel { run_id: run_id.clone() }, &sent, status).await;
        if must_ask_again(&answer) {
            client.ask(Ask::Cancel { run_id }, &sent, status).await;
        }
    }
}
