//! One holder's pass over the targets of a run: some are under way at once, what they came to is written together with the
//! next ones that are taken, and the run ends with its last one.
//!
//! Targets that wait are the store's: their time is kept there and they take no place here. A run of which nothing is due for a
//! while is given back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::{Id, JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use waypost_kernel::backoff::Backoff;
use waypost_kernel::item::Tried;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::run::Want;
use waypost_kernel::{Failure, Span, Time};
use waypost_store::{
    Claimed, End, ItemFilter, ItemRow, StoreError, TargetResult, Wait, WorkTargets, Worked, target_key,
};

use super::call::{Caller, Prepared};
use super::operation::plan_first;
use super::permits::Permits;
use super::stop::{self, STOPPED};
use super::today::Today;
use super::verdict::{Said, Verdict};
use crate::counts::Applied;
use crate::interpret::{Ending, Goal, Parting};
use crate::lease::{Asked, Lease};
use crate::outage;
use crate::pace;
use crate::pipeline::Shared;
use crate::playbook::{OnViolation, Playbook, Rule, Violation};
use crate::report::end_of;
use crate::report::journal::is_lost;
use crate::steps::WORTH_GIVING_BACK;

/// Results of one write, and targets that it takes.
const BATCH: usize = 500;
/// Targets in hand last about this long: more of them would only wait here.
const IN_HAND: Duration = Duration::from_millis(500);
/// Results are written at the latest so long after they came, so that progress is seen and little is asked twice after a crash.
const LATEST: Duration = Duration::from_millis(200);
/// A permit that is further away is not waited for with targets in hand.
const SOON: Duration = Duration::from_secs(2);

pub(crate) async fn perform(
    shared: &Shared,
    claimed: &Claimed,
    (lease, asked_at): (&Arc<Lease>, Instant),
    playbook: &Arc<Playbook>,
    rule: &Rule,
) -> Parting {
    let caller = match Caller::new(shared, &claimed.run, lease, playbook, rule) {
        Ok(caller) => Arc::new(caller),
        Err(problem) => return Parting::End(Ending::failed(Failure::new("BAD_INPUT", &problem))),
    };
    if let Err(error) = plan_first(shared, claimed, rule).await {
        outage::met(&format!("the reconciliation of {} was not planned", claimed.run.id()), &error);
        return Parting::GiveBack(None);
    }
    let guardrails = &rule.guardrails;
    let judged = async {
        let today = Today::of(&*shared.store, &claimed.run, guardrails, claimed.now).await?;
        let stop = stop::judge(&*shared.store, &claimed.run, guardrails, &today).await?;
        Ok::<_, StoreError>((today, stop))
    };
    let (today, stop) = match judged.await {
        Ok(judged) => judged,
        Err(error) => {
            outage::met(&format!("what {} would change could not be judged", claimed.run.id()), &error);
            return Parting::GiveBack(None);
        }
    };
    let (refused, ends) = match stop {
        Some(stop) => (stop.refused, End::Stop(stop.failure)),
        None => (Vec::new(), End::WhenDone),
    };
    let pass = Pass {
        rule,
        today,
        permits: Permits::new(&caller, rule),
        caller,
        clock: (claimed.now, asked_at),
        ready: VecDeque::new(),
        flying: JoinSet::new(),
        tasks: HashMap::new(),
        under_way: HashMap::new(),
        oldest_result: (!refused.is_empty()).then(Instant::now),
        results: refused,
        writing: None,
        take: rule.parallel.max(1) * 2,
        took_at: Instant::now(),
        next_due: Some(claimed.now),
        ends,
        retry: 0,
        doubt: false,
    };
    pass.run().await
}

struct Pass<'r> {
    caller: Arc<Caller>,
    rule: &'r Rule,
    permits: Permits,
    /// What runs of this rule had changed today when this pass began.
    today: Today,
    /// The database's clock at a moment of ours.
    clock: (Time, Instant),
    /// Taken, and not sent yet.
    ready: VecDeque<ItemRow>,
    flying: JoinSet<(String, Option<Verdict>)>,
    /// Which target a task is about, should it panic.
    tasks: HashMap<Id, String>,
    /// What is flying, by key, with whose limit it counts for.
    under_way: HashMap<String, (ItemRow, String)>,
    results: Vec<TargetResult>,
    oldest_result: Option<Instant>,
    writing: Option<Writing>,
    /// How many are taken at once.
    take: usize,
    took_at: Instant,
    /// When the next one that waits in the store is due; none: none waits.
    next_due: Option<Time>,
    ends: End,
    /// Failed writes in a row.
    retry: u32,
    /// The answer to a write was lost: what it took is not known here.
    doubt: bool,
}

