//! Agents: what runs of seed 001 are of. A definition, whether people let it work, and how its last runs ended.

use serde_json::{Value, json};
use waypost_kernel::Time;

use crate::rules::intake::check_name;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::{iso, parse_time};
use crate::seam::verbs::Pause;

/// So many failures in a row put an agent out of work until somebody resets it.
pub const MOST_FAILURES: usize = 3;
/// Of an agent's last runs so many are remembered: enough to count failures in whichever order they are told of.
pub const KEPT_ENDS: usize = 20;
/// The queue of agents' runs. Its limit is that of all agents at once.
pub const AGENTS_QUEUE: &str = "agents";
/// What the metadata of an agent's run call it by.
pub const AGENT_SLUG: &str = "agent_slug";

const MOST_AT_ONCE: u32 = 1_000;
const MAX_SLUG_CHARS: usize = 100;

/// What an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentWrite {
    pub slug: String,
    /// What its runs do, by name; the default steps if it is not given.
    pub playbook: Option<String>,
    /// Runs at once.
    pub concurrency: u32,
    /// Whether it takes runs at all.
    pub enabled: bool,
}

impl Default for AgentWrite {
    fn default() -> AgentWrite {
        AgentWrite { slug: String::new(), playbook: None, concurrency: 1, enabled: true }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentEnd {
    pub run_id: String,
    pub at: Time,
    pub failed: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentRow {
    pub tenant: String,
    pub definition: AgentWrite,
    pub paused: Option<Pause>,
    pub archived_at: Option<Time>,
    /// What ended up to then does not count.
    pub reset_at: Option<Time>,
    /// Of runs that nobody cancelled, in the order in which they ended.
    pub ends: Vec<AgentEnd>,
    pub updated_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    Active,
    Paused,
    /// Its last runs failed one after the other.
    Error,
    Archived,
}

/// What people do with an agent; of the tenant for which they do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentChange {
    /// Declares it. One that was archived is there again.
    Put(AgentWrite),
    /// It takes no runs, and those that wait go on waiting. The reason is that of the audit entry.
    Pause(String),
    Resume(String),
    /// Its failures are forgotten.
    Reset(String),
    Archive(String),
}

impl AgentState {
    pub fn name(self) -> &'static str {
        match self {
            AgentState::Active => "active",
            AgentState::Paused => "paused",
            AgentState::Error => "error",
            AgentState::Archived => "archived",
        }
    }
}

impl AgentChange {
    pub fn slug(&self) -> &str {
        match self {
            AgentChange::Put(agent) => &agent.slug,
            AgentChange::Pause(slug)
            | AgentChange::Resume(slug)
            | AgentChange::Reset(slug)
            | AgentChange::Archive(slug) => slug,
        }
    }

    /// Whether there can be such an agent: its slug is a part of paths.
    pub fn check(&self) -> Result<()> {
        check_slug(self.slug())
    }

    /// As the audit log and the API call it.
    pub fn action(&self) -> &'static str {
        match self {
            AgentChange::Put(_) => "agent.apply",
            AgentChange::Pause(_) => "agent.pause",
            AgentChange::Resume(_) => "agent.resume",
            AgentChange::Reset(_) => "agent.reset",
            AgentChange::Archive(_) => "agent.archive",
        }
    }
}

impl AgentWrite {
    pub(crate) fn check(&self) -> Result<()> {
        check_slug(&self.slug)?;
        self.playbook.as_deref().map_or(Ok(()), |name| check_name("playbook", name))?;
        if !(1..=MOST_AT_ONCE).contains(&self.concurrency) {
            let message = format!("{} is none of 1 to {MOST_AT_ONCE}", self.concurrency);
            return Err(StoreError::invalid("concurrency", message));
        }
        Ok(())
    }
}

/// It is a part of paths and keys.
pub(crate) fn check_slug(slug: &str) -> Result<()> {
    check_name("slug", slug)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if slug.len() > MAX_SLUG_CHARS || slug.starts_with(['-', '_', '.']) || !slug.bytes().all(is_plain) {
        let allowed = "at most 100 letters, digits, `-`, `_` and `.`, a letter or digit first";
        return Err(StoreError::invalid("slug", format!("is no slug; allowed: {allowed}")));
    }
    Ok(())
}

impl AgentRow {
    pub fn slug(&self) -> &str {
        &self.definition.slug
    }

