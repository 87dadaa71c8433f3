//! Statements with typed arguments.
//!
//! Nothing is prepared by name: a pooler that hands out server sessions per transaction (pgbouncer) would lose it. The
//! unnamed statement travels with its arguments in one round trip, and is planned each time: the widest read takes 0.5 ms
//! instead of 0.1, a read, a write and a commit to disk 3.9 to 5.0 instead of 3.5 (2 clients, 2 cores). The hot verbs do not
//! pay that: they are functions in the database, whose plans are kept there.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};
use uuid::Uuid;
use waypost_kernel::{Time, Token};

use crate::postgres::link::fault::{Fault, damaged};

pub type Args<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// A Rust type whose values are sent as one type of the database's.
pub trait Typed: ToSql + Sync {
    fn named() -> Type;
}

pub trait Element {
    fn array() -> Type;
}

macro_rules! typed {
    ($($rust:ty => $plain:ident, $array:ident;)+) => {
        $(impl Typed for $rust {
            fn named() -> Type {
                Type::$plain
            }
        }
        impl Element for $rust {
            fn array() -> Type {
                Type::$array
            }
        })+
    };
}

typed! {
    i16 => INT2, INT2_ARRAY;
    i32 => INT4, INT4_ARRAY;
    i64 => INT8, INT8_ARRAY;
    bool => BOOL, BOOL_ARRAY;
    String => TEXT, TEXT_ARRAY;
    &str => TEXT, TEXT_ARRAY;
    SystemTime => TIMESTAMPTZ, TIMESTAMPTZ_ARRAY;
    Uuid => UUID, UUID_ARRAY;
}

impl<T: Typed> Typed for Option<T> {
    fn named() -> Type {
        T::named()
    }
}

impl<T: Element> Element for Option<T> {
    fn array() -> Type {
        T::array()
    }
}

impl<T: Element + ToSql + Sync> Typed for Vec<T> {
    fn named() -> Type {
        T::array()
    }
}

pub fn arg<T: Typed>(value: &T) -> (&(dyn ToSql + Sync), Type) {
    (value, T::named())
}

/// The arguments of a statement, each with the type that it has there.
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        &[$($crate::postgres::sql::arg(&$value)),*]
    };
}
pub(super) use args;

/// PostgreSQL's first instant, 4714-11-24 BC; what is before it is that.
const FIRST_MICROS: i64 = -210_866_803_200_000_000;

pub fn stamp(time: Time) -> SystemTime {
    let micros = time.micros().max(FIRST_MICROS);
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

pub fn time(stamp: SystemTime) -> Time {
    match stamp.duration_since(UNIX_EPOCH) {
        Ok(after) => Time::from_micros(after.as_micros() as i64),
        Err(before) => Time::from_micros(-(before.duration().as_micros() as i64)),
    }
}

pub fn uuid(token: Token) -> Uuid {
    Uuid::from_u128(token.0)
}

/// A row's columns, by place.
pub struct Columns<'r>(pub &'r Row);

impl<'r> Columns<'r> {
    pub fn get<T: FromSql<'r>>(&self, at: usize) -> Result<T, Fault> {
        self.0.try_get(at).map_err(|error| damaged(&error.to_string()))
    }

    pub fn time(&self, at: usize) -> Result<Option<Time>, Fault> {
        Ok(self.get::<Option<SystemTime>>(at)?.map(time))
    }

    pub fn token(&self, at: usize) -> Result<Option<Token>, Fault> {
        Ok(self.get::<Option<Uuid>>(at)?.map(|uuid| Token(uuid.as_u128())))
    }
}
