//! Calls about many targets that stay as they are in the store meanwhile: as many at once, as fast and as often as the rule says.
//! What has to wait a while waits here; if nothing else is to be done for long, the operation is given back until then. Whoever takes it
//! over begins again with those that it has not told of.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use waypost_kernel::backoff::Backoff;
use waypost_kernel::request::Level;
use waypost_kernel::{Failure, Span};
use waypost_store::{ItemRow, Wait};

use super::Operation;
use super::applied::Of;
use crate::interpret::Parting;
use crate::pace;
use crate::playbook::{Rule, TargetAction};
use crate::targets::call::Caller;
use crate::targets::permits::Permits;
use crate::targets::verdict::{Said, Verdict};

/// Targets that are known here at once.
const MOST: usize = 2_000;

/// What is asked about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Fetch,
    Undo,
}

impl Act {
    const fn name(self) -> &'static str {
        match self {
            Act::Fetch => "fetch",
            Act::Undo => "rollback",
        }
    }
}

/// A target, and how often it was asked about.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub item: ItemRow,
    pub act: Act,
    pub of: Of,
    /// Whatever its owner has to know of it.
    pub page: u64,
    /// Rises after a known answer and ends the idempotency key.
    try_no: u32,
    retries: u32,
    throttled: u32,
    waited: Span,
}

impl Asked {
    pub fn new(item: ItemRow, of: Of, act: Act, page: u64) -> Asked {
        Asked { item, of, act, page, try_no: 1, retries: 0, throttled: 0, waited: Span::ZERO }
    }
}

/// What the next thing is that its owner has to know.
pub(super) enum Met {
    Done(Box<Asked>, Option<Value>),
    Failed(Box<Asked>, Failure),
    /// No other target would fare better.
    Critical(Failure),
    /// Nothing is in hand.
    Idle,
    /// The operation is to end, or is lost.
    Stopped,
    /// The time that was asked for has come.
    Time,
    /// Nothing can be asked for so long.
    Waits(Duration),
}

/// What an operation waited in nobody's hands, in its details. What a target has waited is counted here for all of them: otherwise nobody
/// would ever give one up that is throttled each time.
const WAITED: &str = "waited";
/// Keys of targets after so many pauses go on where no try was before.
const TRIES_OF_A_HOLDER: u32 = 10_000;

pub(super) struct Round<'a> {
    operation: &'a Operation<'a>,
    caller: Arc<Caller>,
    permits: Permits,
    ready: VecDeque<Asked>,
    waiting: Vec<(Instant, Asked)>,
    flying: JoinSet<Option<Verdict>>,
    under_way: HashMap<Id, (Asked, String)>,
    met: VecDeque<Met>,
    /// How long a permit is away that the first of `ready` needs.
    blocked: Option<Duration>,
    /// It is given back for no less.
    patience: Duration,
    /// How often it was given back, and for how long in all.
    pauses: u32,
    waited: Span,
}