    pub fn state(&self) -> AgentState {
        if self.archived_at.is_some() {
            AgentState::Archived
        } else if self.paused.is_some() || !self.definition.enabled {
            AgentState::Paused
        } else if self.failures() >= MOST_FAILURES {
            AgentState::Error
        } else {
            AgentState::Active
        }
    }

    /// In a row, up to now.
    pub fn failures(&self) -> usize {
        self.ends.iter().rev().take_while(|end| end.failed).count()
    }

    /// The concurrency key of its runs.
    pub fn key(&self) -> String {
        agent_key(self.slug())
    }

    /// Of its runs that are held at once: what it says, while it works.
    pub(crate) fn limit(&self) -> u32 {
        if self.state() == AgentState::Active { self.definition.concurrency } else { 0 }
    }

    /// What is told twice is told once; what ended before the reset does not count.
    pub(crate) fn count(&mut self, end: AgentEnd) {
        let is_known = self.ends.iter().any(|known| known.run_id == end.run_id);
        if is_known || self.reset_at.is_some_and(|reset_at| end.at <= reset_at) {
            return;
        }
        self.ends.push(end);
        self.ends.sort_by(|one, other| (one.at, &one.run_id).cmp(&(other.at, &other.run_id)));
        let beyond = self.ends.len().saturating_sub(KEPT_ENDS);
        self.ends.drain(..beyond);
    }

    pub(crate) fn ends_text(&self) -> String {
        let end = |end: &AgentEnd| json!([end.run_id, end.at.ms(), end.failed]);
        Value::Array(self.ends.iter().map(end).collect()).to_string()
    }

    /// What cannot be read is forgotten: it is counted anew.
    pub(crate) fn read_ends(text: &str) -> Vec<AgentEnd> {
        let list: Vec<(String, i64, bool)> = serde_json::from_str(text).unwrap_or_default();
        list.into_iter()
            .map(|(run_id, ms, failed)| AgentEnd { run_id, at: Time::from_ms(ms), failed })
            .collect()
    }

    pub fn object(&self) -> Value {
        let AgentWrite { slug, playbook, concurrency, enabled } = &self.definition;
        let pause = self.paused.as_ref();
        json!({
            "slug": slug,
            "tenant": self.tenant,
            "state": self.state().name(),
            "playbook": playbook,
            "concurrency": concurrency,
            "enabled": enabled,
            "failures": self.failures(),
            "ends": self.ends.iter().map(AgentEnd::object).collect::<Vec<_>>(),
            "paused_by": pause.map(|pause| &pause.by),
            "pause_reason": pause.map(|pause| &pause.reason),
            "paused_at": pause.and_then(|pause| pause.at).map(iso),
            "archived_at": self.archived_at.map(iso),
            "reset_at": self.reset_at.map(iso),
            "updated_at": iso(self.updated_at),
        })
    }
}

impl AgentEnd {
    fn object(&self) -> Value {
        json!({ "run_id": self.run_id, "finished_at": iso(self.at), "failed": self.failed })
    }

    fn from_object(object: &Value) -> Option<AgentEnd> {
        Some(AgentEnd {
            run_id: object["run_id"].as_str()?.to_owned(),
            at: parse_time(object["finished_at"].as_str()?)?,
            failed: object["failed"].as_bool()?,
        })
    }
}

/// An agent as a server shows it.
pub fn agent_from(object: &Value) -> Option<AgentRow> {
    let text = |name: &str| object[name].as_str().map(str::to_owned);
    let time = |name: &str| object[name].as_str().and_then(parse_time);
    let ends: Option<Vec<AgentEnd>> = object["ends"].as_array()?.iter().map(AgentEnd::from_object).collect();
    let pause = |by| Pause { by, reason: text("pause_reason").unwrap_or_default(), at: time("paused_at") };
    Some(AgentRow {
        tenant: text("tenant")?,
        definition: AgentWrite {
            slug: text("slug")?,
            playbook: text("playbook"),
            concurrency: u32::try_from(object["concurrency"].as_u64()?).ok()?,
            enabled: object["enabled"].as_bool()?,
        },
        paused: text("paused_by").map(pause),
        archived_at: time("archived_at"),
        reset_at: time("reset_at"),
        ends: ends?,
        updated_at: time("updated_at")?,
    })
}

/// The concurrency key of an agent's runs.
pub fn agent_key(slug: &str) -> String {
    format!("agent/{slug}")
}

pub(crate) fn no_agent(slug: &str) -> StoreError {
    StoreError::NotFound { what: "agent", id: slug.to_owned() }
}
