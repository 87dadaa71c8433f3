//! Shapes, rendered: for editors, for clients and for people.

mod json_schema;
mod markdown;

pub use json_schema::{component, document, of_field};
pub use markdown::{api_kind, section};
