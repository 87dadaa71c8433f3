//! A lifecycle: a declared state machine. Data that the kernel, the databases' guards, the docs and the
//! console's buttons are all rendered from.

mod catalog;
mod check;
mod decisions;
pub(crate) mod file;
mod rule_names;
mod rules;

pub use catalog::{Catalog, SHIPPED};
pub use check::RESERVED_COMMANDS;
pub use decisions::{CancelFact, DecisionPart, Decisions, OWN_DETAILS};
pub use rule_names::RULES;
pub use waypost_schema::{Problem, Problems, instead_of, quoted};

use std::fmt;
use std::sync::Arc;

use crate::guard::Guard;
use crate::id::IdFormat;
use crate::run::Want;
use crate::tally::Tallies;
use crate::tenant::{local_name, tenant_of};
use crate::time::Span;

/// The error code of what a cancel ended, where a lifecycle declares no other.
pub const CANCELLED: &str = "CANCELLED";

/// A state's place in its lifecycle's list of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(pub u8);

/// What a state means to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not yet asked to run.
    Draft,
    /// May be claimed.
    Ready,
    /// A worker has the lease.
    Held,
    /// Waits for a person.
    Parked,
    /// Finished; `finished_at` is set. Terminal when no transition leads out.
    Settled,
}

/// How a settled state is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Succeeded,
    Partial,
    Failed,
    Cancelled,
    Skipped,
    Reverted,
}

/// Who asks for a move. An operator may do whatever a client may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    Client,
    Operator,
    Worker,
    Engine,
}

/// What an expired lease means in a held state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnStale {
    /// The engine's `expire`: nothing was begun.
    Expire,
    /// The engine's `lose`.
    Lose,
    /// The next claimer starts a new attempt in the same row.
    Steal,
    /// The next claimer goes on in place, with a new lease and no new attempt.
    TakeOver,
}

/// Whether a lifecycle describes runs or their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Run,
    Item,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub name: Arc<str>,
    pub phase: Phase,
    pub outcome: Option<Outcome>,
    /// How long a lease lasts when the claimer does not say.
    pub lease: Option<Span>,
    /// The holder must begin within this time of its claim. Heartbeats do not extend it, and since nothing
    /// was begun, a client's cancel need not wait for the holder.
    pub deadline: Option<Span>,
    pub on_stale: Option<OnStale>,
    pub max_take_overs: u32,
    /// How long a run may wait here before the engine's `expire`.
    pub ttl: Option<Span>,
    /// A settled state that keeps a retry time while attempts remain.
    pub retry: bool,
    /// How long a settled run is kept.
    pub keep: Option<Span>,
    /// Items only: where an item goes when its run does a thing (`lost`, `end`, or a command's name).
    pub follows: Vec<(Arc<str>, StateId)>,
}

/// Several actors, as a transition names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Actors(u8);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub from: StateId,
    pub command: Arc<str>,
    pub to: StateId,
    pub by: Actors,
    /// All of them must hold.
    pub guards: Vec<Guard>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    pub name: Arc<str>,
    /// What runs of it are, for people who choose one.
    pub description: Option<Arc<str>>,
    pub version: u32,
    pub kind: Kind,
    pub ids: Option<IdFormat>,
    /// What a new row may start in; the first is the default.
    pub initial: Vec<StateId>,
    pub states: Vec<State>,
    /// In the order of the file, which is the order of the seed's table.
    pub transitions: Vec<Transition>,
    /// The lifecycles of a run's items. Guards count those of the first.
    pub items: Vec<Arc<Lifecycle>>,
    /// Items only: one that fails ends its run's course, unless its role says otherwise.
    pub stops_run: bool,
    /// Runs only: what becomes of them is written to the object store, for those who read it there.
    pub projected: bool,
    /// What a run that has none of them counts.
    pub no_items: Tallies,
    /// The error code that a command leaves behind, where it is not the kernel's own.
    pub codes: Vec<(Arc<str>, Arc<str>)>,
    /// Commands that a run of their own carries out, and the states in which they may be asked for.
    pub operations: Vec<(Arc<str>, Vec<StateId>)>,
    /// What a pause asks people for. Without it a run waits for a person, but for no decisions.
    pub decisions: Option<Decisions>,
    /// What the metadata of a run say that the engine cancels because its lease ran out: which member tells what.
    pub cancelled_metadata: Vec<(Arc<str>, CancelFact)>,
}

