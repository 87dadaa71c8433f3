//! Items: the steps, tasks and targets of a run. They have no lease of their own; their run's fences them.
//! Moves of many items are one event of the run.

mod course;
mod tries;

use crate::decide::Draft;
use crate::decide::hold;
use crate::event::{Change, Effect, Moved};
use crate::guard::{Facts, Guard};
use crate::lifecycle::{Actor, Lifecycle, Outcome, Phase, StateId, Transition};
use crate::refusal::{Code, Refusal};
use crate::request::Who;
use crate::run::{Failure, Run, Text, Token};
use crate::time::{Span, Time};
use course::Course;
pub use course::Role;
pub use tries::{Take, Tried, Tries, decide_tries, gather_items};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its place among the run lifecycle's item kinds.
    pub kind: u8,
    /// Unique in its run and kind.
    pub key: Text,
    pub state: StateId,
    /// Retries used of the present budget.
    pub attempts: u32,
    pub max_retries: u32,
    /// Ends the idempotency key that goes outside. Rises after a known answer only, so that a change whose
    /// answer was lost is asked for again under the same key.
    pub try_no: u32,
    /// Throttled answers that made it wait, and for how long in all, of the present budget.
    pub throttled: u32,
    pub waited_ms: u32,
    /// An answer under the present `try_no` was lost: the change may have been made. The key stays until an answer settles that.
    pub in_doubt: bool,
    pub not_before: Option<Time>,
    pub discarded: bool,
    /// Runs again on resume: a cleanup names it in `after`.
    pub reruns: bool,
    pub role: Role,
    pub progress: u8,
    pub failure: Option<Failure>,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
}

/// What is asked of one item.
#[derive(Clone, Copy, Debug, Default)]
pub struct ItemAsk<'a> {
    /// The state it should be in. Its own state with new progress is no move.
    pub to: &'a str,
    /// Which command leads there, where several do (a target's `retry` and `wait`).
    pub command: Option<&'a str>,
    pub progress: Option<u8>,
    pub failure: Option<&'a Failure>,
    pub retry_in: Option<Span>,
    /// The outside gave an answer, whatever it was.
    pub answered: bool,
    /// The answer was that it may be tried again: that settles nothing about an earlier try under the same key.
    pub again: bool,
    /// It went outside, and no answer came.
    pub unanswered: bool,
    /// The answer was to come later: the wait is counted.
    pub throttled: bool,
    /// Which try this is about: a report that comes twice must not count for the next one.
    pub try_no: Option<u32>,
    pub discard: bool,
    /// What people know it by; its key if that is not said.
    pub name: Option<&'a str>,
}

