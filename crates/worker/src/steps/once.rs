//! One step, or one item of it, with its tries.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::lifecycle::{DecisionPart, Decisions};
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_kernel::text::{MAX_REASON_CHARS, clean_chars};
use waypost_kernel::{Failure, Lifecycle};
use waypost_store::ItemRow;

use super::asking::Question;
use super::attempt::Attempt;
use super::course::{Beginning, Once};
use super::lost::{LOST_TRIES, lost_tries};
use super::planned_steps::runs_again;
use super::playbook_run::{NOT_TRUE, PlaybookRun, bad_template};
use super::scope::{is_unattended, resolutions, unattended};
use super::state_names::StepState;
use super::step_log::{Halt, LEFT_OUT, StepResult, because};
use super::tasks::TaskBoard;
use super::{Next, PlaybookEnd};
use crate::actions::{Rendered, find};
use crate::execute::Answer;
use crate::interpret::{Judged, Tries, in_words, judge};
use crate::outcome::{Outcome, Word};
use crate::pace;
use crate::playbook::{Context, Secrets, Step, Unattended};

const PAUSE_REASON: &str = "pause_reason";

/// A mark on a step that said that nothing more is needed, for whoever takes the run over.
const FINISH: &str = "finish";

/// What a step whose turn has come is ready for.
pub(super) enum Prepared<'a> {
    Execute(Rendered),
    Ask(Question<'a>),
    /// It has ended, and this follows.
    Over(Next),
}

impl<'a> PlaybookRun<'a> {
    pub async fn prepared(&mut self, once: &Once<'a>, context: &Context) -> Result<Prepared<'a>, Halt> {
        let rendered = match self.playbook.applies(once.step, context) {
            Ok(true) => match &once.step.ask {
                Some(ask) => return self.prepared_ask(once, ask, context).await,
                None => self.rendered(once.step, context),
            },
            Ok(false) => return self.leave_out(once).await.map(Prepared::Over),
            Err(error) => Err(bad_template(&error)),
        };
        match rendered {
            Ok(rendered) => Ok(Prepared::Execute(rendered)),
            Err(failure) => self.failed(once, &failure).await.map(Prepared::Over),
        }
    }
}

impl PlaybookRun<'_> {
    /// `None`: it is tried again.
    pub async fn judged(
        &mut self,
        once: &Once<'_>,
        row: &ItemRow,
        answer: &Answer,
    ) -> Result<Option<Next>, Halt> {
        let made = row.attempts.saturating_add(lost_tries(row)) + 1;
        let tries = Tries { made, retries: once.step.retries };
        match judge(answer, tries, &once.step.backoff, pace::random()) {
            Judged::Said(word, outcome) => self.said(once, word, outcome).await.map(Some),
            Judged::Failed { failure, .. } => self.failed(once, &failure).await.map(Some),
            Judged::Again { wait, failure } => {
                let notice =
                    format!("{}: retry {}/{} in {}", row.name, tries.made, tries.retries, in_words(wait));
                let why = json!({ "step": once.key, "code": &*failure.code, "message": &*failure.message });
                let retry_in = Some(pace::span(wait));
                let answered = !answer.is_unknown;
                let result = StepResult { retry_in, answered, ..StepResult::failed(failure) };
                self.step_log.put(&once.key, StepState::Open, result).await?;
                self.journal.note(Level::Warn, &notice, why).await;
                Ok(None)
            }
        }
    }

    /// What a settled step means for those after it: the same for whoever settled it and for whoever finds it so.
    pub fn follows(&self, step: &Step, key: &str) -> Next {
        let Some(row) = self.step_log.row(key).filter(|_| !step.is_cleanup) else { return Next::On };
        match self.step_log.names.state(&row.status) {
            StepState::Failed if !step.continue_on_failure => Next::End(PlaybookEnd::Failed(failure_of(row))),
            StepState::Done if is_finish(row) => Next::Finish,
            StepState::Parked => {
                let asks = paused_by(&self.row.lifecycle, [row].into_iter());
                asks.map_or(Next::On, Next::End)
            }
            _ => Next::On,
        }
    }

    pub fn item(&self, key: &str) -> Option<Value> {
        self.step_log.row(key)?.details.get("item").cloned()
    }

    pub fn board(&self, step: &Step, key: &str) -> Option<Arc<TaskBoard>> {
        let (store, by) = (&self.shared.store, &self.shared.options.name);
        let item = self.item(key);
        let board = TaskBoard::new(store, self.lease, by, self.row, key, item.as_ref(), &self.tasks);
        board.filter(|_| !step.is_cleanup)
    }

    fn rendered(&self, step: &Step, context: &Context) -> Result<Rendered, Failure> {
        let bad = |error| bad_template(&error);
        let needs = self.playbook.needs(&step.action, context).map_err(bad)?;
        let secrets =
            Secrets::resolve(&needs, find).map_err(|problem| Failure::new("NO_SECRET", &problem))?;
        self.playbook.render(&step.action, context, &secrets).map_err(bad)
    }

