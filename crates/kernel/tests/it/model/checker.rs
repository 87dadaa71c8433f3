//! The model as the checker sees it, and what a test asks of it.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use stateright::{Checker, Model, Property};
use waypost_kernel::Code;

use super::action::{self, Action};
use super::drain;
use super::judge::{Judge, Ruling};
use super::law::{self, Law};
use super::setup::{Setup, Tokens};
use super::store;
use super::world::World;

#[derive(Debug)]
pub struct Proof {
    pub setup: Setup,
    pub judge: Judge,
    /// Rows that are known to settle.
    drained: Mutex<HashSet<u64>>,
    /// The law whose counterexample is looked for. Once it is found nothing further is explored, which leaves
    /// the shortest one.
    wanted: Option<Law>,
    found: AtomicBool,
    witness: Witness,
}

/// What happened without leaving a mark in the state: writes that were refused, requests that were repeated.
#[derive(Debug, Default)]
pub struct Witness {
    pub lease_lost: AtomicUsize,
    pub cancel_came_first: AtomicUsize,
    pub repeated: AtomicUsize,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Report {
    pub states: usize,
    pub lease_lost: usize,
    pub cancel_came_first: usize,
    pub repeated: usize,
    /// Each property with a counterexample, and its length.
    pub broken: Vec<(&'static str, usize)>,
    pub unseen: Vec<&'static str>,
}

impl Model for Proof {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![store::born(&self.setup)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if self.found.load(Ordering::Relaxed) {
            return;
        }
        if world.run.is_none() {
            actions.push(Action::Claim(0));
            return;
        }
        action::possible(&self.setup, world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = self.after(world, action)?;
        if let Some(law) = self.wanted {
            next.faults = next.faults.only(law);
            self.found.fetch_or(!next.faults.is_empty(), Ordering::Relaxed);
        }
        Some(next)
    }
    fn properties(&self) -> Vec<Property<Proof>> {
        let mut properties = law::properties();
        if let Some(law) = self.wanted {
            properties.retain(|property| property.name == law.name());
            return properties;
        }
        properties.extend(law::sights(&self.setup));
        properties
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.run.as_ref().is_none_or(|run| run.attempt <= self.setup.attempt_bound)
    }
}

impl Proof {
    pub fn new(setup: Setup, judge: Judge) -> Proof {
        Proof {
            setup,
            judge,
            drained: Mutex::default(),
            wanted: None,
            found: AtomicBool::new(false),
            witness: Witness::default(),
        }
    }

    fn after(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Clock(tick) => next.now = action::after(world, tick)?,
            Action::Crash(worker) => next.beliefs[worker] = None,
            Action::Learn(grant) => {
                next.grants[grant].known = true;
                next.beliefs[next.grants[grant].worker] = Some(grant);
                law::leases::beliefs(&mut next);
            }
            Action::SendClaim(worker) => {
                let token = waypost_kernel::Token(world.claims.len() as u128 + 1);
                next.claims.push((worker, token));
            }
            Action::SweeperReads => next.read = world.run.as_ref()?.lease.as_ref().map(|lease| lease.until),
            _ => return self.asked(world, action),
        }
        Some(next)
    }

    /// A request meets the judge. Nothing if it changed nothing and nothing is wrong with that.
    fn asked(&self, world: &World, action: Action) -> Option<World> {
        let ruling = store::rule(&self.setup, self.judge, world, action)?;
        let mut next = self.settle(world, action, &ruling)?;
        if let Some(ruling) = store::follow_up(&self.setup, self.judge, &next, action) {
            next = self.settle(&next, action, &ruling).unwrap_or(next);
        }
        Some(next)
    }

    fn settle(&self, world: &World, action: Action, ruling: &Ruling) -> Option<World> {
        self.witness.look(world, ruling);
        let change = match ruling {
            Ok(change) => change,
            Err(_) => {
                let faults = law::refused(&self.setup, world, action);
                return (!faults.is_empty()).then(|| World { faults, ..world.clone() });
            }
        };
        let mut next = store::write(&self.setup, world, action, change);
        next.faults = law::accepted(&law::Step {
            setup: &self.setup,
            action,
            before: world,
            after: &next,
            change,
            run: &change.after,
        });
        if next.faults.is_empty() && !self.settles(&next) {
            next.faults.add(Law::Settles);
        }
        Some(next)
    }

    fn settles(&self, world: &World) -> bool {
        if self.setup.tokens == Tokens::InRequest {
            return true;
        }
        let key = world.row_key();
        if self.drained.lock().unwrap().contains(&key) {
            return true;
        }
        let settles = drain::settles(&self.setup, self.judge, world);
        settles && self.drained.lock().unwrap().insert(key)
    }

    /// Explores until nothing is left.
    pub fn close(self) -> Report {
        self.explore()
    }

    /// Explores until this law is broken: the length of the shortest way there, if there is one.
    pub fn counterexample(mut self, law: Law) -> Option<usize> {
        self.wanted = Some(law);
        let report = self.explore();
        report.broken.iter().find(|(broken, _)| *broken == law.name()).map(|(_, length)| *length)
    }

    fn explore(self) -> Report {
        let begun = Instant::now();
        let checker = self.checker().spawn_bfs().join();
        assert!(checker.is_done());
        // The checker walks the way to a counterexample once more.
        let Proof { setup, witness, found, .. } = checker.model();
        found.store(false, Ordering::Relaxed);
        let paths = checker.discoveries();
        let mut broken = Vec::new();
        for law in Law::ALL.iter().filter_map(|law| paths.get_key_value(law.name())) {
            let actions = law.1.clone().into_actions();
            println!("{}: broken is: {}", setup.name, law.0);
            actions.iter().for_each(|action| println!("    {action:?}"));
            broken.push((*law.0, actions.len()));
        }
        let states = checker.unique_state_count();
        println!("{}: {states} states in {:?}", setup.name, begun.elapsed());
        let sights = setup.sights.iter().map(|sight| sight.0);
        Report {
            states,
            lease_lost: witness.lease_lost.load(Ordering::Relaxed),
            cancel_came_first: witness.cancel_came_first.load(Ordering::Relaxed),
            repeated: witness.repeated.load(Ordering::Relaxed),
            broken,
            unseen: sights.filter(|name| !paths.contains_key(name)).collect(),
        }
    }
}

impl Witness {
    fn look(&self, world: &World, ruling: &Ruling) {
        let count = match ruling {
            Err(refusal) if refusal.code == Code::LeaseLost => &self.lease_lost,
            Err(refusal) if refusal.code == Code::CancelRequested => &self.cancel_came_first,
            Ok(change) if world.run.as_ref().is_some_and(|run| change.is_repeat(run)) => &self.repeated,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
