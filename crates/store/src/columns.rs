//! The columns of a run, once: what each is called, what it holds, whether it stays or moves, and which field it is.
//! Select lists, reads, inserts and updates are made from this table.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::{Failure, Lease, Run, Span, Time, Token};

use crate::codec;
use crate::run::{RunRow, shared};

/// A column's value, on its way between a row and a database.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Flag(bool),
    Number(i64),
    Time(Time),
    Token(Token),
    Text(Cow<'a, str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flag,
    Int2,
    Int4,
    Int8,
    Time,
    Token,
    Text,
    /// JSON whose text is kept as it came.
    Json,
    /// JSON that the database looks into.
    Jsonb,
}

#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// It changes after the run was born.
    pub moves: bool,
    pub get: for<'a> fn(&'a RunRow) -> Cell<'a>,
    /// In the order of the table: the lease's parts come after its token.
    pub set: fn(&mut RunRow, Cell<'_>),
}

impl std::fmt::Debug for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Column").field("name", &self.name).finish_non_exhaustive()
    }
}

const fn born(
    name: &'static str,
    kind: Kind,
    get: for<'a> fn(&'a RunRow) -> Cell<'a>,
    set: fn(&mut RunRow, Cell<'_>),
) -> Column {
    Column { name, kind, moves: false, get, set }
}

const fn moving(
    name: &'static str,
    kind: Kind,
    get: for<'a> fn(&'a RunRow) -> Cell<'a>,
    set: fn(&mut RunRow, Cell<'_>),
) -> Column {
    Column { name, kind, moves: true, get, set }
}

