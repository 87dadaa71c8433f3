//! What a worker is told.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use waypost_kernel::backoff::Backoff;
use waypost_store::Can;

use crate::actions::http::Client;
use crate::execute::environment::PassedEnv;
use crate::guardian;
use crate::handler::{Handlers, TargetHandlers};
use crate::lease::Keeping;
use crate::pace;
use crate::playbook::{Playbook, Playbooks, Rule};
use crate::projection::Projection;

#[derive(Clone, Debug)]
pub struct Options {
    /// Of this process alone and never used again: a name that comes back would own its predecessor's leases.
    pub name: String,
    pub queues: Vec<String>,
    /// Empty: any.
    pub lifecycles: Vec<String>,
    /// Runs of this tenant alone; of all tenants if it is not given.
    pub tenant: Option<String>,
    /// Runs at once.
    pub slots: usize,
    pub lease: Duration,
    /// An idle worker asks again after a time between these, or when the store says that something changed.
    pub poll_at_least: Duration,
    pub poll_at_most: Duration,
    /// Commands that runs bring along are executed. Otherwise enqueuing would be a way to execute code.
    pub allow_commands: bool,
    /// Work this run and no other, its command included: somebody here asked for it by name.
    pub only: Option<String>,
    /// Between asking a process to end and killing it; and how long a shutdown waits for runs to end.
    pub grace: Duration,
    pub handlers: Handlers,
    /// What `handler = "…"` of a bulk change names.
    pub target_handlers: TargetHandlers,
    /// What runs that name one of these are executed by.
    pub playbooks: Playbooks,
    /// Requests may go to private addresses and over `http://`, whatever the playbooks say.
    pub allow_private: bool,
    /// Program and first arguments that [`guardian::main`] is reached by; the command follows. Nothing: commands
    /// are children of this process, and outlive it when it is killed. Programs that embed a worker either
    /// have such a subcommand or say `None`.
    pub guardian: Option<Vec<OsString>>,
    /// What commands see of this process's environment.
    pub passed_env: PassedEnv,
    /// Between the tries of a command that has `retries`.
    pub backoff: Backoff,
    /// Where the manifest of a projected run is before the run is told as completed. Without it nobody waits for that.
    pub projection: Option<Arc<Projection>>,
}

impl Options {
    /// Without any, claiming would only take runs from those who can work them.
    pub(crate) fn may_execute_anything(&self) -> bool {
        let has_own = !(self.handlers.is_empty() && self.playbooks.is_empty());
        self.allow_commands || self.only.is_some() || has_own
    }

    pub(crate) fn can(&self) -> Can {
        let own = self.playbooks.iter().filter(|playbook| self.has_handlers_of(playbook));
        let own = own.flat_map(|playbook| [playbook.pin(), playbook.name.clone()]);
        let mut playbooks: Vec<String> = own.chain(self.handlers.names()).collect();
        playbooks.sort_unstable();
        Can { playbooks, carried: self.allow_commands }
    }

    /// Whether a worker of one run alone has what executes it: a playbook or handler of that name, or what the run brings along.
    pub fn executes(&self, playbook: Option<&str>, carried: Option<&serde_json::Value>) -> bool {
        carried.is_some() || playbook.is_some_and(|name| self.can().playbooks.iter().any(|own| own == name))
    }

    /// Whether this worker has what a bulk change is done by in Rust. Another worker may.
    pub(crate) fn has_handlers_of(&self, playbook: &Playbook) -> bool {
        let named = playbook.rule.iter().flat_map(Rule::handlers);
        named.into_iter().all(|name| self.target_handlers.get(name).is_some())
    }

    pub(crate) fn may_run_command_of(&self, run_id: &str) -> bool {
        self.allow_commands || self.only.as_deref() == Some(run_id)
    }

    pub(crate) fn keeping(&self) -> Keeping {
        Keeping::new(self.lease, self.lease / 3)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: incarnation(),
            queues: vec!["default".to_owned()],
            lifecycles: Vec::new(),
            tenant: None,
            slots: 1,
            lease: Duration::from_secs(60),
            poll_at_least: Duration::from_millis(250),
            poll_at_most: Duration::from_secs(1),
            allow_commands: false,
            only: None,
            grace: Duration::from_secs(10),
            handlers: Handlers::default(),
            target_handlers: TargetHandlers::default(),
            playbooks: Playbooks::default(),
            allow_private: Client::allowed_by_environment(),
            guardian: Some(guardian::this_program()),
            passed_env: PassedEnv::basics(),
            backoff: Backoff::deploy(),
            projection: None,
        }
    }
}

/// Host and process for people; the random part because both come back after a restart.
fn incarnation() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let short = host.split('.').next().filter(|name| !name.is_empty()).unwrap_or("worker");
    let short: String = short.chars().take(64).collect();
    format!("{short}-{}-{:08x}", std::process::id(), pace::random() >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_come_back() {
        let (first, second) = (incarnation(), incarnation());
        assert_ne!(first, second);
        assert!(first.contains(&format!("-{}-", std::process::id())), "{first}");
    }

    // proves X8
    #[test]
    fn intents_are_asked_for_within_a_second_whatever_the_lease() {
        for (lease_s, beat_ms) in [(60, 750), (3_600, 750), (3, 750), (1, 333)] {
            let options = Options { lease: Duration::from_secs(lease_s), ..Options::default() };
            assert_eq!(options.keeping().every.as_millis(), beat_ms, "{lease_s} s");
        }
    }
}
