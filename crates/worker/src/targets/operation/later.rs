//! When a run is reconciled by itself. Each reconciliation asks for the next one before it begins, by a key that makes it one however
//! often it is asked for; the first is asked for before anything is changed. So a crash anywhere loses none and doubles none. A retry of the run begins
//! a series of its own, and the older one ends. A run that corrects another one has none: the series of that one looks at its targets.

use serde_json::{Value, json};
use waypost_kernel::{Outcome, Phase, Span, Time};
use waypost_store::{Claimed, NewRun, RunRow, Wait};

use super::newer::is_correction;
use super::{LIFECYCLE, Operation};
use crate::pipeline::Shared;
use crate::playbook::{Reconcile, Rule};
use crate::targets::operation::reconcile::RECONCILE;
use crate::targets::{correlation_of, origin_by};

const DAY: Span = Span::from_seconds(24 * 3_600);
/// A run that is not settled, or under another operation, is looked at again then.
const LOOK_AGAIN: Span = Span::from_seconds(60);
/// Which pass over the run's targets a series is about.
const PASS: &str = "pass";

/// How long after its run's end the `number`-th reconciliation is due, from 1 on.
fn due_after(policy: &Reconcile, number: usize) -> Option<Span> {
    let mut early = policy.after.clone();
    early.sort_unstable();
    if let Some(after) = early.get(number.checked_sub(1)?) {
        return Some(*after);
    }
    let day = i64::try_from(number - early.len()).ok()?;
    let after = Span::from_ms(DAY.ms().checked_mul(day)?);
    policy.daily_for.filter(|limit| after <= *limit).map(|_| after)
}

/// The next one that is worth doing: of those that were missed, the last.
fn next_after(policy: &Reconcile, ended_at: Time, number: usize, now: Time) -> Option<usize> {
    let is_missed = |number: &usize| due_after(policy, *number).is_some_and(|after| ended_at + after <= now);
    let missed = (number + 1..).take_while(is_missed).last();
    missed.or_else(|| due_after(policy, number + 1).map(|_| number + 1))
}

/// A run's passes are its attempts: one that is given back and taken up again is the same.
fn reconciliation(parent: &RunRow, number: usize, at: Time, by: &str) -> NewRun {
    let pass = parent.run.attempt;
    let title = parent.title.as_deref().unwrap_or_else(|| parent.id());
    NewRun {
        tenant: parent.tenant.clone(),
        lifecycle: LIFECYCLE.to_owned(),
        queue: parent.queue.clone(),
        priority: parent.priority,
        input: json!({ LIFECYCLE: RECONCILE, "run_id": parent.id(), "number": number, PASS: pass }),
        schedule_at: Some(at),
        metadata: origin_by(parent, "schedule"),
        correlation_id: Some(correlation_of(parent)),
        title: Some(format!("{RECONCILE} {number} of {title}")),
        playbook: parent.playbook.clone(),
        carried: parent.carried.clone(),
        idempotency_key: Some(format!("{RECONCILE}:{}:{pass}:{number}", parent.id())),
        by: by.to_owned(),
        ..NewRun::default()
    }
}

async fn plan(shared: &Shared, parent: &RunRow, number: usize, at: Time) -> waypost_store::Result<()> {
    let mut planned =
        shared.store.enqueue(vec![reconciliation(parent, number, at, &shared.options.name)]).await?;
    match planned.pop() {
        // It was asked for before, with another time.
        None | Some(Ok(_) | Err(waypost_store::StoreError::KeyReused { .. })) => Ok(()),
        Some(Err(error)) => Err(error),
    }
}

/// Asks for the first reconciliation of a run that is about to be applied.
pub(in crate::targets) async fn plan_first(
    shared: &Shared,
    claimed: &Claimed,
    rule: &Rule,
) -> waypost_store::Result<()> {
    let has_series = rule.fetch.is_some() && !is_correction(&claimed.run);
    let Some(policy) = rule.reconcile.as_ref().filter(|_| has_series) else { return Ok(()) };
    match due_after(policy, 1) {
        Some(after) => plan(shared, &claimed.run, 1, claimed.now + after).await,
        None => Ok(()),
    }
}

