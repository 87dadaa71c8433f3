//! What an operation on a bulk change came to: how many, and which of them were not as they should be.

use maud::{Markup, html};
use serde_json::Value;
use waypost_worker::targets::row::in_words;

use crate::console::parts::{figure, list, shown, text};

/// Figures of reports, in the order in which they are shown; the last word is whether somebody should look.
const FIGURES: [(&str, &str, bool); 7] = [
    ("rolledBack", "Rolled back", false),
    ("totalChecked", "Compared", false),
    ("mismatches", "Mismatches", true),
    ("superseded", "Changed by later runs", false),
    ("drifted", "Changed by others", true),
    ("errors", "Not rolled back", true),
    ("fetchErrors", "Not read", true),
];

/// At most so many rows of each list: all of them are in the operation's log.
pub fn report(report: &Value, most: usize) -> Markup {
    let known =
        FIGURES.iter().filter_map(|(name, label, is_bad)| Some((report[name].as_u64()?, *label, *is_bad)));
    let found: Vec<&Value> = ["details", "drift"].into_iter().flat_map(|name| list(report, name)).collect();
    let failures = list(report, "failures");
    html! {
        dl.figures.few { @for (count, label, is_bad) in known { (figure(label, &html! { (count) }, is_bad && count > 0)) } }
        @if let Some(run) = report["retriedBy"].as_str() { p { "Changed again by " (crate::console::parts::run_link(run)) } }
        @if !found.is_empty() { (mismatches(&found, most)) }
        @if !failures.is_empty() { (failed(failures, most)) }
    }
}

fn mismatches(found: &[&Value], most: usize) -> Markup {
    html! {
        table.list {
            thead { tr { th scope="col" { "Target" } th.num scope="col" { "Expected" } th.num scope="col" { "Actual" } th.num scope="col" { "Difference" } } }
            tbody {
                @for entry in found.iter().take(most) {
                    tr {
                        td.main { b { (shown(text(entry, "targetId"))) } }
                        td.num { (shown(&in_words(&entry["expected"]))) }
                        td.num { (shown(&in_words(&entry["actual"]))) }
                        td.num { (signed(&in_words(&entry["difference"]))) }
                    }
                }
            }
        }
        (rest(found.len(), most))
    }
}

fn failed(failures: &[Value], most: usize) -> Markup {
    html! {
        table.list {
            thead { tr { th scope="col" { "Target" } th scope="col" { "Class" } th scope="col" { "Why" } } }
            tbody {
                @for entry in failures.iter().take(most) {
                    tr {
                        td { b { (shown(text(entry, "targetId"))) } }
                        td { code { (shown(text(entry, "code"))) } }
                        td.main { (shown(text(entry, "message"))) }
                    }
                }
            }
        }
        (rest(failures.len(), most))
    }
}

fn rest(count: usize, most: usize) -> Markup {
    html! { @if count > most { p.hint { (most) " of " (count) " that are listed; all of them are in the operation's events." } } }
}

/// What is more has a plus.
pub fn signed(number: &str) -> String {
    match number {
        "" | "0" => number.to_owned(),
        number if number.starts_with('-') => number.replacen('-', "−", 1),
        number => format!("+{number}"),
    }
}
