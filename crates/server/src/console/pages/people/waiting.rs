//! What waits for a person: each with its form.

use maud::html;
use waypost_store::RunRow;
use waypost_worker::proposals::follows_proposal;

use super::{decisions, proposals};
use crate::answer::Result;
use crate::call::Call;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::pages::run::{actions, operations};
use crate::console::pages::runs;
use crate::console::parts::{self, asked, empty, next_page, now, run_path, since, state};

/// Pages that are counted: who has more to decide than these hold need not know how much.
const MOST_PAGES: usize = 4;

/// A page of what waits for people.
struct Open {
    runs: Vec<RunRow>,
    /// Entries of the inbox that stand for a proposal: they are decided with it.
    left_out: usize,
    next: Option<String>,
}

async fn open(call: &Call, include: &str, cursor: &str) -> Result<Open> {
    let mut found = runs::find(call, "needs:person", include, cursor).await?;
    let all = found.runs.len();
    found.runs.retain(|row| !follows_proposal(row));
    Ok(Open { left_out: all - found.runs.len(), runs: found.runs, next: found.next })
}

/// How many there are to decide on, as the page has them; with a plus if there are more.
pub async fn count(call: &Call) -> Result<String> {
    let (mut count, mut cursor) = (0, String::new());
    for _ in 0..MOST_PAGES {
        let found = open(call, "metadata", &cursor).await?;
        count += found.runs.len();
        let Some(next) = found.next else { return Ok(count.to_string()) };
        cursor = next;
    }
    Ok(format!("{count}+"))
}

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let cursor = asked(&call, "cursor").unwrap_or_default().to_owned();
    let found = open(&call, "details,input,metadata", &cursor).await?;
    let content = html! {
        h1 { "Waiting for you" }
        div #rows data-part {
            @if found.runs.is_empty() {
                @if found.left_out == 0 { (empty("Nothing waits for a person. A step with `ask` does:", Some("waypost init"))) }
                @else { (empty("Nothing here but entries of the inbox that are decided with their proposals.", None)) }
            }
            @for row in &found.runs {
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