impl<'a> Round<'a> {
    /// The error says what is wrong with the inputs.
    pub fn new(operation: &'a Operation<'a>, patience: Duration) -> Result<Round<'a>, String> {
        let Operation { shared, lease, playbook, rule, parent, .. } = operation;
        let caller = Arc::new(Caller::new(shared, parent, lease, playbook, rule)?);
        let waited = operation.row.details.get(WAITED).unwrap_or(&Value::Null);
        Ok(Round {
            operation,
            permits: Permits::new(&caller, rule),
            caller,
            ready: VecDeque::new(),
            waiting: Vec::new(),
            flying: JoinSet::new(),
            under_way: HashMap::new(),
            met: VecDeque::new(),
            blocked: None,
            patience,
            pauses: waited["pauses"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or_default(),
            waited: Span::from_ms(waited["ms"].as_i64().unwrap_or_default()),
        })
    }

    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    fn rule(&self) -> &'a Rule {
        self.operation.rule
    }

    pub fn ask(&mut self, mut asked: Asked) {
        asked.waited = asked.waited.max(self.waited);
        asked.try_no = asked.try_no.max(1 + self.pauses.saturating_mul(TRIES_OF_A_HOLDER));
        self.ready.push_back(asked);
    }

    /// How long nothing can be asked, if that is worth a pause.
    fn rest(&self) -> Option<Duration> {
        let now = Instant::now();
        let due = self.waiting.iter().map(|(due, _)| due.saturating_duration_since(now)).min();
        let ready = (!self.ready.is_empty()).then(|| self.blocked.unwrap_or_default());
        let wait = [due, ready].into_iter().flatten().min()?;
        (self.under_way.is_empty() && wait > self.patience).then_some(wait)
    }

    /// Gives the operation back until something can be asked again; its owner has stored what it found.
    pub async fn pause(&mut self, wait: Duration) -> Parting {
        self.permits.give_back().await;
        let wait = pace::span(wait);
        let waited = self.waited.ms().saturating_add(wait.ms());
        let note = json!({ "pauses": self.pauses.saturating_add(1), "ms": waited });
        let details = Map::from_iter([(WAITED.to_owned(), note)]);
        let words = format!("nothing can be asked for {wait}: it waits in nobody's hands");
        match self.caller.journal.tell(Level::Info, &words, json!({}), details).await {
            true => {
                let until = self.operation.now() + wait;
                Parting::GiveBack(Some(Wait { until, reason: Wait::RETRY.to_owned() }))
            }
            false => Parting::GiveBack(None),
        }
    }

    pub fn has_room(&self) -> bool {
        self.ready.len() < self.rule().parallel.max(1) * 2
            && self.ready.len() + self.waiting.len() + self.under_way.len() < MOST
    }

    /// Until something is met, or the time has come.
    pub async fn next(&mut self, at: Option<Instant>) -> Met {
        let lease = self.operation.lease.clone();
        loop {
            if lease.is_lost() || lease.is_leaving() || lease.want().is_some() {
                return Met::Stopped;
            }
            self.begin_calls();
            if let Some(met) = self.met.pop_front() {
                return met;
            }
            if self.ready.is_empty() && self.waiting.is_empty() && self.under_way.is_empty() {
                return Met::Idle;
            }
            if at.is_some_and(|at| at <= Instant::now()) {
                return Met::Time;
            }
            if let Some(wait) = self.rest() {
                return Met::Waits(wait);
            }
            let due = self.waiting.iter().map(|(due, _)| *due).min();
            let has_place = self.under_way.len() < self.rule().parallel;
            let permits = self.permits.next_at(has_place && !self.ready.is_empty());
            let wakes = [due, permits, at].into_iter().flatten().min();
            let time = async {
                match wakes {
                    Some(at) => {
                        sleep_until(at.max(Instant::now() + Duration::from_millis(1))).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(ended) = self.flying.join_next_with_id() => self.ended(ended),
                () = self.permits.changed() => {}
                () = time => self.permits.look(),
                () = lease.asked_to_end() => {}
            }
        }
    }

    /// What is under way has the worker's grace, and nothing else begins.
    pub async fn wind_up(&mut self) -> Vec<Met> {
        let lease = self.operation.lease.clone();
        let until = Instant::now() + self.operation.shared.options.grace;
        while !self.under_way.is_empty() {
            tokio::select! {
                ended = self.flying.join_next_with_id() => match ended {
                    Some(ended) => self.ended(ended),
                    None => break,
                },
                () = sleep_until(until) => break,
                () = lease.given_up() => break,
            }
        }
        self.flying.abort_all();
        self.permits.give_back().await;
        self.met.drain(..).collect()
    }

    pub async fn end(&mut self) {
        self.permits.give_back().await;
    }

    fn begin_calls(&mut self) {
        self.blocked = None;
        let now = Instant::now();
        let (due, waits) = std::mem::take(&mut self.waiting).into_iter().partition(|(due, _)| *due <= now);
        self.waiting = waits;
        let due: Vec<(Instant, Asked)> = due;
        due.into_iter().for_each(|(_, asked)| self.ready.push_front(asked));
        while self.under_way.len() < self.rule().parallel {
            let Some(asked) = self.ready.pop_front() else { return };
            let (action, item) = match self.action_of(&asked) {
                Ok(known) => known,
                Err(problem) => {
                    self.judged(asked, Verdict::unfit(&problem));
                    continue;
                }
            };
            let prepared = match self.caller.prepare(action, &item) {
                Ok(prepared) => prepared,
                Err(verdict) => {
                    self.judged(asked, *verdict);
                    continue;
                }
            };
            if !self.permits.take(&prepared.destination) {
                let wanted = self.rule().parallel.max(self.ready.len() + 1);
                self.permits.want(&prepared.destination, wanted);
                self.blocked = self.permits.wait(&prepared.destination);
                self.ready.push_front(asked);
                return;
            }
            let (caller, limit) = (self.caller.clone(), action.timeout);
            let destination = prepared.destination.clone();
            let key =
                format!("{}:{}:{}:{}", self.operation.row.id(), item.key, asked.act.name(), asked.try_no);
            let task = self.flying.spawn(async move { caller.call(prepared, &item, &key, limit).await });
            self.under_way.insert(task.id(), (asked, destination));
        }
    }

    /// What is called, and the target as the call sees it: undone by `apply`, what was before comes after.
    fn action_of(&self, asked: &Asked) -> Result<(&'a TargetAction, ItemRow), String> {
        let rule = self.rule();
        match asked.act {
            Act::Fetch => {
                let fetch = rule.fetch.as_ref().ok_or("the playbook has no [fetch]")?;
                Ok((&fetch.action, asked.item.clone()))
            }
            Act::Undo => {
                if let Some(action) = &rule.rollback {
                    return Ok((action, asked.item.clone()));
                }
                let mut item = asked.item.clone();
                let before = item.details.get("before").cloned().unwrap_or_default();
                if before.is_null() {
                    return Err("it had no value before, and the playbook has no [rollback]".to_owned());
                }
                item.details.insert("after".to_owned(), before);
                Ok((&rule.apply, item))
            }
        }
    }

    fn ended(&mut self, ended: Result<(Id, Option<Verdict>), JoinError>) {
        let (id, verdict) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Some(Verdict::unfit("the call panicked"))),
        };
        let Some((asked, destination)) = self.under_way.remove(&id) else { return };
        // Stopped: nobody knows what came of it.
        let Some(verdict) = verdict else { return };
        self.permits.answered(&destination, verdict.answer());
        self.judged(asked, verdict);
    }

    fn judged(&mut self, mut asked: Asked, verdict: Verdict) {
        let Verdict { said, is_critical, output, .. } = verdict;
        let wait = |wait: Option<Span>, backoff: Backoff, retry: u32| {
            wait.or_else(|| backoff.wait(retry, pace::random())).unwrap_or(Span::from_seconds(1))
        };
        let (failure, wait) = match said {
            Said::Done => return self.met.push_back(Met::Done(Box::new(asked), output)),
            Said::Failed(failure) if is_critical => return self.met.push_back(Met::Critical(failure)),
            Said::Failed(failure) => (failure, None),
            Said::Retry { failure, wait: asks, answered } => {
                asked.retries += 1;
                asked.try_no += u32::from(answered);
                let is_left = asked.retries <= self.retries_of(asked.act);
                (failure, is_left.then(|| wait(asks, Backoff::target(), asked.retries)))
            }
            Said::Throttled { failure, retry_after } => {
                asked.throttled += 1;
                // After a try without an answer it says nothing of that one.
                asked.try_no += u32::from(asked.retries == 0);
                let wait = wait(retry_after, Backoff::throttled(), asked.throttled);
                asked.waited = Span::from_ms(asked.waited.ms().saturating_add(wait.ms()));
                (failure, (asked.waited <= self.rule().limit.give_up_after).then_some(wait))
            }
        };
        match wait {
            Some(wait) => self.waiting.push((Instant::now() + pace::duration(wait), asked)),
            None => self.met.push_back(Met::Failed(Box::new(asked), failure)),
        }
    }

    fn retries_of(&self, act: Act) -> u32 {
        let rule = self.rule();
        let action = match act {
            Act::Fetch => rule.fetch.as_ref().map(|fetch| &fetch.action),
            Act::Undo => rule.rollback.as_ref(),
        };
        action.unwrap_or(&rule.apply).retries
    }
}
