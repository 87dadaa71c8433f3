//! A run of an agent, as whoever starts it has it made: the server for a front end, a schedule, the command line.

use std::fmt;

use serde_json::{Map, Value, json};
use waypost_kernel::tenant::DEFAULT;
use waypost_kernel::{Catalog, Failure, Phase};
use waypost_store::{
    AGENT_SLUG, AGENTS_QUEUE, AgentRow, AgentState, NewRun, RunRow, Store, StoreError, agent_key,
    asked_digest,
};

use super::{DEFAULT_PLAYBOOK, LIFECYCLE};
use crate::playbook::known::{self, LeftOpen, NotKnown};
use crate::playbook::{CannotStart, Playbooks};
use crate::projection::errors;

/// Who or what can have begun a run.
pub const TRIGGERS: [&str; 3] = ["manual", "cron", "event"];

/// What is asked for.
#[derive(Clone, Debug)]
pub struct AgentRun {
    pub tenant: String,
    pub slug: String,
    /// One of [`TRIGGERS`].
    pub trigger: String,
    pub input: Value,
    pub correlation_id: Option<String>,
    pub by: String,
}

impl Default for AgentRun {
    fn default() -> AgentRun {
        AgentRun {
            tenant: DEFAULT.to_owned(),
            slug: String::new(),
            trigger: TRIGGERS[0].to_owned(),
            input: json!({}),
            correlation_id: None,
            by: String::new(),
        }
    }
}

/// Why there is no run.
#[derive(Debug)]
pub enum CannotRun {
    UnknownAgent(String),
    /// It takes none now.
    NotActive(Box<AgentRow>),
    NoPlaybook(NotKnown),
    Start(CannotStart),
    Store(StoreError),
}

impl From<StoreError> for CannotRun {
    fn from(error: StoreError) -> CannotRun {
        CannotRun::Store(error)
    }
}

impl fmt::Display for CannotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotRun::UnknownAgent(slug) => write!(f, "there is no agent {slug:?}"),
            CannotRun::NotActive(agent) => f.write_str(&not_active(agent)),
            CannotRun::NoPlaybook(error) => error.fmt(f),
            CannotRun::Start(error) => error.fmt(f),
            CannotRun::Store(error) => error.fmt(f),
        }
    }
}

fn not_active(agent: &AgentRow) -> String {
    let slug = agent.slug();
    match (agent.state(), &agent.paused) {
        (AgentState::Error, _) => {
            let failures = agent.failures();
            format!(
                "the agent {slug} failed {failures} times in a row: `waypost agent reset {slug}` lets it work again"
            )
        }
        (AgentState::Archived, _) => format!("the agent {slug} is archived"),
        (_, Some(pause)) => {
            let why = if pause.reason.is_empty() { String::new() } else { format!(": {}", pause.reason) };
            format!("the agent {slug} was paused by {}{why}", pause.by)
        }
        (_, None) => format!("the agent {slug} is not enabled"),
    }
}

/// What a request comes to.
#[derive(Debug)]
pub enum Asked {
    /// Its correlation id has made this run, whatever its agent and playbook are by now.
    Known(Box<RunRow>),
    /// `is_again`: the correlation id has made runs before that nobody was told of.
    New { run: Box<NewRun>, is_again: bool },
}

impl AgentRun {
    /// What the correlation id stands for.
    fn in_own_words(&self) -> String {
        let said = NewRun {
            title: Some(self.slug.clone()),
            metadata: Map::from_iter([("trigger".to_owned(), json!(self.trigger))]),
            correlation_id: self.correlation_id.clone(),
            input: self.input.clone(),
            ..NewRun::default()
        };
        format!("agent {}", asked_digest(&said))
    }
}

/// The run that was made for this request, or the one that is to be queued.
pub async fn known_or_new(store: &dyn Store, catalog: &Catalog, asked: AgentRun) -> Result<Asked, CannotRun> {
    let mut key = asked.correlation_id.as_deref().map(correlation_key);
    let mut is_again = false;
    while let Some(tried) = &key {
        let found = store.made_by(asked.tenant.clone(), tried.clone(), asked.in_own_words()).await;
        let found = match found {
            // Of a run that nobody was told of, nobody is bound by what it was asked with.
            Err(StoreError::KeyReused { key, run_id }) => {
                let run = store.run(asked.tenant.clone(), run_id.clone()).await?;
                let is_free = was_never_shown(&run);
                Some(run).filter(|_| is_free).ok_or(StoreError::KeyReused { key, run_id }).map(Some)
            }
            found => found,
        };
        let Some(run) = found? else { break };
        if !was_never_shown(&run) {
            return Ok(Asked::Known(Box::new(run)));
        }
        (key, is_again) = (Some(key_after(run.id())), true);
    }
    let run = NewRun { idempotency_key: key, ..new_run(store, catalog, asked).await? };
    Ok(Asked::New { run: Box::new(run), is_again })
}

/// Whether a run came to nothing before anybody was told that it is there, since the object store was away: it was taken back, or expired.
/// Whoever is told of one has it acknowledged before.
pub fn was_never_shown(row: &RunRow) -> bool {
    let is_upstream = |failure: &Failure| errors::told(failure).0 == errors::UPSTREAM;
    row.run.seq == 2 && row.phase() == Phase::Settled && row.run.failure.as_ref().is_some_and(is_upstream)
}

/// A run of an agent, without a key. One of an agent that takes none is not made.
pub async fn new_run(store: &dyn Store, catalog: &Catalog, asked: AgentRun) -> Result<NewRun, CannotRun> {
    let agents = store.agents(Some(asked.tenant.clone())).await?;
    let agent = agents.into_iter().find(|agent| agent.slug() == asked.slug);
    let agent = agent.ok_or_else(|| CannotRun::UnknownAgent(asked.slug.clone()))?;
    if agent.state() != AgentState::Active {
        return Err(CannotRun::NotActive(Box::new(agent)));
    }
    let name = agent.definition.playbook.as_deref().unwrap_or(DEFAULT_PLAYBOOK);
    let found = known::find(store, &Playbooks::default(), catalog, &asked.tenant, name).await;
    let known = found.map_err(CannotRun::NoPlaybook)?;
    let in_own_words = asked.in_own_words();
    let AgentRun { tenant, slug, trigger, input, correlation_id, by } = asked;
    let metadata =
        Map::from_iter([(AGENT_SLUG.to_owned(), json!(slug)), ("trigger".to_owned(), json!(trigger))]);
    let new = NewRun {
        tenant,
        lifecycle: LIFECYCLE.to_owned(),
        queue: AGENTS_QUEUE.to_owned(),
        concurrency_key: Some(agent_key(&slug)),
        title: Some(slug),
        playbook: Some(name.to_owned()),
        correlation_id,
        asked: Some(in_own_words),
        metadata,
        input,
        by,
        ..NewRun::default()
    };
    match known.playbook {
        Some(playbook) => {
            let open = LeftOpen { queue: false, priority: true, lifecycle: true };
            known::fill(&playbook, catalog, new, open).map_err(CannotRun::Start)
        }
        None => Ok(new),
    }
}

/// The key under which a run is known again.
fn correlation_key(correlation_id: &str) -> String {
    format!("agents/run/{correlation_id}")
}

/// A run that nobody was told of gives its correlation id back: this is the key of the one after it. No correlation id leads to such a key.
fn key_after(run_id: &str) -> String {
    format!("agents/run-after/{run_id}")
}
