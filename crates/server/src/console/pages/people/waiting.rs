//! What waits for a person: each with its form.

use maud::html;
use waypost_store::{INBOX, RunRow};

use super::{decisions, proposals};
use crate::answer::Result;
use crate::call::Call;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::pages::run::{actions, operations};
use crate::console::pages::runs;
use crate::console::parts::{self, asked, empty, next_page, now, run_path, since, state};

fn is_entry_of_proposal(row: &RunRow) -> bool {
    &*row.lifecycle.name == INBOX && row.metadata.get("source").is_some_and(|source| source == "agent")
}

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let cursor = asked(&call, "cursor").unwrap_or_default().to_owned();
    let found = runs::find(&call, "needs:person", "details,input,metadata", &cursor).await?;
    let content = html! {
        h1 { "Waiting for you" }
        div #rows data-part {
            @if found.runs.is_empty() { (empty("Nothing waits for a person. A step with `ask` does:", Some("waypost init"))) }
            // An entry of the inbox that stands for a proposal is decided with it.
            @for row in found.runs.iter().filter(|row| !is_entry_of_proposal(row)) {
                @if let Some(proposal) = proposals::of_run(&call, row, now) { (proposal) }
                @else { section.card.ask {
                    h2 { (state(row)) " " a href=(run_path(row.id())) { (parts::title(row)) } }
                    // What is asked stands in its form.
                    @match row.waiting() {
                        Some(waiting) if !row.undecided().is_empty() => p { "waits " (since(waiting.since, now)) },
                        _ => @if let Some(waits) = parts::waits(row, now) { p { (waits) } },
                    }
                    (operations::preview(row))
                    @if row.undecided().is_empty() { (actions::open(&call, row)) }
                    (decisions::form(&call, row, now))
                } }
            }
        }
        (next_page("/waiting", &[], found.next.as_deref()))
    };
    let live = cursor.is_empty().then_some(Live::AllRuns);
    Ok(answered(&call, 200, &Sheet { title: "Waiting for you", nav: Nav::Waiting, live }, &content))
}
