//! What a schedule owes at a moment: which plan times to fire, and which were missed for good and are counted.

use super::jitter::jitter;
use super::timing::Timing;
use crate::time::{Span, Time};

/// How a schedule plans; what it executes is not its concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Of the schedule: jitter depends on it.
    pub name: String,
    pub timing: Timing,
    pub catch_up: CatchUp,
    /// Of plans later than this after they were due, none is begun.
    pub max_lateness: Option<Span>,
    pub overlap: Overlap,
    pub jitter: Span,
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

    /// `through`: where the last planning got to; nothing for a scope that never had one, which starts at the
    /// latest plan. `is_running`: an earlier plan of this scope is being executed.
    pub fn plan(&self, scope: &str, through: Option<Time>, now: Time, is_running: bool) -> Plans {
        let mut plans = match self.latest_due(scope, now) {
            Some(latest) if through.is_none_or(|through| latest > through) => {
                self.owed(scope, through, latest, now, is_running)
            }
            _ => Plans { through, ..Plans::default() },
        };
        plans.wake_at = self.wake_at(scope, plans.through, now, is_running);
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

    fn owed(&self, scope: &str, through: Option<Time>, latest: Time, now: Time, is_running: bool) -> Plans {
        match self.overlap {
            Overlap::Queue if is_running => return Plans { through, ..Plans::default() },
            Overlap::Skip if is_running => {
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
                // A plan at the window's very edge is still inside it.
                let edge = now - window - Span::from_micros(1);
                let outside_window =
                    if edge > through { self.timing.count(through, edge.min(latest)) } else { 0 };
                let at_once = if self.overlap == Overlap::Allow { at_once.max(1) as usize } else { 1 };
                let fire = self.timing.between(through.max(edge), latest, at_once);
                let skipped = Skipped { outside_window, ..Skipped::default() };
                Plans { fire, skipped, ..Plans::default() }
            }
        };
        plans.through = Some(plans.fire.last().copied().unwrap_or(latest));
        if let Some(bound) = self.max_lateness {
            let found = plans.fire.len();
            plans.fire.retain(|plan| now - self.due_at(scope, *plan) <= bound);
            plans.skipped.late = (found - plans.fire.len()) as u64;
        }
        plans
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
