//! A run's course: the failure of a step ends it, and so does what people want of the run. Nothing begins after that but cleanups.

use super::{Item, ItemAsk, refuse};
use crate::decide::Draft;
use crate::lifecycle::{Lifecycle, Outcome, Phase, StateId};
use crate::refusal::{Code, Refusal};
use crate::run::{Failure, Text, Want};
use crate::text::{MAX_ERROR_CHARS, clean_chars};

/// The code of a step that failed without one.
const STEP_FAILED: &str = "STEP_FAILED";

/// What an item's failure means to its run, if its kind says that one may end the run's course (`stops_run`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Its failure ends the run's course: nothing begins after it but cleanups.
    #[default]
    Step,
    /// It may fail, and the others go on.
    Optional,
    /// Begins whatever failed.
    Cleanup,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Step, Role::Optional, Role::Cleanup];

    pub const fn name(self) -> &'static str {
        match self {
            Role::Step => "step",
            Role::Optional => "optional",
            Role::Cleanup => "cleanup",
        }
    }

    pub fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl Lifecycle {
    /// Whether a move of an item begins work: into a held state, or to success without having been there.
    pub fn begins(&self, from: Option<StateId>, to: StateId) -> bool {
        let (was, to) = (from.map(|from| self.phase(from)), self.state(to));
        match to.phase {
            Phase::Held => was != Some(Phase::Held),
            Phase::Settled => {
                to.outcome == Some(Outcome::Succeeded)
                    && !matches!(was, Some(Phase::Held | Phase::Settled) | None)
            }
            Phase::Draft | Phase::Ready | Phase::Parked => false,
        }
    }
}

impl Item {
    /// Whether it has failed in a way that ends its run's course. `kind` is its lifecycle.
    pub fn ends_course(&self, kind: &Lifecycle) -> bool {
        self.could_end_course(kind) && kind.state(self.state).outcome == Some(Outcome::Failed)
    }

    /// Whether it may not begin once the course has ended.
    pub fn is_of_course(&self, kind: &Lifecycle) -> bool {
        kind.stops_run && self.role != Role::Cleanup
    }

    fn could_end_course(&self, kind: &Lifecycle) -> bool {
        kind.stops_run && self.role == Role::Step
    }
}

/// What one write of items meets, and what it adds to it.
pub(super) struct Course {
    /// The failure that the run has recorded, in words.
    recorded: Option<Text>,
    /// Items that failed, by kind, in words.
    failed: Vec<(u8, Text)>,
    /// What somebody wants of the run instead of going on.
    wanted: Option<(Code, Text)>,
    /// The first failure of this write that ends the course.
    pub failure: Option<Failure>,
}

impl Course {
    /// `failed` are items of the run that ended its course, as far as the asker looked for them.
    pub fn of(draft: &Draft<'_>, failed: &[Item]) -> Course {
        let intent = draft.run.intent.as_ref().filter(|intent| intent.want == Want::Fail);
        let recorded = intent.map(|intent| match &intent.failure {
            Some(failure) => failure.message.clone(),
            None => "the run is failing".into(),
        });
        let wanted = draft.run.intent.as_ref().and_then(|intent| match intent.want {
            Want::Cancel => Some((Code::CancelRequested, intent.in_words().into())),
            Want::Pause => Some((Code::PauseRequested, intent.in_words().into())),
            Want::Fail => None,
        });
        let kinds = &draft.lifecycle.items;
        let ends =
            |item: &&Item| kinds.get(usize::from(item.kind)).is_some_and(|kind| item.ends_course(kind));
        let words = |item: &Item| (item.kind, format!("{} has failed", item.key).into());
        Course { recorded, failed: failed.iter().filter(ends).map(words).collect(), wanted, failure: None }
    }

    /// Refuses a beginning after the end. What people want is stored before its holder knows of it: what was done meanwhile and is reported
    /// at once as begun and done has been done, and is taken.
    pub fn check(
        &self,
        draft: &Draft<'_>,
        kind: &Lifecycle,
        from: Option<StateId>,
        item: &Item,
    ) -> Result<(), Refusal> {
        if !item.is_of_course(kind) || !kind.begins(from, item.state) {
            return Ok(());
        }
        let failed = || self.failed.iter().find(|(of, _)| *of == item.kind).map(|(_, words)| words);
        let failure = self.recorded.as_ref().or_else(failed).map(|why| (Code::FailureRecorded, why));
        let wanted = self.wanted.as_ref().filter(|_| kind.phase(item.state) == Phase::Held);
        let Some((code, why)) = failure.or(wanted.map(|(code, why)| (*code, why))) else { return Ok(()) };
        let message = format!("nothing begins but cleanups, after {why}");
        Err(refuse(draft, item, code, &message))
    }

    /// Notes a failure that ends the course; what comes after it in the same write is after the end.
    pub fn note(&mut self, kind: &Lifecycle, before: &Item, after: &Item, ask: &ItemAsk<'_>) {
        if before.state == after.state || !after.ends_course(kind) {
            return;
        }
        let name = ask.name.unwrap_or(&after.key);
        self.failed.push((after.kind, format!("{name} has failed").into()));
        if self.failure.is_none() {
            let told = after.failure.as_ref();
            let message = told.map_or("it failed", |failure| &*failure.message);
            let message = clean_chars(&format!("{name}: {message}"), MAX_ERROR_CHARS).text;
            self.failure = Some(Failure::new(told.map_or(STEP_FAILED, |failure| &*failure.code), &message));
        }
    }
}