    /// Stored before anything is executed, so that an end without a result is known as one.
    pub async fn store_beginnings(&mut self, beginnings: &[Beginning<'_>]) -> Result<(), Halt> {
        let is_undone = |step: &Step| {
            let undoes = |cleanup: &Step| cleanup.after.as_ref().is_none_or(|after| *after == step.key);
            !step.is_cleanup && self.playbook.cleanups.iter().any(undoes)
        };
        if !self.requires_cleanup && beginnings.iter().any(|it| is_undone(it.once.step)) {
            self.step_log.flush().await?;
            self.require_cleanup(true, None).await?;
        }
        let begun = |it: &Beginning<'_>| {
            let key = it.once.key.clone();
            let told = self.begins(&key, &it.rendered.action.in_words());
            (key, told)
        };
        let begun = beginnings.iter().map(begun).collect();
        self.step_log.begin(begun).await
    }

    /// What is stored of a step that begins. What was marked before a pause is not so any more.
    pub fn begins(&self, key: &str, does: &str) -> StepResult {
        let marked = |mark: &&str| self.step_log.row(key).is_some_and(|row| row.details.contains_key(*mark));
        let stale = [FINISH, LEFT_OUT].into_iter().filter(marked);
        let told = StepResult::default().with_detail("does", does);
        let told = match self.lost_tries.get(key) {
            Some(lost) => told.with_detail(LOST_TRIES, *lost),
            None => told,
        };
        stale.fold(told, |told, mark| told.with_detail(mark, false))
    }

    /// For people, once it is stored.
    pub async fn tell_beginning_of(&mut self, once: &Once<'_>, context: &Context) {
        if once.began.is_none() {
            self.tell_of(once.step, &once.key).await;
        }
        if let Some(board) = &once.board {
            board.announce(self.playbook.tasks_of(once.step, context).unwrap_or_default()).await;
        }
    }

    /// A try that is stored as begun.
    pub fn attempt(&self, once: &Once<'_>, rendered: Rendered) -> Option<Attempt> {
        let step = once.step;
        let row = self.step_log.row(&once.key)?.clone();
        let mut more = Map::from_iter([
            ("resolutions".to_owned(), resolutions(self.row)),
            ("unattended".to_owned(), unattended(self.playbook, self.row)),
        ]);
        more.extend(row.details.get("item").map(|item| ("item".to_owned(), item.clone())));
        Some(Attempt {
            shared: self.shared.clone(),
            run: self.row.clone(),
            lease: self.lease.clone(),
            journal: self.journal.clone(),
            row,
            rendered,
            board: once.board.clone(),
            is_cleanup: step.is_cleanup,
            timeout: step.timeout,
            deadline: self.deadlines.deadline().filter(|_| !step.is_cleanup),
            inputs: self.inputs.clone(),
            more,
        })
    }

    /// Why a step was stopped in the middle. That a cancel did so is stored before any cleanup begins: whoever takes the run over
    /// would find only that it had begun.
    pub async fn stopped(&mut self, once: &Once<'_>) -> PlaybookEnd {
        if let Some(end) = self.interrupted(once.step.is_cleanup) {
            if end == PlaybookEnd::Wanted(Want::Cancel)
                && let Some(failure) = self.cancelled().await
            {
                close(once, Some(&failure)).await;
                let result = timed(once, StepResult::failed(failure));
                self.step_log.put_later(&once.key, StepState::Failed, result);
            }
            return end;
        }
        let failure = self.out_of_time();
        self.step_log.put_later(&once.key, StepState::Failed, StepResult::failed(failure.clone()));
        PlaybookEnd::Failed(failure)
    }

    /// As the run's end will tell it. None if the store cannot be asked: the end says it then.
    async fn cancelled(&self) -> Option<Failure> {
        let run = self.shared.store.run(self.row.tenant.clone(), self.row.id().to_owned()).await.ok()?;
        let intent = run.run.intent.filter(|intent| intent.want == Want::Cancel)?;
        let code = self.row.lifecycle.code_of(intent.want.command())?;
        Some(Failure::new(code, &intent.in_words()))
    }

    /// A cleanup that has nothing to do now may have the next time.
    async fn leave_out(&mut self, once: &Once<'_>) -> Result<Next, Halt> {
        if !once.step.is_cleanup {
            self.step_log.put_later(&once.key, StepState::Skipped, because(NOT_TRUE));
            self.tell_of(once.step, &once.key).await;
        }
        Ok(Next::On)
    }

