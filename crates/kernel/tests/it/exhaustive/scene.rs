//! One situation of a run, in the tables' words, and the row that stands for it.

use super::table::Table;
use waypost_kernel::run::Want;
use waypost_kernel::tally::Tallies;
use waypost_kernel::{Failure, Intent, Lease, Lifecycle, Phase, Run, Span, Time, Token};

pub const NOW: Time = Time::from_ms(1_800_000_000_000);
/// The token of the lease, or the one that ended the run.
pub const OURS: Token = Token(7);
pub const FOREIGN: Token = Token(8);
pub const FRESH: Token = Token(9);
/// An earlier holder's, who ended the run before it was taken up again.
pub const EARLIER: Token = Token(5);
pub const MAX_ATTEMPTS: u32 = 3;
pub const LEASE: Span = Span::from_seconds(60);
pub const RECORDED: &str = "RECORDED_FAILURE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseIs {
    None,
    Valid,
    /// Its last instant: not over yet.
    AtEnd,
    Expired,
    Vacant,
    /// Vacant, and not to be taken yet.
    Waiting,
    /// Vacant for more than 24 h.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    None,
    Cancel,
    GracefulCancel,
    Pause,
    Fail(&'static str),
}

/// An instant, seen from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instant {
    Never,
    Past,
    Now,
    Later,
}

/// State, how many, how many of them stay when their run makes the others follow.
pub type Count = (&'static str, u32, u32);

#[derive(Clone, Copy, Debug)]
pub struct Scene<'t> {
    pub table: &'t Table,
    pub state: &'static str,
    pub lease: LeaseIs,
    pub wish: Wish,
    pub required: bool,
    pub attempt_left: bool,
    pub take_overs: u32,
    pub reentrant: bool,
    pub operating: bool,
    pub resolved: bool,
    pub available: Instant,
    pub expires: Instant,
    pub last: &'static str,
    /// The command is about given items, and none of these are.
    pub none_chosen: bool,
    /// One list per item kind.
    pub items: &'static [&'static [Count]],
}

impl Scene<'_> {
    pub fn phase(&self) -> Phase {
        self.table.phase(self.state)
    }

    pub fn is_held(&self) -> bool {
        self.phase() == Phase::Held
    }

    /// Somebody has the lease, be it expired.
    pub fn has_holder(&self) -> bool {
        matches!(self.lease, LeaseIs::Valid | LeaseIs::AtEnd | LeaseIs::Expired)
    }

    pub fn row(&self, lifecycle: &Lifecycle) -> Run {
        let settled = self.phase() == Phase::Settled;
        let begun = matches!(self.phase(), Phase::Held | Phase::Parked | Phase::Settled);
        Run {
            id: "run-1".into(),
            state: lifecycle.state_named(self.state).unwrap(),
            seq: 17,
            attempt: if self.attempt_left { 1 } else { MAX_ATTEMPTS },
            max_attempts: MAX_ATTEMPTS,
            take_overs: self.take_overs,
            fence: 4,
            lease: self.lease(),
            ended_by: Some(if self.is_held() { EARLIER } else { OURS }),
            ended_with: None,
            last_command: self.last.into(),
            intent: self.intent(lifecycle),
            requires_cleanup: self.required,
            cleanup_failed: false,
            operating: self.operating,
            reentrant: self.reentrant,
            reason: match self.phase() {
                Phase::Parked => Some("blockers".into()),
                _ => (self.lease == LeaseIs::Waiting).then(|| "window".into()),
            },
            resolved: self.resolved,
            forced: false,
            failure: None,
            created_at: NOW - Span::from_seconds(7_200),
            started_at: begun.then_some(NOW - Span::from_seconds(3_600)),
            finished_at: settled.then_some(NOW - Span::from_seconds(600)),
            available_at: self.available.time(),
            expires_at: self.expires.time(),
            tallies: self.tallies(lifecycle),
        }
    }

    fn lease(&self) -> Option<Lease> {
        let (until, vacant) = match self.lease {
            LeaseIs::None => return None,
            LeaseIs::Valid => (NOW + Span::from_seconds(10), false),
            LeaseIs::AtEnd => (NOW, false),
            LeaseIs::Expired => (NOW - Span::from_micros(1), false),
            LeaseIs::Waiting => (NOW + Span::from_micros(1), true),
            LeaseIs::Vacant => (NOW - Span::from_seconds(24 * 3_600), true),
            LeaseIs::Abandoned => (NOW - Span::from_seconds(24 * 3_600) - Span::from_micros(1), true),
        };
        let worker = (!vacant).then(|| "w1".into());
        Some(Lease { token: OURS, worker, length: LEASE, until })
    }

    fn intent(&self, lifecycle: &Lifecycle) -> Option<Intent> {
        let (want, to) = match self.wish {
            Wish::None => return None,
            Wish::Cancel | Wish::GracefulCancel => (Want::Cancel, None),
            Wish::Pause => (Want::Pause, None),
            Wish::Fail(to) => (Want::Fail, lifecycle.state_named(to)),
        };
        Some(Intent {
            want,
            by: "ann".into(),
            reason: (want != Want::Fail).then(|| "because".into()),
            to,
            failure: (want == Want::Fail).then(|| Failure::new(RECORDED, "it broke")),
            graceful: self.wish == Wish::GracefulCancel,
        })
    }

    /// Steps that have not ended.
    pub fn has_open_steps(&self) -> bool {
        let kinds = self.table.items.iter().zip(self.items);
        kinds.filter(|(kind, _)| kind.name == "step").any(|(kind, counts)| {
            counts.iter().any(|(state, count, _)| *count > 0 && kind.phase(state) != Phase::Settled)
        })
    }

    fn tallies(&self, lifecycle: &Lifecycle) -> Tallies {
        let mut tallies = lifecycle.no_items.clone();
        for (at, counts) in self.items.iter().enumerate() {
            for (state, count, staying) in *counts {
                let id = lifecycle.items[at].state_named(state).unwrap();
                tallies[at].add(id, *count);
                tallies[at].staying[usize::from(id.0)] = *staying;
            }
        }
        tallies
    }

    /// The items as they are after their run did something, kind by kind.
    pub fn items_after(&self, when: &str) -> Vec<Vec<(&'static str, u32)>> {
        let mut after = Vec::with_capacity(self.table.items.len());
        for (at, kind) in self.table.items.iter().enumerate() {
            let mut counts: Vec<(&str, u32)> = kind.states.iter().map(|state| (state.name, 0)).collect();
            let mut add = |name: &str, count: u32| {
                let slot = counts.iter_mut().find(|(state, _)| *state == name).unwrap();
                slot.1 += count;
            };
            for (state, count, staying) in self.items.get(at).copied().unwrap_or_default() {
                let spared = self.none_chosen && at == 0 && when == "is retried";
                match kind.follow(state, when).filter(|_| !spared) {
                    None => add(state, *count),
                    Some(to) => {
                        add(state, *staying);
                        add(to, count - staying);
                    }
                }
            }
            after.push(counts);
        }
        after
    }
}

impl Instant {
    pub fn time(self) -> Option<Time> {
        match self {
            Instant::Never => None,
            Instant::Past => Some(NOW - Span::from_seconds(5)),
            Instant::Now => Some(NOW),
            Instant::Later => Some(NOW + Span::from_micros(1)),
        }
    }

    pub fn is_here(self) -> bool {
        matches!(self, Instant::Past | Instant::Now)
    }
}
