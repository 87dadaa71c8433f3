//! One suite for every store. A test is an `async fn(&dyn Database)` of its topic's file and is listed here once;
//! each backend then runs all of them, and [`kit::check`] after each. Time moves by `advance_clock` alone, and
//! a real clock may go on meanwhile: no test asks for the exact end of anything.

pub mod kit;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use waypost_kernel::Catalog;
use waypost_store::Database;
use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_store::sqlite::SqliteStore;
use waypost_testkit::Postgres;
use waypost_testkit::oracle::MemoryStore;

/// A store, and what lives as long as it: a folder, a database.
pub type Opened = (Arc<dyn Database>, Box<dyn Any + Send>);

pub async fn open_memory() -> Opened {
    (Arc::new(MemoryStore::new(Catalog::shipped().unwrap())), Box::new(()))
}

pub async fn open_sqlite() -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("waypost.db")).unwrap();
    (Arc::new(store), Box::new(folder))
}

pub async fn open_postgres() -> Opened {
    let database = Postgres::with_schema(&migration_sql()).unwrap();
    let store = PostgresStore::open(&database.url()).await.unwrap();
    (Arc::new(store), Box::new(database))
}

pub type Test = for<'s> fn(&'s dyn Database) -> Pin<Box<dyn Future<Output = ()> + 's>>;

macro_rules! topics {
    ($($topic:ident: $($test:ident)+;)+) => {
        $(pub mod $topic;)+

        /// Those of a topic, by name.
        pub fn of_topic(topic: &str) -> Vec<(&'static str, Test)> {
            match topic {
                $(stringify!($topic) => vec![$((stringify!($test), |store| Box::pin($topic::$test(store)))),+],)+
                _ => panic!("there is no topic {topic}"),
            }
        }

        /// Every test of every topic, for one backend.
        macro_rules! backend {
            ($backend:ident, $open:path) => {
                mod $backend {
                    $(mod $topic {
                        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                        async fn $test() {
                            let (store, _folder) = $open().await;
                            crate::conformance::$topic::$test(&*store).await;
                            crate::conformance::kit::check(&*store).await;
                        })+
                    })+
                }
            };
        }
    };
}

