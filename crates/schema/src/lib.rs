//! What a file or a request looks like, said once. A [`Shape`] is an object and its fields; everything else follows:
//!
//! - [`Document`] reads TOML with the line of every value, [`read_json`] stored JSON and [`read_request`] what somebody
//!   sent, by the same reader into the same [`Node`]s. All problems are told at once, each with its place, what is
//!   allowed and a hint.
//! - [`requests!`] makes the shape of a request together with the struct that its values become, so that a field that is
//!   misspelt does not compile.
//! - [`render`] makes JSON Schema, OpenAPI's schemas and the tables of the reference.
//!
//! No I/O, no clock, and nothing that this project alone means: what a length of time or a template is, the crates above
//! say as a [`Format`].

mod input;
mod node;
mod path;
mod problem;
mod read;
pub mod render;
mod request;
mod shape;
mod text;
mod words;

pub use node::{FromNode, MayBeAbsent, Node, Takes, Value};
pub use problem::{Problem, Problems, Report};
pub use read::{Document, read_json, read_request};
pub use request::Request;
pub use shape::{Field, Format, Keys, Kind, Others, Row, Shape, joined, needed, optional};
pub use text::{Checked, Fault, any_text, some_text, text};
pub use words::{instead_of, nearest, quoted};

/// For [`requests!`], whose expansion stands in other crates.
#[doc(hidden)]
pub use request::{take_needed, take_optional};
