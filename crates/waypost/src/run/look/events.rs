//! `waypost run events`: everything that happened to a run.

use std::collections::{BTreeMap, HashMap};

use clap::Args;
use serde_json::Value;
use waypost_store::{EventRow, ItemRow, Store, iso};

use crate::output::{Format, Result, cells, print_list, table_within, width};
use crate::run::ids::find;

const PAGE: usize = 500;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  waypost run events @1\n  waypost run events f9aac1c9 --after 3 -o jsonl"
)]
pub struct Events {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Only those after this number.
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    after: u64,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn events(store: &dyn Store, flags: Events) -> Result {
    let run = find(store, &flags.run).await?;
    let found = all_events(store, run.id(), flags.after).await?;
    let items = match flags.output {
        Format::Table => store.items(run.id().to_owned(), None).await?,
        _ => Vec::new(),
    };
    let objects = found.iter().map(EventRow::object).collect();
    print_list(objects, flags.output, || events_table(&found, &items, width()))
}

pub async fn all_events(store: &dyn Store, run_id: &str, after: u64) -> Result<Vec<EventRow>> {
    let mut found: Vec<EventRow> = Vec::new();
    loop {
        let after = found.last().map_or(after, |last| last.seq);
        let page = store.events(run_id.to_owned(), after, PAGE).await?;
        // A page of large ones is short, and not the last.
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page);
    }
}

pub fn events_table(events: &[EventRow], items: &[ItemRow], width: Option<usize>) -> String {
    let rows = events.iter().map(|event| {
        let moved = match &event.from {
            Some(from) if *from != event.to => format!("{from} → {}", event.to),
            Some(_) => event.to.clone(),
            None => format!("→ {}", event.to),
        };
        cells([
            event.seq.to_string(),
            iso(event.at),
            event.command.clone(),
            moved,
            format!("{} {}", event.actor, event.by),
            message(event, items),
        ])
    });
    table_within(&["seq", "at", "command", "state", "by", "message"], rows, width)
}

/// Items that are told of one by one; of more, how many came into which state.
const MOST_ITEMS: usize = 10;

fn in_numbers(moved: &[Value]) -> String {
    let mut by_state: BTreeMap<&str, usize> = BTreeMap::new();
    for item in moved {
        *by_state.entry(item["to"].as_str().unwrap_or_default()).or_default() += 1;
    }
    let told: Vec<String> = by_state.iter().map(|(state, count)| format!("{count} {state}")).collect();
    format!("{} items: {}", moved.len(), told.join(", "))
}

/// With the names of steps as people see them, and the reason that was given.
pub fn message(event: &EventRow, items: &[ItemRow]) -> String {
    if let Some(lines) = event.payload["lines"].as_array() {
        let count = lines.len();
        return format!("{} ({count} line{})", event.message, if count == 1 { "" } else { "s" });
    }
    if let Some(moved) = event.payload["items"].as_array().filter(|_| event.command == "items") {
        if moved.len() > MOST_ITEMS {
            return in_numbers(moved);
        }
        let names: HashMap<&str, &str> =
            items.iter().map(|item| (item.key.as_str(), item.name.as_str())).collect();
        let told = moved.iter().map(|item| {
            let text = |key: &str| item[key].as_str().unwrap_or_default();
            let name = names.get(text("key")).copied().unwrap_or(text("key"));
            let far = item["progress"].as_u64().filter(|percent| (1..100).contains(percent));
            let far = far.map(|percent| format!(" {percent} %")).unwrap_or_default();
            format!("{name}: {}{far}", text("to"))
        });
        return told.collect::<Vec<_>>().join(", ");
    }
    let reason = event.payload["reason"].as_str().filter(|reason| !reason.is_empty());
    let reason = reason.filter(|reason| !event.message.contains(reason));
    let forced = (event.payload["forced"] == true).then_some("forced");
    let told: Vec<&str> = forced.into_iter().chain(reason).collect();
    if told.is_empty() { event.message.clone() } else { format!("{} ({})", event.message, told.join(": ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn many_items_are_told_in_numbers() {
        let told = |count: usize| {
            let state = |at: usize| if at.is_multiple_of(3) { "FAILED" } else { "APPLIED" };
            let items: Vec<Value> =
                (0..count).map(|at| json!({ "key": at.to_string(), "to": state(at) })).collect();
            let payload = json!({ "items": items });
            message(&EventRow { command: "items".to_owned(), payload, ..EventRow::default() }, &[])
        };
        assert_eq!(told(2), "0: FAILED, 1: APPLIED");
        assert_eq!(told(900), "900 items: 600 APPLIED, 300 FAILED");
    }
}
