//! One step, or one item of it, with its tries.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use waypost_kernel::lifecycle::{DecisionPart, Decisions};
use waypost_kernel::request::Level;
use waypost_kernel::{Failure, Lifecycle};
use waypost_store::ItemRow;

use super::planned_steps::runs_again;
use super::playbook_run::{NOT_TRUE, PlaybookRun, bad_template};
use super::scope::{is_unattended, resolutions, unattended};
use super::state_names::StepState;
use super::step_log::{Halt, LEFT_OUT, StepResult, because};
use super::tasks::TaskBoard;
use super::{Next, PlaybookEnd, idempotency_key};
use crate::actions::{Call, Rendered, find};
use crate::execute::{Answer, Try};
use crate::interpret::{Judged, Tries, in_words, judge};
use crate::outcome::{Outcome, Word};
use crate::pace;
use crate::playbook::{Context, Secrets, Step, Unattended};

const PAUSE_REASON: &str = "pause_reason";

/// A mark on a step that said that nothing more is needed, for whoever takes the run over.
const FINISH: &str = "finish";

impl PlaybookRun<'_> {
    pub async fn once(&mut self, step: &Step, key: &str, context: &Context) -> Result<Next, Halt> {
        let is_cleanup = step.is_cleanup;
        let state = self.step_log.state(key);
        if state.is_settled() || state == StepState::Parked {
            return Ok(self.follows(step, key));
        }
        self.step_log.make_room().await?;
        self.began = None;
        let board = self.board(step, key);
        loop {
            if let Some(end) = self.wait_for_try(key, is_cleanup).await? {
                return Ok(Next::End(end));
            }
            match self.playbook.applies(step, context) {
                Ok(true) => {}
                Ok(false) => return self.leave_out(step, key).await,
                Err(error) => return self.failed(step, key, &bad_template(&error), &board).await,
            }
            let rendered = match self.rendered(step, context) {
                Ok(rendered) => rendered,
                Err(failure) => return self.failed(step, key, &failure, &board).await,
            };
            self.begin(step, key, context, &rendered, board.as_ref()).await?;
            let Some((answer, row)) = self.attempt(step, key, &rendered, board.as_ref()).await else {
                return Ok(Next::End(self.stopped(key)));
            };
            let tries = Tries { made: row.attempts + 1, retries: step.retries };
            match judge(&answer, tries, &step.backoff, pace::random()) {
                Judged::Said(word, outcome) => return self.said(step, key, word, outcome, &board).await,
                Judged::Failed { failure, .. } => return self.failed(step, key, &failure, &board).await,
                Judged::Again { wait, failure } => {
                    let notice =
                        format!("{}: retry {}/{} in {}", row.name, tries.made, tries.retries, in_words(wait));
                    let why = json!({ "code": &*failure.code, "message": &*failure.message });
                    let retry_in = Some(pace::span(wait));
                    let answered = !answer.is_unknown;
                    let result = StepResult { retry_in, answered, ..StepResult::failed(failure) };
                    self.step_log.put(key, StepState::Open, result).await?;
                    self.journal.note(Level::Warn, &notice, why).await;
                }
            }
        }
    }

    /// What a settled step means for those after it: the same for whoever settled it and for whoever finds it so.
    pub fn follows(&self, step: &Step, key: &str) -> Next {
        let Some(row) = self.step_log.row(key).filter(|_| !step.is_cleanup) else { return Next::On };
        match self.step_log.names.state(&row.status) {
            StepState::Failed if !step.continue_on_failure => Next::End(PlaybookEnd::Failed(failure_of(row))),
            StepState::Done if is_finish(row) => Next::End(self.all_done()),
            StepState::Parked => Next::End(paused_by(row)),
            _ => Next::On,
        }
    }

    pub fn item(&self, key: &str) -> Option<Value> {
        self.step_log.row(key)?.details.get("item").cloned()
    }

    fn board(&self, step: &Step, key: &str) -> Option<Arc<TaskBoard>> {
        let (store, by) = (&self.shared.store, &self.shared.options.name);
        let item = self.item(key);
        let board = TaskBoard::new(store, self.lease, by, self.row, key, item.as_ref(), &self.tasks);
        board.filter(|_| !step.is_cleanup)
    }

    /// Until its next try is due and may begin. Its wait is a stored time: whoever takes the run over keeps to it.
    async fn wait_for_try(&mut self, key: &str, is_cleanup: bool) -> Result<Option<PlaybookEnd>, Halt> {
        let due = self.step_log.row(key).and_then(|row| row.not_before);
        if let Some(due) = due.filter(|due| *due > self.deadlines.now()) {
            let until = Instant::now() + pace::duration(due - self.deadlines.now());
            self.wait(until, is_cleanup).await;
        }
        self.may_begin(is_cleanup).await
    }

    fn rendered(&self, step: &Step, context: &Context) -> Result<Rendered, Failure> {
        let bad = |error| bad_template(&error);
        let needs = self.playbook.needs(&step.action, context).map_err(bad)?;
        let secrets =
            Secrets::resolve(&needs, find).map_err(|problem| Failure::new("NO_SECRET", &problem))?;
        self.playbook.render(&step.action, context, &secrets).map_err(bad)
    }

    /// Stored before anything is executed, so that an end without a result is known as one.
    async fn begin(
        &mut self,
        step: &Step,
        key: &str,
        context: &Context,
        rendered: &Rendered,
        board: Option<&Arc<TaskBoard>>,
    ) -> Result<(), Halt> {
        let undone = |cleanup: &Step| cleanup.after.as_ref().is_none_or(|after| *after == step.key);
        if !self.requires_cleanup && !step.is_cleanup && self.playbook.cleanups.iter().any(undone) {
            self.step_log.flush().await?;
            self.require_cleanup(true, None).await?;
        }
        let mut told = StepResult::default().with_detail("does", rendered.action.in_words());
        // What was marked before a pause is not so any more.
        let marked =
            |result: &&str| self.step_log.row(key).is_some_and(|row| row.details.contains_key(*result));
        for stale in [FINISH, LEFT_OUT].into_iter().filter(marked) {
            told = told.with_detail(stale, false);
        }
        self.step_log.put(key, StepState::Held, told).await?;
        if self.began.is_none() {
            self.began = Some(Instant::now());
            self.tell_of(step, key).await;
        }
        if let Some(board) = board {
            board.announce(self.playbook.tasks_of(step, context).unwrap_or_default()).await;
        }
        Ok(())
    }

    /// `None`: something else is wanted of the run.
    async fn attempt(
        &self,
        step: &Step,
        key: &str,
        rendered: &Rendered,
        board: Option<&Arc<TaskBoard>>,
    ) -> Option<(Answer, ItemRow)> {
        let is_cleanup = step.is_cleanup;
        let row = self.step_log.row(key)?.clone();
        let own = step.timeout.map(|limit| Instant::now() + pace::duration(limit));
        let run = self.deadlines.deadline().filter(|_| !is_cleanup);
        let it = Try {
            row: self.row,
            lease: self.lease,
            journal: &self.journal,
            grace: self.shared.options.grace,
            number: row.attempts + 1,
            until: own.into_iter().chain(run).min(),
            is_cleanup,
            board,
        };
        let call = self.call(&it, &row);
        let answer = it.act(self.shared, rendered, &call, step.timeout.map(pace::duration)).await;
        let is_late = own.is_some_and(|own| own <= Instant::now()) && !self.is_interrupted(is_cleanup);
        let too_late = || {
            let limit = step.timeout.map(|limit| limit.to_string()).unwrap_or_default();
            is_late.then(|| late(&limit))
        };
        Some((answer.or_else(too_late)?, row))
    }

    fn call(&self, it: &Try<'_>, row: &ItemRow) -> Call {
        let key = idempotency_key(self.row.id(), &row.key, row.try_no);
        let mut call = it.call(&row.name, key);
        let mut more = Map::from_iter([
            ("resolutions".to_owned(), resolutions(self.row)),
            ("unattended".to_owned(), unattended(self.playbook, self.row)),
        ]);
        more.extend(row.details.get("item").map(|item| ("item".to_owned(), item.clone())));
        call.input = Value::Object(self.inputs.clone());
        call.more = more;
        call
    }

    fn is_interrupted(&self, is_cleanup: bool) -> bool {
        self.lease.is_leaving() || !is_cleanup && self.lease.want().is_some()
    }

    /// Why a step was stopped in the middle.
    fn stopped(&mut self, key: &str) -> PlaybookEnd {
        if self.lease.is_leaving() {
            return PlaybookEnd::Left;
        }
        if let Some(want) = self.lease.want() {
            return PlaybookEnd::Wanted(want);
        }
        let failure = self.out_of_time();
        self.step_log.put_later(key, StepState::Failed, StepResult::failed(failure.clone()));
        PlaybookEnd::Failed(failure)
    }

    /// A cleanup that has nothing to do now may have the next time.
    async fn leave_out(&mut self, step: &Step, key: &str) -> Result<Next, Halt> {
        if !step.is_cleanup {
            self.step_log.put_later(key, StepState::Skipped, because(NOT_TRUE));
            self.tell_of(step, key).await;
        }
        Ok(Next::On)
    }

    /// How long it ran, its tries and the waits between them: when it began the first time says nothing of that, if there
    /// was a pause since.
    fn timed(&self, result: StepResult) -> StepResult {
        match self.began {
            Some(began) => {
                let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                result.with_detail("duration_ms", ms)
            }
            None => result,
        }
    }

    async fn said(
        &mut self,
        step: &Step,
        key: &str,
        word: Word,
        outcome: Outcome,
        board: &Option<Arc<TaskBoard>>,
    ) -> Result<Next, Halt> {
        if !outcome.details.is_empty() {
            let told = format!("{key}: details");
            self.journal.tell(Level::Debug, &told, json!({}), outcome.details.clone()).await;
        }
        if word == Word::Pause {
            return self.asked_to_pause(step, key, &outcome, board).await;
        }
        close(board, None).await;
        // What is skipped stays so; a cleanup, and what it undid, are asked again after a pause.
        let is_skipped = word == Word::Skip && !runs_again(self.playbook, step);
        let state = if is_skipped { StepState::Skipped } else { StepState::Done };
        let mut result = answered(outcome);
        if word == Word::Finish {
            result = result.with_detail(FINISH, true);
        }
        self.step_log.put_later(key, state, self.timed(result));
        self.tell_of(step, key).await;
        Ok(self.follows(step, key))
    }

    async fn asked_to_pause(
        &mut self,
        step: &Step,
        key: &str,
        outcome: &Outcome,
        board: &Option<Arc<TaskBoard>>,
    ) -> Result<Next, Halt> {
        let reason = outcome.reason.clone().or_else(|| outcome.message.clone());
        let reason = reason.unwrap_or_else(|| format!("{key} asks for a person"));
        if step.is_cleanup || !self.step_log.names.has(StepState::Parked) {
            let message = format!("it asked for a pause ({reason}), which cannot be had here");
            return self.failed(step, key, &Failure::new("CANNOT_PAUSE", &message), board).await;
        }
        if is_unattended(self.row) {
            if self.playbook.unattended == Unattended::Fail {
                let message = format!("nobody is there to decide: {reason}");
                return self.failed(step, key, &Failure::new("UNATTENDED", &message), board).await;
            }
            close(board, None).await;
            let result =
                StepResult::default().with_detail("reason", format!("nobody is there to decide: {reason}"));
            self.step_log.put_later(key, StepState::Skipped, result);
            return Ok(Next::On);
        }
        let lifecycle = &self.row.lifecycle;
        if !outcome.blockers.is_empty() && lifecycle.decisions.is_none() {
            let told =
                format!("{key}: a {} run has no place for decisions; it waits for a person", lifecycle.name);
            let asked = json!({ "blockers": outcome.blockers });
            self.journal.note(Level::Warn, &told, asked).await;
        }
        let details = pause_details(lifecycle, key, &reason, &outcome.blockers);
        let result =
            StepResult { answered: true, ..StepResult::default() }.with_detail("pause", details.clone());
        self.step_log.put_later(key, StepState::Parked, result);
        Ok(Next::End(PlaybookEnd::Paused { reason, details }))
    }

    pub async fn failed(
        &mut self,
        step: &Step,
        key: &str,
        failure: &Failure,
        board: &Option<Arc<TaskBoard>>,
    ) -> Result<Next, Halt> {
        close(board, Some(failure)).await;
        let result = StepResult { answered: true, ..StepResult::failed(failure.clone()) };
        // After a pause it is due again, and what failed for good never is.
        let tries_again = step.is_cleanup && self.pauses && self.step_log.names.has(StepState::Parked);
        let state = if tries_again { StepState::Parked } else { StepState::Failed };
        self.step_log.put_later(key, state, self.timed(result));
        self.tell_of(step, key).await;
        if let Some(row) = self.step_log.row(key) {
            let why = json!({ "step": key, "code": &*failure.code });
            self.journal.note(Level::Error, &failure_of(row).message, why).await;
        }
        Ok(self.follows(step, key))
    }
}

