//! Lifecycles that nobody meant, made by machine: what loads must work as the shipped ones do.

pub mod families;
pub mod mutations;
pub mod table;

pub use families::{Family, families};