topics! {
    agents:
        an_agent_is_declared_changed_and_archived
        what_is_no_agent_is_refused
        an_agent_works_as_many_runs_as_it_says_and_none_while_it_is_paused
        three_failures_in_a_row_put_an_agent_into_error_until_it_is_reset
        failures_count_in_the_order_in_which_runs_ended
        two_hundred_runs_of_one_agent_follow_each_other_and_know_their_place;
    enqueue:
        a_new_run_is_what_was_asked_for
        ids_have_their_lifecycles_form
        the_first_event_tells_of_the_birth
        an_unknown_lifecycle_is_refused_with_those_known
        a_refused_entry_leaves_its_neighbours_alone
        items_come_with_their_run
        a_job_without_steps_gets_one_to_run
        a_bulk_change_without_targets_is_not_queued
        a_preview_is_queued_with_its_targets
        items_of_unknown_kind_or_twice_are_refused
        a_run_starts_only_where_it_may
        a_time_to_live_is_kept;
    copies:
        a_repeated_run_begins_with_what_was_done
        only_what_ended_well_in_that_very_run_is_copied
        a_copy_has_no_state_of_its_own
        a_key_stands_for_whose_copies_they_are;
    claimed_at_once:
        nobody_else_can_take_it_first
        without_room_it_waits_like_any_other
        a_known_key_gives_its_run_and_nobody_elses_lease
        whoever_asks_again_has_the_same_lease_while_it_lasts
        a_command_and_the_claim_after_it_are_one
        a_dry_run_refuses_what_a_start_refuses_and_writes_nothing;
    playbooks:
        the_version_that_was_offered_last_is_the_one
        a_tenant_sees_its_own_playbooks_and_everybodys
        what_a_process_has_no_more_is_withdrawn
        what_is_no_playbook_is_not_kept
        only_the_latest_versions_are_kept
        a_tenant_has_as_many_as_whoever_lists_them_can_hold
        superseded_versions_leave_before_a_definition_is_refused;
    idempotency:
        the_same_key_and_body_is_the_same_run
        the_same_key_with_another_body_is_refused
        who_asks_and_how_its_members_are_ordered_is_no_other_body
        keys_are_per_tenant
        a_key_of_the_engines_own_is_refused
        a_replay_answers_with_the_run_as_it_is_now
        a_refused_run_leaves_its_key_free
        a_key_twice_in_one_list_makes_one_run
        sixty_four_that_race_make_one_run;
    claim_order:
        the_oldest_comes_first
        priority_comes_before_age
        several_queues_are_one_order
        nothing_is_taken_before_its_time
        what_is_due_longest_comes_first
        only_what_was_named_is_taken
        as_many_are_taken_as_were_asked_for
        a_claim_has_no_more_than_fits
        what_was_left_behind_is_no_more_than_fits_too
        a_claim_grants_a_lease
        a_claim_may_begin_the_work
        a_claim_that_is_sent_again_brings_the_same_runs
        what_was_left_behind_comes_before_what_is_new
        a_worker_has_a_name
        a_run_is_taken_by_its_id
        a_claimer_takes_only_what_it_can_execute
        sixteen_claimers_share_a_thousand_runs;
    limits:
        a_queue_holds_no_more_than_its_limit
        a_queues_limit_is_its_own_and_can_go
        a_limit_of_none_lets_nothing_through
        a_key_is_held_once
        a_keys_limit_can_be_raised
        a_key_counts_in_all_queues
        what_waits_for_its_key_holds_up_nothing_else
        a_run_by_its_id_waits_for_limits_too
        a_crash_frees_the_slot
        a_taken_over_run_keeps_its_slot
        a_paused_queue_gives_nothing_out
        who_holds_goes_on_in_a_paused_queue;
    leases:
        a_heartbeat_extends_the_lease
        a_heartbeat_does_not_extend_a_deadline
        the_lease_that_was_asked_for_is_given
        a_wrong_token_writes_nothing
        an_earlier_holder_writes_nothing
        an_expired_lease_is_its_holders_until_another_has_it
        a_heartbeat_tells_what_is_wanted
        a_release_leaves_the_lease_vacant
        a_run_that_requires_its_cleanup_ends_only_after_it
        a_recorded_failure_is_where_the_run_ends
        a_recorded_failure_is_cleaned_and_cut
        lists_are_answered_each_by_itself;
    take_over:
        an_expired_run_goes_on_with_the_next_worker
        a_crash_leaves_no_target_stuck
        five_expired_leases_are_taken_over_and_the_sixth_is_lost
        a_vacant_lease_waits_a_day
        what_is_lost_when_its_lease_ends_is_not_taken_over
        a_lost_worker_costs_an_attempt_where_there_are_some
        one_run_is_taken_over_by_its_id
        one_of_many_takes_over
        the_oldest_expired_lease_is_taken_first;
    waiting:
        a_run_that_waits_is_taken_when_it_is_due
        nobody_takes_it_a_moment_early_or_late
        nobody_has_a_day_to_come
        a_cancel_does_not_wait
        a_pause_does_not_wait
        what_is_wanted_of_a_run_comes_before_its_wait
        a_waiting_run_keeps_its_key_and_frees_its_queue
        a_limit_that_comes_later_does_not_count_it
        a_person_has_until_then_to_answer
        an_answer_that_comes_too_late_is_refused
        a_question_is_asked_anew_in_each_pause
        who_answers_in_time_ends_the_wait;
    notes:
        an_event_whose_metadata_do_not_fit_is_refused
        the_first_event_begins_the_work
        events_are_kept_as_they_were_said
        an_equal_event_within_ten_seconds_is_a_repeat
        a_key_is_a_repeat_for_ever
        without_a_rule_two_equal_events_are_two
        a_repeat_needs_the_lease_too
        metadata_and_details_are_merged
        a_repeat_writes_nothing
        what_a_worker_says_is_cleaned_and_cut_but_never_refused
        many_who_speak_at_once_leave_no_gap;
    finish:
        what_there_is_no_room_for_is_named_and_the_rest_is_kept
        a_member_that_no_run_has_room_for_costs_no_other
        a_finish_that_brings_something_else_is_another_one
        a_finish_that_gave_way_is_known_again
        a_finished_run_has_its_end_and_no_lease
        a_bad_end_is_an_error_in_the_log
        finishing_what_was_not_begun_is_both
        a_finish_merges_metadata
        the_same_finish_again_is_answered_as_the_first
        a_second_different_finish_is_refused
        a_finish_needs_the_token
        a_failure_is_kept_with_code_and_words
        a_finish_is_never_lost_over_what_it_carries
        an_unknown_end_is_refused_with_those_known
        what_is_settled_stays
        the_outcome_counts_all_targets
        finishes_are_answered_each_by_itself;
    cancel:
        a_cancel_again_is_answered_whatever_it_insists_on
        what_nobody_holds_is_cancelled_at_once
        what_nobody_began_is_cancelled_at_once
        a_holder_is_told_and_may_end_no_other_way
        a_cancel_is_final_even_if_the_holder_dies
        an_expired_or_vacant_run_is_cancelled_at_once
        a_cancel_twice_is_answered_as_the_first
        a_cancel_of_what_is_done_is_refused
        an_agents_cancel_is_a_failure
        a_cancelled_change_counts_what_was_applied
        a_dead_holders_cleanup_is_anothers
        only_who_may_commands
        a_command_may_insist_on_what_was_seen
        of_a_finish_and_a_cancel_that_race_one_wins;
    sweep:
        a_run_that_was_given_back_is_not_lost_in_a_paused_queue
        nothing_due_is_nothing_written
        a_claim_that_was_not_begun_is_cancelled
        a_run_whose_worker_died_is_lost
        a_time_to_live_ends
        a_claimed_run_no_longer_expires
        as_many_are_swept_as_were_asked_for_oldest_first
        what_is_left_to_workers_does_not_stand_in_the_way
        many_sweepers_end_a_run_once
        a_lost_run_that_requires_its_cleanup_gets_it;
    items:
        items_are_listed_page_by_page
        steps_are_begun_and_done
        new_steps_are_added_to_a_run_under_way
        done_without_having_begun_is_both
        items_move_all_or_none
        what_is_wrong_in_a_list_of_items_is_named
        progress_moves_within_a_state
        the_same_items_again_write_nothing
        details_of_items_are_merged
        a_retry_uses_up_the_budget
        a_wait_burns_no_retry_and_an_unknown_answer_keeps_its_key
        a_run_that_ends_takes_its_open_items_along
        the_first_item_begins_the_work
        what_items_bring_is_cleaned_and_cut
        many_items_are_one_event
        items_of_an_unknown_run_are_not_found;
    course:
        a_failed_run_that_is_given_back_waits_for_its_cleanups
        what_an_item_is_to_its_run_is_kept
        nothing_begins_after_a_failed_step_but_cleanups
        a_run_whose_step_failed_ends_as_that_without_its_worker
        the_next_worker_cleans_up_and_begins_nothing
        one_that_may_fail_stops_nobody
        a_cancel_that_came_first_stands_and_still_nothing_begins
        nothing_begins_once_a_cancel_or_a_pause_is_stored
        the_order_of_a_write_is_the_order_of_its_moves;
    finish_items:
        a_finish_moves_its_items_first
        a_step_that_fails_with_its_run_is_why_it_failed
        a_refused_item_leaves_the_run_held_and_a_refused_end_leaves_the_items
        a_lost_lease_moves_nothing
        the_same_finish_with_items_again_is_answered_as_the_first
        finishes_with_items_in_one_list_are_answered_each_by_itself
        a_run_that_was_only_claimed_begins_moves_and_ends;
    plans:
        the_first_claimer_wins_and_the_others_are_silent
        of_sixteen_schedulers_one_wins
        a_success_never_reruns
        a_failure_is_retried_when_it_is_due
        attempts_come_to_an_end
        a_stale_execution_is_stolen
        a_holder_does_not_steal_from_itself
        heartbeats_keep_thieves_away
        a_theft_at_the_last_attempt_fails_the_row
        without_re_entry_a_stale_execution_fails_for_good
        a_shutdown_burns_no_attempt
        canceled_is_never_retried
        a_plan_is_taken_by_its_id
        a_plan_without_a_key_or_of_another_kind_is_refused;
    schedules:
        a_planning_is_written_with_what_it_fires
        who_fires_a_schedule_is_known_while_they_say_so
        of_sixteen_planners_one_fires
        a_failed_plan_is_not_stranded_by_a_newer_one
        a_stale_execution_is_told_of_and_stolen
        what_fails_for_good_is_counted
        what_must_be_alone_waits_for_the_other
        a_pause_says_who_and_why_and_outlives_a_redeploy
        the_same_definition_again_changes_nothing
        scopes_come_and_go
        plans_by_hand_are_marked_and_begin_once
        a_plan_that_failed_for_good_is_executed_again
        a_schedule_that_is_removed_leaves_nothing_behind
        the_engines_own_schedules_stay
        the_end_of_an_execution_wakes_what_waits_for_it
        a_firing_may_queue_a_run_in_the_same_transaction
        who_may_not_execute_a_schedule_is_not_told_of_it
        history_leaves_with_its_runs
        executions_are_listed_page_by_page_and_by_what_they_are
        a_schedule_is_shown_with_the_sum_of_its_scopes
        many_are_fired_at_once_and_each_is_answered_by_itself;
    put_off:
        a_planning_that_fails_is_put_off_longer_each_time
        those_that_fail_are_in_nobodys_way
        whoever_applies_or_resumes_a_schedule_ends_its_waits
        a_plan_that_cannot_begin_waits_by_itself
        a_key_that_somebody_else_has_is_not_taken_for_the_plans
        plans_that_wait_delay_no_retry_and_no_end
        what_a_pause_kept_back_begins_when_it_is_resumed
        plans_of_a_scope_that_is_no_longer_listed_begin_too
        plans_that_may_run_beside_each_other_do_not_wait_for_a_second
        a_listing_that_fails_is_put_off_longer_each_time;
    retry_rule:
        chosen_targets_are_retried
        a_retried_run_is_anybodys_and_counts_all_targets
        all_of_a_failed_run_is_retried
        targets_that_cannot_be_retried_are_named
        what_was_applied_is_not_retried
        a_retry_twice_is_answered_as_the_first
        a_retry_that_nobody_takes_is_lost_after_a_day;
    pause_resume:
        a_resume_again_is_answered_after_a_worker_took_the_run
        a_worker_pauses_with_a_reason
        a_pause_sent_again_is_answered_as_the_first
        a_paused_job_waits_for_a_person
        a_resumed_job_goes_on_after_the_last_completed_step
        an_operators_pause_is_an_intent
        a_cancel_wins_over_a_pause
        a_paused_job_can_be_cancelled
        a_resume_twice_is_answered_as_the_first
        what_a_parked_run_is_told_is_for_operators
        decisions_are_kept_with_who_and_why
        the_first_decision_counts
        decisions_name_what_blocks
        decisions_are_saved_one_by_one
        decisions_of_an_earlier_pause_do_not_end_the_next
        a_run_full_of_details_still_waits_for_its_decision
        a_decision_that_would_not_be_kept_is_refused
        what_the_engine_told_before_can_be_taken_back;
    decisions:
        a_lifecycle_has_words_of_its_own
        a_lifecycle_without_words_for_decisions_takes_none
        a_null_takes_away_what_the_lifecycle_names
        a_lost_run_says_so_in_the_lifecycles_words;
    operations:
        one_operation_is_under_way_at_a_time
        an_operation_that_settles_frees_its_parent
        a_command_begins_an_operation_in_the_same_write
        another_tenants_run_is_not_operated_on
        however_an_operation_ends_its_parent_is_free
        a_child_that_is_no_operation_leaves_its_parent_alone
        operations_are_for_what_was_applied
        a_run_that_is_taken_up_again_waits_for_a_slot_of_its_key
        a_rollback_has_the_key_of_its_run_and_a_reconciliation_has_none;
    children:
        a_parent_that_is_not_there_is_refused
        a_cancel_goes_down_to_all_that_is_open
        a_held_parents_children_are_asked_at_once
        a_graceful_cancel_is_passed_on_and_so_is_a_hard_one
        what_came_after_the_cancel_is_found_by_a_sweep
        other_ends_leave_children_alone
        as_many_as_there_are_are_asked;
    feed:
        events_in_brief_leave_out_what_is_about_many_targets
        positions_rise_over_all_runs
        a_reader_goes_on_where_it_was
        a_refusal_leaves_no_event
        a_reader_skips_no_late_commit
        who_waits_for_a_change_is_woken
        a_wait_ends;
    proposals:
        an_entry_follows_what_is_decided_of_its_proposal
        an_approved_proposal_is_applied_by_a_worker_and_again_if_that_failed
        what_nobody_decides_expires_after_three_days
        of_the_proposals_for_one_revision_one_is_approved
        what_is_approved_of_one_target_is_applied_one_after_the_other;
    projection:
        runs_of_projected_lifecycles_are_told_of_once_a_page
        whoever_follows_skips_no_late_commit
        a_cursor_only_rises
        a_run_is_left_behind_until_somebody_has_caught_up_with_it
        a_draft_is_taken_on_once_by_the_engine;
    lists:
        the_newest_comes_first_page_by_page
        runs_are_found_by_what_they_are
        a_part_of_an_id_means_what_lists_show
        runs_are_found_by_text
        runs_are_found_by_playbook_and_by_when_they_came_in
        a_sample_has_the_newest_runs_that_fit
        a_sample_of_many_is_spread_over_all
        each_tenant_sees_its_own
        a_run_is_found_by_a_unique_prefix
        a_page_has_an_end
        a_list_has_the_parts_that_were_asked_for
        a_page_of_large_runs_is_short
        queues_are_counted
        the_engines_own_runs_are_in_nobodys_way
        the_clock_goes_ahead_only;
    access:
        a_token_is_found_by_its_public_half
        a_revoked_token_stays_revoked
        a_token_has_a_name_and_a_known_role
        a_token_may_expire_and_tells_its_last_use_by_the_minute
        what_is_so_already_is_not_done_again
        what_people_did_is_kept_in_order
        what_cannot_be_kept_is_not_done
        whatever_people_do_is_kept_with_who_and_why
        a_claim_for_a_tenant_takes_only_its_runs;
    tenants:
        who_has_little_is_served_whatever_another_has_waiting
        a_claim_of_many_goes_round_too
        three_take_turns_across_queues
        a_hundred_are_each_served_once_in_a_hundred
        priority_comes_before_turns_and_each_has_its_own
        claimers_of_other_queues_do_not_take_a_tenants_turn
        a_claim_for_one_takes_its_own_in_their_order
        pauses_and_limits_of_a_queue_are_one_tenants
        a_key_is_one_tenants
        who_waits_for_a_key_does_not_lose_its_turn
        what_is_left_behind_in_a_paused_queue_is_one_tenants
        who_holds_is_told_by_tenant
        several_claimers_at_once_serve_all;
    messages:
        a_content_is_known_by_the_id_that_it_came_under_first
        of_many_at_once_one_is_first
        a_content_is_forgotten_after_a_week;
    stats:
        what_ended_lately_is_counted
        durations_are_from_start_to_end
        durations_are_of_all_attempts_and_of_work_alone
        figures_are_of_one_tenant_or_of_all
        holders_are_counted_by_name;
    why_it_waits:
        what_nobody_acknowledges_says_so
        each_reason_is_told_and_the_first_that_applies
        a_key_that_is_held_is_told_with_its_holder
        who_waits_for_a_key_is_in_nobodys_way
        what_is_for_later_or_for_people_says_so
        a_run_whose_worker_is_gone_is_orphaned
        who_let_a_lease_run_out_is_gone
        workers_list_no_more_than_whoever_explains_can_hold
        a_page_is_explained_at_once
        a_tenants_own_workers_and_those_of_all_count
        workers_are_known_by_their_signs_of_life
        a_sign_of_life_that_is_wrong_is_refused;
    why_held_ones_wait:
        what_was_given_back_waits_as_a_ready_run_does
        what_was_given_back_is_first_in_line
        what_was_given_back_has_its_key
        a_wait_begins_when_the_run_is_given_back
        who_gives_a_run_back_names_a_window_or_a_retry
        an_orphan_says_what_becomes_of_it
        the_last_sign_of_life_is_told
        a_cancel_of_an_orphan_says_who_carries_it_out
        a_run_that_is_not_taken_says_who_should
        hints_can_be_typed_as_they_are;
    prune:
        successes_stay_a_month_and_failures_three
        an_installation_says_how_long_a_lifecycles_runs_stay
        what_is_not_settled_stays
        small_batches_oldest_first
        events_leave_with_their_run
        no_position_comes_again
        a_key_is_free_when_its_run_has_left
        a_run_under_operation_stays;
    verify:
        a_busy_store_is_what_its_log_says
        the_engines_own_runs_are_counted_apart
        progress_is_told;
    input_limits:
        names_and_keys_are_short_and_have_no_nul
        payloads_have_a_size
        payloads_have_a_depth_and_no_nul
        what_json_can_say_is_kept
        people_are_told_what_is_too_long
        ids_that_nobody_made_are_not_found;
    lifecycles:
        the_shipped_ones_are_known
        a_users_own_lifecycle_runs
        its_rules_for_time_count
        a_broken_one_is_refused_with_its_line
        a_version_means_one_thing
        a_run_keeps_the_version_it_was_born_with
        items_follow_as_the_log_says;
    tenant_names:
        lifecycles_of_two_tenants_have_one_name_and_version
        a_tenants_own_lifecycle_stands_before_the_installations
        a_tenants_lifecycle_has_the_tenants_items
        schedules_of_two_tenants_have_one_name
        another_tenants_schedule_is_not_there
        a_tenant_and_its_names_have_no_slash;
    targets:
        targets_are_gathered_batch_by_batch
        what_cannot_be_gathered_is_refused
        targets_are_tried_in_turn_and_the_last_one_ends_the_run
        all_targets_of_a_run_say_how_it_ended
        a_retry_waits_in_the_store_and_is_used_up
        what_waited_goes_before_what_was_never_tried
        a_throttled_target_uses_no_retry_and_does_not_wait_for_ever
        what_was_not_sent_comes_back_as_it_was
        a_lost_lease_gives_its_targets_back_under_the_same_key
        a_report_of_an_earlier_try_changes_nothing
        a_guardrail_fails_its_targets_instead_of_trying_them
        a_stop_fails_the_rest_and_then_it_is_counted
        a_cancel_is_told_and_ends_as_the_targets_say
        failed_targets_are_retried_as_a_whole_or_some
        a_discard_has_a_reason_and_is_for_what_failed
        dead_letters_are_told_by_class
        the_run_is_rolled_back_with_its_last_applied_target
        a_thousand_targets_are_counted_as_they_are
        a_run_with_thousands_of_targets_verifies
        an_answer_that_nobody_waits_for_is_an_error;
    lost_answers:
        the_key_stays_until_an_answer_settles_it
        whoever_takes_over_keeps_the_key_of_what_was_outside
        the_event_of_a_batch_has_its_type_and_the_keys_of_its_tries;
    destinations:
        forty_calls_at_once_and_then_two_a_second
        permits_are_given_once_however_many_ask
        six_throttled_answers_open_it_for_all
        a_destination_tells_what_is_left
        a_burst_slows_it_down_to_half
        what_is_no_destination_is_refused;
    alerts:
        an_alert_is_written_by_whoever_read_it_last
        an_alert_is_silenced_for_a_while_and_the_audit_log_knows
        figures_are_of_what_finished_lately
        what_a_cancel_ended_is_in_no_figure
        what_was_rolled_back_had_been_applied;
    follow:
        an_end_that_leads_items_into_success_makes_them_whole
        all_items_follow_at_once
        from_one_end_to_another_an_item_keeps_what_it_was;
}
