//! The way through the steps: what may begin, what is under way, what is waited for. All of it follows from the rows;
//! what is kept here beside them is what this holder has in hand. A person is asked last: a run that waits for one does nothing else.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_kernel::{Failure, Time};
use waypost_store::{Wait, iso};

use super::asking::Question;
use super::attempt::Tried;
use super::deadlines::May;
use super::once::Prepared;
use super::playbook_run::PlaybookRun;
use super::step_log::Halt;
use super::tasks::TaskBoard;
use super::{Next, PlaybookEnd};
use crate::actions::Rendered;
use crate::pace;
use crate::playbook::{Context, Step};

/// The steps of a playbook, or one of its cleanups.
pub(crate) struct Course<'a> {
    legs: Vec<Leg<'a>>,
    /// Steps that may be under way at once.
    most: usize,
    under_way: JoinSet<Tried>,
    /// Where the run goes when nothing is under way any more. Nothing begins once it is known.
    end: Option<PlaybookEnd>,
    halt: Option<Halt>,
    /// The step that said that nothing more is needed.
    finished_by: Option<usize>,
    /// The opening of the window that people were told of.
    told: Option<Time>,
}

/// One step, and how far it is.
struct Leg<'a> {
    step: &'a Step,
    stage: Stage<'a>,
}

enum Stage<'a> {
    /// It waits for others.
    Ahead,
    /// What it consists of is known: itself alone, or its items.
    Here {
        /// Made once for all of them.
        context: Context,
        left: VecDeque<String>,
        /// At most as many as may be under way at once, in the order in which they were come to.
        present: Vec<Once<'a>>,
    },
    Over,
}

/// One step, or one item of it, from its first try to its end.
#[derive(Clone)]
pub(crate) struct Once<'a> {
    pub step: &'a Step,
    pub key: String,
    pub board: Option<Arc<TaskBoard>>,
    /// When this holder began it.
    pub began: Option<Instant>,
    pub is_under_way: bool,
}

/// What will begin with the next write.
pub(crate) struct Beginning<'a> {
    pub once: Once<'a>,
    pub context: Context,
    pub rendered: Rendered,
}

/// What a look at the steps whose turn has come found.
#[derive(Default)]
struct Found<'a> {
    beginnings: Vec<Beginning<'a>>,
    /// With the place of its step in the course.
    questions: Vec<(usize, Question<'a>)>,
    /// What is left to wait for, if nothing else happens before.
    due: Option<Due>,
}

/// Why a try does not begin.
enum Later {
    At(Due),
    /// And what the run fails with.
    Never(Failure),
}

/// Nothing begins before this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    until: Instant,
    /// The same, by the database's clock.
    at: Time,
    /// The window opens then; otherwise the next try of a step is due.
    opens: bool,
}

impl Found<'_> {
    fn has(&self, key: &str) -> bool {
        let mut begun = self.beginnings.iter().map(|it| &it.once);
        begun.any(|once| once.key == key) || self.questions.iter().any(|(_, it)| it.once.key == key)
    }
}

impl<'a> Course<'a> {
    pub fn new(steps: &'a [Step], most: usize) -> Course<'a> {
        Course {
            legs: steps.iter().map(|step| Leg { step, stage: Stage::Ahead }).collect(),
            most,
            under_way: JoinSet::new(),
            end: None,
            halt: None,
            finished_by: None,
            told: None,
        }
    }

    /// What a step came to, for the others.
    pub fn note(&mut self, at: usize, next: Next) {
        match next {
            Next::On => {}
            Next::Finish => self.finished_by = self.finished_by.or(Some(at)),
            Next::End(end) => self.end_with(end),
        }
    }

    /// Of several ends the gravest counts, and of two of a kind the first.
    pub fn end_with(&mut self, end: PlaybookEnd) {
        if self.end.as_ref().is_none_or(|known| gravity(known) < gravity(&end)) {
            self.end = Some(end);
        }
    }

    pub fn has_ended(&self) -> bool {
        self.end.is_some() || self.halt.is_some()
    }

    fn is_cleanup(&self) -> bool {
        self.legs.iter().all(|leg| leg.step.is_cleanup)
    }

    fn is_over(&self, at: usize) -> bool {
        matches!(self.legs[at].stage, Stage::Over)
    }

    /// Whether all that the step waits for has ended. A cleanup is alone in its course.
    fn has_come_to(&self, at: usize) -> bool {
        let step = self.legs[at].step;
        step.is_cleanup || step.needs.iter().all(|need| self.is_over(*need))
    }

    /// Once a step said that nothing more is needed, only what has begun goes on, and what that step itself comes after.
    fn is_wanted(&self, at: usize, has_begun: bool) -> bool {
        let before = |finisher: usize| self.legs[finisher].step.before.binary_search(&at).is_ok();
        self.finished_by.is_none_or(|finisher| has_begun || before(finisher))
    }

    /// Nothing is left to begin, and not all has ended: the file was not checked.
    fn rest(&self) -> Option<PlaybookEnd> {
        let is_left = |leg: &&Leg<'_>| !matches!(leg.stage, Stage::Over);
        let left = self.legs.iter().find(is_left).filter(|_| self.finished_by.is_none())?;
        let message = format!("{} waits for itself", left.step.key);
        Some(PlaybookEnd::Failed(Failure::new("UNFIT", &message)))
    }

    fn once(&mut self, at: usize, key: &str) -> Option<&mut Once<'a>> {
        match &mut self.legs[at].stage {
            Stage::Here { present, .. } => present.iter_mut().find(|once| once.key == key),
            _ => None,
        }
    }

