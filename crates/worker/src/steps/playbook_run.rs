//! One holder's way through a playbook.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};
use waypost_kernel::Failure;
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::request::Level;
use waypost_store::{Claimed, CleanupWrite, EventRow, ItemRow, RunRow, StoreError};

use super::course::{Course, Once};
use super::deadlines::Deadlines;
use super::once::paused_by;
use super::planned_steps::{Revised, key_of, known_steps, revised, single};
use super::scope::{Seen, scope};
use super::state_names::StepState;
use super::step_log::{Added, DROPPED, Halt, LEFT_OUT, NO_ITEMS, StepLog, because, was_empty};
use super::tasks::{self, Known};
use super::{Next, PlaybookEnd};
use crate::interpret::{Ending, Parting};
use crate::lease::Lease;
use crate::pace;
use crate::pipeline::{Shared, goal_of};
use crate::playbook::{Context, Playbook, RenderError, Step, Window};
use crate::report::journal::{Journal, is_lost};

/// Why a step was left out.
const EMPTY_LIST: &str = "nothing to do: the list is empty";
pub(crate) const NOT_TRUE: &str = "its `when` is not true";

pub(crate) struct PlaybookRun<'a> {
    pub shared: &'a Shared,
    pub row: &'a RunRow,
    pub lease: &'a Arc<Lease>,
    pub playbook: &'a Playbook,
    pub journal: Arc<Journal>,
    pub step_log: StepLog,
    pub deadlines: Deadlines,
    pub inputs: Map<String, Value>,
    pub tasks: Known,
    /// The keys of the present items of each `for_each` that was come to.
    pub lists: HashMap<String, Vec<String>>,
    pub requires_cleanup: bool,
    /// Its steps are those of the playbook: what follows is work on them, and ends with cleanups.
    pub is_at_work: bool,
    /// The run will wait for a person: what is undone now is done again afterwards.
    pub pauses: bool,
    /// Cleanups that failed.
    pub unclean: Vec<String>,
    /// How many tries of a step were lost with workers, of those that were under way when the last one was.
    pub lost_tries: HashMap<String, u32>,
    /// What this holder has told in the run's details.
    pub told: Map<String, Value>,
}

pub(crate) async fn perform(
    shared: &Shared,
    claimed: &Claimed,
    lease: &Arc<Lease>,
    asked_at: Instant,
    playbook: &Playbook,
) -> Parting {
    let row = &claimed.run;
    let name = &shared.options.name;
    let step_log = match StepLog::open(&shared.store, lease, name, row).await {
        Ok(Some(step_log)) => step_log,
        Ok(None) => {
            let message = format!("a {} run has no steps, and {} has", row.lifecycle.name, playbook.name);
            return Parting::End(Ending::failed(Failure::new("UNFIT", &message)));
        }
        Err(halt) => return given_up(halt),
    };
    let tasks = match tasks::known(&shared.store, lease, row).await {
        Ok(tasks) => tasks,
        Err(halt) => return given_up(halt),
    };
    let mut run = PlaybookRun {
        shared,
        row,
        lease,
        playbook,
        journal: Journal::new(shared.reporter.clone(), lease.clone(), name),
        step_log,
        deadlines: Deadlines::new(claimed, asked_at, playbook),
        inputs: Map::new(),
        tasks,
        lists: HashMap::new(),
        requires_cleanup: row.run.requires_cleanup,
        is_at_work: false,
        pauses: false,
        unclean: Vec::new(),
        lost_tries: HashMap::new(),
        told: Map::new(),
    };
    let end = match run.play().await {
        Ok(end) => end,
        Err(Halt::Lost) => PlaybookEnd::Left,
        Err(Halt::Wanted(want)) => PlaybookEnd::Wanted(want),
        Err(Halt::Refused(failure)) => PlaybookEnd::Failed(failure),
    };
    if let PlaybookEnd::Waits(wait) = end {
        return match run.before_wait().await {
            Ok(()) => Parting::GiveBack(Some(wait)),
            Err(halt) => given_up(halt),
        };
    }
    match run.end(end).await {
        Ok(ending) => ending.map_or(Parting::GiveBack(None), Parting::End),
        Err(halt) => given_up(halt),
    }
}

/// What a run comes to whose steps cannot be written any more. Given back, it would be refused the same again.
fn given_up(halt: Halt) -> Parting {
    match halt {
        Halt::Lost => Parting::GiveBack(None),
        Halt::Wanted(want) => Parting::End(Ending::new(goal_of(want))),
        Halt::Refused(failure) => Parting::End(Ending::failed(failure)),
    }
}

