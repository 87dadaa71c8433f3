//! What a scheduler is told.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use waypost_store::Retention;

use super::schedule::Schedule;
use crate::actions::http::Client;
use crate::execute::environment::PassedEnv;
use crate::handler::Handlers;
use crate::options::Options;

/// Lists the scopes of a schedule. Any `Fn() -> impl Future<Output = Result<Vec<String>, String>>` is one.
pub trait Provider: Send + Sync {
    fn list(&self) -> Pin<Box<dyn Future<Output = Result<Vec<String>, String>> + Send>>;
}

impl<F, Answer> Provider for F
where
    F: Fn() -> Answer + Send + Sync,
    Answer: Future<Output = Result<Vec<String>, String>> + Send + 'static,
{
    fn list(&self) -> Pin<Box<dyn Future<Output = Result<Vec<String>, String>> + Send>> {
        Box::pin(self())
    }
}

#[derive(Clone)]
pub struct SchedulerOptions {
    /// Of this process alone and never used again.
    pub name: String,
    /// Schedules of its own configuration: stored at its start, and executed by those that have the same.
    pub own: Vec<Schedule>,
    /// How long runs are kept, as its configuration says; stored at its start. Without one, what is stored stays.
    pub retention: Option<Vec<Retention>>,
    /// Schedules that others applied are executed too: whoever may apply them may then run anything here.
    pub carried: bool,
    /// Of these, only this tenant's; whoever's if it is not given.
    pub tenant: Option<String>,
    pub handlers: Handlers,
    pub providers: HashMap<String, Arc<dyn Provider>>,
    /// HTTP actions may reach loopback and private addresses.
    pub allow_private: bool,
    /// Executions at once.
    pub slots: usize,
    pub tick: Duration,
    /// Between asking a process to end and killing it; and how long a shutdown waits for executions to end.
    pub grace: Duration,
    pub guardian: Option<Vec<OsString>>,
    /// What commands see of this process's environment.
    pub passed_env: PassedEnv,
}

impl Default for SchedulerOptions {
    fn default() -> SchedulerOptions {
        let like = Options::default();
        SchedulerOptions {
            name: like.name,
            own: Vec::new(),
            retention: None,
            carried: false,
            tenant: None,
            handlers: Handlers::default(),
            providers: HashMap::new(),
            allow_private: Client::allowed_by_environment(),
            slots: 64,
            tick: Duration::from_secs(1),
            grace: like.grace,
            guardian: like.guardian,
            passed_env: like.passed_env,
        }
    }
}

impl fmt::Debug for SchedulerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerOptions").field("name", &self.name).finish_non_exhaustive()
    }
}
