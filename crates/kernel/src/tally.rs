//! How many items of a kind a run has in each state: enough to decide a move of the run without reading
//! its items, of which there may be a hundred thousand.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::lifecycle::{Lifecycle, Outcome, Phase, StateId};

/// One kind of items, counted by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    pub by_state: Vec<u32>,
    /// Of these, the ones that stay where they are when the run's command makes their state follow:
    /// discarded targets on a retry, completed steps that no cleanup names on a resume.
    pub staying: Vec<u32>,
}

/// All kinds of items of a run. Shared until it changes: most runs have no items, and copies of a run are many.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tallies(Arc<[Tally]>);

impl Tallies {
    /// Of a run without items, in the order of its lifecycle's kinds.
    pub fn none(kinds: &[Arc<Lifecycle>]) -> Tallies {
        kinds.iter().map(|kind| Tally::new(kind)).collect()
    }
}

impl FromIterator<Tally> for Tallies {
    fn from_iter<I: IntoIterator<Item = Tally>>(tallies: I) -> Tallies {
        Tallies(tallies.into_iter().collect())
    }
}

impl Deref for Tallies {
    type Target = [Tally];

    fn deref(&self) -> &[Tally] {
        &self.0
    }
}

impl DerefMut for Tallies {
    fn deref_mut(&mut self) -> &mut [Tally] {
        Arc::make_mut(&mut self.0)
    }
}

/// A tally by meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub total: u32,
    /// Ready, held or parked. A draft is not asked for yet, so it is neither open nor done.
    pub open: u32,
    pub ok: u32,
    pub failed: u32,
}

impl Tally {
    pub fn new(kind: &Lifecycle) -> Tally {
        Tally { by_state: vec![0; kind.states.len()], staying: vec![0; kind.states.len()] }
    }

    pub fn in_state(&self, state: StateId) -> u32 {
        self.by_state[usize::from(state.0)]
    }

    /// How many of a state move when it follows.
    pub fn following(&self, state: StateId) -> u32 {
        let at = usize::from(state.0);
        self.by_state[at].saturating_sub(self.staying[at])
    }

    pub fn add(&mut self, state: StateId, count: u32) {
        let slot = &mut self.by_state[usize::from(state.0)];
        *slot = slot.saturating_add(count);
    }

    pub fn remove(&mut self, state: StateId, count: u32) {
        let slot = &mut self.by_state[usize::from(state.0)];
        *slot = slot.saturating_sub(count);
    }

    pub fn counts(&self, kind: &Lifecycle) -> Counts {
        let mut counts = Counts::default();
        for (state, count) in kind.states.iter().zip(&self.by_state) {
            counts.total += count;
            match (state.phase, state.outcome) {
                (Phase::Ready | Phase::Held | Phase::Parked, _) => counts.open += count,
                (Phase::Settled, Some(Outcome::Succeeded)) => counts.ok += count,
                (Phase::Settled, Some(Outcome::Failed)) => counts.failed += count,
                _ => {}
            }
        }
        counts
    }
}
