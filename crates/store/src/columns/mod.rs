//! Columns, each stated once: what it is called, what it holds, which field of its row it is, and what people are told
//! about it. Select lists, reads, inserts and updates of both databases, the objects on the wire and their shapes in
//! the API's reference are made from these tables.

mod cell;
mod runs;

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};
use waypost_kernel::item::Role;
use waypost_schema as schema;

pub(crate) use cell::{COUNT, Cell, Field, Kind, LONG, NAME, TIME, members_text, parse};
pub(crate) use runs::{COLUMNS, Check, DERIVED, NO_LEASE, RUN_FIELDS, RunColumn, When, with_labels};

pub(crate) struct Column<R: 'static> {
    pub name: &'static str,
    pub kind: Kind,
    pub get: for<'a> fn(&'a R) -> Cell<'a>,
    /// In the order of the table: parts of what may be absent come after what tells that it is there.
    pub set: fn(&mut R, Cell<'_>),
    pub shown: Shown,
}

/// Who sees a column's value.
pub(crate) enum Shown {
    /// Everybody, and how the API describes it.
    All(schema::Field),
    /// Waypost's own workers and command line.
    Ours,
    Nobody,
}

/// A table of columns. Each line makes one: a field of the row, a part of one, or what follows from others.
macro_rules! columns {
    ($vis:vis $table:ident: $column:ident of $row:ident { $($make:ident($($args:tt)*);)+ }) => {
        $vis const $table: &[$crate::columns::columns!(@ $column $row)] = {
            #[allow(unused_imports, reason = "which of them a table needs differs")]
            use $crate::columns::{derived, field, nullable, part};
            &[$($make!($row, $($args)*)),+]
        };
    };
    (@ Column $row:ident) => { $crate::columns::Column<$row> };
    (@ $column:ident $row:ident) => { $column };
}
pub(crate) use columns;

/// A field of the row, under its own name or another one. With a description everybody sees it; it may be told as
/// another kind than its type's own.
macro_rules! field {
    ($row:ident, $name:ident $(, $about:literal $(, $api:expr)?)?) => {
        $crate::columns::field!($row, $name = $name $(, $about $(, $api)?)?)
    };
    ($row:ident, $name:ident = $($path:ident).+ $(, $about:literal $(, $api:expr)?)?) => {
        $crate::columns::Column {
            name: stringify!($name),
            kind: $crate::columns::kind(|it: &$row| &it.$($path).+),
            get: |it| $crate::columns::Field::cell(&it.$($path).+),
            set: |it, cell| it.$($path).+ = $crate::columns::Field::of(cell),
            shown: $crate::columns::field!(@ $row, $name, ($($path).+) $(, $about $(, $api)?)?),
        }
    };
    (@ $row:ident, $name:ident, ($($path:ident).+)) => { $crate::columns::Shown::Ours };
    (@ $row:ident, $name:ident, ($($path:ident).+), $about:literal $(, $api:expr)?) => {
        $crate::columns::Shown::All(waypost_schema::Field {
            $(kind: $api,)?
            ..$crate::columns::api(stringify!($name), $about, |it: &$row| &it.$($path).+)
        })
    };
}
pub(crate) use field;

/// A field whose type does not tell that it may be null.
macro_rules! nullable {
    ($row:ident, $name:ident, $about:literal) => {
        $crate::columns::Column {
            shown: $crate::columns::Shown::All(waypost_schema::optional(
                stringify!($name),
                waypost_schema::Kind::Any,
                $about,
            )),
            ..$crate::columns::field!($row, $name)
        }
    };
}
pub(crate) use nullable;

/// A field of a part of the row, null while that is absent. `or` makes the part of which it is the first column; the
/// others are read only if it is there.
macro_rules! part {
    ($row:ident, $name:ident = $($path:ident).+ ? $field:ident $(, $about:literal, $api:expr)? $(, or $part:ident $make:expr)?) => {
        $crate::columns::Column {
            name: stringify!($name),
            kind: $crate::columns::kind_of_part(|it: &$row| &it.$($path).+, |part| &part.$field),
            get: |it| it.$($path).+.as_ref().map_or($crate::columns::Cell::Null, |part| $crate::columns::Field::cell(&part.$field)),
            set: |it, cell| $crate::columns::part!(@ it.$($path).+, $field, cell $(, $part $make)?),
            shown: $crate::columns::part!(@ $($name, $about, $api)?),
        }
    };
    (@ $it:ident.$($path:ident).+, $field:ident, $cell:ident) => {
        if let (Some(part), true) = (&mut $it.$($path).+, $cell != $crate::columns::Cell::Null) {
            part.$field = $crate::columns::Field::of($cell);
        }
    };
    (@ $it:ident.$($path:ident).+, $field:ident, $cell:ident, $part:ident $make:expr) => {{
        let is_there = $cell != $crate::columns::Cell::Null;
        $it.$($path).+ = is_there.then(|| $part { $field: $crate::columns::Field::of($cell), ..$make });
    }};
    (@) => { $crate::columns::Shown::Ours };
    (@ $name:ident, $about:literal, $api:expr) => {
        $crate::columns::Shown::All(waypost_schema::optional(stringify!($name), $api, $about))
    };
}
pub(crate) use part;

