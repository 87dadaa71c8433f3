//! What runs can be started by: playbooks that servers and workers have.

use maud::html;
use serde_json::Value;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, encoded};
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{ago, empty, list, now, shown, text, time};

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let found = ask(&call, "listPlaybooks", &[], &[]).await?;
    let playbooks = list(&found, "playbooks");
    let content = html! {
        h1 { "Playbooks" }
        div #rows data-part {
            @if playbooks.is_empty() {
                (empty("No server or worker has a playbook. Write one, and start again with:", Some("waypost dev --playbooks DIR")))
            } @else {
                table.list {
                    thead { tr { th scope="col" { "Playbook" } th scope="col" { "Lifecycle" } th.wide scope="col" { "Inputs" } th.wide scope="col" { "Offered" } } }
                    tbody {
                        @for playbook in playbooks {
                            tr data-row {
                                td.main {
                                    a.title href={ "/playbooks/" (encoded(text(playbook, "name"))) } { (shown(text(playbook, "name"))) }
                                    @if let Some(words) = playbook["description"].as_str() { span.why { (shown(words)) } }
                                }
                                td { (shown(text(playbook, "lifecycle"))) }
                                td.wide { (inputs(playbook)) }
                                td.wide { (ago(time(playbook, "offered_at"), now)) }
                            }
                        }
                    }
                }
            }
        }
    };
    Ok(answered(
        &call,
        200,
        &Sheet { title: "Playbooks", nav: Nav::Playbooks, live: Some(Live::Polled) },
        &content,
    ))
}

fn inputs(playbook: &Value) -> String {
    list(playbook, "inputs").iter().map(|input| shown(text(input, "name"))).collect::<Vec<_>>().join(", ")
}
