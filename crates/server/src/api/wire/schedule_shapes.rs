//! What is answered about schedules and executions.

use waypost_kernel::text::MAX_PAGE;
use waypost_schema::{Field, Kind, Shape, joined, needed, optional};
use waypost_store::wire;
pub use waypost_store::wire::{EXECUTION, SCHEDULE_SCOPE};

use super::kinds::{COUNT, LONG, NAME, TIME, list};
use super::shapes::shapes;

/// What follows from a definition, beside what is stored.
const READ: [Field; 6] = [
    optional("description", LONG, "What the schedule is for, for people."),
    optional("when", LONG, "The schedule's timing in words; null if this server cannot read its definition."),
    needed("next", list(&TIME, 5), "The next plan times."),
    optional("clock_change", LONG, "A clock change among the next plan times."),
    optional(
        "overdue_s",
        COUNT,
        "Seconds for which the next plan should have begun; null if nothing is late.",
    ),
    optional("lag_s", Kind::Integer(i64::MIN, i64::MAX), "Seconds from `last_success` to now."),
];
pub const SCHEDULE: Shape = Shape::of_api(
    "Schedule",
    &joined::<{ wire::SCHEDULE.fields.len() + READ.len() }>(wire::SCHEDULE.fields, &READ),
);

shapes! {
    SCHEDULES "Schedules" [
        needed("schedules", list(&Kind::Of(&SCHEDULE), MAX_PAGE), "Schedules by name."),
        optional("next_cursor", LONG, "What to ask `cursor` for the next page; null at the end."),
    ];
    APPLIED "Applied" [
        needed("result", Kind::Choice(&["added", "changed", "unchanged"]), "What became of the definition."),
        needed("schedule", Kind::Of(&SCHEDULE), "The schedule as it is now."),
    ];
    ADDED "PlansAdded" [
        needed("added", COUNT, "Plans that had no execution yet."),
        optional("hint", LONG, "What to do so that they are executed, if nobody fires the schedule."),
    ];
    PLAN_TIME "PlanTime" [
        needed("plan_time", TIME, "The instant of the plan."),
        needed("local", NAME, "The plan time on the wall clock that the schedule is about."),
    ];
    PLAN_TIMES "PlanTimes" [
        needed("next", list(&Kind::Of(&PLAN_TIME), 1_000), "Plan times in order."),
        optional("clock_change", LONG, "A clock change among the plan times."),
    ];
    SCHEDULE_SCOPES "ScheduleScopes" [needed("scopes", list(&Kind::Of(&SCHEDULE_SCOPE), 100_000), "Scopes by kind and id.")];
    EXECUTIONS "Executions" [
        needed("executions", list(&Kind::Of(&EXECUTION), MAX_PAGE), "Executions, the latest plan first."),
        optional("next_cursor", LONG, "What to ask `cursor` for the next page; null at the end."),
    ];
}
