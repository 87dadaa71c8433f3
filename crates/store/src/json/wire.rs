//! Rows as they travel between a server and its own workers and command line: the public objects, and beside them what
//! only the engine looks at. Never a token: who holds a run was given its own by the claim.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::tally::{Tallies, Tally};
use waypost_kernel::waiting::{Reason, Waiting};
use waypost_kernel::{Catalog, Lifecycle, Refusal, Span};
use waypost_schema::{self as schema, Shape, joined};

pub use super::schedule_wire::{
    CLAIMS, EXECUTION, SCHEDULE, SCHEDULE_SCOPE, SKIPPED, execution_from, scope_from, summary_from,
};
use crate::columns::{
    self, COLUMNS, Cell, DERIVED, Field, Kind, LONG, NO_LEASE, RUN_FIELDS, Shown, TIME, columns, shape,
};
use crate::seam::error::StoreError;
use crate::seam::run::{EVENT_COLUMNS, EventRow, ITEM_COLUMNS, ItemRow, RunRow, iso, parse_time};
use crate::seam::verbs::{KeyRow, NewItem, NewRun, Parts, Pause, QueueRow};

/// The member `engine` of a run object.
pub fn engine(row: &RunRow) -> Value {
    let ours = COLUMNS.iter().filter(|column| matches!(column.shown, Shown::Ours));
    let mut engine = columns::members(row, ours.map(|column| &**column));
    engine.insert("ended".into(), row.run.ended_by.is_some().into());
    engine.insert("staying".into(), row.run.tallies.iter().map(|tally| json!(tally.staying)).collect());
    engine.into()
}

/// Why a run waits, as everybody sees it; null if it does not.
pub(crate) fn waiting(waiting: Option<&Waiting>) -> Value {
    let object = |it: &Waiting| json!({ "reason": it.reason.name(), "since": iso(it.since), "text": it.text, "hint": it.hint });
    waiting.map_or(Value::Null, object)
}

fn waits_from(object: &Value) -> Option<Box<Option<Waiting>>> {
    let text = |name: &str| object[name].as_str().map(str::to_owned);
    let read = || {
        Some(Waiting {
            reason: Reason::named(object["reason"].as_str()?)?,
            since: parse_time(object["since"].as_str()?)?,
            text: text("text")?,
            hint: text("hint"),
        })
    };
    Some(Box::new(read()))
}

/// A run object that has its `engine`.
pub fn row_from(object: &Value, catalog: &Catalog) -> Option<RunRow> {
    let lifecycle = catalog.get(object["lifecycle"].as_str()?, number(&object["version"])?)?.clone();
    let engine = object.get("engine")?;
    let state = lifecycle.state_named(object["status"].as_str()?)?;
    let mut row = RunRow::blank(lifecycle, state);
    // Never with a token: who holds a run was given its own by the claim.
    row.run.lease = object["stale_after"].is_string().then_some(NO_LEASE);
    row.run.ended_by = (engine["ended"] == true).then_some(NO_LEASE.token);
    for column in COLUMNS {
        match column.shown {
            Shown::All(_) => column.read(&mut row, &object[column.name])?,
            Shown::Ours => column.read(&mut row, &engine[column.name])?,
            Shown::Nobody => {}
        }
    }
    row.run.tallies = tallies(object, engine, &row.lifecycle);
    row.waits = object.get("waiting").and_then(waits_from);
    row.queue_position = object.get(QUEUE_POSITION).and_then(Value::as_u64);
    Some(row)
}

/// The body of a request for a run.
pub fn new_run(run: &NewRun) -> Value {
    let given = COLUMNS.iter().filter(|column| column.name != "tenant");
    let given = given.filter_map(|column| Some((column.name, column.given.as_ref()?)));
    let mut body: Map<String, Value> =
        given.map(|(name, given)| (name.to_owned(), (given.asked)(run).into_json())).collect();
    let rest = json!({
        // A request that is known by what was asked needs none.
        "lifecycle": Some(&run.lifecycle).filter(|name| !name.is_empty() || run.asked.is_none()),
        "version": run.version,
        "status": run.status,
        "input": run.input,
        "metadata": run.metadata,
        "details": run.details,
        "ttl_ms": run.ttl.map(Span::ms),
        "max_attempts": run.max_attempts,
        "reentrant": run.reentrant,
        "items": run.items.iter().map(new_item).collect::<Vec<_>>(),
        "by": run.by,
        "asked": run.asked.as_ref().filter(|_| run.idempotency_key.is_some()),
        // Whoever asks through a store has looked it up.
        "unknown_playbook": run.playbook.as_ref().map(|_| true),
    });
    body.extend(rest.as_object().cloned().unwrap_or_default());
    // An older server knows fewer members, and refuses only those that are used.
    body.retain(|name, value| name == "input" || !value.is_null());
    body.into()
}

