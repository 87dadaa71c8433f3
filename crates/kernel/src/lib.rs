//! The pure heart of Waypost: lifecycles as data, and one function that decides every move.
//!
//! Nothing here reads a clock, draws a random number, waits or does I/O. Instants come in as [`Time`],
//! randomness as tokens and numbers; what should be written goes out as a [`Change`].

pub mod alert;
pub mod decide;
mod decimal;
pub mod event;
pub mod fold;
pub mod format;
pub mod guard;
pub mod id;
pub mod item;
pub mod lifecycle;
mod pace;
pub mod plan;
pub mod refusal;
pub mod render;
pub mod request;
pub mod run;
pub mod schedule;
pub mod tally;
pub mod tenant;
pub mod text;
pub mod time;
pub mod waiting;

pub use decide::{allowed, counted_end, create, decide};
pub use decimal::Decimal;
pub use event::{Change, Event};
pub use guard::Guard;
pub use lifecycle::{Actor, Catalog, Lifecycle, Outcome, Phase, StateId};
pub use pace::{backoff, breaker, bucket, destination, retry_after};
pub use refusal::{Code, Refusal};
pub use request::{Ask, Request, Who};
pub use run::{Failure, Intent, Lease, Run, Token};
pub use time::{Span, Time};
