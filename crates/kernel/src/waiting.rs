//! Why a run waits: the one true reason, in words for people, of what is known around it. Whoever shows runs asks this.

use crate::lifecycle::{Actor, Lifecycle, OnStale, Phase, StateId};
use crate::run::{Lease, Run, Want};
use crate::time::Time;

/// What a run waits for. The order is that in which they are looked for: the first that applies is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Scheduled,
    Window,
    Retry,
    Person,
    Orphaned,
    QueuePaused,
    QueueLimit,
    KeyLimit,
    NoWorker,
    NoPlaybook,
    SlotsBusy,
}

impl Reason {
    pub const ALL: [Reason; 11] = [
        Reason::Scheduled,
        Reason::Window,
        Reason::Retry,
        Reason::Person,
        Reason::Orphaned,
        Reason::QueuePaused,
        Reason::QueueLimit,
        Reason::KeyLimit,
        Reason::NoWorker,
        Reason::NoPlaybook,
        Reason::SlotsBusy,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Reason::Scheduled => "scheduled",
            Reason::Window => "window",
            Reason::Retry => "retry",
            Reason::Person => "person",
            Reason::Orphaned => "orphaned",
            Reason::QueuePaused => "queue_paused",
            Reason::QueueLimit => "queue_limit",
            Reason::KeyLimit => "key_limit",
            Reason::NoWorker => "no_worker",
            Reason::NoPlaybook => "no_playbook",
            Reason::SlotsBusy => "slots_busy",
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
    /// When it came into its state, of one that waits for people.
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
            (names, more) if names.is_empty() => format!("{more} runs"),
            (names, more) => format!("{names} and {more} more"),
        }
    }
}

/// Whether a run in this state waits for somebody to decide: it is parked, or a draft that a person may send on.
pub fn waits_for_people(lifecycle: &Lifecycle, state: StateId) -> bool {
    let is_sent_on = || {
        lifecycle.transitions_from(state).any(|transition| {
            let by_people =
                [Actor::Client, Actor::Operator].into_iter().any(|actor| transition.by.contains(actor));
            by_people && lifecycle.phase(transition.to) != Phase::Settled
        })
    };
    match lifecycle.phase(state) {
        Phase::Parked => true,
        Phase::Draft => is_sent_on(),
        Phase::Ready | Phase::Held | Phase::Settled => false,
    }
}

/// Whether nobody works a held run, and somebody should: its lease ran out, or was given back for anybody to take.
pub fn is_orphaned(lease: &Lease, now: Time) -> bool {
    if lease.is_vacant() { lease.until <= now } else { lease.is_expired(now) }
}

/// Why the run waits; none if it does not.
pub fn waiting(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> Option<Waiting> {
    match lifecycle.phase(run.state) {
        Phase::Ready => ready(lifecycle, run, around),
        Phase::Held => held(lifecycle, run, around),
        Phase::Settled => retry(run, around),
        Phase::Draft | Phase::Parked => person(lifecycle, run, around),
    }
}

/// Commands that the command line has a verb for: it asks what they need. All others are given by `run do`.
const VERBS: [&str; 2] = ["resume", "retry"];

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
        if self.tenant == crate::tenant::DEFAULT {
            String::new()
        } else {
            format!(" --tenant {}", self.tenant)
        }
    }

    fn start_a_worker(&self) -> String {
        let what = match (self.brings, self.playbook) {
            (true, _) | (false, None) => "--allow-commands",
            (false, Some(_)) => "--playbooks DIR",
        };
        let queue = if self.queue == "default" { String::new() } else { format!(" --queue {}", self.queue) };
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
    let cancel = Want::Cancel.command();
    let allowed = crate::allowed(lifecycle, run);
    let next = allowed.iter().map(|name| &**name).find(|name| *name != cancel);
    let text = match &run.reason {
        Some(reason) => format!("waits for a person: {reason}"),
        None if lifecycle.phase(run.state) == Phase::Draft => {
            "a draft: waits for a person to send it on".to_owned()
        }
        None => "waits for a person".to_owned(),
    };
    let waiting = of(Reason::Person, since, text);
    Some(match next {
        Some(next) if VERBS.contains(&next) => waiting.hint(format!("waypost run {next} {}", run.id)),
        Some(next) => waiting.hint(format!("waypost run do {} {next}", run.id)),
        None => waiting,
    })
}

