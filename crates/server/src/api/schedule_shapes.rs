//! Objects of schedules and executions.

use waypost_kernel::text::MAX_PAGE;

use super::shapes::{COUNT, KEY, LIMIT, LONG, NAME, PAUSE, RUN};
use crate::shape::{Field, Kind, Shape, needed, optional};

const MOST_PLANS: usize = waypost_store::MAX_MANUAL;
const REASON: Field = optional("reason", Kind::Text(8_192), "Kept in the audit log.");
const BY: Field = optional("by", NAME, "Whom the request is made for.");
const SCOPES: Field = optional("scopes", Kind::List(&NAME, MOST_PLANS), "Of these alone; all if left out.");

const SCHEDULE_FIELD: Field = optional("schedule", NAME, "Of this schedule.");
const SCOPE_KIND: Field = optional("scope_kind", NAME, "Of this kind of scope.");
const SCOPE_ID: Field = optional("scope_id", NAME, "Of this scope.");
const STATUS: Field = optional("status", NAME, "Whose run is in this state.");
const CURSOR: Field = optional("cursor", Kind::Text(4_096), "From `next_cursor` of the page before.");
pub const HISTORY_QUERY: &[Field] = &[SCOPE_KIND, SCOPE_ID, STATUS, LIMIT, CURSOR];
pub const EXECUTIONS_QUERY: &[Field] = &[SCHEDULE_FIELD, SCOPE_KIND, SCOPE_ID, STATUS, LIMIT, CURSOR];

pub const SKIPPED: Shape = Shape {
    name: "Skipped",
    fields: &[
        needed("superseded", COUNT, "A later plan was executed instead."),
        needed("outside_window", COUNT, "Older than the catch-up window."),
        needed("late", COUNT, "Later than it may begin."),
        needed("overlap", COUNT, "An earlier one was under way."),
        needed("paused", COUNT, "The schedule was paused."),
    ],
};
pub const CLAIMS: Shape = Shape {
    name: "PlanClaims",
    fields: &[
        needed("won", COUNT, "Executions that were begun."),
        needed("retried", COUNT, "Begun again after a failure."),
        needed("stolen", COUNT, "Taken from somebody whose lease ran out."),
    ],
};
pub const SCHEDULE: Shape = Shape {
    name: "Schedule",
    fields: &[
        needed("name", NAME, "Its name."),
        optional("description", LONG, "For people."),
        optional("when", LONG, "Its timing in words; null if this server cannot read its definition."),
        needed("next", Kind::List(&Kind::Time, 5), "The next plan times."),
        optional("clock_change", LONG, "A clock change among them."),
        needed("applied", Kind::Boolean, "It was applied; else it is of a process's own file."),
        optional("paused", Kind::Of(&PAUSE), "Nothing of it begins."),
        optional("last_plan", Kind::Time, "The latest plan that has ended."),
        optional("last_status", NAME, "How it ended."),
        optional(
            "last_success",
            Kind::Time,
            "Of the scope that is furthest behind, the latest plan that succeeded.",
        ),
        optional("lag_s", Kind::Integer(i64::MIN, i64::MAX), "Now less that plan time."),
        needed("running", COUNT, "Executions under way."),
        needed("running_stale", COUNT, "Of these, those whose lease nobody renews."),
        needed("succeeded", COUNT, "Plans that succeeded."),
        needed("failed_unretried", COUNT, "Plans that failed for good."),
        needed("skipped", Kind::Of(&SKIPPED), "Plans that were not executed, by reason."),
        needed("claims", Kind::Of(&CLAIMS), "How executions came to whoever executed them."),
        needed("scopes", COUNT, "How many it has."),
        needed("hash", NAME, "Of its definition."),
        needed("updated_at", Kind::Time, "When its definition changed."),
        needed("definition", Kind::Any, "What its file says."),
        needed("folder", LONG, "Where its commands run."),
        needed("timing", LONG, "Equal as long as the plan times are."),
    ],
};
pub const SCHEDULES: Shape = Shape {
    name: "Schedules",
    fields: &[
        needed("schedules", Kind::List(&Kind::Of(&SCHEDULE), MAX_PAGE), "By name."),
        optional("next_cursor", NAME, "There are more."),
    ],
};
pub const APPLYING: Shape = Shape {
    name: "Applying",
    fields: &[
        needed("definition", Kind::Object, "The keys of a `[[schedule]]`, as in the reference."),
        optional("folder", Kind::Text(4_096), "Where its commands run; `/` if left out."),
        REASON,
        BY,
    ],
};
pub const APPLIED: Shape = Shape {
    name: "Applied",
    fields: &[
        needed("result", Kind::Choice(&["added", "changed", "unchanged"]), "What became of it."),
        needed("schedule", Kind::Of(&SCHEDULE), "As it is now."),
    ],
};
pub const TRIGGER: Shape = Shape { name: "Trigger", fields: &[SCOPES, REASON, BY] };
pub const BACKFILL: Shape = Shape {
    name: "Backfill",
    fields: &[
        optional("from", Kind::Time, "Plans from here on."),
        optional("to", Kind::Time, "Plans up to here; not ahead of now."),
        optional("plan_times", Kind::List(&Kind::Time, MOST_PLANS), "Instead of a range: these."),
        SCOPES,
        REASON,
        BY,
    ],
};
pub const ADDED: Shape =
    Shape { name: "PlansAdded", fields: &[needed("added", COUNT, "Plans that had no execution yet.")] };
