//! What is answered about schedules and executions.

use waypost_kernel::text::MAX_PAGE;
use waypost_schema::{Kind, Shape, needed, optional};

use super::kinds::{COUNT, KEY, LONG, NAME, TIME, list};
use super::shapes::{PAUSE, RUN, shapes};

shapes! {
    SKIPPED "Skipped" [
        needed("superseded", COUNT, "Plans that were left out because a later one was executed instead."),
        needed("outside_window", COUNT, "Plans that were older than the catch-up window."),
        needed("late", COUNT, "Plans that were later than they may begin."),
        needed("overlap", COUNT, "Plans that were left out because an earlier one was under way."),
        needed("paused", COUNT, "Plans that were left out because the schedule was paused."),
    ];
    CLAIMS "PlanClaims" [
        needed("won", COUNT, "Executions that were begun."),
        needed("retried", COUNT, "Executions that were begun again after a failure."),
        needed("stolen", COUNT, "Executions that were taken from somebody whose lease ran out."),
    ];
    SCHEDULE "Schedule" [
        needed("name", NAME, "The schedule's name."),
        optional("description", LONG, "What the schedule is for, for people."),
        optional("when", LONG, "The schedule's timing in words; null if this server cannot read its definition."),
        needed("next", list(&TIME, 5), "The next plan times."),
        optional("clock_change", LONG, "A clock change among the next plan times."),
        needed("applied", Kind::Boolean, "Whether the schedule was applied; else it is of a process's own file."),
        optional("paused", Kind::Of(&PAUSE), "Why nothing of the schedule begins; null if it does."),
        optional("last_plan", TIME, "The latest plan that has ended."),
        optional("last_status", NAME, "The state in which the latest plan ended."),
        optional("last_success", TIME, "Of the scope that is furthest behind, the latest plan that succeeded."),
        optional("lag_s", Kind::Integer(i64::MIN, i64::MAX), "Seconds from `last_success` to now."),
        needed("running", COUNT, "Executions under way."),
        needed("running_stale", COUNT, "Executions under way whose lease nobody renews."),
        needed("succeeded", COUNT, "Plans that succeeded."),
        needed("failed_unretried", COUNT, "Plans that failed for good."),
        needed("skipped", Kind::Of(&SKIPPED), "Plans that were not executed, by reason."),
        needed("claims", Kind::Of(&CLAIMS), "How executions came to whoever executed them."),
        needed("scopes", COUNT, "How many scopes the schedule has."),
        needed("hash", NAME, "The hash of the schedule's definition."),
        needed("updated_at", TIME, "When the definition changed."),
        needed("definition", Kind::Any, "What the schedule's file says."),
        needed("folder", LONG, "Where the schedule's commands run."),
        needed("timing", LONG, "A text that stays equal as long as the plan times do."),
    ];
    SCHEDULES "Schedules" [
        needed("schedules", list(&Kind::Of(&SCHEDULE), MAX_PAGE), "Schedules by name."),
        optional("next_cursor", NAME, "What to ask `cursor` for the next page; null at the end."),
    ];
    APPLIED "Applied" [
        needed("result", Kind::Choice(&["added", "changed", "unchanged"]), "What became of the definition."),
        needed("schedule", Kind::Of(&SCHEDULE), "The schedule as it is now."),
    ];
    ADDED "PlansAdded" [needed("added", COUNT, "Plans that had no execution yet.")];
    PLAN_TIME "PlanTime" [
        needed("plan_time", TIME, "The instant of the plan."),
        needed("local", NAME, "The plan time on the wall clock that the schedule is about."),
    ];
    PLAN_TIMES "PlanTimes" [
        needed("next", list(&Kind::Of(&PLAN_TIME), 1_000), "Plan times in order."),
        optional("clock_change", LONG, "A clock change among the plan times."),
    ];
    SCHEDULE_SCOPE "ScheduleScope" [
        needed("scope_kind", NAME, "What the scope is."),
        needed("scope_id", NAME, "The scope's id."),
        optional("planned_through", TIME, "Every plan up to here is executed or counted."),
        optional("counts_since", TIME, "Plans up to here do not count: a pause, or another timing."),
        optional("looked_at_next", TIME, "When there is something to plan for the scope."),
        needed("failures", COUNT, "Plannings in a row that failed: each time the scope is looked at later."),
        needed("listed", Kind::Boolean, "Whether the schedule still lists the scope; if not, it rests."),
        optional("last_plan", TIME, "The latest plan that has ended."),
        optional("last_status", NAME, "The state in which the latest plan ended."),
        optional("last_success", TIME, "The latest plan that succeeded."),
        needed("running", COUNT, "Executions under way."),
        needed("running_stale", COUNT, "Executions under way whose lease nobody renews."),
        needed("counts", Kind::Object, "Skipped plans, claims and ends, by name; what is 0 is left out."),
    ];
    SCHEDULE_SCOPES "ScheduleScopes" [needed("scopes", list(&Kind::Of(&SCHEDULE_SCOPE), 100_000), "Scopes by kind and id.")];
    EXECUTION "Execution" [
        needed("schedule", NAME, "The schedule that it is an execution of."),
        needed("scope_kind", NAME, "The kind of scope that it is an execution for."),
        needed("scope_id", NAME, "The scope that it is an execution for."),
        needed("plan_time", TIME, "The plan time that it is an execution of."),
        optional("manual", Kind::Choice(&["trigger", "backfill"]), "How the execution was asked for by hand; null if it was not."),
        optional("by", KEY, "Who asked for the execution by hand."),
        optional("run", Kind::Of(&RUN), "The run that executes it; null: it has not begun."),
    ];
    EXECUTIONS "Executions" [
        needed("executions", list(&Kind::Of(&EXECUTION), MAX_PAGE), "Executions, the latest plan first."),
        optional("next_cursor", LONG, "What to ask `cursor` for the next page; null at the end."),
    ];
}
