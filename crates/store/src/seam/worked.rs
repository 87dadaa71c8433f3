//! How long a run was worked: the time that workers held it over all attempts, and not that in which it waited for them or for people.
//! `started_at` alone does not tell: a run that had ended and is retried starts again.

use waypost_kernel::lifecycle::Transition;
use waypost_kernel::{Lifecycle, Phase, Span, StateId, Time};

use super::run::RunRow;

/// Of all runs that are asked about together, no more events are read than this.
pub const MOST_EVENTS: u64 = 20_000;

/// The time between entering and leaving held states; each event says whether its run was held after it, and when.
pub fn worked(events: impl IntoIterator<Item = (bool, Time)>, now: Time) -> Span {
    let mut sum = 0;
    let mut since: Option<Time> = None;
    for (is_held, at) in events {
        match (since, is_held) {
            (None, true) => since = Some(at),
            (Some(begun), false) => {
                sum += (at - begun).micros();
                since = None;
            }
            _ => {}
        }
    }
    let open = since.map_or(0, |begun| (now - begun).micros());
    Span::from_micros(sum + open)
}

/// What a run's row tells of how long it was worked.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'a> {
    pub lifecycle: &'a Lifecycle,
    pub state: StateId,
    pub last_command: &'a str,
    pub fence: u64,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
}

impl<'a> From<&'a RunRow> for Begun<'a> {
    fn from(row: &'a RunRow) -> Begun<'a> {
        Begun {
            lifecycle: &row.lifecycle,
            state: row.run.state,
            last_command: &row.run.last_command,
            fence: row.run.fence,
            started_at: row.run.started_at,
            finished_at: row.run.finished_at,
        }
    }
}

impl Begun<'_> {
    /// It may have waited since it first began: what it took is known from its events alone. A run that had one holder, which ended it, was
    /// worked from its start to its end.
    pub fn may_have_waited(&self) -> bool {
        let is_last = |row: &&Transition| row.to == self.state && *row.command == *self.last_command;
        let mut moves = self.lifecycle.transitions.iter().filter(is_last);
        let has_waited = match self.lifecycle.phase(self.state) {
            Phase::Held => false,
            Phase::Settled => moves.any(|row| self.lifecycle.phase(row.from) != Phase::Held),
            _ => true,
        };
        self.started_at.is_some() && (self.fence > 1 || has_waited)
    }

    /// From its start to its end, or until now.
    pub fn since_start(&self, now: Time) -> Option<Span> {
        self.started_at.map(|start| self.finished_at.unwrap_or(now) - start)
    }
}

/// A run in a database, and what is known of how long it was worked before its events are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub rid: i64,
    seq: u64,
    since_start: Option<Span>,
    needs_events: bool,
}

impl Look {
    pub fn new(rid: i64, seq: u64, begun: &Begun<'_>, now: Time) -> Look {
        Look { rid, seq, since_start: begun.since_start(now), needs_events: begun.may_have_waited() }
    }
}

/// Those whose events are to be read: the first ones, as long as these are not too many.
pub(crate) fn to_be_read(looks: &[Look]) -> Vec<i64> {
    let mut left = MOST_EVENTS;
    let fits = |look: &&Look| {
        let fits = look.needs_events && look.seq <= left;
        left -= if fits { look.seq } else { 0 };
        fits
    };
    looks.iter().filter(fits).map(|look| look.rid).collect()
}

/// How long each was worked, with what the events of some say. None: it never began, or that would have been too much to read.
pub(crate) fn told(looks: &[Look], read: &std::collections::HashMap<i64, Span>) -> Vec<Option<Span>> {
    let one = |look: &Look| match look.needs_events {
        true => read.get(&look.rid).copied(),
        false => look.since_start,
    };
    looks.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_held_states_counts() {
        let at = Time::from_ms;
        let events = [(false, at(0)), (true, at(10)), (true, at(15)), (false, at(30)), (true, at(100))];
        assert_eq!(worked(events, at(107)).ms(), 27);
        assert_eq!(worked(events[..4].iter().copied(), at(107)).ms(), 20);
        assert_eq!(worked([], at(107)), Span::ZERO);
    }

    #[test]
    fn no_more_is_read_than_may_be() {
        let look = |rid, seq, needs_events| Look { rid, seq, since_start: Some(Span::ZERO), needs_events };
        let looks = [
            look(1, 10, true),
            look(2, MOST_EVENTS, true),
            look(3, 5, false),
            look(4, MOST_EVENTS - 10, true),
        ];
        assert_eq!(to_be_read(&looks), [1, 4]);
        let read = std::collections::HashMap::from([(1, Span::from_ms(3))]);
        assert_eq!(told(&looks, &read), [Some(Span::from_ms(3)), None, Some(Span::ZERO), None]);
    }
}