    /// One of a step has ended.
    fn leave(&mut self, at: usize, key: &str) {
        if let Stage::Here { present, .. } = &mut self.legs[at].stage {
            present.retain(|once| once.key != key);
        }
        self.close_if_done(at);
    }

    fn close_if_done(&mut self, at: usize) {
        if let Stage::Here { left, present, .. } = &self.legs[at].stage
            && left.is_empty()
            && present.is_empty()
        {
            self.legs[at].stage = Stage::Over;
        }
    }
}

/// Which end counts if there are several.
fn gravity(end: &PlaybookEnd) -> u8 {
    match end {
        PlaybookEnd::Done | PlaybookEnd::Waits(_) => 0,
        PlaybookEnd::Wanted(Want::Pause) => 1,
        // It has more to say than that somebody wants a pause.
        PlaybookEnd::Paused { .. } => 2,
        PlaybookEnd::Failed(_) | PlaybookEnd::Wanted(Want::Fail) => 3,
        PlaybookEnd::Wanted(Want::Cancel) => 4,
        PlaybookEnd::Left => 5,
    }
}

impl<'a> PlaybookRun<'a> {
    /// Goes through all of it. Returns when nothing is under way any more.
    pub async fn go_through(&mut self, course: &mut Course<'a>) -> Result<PlaybookEnd, Halt> {
        loop {
            match self.turn(course).await {
                Ok(None) => {}
                Ok(Some(end)) => match course.halt.take() {
                    Some(halt) => return Err(halt),
                    None => return Ok(end),
                },
                // What is under way ends first: nobody else would look after it.
                Err(Halt::Wanted(want)) if !course.is_cleanup() => {
                    course.end_with(PlaybookEnd::Wanted(want));
                }
                Err(halt) => {
                    course.halt.get_or_insert(halt);
                }
            }
        }
    }

    /// Begins what may, and waits for what comes first: the end of a try, or a time.
    async fn turn(&mut self, course: &mut Course<'a>) -> Result<Option<PlaybookEnd>, Halt> {
        let (questions, due) =
            if course.has_ended() { Default::default() } else { self.begin_what_may(course).await? };
        if course.under_way.is_empty() {
            if course.has_ended() {
                self.ask_also(course).await?;
                return Ok(Some(course.end.take().unwrap_or(PlaybookEnd::Left)));
            }
            return match due {
                Some(due) => self.idle(course, due).await,
                // Nothing goes on before they are answered: all of them are asked in one pause.
                None if !questions.is_empty() => self.ask(course, questions).await.map(|()| None),
                None => Ok(Some(course.rest().unwrap_or_else(|| self.all_done()))),
            };
        }
        // What has ended is stored at once while others go on: they may take hours.
        self.step_log.flush().await?;
        self.announce(course, due).await;
        let is_due = async {
            match due {
                Some(due) => sleep_until(due.until).await,
                None => std::future::pending().await,
            }
        };
        let mut next = tokio::select! {
            tried = course.under_way.join_next() => tried,
            () = is_due => {
                self.look_at_the_clock().await;
                None
            }
        };
        // All that have ended by now, so that what follows from them is one write.
        while let Some(tried) = next {
            let tried = tried.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            self.settle(course, tried).await?;
            next = course.under_way.try_join_next();
        }
        Ok(None)
    }

    /// Nothing is under way, and nothing may begin before a time that is stored. The one place where a run is held for
    /// nothing but that, or given back until then.
    async fn idle(&mut self, course: &mut Course<'a>, due: Due) -> Result<Option<PlaybookEnd>, Halt> {
        self.step_log.flush().await?;
        self.announce(course, Some(due)).await;
        let is_cleanup = course.is_cleanup();
        let reason = if due.opens { Wait::WINDOW } else { Wait::RETRY };
        if let Some(end) = self.gives_back(due.at, reason, is_cleanup) {
            return Ok(Some(end));
        }
        self.wait(due.until, is_cleanup).await;
        self.look_at_the_clock().await;
        Ok(None)
    }