fn held(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> Option<Waiting> {
    let lease = run.lease.as_ref()?;
    if lease.is_vacant() && lease.until > around.now {
        return Some(given_back(run, lease.until));
    }
    if !is_orphaned(lease, around.now) {
        return None;
    }
    let since = lease.until;
    let gone = match &lease.worker {
        Some(worker) => format!("its worker {worker} gave no sign of life since {}", at(since)),
        None => format!("nobody works it since {}", at(since)),
    };
    let is_taken_over = lease.is_vacant() || lifecycle.state(run.state).on_stale == Some(OnStale::TakeOver);
    let serving = around.workers.iter().any(|worker| worker.serves(lifecycle, run, around));
    let (next, hint) = match (is_taken_over, serving) {
        (true, true) => ("the next free worker takes it over", None),
        (true, false) => ("no live worker can take it over", Some(around.start_a_worker())),
        (false, _) => ("the engine ends it as lost", None),
    };
    Some(Waiting { hint, ..of(Reason::Orphaned, since, format!("{gone}; {next}")) })
}

/// Nobody takes it before then. Its worker said in a word what it waits for.
fn given_back(run: &Run, until: Time) -> Waiting {
    let since = run.started_at.unwrap_or(run.created_at);
    let reason = run.reason.as_deref().and_then(Reason::named).unwrap_or(Reason::Retry);
    let what = match reason {
        Reason::Window => "its maintenance window opens",
        _ => "it is tried again",
    };
    of(reason, since, format!("{what} at {}", at(until)))
}

fn ready(lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> Option<Waiting> {
    if let Some(later) = later(run, around) {
        return Some(later);
    }
    let due = run.available_at.unwrap_or(run.created_at);
    let Around { queue, tenant, .. } = *around;
    if let Some(pause) = around.pause {
        let why = if pause.reason.is_empty() { String::new() } else { format!(": {}", pause.reason) };
        let since = pause.at.map_or(due, |at| at.max(due));
        let at = pause.at.map(|at| format!(" at {}", self::at(at))).unwrap_or_default();
        let text = format!("queue {queue} was paused by {}{at}{why}", pause.by);
        let whose = around.tenant_option();
        return Some(
            of(Reason::QueuePaused, since, text).hint(format!("waypost queue resume {queue}{whose}")),
        );
    }
    if let Some(limit) = around.queue_limit.filter(|limit| limit.is_reached()) {
        let holders = if limit.held == 0 { String::new() } else { format!("; held: {}", limit.holders()) };
        let text = format!("queue {queue} is at its limit of {}{holders}", limit.at_most);
        return Some(
            of(Reason::QueueLimit, due, text)
                .hint(format!("waypost queue limit {queue} N{}", around.tenant_option())),
        );
    }
    if let Some((key, limit)) = around.key_limit.filter(|(_, limit)| limit.is_reached()) {
        let text = match limit.held {
            0 => format!("concurrency key {key} has a limit of 0"),
            _ => format!("concurrency key {key} is held by {}", limit.holders()),
        };
        return Some(of(Reason::KeyLimit, due, text));
    }
    let of_queue = || around.workers.iter().filter(|worker| worker.takes(lifecycle, run, around));
    if of_queue().next().is_none() {
        let whose =
            if tenant == crate::tenant::DEFAULT { String::new() } else { format!(" for tenant {tenant}") };
        let text = format!("no live worker takes from queue {queue}{whose}");
        return Some(of(Reason::NoWorker, due, text).hint(around.start_a_worker()));
    }
    let able = || of_queue().filter(|worker| worker.executes(run, around));
    if able().next().is_none() {
        let text = match (around.brings, around.playbook) {
            (false, Some(playbook)) => format!("no live worker of queue {queue} has {playbook}"),
            (true, _) => format!("no live worker of queue {queue} may execute what runs bring along"),
            (false, None) => format!("no live worker of queue {queue} executes runs that name no playbook"),
        };
        return Some(of(Reason::NoPlaybook, due, text).hint(around.start_a_worker()));
    }
    busy(able(), due, around)
}

/// One that is next, and for which there is a slot, is about to be taken.
fn busy<'w>(able: impl Iterator<Item = &'w WorkerFacts>, due: Time, around: &Around<'_>) -> Option<Waiting> {
    let (mut count, mut slots, mut free) = (0u64, 0u64, 0u64);
    for worker in able {
        count += 1;
        slots += worker.slots;
        free += worker.slots.saturating_sub(worker.busy);
    }
    let Ahead { count: ahead, is_cut } = around.ahead;
    if free > ahead && !is_cut {
        return None;
    }
    let place = match (ahead, is_cut) {
        (ahead, true) => format!("more than {ahead} come before it"),
        (0, false) => "it is next".to_owned(),
        (ahead, false) => format!("{ahead} before it"),
    };
    let workers = if count == 1 { "one worker".to_owned() } else { format!("{count} workers") };
    let text = match free {
        0 if slots == 1 => format!("the one slot of {workers} is busy; {place}"),
        0 => format!("all {slots} slots of {workers} are busy; {place}"),
        free => format!("{free} of {slots} slots of {workers} are free; {place}"),
    };
    Some(of(Reason::SlotsBusy, due, text))
}

impl WorkerFacts {
    /// Whether it asks for such runs, whatever they execute.
    fn takes(&self, lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> bool {
        match &self.only {
            Some(only) => **only == *run.id,
            None => {
                let fits = |name: &String| crate::tenant::may_mean(around.tenant, name, &lifecycle.name);
                self.queues.iter().any(|queue| queue == around.queue)
                    && (self.lifecycles.is_empty() || self.lifecycles.iter().any(fits))
            }
        }
    }

    fn executes(&self, run: &Run, around: &Around<'_>) -> bool {
        let is_own = self.only.as_deref() == Some(&*run.id);
        is_own
            || self.can.as_ref().is_none_or(|(playbooks, carried)| {
                let named =
                    around.playbook.is_some_and(|named| playbooks.iter().any(|playbook| playbook == named));
                named || *carried && around.brings
            })
    }

    fn serves(&self, lifecycle: &Lifecycle, run: &Run, around: &Around<'_>) -> bool {
        self.takes(lifecycle, run, around) && self.executes(run, around)
    }
}
