//! The `waypost` command.

fn main() {}
