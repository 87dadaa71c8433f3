//! A schedule, sound and typed.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use waypost_kernel::Span;
use waypost_kernel::schedule::Policy;
use waypost_store::NewItem;

use crate::playbook::{Hash, Playbook};

#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// As it is stored: with its tenant.
    pub name: String,
    pub description: Option<String>,
    pub policy: Policy,
    pub run_timeout: Span,
    pub stale_timeout: Span,
    pub heartbeat: Span,
    pub max_attempts: u32,
    pub backoff: Vec<Span>,
    pub reentry: bool,
    pub scopes: Scopes,
    pub what: What,
    /// What the file says of it, and where its commands run: enough to make it again.
    pub definition: Value,
    pub folder: PathBuf,
    pub hash: Hash,
    pub line: usize,
}

/// Where the scopes come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Scopes {
    Global,
    Listed {
        kind: String,
        ids: Vec<String>,
    },
    Sql {
        kind: String,
        sql: String,
    },
    /// A playbook of one action.
    Http {
        kind: String,
        ask: Box<Playbook>,
    },
    Handler {
        kind: String,
        name: String,
    },
}

/// What a firing does.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A playbook of one action.
    Action(Arc<Playbook>),
    Handler(String),
    Run(QueuedRun),
}

#[derive(Clone, Debug, PartialEq)]
pub struct QueuedRun {
    /// Whose run it is: the agent says what is left out here.
    pub agent: Option<String>,
    pub lifecycle: String,
    /// By name, or pinned to its content.
    pub playbook: Option<String>,
    /// A command or a playbook that it brings along.
    pub carried: Option<Value>,
    /// The playbook's own, or the default one, if it is not given.
    pub queue: Option<String>,
    pub priority: Option<i16>,
    pub input: Value,
    pub concurrency_key: Option<String>,
    /// What the playbook's retries come to.
    pub max_attempts: u32,
    pub items: Vec<NewItem>,
}

impl Scopes {
    pub fn kind(&self) -> &str {
        match self {
            Scopes::Global => "global",
            Scopes::Listed { kind, .. }
            | Scopes::Sql { kind, .. }
            | Scopes::Http { kind, .. }
            | Scopes::Handler { kind, .. } => kind,
        }
    }

    /// Those that the file names.
    pub fn known(&self) -> Option<Vec<String>> {
        match self {
            Scopes::Global => Some(vec!["global".to_owned()]),
            Scopes::Listed { ids, .. } => Some(ids.clone()),
            _ => None,
        }
    }
}

impl Schedule {
    /// The wait before the next attempt; nothing is no retry.
    pub fn retry_in(&self, attempt: u32) -> Option<Span> {
        if attempt >= self.max_attempts {
            return None;
        }
        let at = (attempt.max(1) as usize - 1).min(self.backoff.len().checked_sub(1)?);
        self.backoff.get(at).copied()
    }
}
