//! The steps of a run as a table: how they are, how long they ran, what they gave or why they failed.

use comfy_table::Cell;
use serde_json::Value;
use waypost_kernel::lifecycle::{Outcome, Phase};
use waypost_kernel::text::terminal;
use waypost_store::{ItemRow, RunRow};
use waypost_worker::{in_order, left_in_words, worked};

use crate::output::{Column, cell, coloured, cut, fitted, table_within};
use crate::run::times::{Clock, age};

const COLUMNS: [Column; 6] = [
    Column { name: "step", rank: 0, least: Some(12) },
    Column { name: "status", rank: 0, least: None },
    Column { name: "progress", rank: 3, least: None },
    Column { name: "took", rank: 1, least: None },
    Column { name: "why", rank: 0, least: Some(16) },
    Column { name: "output", rank: 2, least: Some(16) },
];
const STATUS: usize = 1;
const OUTPUT: usize = 5;
/// Of an output, unless all is asked for.
const OUTPUT_CHARS: usize = 80;

/// In the order of the playbook; the parts of a step after it. What stands for the steps of a run that came without any is none.
pub fn as_table(
    run: &RunRow,
    items: &[ItemRow],
    clock: &Clock,
    (width, is_verbose): (Option<usize>, bool),
) -> Option<String> {
    let first = run.lifecycle.items.first()?;
    let is_shown = |(item, step): &(&ItemRow, Option<&ItemRow>)| step.is_some() || *item.kind == *first.name;
    let named = |(item, step): (_, Option<&ItemRow>)| {
        let item: &ItemRow = item;
        (item, if step.is_some() { format!("  {}", item.name) } else { item.name.clone() })
    };
    let shown: Vec<(&ItemRow, String)> =
        in_order(run, items).into_iter().filter(is_shown).map(named).collect();
    if shown.is_empty() {
        return None;
    }
    let mut rows: Vec<Vec<String>> = shown.iter().map(|(item, name)| texts(run, item, name, clock)).collect();
    if !is_verbose {
        rows.iter_mut().for_each(|row| row[OUTPUT] = cut(&row[OUTPUT], OUTPUT_CHARS));
    }
    let fitted = fitted(&COLUMNS, &rows, if is_verbose { None } else { width });
    let head: Vec<&str> = fitted.iter().map(|(at, _)| COLUMNS[*at].name).collect();
    let cells = shown.iter().zip(&rows).map(|((item, _), row)| {
        let (phase, outcome) = meaning(run, item);
        let shown = |(at, widest): &(usize, usize)| -> Cell {
            match *at {
                STATUS => coloured(&item.status, phase, outcome),
                at if is_verbose => cell(&row[at]),
                at => cell(cut(&row[at], *widest)),
            }
        };
        fitted.iter().map(shown).collect()
    });
    Some(table_within(&head, cells, if is_verbose { width } else { None }))
}

/// What an item's status means, whatever its lifecycle calls it.
fn meaning(run: &RunRow, item: &ItemRow) -> (Phase, Option<Outcome>) {
    let kind = run.lifecycle.items.iter().find(|kind| *kind.name == *item.kind);
    let state = kind.and_then(|kind| kind.state_named(&item.status).map(|id| kind.state(id)));
    state.map_or((Phase::Ready, None), |state| (state.phase, state.outcome))
}

fn texts(run: &RunRow, item: &ItemRow, name: &str, clock: &Clock) -> Vec<String> {
    let (phase, outcome) = meaning(run, item);
    let is_open = !matches!(phase, Phase::Settled);
    let now = clock.now;
    let took = worked(run, item, now).map(age).unwrap_or_default();
    // What failed before is no news of what is tried again.
    let failure = item.failure.as_ref().filter(|_| phase != Phase::Held);
    let failure = failure.map(|failure| format!("{}: {}", failure.code, failure.message));
    let left = left_in_words(run, item);
    let reason = || item.details.get("reason").and_then(Value::as_str).map(str::to_owned);
    let waits = item.not_before.filter(|at| is_open && *at > now);
    let waits = waits.map(|at| format!("again {}", clock.relative(at)));
    let progress =
        if outcome == Some(Outcome::Skipped) { String::new() } else { format!("{} %", item.progress) };
    let is_empty = item.output.is_null() || item.output.as_object().is_some_and(serde_json::Map::is_empty);
    let output = if is_empty { String::new() } else { item.output.to_string() };
    let why = waits.or(left).or(failure).or_else(reason).unwrap_or_default();
    let name = terminal::name(name).into_owned();
    [name, item.status.clone(), progress, took, why, output]
        .map(|text| terminal::plain(&text).into_owned())
        .to_vec()
}
