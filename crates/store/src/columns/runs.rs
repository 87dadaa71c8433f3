//! The columns of a run.

use std::ops::Deref;

use serde_json::json;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::run::Want;
use waypost_kernel::{Failure, Lease, Outcome, Run, Span, Time, Token};
use waypost_schema::{self as schema, Kind as Api, needed, optional};

use super::{COUNT, Cell, Column, Field, Kind, LONG, NAME, Shown, TIME, columns};
use crate::json::codec;
use crate::seam::run::RunRow;
use crate::seam::verbs::NewRun;

pub(crate) struct RunColumn {
    column: Column<RunRow>,
    pub when: When,
    pub given: Option<Given>,
}

/// When a column changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// Never: the run is born with it.
    Fixed,
    /// With moves of the run; tells whether one left it as it was.
    Moves(fn(&Run, &Run) -> bool),
    /// The same, and no run is born with it.
    Later(fn(&Run, &Run) -> bool),
    /// Member by member, with events.
    Patched,
}

/// A column that a request for a run names.
pub(crate) struct Given {
    pub asked: for<'a> fn(&'a NewRun) -> Cell<'a>,
    pub take: fn(&mut RunRow, &mut NewRun),
    pub check: Check,
}

/// What is refused of a request's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// It must not be empty.
    Name,
    /// The same, but it may be left out.
    Key,
    /// The id of a run, or left out.
    Id,
    /// It is no text.
    Other,
}

impl Deref for RunColumn {
    type Target = Column<RunRow>;

    fn deref(&self) -> &Column<RunRow> {
        &self.column
    }
}

impl RunColumn {
    pub fn moves(&self) -> bool {
        matches!(self.when, When::Moves(_) | When::Later(_))
    }
}

const fn of(column: Column<RunRow>, when: When) -> RunColumn {
    RunColumn { column, when, given: None }
}

macro_rules! fixed {
    ($($column:tt)+) => { of(field!($($column)+), When::Fixed) };
}

macro_rules! patched {
    ($($column:tt)+) => { of(field!($($column)+), When::Patched) };
}

/// A field that a request and the row have under the same name.
macro_rules! given {
    ($row:ident, $field:ident, $check:ident, $about:literal) => {
        RunColumn {
            given: Some(Given {
                asked: |new| new.$field.cell(),
                take: |row, new| row.$field = std::mem::take(&mut new.$field),
                check: Check::$check,
            }),
            ..fixed!($row, $field, $about)
        }
    };
}

/// A field of the run that moves change, and one that no run is born with.
macro_rules! moves {
    ($row:ident, $field:ident $(, $about:literal $(, $api:expr)?)?) => { moves!(Moves $row, $field $(, $about $(, $api)?)?) };
    ($when:ident $row:ident, $field:ident $(, $about:literal $(, $api:expr)?)?) => {
        of(field!($row, $field = run.$field $(, $about $(, $api)?)?), When::$when(|before, after| before.$field == after.$field))
    };
}

macro_rules! later {
    ($($column:tt)+) => { moves!(Later $($column)+) };
}

/// Parts of the run's lease, and of its failure.
macro_rules! lease {
    ($row:ident, $name:ident = $field:ident $($rest:tt)*) => {
        of(
            part!($row, $name = run.lease ? $field $($rest)*),
            When::Moves(|before, after| {
                before.lease.as_ref().map(|lease| &lease.$field) == after.lease.as_ref().map(|lease| &lease.$field)
            }),
        )
    };
}

macro_rules! failure {
    ($row:ident, $name:ident = $field:ident $($rest:tt)*) => {
        of(part!($row, $name = run.failure ? $field $($rest)*), When::Later(|before, after| before.failure == after.failure))
    };
}

const fn secret(column: RunColumn) -> RunColumn {
    RunColumn { column: Column { shown: Shown::Nobody, ..column.column }, ..column }
}

macro_rules! secret_lease {
    ($($column:tt)+) => { secret(lease!($($column)+)) };
}

macro_rules! secret_moves {
    ($($column:tt)+) => { secret(moves!($($column)+)) };
}

macro_rules! secret_later {
    ($($column:tt)+) => { secret(later!($($column)+)) };
}

