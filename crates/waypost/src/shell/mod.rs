//! For the shell in which all of this is typed: manual pages and completions.

pub mod completions;
pub mod man;
