//! What runs call outside: how fast they may, and whether they do.

use maud::{Markup, html};
use waypost_kernel::Time;
use waypost_kernel::breaker::State;
use waypost_store::DestinationRow;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::ask;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{ago, empty, list, now, shown};

/// A page has no more; others are found by the command line.
const MOST: usize = 200;

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let found = ask(&call, "listDestinations", &[], &[]).await?;
    let rows: Vec<DestinationRow> =
        list(&found, "destinations").iter().filter_map(DestinationRow::of_object).collect();
    let content = html! {
        h1 { "Destinations" }
        p.hint { "What bulk changes call: the rate that all workers share, and the breaker that stops them." }
        div #rows data-part {
            @if rows.is_empty() { (empty("No destination was called yet.", None)) }
            @else {
                table.list {
                    thead { tr {
                        th scope="col" { "Destination" } th scope="col" { "Breaker" } th scope="col" { "Tokens left" }
                        th scope="col" { "Rate" } th.wide.num scope="col" { "Calls" } th.wide.num scope="col" { "Answered 429" }
                    } }
                    tbody { @for row in rows.iter().take(MOST) { (line(&call, row, now)) } }
                }
                @if rows.len() > MOST { p.hint { "The first " (MOST) " of " (rows.len()) "." } }
            }
        }
    };
    let sheet = Sheet { title: "Destinations", nav: Nav::Destinations, live: Some(Live::Polled) };
    Ok(answered(&call, 200, &sheet, &content))
}

fn line(call: &Call, row: &DestinationRow, now: Time) -> Markup {
    let bucket = row.state.bucket.refilled(now);
    let left = bucket.available_milli;
    html! {
        tr data-row {
            td.main {
                b { (shown(&row.name)) }
                @if call.caller.is_everybodys { " " span.hint { (shown(&row.tenant)) } }
                @if bucket.pace_percent < 100 { span.warn { "slowed down to " (bucket.pace_percent) " % after a burst of 429" } }
            }
            td { (breaker(row, now)) }
            td.num { meter min="0" max=(bucket.capacity_milli) value=(left) {} " " (units(left)) " of " (units(bucket.capacity_milli)) }
            td.num { span.state-word { (units(paced(row))) " a second" } }
            td.wide.num { (row.calls) }
            td.wide.num { (row.throttled) }
        }
    }
}

fn breaker(row: &DestinationRow, now: Time) -> Markup {
    html! {
        @match row.state.breaker.state {
            State::Closed => {
                span.badge.outcome-succeeded { span aria-hidden="true" { "✓" } " closed" }
                @if row.state.breaker.consecutive > 0 { span.why { (row.state.breaker.consecutive) " of " (row.state.settings.after) " throttled in a row" } }
            },
            State::Open { until } => { span.badge.outcome-failed { span aria-hidden="true" { "✕" } " open" } span.why { "nobody calls it; tried again " (ago(Some(until), now)) } },
            State::Probing { until, .. } => { span.badge.phase-parked { span aria-hidden="true" { "?" } " probing" } span.why { "one call tries; given up " (ago(Some(until), now)) } },
        }
        @if row.opened > 0 { span.hint { "opened " (row.opened) " times" } }
    }
}

fn paced(row: &DestinationRow) -> u64 {
    row.state.bucket.rate_milli_per_s.saturating_mul(u64::from(row.state.bucket.pace_percent)) / 100
}

/// Thousandths as people count.
fn units(milli: u64) -> String {
    match milli % 1_000 {
        0 => (milli / 1_000).to_string(),
        _ => format!("{}.{}", milli / 1_000, milli % 1_000 / 100),
    }
}