/// What people want of the worker that holds the run; with the names of its lifecycle's states.
macro_rules! intent {
    ($row:ident,) => {
        of(
            Column {
                name: "intent",
                kind: Kind::Jsonb,
                get: |it| {
                    it.run
                        .intent
                        .as_ref()
                        .map_or(Cell::Null, |intent| Cell::json(codec::intent_json(intent, &it.lifecycle)))
                },
                set: |it, cell| it.run.intent = codec::intent_from(&Field::of(cell), &it.lifecycle),
                shown: Shown::Ours,
            },
            When::Later(|before, after| before.intent == after.intent),
        )
    };
}

/// A lease of which nothing is known yet.
pub(crate) const NO_LEASE: Lease =
    Lease { token: Token(0), worker: None, length: Span::from_seconds(60), until: Time::from_micros(0) };

// All but the state, whose number is the database's own, and the items, which have a table of theirs.
columns! { pub(crate) COLUMNS: RunColumn of RunRow {
    fixed(run_id = run.id, "The run's id.");
    given(tenant, Name, "The tenant that the run belongs to.");
    given(queue, Name, "The queue that workers take the run from.");
    given(priority, Other, "Runs of a higher priority come first.");
    moves(attempt, "How often the run was claimed.");
    fixed(max_attempts = run.max_attempts, "How often the run may be claimed; where a lost worker would lose the run, also how many workers it may have.");
    later(take_overs, "How many expired leases were taken over since the last claim.");
    moves(seq, "The number of the run's last event; its ETag.");
    secret_lease(lease_token = token, or Lease NO_LEASE);
    lease(claimed_by = worker, "The worker that holds the run.", NAME);
    moves(fence, "A number that rises with every new holder.");
    lease(lease_ms = length);
    lease(stale_after = until, "When the holder's lease ends; of a held run that nobody has (`claimed_by` is null), from when a worker may take it.", TIME);
    secret_moves(ended_by);
    secret_later(ended_with);
    fixed(queued_at = run.created_at, "When the run came in.");
    moves(started_at, "When work on the run began.");
    later(finished_at, "When the run was settled.");
    given(schedule_at, Other, "When the run may be taken at the earliest, as was asked for.");
    moves(available_at, "From when a worker may take the run.");
    moves(expires_at, "When the run's time to live ends; of a parked run, until when a person may answer.");
    given(concurrency_key, Key, "Runs with the same key are held one at a time.");
    given(correlation_id, Key, "The caller's own name for the run.");
    given(idempotency_key, Key, "The idempotency key that made the run.");
    given(title, Key, "What the run is, for people.");
    given(playbook, Key, "The playbook that says what is to be done.");
    given(parent_run_id, Id, "The run that this one belongs to.");
    given(retry_of, Id, "The run that this one repeats.");
    given(carried, Other, "A command that the run brings along: `embedded` of the request.");
    failure(error_code = code, "Why the run failed, as a code.", NAME, or Failure Failure::new("", ""));
    failure(error_msg = message, "Why the run failed, in words.", LONG);
    later(reason, "Why the run is where it is, as a person or worker said.", LONG);
    intent();
    moves(last_command);
    later(requires_cleanup);
    later(cleanup_failed);
    later(operating);
    later(resolved);
    later(forced);
    fixed(reentrant = run.reentrant);
    fixed(input, "What the run was started with.");
    patched(metadata, "An object that is shown with the run.");
    patched(details, "What the run's workers keep beside it.");
} }

// What a run's object tells beside its columns.
columns! { pub(crate) DERIVED: Column of RunRow {
    derived(needed("lifecycle", NAME, "The state machine that the run moves along."), |it| it.lifecycle.name.cell());
    derived(needed("version", COUNT, "The version of the lifecycle; a run keeps the one that it began with."), |it| it.lifecycle.version.cell());
    derived(needed("status", NAME, "The state that the run is in, as its lifecycle names it."), |it| Cell::text(it.status()));
    derived(needed("phase", Api::Choice(&Phase::NAMES), "What the run's state means to the engine, whatever its lifecycle calls it."),
        |it| Cell::text(it.phase().name()));
    derived(optional("outcome", NAME, "How the run ended, whatever its lifecycle calls that."),
        |it| it.outcome().map(Outcome::name).map_or(Cell::Null, Cell::text));
    derived(optional("intent", NAME, "What people want of the worker that holds the run."),
        |it| it.run.intent.as_ref().map_or(Cell::Null, |intent| Cell::text(intent.want.command())));
    derived(needed("cancel_requested", Api::Boolean, "Whether a cancel was requested."),
        |it| Cell::Flag(it.run.intent.as_ref().is_some_and(|intent| intent.want == Want::Cancel)));
    derived(needed("items", by_name(&by_name(&COUNT)), "The run's items, counted by kind and status."), |it| Cell::json(it.item_counts()));
    derived(needed("artifacts", Api::List { of: &Api::Object, least: 0, most: usize::MAX },
        "What the run left behind: type (image, sbom, logs, evidence or manifest), url, digest and size; `unknown_type` marks another type."),
        |it| Cell::json(json!(it.artifacts())));
    derived(needed("allowed", Api::List { of: &NAME, least: 0, most: 100 }, "Commands that a client or operator may give now.").also(&["command"]),
        |it| Cell::json(json!(waypost_kernel::allowed(&it.lifecycle, &it.run))));
} }