/// Decides moves of items, all or none. `token` is the worker's; the engine and people have none. `failed` are items
/// of the run that have ended its course ([`Item::ends_course`]), if any of those that are asked for would begin.
///
/// A step that the worker reports as failed makes the run one that is failing, in the same change.
pub fn decide_items(
    lifecycle: &Lifecycle,
    run: &Run,
    who: &Who<'_>,
    token: Option<Token>,
    (asks, failed): (&[(Item, ItemAsk<'_>)], &[Item]),
    now: Time,
) -> Result<Change, Refusal> {
    let mut draft = Draft::new(lifecycle, run, who, now);
    if who.actor == Actor::Worker {
        hold::check_lease(&draft, token.unwrap_or(crate::fold::UNKNOWN))?;
    }
    let mut course = Course::of(&draft, failed);
    let mut moved = Vec::new();
    for (item, ask) in asks {
        let Some(kind) = lifecycle.items.get(usize::from(item.kind)) else {
            return Err(refuse(&draft, item, Code::InvalidInput, "kind: the lifecycle has no such items"));
        };
        let was = (item.state, item.stays(kind));
        let after = decide_one(&draft, kind, item, ask)?;
        course.check(&draft, kind, Some(item.state), &after)?;
        course.note(kind, item, &after, ask);
        if after != *item {
            moved.push(Moved {
                from: Some(was.0),
                was_staying: was.1,
                stays: after.stays(kind),
                item: after,
            });
        }
    }
    record(&mut draft, moved, course.failure);
    draft.done()
}

/// New items of a run that is under way: steps of a `for_each`, tasks. `failed` as for [`decide_items`].
pub fn add_items(
    lifecycle: &Lifecycle,
    run: &Run,
    who: &Who<'_>,
    token: Option<Token>,
    (items, failed): (&[Item], &[Item]),
    now: Time,
) -> Result<Change, Refusal> {
    let mut draft = Draft::new(lifecycle, run, who, now);
    if who.actor == Actor::Worker {
        hold::check_lease(&draft, token.unwrap_or(crate::fold::UNKNOWN))?;
    }
    let course = Course::of(&draft, failed);
    let mut moved = Vec::new();
    for item in items {
        let kind = lifecycle.items.get(usize::from(item.kind));
        let Some(kind) = kind.filter(|kind| kind.initial.contains(&item.state)) else {
            return Err(refuse(&draft, item, Code::InvalidInput, "status: an item cannot start there"));
        };
        if draft.phase() == Phase::Settled
            || kind.phase(item.state) == Phase::Draft && draft.phase() != Phase::Draft
        {
            return Err(refuse(&draft, item, Code::InvalidTransition, "the run is past that"));
        }
        course.check(&draft, kind, None, item)?;
        moved.push(Moved { from: None, was_staying: false, stays: item.stays(kind), item: item.clone() });
    }
    record(&mut draft, moved, None);
    draft.done()
}

fn record(draft: &mut Draft<'_>, moved: Vec<Moved>, failure: Option<Failure>) {
    if moved.is_empty() {
        return;
    }
    if draft.who.actor == Actor::Worker
        && let Some(row) = hold::begin_edge(draft)
    {
        hold::start(draft, row, None);
    }
    // What the worker says of a step is what it would say of the run; anybody else only mends a row.
    let failure = failure.filter(|_| draft.who.actor == Actor::Worker);
    let to = draft.lifecycle.failing_edge(draft.after.state).map(|row| row.to);
    let intent = failure.zip(to).and_then(|(failure, to)| hold::failing(draft, to, &failure));
    draft.stay("items", draft.who.actor, Effect { moved, intent, ..Effect::default() });
    if draft.who.actor == Actor::Worker {
        hold::extend(draft);
    }
}

fn decide_one(draft: &Draft<'_>, kind: &Lifecycle, item: &Item, ask: &ItemAsk<'_>) -> Result<Item, Refusal> {
    let mut after = item.clone();
    if let Some(progress) = ask.progress {
        if progress > 100 {
            return Err(refuse(draft, item, Code::InvalidInput, "progress: allowed is 0 to 100"));
        }
        after.progress = progress;
    }
    if ask.discard {
        return discard(draft, kind, after);
    }
    if draft.who.actor.is_person() {
        return Err(refuse(draft, item, Code::ActorNotAllowed, "items move with their run: ask that of it"));
    }
    match ask.try_no {
        Some(try_no) if try_no < item.try_no => return Ok(item.clone()),
        Some(try_no) if try_no > item.try_no => {
            return Err(refuse(draft, item, Code::InvalidInput, "try_no: it has not come to that"));
        }
        _ => {}
    }
    let Some(to) = kind.state_named(ask.to) else {
        let names: Vec<&str> = kind.states.iter().map(|state| &*state.name).collect();
        return Err(refuse(
            draft,
            item,
            Code::InvalidInput,
            &format!("status: allowed are {}", names.join(", ")),
        ));
    };
    if to == item.state {
        if kind.phase(to) == Phase::Settled && after.progress != item.progress {
            return Err(refuse(draft, item, Code::InvalidTransition, "it is settled"));
        }
        return Ok(after);
    }
    let actor = draft.who.actor;
    if draft.phase() == Phase::Settled && kind.phase(to) != Phase::Settled {
        return Err(refuse(draft, item, Code::InvalidTransition, "its run is settled: retry that"));
    }
    if let Some(row) = edge(draft, kind, &after, to, ask)? {
        enter(kind, &mut after, row, ask, draft.now);
        return Ok(after);
    }
    // Reported as done without having been reported as begun: both at once.
    let begin = kind
        .transitions_from(item.state)
        .find(|row| row.by.permits(actor) && kind.phase(row.to) == Phase::Held);
    let begun = begin.map(|row| {
        enter(kind, &mut after, row, &ItemAsk::default(), draft.now);
        let end = edge(draft, kind, &after, to, ask)?;
        end.map(|end| check_guards(draft, item, row).map(|()| end)).transpose()
    });
    let Some(row) = begun.transpose()?.flatten() else {
        let from = &kind.state(item.state).name;
        return Err(refuse(
            draft,
            item,
            Code::InvalidTransition,
            &format!("no move from {from} to {}", ask.to),
        ));
    };
    enter(kind, &mut after, row, ask, draft.now);
    Ok(after)
}

/// Stays failed, but is not retried with the others.
fn discard(draft: &Draft<'_>, kind: &Lifecycle, mut item: Item) -> Result<Item, Refusal> {
    let failed = kind.state(item.state).outcome == Some(Outcome::Failed);
    if !failed || !draft.who.actor.is_person() {
        let message = "only a failed item can be discarded, by a person";
        return Err(refuse(draft, &item, Code::InvalidTransition, message));
    }
    item.discarded = true;
    Ok(item)
}

/// The first command that leads there (or the named one); its guards must hold, others do not stand in for it.
fn edge<'k>(
    draft: &Draft<'_>,
    kind: &'k Lifecycle,
    item: &Item,
    to: StateId,
    ask: &ItemAsk<'_>,
) -> Result<Option<&'k Transition>, Refusal> {
    let actor = draft.who.actor;
    let row = kind.transitions_from(item.state).find(|row| {
        row.to == to && row.by.permits(actor) && ask.command.is_none_or(|command| &*row.command == command)
    });
    row.map(|row| check_guards(draft, item, row).map(|()| row)).transpose()
}

fn check_guards(draft: &Draft<'_>, item: &Item, row: &Transition) -> Result<(), Refusal> {
    let Some(guard) = row.guards.iter().find(|guard| !guard.holds(&item.facts(true))) else { return Ok(()) };
    let message = format!("{} needs that {}", row.command, guard.meaning());
    Err(Refusal { guard: Some(*guard), ..refuse(draft, item, Code::InvalidTransition, &message) })
}

/// What follows from the phases that an item's move leads between.
fn enter(kind: &Lifecycle, item: &mut Item, row: &Transition, ask: &ItemAsk<'_>, now: Time) {
    let (from, to) = (kind.phase(row.from), kind.state(row.to));
    item.state = row.to;
    if from == Phase::Held {
        let keeps_key = item.in_doubt && ask.again;
        item.try_no += u32::from(ask.answered && !keeps_key);
        item.in_doubt = ask.unanswered || item.in_doubt && (keeps_key || !ask.answered);
        if ask.throttled {
            item.throttled = item.throttled.saturating_add(1);
            item.waited_ms = item.waited_with(ask.retry_in.unwrap_or(Span::ZERO));
        }
    }
    if row.guards.contains(&Guard::AttemptsLeft) {
        item.attempts += 1;
    }
    if from == Phase::Settled && to.phase != Phase::Settled {
        item.attempts = 0;
        item.throttled = 0;
        item.waited_ms = 0;
        item.progress = 0;
        item.failure = None;
        item.finished_at = None;
    }
    item.not_before = ask.retry_in.filter(|_| to.phase == Phase::Ready).map(|wait| now + wait);
    match to.phase {
        Phase::Held => item.started_at = item.started_at.or(Some(now)),
        Phase::Settled => {
            item.finished_at = Some(now);
            if to.outcome == Some(Outcome::Succeeded) {
                item.progress = 100;
            }
        }
        _ => {}
    }
    if to.outcome == Some(Outcome::Succeeded) {
        item.failure = None;
    } else if let Some(failure) = ask.failure {
        item.failure = Some(failure.clone());
    }
}

fn refuse(draft: &Draft<'_>, item: &Item, code: Code, message: &str) -> Refusal {
    draft.refusal(code, format!("item {}: {message}", item.key))
}

impl Item {
    pub fn new(kind: u8, key: &str, state: StateId) -> Item {
        Item {
            kind,
            key: key.into(),
            state,
            attempts: 0,
            max_retries: 3,
            try_no: 1,
            throttled: 0,
            waited_ms: 0,
            in_doubt: false,
            not_before: None,
            discarded: false,
            reruns: false,
            role: Role::Step,
            progress: 0,
            failure: None,
            started_at: None,
            finished_at: None,
        }
    }

    /// Whether a run that repeats its run may begin with a copy of it: a step that is done or was skipped, and that nothing undid.
    pub fn may_be_copied(&self, kind: &Lifecycle) -> bool {
        let has_ended = matches!(kind.state(self.state).outcome, Some(Outcome::Succeeded | Outcome::Skipped));
        kind.stops_run && has_ended && !self.reruns && self.role != Role::Cleanup
    }

    /// Whether it stays where it is when its run's command makes its state follow: the guard of that move fails.
    pub fn stays(&self, kind: &Lifecycle) -> bool {
        let state = kind.state(self.state);
        state.follows.iter().any(|(_, to)| {
            let row = kind.transitions_from(self.state).find(|row| row.to == *to);
            row.is_some_and(|row| row.guards.iter().any(|guard| !guard.holds(&self.facts(false))))
        })
    }

    /// How many milliseconds it would have waited in all after one more wait. A database keeps 31 bits of it.
    fn waited_with(&self, wait: Span) -> u32 {
        let ms = i64::from(self.waited_ms).saturating_add(wait.ms().max(0)).min(i64::from(i32::MAX));
        u32::try_from(ms).unwrap_or(u32::MAX)
    }

    fn facts(&self, uses_retry: bool) -> Facts {
        Facts {
            attempt: self.attempts + u32::from(uses_retry),
            max_attempts: self.max_retries,
            discarded: self.discarded,
            reruns: self.reruns,
            ..Facts::default()
        }
    }
}
