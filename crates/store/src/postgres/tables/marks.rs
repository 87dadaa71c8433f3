//! Where a claimer stopped last time, lane by lane, so that it does not walk over what is gone. Under an open snapshot a
//! queue that is read from its beginning falls to a tenth of its speed within minutes.
//!
//! What may lie behind a mark: commits later than their instant, rows of a claimer that rolled back, backdated ones. So a
//! claimer steps back a little every two seconds and looks from the beginning every ten, or less often if that is dear.
//! A mark lives in the process alone: a crash loses nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use waypost_kernel::{Span, Time};

const NEAR_EVERY: Duration = Duration::from_secs(2);
const NEAR: Span = Span::from_seconds(5);
const FULL_EVERY: Duration = Duration::from_secs(10);
/// Looking from the beginning takes at most a fiftieth of a claimer's time.
const SHARE: u32 = 50;

/// A queue's runs of one priority, as seen by those who want and can do the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    pub queue: String,
    pub priority: i16,
    pub wanted: Vec<String>,
}

/// A place in a lane: everything up to it is gone.
pub type Place = (Time, i64);

pub const BEGINNING: Place = (Time::from_micros(i64::MIN), 0);

#[derive(Debug, Default)]
pub struct Marks(HashMap<Lane, Mark>);

#[derive(Clone, Copy, Debug)]
struct Mark {
    place: Place,
    revision: i64,
    near_at: Instant,
    full_at: Instant,
    full_took: Duration,
}

/// Where a look begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub place: Place,
    pub is_full: bool,
    /// Behind the mark, from which things may have been left.
    pub is_rescan: bool,
}

impl Start {
    pub const FULL: Start = Start { place: BEGINNING, is_full: true, is_rescan: true };
}

/// How a look ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub start: Start,
    /// Up to here everything is gone.
    pub place: Option<Place>,
    /// Something was left where it is, after `place`.
    pub stopped: bool,
    /// Nothing more was due.
    pub exhausted: bool,
    pub began: Instant,
}

impl Marks {
    pub fn start(&mut self, lane: &Lane, revision: i64, now: Instant) -> Start {
        let Some(mark) = self.0.get_mut(lane) else { return Start::FULL };
        let due = FULL_EVERY.max(mark.full_took * SHARE);
        if mark.revision != revision || now.duration_since(mark.full_at) >= due {
            return Start::FULL;
        }
        if now.duration_since(mark.near_at) >= NEAR_EVERY {
            mark.near_at = now;
            return Start { place: (mark.place.0 - NEAR, 0), is_full: false, is_rescan: true };
        }
        Start { place: mark.place, is_full: false, is_rescan: false }
    }

    /// Whether too few were found because what is behind the mark was not looked at, and a look is worth its price.
    pub fn may_look_again(&self, lane: &Lane, now: Instant) -> bool {
        self.0.get(lane).is_none_or(|mark| now.duration_since(mark.full_at) >= mark.full_took * SHARE)
    }

    /// A mark goes ahead. It goes back only to what a look left behind it.
    pub fn set(&mut self, lane: Lane, revision: i64, end: End) {
        let (now, start) = (Instant::now(), end.start);
        let first =
            Mark { place: BEGINNING, revision, near_at: now, full_at: end.began, full_took: Duration::ZERO };
        let mark = self.0.entry(lane).or_insert(first);
        let place = end.place.unwrap_or(start.place);
        let is_left = end.stopped || start.is_rescan && !end.exhausted;
        mark.place = if is_left { place } else { mark.place.max(place) };
        if start.is_full {
            mark.revision = revision;
            (mark.near_at, mark.full_at, mark.full_took) = (now, now, now.duration_since(end.began));
        }
    }
}
