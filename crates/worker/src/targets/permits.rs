//! Permits for calls to destinations, which all workers share. They are asked for some at a time and not kept for long: a pause that
//! another worker learnt of holds here too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use waypost_kernel::breaker::{Alert, State};
use waypost_kernel::destination::{CallAnswer, Limit};
use waypost_kernel::request::Level;
use waypost_store::{Admit, Admitted, Answered, DestinationRow};

use super::call::Caller;
use crate::pace;
use crate::playbook::{Pace, Rule, TargetAction};

/// A permit that was not used by then is given back.
const FRESH: Duration = Duration::from_secs(1);
/// Answers are told together. One that says that the destination is too busy is told at once.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// For the last of them.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Permits of one request where nothing limits them: a breaker that opens is learnt of with the next one.
const UNLIMITED_AT_ONCE: u32 = 50;
/// Of a destination without a limit.
const UNLIMITED: u64 = 1_000_000_000;

pub(crate) struct Permits {
    caller: Arc<Caller>,
    limit: Limit,
    cost_milli: u64,
    /// Asked for at once, at most.
    at_once: u32,
    pools: HashMap<String, Pool>,
    asked: JoinSet<Told>,
    /// Failed requests in a row.
    retry: u32,
}

/// What is known of one destination.
#[derive(Default)]
struct Pool {
    left: u32,
    granted_at: Option<Instant>,
    /// None are granted before.
    until: Option<Instant>,
    is_asking: bool,
    is_probing: bool,
    answers: Vec<CallAnswer>,
    unused: u32,
    is_telling: bool,
    /// The store was not told yet that the destination is too busy: it would grant what it should not.
    is_throttled: bool,
    told_at: Option<Instant>,
}

enum Told {
    Admitted(String, waypost_store::Result<Admitted>),
    Answered(String, waypost_store::Result<DestinationRow>),
}

impl Permits {
    pub fn new(caller: &Arc<Caller>, rule: &Rule) -> Permits {
        let call = rule.apply.timeout.unwrap_or(TargetAction::TIMEOUT);
        let breaker = rule.breaker.settings(call);
        let unlimited = Limit { capacity_milli: UNLIMITED, rate_milli_per_s: UNLIMITED, breaker };
        let limited = |pace: Pace| Limit {
            capacity_milli: pace.capacity_milli(),
            rate_milli_per_s: pace.rate.milli_per_s(),
            breaker,
        };
        // As many as come back in a quarter of a second: others want some, too.
        let quarter = |pace: Pace| pace.rate.milli_per_s() / (4 * pace.cost_milli().max(1));
        let at_once = rule.limit.pace.map(quarter).and_then(|count| u32::try_from(count).ok());
        let parallel = u32::try_from(rule.parallel).unwrap_or(1);
        Permits {
            caller: caller.clone(),
            limit: rule.limit.pace.map_or(unlimited, limited),
            cost_milli: rule.limit.pace.map_or(0, Pace::cost_milli),
            at_once: at_once.unwrap_or(UNLIMITED_AT_ONCE).max(parallel),
            pools: HashMap::new(),
            asked: JoinSet::new(),
            retry: 0,
        }
    }

    fn pool(&mut self, destination: &str) -> &mut Pool {
        if !self.pools.contains_key(destination) {
            self.pools.insert(destination.to_owned(), Pool::default());
        }
        self.pools.entry(destination.to_owned()).or_default()
    }

    /// Uses one, if there is one.
    pub fn take(&mut self, destination: &str) -> bool {
        let pool = self.pool(destination);
        if pool.granted_at.is_some_and(|at| at.elapsed() > FRESH) {
            pool.unused += std::mem::take(&mut pool.left);
        }
        match pool.left.checked_sub(1) {
            Some(left) => {
                pool.left = left;
                true
            }
            None => false,
        }
    }

    /// Asks for some, unless that is under way or known to be in vain.
    pub fn want(&mut self, destination: &str, count: usize) {
        let most = self.at_once;
        let pool = self.pool(destination);
        let is_early = pool.until.is_some_and(|until| until > Instant::now());
        if pool.is_asking || pool.is_throttled || is_early {
            return;
        }
        pool.is_asking = true;
        let ask = Admit {
            tenant: self.caller.run.tenant.clone(),
            destination: destination.to_owned(),
            limit: self.limit,
            calls: u32::try_from(count).unwrap_or(most).clamp(1, most),
            cost_milli: self.cost_milli,
        };
        let store = self.caller.shared.store.clone();
        self.asked.spawn(async move {
            let destination = ask.destination.clone();
            Told::Admitted(destination, store.admit(ask).await)
        });
    }

    /// How long none will be granted, as far as that is known.
    pub fn wait(&self, destination: &str) -> Option<Duration> {
        let until = self.pools.get(destination)?.until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }

    /// What a call was answered.
    pub fn answered(&mut self, destination: &str, answer: CallAnswer) {
        let pool = self.pool(destination);
        pool.answers.push(answer);
        if answer.throttled {
            // Our count was wrong: what is in hand is worth nothing.
            pool.unused += std::mem::take(&mut pool.left);
            pool.is_throttled = true;
        }
        let is_urgent = answer.throttled || pool.is_probing;
        if is_urgent || pool.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            self.tell(destination);
        }
    }

    fn tell(&mut self, destination: &str) {
        let cost_milli = self.cost_milli;
        let pool = self.pool(destination);
        if pool.is_telling || pool.answers.is_empty() && pool.unused == 0 {
            return;
        }
        (pool.is_telling, pool.is_probing, pool.told_at) = (true, false, Some(Instant::now()));
        let (answers, unused) = (std::mem::take(&mut pool.answers), std::mem::take(&mut pool.unused));
        let report = Answered {
            tenant: self.caller.run.tenant.clone(),
            destination: destination.to_owned(),
            answers,
            unused_milli: u64::from(unused) * cost_milli,
        };
        let store = self.caller.shared.store.clone();
        self.asked.spawn(async move {
            let destination = report.destination.clone();
            Told::Answered(destination, store.answered(report).await)
        });
    }

    /// When there is something to do here without an answer.
    pub fn next_at(&self, is_wanted: bool) -> Option<Instant> {
        let tells = self.pools.values().filter(|pool| !pool.is_telling && !pool.answers.is_empty());
        let tells = tells.map(|pool| pool.told_at.map_or_else(Instant::now, |at| at + TELL_EVERY));
        let asks = self.pools.values().filter(|pool| is_wanted && !pool.is_asking);
        tells.chain(asks.filter_map(|pool| pool.until)).min()
    }

    /// Tells what is due to be told.
    pub fn look(&mut self) {
        let is_due = |pool: &Pool| {
            !pool.answers.is_empty() && pool.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY)
        };
        let due: Vec<String> =
            self.pools.iter().filter(|(_, pool)| is_due(pool)).map(|(name, _)| name.clone()).collect();
        due.iter().for_each(|destination| self.tell(destination));
    }

    /// Returns when the store has answered; never if nothing was asked.
    pub async fn changed(&mut self) {
        match self.asked.join_next().await {
            Some(Ok(told)) => self.heard(told).await,
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    async fn heard(&mut self, told: Told) {
        match told {
            Told::Admitted(destination, Ok(admitted)) => {
                self.retry = 0;
                let pool = self.pool(&destination);
                pool.is_asking = false;
                // Granted before the store knew that the destination is too busy.
                let place = if pool.is_throttled { &mut pool.unused } else { &mut pool.left };
                *place += admitted.granted;
                pool.is_probing |= admitted.is_probe;
                pool.granted_at = Some(Instant::now());
                let wait = admitted.until.map(|until| pace::duration(until - admitted.now));
                pool.until = wait.map(|wait| Instant::now() + wait);
            }
            Told::Admitted(destination, Err(error)) => {
                self.retry += 1;
                crate::outage::met("permits for calls were not given", &error);
                let soon = Instant::now() + pace::store_away(self.retry);
                let pool = self.pool(&destination);
                (pool.is_asking, pool.until) = (false, Some(soon));
            }
            Told::Answered(destination, answer) => {
                let pool = self.pool(&destination);
                pool.is_telling = false;
                pool.is_throttled = pool.answers.iter().any(|answer| answer.throttled);
                let tells_more = pool.is_throttled;
                // What could not be told is one answer that is not counted: the next one is.
                let Ok(row) = answer else { return self.tell(&destination) };
                if let State::Open { .. } = row.state.breaker.state {
                    pool.unused += std::mem::take(&mut pool.left);
                }
                self.tell_people(&row).await;
                if tells_more {
                    self.tell(&destination);
                }
            }
        }
    }

    /// A breaker that opens or closes is told in the run's log, once.
    async fn tell_people(&self, row: &DestinationRow) {
        let (level, message) = match row.alert {
            Some(Alert::Opened) => {
                let message = format!(
                    "{} is too busy ({} refusals in a row): no calls for {}",
                    row.name, row.state.breaker.consecutive, row.state.settings.pause
                );
                (Level::Warn, message)
            }
            Some(Alert::Closed) => (Level::Info, format!("{} answers again", row.name)),
            None => return,
        };
        tracing::warn!(destination = row.name, "{message}");
        self.caller.journal.note(level, &message, json!({ "destination": row.name })).await;
    }

    /// Tells the rest: what was answered, and what was not used.
    pub async fn give_back(&mut self) {
        let names: Vec<String> = self.pools.keys().cloned().collect();
        for name in &names {
            let pool = self.pool(name);
            pool.unused += std::mem::take(&mut pool.left);
            self.tell(name);
        }
        let all = async {
            while let Some(told) = self.asked.join_next().await {
                if let Ok(Told::Admitted(destination, Ok(admitted))) = told {
                    self.pool(&destination).unused += admitted.granted;
                    self.tell(&destination);
                }
            }
        };
        let _ = timeout(LAST_WRITES, all).await;
    }
}
