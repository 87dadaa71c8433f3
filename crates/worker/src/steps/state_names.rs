//! What a lifecycle calls the states of its steps: the executor knows phases and outcomes, not names.

use waypost_kernel::lifecycle::{Lifecycle, Outcome, Phase};

/// The state of an item, whatever the lifecycle calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepState {
    Open,
    Held,
    Parked,
    Done,
    Failed,
    Skipped,
}

/// The names that one kind of items has for its states.
#[derive(Clone, Debug)]
pub(crate) struct StateNames {
    pub kind: String,
    states: Vec<(String, StepState)>,
}

impl StateNames {
    /// Of a run's steps.
    pub fn of_steps(lifecycle: &Lifecycle) -> Option<StateNames> {
        lifecycle.counted_items().map(StateNames::of)
    }

    /// Of what is shown of a step's progress, if the lifecycle has a kind of items for it.
    pub fn of_tasks(lifecycle: &Lifecycle) -> Option<StateNames> {
        lifecycle.progress_items().map(StateNames::of)
    }

    fn of(kind: &Lifecycle) -> StateNames {
        let state_of = |phase: Phase, outcome: Option<Outcome>| match (phase, outcome) {
            (Phase::Held, _) => StepState::Held,
            (Phase::Parked, _) => StepState::Parked,
            (Phase::Settled, Some(Outcome::Succeeded)) => StepState::Done,
            (Phase::Settled, Some(Outcome::Skipped)) => StepState::Skipped,
            (Phase::Settled, _) => StepState::Failed,
            (Phase::Draft | Phase::Ready, _) => StepState::Open,
        };
        let states =
            kind.states.iter().map(|state| (state.name.to_string(), state_of(state.phase, state.outcome)));
        StateNames { kind: kind.name.to_string(), states: states.collect() }
    }

    pub fn state(&self, status: &str) -> StepState {
        let known = self.states.iter().find(|(name, _)| name == status);
        known.map_or(StepState::Open, |(_, state)| *state)
    }

    /// The kind's name for a state. A kind without a state for skipped items calls them done, and one without a state for
    /// parked items calls them open.
    pub fn status(&self, state: StepState) -> &str {
        let find = |wanted: StepState| self.states.iter().find(|(_, it)| *it == wanted);
        let instead = match state {
            StepState::Skipped => StepState::Done,
            StepState::Parked => StepState::Open,
            other => other,
        };
        find(state).or_else(|| find(instead)).map_or("", |(name, _)| name)
    }

    pub fn has(&self, state: StepState) -> bool {
        self.states.iter().any(|(_, it)| *it == state)
    }
}

impl StepState {
    pub fn is_settled(self) -> bool {
        matches!(self, StepState::Done | StepState::Failed | StepState::Skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Catalog;

    #[test]
    fn every_kind_has_its_own_words() {
        let catalog = Catalog::shipped().expect("shipped lifecycles load");
        let names = StateNames::of_steps(catalog.latest("job").expect("job")).expect("steps");
        for (state, name) in [
            (StepState::Open, "pending"),
            (StepState::Held, "running"),
            (StepState::Parked, "paused"),
            (StepState::Done, "completed"),
            (StepState::Failed, "failed"),
            (StepState::Skipped, "skipped"),
        ] {
            assert_eq!((names.status(state), names.state(name)), (name, state));
        }
        let tasks = StateNames::of_tasks(catalog.latest("job").expect("job")).expect("tasks");
        assert_eq!((tasks.status(StepState::Skipped), tasks.has(StepState::Skipped)), ("completed", false));
        assert!(StateNames::of_steps(catalog.latest("cron").expect("cron")).is_none());
    }
}