/// What is told of a row without being a field of it; `set`, if it can be read again.
macro_rules! derived {
    ($row:ident, $field:expr, $get:expr $(, set $kind:ident $set:expr)?) => {{
        let column: $crate::columns::Column<$row> = $crate::columns::Column {
            $(kind: $crate::columns::Kind::$kind, set: $set,)?
            ..$crate::columns::computed($field, $get)
        };
        column
    }};
}
pub(crate) use derived;

pub(crate) const fn computed<R>(field: schema::Field, get: for<'a> fn(&'a R) -> Cell<'a>) -> Column<R> {
    Column { name: field.name, kind: Kind::Json, get, set: |_, _| {}, shown: Shown::All(field) }
}

pub(crate) const fn kind_of_part<R, P, T: Field>(_: fn(&R) -> &Option<P>, _: fn(&P) -> &T) -> Kind {
    T::KIND
}

pub(crate) const fn kind<R, T: Field>(_: fn(&R) -> &T) -> Kind {
    T::KIND
}

pub(crate) const fn api<R, T: Field>(
    name: &'static str,
    about: &'static str,
    _: fn(&R) -> &T,
) -> schema::Field {
    schema::Field { is_needed: T::IS_NEEDED, ..schema::needed(name, T::API, about) }
}

impl<R> Column<R> {
    /// Takes what another process sent. None if that cannot be its value.
    pub fn read(&self, row: &mut R, value: &Value) -> Option<()> {
        let cell = self.kind.cell_of(value)?;
        let may_be_null = match &self.shown {
            Shown::All(field) => !field.is_needed || self.kind.is_json(),
            Shown::Ours | Shown::Nobody => true,
        };
        (cell != Cell::Null || may_be_null).then(|| (self.set)(row, cell))
    }

    /// What is stored as JSON and was read as nothing, because it is not what the column holds: in words.
    pub fn unread(&self, row: &R, stored: &str) -> Option<String> {
        let is_nothing = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let is_lost = self.kind.is_json()
            && is_nothing(&(self.get)(row).into_json())
            && !serde_json::from_str(stored).is_ok_and(|value| is_nothing(&value));
        is_lost.then(|| format!("{} is {}, which cannot be read", self.name, shortened(stored)))
    }

    pub fn is_shown(&self) -> bool {
        matches!(self.shown, Shown::All(_))
    }
}

impl<R> std::fmt::Debug for Column<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Column").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A value in a line for people.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]).into(),
        None => text.into(),
    }
}

/// A row as the object that the wire has, written out without a copy of its values.
pub(crate) struct Object<'r, R: 'static, C> {
    pub row: &'r R,
    pub columns: C,
    /// What stands beside its columns.
    pub more: Vec<(&'static str, Value)>,
}

impl<'c, R, C> Serialize for Object<'_, R, C>
where
    R: 'static,
    C: Iterator<Item = &'c Column<R>> + Clone,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for column in self.columns.clone() {
            object.serialize_entry(column.name, &(column.get)(self.row))?;
        }
        for (name, value) in &self.more {
            object.serialize_entry(name, value)?;
        }
        object.end()
    }
}

/// What everybody sees of a row.
pub(crate) fn object<R>(row: &R, columns: &[Column<R>]) -> Value {
    members(row, columns.iter().filter(|column| column.is_shown())).into()
}

pub(crate) fn members<'c, R: 'static>(
    row: &R,
    columns: impl Iterator<Item = &'c Column<R>>,
) -> Map<String, Value> {
    columns.map(|column| (column.name.to_owned(), (column.get)(row).into_json())).collect()
}

/// The row that such an object was made of.
pub(crate) fn row_of<R: Default>(object: &Value, columns: &[Column<R>]) -> Option<R> {
    let mut row = R::default();
    columns.iter().try_for_each(|column| column.read(&mut row, &object[column.name]))?;
    Some(row)
}

/// The index's order of items that wait for nothing. PostgreSQL's planner does not conclude from `not_before IS NULL` that `place` alone
/// is the same order, and would read and sort all of them for each page.
pub(crate) const IN_ORDER: &str = "not_before, place";

/// The keys of the first items of each role that a condition finds. The index on status has them in order for each: all that it is
/// asked for of one role is read from there.
pub(crate) fn of_each_role(items: &str, condition: &str, order: &str, limit: &str) -> String {
    let of = |role: Role| {
        let role = role.name();
        format!(
            "SELECT key FROM (SELECT key FROM {items} WHERE {condition} AND role = '{role}' ORDER BY {order} LIMIT {limit}) AS {role}s"
        )
    };
    Role::ALL.map(of).join(" UNION ALL ")
}

/// The shape of that object.
macro_rules! shape {
    ($name:literal, $columns:expr) => {
        Shape::of_api($name, &$crate::columns::fields::<_, { $columns.len() }>($columns))
    };
}
pub(crate) use shape;

/// How the API describes columns that everybody sees.
pub(crate) const fn fields<R, const N: usize>(columns: &[Column<R>]) -> [schema::Field; N] {
    let mut fields = [schema::needed("", NAME, ""); N];
    let mut at = 0;
    while at < N {
        if let Shown::All(field) = &columns[at].shown {
            fields[at] = *field;
        }
        at += 1;
    }
    fields
}