const fn by_name(of: &'static Api) -> Api {
    Api::Map { of, keys: None, most: usize::MAX }
}

/// A script of views with their `{labels of r}` filled in: the texts that a run is born with and only its callers look at.
pub(crate) fn with_labels(script: &str) -> String {
    let is_label = |column: &&RunColumn| {
        let check = column.given.as_ref().map(|given| given.check);
        matches!(check, Some(Check::Key | Check::Id)) && column.name != "concurrency_key"
    };
    let labels = |of: &str| {
        let names = COLUMNS.iter().filter(is_label).map(|column| format!("{of}.{}", column.name));
        names.collect::<Vec<_>>().join(", ")
    };
    let fill = |script: String, of| script.replace(&format!("{{labels of {of}}}"), &labels(of));
    ["b", "r", "NEW", "OLD"].into_iter().fold(script.to_owned(), fill)
}

/// How the API describes a run's columns.
pub(crate) const RUN_FIELDS: [schema::Field; COUNT_SHOWN] = {
    let mut fields = [needed("", NAME, ""); COUNT_SHOWN];
    let (mut at, mut next) = (0, 0);
    while at < COLUMNS.len() {
        if let Shown::All(field) = &COLUMNS[at].column.shown {
            fields[next] = *field;
            next += 1;
        }
        at += 1;
    }
    fields
};

const COUNT_SHOWN: usize = {
    let (mut at, mut count) = (0, 0);
    while at < COLUMNS.len() {
        count += matches!(COLUMNS[at].column.shown, Shown::All(_)) as usize;
        at += 1;
    }
    count
};

#[cfg(test)]
mod tests {
    use waypost_kernel::Catalog;

    use super::*;
    use crate::json::wire::{RUN, engine, row_from};

    #[test]
    fn each_column_has_a_name_of_its_own_and_a_sentence() {
        let mut names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
        assert!(RUN.fields.iter().all(|field| field.description.ends_with('.')));
    }

    #[test]
    fn what_is_sent_of_a_run_is_read_again() {
        let catalog = Catalog::shipped().expect("they are checked");
        let lifecycle = catalog.latest("deploy").expect("it is shipped").clone();
        let mut row = RunRow::blank(lifecycle.clone(), lifecycle.initial[0]);
        for (at, column) in COLUMNS.iter().enumerate() {
            let text = format!("{} {at}", column.name);
            let cell = match column.kind {
                _ if column.name == "intent" => {
                    Cell::json(json!({ "want": "pause", "by": "p", "graceful": true }))
                }
                Kind::Flag => Cell::Flag(true),
                Kind::Int2 | Kind::Int4 | Kind::Int8 => Cell::Number(at as i64 + 1),
                Kind::Time => Cell::Time(Time::from_ms(at as i64)),
                Kind::Token => Cell::Token(Token(0)),
                Kind::Text => Cell::text(&text),
                Kind::Json | Kind::Jsonb => Cell::json(json!({ "at": at })),
            };
            (column.set)(&mut row, cell);
        }
        let mut sent = row.object();
        sent["engine"] = engine(&row);
        let read = row_from(&sent, &catalog).expect("it was sent by ourselves");
        for column in COLUMNS {
            assert_ne!((column.get)(&row), Cell::Null, "{} was not set", column.name);
            // Only a store tells a repeated finish from another one.
            if column.name != "ended_with" {
                assert_eq!((column.get)(&read), (column.get)(&row), "{}", column.name);
            }
        }
    }
}
