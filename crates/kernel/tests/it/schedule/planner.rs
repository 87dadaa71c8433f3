//! What is fired and what is counted, in examples.

use waypost_kernel::schedule::{CatchUp, First, Overlap, Plans, Policy, Running, Skipped, Timing};
use waypost_kernel::{Span, Time};

use super::{DAY, HOUR, MINUTE, at, cron, every};

pub const EVERY_PLAN: CatchUp = CatchUp::EveryPlan { window: DAY, at_once: 3 };

pub fn policy(timing: Timing) -> Policy {
    Policy {
        name: "backup".into(),
        timing,
        first: First::Latest,
        catch_up: CatchUp::LatestOnly,
        max_lateness: None,
        overlap: Overlap::Allow,
        jitter: Span::ZERO,
    }
}

fn plan(policy: &Policy, through: Option<Time>, now: Time) -> Plans {
    policy.plan("global", through, now, Running::Nothing)
}

// proves C5
#[test]
fn a_schedule_without_history_starts_at_its_latest_plan() {
    let now = at("2026-02-14T08:17Z");
    for catch_up in [CatchUp::LatestOnly, EVERY_PLAN] {
        let plans = plan(&Policy { catch_up, ..policy(every(MINUTE)) }, None, now);
        assert_eq!((plans.fire, plans.skipped), (vec![now], Skipped::default()));
        assert_eq!((plans.through, plans.wake_at), (Some(now), Some(now + MINUTE)));
    }
    let nightly = plan(&policy(cron("0 2 * * *", "Europe/Kyiv")), None, now);
    assert_eq!(nightly.fire, [at("2026-02-14T00:00Z")]);
    assert_eq!(nightly.wake_at, Some(at("2026-02-15T00:00Z")));
}

// proves C5
#[test]
fn seventy_two_hours_down_are_one_plan_or_a_window_of_them_and_the_rest_is_counted() {
    let (before, now) = (at("2026-02-11T08:00Z"), at("2026-02-14T08:00Z"));
    for timing in [every(MINUTE), cron("* * * * *", "UTC")] {
        let latest_only = plan(&policy(timing.clone()), Some(before), now);
        assert_eq!(latest_only.fire, [now]);
        assert_eq!(latest_only.skipped, Skipped { superseded: 72 * 60 - 1, ..Skipped::default() });
        let policy = Policy { catch_up: EVERY_PLAN, ..policy(timing) };
        let first = plan(&policy, Some(before), now);
        let oldest = now - DAY;
        assert_eq!(first.fire, [oldest, oldest + MINUTE, oldest + MINUTE + MINUTE]);
        assert_eq!(first.skipped, Skipped { outside_window: 48 * 60 - 1, ..Skipped::default() });
        assert_eq!(first.wake_at, Some(now), "there is more to do now");
        let (mut through, mut fired) = (first.through, first.fire.len());
        while fired < 24 * 60 + 1 {
            let more = plan(&policy, through, now);
            assert!(more.fire.len() <= 3 && more.skipped == Skipped::default());
            (through, fired) = (more.through, fired + more.fire.len());
        }
        let done = plan(&policy, through, now);
        assert_eq!((done.fire, done.wake_at), (vec![], Some(now + MINUTE)));
    }
}

// proves C2
#[test]
fn a_plan_waits_for_its_delay_and_its_jitter() {
    let delayed = policy(Timing::Every { cadence: Span::from_seconds(300), delay: Span::from_seconds(300) });
    let plans = plan(&delayed, None, at("2026-02-14T08:17Z"));
    assert_eq!(plans.fire, [at("2026-02-14T08:10Z")]);
    assert_eq!(plans.wake_at, Some(at("2026-02-14T08:20Z")));

    let jittered = Policy { jitter: MINUTE, ..policy(every(HOUR)) };
    let (hour, due) = (at("2026-02-14T08:00Z"), jittered.due_at("global", at("2026-02-14T08:00Z")));
    assert!(due > hour && due < hour + MINUTE);
    assert_ne!(due, jittered.due_at("other", hour), "scopes are spread too");
    let early = plan(&jittered, Some(hour - HOUR), due - Span::from_micros(1));
    assert_eq!((early.fire, early.wake_at), (vec![], Some(due)));
    assert_eq!(plan(&jittered, Some(hour - HOUR), due).fire, [hour]);
}

