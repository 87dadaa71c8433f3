//! What a filter finds, as a file: page by page, so that nothing is held for whoever reads slowly.

use std::convert::Infallible;

use axum::body::Body;
use futures_util::stream;
use waypost_store::{Filter, Parts, RunRow, iso};

use super::runs;
use crate::answer::{self, Result};
use crate::call::Call;
use crate::console::parts::{self, asked};
use crate::problem::{INVALID_QUERY, Problem};

/// Rows of a file. Who needs more asks the API, page by page.
pub const MOST: usize = 50_000;
const PAGE: usize = 500;

const COLUMNS: [&str; 13] = [
    "run_id",
    "title",
    "lifecycle",
    "status",
    "outcome",
    "queue",
    "playbook",
    "correlation_id",
    "created_at",
    "started_at",
    "finished_at",
    "error_code",
    "error_msg",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Lines,
}

pub async fn download(call: Call) -> Result {
    let format = match asked(&call, "format").unwrap_or("csv") {
        "csv" => Format::Csv,
        "jsonl" => Format::Lines,
        other => {
            let message = format!("is {other:?}; csv or jsonl are allowed");
            return Err(Problem::field(&INVALID_QUERY, "format", &message));
        }
    };
    let typed = asked(&call, "filter").unwrap_or_default().trim().to_owned();
    let now = parts::now(&call).await?;
    let filter = runs::filter(&call, &typed, now).await?;
    let filter = Filter { limit: PAGE, include: Parts::NONE, ..filter };
    let (kind, name) = match format {
        Format::Csv => ("text/csv; charset=utf-8", "runs.csv"),
        Format::Lines => ("application/x-ndjson", "runs.jsonl"),
    };
    let head = if format == Format::Csv { format!("{}\r\n", COLUMNS.join(",")) } else { String::new() };
    let first = (call, Some(filter), head, MOST);
    let pages = stream::unfold(first, move |(call, filter, mut text, left)| async move {
        let mut filter = filter?;
        // A file that breaks off is seen to: the connection ends before the body does.
        let page = call.store().runs(filter.clone()).await.ok()?;
        for row in page.runs.iter().take(left) {
            match format {
                Format::Csv => text.push_str(&line(row)),
                Format::Lines => text.push_str(&format!("{}\n", row.listed(Parts::NONE))),
            }
        }
        let left = left.saturating_sub(page.runs.len());
        filter.cursor = page.next;
        let next = Some(filter).filter(|filter| filter.cursor.is_some() && left > 0);
        Some((Ok::<_, Infallible>(text), (call, next, String::new(), left)))
    });
    let mut answer = answer::text(200, kind, String::new());
    *answer.body_mut() = Body::from_stream(pages);
    Ok(answer::with(answer, "content-disposition", &format!("attachment; filename=\"{name}\"")))
}

fn line(row: &RunRow) -> String {
    let failure = row.run.failure.as_ref();
    let time = |at: Option<waypost_kernel::Time>| at.map(iso).unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let cells = [
        row.id().to_owned(),
        text(&row.title),
        row.lifecycle.name.to_string(),
        row.status().to_owned(),
        row.outcome().map(|outcome| outcome.name().to_owned()).unwrap_or_default(),
        row.queue.clone(),
        text(&row.playbook),
        text(&row.correlation_id),
        iso(row.run.created_at),
        time(row.run.started_at),
        time(row.run.finished_at),
        failure.map(|failure| failure.code.to_string()).unwrap_or_default(),
        failure.map(|failure| failure.message.to_string()).unwrap_or_default(),
    ];
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    format!("{}\r\n", cells.join(","))
}

/// What a spreadsheet would take for a formula is marked as text.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_none_ends_its_line() {
        for (text, written) in [
            ("plain", "plain"),
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2,3", "\"'-2,3\""),
            ("+a\"b", "\"'+a\"\"b\""),
            ("a\nb", "\"a\nb\""),
            ("\t=1", "'\t=1"),
            ("", ""),
        ] {
            assert_eq!(cell(text), written, "{text:?}");
        }
    }
}