    /// People are told once that a window is waited for.
    async fn announce(&mut self, course: &mut Course<'a>, due: Option<Due>) {
        let opens = due.filter(|due| due.opens).map(|due| due.at);
        let Some(opens) = opens.filter(|opens| course.told != Some(*opens)) else { return };
        course.told = Some(opens);
        let notice = format!("Waiting for the maintenance window at {}", iso(opens));
        self.journal.note(Level::Info, &notice, json!({ "opens": iso(opens) })).await;
    }

    /// One write for all that may begin, with the results that waited for it. What is to be asked and what is left to wait for, if
    /// nothing else happens before.
    async fn begin_what_may(
        &mut self,
        course: &mut Course<'a>,
    ) -> Result<(Vec<(usize, Question<'a>)>, Option<Due>), Halt> {
        let found = self.found(course, |_| true).await?;
        self.begin(course, found.beginnings).await?;
        Ok((found.questions, found.due))
    }

    /// What may begin of the steps that are meant: nothing once the end is known.
    async fn found(
        &mut self,
        course: &mut Course<'a>,
        is_meant: impl Fn(&Step) -> bool,
    ) -> Result<Found<'a>, Halt> {
        let mut found = Found::default();
        loop {
            let over = course.legs.iter().filter(|leg| matches!(leg.stage, Stage::Over)).count();
            for at in 0..course.legs.len() {
                let may = !course.is_over(at) && course.has_come_to(at) && self.is_left(course, at);
                if !may || !is_meant(course.legs[at].step) {
                    continue;
                }
                self.come_to(course, at).await?;
                self.look_at(course, at, &mut found).await?;
                // None of them has begun yet, and none does.
                if course.has_ended() {
                    return Ok(Found::default());
                }
            }
            // What was left out lets those begin that waited for it.
            if course.legs.iter().filter(|leg| matches!(leg.stage, Stage::Over)).count() == over {
                return Ok(found);
            }
        }
    }

    /// A handler asked for a pause: what other steps have to ask is asked in the same one.
    async fn ask_also(&mut self, course: &mut Course<'a>) -> Result<(), Halt> {
        // Once something else is wanted of the run, no question begins.
        let may_ask = course.halt.is_none() && !self.is_asking() && self.lease.want().is_none();
        let pauses = |end: &mut PlaybookEnd| may_ask && matches!(end, PlaybookEnd::Paused { .. });
        let Some(pause) = course.end.take_if(pauses) else { return Ok(()) };
        let found = self.found(course, |step| step.ask.is_some()).await;
        course.end_with(pause);
        self.ask(course, found?.questions).await
    }