/// What an operation that came by itself does now.
pub(super) enum Turn {
    Now,
    /// It is given back until then.
    Waits(Wait),
    /// There is nothing to compare any more: in words.
    Over(String),
}

fn wait(until: Time) -> Wait {
    Wait { until, reason: Wait::RETRY.to_owned() }
}

impl Operation<'_> {
    /// It is given back for a short while.
    pub(super) fn soon(&self) -> Wait {
        wait(self.now() + LOOK_AGAIN)
    }

    /// Asks for the next reconciliation, and says whether this one is due.
    pub(super) async fn turn(&self, number: usize) -> waypost_store::Result<Turn> {
        let (parent, now) = (&self.parent, self.now());
        let waits = |until: Time| Turn::Waits(wait(until));
        let Some(policy) = &self.rule.reconcile else {
            return Ok(Turn::Over("the playbook has no [reconcile] any more".to_owned()));
        };
        if is_correction(parent) {
            let words = format!("{} corrects another run, whose own series looks at it", parent.id());
            return Ok(Turn::Over(words));
        }
        let pass = self.row.input.get(PASS).and_then(Value::as_u64);
        if pass.is_some_and(|pass| pass < u64::from(parent.run.attempt)) {
            // Whoever works the later pass asks for it too; a pass that nobody took up has none else.
            if let Some(after) = due_after(policy, 1) {
                plan(self.shared, parent, 1, now + after).await?;
            }
            return Ok(Turn::Over(format!("{} was retried: a later series looks at it", parent.id())));
        }
        let ended_at = match (parent.phase(), parent.outcome(), parent.run.finished_at) {
            (Phase::Settled, Some(Outcome::Succeeded | Outcome::Partial), Some(at)) => at,
            // It may be retried yet.
            (Phase::Settled, Some(Outcome::Failed), Some(at)) if now < at + DAY => {
                return Ok(waits(now + LOOK_AGAIN));
            }
            (Phase::Settled, _, _) => {
                return Ok(Turn::Over(format!("{} is {}", parent.id(), parent.status())));
            }
            _ => return Ok(waits(now + LOOK_AGAIN)),
        };
        let due = ended_at + due_after(policy, number).unwrap_or(Span::ZERO);
        if due > now {
            return Ok(waits(due));
        }
        if parent.run.operating {
            return Ok(waits(now + LOOK_AGAIN));
        }
        if let Some(next) = next_after(policy, ended_at, number, now) {
            let at = ended_at + due_after(policy, next).unwrap_or(Span::ZERO);
            plan(self.shared, parent, next, at).await?;
        }
        Ok(Turn::Now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Decimal;

    // proves R11
    #[test]
    fn reconciliations_are_due_early_and_then_daily() {
        let minutes = |minutes: i64| Span::from_seconds(minutes * 60);
        let policy = Reconcile {
            after: vec![minutes(60), minutes(5)],
            daily_for: Some(Span::from_seconds(3 * 24 * 3_600)),
            amount: Decimal::ZERO,
            percent: Decimal::ZERO,
            retries: false,
        };
        let due: Vec<Option<Span>> = (0..=6).map(|number| due_after(&policy, number)).collect();
        let days = |days: i64| Some(minutes(days * 24 * 60));
        assert_eq!(due, [None, Some(minutes(5)), Some(minutes(60)), days(1), days(2), days(3), None]);
        let ended = Time::default();
        let next = |number: usize, passed: i64| next_after(&policy, ended, number, ended + minutes(passed));
        assert_eq!(next(1, 6), Some(2));
        assert_eq!(next(1, 61), Some(2), "missed, and the last of those");
        assert_eq!(next(1, 3 * 24 * 60), Some(5), "of three that were missed the last");
        assert_eq!((next(2, 90), next(5, 3 * 24 * 60)), (Some(3), None));
        let none = Reconcile { after: Vec::new(), daily_for: None, ..policy };
        assert_eq!(due_after(&none, 1), None);
    }
}
