//! The end of a run, whatever it is: cleanups are done first, then the run goes where its steps or people sent it.

use serde_json::{Map, Value, json};
use waypost_kernel::Failure;
use waypost_kernel::item::Role;
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_store::ItemRow;

use super::PlaybookEnd;
use super::course::Course;
use super::once::pause_facts;
use super::planned_steps::key_of;
use super::playbook_run::PlaybookRun;
use super::state_names::StepState;
use super::step_log::{Halt, StepResult, is_dropped};
use super::words::not_undone;
use crate::interpret::{Ending, Goal};
use crate::playbook::{Playbook, Step};
use crate::report::status_for;

/// The member of a run's details that names the cleanups that failed.
pub(super) const CLEANUP_FAILED: &str = "cleanup_failed";

impl<'a> PlaybookRun<'a> {
    /// `None`: the run is left to others.
    pub async fn end(&mut self, end: PlaybookEnd) -> Result<Option<Ending>, Halt> {
        if end == PlaybookEnd::Left {
            self.step_log.flush().await?;
            return Ok(None);
        }
        self.recall_lists();
        self.pauses = matches!(end, PlaybookEnd::Paused { .. } | PlaybookEnd::Wanted(Want::Pause));
        let is_due = self.playbook.cleanups.iter().any(|cleanup| self.is_due(cleanup));
        let end = if is_due { self.settle_before_cleanup(end).await? } else { end };
        if self.clean_up().await? == PlaybookEnd::Left {
            return Ok(None);
        }
        if self.requires_cleanup {
            self.require_cleanup(false, None).await?;
        }
        self.name_what_was_lost(&end);
        let ending = self.ending(end);
        // The last result and what follows from it for the run are one write.
        Ok(Some(Ending { items: self.step_log.take_waiting(), ..ending }))
    }

    /// A step that was under way when its worker died, or waited for its next try, is open, and nobody will begin it any
    /// more: where the run has failed it says so. A cancel skips it, whoever carries that out: there may be no worker.
    fn name_what_was_lost(&mut self, end: &PlaybookEnd) {
        if !matches!(end, PlaybookEnd::Failed(_) | PlaybookEnd::Wanted(Want::Fail)) {
            return;
        }
        let is_lost = |row: &&ItemRow| {
            let is_open = self.step_log.names.state(&row.status) == StepState::Open;
            is_open && row.role != Role::Cleanup && row.started_at.is_some() && !row.reruns
        };
        let lost = self.step_log.rows().iter().filter(is_lost).map(|row| (row.key.clone(), why_left(row)));
        let lost: Vec<(String, Failure)> = lost.collect();
        for (key, failure) in lost {
            self.step_log.put_later(&key, StepState::Failed, StepResult::failed(failure));
        }
    }

    /// What the steps came to is stored before the first cleanup begins: whoever takes the run over knows where it goes.
    async fn settle_before_cleanup(&mut self, end: PlaybookEnd) -> Result<PlaybookEnd, Halt> {
        let end = match self.step_log.flush().await {
            Err(Halt::Refused(failure)) => PlaybookEnd::Failed(failure),
            flushed => flushed.map(|()| end)?,
        };
        let failing = match &end {
            PlaybookEnd::Failed(failure) => {
                let status = status_for(&self.row.lifecycle, self.row.run.state, Goal::Fail);
                status.map(|status| (status, failure.clone()))
            }
            _ => None,
        };
        self.require_cleanup(true, failing).await?;
        Ok(end)
    }

    /// Its step ran, in this holder's hands or another's. One that is for no step is due from when work on the run has begun, though it
    /// may have come to no step yet.
    fn is_due(&self, cleanup: &Step) -> bool {
        // Whoever began it at any time: rather undone once more than not at all.
        let began = |key: &str| {
            let single = self.step_log.row(key).into_iter();
            single.chain(self.step_log.parts_of(key)).any(|row| row.started_at.is_some())
        };
        let ran = match &cleanup.after {
            Some(after) => began(after),
            None => self.is_at_work || self.playbook.steps.iter().any(|step| began(&step.key)),
        };
        let own = key_of(cleanup);
        // Parked: it failed on the way to a pause, and is left for the next end.
        let is_done = |key: &str| {
            let state = self.step_log.state(key);
            state.is_settled() || state == StepState::Parked
        };
        // What an earlier list had says nothing about the present one.
        let mut parts = self.step_log.parts_of(&own).filter(|row| !is_dropped(row)).peekable();
        let is_over = is_done(&own) || parts.peek().is_some() && parts.all(|row| is_done(&row.key));
        ran && !is_over
    }

