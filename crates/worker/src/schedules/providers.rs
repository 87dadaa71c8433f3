//! Scopes that somebody else lists: a query, a request, or code.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;
use waypost_store::{DueListing, Failed, Failing};

use super::schedule::{Schedule, Scopes};
use super::scheduler::Shared;
use crate::actions::{Action, Call};
use crate::execute::rendered;

/// More than this is a mistake.
const MAX_SCOPES: usize = 100_000;
/// Room for that many ids of the longest kind, quoted.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Whoever lists scopes does it from what it knows. Shorter than the store leaves them to who was told.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Lists the scopes of a schedule, beside the tick: whoever does not answer keeps nobody waiting.
pub(super) async fn list(shared: Arc<Shared>, schedule: Arc<Schedule>, due: DueListing) -> String {
    if let Err(problem) = refresh(&shared, &schedule).await {
        tracing::warn!(
            schedule = due.schedule,
            problem,
            "its scopes could not be listed; those it has go on"
        );
        let failed = Failed { schedule: due.schedule.clone(), what: Failing::Listing, wake_at: due.wake_at };
        // If that fails too, it is told of again when its time to list them is over.
        let _ = shared.database.put_off(vec![failed]).await;
    }
    due.schedule
}

/// Asks for the scopes and stores them. What is there stays if that fails.
async fn refresh(shared: &Shared, schedule: &Schedule) -> Result<(), String> {
    let late = |_| Err(format!("no answer within {} s", TIMEOUT.as_secs()));
    let mut ids = timeout(TIMEOUT, ask(shared, schedule)).await.unwrap_or_else(late)?;
    ids.retain(|id| !id.trim().is_empty());
    ids.sort();
    ids.dedup();
    if ids.len() > MAX_SCOPES {
        return Err(format!("{} scopes, at most {MAX_SCOPES} are allowed", ids.len()));
    }
    let put = shared.database.put_scopes(schedule.name.clone(), schedule.scopes.kind().to_owned(), ids).await;
    put.map_err(|error| error.to_string())
}

async fn ask(shared: &Shared, schedule: &Schedule) -> Result<Vec<String>, String> {
    match &schedule.scopes {
        Scopes::Global | Scopes::Listed { .. } => Ok(schedule.scopes.known().unwrap_or_default()),
        Scopes::Sql { sql, .. } => {
            shared.database.ask_scopes(sql.clone()).await.map_err(|error| error.to_string())
        }
        Scopes::Handler { name, .. } => {
            let provider = shared.options.providers.get(name);
            provider.ok_or_else(|| format!("this process has no provider {name}"))?.list().await
        }
        Scopes::Http { ask, .. } => {
            let rendered = rendered(ask, None)?;
            let Action::Http(request) = &rendered.action else { return Err("no request".to_owned()) };
            let client = shared.work.client()?;
            let call = Call::default();
            let told = client.fetch(request, &call, TIMEOUT, &rendered.mask, MAX_ANSWER_BYTES).await;
            listed(&told?)
        }
    }
}

/// A list of texts or numbers, or an object with one as `ids`.
fn listed(outcome: &crate::outcome::Outcome) -> Result<Vec<String>, String> {
    let list = outcome.output.get("ids").unwrap_or(&outcome.output);
    let items = list.as_array().ok_or("the answer is no list of ids")?;
    let text = |item: &Value| match item {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    items.iter().map(|item| text(item).ok_or_else(|| format!("{item} is no id"))).collect()
}