impl Lifecycle {
    /// Reads a lifecycle file and checks it; every problem found is named with its line, rule and mend.
    pub fn load(text: &str, catalog: &Catalog) -> Result<Lifecycle, Problems> {
        let (draft, problems) = file::read(text)?;
        check::check(draft, problems, catalog, catalog.tenant())
    }

    /// The same of a text whose names are as they are stored.
    pub fn load_stored(text: &str, catalog: &Catalog) -> Result<Lifecycle, Problems> {
        let (mut draft, problems) = file::read(text)?;
        let stored = std::mem::take(&mut draft.name.value);
        draft.name.value = local_name(&stored).to_owned();
        check::check(draft, problems, catalog, tenant_of(&stored))
    }

    pub fn state(&self, id: StateId) -> &State {
        &self.states[usize::from(id.0)]
    }

    pub fn state_named(&self, name: &str) -> Option<StateId> {
        self.states.iter().position(|state| &*state.name == name).map(|at| StateId(at as u8))
    }

    pub fn phase(&self, id: StateId) -> Phase {
        self.state(id).phase
    }

    pub fn state_ids(&self) -> impl Iterator<Item = StateId> + use<> {
        (0..self.states.len()).map(|at| StateId(at as u8))
    }

    pub fn transitions_from(&self, from: StateId) -> impl Iterator<Item = &Transition> {
        self.transitions.iter().filter(move |transition| transition.from == from)
    }

    /// The command by which the engine takes on a draft in this state, if that is the engine's alone: what people may do waits for
    /// them.
    pub fn acknowledgement(&self, from: StateId) -> Option<&str> {
        let takes_on = |row: &&Transition| {
            row.by.contains(Actor::Engine)
                && !row.by.any_person()
                && (self.phase(row.from), self.phase(row.to)) == (Phase::Draft, Phase::Ready)
        };
        self.transitions_from(from).find(takes_on).map(|row| &*row.command)
    }

    /// Settled, and no way out.
    pub fn is_terminal(&self, id: StateId) -> bool {
        self.phase(id) == Phase::Settled && self.transitions_from(id).next().is_none()
    }

    /// The kind of items that guards count and that a playbook's steps are: the first that the file names.
    pub fn counted_items(&self) -> Option<&Lifecycle> {
        self.items.first().map(|kind| &**kind)
    }

    /// One of its kinds of items, by its stored name or as its tenant calls it, and the place in the list.
    pub fn item_named(&self, name: &str) -> Option<(u8, &Arc<Lifecycle>)> {
        let is_it = |kind: &Arc<Lifecycle>| &*kind.name == name || local_name(&kind.name) == name;
        self.items.iter().position(is_it).map(|at| (at as u8, &self.items[at]))
    }

    /// The stored name of what may be one of its kinds of items.
    pub fn item_name<'n>(&'n self, name: &'n str) -> &'n str {
        self.item_named(name).map_or(name, |(_, kind)| &*kind.name)
    }

    /// The kind of items that show how far a step is: the second that the file names.
    pub fn progress_items(&self) -> Option<&Lifecycle> {
        self.items.get(1).map(|kind| &**kind)
    }

    /// All commands of the table, each once, in the order of the file.
    pub fn commands(&self) -> Vec<Arc<str>> {
        let mut commands: Vec<Arc<str>> = Vec::new();
        for transition in &self.transitions {
            if !commands.contains(&transition.command) {
                commands.push(transition.command.clone());
            }
        }
        commands
    }

    /// The error code that a command of the engine's or a person's leaves behind.
    pub fn code_of(&self, command: &str) -> Option<&str> {
        let declared = self.codes.iter().find(|(of, _)| &**of == command).map(|(_, code)| &**code);
        declared.or(match command {
            "cancel" => Some(CANCELLED),
            "expire" => Some("EXPIRED"),
            "lose" => Some("WORKER_LOST"),
            _ => None,
        })
    }

    /// How a worker ends a run that fails: its first edge into a settled state that failed, else one that was reverted,
    /// else a partial one, else one that was cancelled though nobody asked for it. From `from`, or from where its begin
    /// edge leads.
    pub fn failing_edge(&self, from: StateId) -> Option<&Transition> {
        let ends_as = |outcome| move |row: &&Transition| self.state(row.to).outcome == Some(outcome);
        Outcome::OF_A_FAILURE.into_iter().find_map(|outcome| self.own_ends(from).find(ends_as(outcome)))
    }

