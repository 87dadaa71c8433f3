//! docs/simulators.md has every flag, fault, marker and route: those parts of it are generated, and a stale one fails.
//! `UPDATE=1 cargo nextest run generated` rewrites them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use waypost_simulate::{FaultKind, Shown, Subject, model, shop};

use crate::support::Shop;

/// Flags of a command and what its help says about them, without those that every command has.
fn flags(folder: &Shop, args: &[&str]) -> Vec<(String, String)> {
    let everywhere: BTreeSet<String> =
        entries(&folder.ok(&["simulate", "--help"])).into_iter().map(|(flag, _)| flag).collect();
    let help = folder.ok(&[args, &["--help"]].concat());
    entries(&help).into_iter().filter(|(flag, _)| !everywhere.contains(flag)).collect()
}

/// A line that begins with a flag begins an entry; the others go on with it.
fn entries(help: &str) -> Vec<(String, String)> {
    let (_, options) = help.split_once("Options:\n").unwrap();
    let (options, _) = options.split_once("\n\n").unwrap_or((options, ""));
    let mut entries: Vec<(String, String)> = Vec::new();
    for line in options.lines().map(str::trim) {
        if line.starts_with('-') {
            let (flag, what) = line.split_once("  ").unwrap_or((line, ""));
            entries.push((flag.trim().to_owned(), what.trim().to_owned()));
        } else if let Some((_, what)) = entries.last_mut() {
            *what = format!("{what} {line}").trim().to_owned();
        }
    }
    entries
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.iter().map(|&cell| cell.to_owned()).collect());
    text.push_str(&format!("|{}\n", "---|".repeat(head.len())));
    rows.into_iter()
        .for_each(|row| text.push_str(&line(row.iter().map(|it| it.replace('|', "\\|")).collect())));
    text
}

fn flags_table(folder: &Shop, name: &str) -> String {
    let rows = flags(folder, &["simulate", name]).into_iter();
    table(&["flag", "what it does"], rows.map(|(flag, what)| vec![format!("`{flag}`"), what]))
}

fn faults_table(faults: &[FaultKind]) -> String {
    let row = |fault: &FaultKind| {
        let of = if fault.of == Subject::Product { "product" } else { "request" };
        let times = if fault.times == 0 { "each time".to_owned() } else { fault.times.to_string() };
        vec![format!("`{}`", fault.name), of.to_owned(), times, fault.what.to_owned()]
    };
    table(&["fault", "hits a", "times", "what happens"], faults.iter().map(row))
}

fn routes_table(routes: &[Shown]) -> String {
    let row = |route: &Shown| vec![format!("`{} {}`", route.method, route.path), route.what.to_owned()];
    table(&["route", "what it does"], routes.iter().map(row))
}

fn markers_table() -> String {
    let row = |(name, argument, what): &(&str, &str, &str)| {
        vec![format!("`[[sim: {}]]`", format!("{name} {argument}").trim()), (*what).to_owned()]
    };
    table(&["marker", "what it does"], model::MARKERS.iter().map(row))
}

fn json_block(value: &Value) -> String {
    format!("```json\n{value:#}\n```\n")
}

#[test]
fn generated_parts_of_the_simulators_page_are_current() {
    let folder = Shop::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulators.md");
    let committed = fs::read_to_string(&path).unwrap();
    let mut text = committed.clone();
    for (name, part) in [
        ("flags of the shop", flags_table(&folder, "shop")),
        ("faults of the shop", faults_table(shop::FAULTS)),
        ("routes of the shop", routes_table(&shop::routes())),
        ("settings of the shop", json_block(&json!(shop::Settings::default()))),
        ("flags of the model", flags_table(&folder, "model")),
        ("faults of the model", faults_table(model::FAULTS)),
        ("markers of the model", markers_table()),
        ("routes of the model", routes_table(&model::routes())),
        ("settings of the model", json_block(&json!(model::Settings::default()))),
    ] {
        let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
        let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("the page has no {begin}"));
        let (_, after) = rest.split_once(end).unwrap();
        text = format!("{before}{begin}\n{part}\n{end}{after}");
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
        return;
    }
    assert!(committed == text, "simulators.md is stale: UPDATE=1 cargo nextest run generated");
}

#[test]
fn every_flag_is_found_in_its_help() {
    let folder = Shop::new();
    let found = flags(&folder, &["simulate", "shop"]);
    let retry_after = found.iter().find(|(flag, _)| flag == "--retry-after <FORM>").unwrap();
    assert_eq!(
        retry_after.1,
        "How a 429 says when to come again: seconds, date, none, mixed [default: seconds]"
    );
    assert!(found.iter().all(|(flag, _)| !flag.contains("--database-url")), "{found:?}");
    assert!(found.len() > 15, "{found:?}");
}