// proves C6
#[test]
fn late_plans_are_dropped_and_counted() {
    let strict = Policy { max_lateness: Some(MINUTE), ..policy(every(HOUR)) };
    let hour = at("2026-02-14T08:00Z");
    assert_eq!(plan(&strict, Some(hour - HOUR), hour + MINUTE).fire, [hour]);
    let late = plan(&strict, Some(hour - DAY), hour + MINUTE + MINUTE);
    assert_eq!(late.fire, []);
    assert_eq!(late.skipped, Skipped { superseded: 23, late: 1, ..Skipped::default() });
    assert_eq!((late.through, late.wake_at), (Some(hour), Some(hour + HOUR)));
    let cold = plan(&strict, None, hour + MINUTE + MINUTE);
    assert_eq!((cold.fire.len(), cold.skipped.late), (0, 1), "also the first one");
}

// proves C6
#[test]
fn a_plan_that_overlaps_is_skipped_or_waits_or_runs() {
    let (before, now) = (at("2026-02-14T08:00Z"), at("2026-02-14T08:03Z"));
    let of = |overlap| Policy { overlap, ..policy(every(MINUTE)) };
    let skip = of(Overlap::Skip).plan("global", Some(before), now, Running::Planned);
    assert_eq!((skip.fire.len(), skip.skipped.overlap, skip.through), (0, 3, Some(now)));
    let queue = of(Overlap::Queue).plan("global", Some(before), now, Running::Planned);
    assert_eq!((queue.fire.len(), queue.skipped.total(), queue.through), (0, 0, Some(before)));
    assert_eq!(queue.wake_at, Some(now + Span::from_seconds(1)));
    assert_eq!(of(Overlap::Allow).plan("global", Some(before), now, Running::Planned).fire, [now]);
    // What somebody asked for by hand is waited for, and costs no plan of the schedule itself.
    for overlap in [Overlap::Skip, Overlap::Queue] {
        let waits = of(overlap).plan("global", Some(before), now, Running::ByHand);
        assert_eq!((waits.fire.len(), waits.skipped.total(), waits.through), (0, 0, Some(before)));
        assert_eq!(waits.wake_at, Some(now + Span::from_seconds(1)));
    }
    assert_eq!(of(Overlap::Allow).plan("global", Some(before), now, Running::ByHand).fire, [now]);
    for overlap in [Overlap::Skip, Overlap::Queue] {
        let one = Policy { catch_up: EVERY_PLAN, ..of(overlap) };
        assert_eq!(plan(&one, Some(before), now).fire, [before + MINUTE], "one at a time");
    }
}

// proves C5
#[test]
fn a_schedule_without_history_may_start_at_its_next_plan() {
    let now = at("2026-02-14T08:17Z");
    let nightly = Policy { first: First::Next, ..policy(cron("0 2 * * *", "Europe/Kyiv")) };
    let plans = plan(&nightly, None, now);
    assert_eq!((plans.fire, plans.skipped), (vec![], Skipped::default()));
    assert_eq!((plans.through, plans.wake_at), (Some(now), Some(at("2026-02-15T00:00Z"))));
    let night = plan(&nightly, plans.through, at("2026-02-15T00:00Z"));
    assert_eq!((night.fire, night.skipped), (vec![at("2026-02-15T00:00Z")], Skipped::default()));
}

// proves C5 and C6
#[test]
fn plans_beyond_the_lateness_bound_are_passed_over_all_at_once() {
    let (before, now) = (at("2026-02-14T02:00Z"), at("2026-02-14T08:00Z"));
    for overlap in [Overlap::Queue, Overlap::Allow] {
        let two = Span::from_seconds(120);
        let strict =
            Policy { overlap, catch_up: EVERY_PLAN, max_lateness: Some(two), ..policy(every(MINUTE)) };
        let plans = plan(&strict, Some(before), now);
        let on_time = [now - two, now - MINUTE, now];
        let expected = if overlap == Overlap::Allow { &on_time[..] } else { &on_time[..1] };
        assert_eq!(plans.fire, expected, "{overlap:?}");
        assert_eq!(plans.skipped, Skipped { late: 6 * 60 - 3, ..Skipped::default() });
        assert_eq!(plans.through, expected.last().copied());
        let short = CatchUp::EveryPlan { window: HOUR, at_once: 3 };
        let both = plan(&Policy { catch_up: short, ..strict.clone() }, Some(before), now).skipped;
        assert_eq!(both, Skipped { outside_window: 5 * 60 - 1, late: 58, ..Skipped::default() });
        // All of them are late: what is next is on time.
        let hourly = Policy { timing: every(HOUR), ..strict };
        let none = plan(&hourly, Some(before), now + MINUTE + MINUTE + MINUTE);
        assert_eq!((none.fire.len(), none.skipped.late, none.wake_at), (0, 6, Some(now + HOUR)));
    }
}
