//! `waypost run targets`: what a bulk change is about, target by target; and what a preview comes to.

use clap::{Args, ValueEnum};
use serde_json::Value;
use waypost_kernel::text::terminal::plain;
use waypost_store::{DeadLetterFilter, ItemFilter, ItemRow, Preview, RunRow, Store};
use waypost_worker::targets::gather::is_stopped;
use waypost_worker::targets::has_targets;
use waypost_worker::targets::row::in_words;

use crate::output::{BAD_INPUT, Failed, Result, cells, print, table_within, width};
use crate::place::{suggested, tenant};
use crate::run::ids::{find, short};

const PAGE: usize = 500;
/// Of a table, unless more are asked for.
const SHOWN: usize = 50;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  waypost run targets @1\n  waypost run targets @1 --status FAILED\n  waypost run targets @1 -o csv > targets.csv"
)]
pub struct Targets {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Only those in this state: PREVIEW, QUEUED, APPLYING, APPLIED, FAILED, ROLLED_BACK.
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// At most so many. Default: 50 of a table, else all.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    #[arg(short, long, value_enum, default_value_t)]
    output: As,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum As {
    #[default]
    Table,
    Json,
    Jsonl,
    Csv,
}

pub async fn targets(store: &dyn Store, flags: Targets) -> Result {
    let run = find(store, &flags.run).await?;
    if !has_targets(&run) {
        let message = format!("{} is a {} run, which has no targets", run.id(), run.lifecycle.name);
        return Err(Failed::new(BAD_INPUT, message));
    }
    let status = flags.status.as_deref().map(|status| known_status(&run, status)).transpose()?;
    let most = flags.limit.unwrap_or(if flags.output == As::Table { SHOWN } else { usize::MAX });
    let mut pages = Pages::new(&run, status, most);
    match flags.output {
        As::Table => as_table(store, &mut pages, &run).await,
        As::Json => {
            let mut all = Vec::new();
            while let Some(page) = pages.next(store).await? {
                all.extend(page.iter().map(ItemRow::object));
            }
            print(&format!("{:#}", Value::Array(all)))
        }
        As::Jsonl => {
            while let Some(page) = pages.next(store).await? {
                page.iter().try_for_each(|item| print(&format!("{}\n", item.object())))?;
            }
            Ok(())
        }
        As::Csv => {
            print(
                "target,status,before,after,attempts,try_no,error_code,error_msg,finished_at,discarded_at,discard_reason\n",
            )?;
            while let Some(page) = pages.next(store).await? {
                page.iter().try_for_each(|item| print(&format!("{}\n", csv_line(item))))?;
            }
            Ok(())
        }
    }
}

/// As the lifecycle writes it, in whatever case it was typed.
fn known_status(run: &RunRow, typed: &str) -> Result<String> {
    let states = run.lifecycle.items.iter().flat_map(|kind| &kind.states);
    let names: Vec<&str> = states.map(|state| &*state.name).collect();
    match names.iter().find(|name| name.eq_ignore_ascii_case(typed)) {
        Some(name) => Ok((*name).to_owned()),
        None => {
            let message = format!("status: a target is never {typed:?}: {}", names.join(", "));
            Err(Failed::new(BAD_INPUT, message))
        }
    }
}

/// Targets, page by page.
pub struct Pages {
    filter: ItemFilter,
    left: usize,
    is_done: bool,
}

impl Pages {
    pub fn new(run: &RunRow, status: Option<String>, most: usize) -> Pages {
        let kind = run.lifecycle.items.first().map(|kind| kind.name.to_string());
        let filter =
            ItemFilter { run_id: run.id().to_owned(), kind, status, limit: PAGE, ..ItemFilter::default() };
        Pages { filter, left: most, is_done: false }
    }

    pub async fn next(&mut self, store: &dyn Store) -> Result<Option<Vec<ItemRow>>> {
        if self.is_done || self.left == 0 {
            return Ok(None);
        }
        self.filter.limit = self.left.min(PAGE);
        let page = store.item_page(self.filter.clone()).await?;
        self.left -= page.items.len().min(self.left);
        self.is_done = page.next.is_none();
        self.filter.cursor = page.next;
        Ok(Some(page.items).filter(|items| !items.is_empty()))
    }
}

async fn as_table(store: &dyn Store, pages: &mut Pages, run: &RunRow) -> Result {
    let mut items = Vec::new();
    while let Some(page) = pages.next(store).await? {
        items.extend(page);
    }
    print(&table_of(&items))?;
    if !pages.is_done {
        let id = short(run.id());
        let all = suggested(&format!("run targets {id} -o csv"));
        crate::output::tell(&format!("the first {}; all of them: {all}", items.len()));
    }
    Ok(())
}

pub fn table_of(items: &[ItemRow]) -> String {
    let rows = items.iter().map(|item| {
        let shown = |name: &str| shown(item.details.get(name));
        let why = item.failure.as_ref().map(|it| format!("{}: {}", it.code, it.message));
        let why = why.or_else(|| {
            let violation = item.details.get("violation")?;
            Some(format!("{}: {}", violation["code"].as_str()?, violation["message"].as_str()?))
        });
        let mut why = why.unwrap_or_default();
        if item.discarded {
            why = format!("{why}; discarded: {}", shown("discard_reason"));
        }
        let row = [item.key.clone(), item.status.clone(), shown("before"), shown("after"), why];
        cells(row.map(|text| plain(&text).into_owned()))
    });
    table_within(&["target", "status", "before", "after", "why"], rows, width())
}

fn shown(value: Option<&Value>) -> String {
    value.map(in_words).unwrap_or_default()
}

fn csv_line(item: &ItemRow) -> String {
    let failure = item.failure.as_ref();
    let cells = [
        item.key.clone(),
        item.status.clone(),
        shown(item.details.get("before")),
        shown(item.details.get("after")),
        item.attempts.to_string(),
        item.try_no.to_string(),
        failure.map(|it| it.code.to_string()).unwrap_or_default(),
        failure.map(|it| it.message.to_string()).unwrap_or_default(),
        item.finished_at.map(|at| at.to_string()).unwrap_or_default(),
        shown(item.details.get("discarded_at")),
        shown(item.details.get("discard_reason")),
    ];
    cells.map(|cell| quoted(&cell)).join(",")
}

/// RFC 4180; and what begins like a formula is no formula when a spreadsheet opens it.
fn quoted(cell: &str) -> String {
    let is_number = cell.parse::<f64>().is_ok();
    let guarded = match cell.chars().next() {
        Some('=' | '+' | '-' | '@' | '\t') if !is_number => format!("'{cell}"),
        _ => cell.to_owned(),
    };
    if guarded.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", guarded.replace('"', "\"\""));
    }
    guarded
}