impl<'a> PlaybookRun<'a> {
    async fn play(&mut self) -> Result<PlaybookEnd, Halt> {
        match self.playbook.accept(&self.row.input) {
            Ok(inputs) => self.inputs = inputs,
            Err(problems) => {
                let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
                return Ok(PlaybookEnd::Failed(Failure::new("BAD_INPUT", &told.join("\n"))));
            }
        }
        if let Some(unfit) = self.add_missing().await? {
            return Ok(PlaybookEnd::Failed(unfit));
        }
        self.is_at_work = true;
        let playbook: &'a Playbook = self.playbook;
        let mut course = Course::new(&playbook.steps, playbook.max_parallel);
        if let Some(want) = self.lease.want() {
            course.end_with(PlaybookEnd::Wanted(want));
        }
        // What an earlier holder came to: a failure, or a step that waits for a person.
        for (at, step) in playbook.steps.iter().enumerate() {
            for row in self.step_log.row(&step.key).into_iter().chain(self.step_log.parts_of(&step.key)) {
                course.note(at, self.follows(step, &row.key));
            }
        }
        if !course.has_ended()
            && let Some(lost) = self.count_lost_tries().await?
        {
            course.end_with(lost);
        }
        if !course.has_ended() {
            self.tell_beginning().await;
        }
        let end = self.go_through(&mut course).await?;
        // All who ask are told of, not only the first.
        let asks = paused_by(&self.row.lifecycle, self.step_log.parked());
        Ok(if matches!(end, PlaybookEnd::Paused { .. }) { asks.unwrap_or(end) } else { end })
    }

    /// Given back, the run may be cancelled while nobody has it: what is due at its end then is noted first.
    async fn before_wait(&mut self) -> Result<(), Halt> {
        self.step_log.flush().await?;
        let is_always_due = self.playbook.cleanups.iter().any(|cleanup| cleanup.after.is_none());
        if is_always_due && !self.requires_cleanup {
            self.require_cleanup(true, None).await?;
        }
        Ok(())
    }

    /// What the run's details say from now on.
    async fn tell_beginning(&mut self) {
        let context = self.context(Seen::All);
        let mut details = match self.playbook.details_of(&self.playbook.details, &context) {
            Ok(details) => details,
            Err(error) => {
                self.journal.note(Level::Warn, &error.to_string(), json!({})).await;
                Map::new()
            }
        };
        let window = self.playbook.window.as_ref().map(Window::to_json);
        details.extend(window.map(|window| ("maintenance_window".to_owned(), window)));
        if !self.deadlines.is_noted(self.row) {
            details.extend(self.deadlines.note());
        }
        self.tell_details("Work begins", details).await;
    }

    /// Those of the members that are not so already.
    pub async fn tell_details(&mut self, message: &str, mut details: Map<String, Value>) {
        details
            .retain(|name, value| self.told.get(name).or_else(|| self.row.details.get(name)) != Some(value));
        if !details.is_empty() {
            self.told.extend(details.clone());
            self.journal.tell(Level::Debug, message, json!({}), details).await;
        }
    }

    /// What a step tells of itself. That it cannot be told is no reason to fail.
    pub async fn tell_of(&mut self, step: &Step, key: &str) {
        if step.details.is_empty() {
            return;
        }
        let context = self.context(Seen::With(step));
        let context = match self.item(key) {
            Some(item) => context.with_item(&item),
            None => context,
        };
        match self.playbook.details_of(&step.details, &context) {
            Ok(details) => self.tell_details(&format!("{key}: details"), details).await,
            Err(error) => {
                let message = format!("{key}: {error}");
                self.journal.note(Level::Warn, &message, json!({ "code": RenderError::CODE })).await;
            }
        }
    }

    /// A run that was queued by somebody who did not have the playbook comes without its steps. What it comes with must be
    /// what the playbook has, or what fails and what is cleaned up would not be what its file says.
    async fn add_missing(&mut self) -> Result<Option<Failure>, Halt> {
        let mut missing = known_steps(self.playbook, &self.inputs);
        for known in &missing {
            let Some(row) = self.step_log.row(&known.key) else { continue };
            if let Some(message) = differs(row, known) {
                return Ok(Some(Failure::new("UNFIT", &message)));
            }
        }
        if let Some(ended) = self.ended_before().await? {
            return Ok(Some(ended));
        }
        missing.retain(|added| self.step_log.row(&added.key).is_none());
        self.step_log.add(missing).await?;
        Ok(None)
    }