/// All but the state, whose number is the database's own, and the items, which have a table of theirs.
pub(crate) const COLUMNS: &[Column] = &[
    born("run_id", Kind::Text, |it| text(&it.run.id), |it, cell| it.run.id = cell.text().into()),
    born("tenant", Kind::Text, |it| text(&it.tenant), |it, cell| it.tenant = cell.text()),
    born("queue", Kind::Text, |it| text(&it.queue), |it, cell| it.queue = cell.text()),
    born("priority", Kind::Int2, |it| number(it.priority), |it, cell| it.priority = cell.number() as i16),
    born(
        "queued_at",
        Kind::Time,
        |it| Cell::Time(it.run.created_at),
        |it, cell| {
            it.run.created_at = cell.time().unwrap_or_default();
        },
    ),
    born("schedule_at", Kind::Time, |it| time(it.schedule_at), |it, cell| it.schedule_at = cell.time()),
    born(
        "max_attempts",
        Kind::Int4,
        |it| number(it.run.max_attempts),
        |it, cell| {
            it.run.max_attempts = cell.number() as u32;
        },
    ),
    born(
        "reentrant",
        Kind::Flag,
        |it| Cell::Flag(it.run.reentrant),
        |it, cell| it.run.reentrant = cell.flag(),
    ),
    born(
        "concurrency_key",
        Kind::Text,
        |it| maybe(&it.concurrency_key),
        |it, cell| {
            it.concurrency_key = cell.maybe();
        },
    ),
    born(
        "correlation_id",
        Kind::Text,
        |it| maybe(&it.correlation_id),
        |it, cell| {
            it.correlation_id = cell.maybe();
        },
    ),
    born(
        "idempotency_key",
        Kind::Text,
        |it| maybe(&it.idempotency_key),
        |it, cell| {
            it.idempotency_key = cell.maybe();
        },
    ),
    born(
        "parent_run_id",
        Kind::Text,
        |it| maybe(&it.parent_run_id),
        |it, cell| it.parent_run_id = cell.maybe(),
    ),
    born("retry_of", Kind::Text, |it| maybe(&it.retry_of), |it, cell| it.retry_of = cell.maybe()),
    born("playbook", Kind::Text, |it| maybe(&it.playbook), |it, cell| it.playbook = cell.maybe()),
    born(
        "carried",
        Kind::Json,
        |it| it.carried.as_ref().map_or(Cell::Null, json),
        |it, cell| {
            it.carried = cell.maybe().map(|text| parsed(&text));
        },
    ),
    born("input", Kind::Json, |it| json(&it.input), |it, cell| it.input = Arc::new(cell.json())),
    moving("metadata", Kind::Jsonb, |it| members(&it.metadata), |it, cell| it.metadata = cell.members()),
    moving("details", Kind::Jsonb, |it| members(&it.details), |it, cell| it.details = cell.members()),
    moving("seq", Kind::Int4, |it| number(it.run.seq as i64), |it, cell| it.run.seq = cell.number() as u64),
    moving(
        "attempt",
        Kind::Int4,
        |it| number(it.run.attempt),
        |it, cell| it.run.attempt = cell.number() as u32,
    ),
    moving(
        "take_overs",
        Kind::Int4,
        |it| number(it.run.take_overs),
        |it, cell| {
            it.run.take_overs = cell.number() as u32;
        },
    ),
    moving(
        "fence",
        Kind::Int4,
        |it| number(it.run.fence as i64),
        |it, cell| it.run.fence = cell.number() as u64,
    ),
    moving(
        "lease_token",
        Kind::Token,
        |it| lease(&it.run, |lease| Cell::Token(lease.token)),
        |it, cell| {
            it.run.lease = cell.token().map(|token| Lease {
                token,
                worker: None,
                length: Span::from_seconds(60),
                until: Time::default(),
            });
        },
    ),
    moving(
        "claimed_by",
        Kind::Text,
        |it| lease(&it.run, |lease| maybe_text(lease.worker.as_deref())),
        |it, cell| {
            if let Some(lease) = &mut it.run.lease {
                lease.worker = cell.maybe().map(Into::into);
            }
        },
    ),
    moving(
        "lease_ms",
        Kind::Int8,
        |it| lease(&it.run, |lease| number(lease.length.ms())),
        |it, cell| {
            if let (Some(lease), Cell::Number(ms)) = (&mut it.run.lease, cell) {
                lease.length = Span::from_ms(ms);
            }
        },
    ),
    moving(
        "stale_after",
        Kind::Time,
        |it| lease(&it.run, |lease| Cell::Time(lease.until)),
        |it, cell| {
            if let Some(lease) = &mut it.run.lease {
                lease.until = cell.time().unwrap_or_default();
            }
        },
    ),
    moving(
        "ended_by",
        Kind::Token,
        |it| it.run.ended_by.map_or(Cell::Null, Cell::Token),
        |it, cell| {
            it.run.ended_by = cell.token();
        },
    ),
    moving(
        "last_command",
        Kind::Text,
        |it| text(&it.run.last_command),
        |it, cell| {
            it.run.last_command = cell.text().into();
        },
    ),
    moving("intent", Kind::Jsonb, intent, |it, cell| {
        it.run.intent = cell.maybe().and_then(|text| codec::intent_from(&parsed(&text), &it.lifecycle));
    }),
    moving(
        "requires_cleanup",
        Kind::Flag,
        |it| Cell::Flag(it.run.requires_cleanup),
        |it, cell| {
            it.run.requires_cleanup = cell.flag();
        },
    ),
    moving(
        "cleanup_failed",
        Kind::Flag,
        |it| Cell::Flag(it.run.cleanup_failed),
        |it, cell| {
            it.run.cleanup_failed = cell.flag();
        },
    ),
    moving(
        "operating",
        Kind::Flag,
        |it| Cell::Flag(it.run.operating),
        |it, cell| {
            it.run.operating = cell.flag();
        },
    ),
    moving(
        "resolved",
        Kind::Flag,
        |it| Cell::Flag(it.run.resolved),
        |it, cell| it.run.resolved = cell.flag(),
    ),
    moving("forced", Kind::Flag, |it| Cell::Flag(it.run.forced), |it, cell| it.run.forced = cell.flag()),
    moving(
        "reason",
        Kind::Text,
        |it| maybe_text(it.run.reason.as_deref()),
        |it, cell| {
            it.run.reason = cell.maybe().map(Into::into);
        },
    ),
    moving(
        "error_code",
        Kind::Text,
        |it| failure(&it.run, |failure| text(&failure.code)),
        |it, cell| {
            it.run.failure = cell.maybe().map(|code| Failure::new(&code, ""));
        },
    ),
    moving(
        "error_msg",
        Kind::Text,
        |it| failure(&it.run, |failure| text(&failure.message)),
        |it, cell| {
            if let Some(failure) = &mut it.run.failure {
                failure.message = cell.text().into();
            }
        },
    ),
    moving(
        "started_at",
        Kind::Time,
        |it| time(it.run.started_at),
        |it, cell| it.run.started_at = cell.time(),
    ),
    moving(
        "finished_at",
        Kind::Time,
        |it| time(it.run.finished_at),
        |it, cell| it.run.finished_at = cell.time(),
    ),
    moving(
        "available_at",
        Kind::Time,
        |it| time(it.run.available_at),
        |it, cell| {
            it.run.available_at = cell.time();
        },
    ),
    moving(
        "expires_at",
        Kind::Time,
        |it| time(it.run.expires_at),
        |it, cell| it.run.expires_at = cell.time(),
    ),
];