    /// The run waits for a person.
    async fn ask(
        &mut self,
        course: &mut Course<'a>,
        questions: Vec<(usize, Question<'a>)>,
    ) -> Result<(), Halt> {
        if questions.is_empty() {
            return Ok(());
        }
        self.begin_asking(&questions).await?;
        for (at, question) in &questions {
            let next = self.ask_a_person(question);
            course.leave(*at, &question.once.key);
            course.note(*at, next);
        }
        Ok(())
    }

    /// Makes the list of a step whose turn has come.
    async fn come_to(&mut self, course: &mut Course<'a>, at: usize) -> Result<(), Halt> {
        let step = course.legs[at].step;
        if matches!(course.legs[at].stage, Stage::Ahead) {
            let context = self.context_of(step);
            let (keys, next) = self.parts(step, &context).await?;
            let left = keys.into_iter().filter(|key| self.step_log.is_open(key)).collect();
            course.legs[at].stage = Stage::Here { context, left, present: Vec::new() };
            course.close_if_done(at);
            course.note(at, next);
        }
        Ok(())
    }

    /// What may begin of one step.
    async fn look_at(
        &mut self,
        course: &mut Course<'a>,
        at: usize,
        found: &mut Found<'a>,
    ) -> Result<(), Halt> {
        let mut passed = 0;
        while !course.has_ended() {
            self.fill(course, at);
            let has_room = course.under_way.len() + found.beginnings.len() < course.most;
            let step = course.legs[at].step;
            let Stage::Here { present, context, .. } = &course.legs[at].stage else { return Ok(()) };
            let Some(once) = present.get(passed).cloned() else { return Ok(()) };
            let is_begun = once.is_under_way || found.has(&once.key);
            let row = self.step_log.row(&once.key);
            let has_begun = row.is_some_and(|row| self.step_log.has_begun(row));
            if is_begun || !has_room || !course.is_wanted(at, has_begun) {
                passed += 1;
                continue;
            }
            if let Some(end) = self.interrupted(step.is_cleanup) {
                course.end_with(end);
                return Ok(());
            }
            let context = match self.item(&once.key) {
                Some(item) => context.with_item(&item),
                None => context.clone(),
            };
            match self.may_begin(step, row.and_then(|row| row.not_before)) {
                Ok(()) => {}
                Err(Later::Never(failure)) => {
                    course.end_with(PlaybookEnd::Failed(failure));
                    return Ok(());
                }
                Err(Later::At(later)) => {
                    found.due = Some(found.due.filter(|known| known.at <= later.at).unwrap_or(later));
                    passed += 1;
                    continue;
                }
            }
            self.step_log.make_room().await?;
            match self.prepared(&once, &context).await? {
                Prepared::Execute(rendered) => found.beginnings.push(Beginning { once, context, rendered }),
                Prepared::Ask(question) => found.questions.push((at, question)),
                Prepared::Over(next) => {
                    course.leave(at, &once.key);
                    course.note(at, next);
                }
            }
        }
        Ok(())
    }

    /// As many of a step as may be under way at once are looked at.
    fn fill(&self, course: &mut Course<'a>, at: usize) {
        let step = course.legs[at].step;
        if let Stage::Here { left, present, .. } = &mut course.legs[at].stage {
            while present.len() < step.parallel
                && let Some(key) = left.pop_front()
            {
                let board = self.board(step, &key);
                present.push(Once { step, key, board, began: None, is_under_way: false });
            }
        }
    }

    /// Whether the next try of a step may begin now. When it is due is a stored time: whoever takes the run over keeps to it.
    fn may_begin(&self, step: &Step, not_before: Option<Time>) -> Result<(), Later> {
        let may = if step.is_cleanup { May::Begin } else { self.deadlines.may_begin(self.playbook) };
        if may == May::TimedOut {
            return Err(Later::Never(self.out_of_time()));
        }
        let now = self.deadlines.now();
        if let Some(at) = not_before.filter(|at| *at > now) {
            let until = Instant::now() + pace::duration(at - now);
            return Err(Later::At(Due { until, at, opens: false }));
        }
        match may {
            May::Begin | May::TimedOut => Ok(()),
            May::Closed { opens } => Err(Later::Never(outside(opens))),
            May::Wait { until, opens } => Err(Later::At(Due { until, at: opens, opens: true })),
        }
    }

    /// Whether something of a step is to be done: not if a step said that nothing more is needed, and it has not begun.
    fn is_left(&self, course: &Course<'a>, at: usize) -> bool {
        let key = &course.legs[at].step.key;
        let all = || self.step_log.row(key).into_iter().chain(self.step_log.parts_of(key));
        let has_begun = || all().any(|row| self.step_log.has_begun(row) && self.step_log.is_open(&row.key));
        course.is_wanted(at, false) || matches!(course.legs[at].stage, Stage::Here { .. }) || has_begun()
    }

    async fn begin(&mut self, course: &mut Course<'a>, beginnings: Vec<Beginning<'a>>) -> Result<(), Halt> {
        if beginnings.is_empty() {
            return Ok(());
        }
        self.store_beginnings(&beginnings).await?;
        for Beginning { once, context, rendered } in beginnings {
            let Some(at) = course.legs.iter().position(|leg| std::ptr::eq(leg.step, once.step)) else {
                continue;
            };
            if let Some(present) = course.once(at, &once.key) {
                present.is_under_way = true;
                present.began.get_or_insert_with(Instant::now);
            }
            self.tell_beginning_of(&once, &context).await;
            // Telling of it may have taken as long as the lease.
            if self.lease.is_leaving() {
                course.end_with(PlaybookEnd::Left);
            } else if let Some(attempt) = self.attempt(&once, rendered) {
                course.under_way.spawn(attempt.carry_out(at));
            }
        }
        Ok(())
    }

    async fn settle(&mut self, course: &mut Course<'a>, tried: Tried) -> Result<(), Halt> {
        let Tried { at, row, answer } = tried;
        let Some(present) = course.once(at, &row.key) else { return Ok(()) };
        present.is_under_way = false;
        let once = present.clone();
        let next = match answer {
            None => Some(Next::End(self.stopped(&once).await)),
            Some(answer) => self.judged(&once, &row, &answer).await?,
        };
        // It is tried again.
        if let Some(next) = next {
            course.leave(at, &row.key);
            course.note(at, next);
        }
        Ok(())
    }
}

fn outside(opens: Time) -> Failure {
    let message = format!("the maintenance window is closed; it opens again at {}", iso(opens));
    Failure::new("OUTSIDE_WINDOW", &message)
}
