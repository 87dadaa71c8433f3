//! Why a run waits: the one true reason, in words for people, of what is known around it. Whoever shows runs asks this.

mod held;
mod line;

use crate::guard::Guard;
use crate::lifecycle::{Actor, Lifecycle, Phase, StateId};
use crate::run::{Run, Text, Want};
use crate::text::shell_word;
use crate::time::Time;

pub use held::{REASONS_TO_GIVE_BACK, asked, is_orphaned, is_to_be_taken};

/// What a run waits for. The order is that in which they are looked for: the first that applies is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Scheduled,
    Window,
    Retry,
    /// What it waits for comes after its time is over.
    Timeout,
    Person,
    Orphaned,
    QueuePaused,
    QueueLimit,
    KeyLimit,
    NoWorker,
    NoPlaybook,
    SlotsBusy,
    NotTaken,
    Unacknowledged,
}

impl Reason {
    pub const ALL: [Reason; 14] = [
        Reason::Scheduled,
        Reason::Window,
        Reason::Retry,
        Reason::Timeout,
        Reason::Person,
        Reason::Orphaned,
        Reason::QueuePaused,
        Reason::QueueLimit,
        Reason::KeyLimit,
        Reason::NoWorker,
        Reason::NoPlaybook,
        Reason::SlotsBusy,
        Reason::NotTaken,
        Reason::Unacknowledged,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Reason::Scheduled => "scheduled",
            Reason::Window => "window",
            Reason::Retry => "retry",
            Reason::Timeout => "timeout",
            Reason::Person => "person",
            Reason::Orphaned => "orphaned",
            Reason::QueuePaused => "queue_paused",
            Reason::QueueLimit => "queue_limit",
            Reason::KeyLimit => "key_limit",
            Reason::NoWorker => "no_worker",
            Reason::NoPlaybook => "no_playbook",
            Reason::SlotsBusy => "slots_busy",
            Reason::NotTaken => "not_taken",
            Reason::Unacknowledged => "unacknowledged",
        }
    }

    pub fn named(name: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: Reason,
    pub since: Time,
    /// In words.
    pub text: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What is known around a run. What cannot matter in its phase need not be there.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    pub now: Time,
    /// Added to commands of hints, if it is not the default one.
    pub tenant: &'a str,
    pub queue: &'a str,
    pub schedule_at: Option<Time>,
    /// When its wait began: when one that waits for people came into its state, when one that nobody holds was given back.
    pub moved_at: Option<Time>,
    pub playbook: Option<&'a str>,
    /// It brings what it executes along.
    pub brings: bool,
    pub pause: Option<PauseFacts<'a>>,
    /// Of its queue, if that has one.
    pub queue_limit: Option<&'a LimitFacts>,
    /// Of its concurrency key, if it has one.
    pub key_limit: Option<(&'a str, &'a LimitFacts)>,
    /// Those that live and take runs of its tenant.
    pub workers: &'a [WorkerFacts],
    /// How many of its queue are taken before it, as far as they were counted.
    pub ahead: Ahead,
    pub asks: Asks<'a>,
}