impl Kind {
    /// Its type in PostgreSQL.
    pub fn postgres(self) -> &'static str {
        match self {
            Kind::Flag => "boolean",
            Kind::Int2 => "smallint",
            Kind::Int4 => "int",
            Kind::Int8 => "bigint",
            Kind::Time => "timestamptz",
            Kind::Token => "uuid",
            Kind::Text => "text",
            Kind::Json => "json",
            Kind::Jsonb => "jsonb",
        }
    }
}

impl Cell<'_> {
    fn flag(&self) -> bool {
        matches!(self, Cell::Flag(true))
    }

    fn number(&self) -> i64 {
        if let Cell::Number(number) = self { *number } else { 0 }
    }

    fn time(&self) -> Option<Time> {
        if let Cell::Time(time) = self { Some(*time) } else { None }
    }

    fn token(&self) -> Option<Token> {
        if let Cell::Token(token) = self { Some(*token) } else { None }
    }

    fn maybe(self) -> Option<String> {
        if let Cell::Text(text) = self { Some(text.into_owned()) } else { None }
    }

    fn text(self) -> String {
        self.maybe().unwrap_or_default()
    }

    fn json(self) -> Value {
        if let Cell::Text(text) = self { parsed(&text) } else { Value::Null }
    }

    fn members(self) -> Arc<Map<String, Value>> {
        match self.json() {
            Value::Object(members) => shared(members),
            _ => shared(Map::new()),
        }
    }
}

fn text(text: &str) -> Cell<'_> {
    Cell::Text(Cow::Borrowed(text))
}

fn maybe_text(value: Option<&str>) -> Cell<'_> {
    value.map_or(Cell::Null, text)
}

fn maybe(value: &Option<String>) -> Cell<'_> {
    maybe_text(value.as_deref())
}

fn number(number: impl Into<i64>) -> Cell<'static> {
    Cell::Number(number.into())
}

fn time(time: Option<Time>) -> Cell<'static> {
    time.map_or(Cell::Null, Cell::Time)
}

fn lease<'a>(run: &'a Run, get: fn(&'a Lease) -> Cell<'a>) -> Cell<'a> {
    run.lease.as_ref().map_or(Cell::Null, get)
}

fn failure<'a>(run: &'a Run, get: fn(&'a Failure) -> Cell<'a>) -> Cell<'a> {
    run.failure.as_ref().map_or(Cell::Null, get)
}

fn intent(row: &RunRow) -> Cell<'_> {
    row.run.intent.as_ref().map_or(Cell::Null, |intent| json(&codec::intent_json(intent, &row.lifecycle)))
}

fn json(value: &Value) -> Cell<'static> {
    Cell::Text(Cow::Owned(value.to_string()))
}

fn members(members: &Map<String, Value>) -> Cell<'static> {
    let text = if members.is_empty() { Ok("{}".to_owned()) } else { serde_json::to_string(members) };
    Cell::Text(Cow::Owned(text.unwrap_or_else(|_| "{}".to_owned())))
}

fn parsed(text: &str) -> Value {
    if text == "{}" { Value::Object(Map::new()) } else { serde_json::from_str(text).unwrap_or(Value::Null) }
}
