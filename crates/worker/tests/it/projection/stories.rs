//! What agents' runs go through, move by move.

use std::sync::Arc;

use serde_json::json;
use waypost_kernel::{Failure, Phase};
use waypost_store::{Claimed, Database, FinishWrite, Held, ItemWrite, ItemsWrite, NewItem, NewRun, Take};

use crate::support::Shop;

pub const STEPS: [&str; 4] = ["load-context", "execute-agent", "persist-results", "finalize"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Completed,
    Failed,
    Cancelled,
}

/// One run, and how far it is.
pub struct Story {
    store: Arc<dyn Database>,
    pub id: String,
    end: End,
    claimed: Option<Claimed>,
    at: usize,
}

impl Story {
    pub async fn begin(store: &Arc<dyn Database>, end: End) -> Story {
        let metadata = json!({ "agent_slug": "archivist-violin", "trigger": "cron" });
        let new = NewRun {
            lifecycle: "agent".into(),
            metadata: metadata.as_object().unwrap().clone(),
            items: STEPS.iter().map(|name| NewItem::new("step", name)).collect(),
            ..NewRun::default()
        };
        let made = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap();
        Story { store: store.clone(), id: made.run.id().to_owned(), end, claimed: None, at: 0 }
    }

    /// The next move, if it can be made yet; gives whether the run has ended.
    pub async fn go_on(&mut self) -> bool {
        let row = self.store.run("default".into(), self.id.clone()).await.unwrap();
        match row.phase() {
            Phase::Draft => false,
            Phase::Settled => true,
            Phase::Ready => {
                let claimed = self.store.claim_run(self.id.clone(), Take::from("w1")).await.unwrap();
                self.claimed = Some(claimed);
                false
            }
            _ => {
                self.work().await;
                false
            }
        }
    }

    async fn work(&mut self) {
        let (step, is_beginning) = (self.at / 2, self.at.is_multiple_of(2));
        self.at += 1;
        match (step, is_beginning) {
            (1, false) if self.end == End::Failed => self.fail(step).await,
            (1, false) if self.end == End::Cancelled => {
                self.store.command(Shop::cancelling(&self.id)).await.unwrap();
                self.finish("failed", None).await;
            }
            (4.., _) => self.finish("completed", None).await,
            (step, true) => self.put(step, "running", None).await,
            (step, false) => self.put(step, "completed", None).await,
        }
    }

    async fn fail(&self, step: usize) {
        let failure = Failure::new("AGENT_TIMEOUT", "execution exceeded 600s limit");
        self.put(step, "failed", Some(failure.clone())).await;
        self.finish("failed", Some(failure)).await;
    }

    fn held(&self) -> Held {
        Held { run_id: self.id.clone(), token: self.claimed.as_ref().unwrap().token }
    }

    async fn put(&self, step: usize, status: &str, failure: Option<Failure>) {
        let item = ItemWrite {
            kind: "step".into(),
            key: STEPS[step].into(),
            status: status.into(),
            output: Some(json!({ "step": step })),
            failure,
            ..ItemWrite::default()
        };
        let write = ItemsWrite { held: self.held(), by: "w1".into(), items: vec![item] };
        self.store.put_items(write).await.unwrap();
    }

    async fn finish(&self, status: &str, failure: Option<Failure>) {
        let finish = FinishWrite {
            run_id: self.id.clone(),
            token: Some(self.held().token),
            by: "w1".into(),
            status: status.into(),
            failure,
            ..FinishWrite::default()
        };
        self.store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
    }
}