    /// How a worker may end a run that nobody wants cancelled.
    fn own_ends(&self, from: StateId) -> impl Iterator<Item = &Transition> {
        let begun = self.start_edge(from).filter(|_| self.state(from).deadline.is_some()).map(|row| row.to);
        [Some(from), begun].into_iter().flatten().flat_map(|from| self.transitions_from(from)).filter(|row| {
            row.by.contains(Actor::Worker)
                && self.phase(row.to) == Phase::Settled
                && &*row.command != Want::Cancel.command()
        })
    }

    /// The edge by which a worker's first own event begins the work (deploy's `start`).
    pub fn start_edge(&self, from: StateId) -> Option<&Transition> {
        self.transitions_from(from).find(|transition| {
            transition.to != from
                && transition.by.contains(Actor::Worker)
                && self.phase(transition.from) == Phase::Held
                && self.phase(transition.to) == Phase::Held
        })
    }
}

impl State {
    /// Where an item of this state goes when its run does `what`.
    pub fn follow(&self, what: &str) -> Option<StateId> {
        self.follows.iter().find(|(when, _)| &**when == what).map(|(_, to)| *to)
    }
}

impl Phase {
    pub const ALL: [Phase; 5] = [Phase::Draft, Phase::Ready, Phase::Held, Phase::Parked, Phase::Settled];

    /// In the order of the variants.
    pub const NAMES: [&'static str; 5] = ["draft", "ready", "held", "parked", "settled"];

    pub fn name(self) -> &'static str {
        Phase::NAMES[self as usize]
    }
}

impl Outcome {
    pub const ALL: [Outcome; 6] = [
        Outcome::Succeeded,
        Outcome::Partial,
        Outcome::Failed,
        Outcome::Cancelled,
        Outcome::Skipped,
        Outcome::Reverted,
    ];

    /// As what a run that fails may be settled, the best first.
    pub const OF_A_FAILURE: [Outcome; 4] =
        [Outcome::Failed, Outcome::Reverted, Outcome::Partial, Outcome::Cancelled];

    /// In the order of the variants.
    pub const NAMES: [&'static str; 6] =
        ["succeeded", "partial", "failed", "cancelled", "skipped", "reverted"];

    pub fn name(self) -> &'static str {
        Outcome::NAMES[self as usize]
    }
}

impl Actor {
    pub const ALL: [Actor; 4] = [Actor::Client, Actor::Operator, Actor::Worker, Actor::Engine];

    pub fn name(self) -> &'static str {
        match self {
            Actor::Client => "client",
            Actor::Operator => "operator",
            Actor::Worker => "worker",
            Actor::Engine => "engine",
        }
    }

    /// Clients and operators ask; they never hold a run.
    pub fn is_person(self) -> bool {
        matches!(self, Actor::Client | Actor::Operator)
    }
}

impl OnStale {
    pub const ALL: [OnStale; 4] = [OnStale::Expire, OnStale::Lose, OnStale::Steal, OnStale::TakeOver];

    /// In the order of the variants.
    pub const NAMES: [&'static str; 4] = ["expire", "lose", "steal", "take-over"];

    pub fn name(self) -> &'static str {
        OnStale::NAMES[self as usize]
    }

    /// The engine's command for a lease that nobody may or will take on.
    pub fn command(self) -> &'static str {
        match self {
            OnStale::Expire => "expire",
            OnStale::Lose | OnStale::Steal | OnStale::TakeOver => "lose",
        }
    }
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Run, Kind::Item];
    pub const NAMES: [&'static str; 2] = ["run", "item"];

    pub fn name(self) -> &'static str {
        Kind::NAMES[self as usize]
    }
}

impl Actors {
    pub fn with(self, actor: Actor) -> Actors {
        Actors(self.0 | 1 << actor as u8)
    }

    /// Named in the table.
    pub fn contains(self, actor: Actor) -> bool {
        self.0 & 1 << actor as u8 != 0
    }

    /// Named in the table, or an operator where a client is.
    pub fn permits(self, actor: Actor) -> bool {
        self.contains(actor) || actor == Actor::Operator && self.contains(Actor::Client)
    }

    pub fn names(self) -> Vec<&'static str> {
        Actor::ALL.into_iter().filter(|actor| self.contains(*actor)).map(Actor::name).collect()
    }

    pub fn any_person(self) -> bool {
        self.contains(Actor::Client) || self.contains(Actor::Operator)
    }
}

impl fmt::Display for Actors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(", "))
    }
}
