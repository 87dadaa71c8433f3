//! The end of a run, whatever it is: cleanups are done first, then the run goes where its steps or people sent it.

use serde_json::{Map, Value, json};
use waypost_kernel::Failure;
use waypost_kernel::item::Role;
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_store::ItemRow;

use super::born::key_of;
use super::once::pause_facts;
use super::play::Play;
use super::sheet::{Gone, is_dropped};
use super::words::Standing;
use super::{Course, Next};
use crate::interpret::{Ending, Goal};
use crate::playbook::Step;
use crate::report::status_for;

const CLEANUP_FAILED: &str = "cleanup_failed";

impl Play<'_> {
    /// `None`: the run is left to others.
    pub async fn end(&mut self, course: Course) -> Result<Option<Ending>, Gone> {
        if course == Course::Left {
            self.sheet.flush().await?;
            return Ok(None);
        }
        self.recall_lists();
        self.pauses = matches!(course, Course::Paused { .. } | Course::Wanted(Want::Pause));
        let is_due = self.playbook.cleanups.iter().any(|cleanup| self.is_due(cleanup));
        let course = if is_due { self.settle_before_cleanup(course).await? } else { course };
        if self.clean_up().await? == Course::Left {
            return Ok(None);
        }
        if self.requires_cleanup {
            self.require_cleanup(false, None).await?;
        }
        let ending = self.ending(course);
        // The last result and what follows from it for the run are one write.
        Ok(Some(Ending { items: self.sheet.take_waiting(), ..ending }))
    }

    /// What the steps came to is stored before the first cleanup begins: whoever takes the run over knows where it goes.
    async fn settle_before_cleanup(&mut self, course: Course) -> Result<Course, Gone> {
        let course = match self.sheet.flush().await {
            Err(Gone::Refused(failure)) => Course::Failed(failure),
            flushed => flushed.map(|()| course)?,
        };
        let failing = match &course {
            Course::Failed(failure) => {
                let status = status_for(&self.row.lifecycle, self.row.run.state, Goal::Fail);
                status.map(|status| (status, failure.clone()))
            }
            _ => None,
        };
        self.require_cleanup(true, failing).await?;
        Ok(course)
    }

    /// Its step ran, in this holder's hands or another's; without one, any did.
    fn is_due(&self, cleanup: &Step) -> bool {
        // Whoever began it at any time: rather undone once more than not at all.
        let began = |key: &str| {
            let single = self.sheet.row(key).into_iter();
            single.chain(self.sheet.parts_of(key)).any(|row| row.started_at.is_some())
        };
        let ran = match &cleanup.after {
            Some(after) => began(after),
            None => self.playbook.steps.iter().any(|step| began(&step.key)),
        };
        let own = key_of(self.playbook, cleanup);
        // Parked: it failed on the way to a pause, and is left for the next end.
        let is_done = |key: &str| {
            let standing = self.sheet.standing(key);
            standing.is_settled() || standing == Standing::Parked
        };
        // What an earlier list had says nothing about the present one.
        let mut parts = self.sheet.parts_of(&own).filter(|row| !is_dropped(row)).peekable();
        let is_over = is_done(&own) || parts.peek().is_some() && parts.all(|row| is_done(&row.key));
        ran && !is_over
    }

    /// In the order of the file; one that fails does not keep the others. Whatever it fails by, and whenever, it counts.
    async fn clean_up(&mut self) -> Result<Course, Gone> {
        let playbook = self.playbook;
        for cleanup in &playbook.cleanups {
            if !self.is_due(cleanup) {
                continue;
            }
            let done = match self.step(cleanup).await {
                Ok(Next::End(Course::Left)) => {
                    self.sheet.flush().await?;
                    return Ok(Course::Left);
                }
                Ok(_) => self.sheet.flush().await,
                Err(gone) => Err(gone),
            };
            let refused = match done {
                Ok(()) => continue,
                Err(Gone::Lost) => return Err(Gone::Lost),
                Err(Gone::Failing) => {
                    Failure::new("FAILURE_RECORDED", "it was stored as a step, not as a cleanup")
                }
                Err(Gone::Refused(failure)) => failure,
            };
            let message = format!("{}: {}", cleanup.key, refused.message);
            self.journal.note(Level::Error, &message, json!({ "code": &*refused.code })).await;
            self.unclean.push(cleanup.key.clone());
        }
        let failed = self.sheet.rows().iter().filter(|row| self.is_unclean(row)).map(|row| row.name.clone());
        self.unclean.extend(failed.collect::<Vec<_>>());
        Ok(Course::Done)
    }

    /// A cleanup that did not do what it was for. Parked: on the way to a pause, and it will be tried again.
    fn is_unclean(&self, row: &ItemRow) -> bool {
        let standing = self.sheet.words.standing(&row.status);
        row.role == Role::Cleanup
            && row.failure.is_some()
            && matches!(standing, Standing::Failed | Standing::Parked)
    }

    fn ending(&self, course: Course) -> Ending {
        let mut ending = match course {
            Course::Done | Course::Left => Ending::new(Goal::Succeed),
            Course::Failed(failure) => Ending::failed(failure),
            Course::Paused { reason, details } => {
                let details = details.into_iter().chain(self.hours.note()).collect();
                Ending { reason: Some(reason), details, ..Ending::new(Goal::Park) }
            }
            Course::Wanted(Want::Pause) => Ending { details: self.hours.note(), ..Ending::new(Goal::Park) },
            Course::Wanted(Want::Cancel) => Ending::new(Goal::Cancel),
            Course::Wanted(Want::Fail) => Ending::new(Goal::Fail),
        };
        if !self.unclean.is_empty() {
            let message = format!("what was to be undone was not: {}", self.unclean.join(", "));
            ending.details.insert(CLEANUP_FAILED.into(), json!(self.unclean));
            if ending.goal == Goal::Succeed {
                ending.goal = Goal::Fail;
                ending.failure = Some(Failure::new("CLEANUP_FAILED", &message));
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
        let lists = self.sheet.rows().iter().filter_map(|row| row.details.get("artifacts")?.as_array());
        lists.flatten().cloned().collect()
    }
}

fn put(details: &mut Map<String, Value>, key: &str, list: Vec<Value>) {
    if !list.is_empty() {
        details.insert(key.to_owned(), Value::Array(list));
    }
}
