//! Claims of a queue that are under way while it gets a limit, and an SQL user's transaction that both wait for.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;

use super::super::plan::RACED;
use super::super::record::{Ask, NewRun};
use super::super::shared::Shared;
use super::sql::Session;
use super::worker::Hold;
use super::{Client, Sent, done};

const CLAIMERS: usize = 3;
const AT_MOST: u64 = 2;

async fn limit(governor: &mut Client, queue: &str, at_most: Option<u64>) {
    let ask = Ask::QueueLimit { queue: queue.to_owned(), at_most };
    let path = format!("/v1/queues/{queue}/limit");
    let sent = Sent { method: "PUT", path, headers: String::new(), body: json!({ "at_most": at_most }) };
    governor.insist(ask, &sent, done).await;
}

async fn claim_all(claimers: &mut [Client], queue: &str) -> Vec<Vec<Hold>> {
    join_all(claimers.iter_mut().map(|client| async { client.claim(&[queue], 1, 0).await })).await
}

async fn finish_all(claimers: &mut [Client], held: Vec<Vec<Hold>>) {
    let ends = claimers.iter_mut().zip(held).map(|(client, holds)| async move {
        for hold in holds {
            client.finish(&hold, "success").await;
        }
    });
    join_all(ends).await;
}

pub async fn race_limits(shared: Arc<Shared>) {
    let mut governor = Client::new(&shared, "race", CLAIMERS);
    let mut claimers: Vec<Client> =
        (0..CLAIMERS).map(|number| Client::new(&shared, "race", number)).collect();
    let mut session = shared.database_url.as_ref().map(|_| Session::new(&shared, "racer", 0));
    for queue in RACED.iter().cycle() {
        shared.rest(300).await;
        if shared.is_over() {
            return;
        }
        let missing = if shared.has_enough(queue) { 0 } else { 3 * CLAIMERS };
        for _ in 0..missing {
            let key = format!("race-{}", governor.number());
            let (lifecycle, queue) = ("deploy".to_owned(), (*queue).to_owned());
            let new = NewRun { lifecycle, queue, idempotency_key: Some(key), ..NewRun::default() };
            governor.start(&new).await;
        }
        // Who has claimed from a queue before goes the short way the next time.
        let before = claim_all(&mut claimers, queue).await;
        let (one, others) = claimers.split_at_mut(1);
        let mut before = before.into_iter();
        let first = before.next().unwrap_or_default();
        finish_all(others, before.collect()).await;
        let open = async {
            if let Some(session) = &mut session {
                session.queue(150, false, false).await;
            }
        };
        let set = async {
            shared.rest(30).await;
            limit(&mut governor, queue, Some(AT_MOST)).await;
        };
        let claim = async {
            shared.rest(80).await;
            claim_all(others, queue).await
        };
        let ((), (), during) = tokio::join!(open, set, claim);
        // The limit is answered: from here on it has to be heeded.
        let after = claim_all(one, queue).await;
        finish_all(one, vec![first]).await;
        let last = claim_all(one, queue).await;
        finish_all(others, during).await;
        finish_all(one, after).await;
        finish_all(one, last).await;
        limit(&mut governor, queue, None).await;
    }
}
