//! The rows by which a database judges moves, against the lifecycles that they are made of.

use std::collections::BTreeSet;

use serde_json::Value;
use waypost_kernel::render::json::json;
use waypost_kernel::render::sql::moves;
use waypost_kernel::{Catalog, Lifecycle};

use crate::seam::error::Result;
use crate::statement::{Sql, query, values};

/// What a lifecycle does; the rest of its definition is for people, or may come to be with a newer binary.
const MEANT: [&str; 4] = ["kind", "initial", "states", "transitions"];

/// A row of a table of definitions: whose it is, and what it says.
type Row = (String, u64, String);

/// A line for each lifecycle that is not what its text says, or not what this binary ships by that name and version.
pub(super) async fn unsound<T: Sql>(tx: &mut T) -> Result<Vec<String>> {
    let sql = "SELECT l.name, l.version, l.definition, l.source FROM waypost.lifecycles l ORDER BY l.kind <> 'item', l.name, l.version";
    let (mut stored, mut catalog) = (Vec::new(), Catalog::default());
    for row in &query(tx, sql, values![]).await? {
        let (name, version, definition): (String, u64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if let Some(source) = row.get::<Option<String>>(3)? {
            // What this binary cannot read is told of with its runs.
            let _ = catalog.add_stored(&source);
        }
        stored.push((name, version, definition));
    }
    let sql = "SELECT s.lifecycle, s.version, s.state || ' is ' || s.phase || ', ' || coalesce(s.outcome, 'open') \
               || CASE WHEN s.initial THEN ', initial' ELSE '' END FROM waypost.lifecycle_states s";
    let states = rows(tx, sql).await?;
    let sql = "SELECT m.lifecycle, m.version, m.src || ' to ' || m.dst || ' by ' || m.command || ' (guards ' || m.guards || ', events ' \
               || m.events || ')' FROM waypost.lifecycle_moves m";
    let moves = rows(tx, sql).await?;
    let shipped = Catalog::shipped().unwrap_or_default();
    let mut lines = Vec::new();
    for (name, version, definition) in &stored {
        let number = u32::try_from(*version).unwrap_or_default();
        let Some(lifecycle) = catalog.get(name, number) else { continue };
        let told = |words: String| format!("lifecycle {name} (version {version}): {words}");
        let meant = json(lifecycle);
        let kept: Value = serde_json::from_str(definition).unwrap_or_default();
        if MEANT.iter().any(|part| kept[part] != meant[part]) {
            lines.push(told("its definition is not what its text says".into()));
        }
        let own = shipped.get(name, number).map(|shipped| json(shipped));
        if own.is_some_and(|own| MEANT.iter().any(|part| own[part] != meant[part])) {
            lines.push(told("its text is not the one that waypost ships".into()));
        }
        let pairs = [("state", &states, state_lines(lifecycle)), ("move", &moves, move_lines(lifecycle))];
        for (what, found, meant) in pairs {
            let own = found.iter().filter(|(of, number, _)| (of, number) == (name, version));
            let own: BTreeSet<&str> = own.map(|(.., line)| line.as_str()).collect();
            let meant: BTreeSet<&str> = meant.iter().map(String::as_str).collect();
            let extra =
                own.difference(&meant).map(|line| told(format!("a {what} that it does not have: {line}")));
            lines.extend(extra);
            lines.extend(meant.difference(&own).map(|line| told(format!("a {what} is not there: {line}"))));
        }
    }
    let is_known =
        |(of, number, _): &&Row| stored.iter().any(|(name, version, _)| (name, version) == (of, number));
    let strays = states.iter().chain(&moves).filter(|row| !is_known(row));
    lines.extend(strays.map(|(of, number, line)| {
        format!("lifecycle {of} (version {number}) is not there, and a row of it is: {line}")
    }));
    Ok(lines)
}

async fn rows<T: Sql>(tx: &mut T, sql: &str) -> Result<Vec<Row>> {
    let found = query(tx, sql, values![]).await?;
    found.iter().map(|row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).collect()
}

fn state_lines(lifecycle: &Lifecycle) -> Vec<String> {
    let line = |id| {
        let state = lifecycle.state(id);
        let outcome = state.outcome.map_or("open", |outcome| outcome.name());
        let initial = if lifecycle.initial.contains(&id) { ", initial" } else { "" };
        format!("{} is {}, {outcome}{initial}", state.name, state.phase.name())
    };
    lifecycle.state_ids().map(line).collect()
}

fn move_lines(lifecycle: &Lifecycle) -> Vec<String> {
    let line = |it: waypost_kernel::render::sql::Move| {
        let (src, dst) = (&lifecycle.state(it.from).name, &lifecycle.state(it.to).name);
        format!("{src} to {dst} by {} (guards {}, events {})", it.command, it.guards, it.events)
    };
    moves(lifecycle).into_iter().map(line).collect()
}
