//! Tells what happens while it happens, from the event log alone: as a console or a script would.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use waypost_kernel::tenant::DEFAULT;
use waypost_store::{EventRow, ItemRow, Store};
use waypost_worker::Stage as Shutdown;

use crate::output::tell;
use crate::run::{age, message, output_lines};

const PAGE: usize = 200;
const LOOK: Duration = Duration::from_millis(100);

pub async fn narrate(store: Arc<dyn Store>, shutdown: watch::Receiver<Shutdown>) {
    let mut position = 0;
    let mut began_at = None;
    let mut names: HashMap<String, String> = HashMap::new();
    loop {
        // Asked before reading: what was written until then is still told.
        let is_over = *shutdown.borrow() != Shutdown::Working;
        let Ok(page) = store.feed(Some(position), PAGE).await else { return };
        position = page.position;
        for event in &page.events {
            let began_at = *began_at.get_or_insert(event.at);
            if !names.contains_key(&event.run_id) {
                names.insert(event.run_id.clone(), name_of(&*store, &event.run_id).await);
            }
            let name = &names[&event.run_id];
            let items = match event.command.as_str() {
                "items" => store.items(event.run_id.clone(), None).await.unwrap_or_default(),
                _ => Vec::new(),
            };
            for words in words(event, &items) {
                tell(&format!("{:>6}  {name:<20}  {words}", age(event.at - began_at)));
            }
        }
        if is_over && page.events.is_empty() {
            return;
        }
        if page.events.is_empty() {
            store.changed(LOOK).await;
        }
    }
}

async fn name_of(store: &dyn Store, run_id: &str) -> String {
    let run = store.run(DEFAULT.into(), run_id.to_owned()).await.ok();
    run.and_then(|run| run.correlation_id).unwrap_or_else(|| run_id.to_owned())
}

fn words(event: &EventRow, items: &[ItemRow]) -> Vec<String> {
    let lines: Vec<String> =
        output_lines(&event.payload).map(|(stream, line)| format!("{stream}: {line}")).collect();
    if !lines.is_empty() {
        return lines;
    }
    // A command's text is told once by whoever reads the demo's source, not with each of its tries.
    let message = message(event, items);
    let message = message.split(": sh -c").next().unwrap_or_default();
    vec![match &event.from {
        Some(from) if *from != event.to => format!("{from} → {}: {message}", event.to),
        _ => message.to_owned(),
    }]
}
