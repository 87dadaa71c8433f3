//! One holder's way through a playbook.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};
use waypost_kernel::Failure;
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_store::{Claimed, CleanupWrite, EventRow, ItemRow, RunRow, StoreError, iso};

use super::born::{Revised, key_of, known_steps, revised, single};
use super::hours::{Hours, May};
use super::once::paused_by;
use super::scope::scope;
use super::sheet::{DROPPED, Gone, LEFT_OUT, Sheet, because};
use super::tasks::{self, Known};
use super::words::Standing;
use super::{Course, Next};
use crate::interpret::{Ending, Goal};
use crate::journal::{Journal, is_lost};
use crate::lease::Lease;
use crate::pace;
use crate::pipeline::Shared;
use crate::playbook::{Context, Playbook, RenderError, Step};

/// Why a step was left out.
pub(crate) const NOT_TRUE: &str = "its `when` is not true";

pub(crate) struct Play<'a> {
    pub shared: &'a Shared,
    pub row: &'a RunRow,
    pub lease: &'a Arc<Lease>,
    pub playbook: &'a Playbook,
    pub journal: Arc<Journal>,
    pub sheet: Sheet,
    pub hours: Hours,
    pub inputs: Map<String, Value>,
    pub tasks: Known,
    /// The keys of the present items of each `for_each` that was come to.
    pub lists: HashMap<String, Vec<String>>,
    pub requires_cleanup: bool,
    /// The run will wait for a person: what is undone now is done again afterwards.
    pub pauses: bool,
    /// Cleanups that failed.
    pub unclean: Vec<String>,
}

/// `None`: the run is left to others.
pub(crate) async fn perform(
    shared: &Shared,
    claimed: &Claimed,
    lease: &Arc<Lease>,
    asked_at: Instant,
    playbook: &Playbook,
) -> Option<Ending> {
    let row = &claimed.run;
    let name = &shared.options.name;
    let sheet = match Sheet::open(&shared.store, lease, name, row).await {
        Ok(Some(sheet)) => sheet,
        Ok(None) => {
            let message = format!("a {} run has no steps, and {} has", row.lifecycle.name, playbook.name);
            return Some(Ending::failed(Failure::new("UNFIT", &message)));
        }
        Err(gone) => return given_up(gone),
    };
    let mut play = Play {
        shared,
        row,
        lease,
        playbook,
        journal: Journal::new(shared.reporter.clone(), lease.clone(), name),
        sheet,
        hours: Hours::new(claimed, asked_at, playbook),
        inputs: Map::new(),
        tasks: tasks::known(&shared.store, row).await,
        lists: HashMap::new(),
        requires_cleanup: row.run.requires_cleanup,
        pauses: false,
        unclean: Vec::new(),
    };
    let course = match play.course().await {
        Ok(course) => course,
        Err(Gone::Lost) => Course::Left,
        Err(Gone::Failing) => Course::Wanted(Want::Fail),
        Err(Gone::Refused(failure)) => Course::Failed(failure),
    };
    match play.end(course).await {
        Ok(ending) => ending,
        Err(gone) => given_up(gone),
    }
}

/// What a run comes to whose steps cannot be written any more. Given back, it would be refused the same again.
fn given_up(gone: Gone) -> Option<Ending> {
    match gone {
        Gone::Lost => None,
        Gone::Failing => Some(Ending::new(Goal::Fail)),
        Gone::Refused(failure) => Some(Ending::failed(failure)),
    }
}

