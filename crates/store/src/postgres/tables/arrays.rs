//! Parameters that are lists, one for each column.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;
use waypost_kernel::Time;

use crate::columns::{Cell, Kind};
use crate::postgres::sql::{stamp, uuid};
use crate::seam::run::RunRow;

/// The parameters of a call.
#[derive(Default)]
pub struct Parameters<'a>(Vec<(Box<dyn ToSql + Sync + Send + 'a>, Type)>);

impl std::fmt::Debug for Parameters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Parameters").field(&self.0.len()).finish()
    }
}

impl<'a> Parameters<'a> {
    pub fn add(&mut self, value: impl ToSql + Sync + Send + 'a, kind: Type) {
        self.0.push((Box::new(value), kind));
    }

    /// A value for each row; once, if it is the same for all.
    pub fn column(&mut self, kind: Kind, cells: impl Iterator<Item = Cell<'a>>) {
        macro_rules! list {
            ($array:ident, $cell:ident => $value:expr) => {
                self.folded(cells.map(|$cell| $value).collect(), Type::$array)
            };
        }
        let number = |cell: Cell<'_>| if let Cell::Number(number) = cell { Some(number) } else { None };
        match kind {
            Kind::Flag => {
                list!(BOOL_ARRAY, cell => if let Cell::Flag(flag) = cell { Some(flag) } else { None });
            }
            Kind::Int2 => list!(INT2_ARRAY, cell => number(cell).map(|number| number as i16)),
            Kind::Int4 => list!(INT4_ARRAY, cell => number(cell).map(|number| number as i32)),
            Kind::Int8 => list!(INT8_ARRAY, cell => number(cell)),
            Kind::Time => list!(TIMESTAMPTZ_ARRAY, cell => time(&cell)),
            Kind::Token => list!(UUID_ARRAY, cell => token(&cell)),
            Kind::Text | Kind::Json | Kind::Jsonb => list!(TEXT_ARRAY, cell => cell.into_text()),
        }
    }

    pub fn texts(&mut self, texts: impl Iterator<Item = Option<Cow<'a, str>>>) {
        self.folded(texts.collect(), Type::TEXT_ARRAY);
    }

    pub fn folded<T: ToSql + Sync + Send + PartialEq + 'a>(&mut self, mut values: Vec<T>, kind: Type) {
        if values.len() > 1 && values[1..].iter().all(|value| *value == values[0]) {
            values.truncate(1);
        }
        self.add(values, kind);
    }

    /// Where runs become ready, and whether one of them was due before: claimers may have been there already.
    pub fn lanes(&mut self, now: Time, ready: impl Iterator<Item = &'a RunRow>) {
        let mut lanes: BTreeMap<(&str, &str, i16), bool> = BTreeMap::new();
        for row in ready {
            let late = row.run.available_at.is_some_and(|at| at < now);
            *lanes.entry((&row.tenant, &row.queue, row.priority)).or_default() |= late;
        }
        self.add(lanes.keys().map(|(tenant, ..)| *tenant).collect::<Vec<_>>(), Type::TEXT_ARRAY);
        self.add(lanes.keys().map(|(_, queue, _)| *queue).collect::<Vec<_>>(), Type::TEXT_ARRAY);
        self.add(lanes.keys().map(|(.., priority)| *priority).collect::<Vec<_>>(), Type::INT2_ARRAY);
        self.add(lanes.into_values().collect::<Vec<_>>(), Type::BOOL_ARRAY);
    }

    pub fn args(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.0.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect()
    }

    /// `$1, $2, …`, the last of them JSON that is sent as text.
    pub fn placeholders(&self) -> String {
        let placeholders: Vec<String> = (1..=self.0.len()).map(|at| format!("${at}")).collect();
        format!("{}::jsonb", placeholders.join(", "))
    }
}

fn time(cell: &Cell<'_>) -> Option<SystemTime> {
    if let Cell::Time(time) = cell { Some(stamp(*time)) } else { None }
}

fn token(cell: &Cell<'_>) -> Option<Uuid> {
    if let Cell::Token(token) = cell { Some(uuid(*token)) } else { None }
}
