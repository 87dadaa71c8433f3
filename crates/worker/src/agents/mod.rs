//! Agents: what `waypost.toml` says of them (`file`), and how a run of one is made (`runs`), whoever asks for it.

mod file;
mod runs;

use waypost_kernel::Span;

pub(crate) use file::{AGENT, AGENTS, DEFAULT_CHAT};
pub use file::{Agents, load};
pub use runs::{AgentRun, Asked, CannotRun, TRIGGERS, known_or_new, new_run, was_never_shown};

/// What begins a run at its time.
pub(crate) const CRON: &str = TRIGGERS[1];

/// What agents' runs are.
pub(crate) const LIFECYCLE: &str = "agent";
/// Of seed 001's retry policy, which holds where a playbook says nothing else: with waits of 1, 2 and 4 seconds.
pub(crate) const STEP_RETRIES: usize = 3;
pub(crate) const STEP_TIMEOUT: Span = Span::from_seconds(120);
pub(crate) const RUN_TIMEOUT: Span = Span::from_seconds(600);

/// What the playbook of the default steps is called.
pub const DEFAULT_PLAYBOOK: &str = "agent-steps";
