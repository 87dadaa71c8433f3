//! Schedules as they travel between a server and its own command line.

use serde_json::Value;
use waypost_schema::{Kind as Api, Shape, needed, optional};

use crate::columns::{self, Cell, Field, Kind, LONG, columns, shape};
use crate::json::wire::RUN;
use crate::seam::run::RunRow;
use crate::seam::schedule_reads::{ExecutionRow, ScheduleSummary};
use crate::seam::schedules::{Counts, ScopeRow};

impl ScheduleSummary {
    /// What is stored of it; the timing and what follows from it is for whoever can read definitions.
    pub fn object(&self) -> Value {
        columns::object(self, SCHEDULE_COLUMNS)
    }
}

pub fn summary_from(object: &Value) -> Option<ScheduleSummary> {
    columns::row_of(object, SCHEDULE_COLUMNS)
}

impl ScopeRow {
    pub fn object(&self) -> Value {
        columns::object(self, SCOPE_COLUMNS)
    }
}

pub fn scope_from(object: &Value) -> Option<ScopeRow> {
    columns::row_of(object, SCOPE_COLUMNS)
}

impl ExecutionRow {
    pub fn object(&self) -> Value {
        columns::object(self, EXECUTION_COLUMNS)
    }
}

/// `run` is read by whoever knows the lifecycles.
pub fn execution_from(object: &Value, run: Option<RunRow>) -> Option<ExecutionRow> {
    Some(ExecutionRow { run, ..columns::row_of(object, EXECUTION_COLUMNS)? })
}

columns! { SCHEDULE_COLUMNS: Column of ScheduleSummary {
    field(name = row.name, "The schedule's name.");
    field(applied = row.carried, "Whether the schedule was applied; else it is of a process's own file.");
    field(paused = row.paused, "Why nothing of the schedule begins; null if it does.");
    field(last_plan, "The latest plan that has ended.");
    field(last_status, "The state in which the latest plan ended.");
    field(last_success, "Of the scope that is furthest behind, the latest plan that succeeded.");
    field(running, "Executions under way.");
    field(running_stale = stale, "Executions under way whose lease nobody renews.");
    field(succeeded = counts.succeeded, "Plans that succeeded.");
    field(failed_unretried = counts.failed, "Plans that failed for good.");
    derived(needed("skipped", Api::Of(&SKIPPED), "Plans that were not executed, by reason."),
        |it| Cell::json(columns::object(&it.counts, SKIPPED_COLUMNS)), set Json |it, cell| it.counts.add(&Field::of(cell)));
    derived(needed("claims", Api::Of(&CLAIMS), "How executions came to whoever executed them."),
        |it| Cell::json(columns::object(&it.counts, CLAIMS_COLUMNS)), set Json |it, cell| it.counts.add(&Field::of(cell)));
    field(due_at, "When something of the schedule is to be begun next; null if it is paused or has no plan any more.");
    field(fired_by, "How many processes fire the schedule; 0: nobody does.");
    field(scopes, "How many scopes the schedule has.");
    field(hash = row.hash, "The hash of the schedule's definition.");
    field(updated_at = row.updated_at, "When the definition changed.");
    field(definition = row.definition, "What the schedule's file says.");
    field(folder = row.folder, "Where the schedule's commands run.", LONG);
    field(timing = row.timing, "A text that stays equal as long as the plan times do.", LONG);
} }

columns! { SKIPPED_COLUMNS: Column of Counts {
    field(superseded, "Plans that were left out because a later one was executed instead.");
    field(outside_window, "Plans that were older than the catch-up window.");
    field(late, "Plans that were later than they may begin.");
    field(overlap, "Plans that were left out because an earlier one was under way.");
    field(paused, "Plans that were left out because the schedule was paused.");
} }

columns! { CLAIMS_COLUMNS: Column of Counts {
    field(won, "Executions that were begun.");
    field(retried, "Executions that were begun again after a failure.");
    field(stolen, "Executions that were taken from somebody whose lease ran out.");
} }

columns! { SCOPE_COLUMNS: Column of ScopeRow {
    field(scope_kind = kind, "What the scope is.");
    field(scope_id = id, "The scope's id.");
    field(planned_through = through, "Every plan up to here is executed or counted.");
    field(counts_since = since, "Plans up to here do not count: a pause, or another timing.");
    field(looked_at_next = wake_at, "When there is something to plan for the scope.");
    field(failures, "Plannings in a row that failed: each time the scope is looked at later.");
    derived(needed("listed", Api::Boolean, "Whether the schedule still lists the scope; if not, it rests."),
        |it| Cell::Flag(!it.retired), set Flag |it, cell| it.retired = !bool::of(cell));
    field(last_plan, "The latest plan that has ended.");
    field(last_status, "The state in which the latest plan ended.");
    field(last_success, "The latest plan that succeeded.");
    field(running, "Executions under way.");
    field(running_stale = stale, "Executions under way whose lease nobody renews.");
    field(counts, "Skipped plans, claims and ends, by name; what is 0 is left out.");
} }

columns! { EXECUTION_COLUMNS: Column of ExecutionRow {
    field(schedule, "The schedule that it is an execution of.");
    field(scope_kind = kind, "The kind of scope that it is an execution for.");
    field(scope_id = id, "The scope that it is an execution for.");
    field(plan_time = plan, "The plan time that it is an execution of.");
    field(manual, "How the execution was asked for by hand; null if it was not.", Api::Choice(&["trigger", "backfill"]));
    field(by, "Who asked for the execution by hand.");
    field(attempt, "How often the execution was begun, by all runs that it had.");
    field(max_attempts, "How often all runs that it had may be begun.");
    derived(optional("run", Api::Of(&RUN), "The run that executes it; null: it has not begun."),
        |it| it.run.as_ref().map_or(Cell::Null, |run| Cell::json(run.object())));
} }

impl Field for Counts {
    const KIND: Kind = Kind::Json;
    const API: Api = Api::Object;

    fn cell(&self) -> Cell<'_> {
        Cell::json(self.to_json())
    }

    fn of(cell: Cell<'_>) -> Counts {
        Counts::from_json(&Value::of(cell))
    }
}

pub const SKIPPED: Shape = shape!("Skipped", SKIPPED_COLUMNS);
pub const CLAIMS: Shape = shape!("PlanClaims", CLAIMS_COLUMNS);
pub const SCHEDULE_SCOPE: Shape = shape!("ScheduleScope", SCOPE_COLUMNS);
pub const EXECUTION: Shape = shape!("Execution", EXECUTION_COLUMNS);
/// What is stored of a schedule.
pub const SCHEDULE: Shape = shape!("Schedule", SCHEDULE_COLUMNS);
