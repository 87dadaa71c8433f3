//! `waypost run list|events`: looking only.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use comfy_table::Cell;
use waypost_kernel::Time;
use waypost_kernel::text::MAX_PAGE;
use waypost_store::{EventRow, Filter, Needs, Parts, RunRow, Store, iso};

use super::show::countdown;
use super::{age, find};
use crate::output::{Format, Result, cells, print_list, status, table};
use crate::place::tenant;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  waypost run list\n  waypost run list --status failed -o json\n  waypost run list --stuck\n  waypost run list --waiting\n  waypost run list --text staging --limit 5"
)]
pub struct List {
    #[arg(long)]
    lifecycle: Option<String>,
    #[arg(long)]
    status: Option<String>,
    #[arg(long)]
    queue: Option<String>,
    /// Only those that nobody works any more: their worker is gone, and no other took them over.
    #[arg(long, conflicts_with = "waiting")]
    stuck: bool,
    /// Only those that wait for a person.
    #[arg(long)]
    waiting: bool,
    /// A part of the id, the correlation id or the metadata.
    #[arg(long)]
    text: Option<String>,
    #[arg(long, default_value_t = 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  waypost run events run-0192\n  waypost run events run-0192 --after 3 -o jsonl"
)]
pub struct Events {
    run: String,
    /// Only those after this number.
    #[arg(long, default_value_t = 0)]
    after: u64,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn list(store: &dyn Store, flags: List) -> Result {
    let needs = if flags.stuck { Some(Needs::Worker) } else { flags.waiting.then_some(Needs::Person) };
    let mut filter = Filter {
        tenant: tenant().into(),
        lifecycle: flags.lifecycle,
        status: flags.status,
        queue: flags.queue,
        needs,
        text: flags.text,
        limit: flags.limit,
        cursor: None,
        include: Parts::NONE,
    };
    let mut runs = Vec::new();
    let is_cut = loop {
        // A store gives a page at a time, however many are asked for.
        let page = store.runs(filter.clone()).await?;
        runs.extend(page.runs);
        filter.limit = flags.limit.saturating_sub(runs.len());
        filter.cursor = page.next;
        if filter.cursor.is_none() || filter.limit == 0 {
            break filter.cursor.is_some();
        }
    };
    let runs = explained(store, runs).await?;
    let now = store.now().await?;
    if is_cut && flags.output == Format::Table {
        anstream::eprintln!("the newest {}; more with --limit", runs.len());
    }
    let objects = runs.iter().map(|run| run.listed(Parts::NONE)).collect();
    print_list(objects, flags.output, || as_table(&runs, now))
}

/// Each with why it waits, a page at a time.
async fn explained(store: &dyn Store, runs: Vec<RunRow>) -> Result<Vec<RunRow>> {
    let mut all = Vec::with_capacity(runs.len());
    for page in runs.chunks(MAX_PAGE) {
        all.extend(store.explain(page.to_vec()).await?);
    }
    Ok(all)
}

fn as_table(runs: &[RunRow], now: Time) -> String {
    if runs.is_empty() {
        return "no runs; start one: waypost run start --wait -- echo hi".into();
    }
    let rows = runs.iter().map(|run| {
        let end = run.run.finished_at.unwrap_or(now);
        vec![
            Cell::new(run.id()),
            Cell::new(&run.lifecycle.name),
            status(run),
            Cell::new(&run.queue),
            Cell::new(age(now - run.run.created_at)),
            Cell::new(run.run.started_at.map(|start| age(end - start)).unwrap_or_default()),
            Cell::new(countdown(run, now).unwrap_or_else(|| why(run))),
        ]
    });
    table(&["run", "lifecycle", "status", "queue", "age", "took", "why"], rows)
}

fn why(run: &RunRow) -> String {
    if let Some(waiting) = run.waiting() {
        return waiting.text.clone();
    }
    let run = &run.run;
    let intent =
        run.intent.as_ref().map(|intent| format!("{} asked by {}", intent.want.command(), intent.by));
    let failure = run.failure.as_ref().map(|failure| failure.code.to_string());
    intent.or(failure).or_else(|| run.reason.as_ref().map(ToString::to_string)).unwrap_or_default()
}

pub async fn events(store: &dyn Store, flags: Events) -> Result {
    let run = find(store, &flags.run).await?;
    let mut found = Vec::new();
    let mut after = flags.after;
    loop {
        let page = store.events(run.id().to_owned(), after, 500).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        found.extend(page);
    }
    let objects = found.iter().map(EventRow::object).collect();
    print_list(objects, flags.output, || events_table(&found))
}

/// Why somebody did it, if the message does not say so.
fn reason_of(event: &EventRow) -> String {
    let reason = event.payload["reason"].as_str().filter(|reason| !event.message.contains(reason));
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

pub fn events_table(events: &[EventRow]) -> String {
    let rows = events.iter().map(|event| {
        let lines = event.payload["lines"].as_array().map(|lines| match lines.len() {
            1 => " (1 line)".to_owned(),
            count => format!(" ({count} lines)"),
        });
        let moved = match &event.from {
            Some(from) if *from != event.to => format!("{from} → {}", event.to),
            Some(_) => event.to.clone(),
            None => format!("→ {}", event.to),
        };
        cells([
            event.seq.to_string(),
            iso(event.at),
            event.command.clone(),
            moved,
            format!("{} {}", event.actor, event.by),
            format!("{}{}{}", event.message, lines.unwrap_or_default(), reason_of(event)),
        ])
    });
    table(&["seq", "at", "command", "state", "by", "message"], rows)
}