    async fn said(&mut self, once: &Once<'_>, word: Word, outcome: Outcome) -> Result<Next, Halt> {
        let (step, key) = (once.step, once.key.as_str());
        if !outcome.details.is_empty() {
            let told = format!("{key}: details");
            self.journal.tell(Level::Debug, &told, json!({}), outcome.details.clone()).await;
        }
        if word == Word::Pause {
            return self.asked_to_pause(once, &outcome).await;
        }
        close(once, None).await;
        // What is skipped stays so; a cleanup, and what it undid, are asked again after a pause.
        let is_skipped = word == Word::Skip && !runs_again(self.playbook, step);
        let state = if is_skipped { StepState::Skipped } else { StepState::Done };
        let mut result = answered(outcome);
        if word == Word::Finish {
            result = result.with_detail(FINISH, true);
        }
        self.step_log.put_later(key, state, timed(once, result));
        self.tell_of(step, key).await;
        Ok(self.follows(step, key))
    }

    async fn asked_to_pause(&mut self, once: &Once<'_>, outcome: &Outcome) -> Result<Next, Halt> {
        let (step, key) = (once.step, once.key.as_str());
        let mut said = [&outcome.reason, &outcome.message].into_iter().flatten();
        let reason = said.find(|reason| !reason.trim().is_empty()).cloned();
        let reason = reason.unwrap_or_else(|| format!("{key} asks for a person"));
        if step.is_cleanup || !self.step_log.names.has(StepState::Parked) {
            let message = format!("it asked for a pause ({reason}), which cannot be had here");
            return self.failed(once, &Failure::new("CANNOT_PAUSE", &message)).await;
        }
        if is_unattended(self.row) {
            if self.playbook.unattended == Unattended::Fail {
                let message = format!("nobody is there to decide: {reason}");
                return self.failed(once, &Failure::new("UNATTENDED", &message)).await;
            }
            close(once, None).await;
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

    pub async fn failed(&mut self, once: &Once<'_>, failure: &Failure) -> Result<Next, Halt> {
        let (step, key) = (once.step, once.key.as_str());
        close(once, Some(failure)).await;
        let result = StepResult { answered: true, ..StepResult::failed(failure.clone()) };
        // After a pause it is due again, and what failed for good never is.
        let tries_again = step.is_cleanup && self.pauses && self.step_log.names.has(StepState::Parked);
        let state = if tries_again { StepState::Parked } else { StepState::Failed };
        self.step_log.put_later(key, state, timed(once, result));
        self.tell_of(step, key).await;
        if let Some(row) = self.step_log.row(key) {
            let why = json!({ "step": key, "code": &*failure.code });
            self.journal.note(Level::Error, &failure_of(row).message, why).await;
        }
        Ok(self.follows(step, key))
    }
}

/// The pause that parked steps ask for; all that they ask, if they are several.
pub(crate) fn paused_by<'r>(
    lifecycle: &Lifecycle,
    parked: impl Iterator<Item = &'r ItemRow>,
) -> Option<PlaybookEnd> {
    let (mut keys, mut reasons, mut blockers, mut asked) = (Vec::new(), Vec::new(), Map::new(), Vec::new());
    let place = lifecycle.decisions.iter().flat_map(Decisions::members);
    let place = place.filter(|(part, _)| *part == DecisionPart::Asked).map(|(_, member)| member).next();
    for row in parked {
        let details = row.details.get("pause").and_then(Value::as_object).cloned().unwrap_or_default();
        let reason = details.get(PAUSE_REASON).and_then(Value::as_str).unwrap_or("pause").to_owned();
        let about = place.and_then(|place| details.get(place)?.as_object()).cloned().unwrap_or_default();
        for (host, about) in about {
            // Whoever asked first: what is decided about a host is for all to read.
            blockers.entry(host).or_insert(about);
        }
        keys.push(row.key.as_str());
        reasons.push(reason);
        asked.push(details);
    }
    if let (1, Some(reason), Some(details)) = (asked.len(), reasons.first(), asked.first()) {
        return Some(PlaybookEnd::Paused { reason: reason.clone(), details: details.clone() });
    }
    reasons.dedup();
    let reason = clean_chars(&reasons.join("; "), MAX_REASON_CHARS).text;
    let details = pause_details(lifecycle, &keys.join(", "), &reason, &blockers);
    (!asked.is_empty()).then_some(PlaybookEnd::Paused { reason, details })
}

/// How long it ran, its tries and the waits between them: when it began the first time says nothing of that, if there
/// was a pause since.
fn timed(once: &Once<'_>, result: StepResult) -> StepResult {
    match once.began {
        Some(began) => {
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            result.with_detail("duration_ms", ms)
        }
        None => result,
    }
}

/// Of a step that failed, as its run tells it.
fn failure_of(row: &ItemRow) -> Failure {
    let (code, message) = match &row.failure {
        Some(failure) => (&*failure.code, &*failure.message),
        None => ("STEP_FAILED", "it failed and did not say why"),
    };
    Failure::new(code, &format!("{}: {message}", row.name))
}

async fn close(once: &Once<'_>, failure: Option<&Failure>) {
    if let Some(board) = &once.board {
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
pub(crate) fn pause_details(
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