/// A write under way, with what it reports: it is sent again if no answer comes.
struct Writing {
    task: JoinHandle<waypost_store::Result<Worked>>,
    write: WorkTargets,
    asked: Asked,
}

/// What wakes the pass.
enum Woken {
    Ended(String, Option<Verdict>),
    Written(Box<waypost_store::Result<Worked>>),
    Permits,
    Time,
    Asked,
}

impl Pass<'_> {
    async fn run(mut self) -> Parting {
        loop {
            let lease = self.caller.lease.clone();
            if lease.is_lost() {
                return Parting::GiveBack(None);
            }
            if lease.is_leaving() || self.wants_cancel() {
                return self.wind_up().await;
            }
            self.begin_calls();
            self.begin_write();
            if let Some(parting) = self.rest() {
                self.permits.give_back().await;
                return parting;
            }
            match self.woken(&lease).await {
                Woken::Ended(key, verdict) => self.ended(&key, verdict),
                Woken::Written(answer) => {
                    if let Some(parting) = self.written(*answer).await {
                        self.permits.give_back().await;
                        return parting;
                    }
                }
                Woken::Permits | Woken::Asked => {}
                Woken::Time => self.permits.look(),
            }
        }
    }

    fn wants_cancel(&self) -> bool {
        self.caller.lease.want() == Some(Want::Cancel)
    }

    fn is_stopping(&self) -> bool {
        matches!(self.ends, End::Stop(_))
    }

    fn now(&self) -> Time {
        self.clock.0 + pace::span(self.clock.1.elapsed())
    }

    /// Sends what is in hand, as far as there are places and permits.
    fn begin_calls(&mut self) {
        if self.is_stopping() {
            // They are open, and fail with the others.
            self.ready.clear();
        }
        while self.under_way.len() < self.rule.parallel && !self.is_stopping() {
            let Some(item) = self.ready.pop_front() else { return };
            if let Some(violation) = self.today.judge(&self.rule.guardrails, &item.key) {
                self.past_guardrail(item, &violation);
                continue;
            }
            match self.caller.prepare(&self.rule.apply, &item) {
                Err(verdict) => self.judged(&item, *verdict),
                Ok(prepared) if self.permits.take(&prepared.destination) => self.begin(item, prepared),
                Ok(prepared) => {
                    let wanted = self.rule.parallel.max(self.ready.len() + 1);
                    self.permits.want(&prepared.destination, wanted);
                    match self.permits.wait(&prepared.destination).filter(|wait| *wait > SOON) {
                        // Nothing can be sent for a while: it waits in the store, as all that would come after it.
                        Some(wait) => self.put_back(item, wait),
                        None => {
                            self.ready.push_front(item);
                            return;
                        }
                    }
                }
            }
        }
    }

    /// The day was another one when the preview was made.
    fn past_guardrail(&mut self, item: ItemRow, violation: &Violation) {
        let failure = Failure::new(Violation::CODE, &violation.message);
        if self.rule.guardrails.on_violation == OnViolation::Stop {
            self.ends = End::Stop(Failure::new(STOPPED, &format!("{}: {}", item.key, violation.message)));
        }
        let tried = Tried::Refused { failure };
        self.results.push(TargetResult { key: item.key, try_no: item.try_no, tried, output: None });
        self.oldest_result.get_or_insert_with(Instant::now);
    }

    fn begin(&mut self, item: ItemRow, prepared: Prepared) {
        let (caller, limit, sent) = (self.caller.clone(), self.rule.apply.timeout, item.clone());
        let (key, destination) = (item.key.clone(), prepared.destination.clone());
        let task = self.flying.spawn(async move {
            let key = target_key(caller.run.id(), &sent.key, sent.try_no);
            let verdict = caller.call(prepared, &sent, &key, limit).await;
            (sent.key, verdict)
        });
        self.tasks.insert(task.id(), key.clone());
        self.under_way.insert(key, (item, destination));
    }

    fn put_back(&mut self, item: ItemRow, wait: Duration) {
        let mut back = |item: ItemRow| {
            self.results.push(TargetResult {
                key: item.key,
                try_no: item.try_no,
                tried: Tried::Unsent { wait: pace::span(wait) },
                output: None,
            });
        };
        back(item);
        self.ready.drain(..).for_each(back);
        self.oldest_result.get_or_insert_with(Instant::now);
    }

    fn ended(&mut self, key: &str, verdict: Option<Verdict>) {
        let Some((item, destination)) = self.under_way.remove(key) else { return };
        // Stopped: nobody knows what came of it. It stays as it is, and whoever goes on sends the same key.
        let Some(verdict) = verdict else { return };
        self.permits.answered(&destination, verdict.answer());
        self.judged(&item, verdict);
    }

    /// What a target came to, to be written.
    fn judged(&mut self, item: &ItemRow, verdict: Verdict) {
        let Verdict { said, is_critical, output, .. } = verdict;
        if is_critical && let Said::Failed(failure) = &said {
            self.ends = End::Stop(failure.clone());
        }
        let or = |wait: Option<Span>, backoff: Backoff, retry: u32| {
            wait.or_else(|| backoff.wait(retry, pace::random())).unwrap_or(Span::from_seconds(1))
        };
        let tried = match said {
            Said::Done => Tried::Applied,
            Said::Failed(failure) => Tried::Failed { failure },
            Said::Retry { failure, wait, answered } => {
                let wait = or(wait, Backoff::target(), item.attempts + 1);
                Tried::Retry { failure, wait, answered }
            }
            Said::Throttled { failure, retry_after } => {
                let wait = or(retry_after, Backoff::throttled(), item.throttled + 1);
                Tried::Throttled { failure, wait, answered: true }
            }
        };
        let output = output.filter(kept);
        self.results.push(TargetResult { key: item.key.clone(), try_no: item.try_no, tried, output });
        self.oldest_result.get_or_insert_with(Instant::now);
    }

    /// Writes what came, and takes more if there is room: one write at a time.
    fn begin_write(&mut self) {
        if self.writing.is_some() {
            return;
        }
        let is_due = self.next_due.is_some_and(|due| due <= self.now());
        let is_low = self.ready.len() < self.rule.parallel;
        let take = if is_due && is_low && !self.is_stopping() { self.take.min(BATCH) } else { 0 };
        let is_idle = self.under_way.is_empty() && self.ready.is_empty();
        let is_late = self.oldest_result.is_some_and(|oldest| oldest.elapsed() >= LATEST);
        let has_news =
            !self.results.is_empty() && (is_late || is_idle || self.results.len() >= BATCH || is_low);
        let must_end = is_idle && (self.is_stopping() || self.next_due.is_none());
        if take == 0 && !has_news && !must_end {
            return;
        }
        let count = self.results.len().min(BATCH);
        let results: Vec<TargetResult> = self.results.drain(..count).collect();
        self.oldest_result = (!self.results.is_empty()).then(Instant::now);
        // A stop ends what is under way too: it waits for that, and comes with the last results, so that a crash before forgets none of why.
        let waits = !is_idle || !self.results.is_empty();
        let end = if self.is_stopping() && waits { End::Later } else { self.ends.clone() };
        let write = WorkTargets {
            held: self.caller.lease.held.clone(),
            by: self.caller.shared.options.name.clone(),
            results,
            take,
            give_up_after: self.rule.limit.give_up_after,
            end,
        };
        self.send(write, Duration::ZERO);
    }

    fn send(&mut self, write: WorkTargets, after: Duration) {
        let (store, sent) = (self.caller.shared.store.clone(), write.clone());
        let task = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            store.work_targets(sent).await
        });
        self.writing = Some(Writing { task, write, asked: Asked::now() });
    }

    /// Takes up what a write answered; gives how the run is left, if that is decided.
    async fn written(&mut self, answer: waypost_store::Result<Worked>) -> Option<Parting> {
        let Writing { write, asked, .. } = self.writing.take()?;
        let run_id = self.caller.run.id().to_owned();
        let worked = match answer {
            Ok(worked) => worked,
            Err(error) if is_lost(&error) => {
                self.caller.lease.lose();
                return Some(Parting::GiveBack(None));
            }
            Err(error @ StoreError::Unavailable(_)) => {
                outage::met(&format!("results of targets of {run_id} were not accepted"), &error);
                self.retry += 1;
                // It may have been written all the same: then what it took is known to the store alone.
                self.doubt |= write.take > 0;
                self.send(WorkTargets { take: 0, ..write }, pace::store_away(self.retry));
                return None;
            }
            Err(error) => {
                tracing::error!(run_id, %error, "results of targets were refused");
                let failure = Failure::new("TARGETS_REFUSED", &error.to_string());
                return Some(Parting::End(Ending::failed(failure)));
            }
        };
        self.retry = 0;
        self.caller.shared.counts.applies.add(Applied::of(&Applied::retried(&write), &worked));
        self.clock = (worked.now, Instant::now());
        if let Some(run) = &worked.ended {
            self.caller.shared.counts.finished(run);
            return Some(Parting::Ended(end_of(run, Goal::Succeed)));
        }
        if let Some(renewed) = &worked.renewed {
            self.caller.lease.renewed(asked, renewed);
        }
        self.next_due = worked.next_due;
        // Some are begun as the store has it, and nobody here knows of them.
        let is_idle = self.under_way.is_empty() && self.ready.is_empty() && self.results.is_empty();
        if is_idle && worked.taken.is_empty() && worked.next_due.is_none() && worked.open > 0 {
            self.doubt = true;
            self.next_due = Some(worked.now + Span::from_seconds(1));
        }
        if write.take > 0 {
            self.pace_taking(worked.taken.len());
        }
        self.ready.extend(worked.taken);
        if std::mem::take(&mut self.doubt) {
            self.adopt().await;
        }
        None
    }

    /// Takes more at once if what was taken is soon gone, and fewer if it lasts.
    fn pace_taking(&mut self, taken: usize) {
        let lasted = self.took_at.elapsed();
        self.took_at = Instant::now();
        if lasted < IN_HAND / 2 && taken == self.take {
            self.take = (self.take * 2).min(BATCH);
        } else if lasted > IN_HAND {
            self.take = (self.take / 2).max(self.rule.parallel.max(1) * 2);
        }
    }

    /// Finds targets that the store has as begun and nobody here knows of.
    async fn adopt(&mut self) {
        let run = &self.caller.run;
        let Some(kind) = run.lifecycle.items.first() else { return };
        let held = kind.states.iter().find(|state| state.phase == Phase::Held);
        let filter = ItemFilter {
            run_id: run.id().to_owned(),
            kind: Some(kind.name.to_string()),
            status: held.map(|state| state.name.to_string()),
            limit: BATCH,
            ..ItemFilter::default()
        };
        match self.caller.shared.store.item_page(filter).await {
            Ok(page) => {
                let results: Vec<&str> = self.results.iter().map(|result| result.key.as_str()).collect();
                let known = |item: &ItemRow| {
                    self.under_way.contains_key(&item.key)
                        || self.ready.iter().any(|ready| ready.key == item.key)
                        || results.contains(&item.key.as_str())
                };
                let unknown: Vec<ItemRow> = page.items.into_iter().filter(|item| !known(item)).collect();
                self.ready.extend(unknown);
            }
            Err(_) => self.doubt = true,
        }
    }

    /// How the run is left if nothing is in hand and nothing is due for a while.
    fn rest(&self) -> Option<Parting> {
        let is_idle = self.under_way.is_empty() && self.ready.is_empty() && self.results.is_empty();
        if !is_idle || self.writing.is_some() || self.is_stopping() {
            return None;
        }
        let due = self.next_due?;
        let wait = pace::duration(due - self.now());
        let waits = Wait { until: due, reason: Wait::RETRY.to_owned() };
        (wait > WORTH_GIVING_BACK).then_some(Parting::GiveBack(Some(waits)))
    }

    async fn woken(&mut self, lease: &Arc<Lease>) -> Woken {
        let is_low = self.ready.len() < self.rule.parallel && !self.is_stopping();
        let due = self.next_due.filter(|_| self.writing.is_none() && is_low);
        let due = due.map(|due| Instant::now() + pace::duration(due - self.now()));
        let write = self.oldest_result.filter(|_| self.writing.is_none()).map(|oldest| oldest + LATEST);
        let has_place = self.under_way.len() < self.rule.parallel;
        let permits = self.permits.next_at(has_place && !self.ready.is_empty());
        let at = [due, write, permits].into_iter().flatten().min();
        let time = async {
            match at {
                // Never at once for ever: what is due is taken by the next write.
                Some(at) => sleep_until(at.max(Instant::now() + Duration::from_millis(1))).await,
                None => std::future::pending().await,
            }
        };
        let written = async {
            match &mut self.writing {
                Some(writing) => (&mut writing.task).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = self.flying.join_next_with_id() => {
                let (key, verdict) = ended_call(&mut self.tasks, ended);
                Woken::Ended(key, verdict)
            }
            answer = written => Woken::Written(Box::new(answer.unwrap_or_else(|error| {
                Err(StoreError::Unavailable(format!("the write was given up: {error}")))
            }))),
            () = self.permits.changed() => Woken::Permits,
            () = time => Woken::Time,
            () = lease.asked_to_end() => Woken::Asked,
        }
    }

    /// Somebody wants the run to end, or the worker stops: what is under way has the worker's grace, nothing else begins.
    async fn wind_up(mut self) -> Parting {
        let until = Instant::now() + self.caller.shared.options.grace;
        let lease = self.caller.lease.clone();
        while !self.under_way.is_empty() {
            tokio::select! {
                ended = self.flying.join_next_with_id() => match ended {
                    Some(ended) => {
                        let (key, verdict) = ended_call(&mut self.tasks, ended);
                        self.ended(&key, verdict);
                    }
                    None => break,
                },
                () = sleep_until(until) => break,
                () = lease.given_up() => break,
            }
        }
        self.flying.abort_all();
        let unsent: Vec<ItemRow> = self.ready.drain(..).collect();
        for item in unsent {
            let tried = Tried::Unsent { wait: Span::ZERO };
            self.results.push(TargetResult { key: item.key, try_no: item.try_no, tried, output: None });
        }
        self.permits.give_back().await;
        if !self.write_rest(&lease).await {
            return Parting::GiveBack(None);
        }
        if self.wants_cancel() && !lease.is_leaving() {
            return Parting::End(Ending::new(Goal::Cancel));
        }
        Parting::GiveBack(None)
    }

    /// Writes what came to the last. False: the lease is lost.
    async fn write_rest(&mut self, lease: &Lease) -> bool {
        if let Some(Writing { task, write, .. }) = self.writing.take() {
            match task.await {
                Ok(Ok(worked)) => {
                    let unsent = worked.taken.into_iter().map(|item| TargetResult {
                        key: item.key,
                        try_no: item.try_no,
                        tried: Tried::Unsent { wait: Span::ZERO },
                        output: None,
                    });
                    self.results.extend(unsent);
                }
                _ => self.results.splice(0..0, write.results).for_each(drop),
            }
        }
        while !self.results.is_empty() && !lease.is_lost() {
            let count = self.results.len().min(BATCH);
            let write = WorkTargets {
                held: lease.held.clone(),
                by: self.caller.shared.options.name.clone(),
                results: self.results[..count].to_vec(),
                take: 0,
                give_up_after: self.rule.limit.give_up_after,
                end: End::Later,
            };
            match self.caller.shared.store.work_targets(write).await {
                Ok(_) => {
                    self.results.drain(..count);
                    self.retry = 0;
                }
                Err(StoreError::Unavailable(_)) => {
                    self.retry += 1;
                    tokio::select! {
                        () = tokio::time::sleep(pace::store_away(self.retry)) => {}
                        () = lease.given_up() => return false,
                    }
                }
                Err(error) if is_lost(&error) => {
                    lease.lose();
                    return false;
                }
                Err(error) => {
                    tracing::error!(run_id = lease.held.run_id, %error, "results of targets were refused");
                    break;
                }
            }
        }
        !lease.is_lost()
    }
}

/// Which target's call has ended, and with what. One that panicked has failed.
fn ended_call(
    tasks: &mut HashMap<Id, String>,
    ended: Result<(Id, (String, Option<Verdict>)), JoinError>,
) -> (String, Option<Verdict>) {
    match ended {
        Ok((id, ended)) => {
            tasks.remove(&id);
            ended
        }
        Err(error) => {
            let key = tasks.remove(&error.id()).unwrap_or_default();
            (key, Some(Verdict::unfit("the call panicked")))
        }
    }
}

/// What a target keeps of an answer: not a whole page.
fn kept(output: &Value) -> bool {
    output.to_string().len() <= 4 * 1024
}