/// What a preview comes to, for people.
pub fn preview_in_words(run: &RunRow) -> Option<String> {
    Preview::of(&run.details).map(|preview| in_words_of(&preview))
}

pub fn in_words_of(preview: &Preview) -> String {
    let totals = &preview.totals;
    let number = |name: &str| totals.get(name).and_then(Value::as_u64).unwrap_or_default();
    let mut lines = Vec::new();
    if is_stopped(preview) {
        let count = preview.stopped;
        lines.push(format!(
            "nothing would change: {count} targets are past a guardrail, and on_violation is \"stop\". Without them:"
        ));
    }
    lines.push(format!(
        "{} targets would change ({} up, {} down), {} rows are unchanged, {} have no value",
        preview.targets - preview.stopped.min(preview.targets),
        number("rises"),
        number("falls"),
        preview.unchanged,
        number("no_value"),
    ));
    // Of texts among the values there is no sum.
    let sum = |name: &str| totals.get(name).filter(|sum| !sum.is_null());
    if let (Some(before), Some(after)) = (sum("before"), sum("after")) {
        lines.push(format!("total      {before} → {after} ({})", signed(&totals["difference"])));
    }
    for (name, word) in [("largest_rise", "rise"), ("largest_fall", "fall")] {
        if let Some(largest) = totals.get(name).filter(|largest| !largest.is_null()) {
            let target = largest["target"].as_str().unwrap_or_default();
            lines.push(format!("most {word}  {} % ({target})", largest["percent"]));
        }
    }
    if preview.stopped > 0 {
        let by = totals.get("stopped_by").and_then(Value::as_object).into_iter().flatten();
        let by: Vec<String> = by.map(|(name, count)| format!("{name} {count}")).collect();
        lines.push(format!(
            "{} are past a guardrail and would not change: {}",
            preview.stopped,
            by.join(", ")
        ));
    }
    if !preview.ready {
        lines.push("the targets are still being gathered".to_owned());
    }
    plain(&lines.join("\n")).into_owned()
}

fn signed(value: &Value) -> String {
    let text = value.to_string();
    if text.starts_with('-') || text == "0" { text } else { format!("+{text}") }
}

/// How many targets are how, and why some failed: for `run show` and at the end of `run watch`.
pub async fn summary(store: &dyn Store, run: &RunRow) -> Result<Option<String>> {
    if !has_targets(run) {
        return Ok(None);
    }
    let object = run.object();
    let kind = run.lifecycle.items.first().map(|kind| &*kind.name).unwrap_or_default();
    let counts = object["items"][kind].as_object().cloned().unwrap_or_default();
    let total: u64 = counts.values().filter_map(Value::as_u64).sum();
    let parts: Vec<String> = counts
        .iter()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    let mut text = format!("{total} targets: {}", parts.join(", "));
    let filter =
        DeadLetterFilter { tenant: tenant().to_owned(), run_id: Some(run.id().to_owned()), code: None };
    let classes = store.dead_letters(filter).await?;
    if !classes.is_empty() {
        let rows = classes.iter().map(|class| {
            let sample = format!("{}: {}", class.sample.key, class.sample.message);
            cells([class.code.clone(), class.count.to_string(), sample].map(|cell| plain(&cell).into_owned()))
        });
        text = format!("{text}\n\n{}", table_within(&["failed with", "targets", "the first"], rows, width()));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_quoted_and_no_formulas() {
        for (cell, expected) in [
            ("a", "a"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("-5.5", "-5.5"),
            ("=cmd()", "'=cmd()"),
            ("@x,y", "\"'@x,y\""),
        ] {
            assert_eq!(quoted(cell), expected);
        }
        assert_eq!(signed(&json!(5.2)), "+5.2");
        assert_eq!(signed(&json!(-5)), "-5");
    }
}
