//! What a schedule owes at a moment: which plan times to fire, and which were missed for good and are counted.

use super::jitter::jitter;
use super::timing::Timing;
use crate::time::{Span, Time};

/// Plans that are looked at one by one: a minute's cron has so many in the longest jitter, an hour.
const LATE_BY_JITTER: usize = 60;

/// How a schedule plans; what it executes is not its concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Of the schedule: jitter depends on it.
    pub name: String,
    pub timing: Timing,
    /// What a scope begins with that has no history.
    pub first: First,
    pub catch_up: CatchUp,
    /// Of plans later than this after they were due, none is begun.
    pub max_lateness: Option<Span>,
    pub overlap: Overlap,
    pub jitter: Span,
}

/// The plan that a scope without a history begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The last one whose time has come: it is executed at once.
    Latest,
    /// The first one that is still to come.
    Next,
}

/// What becomes of plan times that passed while nobody planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    LatestOnly,
    /// Oldest first; none older than the window, and so many at once.
    EveryPlan {
        window: Span,
        at_once: u32,
    },
}

/// What becomes of a plan that is due while an earlier one of the same scope is still being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    Skip,
    /// It waits.
    Queue,
    Allow,
}

/// What of a scope is being executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Running {
    #[default]
    Nothing,
    /// An earlier plan of the schedule, perhaps beside others.
    Planned,
    /// Nothing but what somebody asked for, such as the plans of a backfill: a plan of the schedule itself is not skipped for that, it waits
    /// for its end and comes next.
    ByHand,
}

/// Plans that are never executed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// A later one was fired in their place.
    pub superseded: u64,
    /// Older than the window.
    pub outside_window: u64,
    pub late: u64,
    pub overlap: u64,
}

impl Skipped {
    pub fn total(&self) -> u64 {
        self.superseded + self.outside_window + self.late + self.overlap
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plans {
    /// Oldest first.
    pub fire: Vec<Time>,
    pub skipped: Skipped,
    /// Every plan up to here is fired or counted; the next planning starts behind it.
    pub through: Option<Time>,
    /// When there is something to do next. Nothing: never again.
    pub wake_at: Option<Time>,
}

impl Policy {
    /// When a plan may begin.
    pub fn due_at(&self, scope: &str, plan: Time) -> Time {
        plan + self.timing.delay() + jitter(self.jitter, &self.name, scope, plan)
    }

    /// `through`: where the last planning got to; absent for a scope that never had one, which starts as `first` says.
    pub fn plan(&self, scope: &str, through: Option<Time>, now: Time, running: Running) -> Plans {
        let through = through.or((self.first == First::Next).then_some(now));
        let mut plans = match self.latest_due(scope, now) {
            Some(latest) if through.is_none_or(|through| latest > through) => {
                self.owed(scope, through, latest, now, running)
            }
            _ => Plans { through, ..Plans::default() },
        };
        plans.wake_at = self.wake_at(scope, plans.through, now, running != Running::Nothing);
        plans
    }

    /// Jitter may keep the very latest from being due yet; then it is one before it.
    fn latest_due(&self, scope: &str, now: Time) -> Option<Time> {
        let mut plan = self.timing.latest(now - self.timing.delay())?;
        while self.due_at(scope, plan) > now {
            plan = self.timing.latest(plan - Span::from_micros(1))?;
        }
        Some(plan)
    }

    /// Whether a plan waits for the end of what is being executed.
    pub fn waits_for(&self, running: Running) -> bool {
        match self.overlap {
            Overlap::Queue => running != Running::Nothing,
            Overlap::Skip => running == Running::ByHand,
            Overlap::Allow => false,
        }
    }

    fn owed(&self, scope: &str, through: Option<Time>, latest: Time, now: Time, running: Running) -> Plans {
        match self.overlap {
            _ if self.waits_for(running) => return Plans { through, ..Plans::default() },
            Overlap::Skip if running == Running::Planned => {
                let overlap = through.map_or(1, |through| self.timing.count(through, latest));
                let skipped = Skipped { overlap, ..Skipped::default() };
                return Plans { skipped, through: Some(latest), ..Plans::default() };
            }
            _ => {}
        }
        let mut plans = match (self.catch_up, through) {
            (_, None) => Plans { fire: vec![latest], ..Plans::default() },
            (CatchUp::LatestOnly, Some(through)) => {
                let superseded = self.timing.count(through, latest).saturating_sub(1);
                let skipped = Skipped { superseded, ..Skipped::default() };
                Plans { fire: vec![latest], skipped, ..Plans::default() }
            }
            (CatchUp::EveryPlan { window, at_once }, Some(through)) => {
                return self.every_plan(scope, window, at_once, (through, latest), now);
            }
        };
        plans.through = Some(latest);
        let found = plans.fire.len();
        plans.fire.retain(|plan| !self.is_late(scope, *plan, now));
        plans.skipped.late = (found - plans.fire.len()) as u64;
        plans
    }

    fn is_late(&self, scope: &str, plan: Time, now: Time) -> bool {
        self.max_lateness.is_some_and(|bound| now - self.due_at(scope, plan) > bound)
    }

    /// Those that are too old or too late are passed over all at once: however long the outage was, what is on time waits
    /// for no more than what is still to be executed.
    fn every_plan(
        &self,
        scope: &str,
        window: Span,
        at_once: u32,
        (through, latest): (Time, Time),
        now: Time,
    ) -> Plans {
        // A plan at the very edge is still inside.
        let edge = |at: Time| (at - Span::from_micros(1)).clamp(through, latest.max(through));
        let inside = edge(now - window);
        let late = |bound: Span| edge(now - bound - self.timing.delay() - self.jitter);
        let in_time = self.max_lateness.map_or(inside, late).max(inside);
        let mut skipped = Skipped {
            outside_window: self.timing.count(through, inside),
            late: self.timing.count(inside, in_time),
            ..Skipped::default()
        };
        let at_once = if self.overlap == Overlap::Allow { at_once.max(1) as usize } else { 1 };
        let mut plans = Plans { through: Some(in_time), ..Plans::default() };
        // Jitter may make a few more of them late, one here and one there.
        for plan in self.timing.between(in_time, latest, at_once + LATE_BY_JITTER) {
            if plans.fire.len() == at_once {
                break;
            }
            plans.through = Some(plan);
            if self.is_late(scope, plan, now) {
                skipped.late += 1;
            } else {
                plans.fire.push(plan);
            }
        }
        Plans { skipped, ..plans }
    }

    /// What is left over is due at once; what waits for another to end is looked at again soon.
    fn wake_at(&self, scope: &str, through: Option<Time>, now: Time, is_running: bool) -> Option<Time> {
        const SOON: Span = Span::from_seconds(1);
        let next = match through {
            Some(through) => self.timing.next(through),
            None => self.timing.latest(now).or_else(|| self.timing.next(now)),
        };
        let due = self.due_at(scope, next?);
        Some(if due > now {
            due
        } else if is_running && self.overlap != Overlap::Allow {
            now + SOON
        } else {
            now
        })
    }
}