    /// A run of a lifecycle of one's own that was taken up again after its end: what that end skipped stays skipped, and
    /// must not be told as done.
    async fn ended_before(&self) -> Result<Option<Failure>, Halt> {
        let skipped_by_end = |row: &&ItemRow| {
            let is_skipped = self.step_log.names.state(&row.status) == StepState::Skipped;
            is_skipped && row.role != Role::Cleanup && !row.details.contains_key(LEFT_OUT)
        };
        let Some(skipped) =
            self.step_log.rows().iter().find(skipped_by_end).filter(|_| self.row.run.attempt > 1)
        else {
            return Ok(None);
        };
        let lifecycle = &self.row.lifecycle;
        let is_settled = |state: &str| {
            lifecycle.state_named(state).is_some_and(|state| lifecycle.phase(state) == Phase::Settled)
        };
        let mut after = 0;
        loop {
            let events = self.step_log.events_after(after).await?;
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

    /// Steps that may fail and did are still failures of the run.
    pub fn all_done(&self) -> PlaybookEnd {
        let is_failed = |row: &&ItemRow| {
            row.role != Role::Cleanup && self.step_log.names.state(&row.status) == StepState::Failed
        };
        let names: Vec<&str> =
            self.step_log.rows().iter().filter(is_failed).map(|row| row.name.as_str()).collect();
        if names.is_empty() {
            return PlaybookEnd::Done;
        }
        let message = format!("{} of its steps failed: {}", names.len(), names.join(", "));
        PlaybookEnd::Failed(Failure::new("STEPS_FAILED", &message))
    }

    /// What a step consists of: itself, or one for each item; and what follows if that cannot be told.
    pub async fn parts(&mut self, step: &'a Step, context: &Context) -> Result<(Vec<String>, Next), Halt> {
        let own = key_of(step);
        let as_a_whole = |next| (Vec::new(), next);
        // With a list: what it came to as a whole, before it had items.
        let had_no_items = self.step_log.row(&own).is_some_and(was_empty);
        if step.for_each.is_none() || self.step_log.state(&own).is_settled() && !had_no_items {
            let next = self.follows(step, &own);
            return Ok((vec![own], next));
        }
        if step.when.as_ref().is_some_and(|when| !when.names("item"))
            && self.playbook.applies(step, context) == Ok(false)
        {
            return self.leave_out_all(step, context).await.map(as_a_whole);
        }
        let items = match self.playbook.items_of(step, context) {
            Ok(items) => items.unwrap_or_default(),
            Err(error) => return self.failed_as_a_whole(step, context, &error).await.map(as_a_whole),
        };
        let Revised { keys, added, dropped } =
            revised(self.playbook, step, &items, self.step_log.parts_of(&own), context);
        self.step_log.add(added).await?;
        if items.is_empty() && !step.is_cleanup && !had_no_items {
            self.tell_empty(step, &own, context).await?;
        }
        self.lists.insert(own, keys.clone());
        let open: Vec<String> =
            dropped.into_iter().filter(|key| self.step_log.state(key) == StepState::Open).collect();
        // What was to be undone for one that is gone, and was not, still is.
        let is_owed =
            |key: &String| step.is_cleanup && self.step_log.row(key).is_some_and(|row| row.failure.is_some());
        let (owed, dropped): (Vec<String>, Vec<String>) = open.into_iter().partition(is_owed);
        for key in &dropped {
            self.step_log.make_room().await?;
            let result = because("it is no longer in the list").with_detail(DROPPED, true);
            self.step_log.put_later(key, StepState::Skipped, result);
        }
        Ok((keys.into_iter().chain(owed).collect(), Next::On))
    }

    /// People see a line for each step, for one without items too.
    async fn tell_empty(&mut self, step: &Step, own: &str, context: &Context) -> Result<(), Halt> {
        if self.step_log.row(own).is_none() && self.step_log.parts_of(own).next().is_none() {
            self.step_log.add(vec![single(self.playbook, step, context)]).await?;
            let result = because(EMPTY_LIST).with_detail(NO_ITEMS, true);
            self.step_log.put_later(own, StepState::Skipped, result);
        }
        Ok(())
    }

    /// Its `when` says no, whatever the items are.
    async fn leave_out_all(&mut self, step: &Step, context: &Context) -> Result<Next, Halt> {
        // A cleanup that has nothing to do now may have the next time.
        if step.is_cleanup {
            return Ok(Next::On);
        }
        let own = key_of(step);
        if self.step_log.parts_of(&own).next().is_none() && self.step_log.row(&own).is_none() {
            self.step_log.add(vec![single(self.playbook, step, context)]).await?;
        }
        let all = self.step_log.parts_of(&own).chain(self.step_log.row(&own));
        let open = all.filter(|row| !self.step_log.state(&row.key).is_settled());
        let open: Vec<String> = open.map(|row| row.key.clone()).collect();
        for key in &open {
            self.step_log.make_room().await?;
            self.step_log.put_later(key, StepState::Skipped, because(NOT_TRUE));
        }
        Ok(Next::On)
    }

    /// The lists of steps that this holder did not come to: cleanups see the same of them as they would have.
    pub fn recall_lists(&mut self) {
        let mut steps: Vec<&Step> =
            self.playbook.steps.iter().filter(|step| step.for_each.is_some()).collect();
        // Each after those that it waits for.
        steps.sort_by_key(|step| step.before.len());
        for step in steps {
            if self.lists.contains_key(&step.key) || self.step_log.parts_of(&step.key).next().is_none() {
                continue;
            }
            let context = self.context_of(step);
            let Ok(Some(items)) = self.playbook.items_of(step, &context) else { continue };
            let revised = revised(self.playbook, step, &items, self.step_log.parts_of(&step.key), &context);
            let known = revised.keys.into_iter().filter(|key| self.step_log.row(key).is_some()).collect();
            self.lists.insert(step.key.clone(), known);
        }
    }

    /// Its items cannot be told.
    async fn failed_as_a_whole(
        &mut self,
        step: &'a Step,
        context: &Context,
        error: &RenderError,
    ) -> Result<Next, Halt> {
        let whole = single(self.playbook, step, context);
        let own = whole.key.clone();
        if self.step_log.row(&own).is_none() {
            self.step_log.add(vec![whole]).await?;
        }
        let whole = Once { step, key: own, board: None, began: None, is_under_way: false };
        self.failed(&whole, &bad_template(error)).await
    }

    /// What a step's templates see.
    pub fn context_of(&self, step: &Step) -> Context {
        self.context(Seen::Before(step))
    }

    fn context(&self, seen: Seen<'_>) -> Context {
        let known = (&self.step_log, &self.lists);
        self.playbook.context(&scope(self.playbook, self.row, &self.inputs, known, seen))
    }

    /// What is wanted of the run instead of going on.
    pub fn interrupted(&self, is_cleanup: bool) -> Option<PlaybookEnd> {
        if self.lease.is_leaving() {
            return Some(PlaybookEnd::Left);
        }
        self.lease.want().filter(|_| !is_cleanup).map(PlaybookEnd::Wanted)
    }

    /// Returns early when the holder should end.
    pub async fn wait(&self, until: Instant, is_cleanup: bool) {
        let until = self.deadlines.deadline().filter(|_| !is_cleanup).map_or(until, |end| end.min(until));
        let ends =
            async { if is_cleanup { self.lease.leaving().await } else { self.lease.asked_to_end().await } };
        tokio::select! {
            () = sleep_until(until) => {}
            () = ends => {}
        }
    }

    /// After a wait for a time: whether it has come is for the database to say. One that is away has it as this worker reckons.
    pub async fn look_at_the_clock(&mut self) {
        let asked_at = Instant::now();
        if let Ok(now) = self.shared.store.now().await {
            self.deadlines.hear(now, asked_at);
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
    ) -> Result<(), Halt> {
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
                    crate::outage::met(&format!("the cleanup of {} was not noted", self.row.id()), &error);
                    let soon = Instant::now() + pace::store_away(retry);
                    tokio::select! {
                        () = sleep_until(soon) => {}
                        () = self.lease.lost() => return Err(Halt::Lost),
                    }
                }
                Err(error) if is_lost(&error) => {
                    self.lease.lose();
                    return Err(Halt::Lost);
                }
                Err(error) => {
                    tracing::error!(run_id = self.row.id(), %error, "cleanup not noted");
                    let message = format!("that cleanups are due could not be stored: {error}");
                    return Err(Halt::Refused(Failure::new("CLEANUP_REFUSED", &message)));
                }
            }
        }
        self.requires_cleanup = required;
        Ok(())
    }
}

/// How a step that a run came with is not the playbook's, in words.
fn differs(row: &ItemRow, known: &Added) -> Option<String> {
    let key = &known.key;
    let again = |reruns: bool| if reruns { "begins again" } else { "does not begin again" };
    let (given, meant) = match () {
        () if row.role != known.role => {
            (format!("as a {}", row.role.name()), format!("as a {}", known.role.name()))
        }
        () if row.max_retries != known.retries => {
            (format!("with {} retries", row.max_retries), format!("with {}", known.retries))
        }
        () if row.reruns != known.reruns => {
            let words = |reruns| format!("so that it {} after a resume", again(reruns));
            (words(row.reruns), words(known.reruns))
        }
        () => return None,
    };
    Some(format!("the run came with {key:?} {given}; the playbook has it {meant}"))
}

/// No later try would do better.
pub(crate) fn bad_template(error: &RenderError) -> Failure {
    Failure::new(RenderError::CODE, &error.to_string())
}
