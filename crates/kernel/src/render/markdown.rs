//! A lifecycle as a page of the reference: its states, its table, its diagram.

use std::fmt::Write;

use super::json::attributes;
use super::mermaid::mermaid;
use crate::lifecycle::{Kind, Lifecycle, StateId};

pub fn markdown(lifecycle: &Lifecycle) -> String {
    let mut out = String::new();
    let kind = match lifecycle.kind {
        Kind::Run => "Lifecycle",
        Kind::Item => "Item lifecycle",
    };
    let _ = writeln!(out, "# {kind} `{}`, version {}\n", lifecycle.name, lifecycle.version);
    facts(&mut out, lifecycle);
    states(&mut out, lifecycle);
    transitions(&mut out, lifecycle);
    let _ = writeln!(out, "## Diagram\n\n```mermaid\n{}```", mermaid(lifecycle));
    out
}

fn facts(out: &mut String, lifecycle: &Lifecycle) {
    let names = |ids: &[StateId]| {
        let names: Vec<String> = ids.iter().map(|id| format!("`{}`", lifecycle.state(*id).name)).collect();
        names.join(", ")
    };
    let _ = writeln!(out, "- starts as {}", names(&lifecycle.initial));
    if let Some(ids) = &lifecycle.ids {
        let _ = writeln!(out, "- ids: `{ids}`");
    }
    for item in &lifecycle.items {
        let _ = writeln!(out, "- items: [`{0}`]({0}.md)", item.name);
    }
    if lifecycle.stops_run {
        out.push_str("- one that fails ends its run's course: nothing begins after it but cleanups\n");
    }
    if lifecycle.projected {
        out.push_str("- what becomes of a run is written to the object store\n");
    }
    for (command, code) in &lifecycle.codes {
        let _ = writeln!(out, "- `{command}` leaves the error code `{code}`");
    }
    for (command, states) in &lifecycle.operations {
        let _ = writeln!(out, "- `{command}` in {} starts an [`operation`](operation.md)", names(states));
    }
    if let Some(decisions) = &lifecycle.decisions {
        let parts: Vec<String> =
            decisions.members().map(|(part, member)| format!("{}: `{member}`", part.name())).collect();
        let _ = writeln!(out, "- pauses ask for decisions; in a run's details: {}", parts.join(", "));
    }
    if !lifecycle.cancelled_metadata.is_empty() {
        let members = lifecycle.cancelled_metadata.iter();
        let members: Vec<String> =
            members.map(|(member, fact)| format!("`{member}` ({})", fact.name())).collect();
        let _ = writeln!(
            out,
            "- the metadata of a run that the engine cancels because its lease ran out have {}",
            members.join(", ")
        );
    }
    out.push('\n');
}

fn states(out: &mut String, lifecycle: &Lifecycle) {
    out.push_str("## States\n\n| state | phase | terminal | declares |\n|---|---|---|---|\n");
    for id in lifecycle.state_ids() {
        let state = lifecycle.state(id);
        let terminal = if lifecycle.is_terminal(id) { "yes" } else { "" };
        let declares: Vec<String> = attributes(lifecycle, state)
            .into_iter()
            .map(|(key, value)| format!("{key} = {}", value.to_string().trim_matches('"')))
            .collect();
        let _ = writeln!(
            out,
            "| `{}` | {} | {terminal} | {} |",
            state.name,
            state.phase.name(),
            declares.join(", ")
        );
    }
    out.push('\n');
}

fn transitions(out: &mut String, lifecycle: &Lifecycle) {
    out.push_str("## Transitions\n\nA move that is not in this table is refused, by the engine and by the database.\n\n");
    out.push_str("| from | command | to | by | guard |\n|---|---|---|---|---|\n");
    for row in &lifecycle.transitions {
        let guards: Vec<&str> = row.guards.iter().map(|guard| guard.name()).collect();
        let (from, to) = (&lifecycle.state(row.from).name, &lifecycle.state(row.to).name);
        let _ = writeln!(out, "| `{from}` | {} | `{to}` | {} | {} |", row.command, row.by, guards.join(", "));
    }
    out.push('\n');
}
