//! Requests that wait for something to happen. Of those of one token that wait for the same, one looks and the others stand in
//! line: what it does not find, they would not find either. So what waiting costs does not grow with how many wait.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::answer::Result;
use crate::app::App;
use crate::call::Call;
use crate::problem::Problem;
use crate::room::shares::Use;
use crate::tokens::FRESH;

/// Between two looks while somebody waits: times arrive (a schedule, a retry, a lease that ends) without a word.
const LOOK: Duration = Duration::from_millis(500);
/// However much changes meanwhile: of all lines of one token together.
const SHORTEST: Duration = Duration::from_millis(20);

/// A token, or everybody without one, and what is waited for.
type Key = (Option<String>, u64);

#[derive(Debug, Default)]
pub struct Lines(Mutex<HashMap<Key, (usize, Arc<Line>)>>);

/// Whoever is at its head has the lock.
type Line = tokio::sync::Mutex<()>;

/// A place in a line for as long as this lives.
struct Place<'l> {
    lines: &'l Lines,
    key: Key,
    line: Arc<Line>,
}

impl Lines {
    fn join(&self, key: Key) -> Place<'_> {
        let mut lines = self.lock();
        let (count, line) = lines.entry(key.clone()).or_default();
        *count += 1;
        Place { lines: self, key, line: line.clone() }
    }

    /// How many there are of one token.
    fn count(&self, token: &Option<String>) -> usize {
        self.lock().keys().filter(|(of, _)| of == token).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (usize, Arc<Line>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        if let Some((count, _)) = lines.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                lines.remove(&self.key);
            }
        }
    }
}

/// Looks until there is something, the time is over, the asker is gone or its token no longer counts, or the server ends. What was
/// asked of the store is always waited for. `same`: who looks for the same is told by this.
pub async fn until_found<T, Look, Looked>(
    call: &Call,
    wait_ms: Option<i64>,
    same: impl Hash,
    mut gone: Pin<&mut (dyn Future<Output = ()> + Send)>,
    look: Look,
) -> Result<Option<T>>
where
    Look: Fn() -> Looked,
    Looked: Future<Output = Result<Option<T>>>,
{
    let until = Instant::now() + Duration::from_millis(wait_ms.unwrap_or_default().unsigned_abs());
    let mut found = look().await?;
    let is_over = |found: &Option<T>| found.is_some() || Instant::now() >= until || call.app.is_stopping();
    // A seat that is kept for others is not waited on.
    if is_over(&found) || call.is_on_kept_seat {
        return Ok(found);
    }
    let _share = share(call)?;
    let mut hasher = DefaultHasher::new();
    same.hash(&mut hasher);
    let token = call.caller.token_id().map(str::to_owned);
    let place = call.app.queues.join((token, hasher.finish()));
    let _head = tokio::select! {
        head = place.line.lock() => head,
        () = sleep_until(until) => return Ok(None),
        () = call.app.stopping() => return Ok(None),
        () = gone.as_mut() => return Ok(None),
        problem = revoked(call) => return Err(problem),
    };
    loop {
        let looked_at = Instant::now();
        call.caller.check_again(&call.app).await?;
        found = look().await?;
        if is_over(&found) {
            return Ok(found);
        }
        tokio::select! {
            () = changed(&call.app, until) => {}
            () = call.app.stopping() => {}
            () = gone.as_mut() => return Ok(None),
        }
        let pace = SHORTEST * call.app.queues.count(&place.key.0) as u32;
        tokio::select! {
            () = sleep_until((looked_at + pace.min(LOOK * 10)).min(until)) => {}
            () = gone.as_mut() => return Ok(None),
            problem = revoked(call) => return Err(problem),
        }
    }
}

async fn changed(app: &App, until: Instant) {
    app.store.changed(until.saturating_duration_since(Instant::now()).min(LOOK)).await;
}

/// One of those that the caller's token may let wait.
pub fn share(call: &Call) -> Result<Option<crate::room::shares::Share>> {
    call.caller.token_id().map(|token| call.app.shares.take(token, Use::Wait)).transpose()
}

/// Returns when the caller's token no longer counts.
pub async fn revoked(call: &Call) -> Problem {
    loop {
        sleep(FRESH).await;
        if let Err(problem) = call.caller.check_again(&call.app).await {
            return problem;
        }
    }
}
