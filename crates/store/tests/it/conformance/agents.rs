//! Agents: what they are, whether they take runs, and how their failures are counted.

use serde_json::json;
use waypost_kernel::Span;
use waypost_store::{
    AGENTS_QUEUE, AgentChange, AgentRow, AgentState, AgentWrite, Claim, Database, NewRun, StoreError, agent_key,
};

use super::kit::*;

fn violin() -> AgentWrite {
    AgentWrite { slug: "violin".into(), playbook: Some("archivist".into()), ..AgentWrite::default() }
}

async fn change(store: &dyn Database, change: AgentChange) -> AgentRow {
    store.change_agent(change, "ann".into()).await.unwrap()
}

async fn agent(store: &dyn Database) -> AgentRow {
    store.agents(Some(TENANT.into())).await.unwrap().into_iter().find(|it| it.slug() == "violin").unwrap()
}

fn asked() -> NewRun {
    NewRun {
        queue: AGENTS_QUEUE.into(),
        concurrency_key: Some(agent_key("violin")),
        metadata: map(json!({ "agent_slug": "violin" })),
        ..new("agent")
    }
}

async fn queued(store: &dyn Database) -> String {
    let id = put(store, asked()).await.id().to_owned();
    store.acknowledge(TENANT.into(), id.clone(), "engine".into()).await.unwrap();
    id
}

fn all_agents() -> Claim {
    Claim { queues: vec![AGENTS_QUEUE.into()], ..wants("w1", 10) }
}

/// One run to this end, as the projector tells of it: twice.
async fn ended(store: &dyn Database, status: &str) -> String {
    let id = queued(store).await;
    let claimed = store.claim_run(id.clone(), "w1".into()).await.unwrap();
    finish(store, &claimed, status).await.unwrap();
    for _ in 0..2 {
        store.agent_ended(id.clone()).await.unwrap();
    }
    store.advance_clock(Span::from_seconds(1)).await.unwrap();
    id
}

// proves A7
pub async fn an_agent_is_declared_changed_and_archived(store: &dyn Database) {
    assert_eq!(store.agents(None).await.unwrap(), []);
    let made = change(store, AgentChange::Put(violin())).await;
    assert_eq!((made.state(), made.definition.clone(), made.failures()), (AgentState::Active, violin(), 0));
    assert_eq!(agent(store).await, made);
    let paused = change(store, AgentChange::Pause("violin".into())).await;
    assert_eq!((paused.state(), paused.paused.as_ref().unwrap().by.as_str()), (AgentState::Paused, "ann"));
    assert_eq!(change(store, AgentChange::Pause("violin".into())).await, paused, "once more is the same");
    assert_eq!(change(store, AgentChange::Resume("violin".into())).await.state(), AgentState::Active);
    let archived = change(store, AgentChange::Archive("violin".into())).await;
    assert_eq!(archived.state(), AgentState::Archived);
    assert_eq!(change(store, AgentChange::Put(violin())).await.state(), AgentState::Active);
    let disabled = AgentWrite { enabled: false, ..violin() };
    assert_eq!(change(store, AgentChange::Put(disabled)).await.state(), AgentState::Paused);
    let actions: Vec<String> =
        store.audits(None, 0, 100).await.unwrap().into_iter().map(|entry| entry.action).collect();
    let expected =
        ["agent.apply", "agent.pause", "agent.resume", "agent.archive", "agent.apply", "agent.apply"];
    assert_eq!(actions, expected);
}

pub async fn what_is_no_agent_is_refused(store: &dyn Database) {
    for slug in ["", "a b", "a/b", "-a", "ä", &"a".repeat(101)] {
        let write = AgentWrite { slug: slug.into(), ..violin() };
        let refused = store.change_agent(AgentChange::Put(write.clone()), "ann".into()).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Invalid { field, .. } if field == "slug"), "{slug}: {refused}");
        assert!(store.put_agents(TENANT.into(), vec![violin(), write], None).await.is_err());
    }
    for concurrency in [0, 1_001] {
        let write = AgentWrite { concurrency, ..violin() };
        assert!(store.change_agent(AgentChange::Put(write), "ann".into()).await.is_err());
    }
    assert_eq!(store.agents(None).await.unwrap(), [], "nothing is half-written");
    let unknown = store.change_agent(AgentChange::Reset("violin".into()), "ann".into()).await.unwrap_err();
    assert!(matches!(unknown, StoreError::NotFound { what: "agent", .. }), "{unknown}");
}

// proves A7
pub async fn an_agent_works_as_many_runs_as_it_says_and_none_while_it_is_paused(store: &dyn Database) {
    let two = AgentWrite { concurrency: 2, ..violin() };
    store.put_agents(TENANT.into(), vec![two], Some(3)).await.unwrap();
    for _ in 0..5 {
        queued(store).await;
    }
    let taken = store.claim(all_agents()).await.unwrap();
    assert_eq!(taken.len(), 2);
    change(store, AgentChange::Pause("violin".into())).await;
    finish(store, &taken[0], "completed").await.unwrap();
    assert_eq!(store.claim(all_agents()).await.unwrap().len(), 0, "those that wait go on waiting");
    change(store, AgentChange::Resume("violin".into())).await;
    assert_eq!(store.claim(all_agents()).await.unwrap().len(), 1);
    // A file that is read again changes nothing of what people did; another definition counts at once.
    change(store, AgentChange::Pause("violin".into())).await;
    store.put_agents(TENANT.into(), vec![AgentWrite { concurrency: 5, ..violin() }], Some(3)).await.unwrap();
    assert_eq!(agent(store).await.state(), AgentState::Paused);
    change(store, AgentChange::Resume("violin".into())).await;
    assert_eq!(store.claim(all_agents()).await.unwrap().len(), 1, "all agents together have three");
}

