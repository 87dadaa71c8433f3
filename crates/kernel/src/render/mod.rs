//! One table, many renderings: everything that shows or enforces a lifecycle is made from its definition.

pub mod json;
pub mod markdown;
pub mod mermaid;
pub mod postgres;
pub mod reference;
pub mod sql;
pub mod stays;
pub mod toml;