/// What a run that waits for people asks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks<'a> {
    /// What nobody has decided yet.
    pub open: &'a [String],
    /// Something is decided: what the run asked when it began to wait is not all asked any more.
    pub is_partly_decided: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseFacts<'a> {
    pub by: &'a str,
    pub reason: &'a str,
    pub at: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitFacts {
    pub at_most: u64,
    pub held: u64,
    /// Some of those who hold, by run id.
    pub by: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerFacts {
    pub name: String,
    /// It works for the run's tenant alone: those of everybody are not named to a tenant.
    pub is_own: bool,
    pub seen_at: Time,
    pub queues: Vec<String>,
    /// Any if this is empty.
    pub lifecycles: Vec<String>,
    /// Anything if this is none: the playbooks that it has, and whether it executes what runs bring along.
    pub can: Option<(Vec<String>, bool)>,
    /// The one run that it is for.
    pub only: Option<String>,
    pub slots: u64,
    pub busy: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    pub count: u64,
    /// There are more: counting ended.
    pub is_cut: bool,
}

impl LimitFacts {
    fn is_reached(&self) -> bool {
        self.held >= self.at_most
    }

    fn holders(&self) -> String {
        let more = self.held.saturating_sub(self.by.len() as u64);
        match (self.by.join(", "), more) {
            (names, 0) => names,
            (names, 1) if names.is_empty() => "1 run".to_owned(),
            (names, more) if names.is_empty() => format!("{more} runs"),
            (names, more) => format!("{names} and {more} more"),
        }
    }
}

/// Whether a run in this state waits for somebody to decide: it is parked, or a draft that a person may send on or settle otherwise than by a cancel.
pub fn waits_for_people(lifecycle: &Lifecycle, state: StateId) -> bool {
    let is_sent_on = || {
        lifecycle.transitions_from(state).any(|transition| {
            let by_people =
                [Actor::Client, Actor::Operator].into_iter().any(|actor| transition.by.contains(actor));
            by_people && &*transition.command != Want::Cancel.command()
        })
    };
    match lifecycle.phase(state) {
        Phase::Parked => true,
        Phase::Draft => is_sent_on(),
        Phase::Ready | Phase::Held | Phase::Settled => false,
    }
}

/// Why the run waits; none if it does not.
pub fn waiting(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> Option<Waiting> {
    match lifecycle.phase(run.state) {
        Phase::Ready => later(run, around).or_else(|| line::ready(lifecycle, run, around)),
        Phase::Held => held::held(lifecycle, run, around),
        Phase::Settled => retry(run, around).or_else(|| overdue(run, around)),
        Phase::Draft | Phase::Parked => {
            person(lifecycle, run, around).or_else(|| unacknowledged(lifecycle, run, around))
        }
    }
}

/// Commands that the command line has a verb for: it asks what they need. All others are given by `run do`.
const VERBS: [&str; 2] = ["resume", "retry"];

/// What gives a command to a run that waits for people, with all that the lifecycle's table asks for: a reason, and where nobody is
/// asked to decide anything, that this is meant.
pub fn command_line(lifecycle: &Lifecycle, run: &Run, command: &str, asks: &Asks<'_>) -> String {
    let needs = |guard: Guard| {
        let mut rows = lifecycle.transitions_from(run.state);
        rows.any(|row| &*row.command == command && row.by.any_person() && row.guards.contains(&guard))
    };
    let id = &run.id;
    let verb = match VERBS.contains(&command) {
        true => format!("waypost run {command} {id}"),
        false => format!("waypost run do {id} {command}"),
    };
    let force = if needs(Guard::ResolvedOrForced) && asks.open.is_empty() { " --force" } else { "" };
    let reason = if needs(Guard::HasReason) { " --reason TEXT" } else { "" };
    format!("{verb}{force}{reason}")
}

/// The command that sends a run which waits for people on.
pub fn next_command(lifecycle: &Lifecycle, run: &Run) -> Option<Text> {
    let cancel = Want::Cancel.command();
    crate::allowed(lifecycle, run).into_iter().find(|name| **name != *cancel)
}

/// To the second, as people say it.
fn at(time: Time) -> Time {
    Time::from_ms(time.ms().div_euclid(1_000) * 1_000)
}

fn of(reason: Reason, since: Time, text: String) -> Waiting {
    Waiting { reason, since, text, hint: None }
}

impl Waiting {
    fn hint(self, hint: String) -> Waiting {
        Waiting { hint: Some(hint), ..self }
    }
}

impl Around<'_> {
    /// What a command needs to mean the run's tenant.
    fn tenant_option(&self) -> String {
        crate::tenant::option_of(self.tenant)
    }

    fn resume_the_queue(&self) -> String {
        format!("waypost queue resume {}{}", shell_word(self.queue), self.tenant_option())
    }

    fn start_a_worker(&self, run: &Run) -> String {
        let queue = if self.queue == "default" {
            String::new()
        } else {
            format!(" --queue {}", shell_word(self.queue))
        };
        let what = match (self.brings, self.playbook) {
            (true, _) => "--allow-commands",
            (false, Some(_)) => "--playbooks DIR",
            (false, None) => {
                let is_cancelled = run.intent.as_ref().is_some_and(|intent| intent.want == Want::Cancel);
                let instead = if is_cancelled { "" } else { "; or cancel it and start it with one" };
                return format!(
                    "it names no playbook and brings no command, so `waypost worker` never takes it: a program of yours \
                     that claims by HTTP does{instead}"
                );
            }
        };
        format!("start one: waypost worker{queue} {what}{}", self.tenant_option())
    }
}

/// A time that is still to come.
fn later(run: &Run, around: &Around<'_>) -> Option<Waiting> {
    let at = run.available_at.filter(|at| *at > around.now)?;
    if around.schedule_at.is_some_and(|schedule_at| schedule_at >= at) {
        return Some(of(Reason::Scheduled, run.created_at, format!("scheduled for {}", self::at(at))));
    }
    retry(run, around)
}

fn retry(run: &Run, around: &Around<'_>) -> Option<Waiting> {
    let at = run.available_at.filter(|at| *at > around.now)?;
    let since = run.finished_at.or(run.started_at).unwrap_or(run.created_at);
    let failed = run.failure.as_ref().map(|failure| format!(" after {}", failure.code)).unwrap_or_default();
    Some(of(Reason::Retry, since, format!("tried again at {}{failed}", self::at(at))))
}

/// One that is tried again is its schedule's, which does that within seconds.
fn overdue(run: &Run, around: &Around<'_>) -> Option<Waiting> {
    let at = run.available_at.filter(|at| around.now - *at >= line::PATIENCE)?;
    let text = format!("was to be tried again at {}, and its schedule has not done so", self::at(at));
    Some(of(Reason::Retry, at, text))
}

/// A draft that the engine sends on waits for a process that does so: it takes seconds where there is one.
fn unacknowledged(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> Option<Waiting> {
    let is_sent_on = lifecycle.transitions_from(run.state).any(|transition| {
        transition.by.contains(Actor::Engine) && lifecycle.phase(transition.to) == Phase::Ready
    });
    if !is_sent_on || around.now - run.created_at < line::PATIENCE {
        return None;
    }
    let text = "no process has acknowledged it: one that has the object store does".to_owned();
    Some(of(Reason::Unacknowledged, run.created_at, text).hint("start one: waypost serve".to_owned()))
}

/// Of a draft that people end whatever they say, as a proposal: nothing is sent on.
fn is_decided_only(lifecycle: &Lifecycle, state: StateId) -> bool {
    let mut by_people = lifecycle.transitions_from(state).filter(|it| it.by.any_person());
    lifecycle.phase(state) == Phase::Draft && by_people.all(|it| lifecycle.phase(it.to) == Phase::Settled)
}

fn person(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> Option<Waiting> {
    if !waits_for_people(lifecycle, run.state) {
        return None;
    }
    let since = around.moved_at.or(run.started_at).unwrap_or(run.created_at);
    // Whoever looks first takes it up; nobody is asked any more.
    if let Some(until) = run.expires_at.filter(|until| *until <= around.now) {
        let text = format!("nobody answered until {}; the next worker or server goes on with it", at(until));
        return Some(of(Reason::Person, since, text));
    }
    let next = next_command(lifecycle, run);
    let text = match &run.reason {
        // The reason is what was asked at first.
        _ if around.asks.is_partly_decided && !around.asks.open.is_empty() => {
            format!("waits for a person: {}", around.asks.open.join(", "))
        }
        Some(reason) => format!("waits for a person: {reason}"),
        None if is_decided_only(lifecycle, run.state) => "waits for a decision".to_owned(),
        None if lifecycle.phase(run.state) == Phase::Draft => {
            "a draft: waits for a person to send it on".to_owned()
        }
        None => "waits for a person".to_owned(),
    };
    let waiting = of(Reason::Person, since, text);
    let whose = around.tenant_option();
    Some(match next {
        Some(next) => waiting.hint(format!("{}{whose}", command_line(lifecycle, run, &next, &around.asks))),
        None => waiting,
    })
}
