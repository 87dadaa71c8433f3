//! Figures: how runs ended lately, and who holds what.

use std::collections::{BTreeMap, HashMap};

use waypost_kernel::waiting::waits_for_people;
use waypost_kernel::{Lifecycle, Outcome, Phase, Span, StateId, Time};

use super::run::RunRow;
use super::sample::SampledRun;
use super::targets::kind_of_targets;

/// Looking back further would cost more than it tells: beyond these, figures are of the newest runs.
pub const LOOKED_AT: usize = 20_000;
/// Bulk changes take long: those that are worked may have come in before many others.
pub(crate) const LOOKED_AT_FOR_TARGETS: usize = 200_000;
pub(crate) const DAY: Span = Span::from_seconds(86_400);
pub(crate) const WEEK: Span = Span::from_seconds(7 * 86_400);

/// A pool of connections, or a thread with a queue before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    pub name: &'static str,
    /// How many there may be at most.
    pub most: usize,
    pub open: usize,
    pub idle: usize,
    /// Requests that wait for one.
    pub waiting: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// By lifecycle and status; what settled within 7 days.
    pub ended: Vec<Ended>,
    /// By lifecycle and status: what waits for a person now.
    pub for_people: Vec<ForPeople>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForPeople {
    pub lifecycle: String,
    pub status: String,
    pub count: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    pub lifecycle: String,
    pub status: String,
    pub outcome: Option<Outcome>,
    pub in_24h: u64,
    pub in_7d: u64,
    /// Of those of 7 days, the ones of which it is known how long they were worked, and how long that is in all.
    pub begun: u64,
    pub took: Span,
}

/// How bulk changes of a tenant go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetFigures {
    pub tenant: String,
    /// Of runs that are being worked, or settled within the last hour: targets that were applied, those too that were rolled back since.
    pub applied: u64,
    /// Targets of the same runs that failed, discarded ones too. Those that a cancel ended are none: they did not finish.
    pub failed: u64,
    /// Failed targets of all runs that nobody has retried or discarded, but for those that a cancel ended, and those of runs that were rolled back:
    /// somebody decided on these.
    pub dead_letters: u64,
}

/// What settled longer ago says nothing of how bulk changes go now.
pub(crate) const LATELY: Span = Span::from_seconds(3_600);
/// Of a tenant's bulk changes, or of all tenants', the newest ones count.
pub(crate) const MOST_BULK_RUNS: usize = 1_000;

/// Whether a run in this state counts.
pub(crate) fn counts_targets(lifecycle: &Lifecycle, state: StateId) -> bool {
    kind_of_targets(lifecycle).is_some() && !matches!(lifecycle.phase(state), Phase::Draft | Phase::Ready)
}

/// Whether a run in this state was undone: its targets are not tried again.
pub(crate) fn is_reverted(lifecycle: &Lifecycle, state: StateId) -> bool {
    lifecycle.state(state).outcome == Some(Outcome::Reverted)
}

/// A target that was rolled back had been applied.
fn reverted(run: &RunRow, kind: &Lifecycle) -> u32 {
    let Some(tally) = run.run.tallies.first() else { return 0 };
    kind.state_ids().filter(|state| is_reverted(kind, *state)).map(|state| tally.in_state(state)).sum()
}

impl TargetFigures {
    /// By tenant. `cancelled` are the failed targets of each run that a cancel ended, by its id.
    pub(crate) fn of(
        runs: &[&RunRow],
        cancelled: &HashMap<String, u64>,
        dead_letters: Vec<(String, u64)>,
    ) -> Vec<TargetFigures> {
        let mut found: BTreeMap<String, TargetFigures> = BTreeMap::new();
        for run in runs {
            let Some(kind) = kind_of_targets(&run.lifecycle) else { continue };
            let counts = run.run.tallies.first().map(|tally| tally.counts(kind)).unwrap_or_default();
            let of = found.entry(run.tenant.clone()).or_default();
            of.applied += u64::from(counts.ok) + u64::from(reverted(run, kind));
            let cancelled = cancelled.get(run.id()).copied().unwrap_or_default();
            of.failed += u64::from(counts.failed).saturating_sub(cancelled);
        }
        for (tenant, count) in dead_letters {
            found.entry(tenant).or_default().dead_letters = count;
        }
        found.into_iter().map(|(tenant, of)| TargetFigures { tenant, ..of }).collect()
    }

    /// Of what finished; none if nothing did.
    pub fn success_rate_milli(&self) -> Option<i64> {
        let finished = self.applied + self.failed;
        (finished > 0).then(|| (u128::from(self.applied) * 100_000 / u128::from(finished)) as i64)
    }
}

/// What left with one look for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub runs: u64,
    pub events: u64,
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub worker: String,
    /// Whose runs they are: who holds those of several tenants is listed with each.
    pub tenant: String,
    pub held: u64,
    /// Of its leases, the one that ends first.
    pub stale_after: Time,
}

impl Stats {
    /// Of runs that settled within 7 days.
    pub(crate) fn of(runs: &[SampledRun], now: Time) -> Stats {
        let mut stats = Stats::default();
        for run in runs {
            let Some(end) = run.finished_at else { continue };
            stats.add(Ended {
                lifecycle: run.lifecycle.name.to_string(),
                status: run.status().to_owned(),
                outcome: run.outcome(),
                in_24h: u64::from(end > now - DAY),
                in_7d: 1,
                begun: u64::from(run.took.is_some()),
                took: run.took.unwrap_or(Span::ZERO),
            });
        }
        stats.ended.sort_by(|a, b| (&a.lifecycle, &a.status).cmp(&(&b.lifecycle, &b.status)));
        stats
    }

    /// Succeeded, of what ended by itself within 24 hours: what was cancelled or skipped says nothing.
    pub fn success_ratio_24h(&self) -> Option<f64> {
        let count = |outcomes: &[Outcome]| -> u64 {
            let fits = |it: &&Ended| it.outcome.is_some_and(|outcome| outcomes.contains(&outcome));
            self.ended.iter().filter(fits).map(|it| it.in_24h).sum()
        };
        let all = count(&[Outcome::Succeeded, Outcome::Partial, Outcome::Failed]);
        (all > 0).then(|| count(&[Outcome::Succeeded]) as f64 / all as f64)
    }

    /// The same for what waits for people.
    pub(crate) fn add_for_people(&mut self, lifecycle: &Lifecycle, state: StateId, count: u64) {
        if !waits_for_people(lifecycle, state) {
            return;
        }
        let (name, status) = (lifecycle.name.to_string(), lifecycle.state(state).name.to_string());
        match self.for_people.iter_mut().find(|it| it.lifecycle == name && it.status == status) {
            Some(known) => known.count += count,
            None => self.for_people.push(ForPeople { lifecycle: name, status, count }),
        }
        self.for_people.sort_by(|a, b| (&a.lifecycle, &a.status).cmp(&(&b.lifecycle, &b.status)));
    }

    /// One entry per lifecycle and status, whatever their versions.
    fn add(&mut self, ended: Ended) {
        let alike = |it: &&mut Ended| it.lifecycle == ended.lifecycle && it.status == ended.status;
        match self.ended.iter_mut().find(alike) {
            Some(known) => {
                known.in_24h += ended.in_24h;
                known.in_7d += ended.in_7d;
                known.begun += ended.begun;
                known.took = Span::from_micros(known.took.micros() + ended.took.micros());
            }
            None => self.ended.push(ended),
        }
    }
}

impl Ended {
    pub fn mean_seconds(&self) -> Option<f64> {
        (self.begun > 0).then(|| self.took.micros() as f64 / 1e6 / self.begun as f64)
    }
}
