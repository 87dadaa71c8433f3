//! Every broken kernel is caught, each by the law that is there for it. The same setup with the real kernel
//! breaks none (`proofs`), so that it is the breakage that is found.

use super::broken::{ends, fences, targets, time};
use super::checker::Proof;
use super::judge::Judge;
use super::law::Law;
use super::proofs::of_the_kernel;
use super::setup::Setup;
use super::setups;

fn catches(setup: &Setup, judge: Judge, law: Law) {
    assert_eq!(of_the_kernel(setup.clone()).broken, []);
    let length = Proof::new(setup.clone(), judge).counterexample(law);
    let length = length.unwrap_or_else(|| panic!("not caught: {}", law.name()));
    println!("caught in {length} steps");
}

const fn items(decide_items: fn(&super::judge::ItemCase<'_>) -> super::judge::Ruling) -> Judge {
    Judge { decide_items, ..Judge::KERNEL }
}

macro_rules! caught {
    ($($test:ident: $setup:ident, $judge:expr, $law:ident;)*) => {
        $(#[test]
        fn $test() {
            catches(&setups::$setup(), $judge, Law::$law);
        })*

        #[test]
        fn every_law_catches_something() {
            let laws = [$(Law::$law,)*];
            for law in Law::ALL {
                assert!(laws.contains(law), "nothing was broken to try: {}", law.name());
            }
        }
    };
}

caught! {
    finish_without_fence: deploy, Judge::deciding(fences::finish_without_fence), Stale;
    heartbeat_without_fence: cron, Judge::deciding(fences::heartbeat_without_fence), Stale;
    targets_without_fence: rule, items(fences::targets_without_fence), Stale;
    fence_stays_at_take_over: rule, Judge::deciding(fences::fence_stays_at_take_over), Fence;
    two_workers_with_one_fence: deploy, Judge::deciding(fences::fence_stays_at_take_over), Beliefs;
    steal_keeps_the_token: cron, Judge::deciding(fences::steal_keeps_the_token), Rotates;
    vacant_lease_is_its_old_holders: deploy, Judge::deciding(fences::vacant_lease_is_its_old_holders), Vacant;
    lease_outlives_its_run: deploy, Judge::deciding(fences::lease_outlives_its_run), HeldIsLeased;
    try_counted_when_begun: retries, items(fences::try_counted_when_begun), Tries;
    cancel_ignored_at_finish: deploy, Judge::deciding(ends::cancel_ignored_at_finish), Cancel;
    cancel_lost_at_take_over: cleanup, Judge::deciding(ends::cancel_lost_at_take_over), Cancel;
    lost_beats_cancel: deploy, Judge::deciding(ends::lost_beats_cancel), Cancel;
    cancel_without_its_code: cron, Judge::deciding(ends::cancel_without_its_code), CancelCode;
    recorded_failure_ignored: cleanup, Judge::deciding(ends::recorded_failure_ignored), Failing;
    replay_refused: deploy, Judge::deciding(ends::replay_refused), Replay;
    replay_written: cron, Judge::deciding(ends::replay_written), Replay;
    settled_rewritten: deploy, Judge::deciding(ends::settled_rewritten), Settled;
    success_reruns: cron, Judge::deciding(ends::success_reruns), Once;
    attempt_not_counted: cron, Judge::deciding(ends::attempt_not_counted), Attempts;
    take_over_burns_an_attempt: rule, Judge::deciding(ends::take_over_burns_an_attempt), Attempts;
    attempts_unbounded: cron, Judge::deciding(ends::attempts_unbounded), MaxAttempts;
    finish_skips_the_start: deploy, Judge::deciding(ends::finish_skips_the_start), Edges;
    seq_with_a_gap: deploy, Judge::deciding(ends::seq_with_a_gap), Log;
    row_behind_its_log: cron, Judge::deciding(ends::row_behind_its_log), Log;
    sweep_on_a_stale_read: slow_sweeper, Judge::deciding(time::sweep_on_a_stale_read), LiveLease;
    sweeper_with_a_fast_clock: deploy, Judge::deciding(time::sweeper_with_a_fast_clock), LiveLease;
    claim_of_a_live_lease: cron, Judge::deciding(time::claim_of_a_live_lease), LiveLease;
    take_overs_unbounded: rule, Judge::deciding(time::take_overs_unbounded), TakeOvers;
    sweeper_asleep: deploy, Judge::deciding(time::sweeper_asleep), Settles;
    lost_targets_stay: rule, Judge::deciding(targets::lost_targets_stay), Lost;
    end_leaves_targets_open: rule, Judge::deciding(targets::end_leaves_targets_open), Open;
    guard_skipped: rule, Judge::deciding(targets::guard_skipped), Guards;
    applied_with_a_failed_target: rule, Judge::deciding(targets::guard_skipped), Applied;
    tally_forgotten: rule, items(targets::tally_forgotten), Tally;
    begins_after_a_failure: course, items(targets::begins_after_a_failure), Course;
    failure_not_recorded: course, items(targets::failure_not_recorded), Failed;
}
