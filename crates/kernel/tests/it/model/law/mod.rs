//! What must hold at every step. Each law is judged from the outside: by what was asked, the row before and
//! after, and what the model remembers, not by how the kernel came to its ruling.

mod edges;
mod ends;
mod items;
pub mod leases;
mod log;

use stateright::Property;
use waypost_kernel::{Change, Phase, Run, StateId};

use super::action::Action;
use super::checker::Proof;
use super::setup::{Place, Setup};
use super::store;
use super::world::World;

macro_rules! laws {
    ($($law:ident = $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Law { $($law,)* }

        impl Law {
            pub const ALL: &[Law] = &[$(Law::$law,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Law::$law => $name,)* }
            }
        }

        pub fn properties() -> Vec<Property<Proof>> {
            vec![$(Property::always($name, |_, world: &World| !world.faults.has(Law::$law)),)*]
        }
    };
}

laws! {
    Edges = "a run moves along declared edges only, by whom they name",
    Guards = "a guarded move's guard holds afterwards",
    Fence = "the fence rises with each new holder and never falls",
    Stale = "no accepted write is older than the holder",
    Beliefs = "no two workers believe in the same fence",
    Vacant = "a vacant lease is nobody's",
    Rotates = "each holder has a token of its own",
    HeldIsLeased = "held if and only if there is a lease",
    LiveLease = "nobody takes or ends a lease that is alive",
    TakeOvers = "expired leases are taken over a bounded number of times",
    Attempts = "an attempt is counted at each claim and never at a take-over",
    MaxAttempts = "attempts stay within their bound",
    Settled = "a settled run is rewritten by a declared exit only",
    Cancel = "a cancel that was answered is final",
    CancelCode = "a cancelled run says that it was cancelled",
    Failing = "a failure that was recorded before its cleanup is final",
    Replay = "a request sent again answers the same and writes nothing",
    Once = "at most one success is accepted, and it never reruns",
    Log = "the log has no gap and folds to the row",
    Tally = "the tally counts the items",
    Applied = "no success with a target that failed or is open",
    Open = "a settled run leaves no target open",
    Lost = "a new holder finds no target under way",
    Tries = "a try is counted once, and after an answer only",
    Course = "nothing begins after a failed step but cleanups",
    Failed = "a run whose step failed never succeeds",
    Settles = "the run can still settle",
}

/// Laws that were broken on the way here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults(u32);

impl Faults {
    pub fn add(&mut self, law: Law) {
        self.0 |= 1 << law as u32;
    }

    pub fn unless(&mut self, law: Law, holds: bool) {
        if !holds {
            self.add(law);
        }
    }

    pub fn has(self, law: Law) -> bool {
        self.0 & 1 << law as u32 != 0
    }

    /// Only this one is looked at.
    pub fn only(self, law: Law) -> Faults {
        Faults(self.0 & 1 << law as u32)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A request that was accepted.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub setup: &'a Setup,
    pub action: Action,
    pub before: &'a World,
    pub after: &'a World,
    pub change: &'a Change,
    /// The row as it is now.
    pub run: &'a Run,
}

impl<'a> Step<'a> {
    pub fn was(&self) -> Option<&'a Run> {
        self.before.run.as_ref()
    }

    pub fn phase(&self, state: StateId) -> Phase {
        self.setup.lifecycle.phase(state)
    }

    pub fn was_phase(&self) -> Option<Phase> {
        self.was().map(|run| self.phase(run.state))
    }

    /// The run has a new holder.
    pub fn granted(&self) -> bool {
        store::claimer(self.before, self.action).is_some() && self.writes()
    }

    pub fn writes(&self) -> bool {
        self.was().is_none_or(|was| !self.change.is_repeat(was))
    }

    pub fn enters_settled(&self) -> bool {
        self.phase(self.run.state) == Phase::Settled && self.was_phase() != Some(Phase::Settled)
    }
}

pub fn accepted(step: &Step<'_>) -> Faults {
    let mut faults = Faults::default();
    edges::check(step, &mut faults);
    leases::check(step, &mut faults);
    ends::check(step, &mut faults);
    log::check(step, &mut faults);
    items::check(step, &mut faults);
    faults
}

pub fn refused(setup: &Setup, world: &World, action: Action) -> Faults {
    let mut faults = Faults::default();
    ends::refused(setup, world, action, &mut faults);
    faults
}

/// Each of the setup's sights as a property that some state must have.
pub fn sights(setup: &Setup) -> impl Iterator<Item = Property<Proof>> {
    const SEEN: [fn(&Proof, &World) -> bool; 8] =
        [seen::<0>, seen::<1>, seen::<2>, seen::<3>, seen::<4>, seen::<5>, seen::<6>, seen::<7>];
    assert!(setup.sights.len() <= SEEN.len());
    setup.sights.iter().zip(SEEN).map(|(sight, seen)| Property::sometimes(sight.0, seen))
}

fn seen<const AT: usize>(proof: &Proof, world: &World) -> bool {
    let Setup { sights, .. } = &proof.setup;
    world.run.as_ref().is_some_and(|run| (sights[AT].1)(&Place { setup: &proof.setup, world, run }))
}
