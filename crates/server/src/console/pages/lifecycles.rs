//! What runs move along, drawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use maud::{Markup, html};
use waypost_kernel::Lifecycle;
use waypost_kernel::lifecycle::Kind;

use crate::answer::Result;
use crate::call::Call;
use crate::console::draw::diagram::diagram;
use crate::console::filter;
use crate::console::layout::{Nav, Sheet, answered};
use crate::console::parts::{badge, shown};

pub async fn page(call: Call) -> Result {
    let catalog = call.lifecycles().await?;
    let mut latest: BTreeMap<&str, &Arc<Lifecycle>> = BTreeMap::new();
    for lifecycle in catalog.iter().filter(|it| it.kind == Kind::Run) {
        let known = latest.entry(&lifecycle.name).or_insert(lifecycle);
        if known.version < lifecycle.version {
            *known = lifecycle;
        }
    }
    let content = html! {
        h1 { "Lifecycles" }
        p.chips { @for name in latest.keys() { a.chip href={ "#" (name) } { (shown(name)) } } }
        @for (place, lifecycle) in latest.values().enumerate() { (card(lifecycle, place)) }
    };
    Ok(answered(&call, 200, &Sheet { title: "Lifecycles", nav: Nav::Lifecycles, live: None }, &content))
}

fn card(lifecycle: &Lifecycle, place: usize) -> Markup {
    let name = |id| &*lifecycle.state(id).name;
    html! {
        section.card id=(lifecycle.name) {
            h2 { (shown(&lifecycle.name)) " " span.hint { "version " (lifecycle.version) } }
            @if let Some(words) = &lifecycle.description { p { (shown(words)) } }
            (diagram(lifecycle, None, &place.to_string()))
            p { a href=(filter::runs_with(&[("lifecycle", &lifecycle.name)])) { "Its runs" } }
            details {
                summary { "As a table" }
                div.scrolls tabindex="0" role="region" aria-label={ "Commands of " (shown(&lifecycle.name)) } { table {
                    thead { tr { th scope="col" { "From" } th scope="col" { "Command" } th scope="col" { "To" } th scope="col" { "By" } th.wide scope="col" { "If" } } }
                    tbody {
                        @for row in &lifecycle.transitions {
                            tr {
                                td { (badge(name(row.from), lifecycle.phase(row.from), lifecycle.state(row.from).outcome)) }
                                td { (shown(&row.command)) }
                                td { (badge(name(row.to), lifecycle.phase(row.to), lifecycle.state(row.to).outcome)) }
                                td { (row.by.names().join(", ")) }
                                td.wide { (row.guards.iter().map(|guard| guard.meaning()).collect::<Vec<_>>().join("; ")) }
                            }
                        }
                    }
                } }
            }
        }
    }
}