// proves A7
pub async fn three_failures_in_a_row_put_an_agent_into_error_until_it_is_reset(store: &dyn Database) {
    change(store, AgentChange::Put(violin())).await;
    for status in ["failed", "failed", "completed", "failed"] {
        ended(store, status).await;
    }
    let cancelled = queued(store).await;
    command(store, &cancelled, "cancel").await.unwrap();
    store.agent_ended(cancelled).await.unwrap();
    ended(store, "failed").await;
    assert_eq!((agent(store).await.failures(), agent(store).await.state()), (2, AgentState::Active));
    let waits = queued(store).await;
    let last = {
        let id = queued(store).await;
        // The one that waits longer is worked first; this one fails by its age.
        let claimed = store.claim_run(waits.clone(), "w1".into()).await.unwrap();
        finish(store, &claimed, "failed").await.unwrap();
        id
    };
    store.agent_ended(waits).await.unwrap();
    let broken = agent(store).await;
    assert_eq!((broken.failures(), broken.state()), (3, AgentState::Error));
    assert_eq!(store.claim(all_agents()).await.unwrap().len(), 0);
    store.advance_clock(Span::from_seconds(1)).await.unwrap();
    let reset = change(store, AgentChange::Reset("violin".into())).await;
    assert_eq!((reset.failures(), reset.state()), (0, AgentState::Active));
    for end in &broken.ends {
        store.agent_ended(end.run_id.clone()).await.unwrap();
    }
    assert_eq!(agent(store).await.failures(), 0, "what ended before does not count");
    let taken = store.claim(all_agents()).await.unwrap();
    assert_eq!(taken.iter().map(|it| it.run.id()).collect::<Vec<_>>(), [last.as_str()]);
    store.agent_ended("run-nobody".into()).await.unwrap();
}

// proves A7: ends that are told late count where they belong
pub async fn failures_count_in_the_order_in_which_runs_ended(store: &dyn Database) {
    change(store, AgentChange::Put(AgentWrite { concurrency: 9, ..violin() })).await;
    let mut ids = Vec::new();
    for status in ["failed", "failed", "completed", "failed"] {
        let id = queued(store).await;
        let claimed = store.claim_run(id.clone(), "w1".into()).await.unwrap();
        finish(store, &claimed, status).await.unwrap();
        store.advance_clock(Span::from_seconds(1)).await.unwrap();
        ids.push(id);
    }
    for at in [3, 0, 1] {
        store.agent_ended(ids[at].clone()).await.unwrap();
    }
    assert_eq!(agent(store).await.failures(), 3, "nobody told of the one that went well");
    store.agent_ended(ids[2].clone()).await.unwrap();
    assert_eq!((agent(store).await.failures(), agent(store).await.state()), (1, AgentState::Active));
}

async fn position(store: &dyn Database, id: &str) -> Option<u64> {
    let row = store.run(TENANT.into(), id.into()).await.unwrap();
    store.explain(vec![row]).await.unwrap().remove(0).queue_position
}

// proves A7
pub async fn two_hundred_runs_of_one_agent_follow_each_other_and_know_their_place(store: &dyn Database) {
    change(store, AgentChange::Put(violin())).await;
    let mut line = Vec::new();
    for _ in 0..200 {
        line.push(queued(store).await);
    }
    // Another agent's runs, and a run of another tenant with the same key, stand in no line of this one.
    let cello = NewRun { concurrency_key: Some(agent_key("cello")), ..asked() };
    let other = put(store, cello).await.id().to_owned();
    store.acknowledge(TENANT.into(), other.clone(), "engine".into()).await.unwrap();
    assert_eq!(position(store, &other).await, Some(1));
    store.claim_run(other, "w2".into()).await.unwrap();
    for at in [0, 1, 99, 199] {
        assert_eq!(position(store, &line[at]).await, Some(at as u64 + 1));
    }
    let draft = put(store, asked()).await;
    assert_eq!(position(store, draft.id()).await, None, "it is not in line yet");
    for (number, id) in line.iter().enumerate() {
        let claimed = store.claim(all_agents()).await.unwrap();
        let ids: Vec<&str> = claimed.iter().map(|claimed| claimed.run.id()).collect();
        assert_eq!(ids, [id.as_str()], "one at a time, in turn");
        assert_eq!(position(store, id).await, None, "it is not in line any more");
        for at in [number + 1, 150, 199].into_iter().filter(|at| (number + 1..200).contains(at)) {
            assert_eq!(position(store, &line[at]).await, Some((at - number) as u64), "{number} {at}");
        }
        finish(store, &claimed[0], "completed").await.unwrap();
    }
}
