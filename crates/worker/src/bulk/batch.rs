//! Asking the runs of one batch, each once.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use waypost_store::{CommandWrite, Store, StoreError};

use super::{Answered, check, give};

/// Runs that are asked at once.
const AT_ONCE: usize = 8;
/// A run that others write at the same time is asked again this often.
const ROUNDS: usize = 10;
/// Events of a run that are read at once, to find whether it was asked.
const EVENTS: usize = 500;

/// A run, and the number of its last event before it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub run_id: String,
    /// None: whether there is such a run is seen when it is asked.
    pub seq: Option<u64>,
}

/// What all of a batch are asked.
#[derive(Clone)]
pub(super) struct Asks {
    pub store: Arc<dyn Store>,
    /// With the name of the operation in its reason, which no other command has.
    pub write: CommandWrite,
    pub operation: String,
}

pub(super) fn stored(members: &[Member]) -> Value {
    members.iter().map(|it| json!([it.run_id, it.seq])).collect()
}

/// A batch that an earlier holder wrote.
pub(super) fn of_stored(value: Option<&Value>) -> Vec<Member> {
    let member =
        |value: &Value| Some(Member { run_id: value[0].as_str()?.to_owned(), seq: value[1].as_u64() });
    value.and_then(Value::as_array).into_iter().flatten().filter_map(member).collect()
}

impl Asks {
    /// What came of each. `is_known`: somebody else may have asked some of them. Those that were not asked, because `may_go_on` said
    /// no, are left out.
    pub async fn all(
        &self,
        members: &[Member],
        is_known: bool,
        may_go_on: impl Fn() -> bool,
    ) -> Vec<(String, Result<Answered, StoreError>)> {
        let (mut answers, mut asking) = (Vec::new(), JoinSet::new());
        let mut waiting = members.iter();
        loop {
            while asking.len() < AT_ONCE && may_go_on() {
                let Some(member) = waiting.next().cloned() else { break };
                let asks = self.clone();
                asking.spawn(async move { (member.run_id.clone(), asks.one(member, is_known).await) });
            }
            match asking.join_next().await {
                Some(Ok(answer)) => answers.push(answer),
                Some(Err(_)) => {}
                None => return answers,
            }
        }
    }

    async fn one(&self, member: Member, is_known: bool) -> Result<Answered, StoreError> {
        let mut after = member.seq;
        for _ in 0..ROUNDS {
            let run = self.store.run(self.write.tenant.clone(), member.run_id.clone()).await?;
            // A part of an id that happens to mean one run was not meant.
            if run.id() != member.run_id {
                return Err(StoreError::no_run(&member.run_id));
            }
            if is_known && self.is_asked(&member.run_id, after.unwrap_or_default(), run.run.seq).await? {
                return Ok(Answered::Done);
            }
            after = Some(run.run.seq);
            let write = CommandWrite {
                run_id: member.run_id.clone(),
                // A holder that was thought dead, and asks after another one has, finds the run changed.
                if_seq: after,
                ..self.write.clone()
            };
            check(&*self.store, &write).await?;
            match give(&*self.store, write).await {
                Err(StoreError::Changed { .. }) => {}
                Ok(told) if told.run.seq == run.run.seq => return Ok(Answered::Unchanged),
                answer => return answer.map(|_| Answered::Done),
            }
        }
        Err(StoreError::Changed { run_id: member.run_id, seq: after.unwrap_or_default() })
    }

    /// Whether the run's log has this command between two events.
    async fn is_asked(&self, run_id: &str, mut after: u64, until: u64) -> Result<bool, StoreError> {
        while after < until {
            let events = self.store.events(run_id.to_owned(), after, EVENTS).await?;
            let is_ours = |event: &waypost_store::EventRow| {
                let says = event.message.contains(&self.operation)
                    || event.payload.to_string().contains(&self.operation);
                event.by == self.write.by && says
            };
            if events.iter().any(is_ours) {
                return Ok(true);
            }
            match events.last() {
                Some(last) => after = last.seq,
                None => break,
            }
        }
        Ok(false)
    }
}
