//! The plan times of a schedule: a grid in UTC, or a cron expression in a time zone.

use super::cron::Cron;
use super::zone::Zone;
use crate::plan::{bucket, buckets_between, next_bucket};
use crate::time::{Span, Time};

/// A cron expression's missed times are counted one by one, up to here.
pub const MAX_COUNTED: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timing {
    /// `delay`: how long after a plan time it is due, for data that comes late.
    Every {
        cadence: Span,
        delay: Span,
    },
    Cron {
        cron: Cron,
        zone: Zone,
    },
}

impl Timing {
    /// Whose wall clock it is about.
    pub fn zone(&self) -> Zone {
        match self {
            Timing::Cron { zone, .. } => zone.clone(),
            Timing::Every { .. } => Zone::utc(),
        }
    }

    pub fn delay(&self) -> Span {
        match self {
            Timing::Every { delay, .. } => *delay,
            Timing::Cron { .. } => Span::ZERO,
        }
    }

    /// The last plan time that is not later than `until`.
    pub fn latest(&self, until: Time) -> Option<Time> {
        match self {
            Timing::Every { cadence, .. } => bucket(until, Span::ZERO, *cadence),
            Timing::Cron { cron, zone } => cron.latest(zone, until),
        }
    }

    /// The first plan time that is later than `after`.
    pub fn next(&self, after: Time) -> Option<Time> {
        match self {
            Timing::Every { cadence, .. } => next_bucket(after, *cadence),
            Timing::Cron { cron, zone } => cron.next(zone, after),
        }
    }

    /// The oldest `limit` plan times later than `after` and not later than `until`.
    pub fn between(&self, after: Time, until: Time, limit: usize) -> Vec<Time> {
        match self {
            Timing::Every { cadence, .. } => buckets_between(after, until, *cadence, limit).0,
            Timing::Cron { .. } => self.walk(after, until).take(limit).collect(),
        }
    }

    /// How many plan times are later than `after` and not later than `until`.
    pub fn count(&self, after: Time, until: Time) -> u64 {
        match self {
            Timing::Every { cadence, .. } => buckets_between(after, until, *cadence, 0).1,
            Timing::Cron { .. } => {
                self.walk(after, until).take(usize::try_from(MAX_COUNTED).unwrap_or(usize::MAX)).count()
                    as u64
            }
        }
    }

    fn walk(&self, after: Time, until: Time) -> impl Iterator<Item = Time> + '_ {
        std::iter::successors(self.next(after), |time| self.next(*time))
            .take_while(move |time| *time <= until)
    }
}