/// The pause that a parked step asks for.
pub(crate) fn paused_by(row: &ItemRow) -> PlaybookEnd {
    let details = row.details.get("pause").and_then(Value::as_object).cloned().unwrap_or_default();
    let reason = details.get(PAUSE_REASON).and_then(Value::as_str).unwrap_or("pause").to_owned();
    PlaybookEnd::Paused { reason, details }
}

/// Of a step that failed, as its run tells it.
fn failure_of(row: &ItemRow) -> Failure {
    let (code, message) = match &row.failure {
        Some(failure) => (&*failure.code, &*failure.message),
        None => ("STEP_FAILED", "it failed and did not say why"),
    };
    Failure::new(code, &format!("{}: {message}", row.name))
}

async fn close(board: &Option<Arc<TaskBoard>>, failure: Option<&Failure>) {
    if let Some(board) = board {
        board.close(failure).await;
    }
}

/// Its handler said that nothing more is needed: whoever comes to it again ends there.
pub(crate) fn is_finish(row: &ItemRow) -> bool {
    row.details.get(FINISH) == Some(&Value::Bool(true))
}

fn answered(outcome: Outcome) -> StepResult {
    let mut result = StepResult { answered: true, output: Some(outcome.output), ..StepResult::default() };
    if let Some(reason) = outcome.reason.or(outcome.message) {
        result = result.with_detail("reason", reason);
    }
    if !outcome.artifacts.is_empty() {
        result = result.with_detail("artifacts", outcome.artifacts);
    }
    if !outcome.proposals.is_empty() {
        result = result.with_detail("proposals", outcome.proposals);
    }
    result
}

