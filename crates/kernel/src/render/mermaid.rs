//! A lifecycle as a mermaid state diagram, as the seeds draw theirs.

use std::fmt::Write;

use crate::lifecycle::{Lifecycle, Phase};

pub fn mermaid(lifecycle: &Lifecycle) -> String {
    let mut out = String::from("stateDiagram-v2\n");
    for state in lifecycle.states.iter().filter(|state| state.name.contains('-')) {
        // A hyphen would be read as a part of an arrow.
        let _ = writeln!(out, "    state \"{}\" as {}", state.name, node(&state.name));
    }
    for id in &lifecycle.initial {
        let verb = if lifecycle.phase(*id) == Phase::Held { "claim" } else { "create" };
        let _ = writeln!(out, "    [*] --> {}: {verb}", node(&lifecycle.state(*id).name));
    }
    for row in &lifecycle.transitions {
        let (from, to) = (&lifecycle.state(row.from).name, &lifecycle.state(row.to).name);
        let _ = write!(out, "    {} --> {}: {} ({})", node(from), node(to), row.command, row.by);
        if !row.guards.is_empty() {
            let guards: Vec<&str> = row.guards.iter().map(|guard| guard.name()).collect();
            let _ = write!(out, " [{}]", guards.join(", "));
        }
        out.push('\n');
    }
    for id in lifecycle.state_ids().filter(|id| lifecycle.is_terminal(*id)) {
        let _ = writeln!(out, "    {} --> [*]", node(&lifecycle.state(id).name));
    }
    out
}

fn node(name: &str) -> String {
    name.replace('-', "_")
}