fn new_item(item: &NewItem) -> Value {
    let mut body = json!({
        "kind": item.kind,
        "key": item.key,
        "name": item.name,
        "status": item.status,
        "max_retries": item.max_retries,
        "reruns": item.reruns,
        "role": item.role.name(),
        "details": item.details,
    });
    // An older server does not know it, and is asked for no copy.
    if item.copied {
        body["copied"] = true.into();
    }
    body
}

fn tallies(object: &Value, engine: &Value, lifecycle: &Lifecycle) -> Tallies {
    let of = |(place, kind): (usize, &Arc<Lifecycle>)| {
        let mut tally = Tally::new(kind);
        let counts = &object["items"][&*kind.name];
        for (at, state) in kind.states.iter().enumerate() {
            tally.by_state[at] = number(&counts[&*state.name]).unwrap_or_default();
            tally.staying[at] = number(&engine["staying"][place][at]).unwrap_or_default();
        }
        tally
    };
    lifecycle.items.iter().enumerate().map(of).collect()
}

pub fn event_from(object: &Value) -> Option<EventRow> {
    columns::row_of(object, EVENT_COLUMNS)
}

pub fn item_from(object: &Value) -> Option<ItemRow> {
    columns::row_of(object, ITEM_COLUMNS)
}

impl QueueRow {
    pub fn object(&self) -> Value {
        columns::object(self, QUEUE_COLUMNS)
    }
}

pub fn queue_from(object: &Value) -> Option<QueueRow> {
    columns::row_of(object, QUEUE_COLUMNS)
}

columns! { QUEUE_COLUMNS: Column of QueueRow {
    field(tenant, "The tenant that the queue belongs to.");
    field(queue = name, "The queue's name.");
    field(ready, "Runs that wait and are due.");
    field(scheduled, "Runs that wait for their time.");
    field(held, "Runs that are being worked.");
    field(orphaned, "Of those that are held, runs whose lease ran out: whoever worked them is gone.");
    field(oldest_ready_at, "Since when the oldest waiting run is due.");
    field(at_most, "How many runs may be held at once.");
    field(paused, "Why workers take nothing from the queue; null if they do.");
    field(held_by, "Some of the runs that are being worked, the oldest first.");
} }

impl KeyRow {
    pub fn object(&self) -> Value {
        columns::object(self, KEY_COLUMNS)
    }
}

pub fn key_from(object: &Value) -> Option<KeyRow> {
    columns::row_of(object, KEY_COLUMNS)
}

columns! { KEY_COLUMNS: Column of KeyRow {
    field(tenant, "The tenant that the key belongs to.");
    field(key, "The concurrency key.");
    field(at_most, "How many runs may hold the key at once.");
    field(held, "How many runs hold the key.");
    field(held_by, "Some of the runs that hold the key, the oldest first.");
    field(waiting, "How many runs with the key are due and not taken, as far as they were counted.");
} }

columns! { PAUSE_COLUMNS: Column of Pause {
    field(by, "Who asked for the pause.");
    field(reason, "Why it is paused.", LONG);
    field(at, "Since when it is paused.");
} }

impl Field for Pause {
    const KIND: Kind = Kind::Json;
    const API: schema::Kind = schema::Kind::Of(&PAUSE);

    fn cell(&self) -> Cell<'_> {
        Cell::json(columns::object(self, PAUSE_COLUMNS))
    }

    fn of(cell: Cell<'_>) -> Pause {
        columns::row_of(&Value::of(cell), PAUSE_COLUMNS).unwrap_or_default()
    }
}

/// How the API describes these objects.
pub const RUN: Shape = Shape::of_api("Run", &joined::<MEMBERS>(&RUN_FIELDS, &RUN_BESIDE_COLUMNS));
const MEMBERS: usize = DERIVED.len() + 2 + RUN_FIELDS.len();
const RUN_BESIDE_COLUMNS: [schema::Field; DERIVED.len() + 2] =
    joined::<{ DERIVED.len() + 2 }>(DERIVED_SHAPE.fields, &[WAITING_FIELD, POSITION_FIELD]);