impl Play<'_> {
    async fn course(&mut self) -> Result<Course, Gone> {
        match self.playbook.accept(&self.row.input) {
            Ok(inputs) => self.inputs = inputs,
            Err(problems) => {
                let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
                return Ok(Course::Failed(Failure::new("BAD_INPUT", &told.join("\n"))));
            }
        }
        if let Some(unfit) = self.add_missing().await? {
            return Ok(Course::Failed(unfit));
        }
        if let Some(want) = self.lease.want() {
            return Ok(Course::Wanted(want));
        }
        if let Some(paused) = self.paused_before() {
            return Ok(paused);
        }
        if !self.hours.is_noted(self.row) {
            self.journal.tell(Level::Debug, "Work begins", json!({}), self.hours.note()).await;
        }
        let playbook = self.playbook;
        for step in &playbook.steps {
            if let Next::End(course) = self.step(step).await? {
                return Ok(course);
            }
        }
        Ok(self.all_done())
    }

    /// A run that was queued by somebody who did not have the playbook comes without its steps. What it comes with must be
    /// what the playbook has, or what fails and what is cleaned up would not be what its file says.
    async fn add_missing(&mut self) -> Result<Option<Failure>, Gone> {
        let mut missing = known_steps(self.playbook, &self.inputs);
        for known in &missing {
            let other = self.sheet.row(&known.key).map(|row| row.role).filter(|role| *role != known.role);
            if let Some(other) = other {
                let (given, meant) = (other.name(), known.role.name());
                let message = format!(
                    "the run came with {:?} as a {given}; the playbook has it as a {meant}",
                    known.key
                );
                return Ok(Some(Failure::new("UNFIT", &message)));
            }
        }
        if let Some(ended) = self.ended_before().await? {
            return Ok(Some(ended));
        }
        missing.retain(|added| self.sheet.row(&added.key).is_none());
        self.sheet.add(missing).await?;
        Ok(None)
    }

    /// A run of a lifecycle of one's own that was taken up again after its end: what that end skipped stays skipped, and
    /// must not be told as done.
    async fn ended_before(&self) -> Result<Option<Failure>, Gone> {
        let skipped_by_end = |row: &&ItemRow| {
            let is_skipped = self.sheet.words.standing(&row.status) == Standing::Skipped;
            is_skipped && row.role != Role::Cleanup && !row.details.contains_key(LEFT_OUT)
        };
        let Some(skipped) =
            self.sheet.rows().iter().find(skipped_by_end).filter(|_| self.row.run.attempt > 1)
        else {
            return Ok(None);
        };
        let lifecycle = &self.row.lifecycle;
        let is_settled = |state: &str| {
            lifecycle.state_named(state).is_some_and(|state| lifecycle.phase(state) == Phase::Settled)
        };
        let mut after = 0;
        loop {
            let events = self.sheet.events_after(after).await?;
            let reopens =
                |event: &EventRow| event.from.as_deref().is_some_and(is_settled) && !is_settled(&event.to);
            if events.iter().any(reopens) {
                let message = format!(
                    "{} was skipped when the run ended before, and a step that was skipped is not begun again: replay the run",
                    skipped.name
                );
                return Ok(Some(Failure::new("ENDED_BEFORE", &message)));
            }
            match events.last() {
                Some(last) => after = last.seq,
                None => return Ok(None),
            }
        }
    }

    /// An earlier holder was on its way to a pause.
    fn paused_before(&self) -> Option<Course> {
        self.sheet.parked().map(paused_by)
    }

    /// Steps that may fail and did are still failures of the run.
    pub fn all_done(&self) -> Course {
        let is_failed = |row: &&ItemRow| {
            row.role != Role::Cleanup && self.sheet.words.standing(&row.status) == Standing::Failed
        };
        let names: Vec<&str> =
            self.sheet.rows().iter().filter(is_failed).map(|row| row.name.as_str()).collect();
        if names.is_empty() {
            return Course::Done;
        }
        let message = format!("{} of its steps failed: {}", names.len(), names.join(", "));
        Course::Failed(Failure::new("STEPS_FAILED", &message))
    }

    /// All of a step: once, or once for each item.
    pub async fn step(&mut self, step: &Step) -> Result<Next, Gone> {
        let own = key_of(self.playbook, step);
        let context = self.context();
        if step.for_each.is_none() {
            return self.once(step, &own, &context).await;
        }
        // What it came to as a whole, before it had items.
        if self.sheet.standing(&own).is_settled() {
            return Ok(self.follows(step, &own));
        }
        if step.when.as_ref().is_some_and(|when| !when.names("item"))
            && self.playbook.applies(step, &context) == Ok(false)
        {
            return self.leave_out_all(step, &context).await;
        }
        let items = match self.playbook.items_of(step, &context) {
            Ok(items) => items.unwrap_or_default(),
            Err(error) => return self.failed_as_a_whole(step, &context, &error).await,
        };
        let Revised { keys, added, dropped } =
            revised(self.playbook, step, &items, self.sheet.parts_of(&own), &context);
        self.sheet.add(added).await?;
        self.lists.insert(own, keys.clone());
        let open: Vec<String> =
            dropped.into_iter().filter(|key| self.sheet.standing(key) == Standing::Open).collect();
        // What was to be undone for one that is gone, and was not, still is.
        let is_owed = |key: &String| {
            self.is_cleanup(step) && self.sheet.row(key).is_some_and(|row| row.failure.is_some())
        };
        let (owed, dropped): (Vec<String>, Vec<String>) = open.into_iter().partition(is_owed);
        for key in &dropped {
            self.sheet.make_room().await?;
            let mark = because("it is no longer in the list").told(DROPPED, true);
            self.sheet.put_later(key, Standing::Skipped, mark);
        }
        for key in keys.into_iter().chain(owed) {
            let context = context.with_item(&self.item(&key).unwrap_or_default());
            let next = self.once(step, &key, &context).await?;
            if next != Next::On {
                return Ok(next);
            }
        }
        Ok(Next::On)
    }

    /// Its `when` says no, whatever the items are.
    async fn leave_out_all(&mut self, step: &Step, context: &Context) -> Result<Next, Gone> {
        // A cleanup that has nothing to do now may have the next time.
        if self.is_cleanup(step) {
            return Ok(Next::On);
        }
        let own = key_of(self.playbook, step);
        if self.sheet.parts_of(&own).next().is_none() && self.sheet.row(&own).is_none() {
            self.sheet.add(vec![single(self.playbook, step, context)]).await?;
        }
        let all = self.sheet.parts_of(&own).chain(self.sheet.row(&own));
        let open = all.filter(|row| !self.sheet.standing(&row.key).is_settled());
        let open: Vec<String> = open.map(|row| row.key.clone()).collect();
        for key in &open {
            self.sheet.make_room().await?;
            self.sheet.put_later(key, Standing::Skipped, because(NOT_TRUE));
        }
        Ok(Next::On)
    }

    /// The lists of steps that this holder did not come to: cleanups see the same of them as they would have.
    pub fn recall_lists(&mut self) {
        for step in self.playbook.steps.iter().filter(|step| step.for_each.is_some()) {
            if self.lists.contains_key(&step.key) || self.sheet.parts_of(&step.key).next().is_none() {
                continue;
            }
            let context = self.context();
            let Ok(Some(items)) = self.playbook.items_of(step, &context) else { continue };
            let revised = revised(self.playbook, step, &items, self.sheet.parts_of(&step.key), &context);
            let known = revised.keys.into_iter().filter(|key| self.sheet.row(key).is_some()).collect();
            self.lists.insert(step.key.clone(), known);
        }
    }

    /// Its items cannot be told.
    async fn failed_as_a_whole(
        &mut self,
        step: &Step,
        context: &Context,
        error: &RenderError,
    ) -> Result<Next, Gone> {
        let whole = single(self.playbook, step, context);
        let own = whole.key.clone();
        if self.sheet.row(&own).is_none() {
            self.sheet.add(vec![whole]).await?;
        }
        self.failed(step, &own, &bad_template(error), &None).await
    }

    pub fn context(&self) -> Context {
        self.playbook.context(&scope(self.playbook, self.row, &self.inputs, &self.sheet, &self.lists))
    }

    /// Whether a step may begin: nobody wants anything else, and its time has come.
    pub async fn may_begin(&mut self, is_cleanup: bool) -> Result<Option<Course>, Gone> {
        loop {
            if self.lease.is_leaving() {
                return Ok(Some(Course::Left));
            }
            if is_cleanup {
                return Ok(None);
            }
            if let Some(want) = self.lease.want() {
                return Ok(Some(Course::Wanted(want)));
            }
            match self.hours.may_begin(self.playbook) {
                May::Begin => return Ok(None),
                May::TimedOut => return Ok(Some(Course::Failed(self.out_of_time()))),
                May::Closed { opens } => {
                    let message =
                        format!("the maintenance window is closed; it opens again at {}", iso(opens));
                    return Ok(Some(Course::Failed(Failure::new("OUTSIDE_WINDOW", &message))));
                }
                May::Wait { until, opens } => {
                    self.sheet.flush().await?;
                    let notice = format!("Waiting for the maintenance window at {}", iso(opens));
                    self.journal.note(Level::Info, &notice, json!({ "opens": iso(opens) })).await;
                    self.wait(until, false).await;
                }
            }
        }
    }

    /// Returns early when the holder should end.
    pub async fn wait(&self, until: Instant, is_cleanup: bool) {
        let until = self.hours.deadline().filter(|_| !is_cleanup).map_or(until, |end| end.min(until));
        let ends =
            async { if is_cleanup { self.lease.leaving().await } else { self.lease.asked_to_end().await } };
        tokio::select! {
            () = sleep_until(until) => {}
            () = ends => {}
        }
    }

    pub fn out_of_time(&self) -> Failure {
        let limit = self.playbook.timeout.map(|limit| limit.to_string()).unwrap_or_default();
        Failure::new("RUN_TIMEOUT", &format!("the run took longer than {limit}"))
    }

    /// From now on the run requires cleanup, or no longer does; `failing` is where it goes afterwards. A cancel that
    /// comes while nobody holds the run waits for the cleanup then.
    pub async fn require_cleanup(
        &mut self,
        required: bool,
        failing: Option<(String, Failure)>,
    ) -> Result<(), Gone> {
        let write = CleanupWrite {
            held: self.lease.held.clone(),
            by: self.shared.options.name.clone(),
            required,
            failing,
        };
        for retry in 1.. {
            match self.shared.store.require_cleanup(write.clone()).await {
                Ok(_) => break,
                Err(error @ StoreError::Unavailable(_)) => {
                    tracing::warn!(run_id = self.row.id(), %error, "cleanup not noted; trying again");
                    let soon = Instant::now() + pace::store_away(retry);
                    tokio::select! {
                        () = sleep_until(soon) => {}
                        () = self.lease.lost() => return Err(Gone::Lost),
                    }
                }
                Err(error) if is_lost(&error) => {
                    self.lease.lose();
                    return Err(Gone::Lost);
                }
                Err(error) => {
                    tracing::error!(run_id = self.row.id(), %error, "cleanup not noted");
                    let message = format!("that cleanups are due could not be stored: {error}");
                    return Err(Gone::Refused(Failure::new("CLEANUP_REFUSED", &message)));
                }
            }
        }
        self.requires_cleanup = required;
        Ok(())
    }
}

/// No later try would do better.
pub(crate) fn bad_template(error: &RenderError) -> Failure {
    Failure::new(RenderError::CODE, &error.to_string())
}