/// What is told of a run while it waits for a person and is not so any more when it goes on. What was decided stays.
pub(crate) fn pause_facts(lifecycle: &Lifecycle) -> impl Iterator<Item = &str> {
    let stale = |part: &DecisionPart| !matches!(part, DecisionPart::Waiting | DecisionPart::Given);
    let decisions = lifecycle.decisions.iter().flat_map(Decisions::members);
    let asked = decisions.filter(move |(part, _)| stale(part)).map(|(_, member)| member);
    [PAUSE_REASON, "paused_step"].into_iter().chain(asked)
}

/// What a handler's pause puts into the run's details. What it asks people to decide (`blockers`) has a place there if the
/// lifecycle says where.
fn pause_details(
    lifecycle: &Lifecycle,
    key: &str,
    reason: &str,
    blockers: &Map<String, Value>,
) -> Map<String, Value> {
    let critical = |about: &Value| {
        let listed = about.get("blockers").unwrap_or(about).as_array();
        let severe = |blocker: &&Value| blocker["severity"] == "critical";
        listed.map_or(0, |listed| listed.iter().filter(severe).count())
    };
    let mut details =
        Map::from_iter([(PAUSE_REASON.to_owned(), json!(reason)), ("paused_step".to_owned(), json!(key))]);
    for (part, member) in lifecycle.decisions.iter().flat_map(Decisions::members) {
        let value = match part {
            DecisionPart::Waiting => json!(!blockers.is_empty()),
            DecisionPart::Asked => json!(blockers),
            DecisionPart::AskedCount => json!(blockers.len()),
            DecisionPart::CriticalCount => json!(blockers.values().map(critical).sum::<usize>()),
            // People give them.
            DecisionPart::Given => continue,
        };
        details.insert(member.to_owned(), value);
    }
    details
}

/// Nobody knows what was done by then: it is asked for again under the same key.
fn late(limit: &str) -> Answer {
    let outcome =
        Outcome { code: Some("TIMEOUT".to_owned()), ..Outcome::retry(&format!("no end within {limit}")) };
    Answer { outcome: Some(Ok(outcome)), is_unknown: true, ..Answer::default() }
}
