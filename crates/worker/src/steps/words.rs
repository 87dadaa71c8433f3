//! What a lifecycle calls its steps and where they stand: the executor knows phases and outcomes, not names.

use waypost_kernel::lifecycle::{Lifecycle, Outcome, Phase};

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Open,
    Held,
    Parked,
    Done,
    Failed,
    Skipped,
}

/// The names that one kind of items has for them.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub kind: String,
    states: Vec<(String, Standing)>,
}

impl Words {
    /// Of a run's steps: the first kind of its lifecycle.
    pub fn of_steps(lifecycle: &Lifecycle) -> Option<Words> {
        lifecycle.items.first().map(|kind| Words::of(kind))
    }

    /// Of what is shown of a step's progress: the second kind, if there is one.
    pub fn of_tasks(lifecycle: &Lifecycle) -> Option<Words> {
        lifecycle.items.get(1).map(|kind| Words::of(kind))
    }

    fn of(kind: &Lifecycle) -> Words {
        let standing = |phase: Phase, outcome: Option<Outcome>| match (phase, outcome) {
            (Phase::Held, _) => Standing::Held,
            (Phase::Parked, _) => Standing::Parked,
            (Phase::Settled, Some(Outcome::Succeeded)) => Standing::Done,
            (Phase::Settled, Some(Outcome::Skipped)) => Standing::Skipped,
            (Phase::Settled, _) => Standing::Failed,
            (Phase::Draft | Phase::Ready, _) => Standing::Open,
        };
        let states =
            kind.states.iter().map(|state| (state.name.to_string(), standing(state.phase, state.outcome)));
        Words { kind: kind.name.to_string(), states: states.collect() }
    }

    pub fn standing(&self, status: &str) -> Standing {
        let known = self.states.iter().find(|(name, _)| name == status);
        known.map_or(Standing::Open, |(_, standing)| *standing)
    }

    /// Its own word for it; where it has none for skipped, that is done, and where it has none for parked, that is
    /// open.
    pub fn status(&self, standing: Standing) -> &str {
        let find = |wanted: Standing| self.states.iter().find(|(_, it)| *it == wanted);
        let instead = match standing {
            Standing::Skipped => Standing::Done,
            Standing::Parked => Standing::Open,
            other => other,
        };
        find(standing).or_else(|| find(instead)).map_or("", |(name, _)| name)
    }

    pub fn has(&self, standing: Standing) -> bool {
        self.states.iter().any(|(_, it)| *it == standing)
    }
}

impl Standing {
    pub fn is_settled(self) -> bool {
        matches!(self, Standing::Done | Standing::Failed | Standing::Skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Catalog;

    #[test]
    fn every_kind_has_its_own_words() {
        let catalog = Catalog::shipped().expect("shipped lifecycles load");
        let words = Words::of_steps(catalog.latest("job").expect("job")).expect("steps");
        for (standing, name) in [
            (Standing::Open, "pending"),
            (Standing::Held, "running"),
            (Standing::Parked, "paused"),
            (Standing::Done, "completed"),
            (Standing::Failed, "failed"),
            (Standing::Skipped, "skipped"),
        ] {
            assert_eq!((words.status(standing), words.standing(name)), (name, standing));
        }
        let tasks = Words::of_tasks(catalog.latest("job").expect("job")).expect("tasks");
        assert_eq!((tasks.status(Standing::Skipped), tasks.has(Standing::Skipped)), ("completed", false));
        assert!(Words::of_steps(catalog.latest("cron").expect("cron")).is_none());
    }
}
