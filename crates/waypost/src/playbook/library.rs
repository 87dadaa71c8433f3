//! Playbooks by their names: what there is, and what one of them does.

use std::path::Path;
use std::sync::Arc;

use comfy_table::Cell;
use serde_json::Map;
use waypost_kernel::Catalog;
use waypost_store::{EVERY_TENANT, PlaybookFilter, iso};
use waypost_worker::playbook::known::{Known, find};
use waypost_worker::playbook::{Input, Playbook, Playbooks};

use crate::output::{BAD_INPUT, Failed, Format, Result, cell, print, print_list, table};
use crate::place::{Place, tenant};
use crate::run::start::by_name::{failed, folder, is_file, steps_in_words};

pub async fn list(place: &Place, dir: Option<&Path>, versions: bool, output: Format) -> Result {
    let catalog = place.known_lifecycles().await?;
    let known = match dir {
        Some(dir) => folder(Some(dir), &catalog)?.iter().map(of_folder).collect(),
        None => stored(place, &catalog, versions).await?,
    };
    let objects = known.iter().map(Known::object).collect();
    print_list(objects, output, || {
        if known.is_empty() {
            return String::new();
        }
        table(&["name", "lifecycle", "inputs", "version", "from", "since"], known.iter().map(row))
    })
}

async fn stored(place: &Place, catalog: &Catalog, versions: bool) -> Result<Vec<Known>> {
    let opened = place.opened_to_read().await?;
    let store = opened.store();
    let filter = PlaybookFilter {
        tenant: Some(tenant().to_owned()),
        all_versions: versions,
        ..PlaybookFilter::default()
    };
    let rows = store.playbooks(filter).await?;
    Ok(rows.into_iter().map(|row| Known::listed(row, catalog)).collect())
}

fn of_folder(playbook: &Arc<Playbook>) -> Known {
    let offered = playbook.offered(tenant(), "");
    Known { offered, offered_at: None, playbook: Some(playbook.clone()) }
}

fn row(known: &Known) -> Vec<Cell> {
    let (offered, playbook) = (&known.offered, known.playbook.as_deref());
    let inputs = match playbook {
        Some(playbook) if playbook.takes_any_input => "any".to_owned(),
        Some(playbook) => playbook.inputs.iter().map(input_word).collect::<Vec<_>>().join(", "),
        None => String::new(),
    };
    let from = if offered.by.is_empty() { &offered.file } else { &offered.by };
    vec![
        cell(&offered.name),
        cell(playbook.map_or("(handler)", |it| &it.lifecycle)),
        cell(inputs),
        cell(offered.hash.get(..12).unwrap_or(&offered.hash)),
        cell(from),
        cell(known.offered_at.map(iso).unwrap_or_default()),
    ]
}

/// `cluster`, or `cluster?` where it may be left out.
fn input_word(input: &Input) -> String {
    if input.required { input.name.clone() } else { format!("{}?", input.name) }
}

pub async fn show(place: &Place, named: &str, output: Format) -> Result {
    let catalog = place.known_lifecycles().await?;
    let known = if is_file(named) {
        let playbook = Playbook::load_with(Path::new(named), &catalog);
        of_folder(&Arc::new(playbook.map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))?))
    } else {
        let opened = place.opened_to_read().await?;
        let found = find(&*opened.store(), &Playbooks::default(), &catalog, tenant(), named).await;
        found.map_err(|error| failed(error, false))?
    };
    print(&match output {
        Format::Table => in_words(&known),
        format => format.object(&known.whole_object()),
    })
}

fn in_words(known: &Known) -> String {
    let offered = &known.offered;
    let Some(playbook) = known.playbook.as_deref() else {
        return format!(
            "{} is a handler that is compiled into {}: only its name is known.",
            offered.name, offered.by
        );
    };
    let mut lines = vec![format!("{}@{}", playbook.name, playbook.hash)];
    lines.extend(playbook.description.clone());
    let mut line = |name: &str, value: String| lines.push(format!("{name:<11}{value}"));
    line("lifecycle", playbook.lifecycle.clone());
    let queue = playbook.queue.as_deref().unwrap_or("default");
    line("queue", format!("{queue}, priority {}", playbook.priority));
    if let Some(key) = &playbook.concurrency_key {
        line("key", key.source());
    }
    line(
        "from",
        if offered.by.is_empty() {
            offered.file.clone()
        } else {
            format!("{}: {}", offered.by, offered.file)
        },
    );
    if offered.tenant != EVERY_TENANT && !offered.by.is_empty() {
        line("tenant", offered.tenant.clone());
    }
    if playbook.takes_any_input {
        line("inputs", "any".to_owned());
    }
    for input in &playbook.inputs {
        let about = input.description.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        let default = input.default.as_ref().filter(|_| !input.secret);
        let needed = match default {
            Some(default) => format!(", {default} if left out"),
            None if input.required => String::new(),
            None => ", may be left out".to_owned(),
        };
        line("input", format!("{} ({}{needed}){about}", input.name, input.kind.name()));
    }
    lines.extend(steps_in_words(&playbook.preview(&Map::new()).into()));
    lines.push(String::new());
    lines.push(playbook.text.trim_end().to_owned());
    lines.join("\n")
}