    /// In the order of the file; one that fails does not keep the others. Whatever it fails by, and whenever, it counts.
    async fn clean_up(&mut self) -> Result<PlaybookEnd, Halt> {
        let playbook: &'a Playbook = self.playbook;
        for cleanup in &playbook.cleanups {
            if !self.is_due(cleanup) {
                continue;
            }
            let mut course = Course::new(std::slice::from_ref(cleanup), playbook.max_parallel);
            let done = match self.go_through(&mut course).await {
                Ok(PlaybookEnd::Left) => {
                    self.step_log.flush().await?;
                    return Ok(PlaybookEnd::Left);
                }
                Ok(_) => self.step_log.flush().await,
                Err(halt) => Err(halt),
            };
            let refused = match done {
                Ok(()) => continue,
                Err(Halt::Lost) => return Err(Halt::Lost),
                Err(Halt::Wanted(_)) => {
                    Failure::new("STEP_REFUSED", "it was stored as a step, not as a cleanup")
                }
                Err(Halt::Refused(failure)) => failure,
            };
            let message = format!("{}: {}", cleanup.key, refused.message);
            self.journal.note(Level::Error, &message, json!({ "code": &*refused.code })).await;
            self.unclean.push(cleanup.key.clone());
        }
        let failed =
            self.step_log.rows().iter().filter(|row| self.is_unclean(row)).map(|row| row.name.clone());
        self.unclean.extend(failed.collect::<Vec<_>>());
        Ok(PlaybookEnd::Done)
    }

    /// A cleanup that did not do what it was for. Parked: on the way to a pause, and it will be tried again.
    fn is_unclean(&self, row: &ItemRow) -> bool {
        let state = self.step_log.names.state(&row.status);
        row.role == Role::Cleanup
            && row.failure.is_some()
            && matches!(state, StepState::Failed | StepState::Parked)
    }

    fn ending(&self, end: PlaybookEnd) -> Ending {
        let mut ending = match end {
            PlaybookEnd::Done | PlaybookEnd::Left | PlaybookEnd::Waits(_) => Ending::new(Goal::Succeed),
            PlaybookEnd::Failed(failure) => Ending::failed(failure),
            PlaybookEnd::Paused { reason, details } => {
                let details = details.into_iter().chain(self.deadlines.note()).collect();
                let goes_on_at = self.answer_by();
                Ending { reason: Some(reason), details, goes_on_at, ..Ending::new(Goal::Park) }
            }
            PlaybookEnd::Wanted(Want::Pause) => {
                Ending { details: self.deadlines.note(), ..Ending::new(Goal::Park) }
            }
            PlaybookEnd::Wanted(Want::Cancel) => Ending::new(Goal::Cancel),
            PlaybookEnd::Wanted(Want::Fail) => Ending::new(Goal::Fail),
        };
        if !self.unclean.is_empty() {
            ending.details.insert(CLEANUP_FAILED.into(), json!(self.unclean));
            if ending.goal == Goal::Succeed {
                ending.goal = Goal::Fail;
                ending.failure = Some(Failure::new("CLEANUP_FAILED", &not_undone(&self.unclean)));
            }
        }
        // What was told of an earlier pause is not so any more, unless it is said again.
        for stale in pause_facts(&self.row.lifecycle).chain([CLEANUP_FAILED]) {
            if self.row.details.contains_key(stale) {
                ending.details.entry(stale).or_insert(Value::Null);
            }
        }
        let lines = self.journal.last_lines(self.row.details.get("console_log"));
        put(&mut ending.details, "console_log", lines);
        put(&mut ending.details, "artifacts", self.artifacts());
        ending
    }

    /// Of all steps.
    fn artifacts(&self) -> Vec<Value> {
        let lists = self.step_log.rows().iter().filter_map(|row| row.details.get("artifacts")?.as_array());
        lists.flatten().cloned().collect()
    }
}

/// Of a step that began and will not end.
fn why_left(row: &ItemRow) -> Failure {
    match &row.failure {
        Some(failure) if row.not_before.is_some() => failure.clone(),
        _ => Failure::new("INTERRUPTED", "it was interrupted, and not begun again since the run has failed"),
    }
}

fn put(details: &mut Map<String, Value>, key: &str, list: Vec<Value>) {
    if !list.is_empty() {
        details.insert(key.to_owned(), Value::Array(list));
    }
}
