//! `waypost run list`.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use comfy_table::Cell;
use waypost_kernel::Span;
use waypost_kernel::text::MAX_PAGE;
use waypost_kernel::text::terminal;
use waypost_store::{Filter, Needs, Parts, RunRow, Store};

use super::{waits, worked};
use crate::output::{
    Column, Format, Result, cell, cut, fitted, print_list, status, table_within, tell, width,
};
use crate::place::{Opened, suggested, tenant};
use crate::run::ids::shorts;
use crate::run::times::{Clock, age};

#[derive(Debug, Args)]
#[command(
    after_help = "The short ids in the list work wherever a run is asked for, and @1 is the newest run, @2 the one before it.\n\nExamples:\n  waypost run list\n  waypost run list --status failed -o json\n  waypost run list --stuck\n  waypost run list --waiting\n  waypost run list --text staging --limit 5"
)]
pub struct List {
    /// Runs of this lifecycle: see `waypost lifecycle list`.
    #[arg(long, value_name = "NAME")]
    lifecycle: Option<String>,
    /// Runs in this state of their lifecycle.
    #[arg(long, value_name = "STATE")]
    status: Option<String>,
    /// Runs of this queue: see `waypost queue stats`.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Runs that nobody works any more: their worker is gone, and no other took them over.
    #[arg(long, conflicts_with = "waiting")]
    stuck: bool,
    /// Runs that wait for a person.
    #[arg(long)]
    waiting: bool,
    /// A part of the id, the correlation id or the metadata.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 20, value_name = "COUNT", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn list(opened: &Opened, flags: List) -> Result {
    let store = opened.store();
    let needs = if flags.stuck { Some(Needs::Worker) } else { flags.waiting.then_some(Needs::Person) };
    let mut filter = Filter {
        tenant: tenant().into(),
        lifecycle: flags.lifecycle,
        status: flags.status,
        queue: flags.queue,
        needs,
        text: flags.text,
        limit: flags.limit,
        include: Parts::NONE,
        ..Filter::default()
    };
    let asked = filter.clone();
    // A server looks at the words itself.
    if matches!(opened, Opened::Database(..)) && (asked.lifecycle.is_some() || asked.status.is_some()) {
        asked.check(&store.lifecycles().await?)?;
    }
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
    if let Some(queue) = asked.queue.as_ref().filter(|_| runs.is_empty())
        && let Some(unknown) = unknown_queue(&*store, queue).await?
    {
        tell(&unknown);
    }
    let runs = explained(&*store, runs).await?;
    let clock = Clock::at(store.now().await?);
    if is_cut && flags.output == Format::Table {
        tell(&format!("the newest {}; more with --limit", runs.len()));
    }
    let worked = match flags.output {
        Format::Table => worked::of_list(&*store, &runs, clock.now).await?,
        _ => Vec::new(),
    };
    let objects = runs.iter().map(|run| run.listed(Parts::NONE)).collect();
    print_list(objects, flags.output, || match (runs.is_empty(), asked.is_narrowed()) {
        (false, _) => as_table(&runs, &worked, &clock, width()),
        (true, true) => "no run matches".to_owned(),
        (true, false) => format!("no runs; start one: {}", suggested("run start --wait -- echo hi")),
    })
}

/// Each with why it waits, a page at a time.
async fn explained(store: &dyn Store, runs: Vec<RunRow>) -> Result<Vec<RunRow>> {
    let mut all = Vec::with_capacity(runs.len());
    for page in runs.chunks(MAX_PAGE) {
        all.extend(store.explain(page.to_vec()).await?);
    }
    Ok(all)
}

/// A queue that never had a run and has no setting may be a typing error: in words. Names of queues are anybody's, so that it is no error.
pub async fn unknown_queue(store: &dyn Store, queue: &str) -> Result<Option<String>> {
    let queues = store.queues(Some(tenant().to_owned())).await?;
    if queues.iter().any(|known| known.name == queue) {
        return Ok(None);
    }
    let any =
        Filter { tenant: tenant().into(), queue: Some(queue.to_owned()), limit: 1, ..Filter::default() };
    if !store.runs(any).await?.runs.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = queues.iter().map(|known| known.name.as_str()).collect();
    let known = match names.is_empty() {
        true => "no queue has runs that wait or are worked, or a setting".to_owned(),
        false => waypost_schema::instead_of(queue, &names),
    };
    Ok(Some(format!("queue: no run is or was in {}; {known}", waypost_schema::quoted(queue))))
}

const COLUMNS: [Column; 10] = [
    Column { name: "run", rank: 0, least: None },
    Column { name: "title", rank: 0, least: Some(12) },
    Column { name: "status", rank: 0, least: None },
    Column { name: "age", rank: 1, least: None },
    Column { name: "took", rank: 3, least: None },
    Column { name: "why", rank: 2, least: Some(12) },
    Column { name: "lifecycle", rank: 4, least: None },
    Column { name: "queue", rank: 5, least: None },
    Column { name: "worker", rank: 6, least: None },
    Column { name: "queued", rank: 7, least: None },
];
const STATUS: usize = 2;

/// `worked` is how long each of them was worked, where that is known.
pub fn as_table(runs: &[RunRow], worked: &[Option<Span>], clock: &Clock, width: Option<usize>) -> String {
    let ids: Vec<&str> = runs.iter().map(RunRow::id).collect();
    let shown = runs.iter().zip(shorts(&ids)).zip(worked);
    let rows: Vec<Vec<String>> = shown.map(|((run, id), worked)| texts(run, id, *worked, clock)).collect();
    let fitted = fitted(&COLUMNS, &rows, width);
    let head: Vec<&str> = fitted.iter().map(|(at, _)| COLUMNS[*at].name).collect();
    let cells = runs.iter().zip(&rows).map(|(run, row)| {
        let shown = |(at, widest): &(usize, usize)| -> Cell {
            if *at == STATUS { status(run) } else { cell(cut(&row[*at], *widest)) }
        };
        fitted.iter().map(shown).collect()
    });
    // What fits is not arranged again.
    table_within(&head, cells, None)
}

fn texts(run: &RunRow, short: &str, took: Option<Span>, clock: &Clock) -> Vec<String> {
    let times = &run.run;
    let worker = times.lease.as_ref().and_then(|lease| lease.worker.as_deref()).unwrap_or_default();
    let name = |text: &str| terminal::name(text).into_owned();
    let why = waits::in_short(run, clock.now).unwrap_or_else(|| why(run));
    vec![
        name(short),
        name(run.title.as_deref().unwrap_or_default()),
        name(run.status()),
        age(clock.now - times.created_at),
        took.map(age).unwrap_or_default(),
        terminal::plain(&why).into_owned(),
        name(&run.lifecycle.name),
        name(&run.queue),
        name(worker),
        clock.local(times.created_at),
    ]
}

fn why(run: &RunRow) -> String {
    let run = &run.run;
    let intent =
        run.intent.as_ref().map(|intent| format!("{} asked by {}", intent.want.command(), intent.by));
    let failure = run.failure.as_ref().map(|failure| match failure.message.is_empty() {
        true => failure.code.to_string(),
        false => format!("{}: {}", failure.code, failure.message),
    });
    intent.or(failure).or_else(|| run.reason.as_ref().map(ToString::to_string)).unwrap_or_default()
}