pub const PLAN_TIME: Shape = Shape {
    name: "PlanTime",
    fields: &[
        needed("plan_time", Kind::Time, "The instant."),
        needed("local", NAME, "On the wall clock that the schedule is about."),
    ],
};
pub const PLAN_TIMES: Shape = Shape {
    name: "PlanTimes",
    fields: &[
        needed("next", Kind::List(&Kind::Of(&PLAN_TIME), 1_000), "In order."),
        optional("clock_change", LONG, "A clock change among them."),
    ],
};
pub const SCHEDULE_SCOPE: Shape = Shape {
    name: "ScheduleScope",
    fields: &[
        needed("scope_kind", NAME, "What it is."),
        needed("scope_id", NAME, "Which."),
        optional("planned_through", Kind::Time, "Every plan up to here is executed or counted."),
        optional("counts_since", Kind::Time, "Plans up to here do not count: a pause, or another timing."),
        optional("looked_at_next", Kind::Time, "When there is something to plan."),
        needed("failures", COUNT, "Plannings in a row that failed: each time it is looked at later."),
        needed("listed", Kind::Boolean, "No longer: it rests."),
        optional("last_plan", Kind::Time, "The latest plan that has ended."),
        optional("last_status", NAME, "How it ended."),
        optional("last_success", Kind::Time, "The latest plan that succeeded."),
        needed("running", COUNT, "Executions under way."),
        needed("running_stale", COUNT, "Of these, those whose lease nobody renews."),
        needed("counts", Kind::Object, "Skipped plans, claims and ends, by name; what is 0 is left out."),
    ],
};
pub const SCHEDULE_SCOPES: Shape = Shape {
    name: "ScheduleScopes",
    fields: &[needed("scopes", Kind::List(&Kind::Of(&SCHEDULE_SCOPE), 100_000), "By kind and id.")],
};
pub const EXECUTION: Shape = Shape {
    name: "Execution",
    fields: &[
        needed("schedule", NAME, "Of which schedule."),
        needed("scope_kind", NAME, "Of which kind of scope."),
        needed("scope_id", NAME, "Of which scope."),
        needed("plan_time", Kind::Time, "Of which plan."),
        optional("manual", Kind::Choice(&["trigger", "backfill"]), "It was asked for by hand."),
        optional("by", KEY, "By whom."),
        optional("run", Kind::Of(&RUN), "Its record; null: it has not begun."),
    ],
};
pub const EXECUTIONS: Shape = Shape {
    name: "Executions",
    fields: &[
        needed("executions", Kind::List(&Kind::Of(&EXECUTION), MAX_PAGE), "The latest plan first."),
        optional("next_cursor", LONG, "There are more."),
    ],
};
