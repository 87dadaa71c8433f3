//! Where a claimer stopped last time, lane by lane, so that it does not read entries again that are gone. While somebody
//! keeps a snapshot open, a queue that is read from its beginning falls to a tenth of its speed within minutes.
//!
//! Runs may still lie behind a cursor: those committed later than their instant, those of a claimer that rolled back, and
//! backdated ones. So a claimer steps back a little every two seconds and reads from the beginning every ten seconds, or
//! less often if that takes long.
//! A cursor lives in the process alone: a crash loses nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use waypost_kernel::Span;

use crate::engine::{BEGINNING, TimeKey};

const NEAR_EVERY: Duration = Duration::from_secs(2);
const NEAR: Span = Span::from_seconds(5);
const FULL_EVERY: Duration = Duration::from_secs(10);
/// Looking from the beginning takes at most a fiftieth of a claimer's time.
const SHARE: u32 = 50;

/// The runs of a tenant's queue and of one priority, as seen by those who want and can do the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    pub tenant: String,
    pub queue: String,
    pub priority: i16,
    pub wanted: Vec<String>,
}

#[derive(Debug, Default)]
pub struct LaneCursors(HashMap<Lane, LaneCursor>);

#[derive(Clone, Copy, Debug)]
struct LaneCursor {
    place: TimeKey,
    revision: i64,
    near_at: Instant,
    full_at: Instant,
    full_took: Duration,
}

/// Where reading a lane begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub place: TimeKey,
    pub is_full: bool,
    /// It begins before the cursor, where entries may have been left.
    pub is_rescan: bool,
}

impl Start {
    pub const FULL: Start = Start { place: BEGINNING, is_full: true, is_rescan: true };
}

/// Where reading a lane ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub start: Start,
    /// Up to here everything is gone.
    pub place: Option<TimeKey>,
    /// An entry after `place` was left where it is.
    pub stopped: bool,
    /// Nothing more was due.
    pub exhausted: bool,
    pub began: Instant,
}

impl LaneCursors {
    pub fn start(&mut self, lane: &Lane, revision: i64, now: Instant) -> Start {
        let Some(cursor) = self.0.get_mut(lane) else { return Start::FULL };
        let due = FULL_EVERY.max(cursor.full_took * SHARE);
        if cursor.revision != revision || now.duration_since(cursor.full_at) >= due {
            return Start::FULL;
        }
        if now.duration_since(cursor.near_at) >= NEAR_EVERY {
            cursor.near_at = now;
            return Start { place: (cursor.place.0 - NEAR, 0), is_full: false, is_rescan: true };
        }
        Start { place: cursor.place, is_full: false, is_rescan: false }
    }

    /// Whether what lies before the cursor should be read now because too few runs were found after it.
    pub fn may_look_again(&self, lane: &Lane, now: Instant) -> bool {
        self.0.get(lane).is_none_or(|cursor| now.duration_since(cursor.full_at) >= cursor.full_took * SHARE)
    }

    /// Moves a cursor ahead. It goes back only to an entry that was left before it.
    pub fn set(&mut self, lane: Lane, revision: i64, end: End) {
        let (now, start) = (Instant::now(), end.start);
        let first = LaneCursor {
            place: BEGINNING,
            revision,
            near_at: now,
            full_at: end.began,
            full_took: Duration::ZERO,
        };
        let cursor = self.0.entry(lane).or_insert(first);
        let place = end.place.unwrap_or(start.place);
        let is_left = end.stopped || start.is_rescan && !end.exhausted;
        cursor.place = if is_left { place } else { cursor.place.max(place) };
        if start.is_full {
            cursor.revision = revision;
            (cursor.near_at, cursor.full_at, cursor.full_took) = (now, now, now.duration_since(end.began));
        }
    }
}
