//! Set limits and pauses, add versions of a lifecycle, and look how much waits.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::plan::{LIMITED, PAUSED, VERSIONS, lifecycle};
use super::super::record::{Ask, NewRun};
use super::super::shared::Shared;
use super::super::wire::request;
use super::{Client, Sent, done};

/// Long without a limit, so that claims are under way when one is set, and then with one for a while.
pub async fn govern_limit(shared: Arc<Shared>) {
    let mut client = Client::new(&shared, "limit", 0);
    while !shared.is_over() {
        let at_most = 1 + client.dice.below(3);
        for (at_most, rest_ms) in
            [(Some(at_most), 300 + client.dice.below(700)), (None, 150 + client.dice.below(300))]
        {
            let ask = Ask::QueueLimit { queue: LIMITED.to_owned(), at_most };
            let path = format!("/v1/queues/{LIMITED}/limit");
            let sent =
                Sent { method: "PUT", path, headers: String::new(), body: json!({ "at_most": at_most }) };
            client.insist(ask, &sent, done).await;
            shared.rest(rest_ms).await;
        }
    }
}

pub async fn govern_keys(shared: Arc<Shared>) {
    let mut client = Client::new(&shared, "keys", 0);
    while !shared.is_over() {
        let (key, at_most) = (format!("k{}", client.dice.below(2)), 1 + client.dice.below(3));
        let path = format!("/v1/keys/{key}/limit");
        let sent = Sent { method: "PUT", path, headers: String::new(), body: json!({ "at_most": at_most }) };
        client.insist(Ask::KeyLimit { key, at_most }, &sent, done).await;
        shared.rest(500 + client.dice.below(1_500)).await;
    }
}

/// What it paused it resumes, also at the end.
pub async fn govern_pauses(shared: Arc<Shared>) {
    let mut client = Client::new(&shared, "pauses", 0);
    while !shared.is_over() {
        let queue = client.dice.one_of(PAUSED).to_owned();
        for (paused, command, rest_ms) in
            [(true, "pause", 200 + client.dice.below(500)), (false, "resume", 400)]
        {
            let ask = Ask::Pause { queue: queue.clone(), paused };
            let sent = Sent::post(format!("/v1/queues/{queue}/{command}"), json!({ "reason": "a while" }));
            client.insist(ask, &sent, done).await;
            shared.rest(rest_ms).await;
        }
    }
}

/// At one server, and runs of it right after; a worker of another server has to learn of it.
pub async fn govern_lifecycles(shared: Arc<Shared>) {
    let mut client = Client::new(&shared, "lifecycles", 0);
    let mut worker = Client::new(&shared, "lifecycles", 1);
    for version in 2.. {
        shared.rest(2_000 + client.dice.below(2_000)).await;
        if shared.is_over() {
            return;
        }
        let sent = Sent::post("/v1/lifecycles", json!({ "source": lifecycle(version) }));
        client.insist(Ask::Lifecycle { version }, &sent, done).await;
        for _ in 0..3 {
            let (lifecycle, queue) = ("history".to_owned(), VERSIONS.to_owned());
            client.start(&NewRun { lifecycle, queue, ..NewRun::default() }).await;
        }
        for hold in worker.claim(&[VERSIONS], 3, 0).await {
            worker.finish(&hold, "success").await;
        }
        client.next_server();
        worker.next_server();
    }
}

/// Tells producers how much waits. A read, and no answer of it is judged.
pub async fn monitor(shared: Arc<Shared>) {
    for turn in 0.. {
        if shared.is_over() {
            return;
        }
        let address = &shared.addresses[turn % shared.addresses.len()];
        if let Ok(reply) = request(address, "GET", "/v1/queues", "", &Value::Null).await
            && let Some(queues) = reply.body["queues"].as_array()
        {
            let mut waiting = shared.waiting.lock().unwrap();
            for queue in queues {
                let name = queue["queue"].as_str().unwrap().to_owned();
                waiting.insert(name, queue["ready"].as_u64().unwrap());
            }
        }
        shared.rest(300).await;
    }
}
