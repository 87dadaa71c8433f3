//! What people did.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::Time;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::ask;
use crate::console::layout::{Nav, Sheet, answered};
use crate::console::parts::{ago, asked, empty, list, now, shown, text, time};

const LIMIT: usize = 100;

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let after = asked(&call, "after").unwrap_or_default();
    let found = ask(&call, "listAudit", &[], &[("after", after), ("limit", &LIMIT.to_string())]).await?;
    let entries = list(&found, "audit");
    let content = html! {
        h1 { "Audit" }
        @if entries.is_empty() { (empty("Nobody did anything yet that is kept here.", None)) }
        @else {
            table.list {
                thead { tr { th scope="col" { "When" } th.wide scope="col" { "Who" } th scope="col" { "What" } th scope="col" { "To" } th.wide scope="col" { "Why" } } }
                tbody { @for entry in entries { (line(entry, now)) } }
            }
        }
        @if let (LIMIT, Some(last)) = (entries.len(), entries.last()) {
            p.pager { a.button rel="next" href={ "/audit?after=" (last["number"]) } { "Later" } }
        }
    };
    Ok(answered(&call, 200, &Sheet { title: "Audit", nav: Nav::Audit, live: None }, &content))
}

fn line(entry: &Value, now: Time) -> Markup {
    html! {
        tr data-row {
            td.when { (ago(time(entry, "at"), now)) }
            td.wide { (shown(text(entry, "by"))) }
            td.verb { code { (shown(text(entry, "action"))) } }
            td.main { (shown(text(entry, "subject"))) span.why.narrow-only { "by " (shown(text(entry, "by"))) @if entry["reason"].is_string() { ": " (shown(text(entry, "reason"))) } } }
            td.wide { (shown(text(entry, "reason"))) }
        }
    }
}