pub(crate) const QUEUE_POSITION: &str = "queue_position";
const POSITION_FIELD: schema::Field = schema::Field {
    may_be_left_out: true,
    ..schema::optional(
        QUEUE_POSITION,
        schema::Kind::Integer(1, i64::MAX),
        "The run's place, from 1, among those that wait for the same concurrency key, or in its queue if it has none. Only of a run \
         that waits to be taken, and that is asked for by its id.",
    )
};
const WAITING_FIELD: schema::Field = schema::Field {
    may_be_left_out: true,
    ..schema::optional(
        "waiting",
        schema::Kind::Of(&WAITING),
        "Why the run waits; null if it does not. Only where one run or a list is asked for.",
    )
};
pub const WAITING: Shape = Shape::of_api(
    "Waiting",
    &[
        schema::needed(
            "reason",
            schema::Kind::Choice(&REASONS),
            "What the run waits for, as a word for programs.",
        ),
        schema::needed("since", TIME, "Since when the run waits for it."),
        schema::needed("text", LONG, "The same in words."),
        schema::optional("hint", LONG, "What to do about it."),
    ],
);
const REASONS: [&str; Reason::ALL.len()] = {
    let mut names = [""; Reason::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Reason::ALL[at].name();
        at += 1;
    }
    names
};
/// A run as a list shows it: what was not asked for is not there.
pub const LISTED_RUN: Shape = Shape::of_api("ListedRun", &optional_parts(RUN.fields));
const DERIVED_SHAPE: Shape = shape!("", DERIVED);
pub const EVENT: Shape = shape!("Event", EVENT_COLUMNS);
pub const ITEM: Shape = shape!("Item", ITEM_COLUMNS);
pub const QUEUE: Shape = shape!("Queue", QUEUE_COLUMNS);
pub const KEY: Shape = shape!("Key", KEY_COLUMNS);
pub const PAUSE: Shape = shape!("Pause", PAUSE_COLUMNS);

const fn optional_parts(all: &[schema::Field]) -> [schema::Field; MEMBERS] {
    let mut fields = [all[0]; MEMBERS];
    let mut at = 0;
    while at < all.len() {
        fields[at] = all[at];
        fields[at].may_be_left_out |= is_same(fields[at].name, Parts::FOUND_IN_BOTH);
        let mut part = 0;
        while part < Parts::NAMES.len() {
            if is_same(fields[at].name, Parts::NAMES[part]) {
                fields[at].may_be_left_out = true;
            }
            part += 1;
        }
        at += 1;
    }
    fields
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The error that a problem document was made of.
pub fn error_from(problem: &Value) -> Option<StoreError> {
    let code = problem["code"].as_str()?;
    let detail = text(&problem["detail"]).unwrap_or_default();
    if let Some(current) = problem["current"].as_str() {
        let code = waypost_kernel::Code::ALL.into_iter().find(|known| known.name() == code)?;
        let names = problem["allowed"].as_array().into_iter().flatten();
        let guard = problem["guard"].as_str();
        let refusal = Refusal {
            code,
            message: detail,
            current: current.into(),
            requested: text(&problem["requested"]).unwrap_or_default(),
            allowed: names.filter_map(|name| name.as_str().map(Into::into)).collect(),
            guard: waypost_kernel::Guard::ALL.into_iter().find(|known| Some(known.name()) == guard),
            field: FIELDS.into_iter().find(|known| Some(*known) == problem["field"].as_str()),
        };
        return Some(refusal.into());
    }
    Some(match code {
        "NOT_FOUND" => {
            let what = problem["what"].as_str().unwrap_or_default();
            let what = THINGS.into_iter().find(|known| *known == what)?;
            StoreError::NotFound { what, id: text(&problem["id"])? }
        }
        "INVALID_INPUT" | "INVALID_QUERY" | "INVALID_JSON" | "TOO_LARGE" => {
            let field = text(&problem["field"]);
            match field
                .and_then(|field| Some((detail.strip_prefix(&format!("{field}: "))?.to_owned(), field)))
            {
                Some((message, field)) => StoreError::Invalid { field, message },
                None => {
                    let (field, message) = detail.split_once(": ").unwrap_or(("request", &detail));
                    StoreError::invalid(field, message)
                }
            }
        }
        "IDEMPOTENCY_KEY_REUSED" => StoreError::KeyReused {
            key: text(&problem["idempotency_key"])?,
            run_id: text(&problem["run_id"])?,
        },
        "UNAUTHENTICATED" | "FORBIDDEN" | "CROSS_ORIGIN" => StoreError::Denied(detail),
        "PRECONDITION_FAILED" => {
            StoreError::Changed { run_id: text(&problem["run_id"])?, seq: problem["seq"].as_u64()? }
        }
        "CONCURRENT_MODIFICATION" => StoreError::Outdated(detail),
        "DATABASE_UNUSABLE" => StoreError::Unusable(detail),
        "DATABASE_UNAVAILABLE" => StoreError::Unavailable(detail),
        _ => return None,
    })
}

/// What refusals and errors name; they hold these words for ever, so they are not read from the wire.
const FIELDS: [&str; 4] = ["ttl", "status", "items", "failing"];
const THINGS: [&str; 8] = ["run", "queue", "lifecycle", "token", "item", "schedule", "execution", "agent"];

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64()?.try_into().ok()
}
