//! Three days of a minute's cadence, planned by five schedulers that come and go, with handlers that fail and
//! die: every due plan ends in one success or in one count.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use waypost_kernel::schedule::{CatchUp, Overlap, Policy, Running};
use waypost_kernel::{Span, Time};

use super::planner::{EVERY_PLAN, policy};
use super::{DAY, MINUTE, at, cron, every};

/// What the database keeps: the unique key, and where the planning got to.
#[derive(Default)]
struct World {
    /// Plans under way, and those that succeeded.
    open: BTreeMap<Time, Execution>,
    succeeded: BTreeSet<Time>,
    through: Option<Time>,
    skipped: u64,
}

struct Execution {
    ends_at: Time,
    attempts: u32,
}

/// A sequence that looks random and is the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

const ATTEMPTS: u32 = 3;

impl World {
    /// A handler ends, or its process dies and the lease runs out: both leave something to take up again.
    fn settle(&mut self, now: Time, dice: &mut Dice) {
        let succeeded = &mut self.succeeded;
        self.open.retain(|plan, execution| {
            if execution.ends_at > now {
                return true;
            }
            if dice.roll(4) > 0 || execution.attempts == ATTEMPTS {
                return !succeeded.insert(*plan);
            }
            *execution =
                Execution { ends_at: now + Span::from_seconds(20), attempts: execution.attempts + 1 };
            true
        });
    }

    /// Any number of schedulers see the same row and plan the same; the key lets one insert win.
    fn tick(&mut self, policy: &Policy, now: Time, schedulers: u64, dice: &mut Dice) {
        for _ in 0..schedulers {
            let running = if self.open.is_empty() { Running::Nothing } else { Running::Planned };
            let plans = policy.plan("global", self.through, now, running);
            for plan in &plans.fire {
                let ends_at = now + Span::from_seconds(dice.roll(90) as i64);
                let known = self.open.insert(*plan, Execution { ends_at, attempts: 1 });
                assert!(known.is_none() && !self.succeeded.contains(plan), "{plan} twice");
            }
            self.skipped += plans.skipped.total();
            self.through = plans.through;
            assert!(plans.wake_at.is_some_and(|wake_at| wake_at >= now));
        }
    }
}

/// Ticks of a second for three days, with outages; gives the world at the end and when the last tick was.
fn three_days(policy: &Policy, seed: u64, outages: bool) -> (World, Time, Time) {
    let (first, last) = (at("2026-03-28T00:00Z"), at("2026-03-28T00:00Z") + DAY + DAY + DAY);
    let (mut world, mut dice, mut now) = (World::default(), Dice(seed), first);
    while now < last {
        world.tick(policy, now, 1 + dice.roll(5), &mut dice);
        world.settle(now, &mut dice);
        let outage = if outages && dice.roll(20_000) == 0 { dice.roll(20_000) as i64 } else { 0 };
        now = now + Span::from_seconds(1 + outage);
    }
    for _ in 0..ATTEMPTS + 1 {
        now = now + MINUTE + MINUTE;
        world.settle(now, &mut dice);
    }
    (world, first, last)
}

/// Minute by minute, without the planner: how many plans of a minute's cadence there were.
fn owed(first: Time, last_plan: Time) -> u64 {
    let (mut count, mut plan) = (1, first);
    while plan < last_plan {
        plan = plan + MINUTE;
        count += 1;
    }
    count
}

fn every_plan_is_one_success_or_one_count(policy: &Policy, seed: u64, outages: bool) {
    let (world, first, _) = three_days(policy, seed, outages);
    assert!(world.open.is_empty(), "all come to an end");
    assert_eq!(world.succeeded.first(), Some(&first));
    let owed = owed(first, world.through.unwrap());
    assert_eq!(world.succeeded.len() as u64 + world.skipped, owed, "{seed} {policy:?}");
}

// proves C5 and C11
#[test]
fn three_days_of_minutes_end_in_one_success_or_one_count_each() {
    for timing in [every(MINUTE), cron("* * * * *", "Europe/Kyiv")] {
        for catch_up in [CatchUp::LatestOnly, EVERY_PLAN] {
            for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Allow] {
                let policy = Policy { catch_up, overlap, ..policy(timing.clone()) };
                every_plan_is_one_success_or_one_count(&policy, 7, true);
            }
        }
    }
}

#[test]
fn without_outages_nothing_is_skipped() {
    let policy = Policy { catch_up: EVERY_PLAN, ..policy(every(MINUTE)) };
    let (world, first, last) = three_days(&policy, 1, false);
    assert_eq!(world.skipped, 0);
    assert_eq!(world.succeeded.len() as u64, owed(first, last - MINUTE));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn whatever_the_outages_every_plan_is_accounted_for(
        seed: u64, jitter_s in 0_i64..50, lateness_s in proptest::option::of(1_i64..600), at_once in 1_u32..5,
    ) {
        let policy = Policy {
            catch_up: CatchUp::EveryPlan { window: Span::from_seconds(3_600), at_once },
            jitter: Span::from_seconds(jitter_s),
            max_lateness: lateness_s.map(Span::from_seconds),
            ..policy(every(MINUTE))
        };
        let (world, _, _) = three_days(&policy, seed, true);
        // Jitter decides which plan was the first; from there on nothing is left out.
        let first = *world.succeeded.first().unwrap();
        let before = if lateness_s.is_some() { world.skipped } else { 0 };
        let owed = owed(first, world.through.unwrap());
        let found = world.succeeded.len() as u64 + world.skipped;
        prop_assert!(found >= owed && found <= owed + before);
    }
}
