//! `waypost run logs`: what a run's commands printed and its workers said.

use std::collections::VecDeque;

use clap::Args;
use serde_json::json;
use waypost_kernel::text::terminal::{output_line, plain};
use waypost_kernel::{Span, Time};
use waypost_store::{EventRow, ItemRow, PLACEHOLDER, RunRow, Store, iso, parse_time};

use crate::output::{BAD_INPUT, Failed, Format, NOT_FOUND, Result, print};
use crate::run::follow::entries::{Entry, EntryReader};
use crate::run::follow::{LOOK, is_at_rest};
use crate::run::ids::find;
use crate::run::times::Clock;

const PAGE: usize = 500;

#[derive(Debug, Args)]
#[command(
    after_help = "Lines of a run with several steps begin with the step's name.\n\nExamples:\n  waypost run logs @1\n  waypost run logs -f f9aac1c9\n  waypost run logs f9aac1c9 --step build --tail 50 -t\n  waypost run logs f9aac1c9 --since 10m -o jsonl"
)]
pub struct Logs {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Go on until the run is settled or waits for a person.
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines, this many.
    #[arg(long, value_name = "COUNT")]
    tail: Option<usize>,
    /// Only what is younger than this (10m), or than this instant (2026-02-14T08:00:00Z).
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only of the step with this name.
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// With the time before each line.
    #[arg(short, long)]
    timestamps: bool,
    /// Without the step before each line.
    #[arg(long)]
    plain: bool,
    /// As a table's lines, or an object for each line: at, seq, step, stream or level, line.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// One line of a log.
#[derive(Clone, Debug)]
pub struct LogLine {
    pub at: Time,
    pub seq: u64,
    pub step: Option<String>,
    /// `out` or `err` of what a command printed, or the level of what was said.
    pub from: Source,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Stream(String),
    Level(String),
}

/// How lines are written.
#[derive(Clone, Debug)]
pub struct Style {
    pub format: Format,
    pub clock: Clock,
    pub times: bool,
    /// How wide the column of steps is; no column if it is not given.
    pub steps: Option<usize>,
}

pub async fn logs(store: &dyn Store, flags: Logs) -> Result {
    let run = find(store, &flags.run).await?;
    let now = store.now().await?;
    let since = flags.since.as_deref().map(|text| instant(text, now)).transpose()?;
    let items = store.items(run.id().to_owned(), None).await?;
    let step = flags.step.as_deref().map(|name| step_named(&run, &items, name)).transpose()?;
    let style = Style {
        format: flags.output,
        clock: Clock::at(now),
        times: flags.timestamps,
        steps: steps_width(&run, &items).filter(|_| !flags.plain && step.is_none()),
    };
    let is_asked = |line: &LogLine| {
        since.is_none_or(|since| line.at >= since)
            && step.as_ref().is_none_or(|step| line.step.as_ref() == Some(step))
    };
    let mut reader = Reader::new(items);
    let mut last: VecDeque<LogLine> = VecDeque::new();
    let mut is_first = true;
    let mut all = Vec::new();
    loop {
        // The row first: what happened up to it is then in the events.
        let row = if flags.follow { find(store, run.id()).await? } else { run.clone() };
        while let Some(lines) = reader.next(store, run.id()).await? {
            for line in lines.into_iter().filter(is_asked) {
                match flags.tail.filter(|_| is_first) {
                    Some(count) => {
                        last.push_back(line);
                        if last.len() > count {
                            last.pop_front();
                        }
                    }
                    None => put(&line, &style, &mut all)?,
                }
            }
        }
        last.drain(..).try_for_each(|line| put(&line, &style, &mut all))?;
        is_first = false;
        if !flags.follow || is_at_rest(&row, store.now().await?) {
            break;
        }
        // The events may be ahead of the row: nobody waits for another one then.
        if reader.seq() <= row.run.seq {
            store.event_after(run.id(), reader.seq(), LOOK).await;
        }
    }
    match flags.output {
        Format::Json => print(&crate::output::pretty(&all.into())),
        _ => Ok(()),
    }
}

/// One array of all is written at the end; everything else at once.
fn put(line: &LogLine, style: &Style, all: &mut Vec<serde_json::Value>) -> Result {
    match style.format {
        Format::Table => print(&format!("{}\n", line.shown(style))),
        Format::Jsonl => print(&style.format.object(&line.object())),
        Format::Json => {
            all.push(line.object());
            Ok(())
        }
    }
}

/// A length of time before now, or an instant.
fn instant(text: &str, now: Time) -> Result<Time> {
    let ago = Span::parse(text).map(|ago| Time::from_micros(now.micros() - ago.micros()));
    ago.or_else(|| parse_time(text)).ok_or_else(|| {
        let message = format!("since: {text:?} is no time; write 10m, 2h, 7d or 2026-02-14T08:00:00Z");
        Failed::new(BAD_INPUT, message)
    })
}

fn steps_of<'i>(run: &RunRow, items: &'i [ItemRow]) -> Vec<&'i ItemRow> {
    let kind = run.lifecycle.items.first();
    let is_step =
        |item: &&ItemRow| kind.is_some_and(|kind| *kind.name == *item.kind) && item.key != PLACEHOLDER;
    items.iter().filter(is_step).collect()
}

fn step_named(run: &RunRow, items: &[ItemRow], asked: &str) -> Result<String> {
    let steps = steps_of(run, items);
    let found = steps.iter().find(|step| step.name == asked || step.key == asked);
    found.map(|step| step.name.clone()).ok_or_else(|| {
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let known = waypost_schema::instead_of(asked, &names);
        Failed::new(NOT_FOUND, format!("step: there is no {}; {known}", waypost_schema::quoted(asked)))
    })
}

/// A run of one step needs no column that says so.
pub fn steps_width(run: &RunRow, items: &[ItemRow]) -> Option<usize> {
    const WIDEST: usize = 24;
    let steps = steps_of(run, items);
    let widest = steps.iter().map(|step| plain(&step.name).chars().count()).max();
    widest.filter(|_| steps.len() > 1).map(|widest| widest.min(WIDEST))
}

/// Reads a run's events page by page, and makes lines of them.
#[derive(Debug)]
pub struct Reader {
    entries: EntryReader,
    seq: u64,
}

impl Reader {
    pub fn new(items: Vec<ItemRow>) -> Reader {
        let mut entries = EntryReader::default();
        entries.learn(items);
        Reader { entries, seq: 0 }
    }

    /// The last event that was read.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// `None`: there is nothing more for now.
    pub async fn next(&mut self, store: &dyn Store, run_id: &str) -> Result<Option<Vec<LogLine>>> {
        let events = store.events(run_id.to_owned(), self.seq, PAGE).await?;
        let Some(last) = events.last() else { return Ok(None) };
        self.seq = last.seq;
        if self.entries.needs_names(&events) {
            self.entries.learn(store.items(run_id.to_owned(), None).await?);
        }
        Ok(Some(events.iter().flat_map(|event| self.lines(event)).collect()))
    }

    pub fn lines(&mut self, event: &EventRow) -> Vec<LogLine> {
        let line = |entry| {
            let (step, from, text) = match entry {
                Entry::Line { step, stream, text } => (step, Source::Stream(stream), text),
                Entry::Message { step, level, text } => (step, Source::Level(level), text),
                Entry::Step { .. } | Entry::Task { .. } => return None,
            };
            Some(LogLine { at: event.at, seq: event.seq, step, from, text })
        };
        self.entries.read(event).into_iter().filter_map(line).collect()
    }
}

impl LogLine {
    pub fn shown(&self, style: &Style) -> String {
        let time = if style.times { format!("{} ", style.clock.of_day(self.at)) } else { String::new() };
        let step = style.steps.map(|width| {
            let name = crate::output::cut(&plain(self.step.as_deref().unwrap_or_default()), width);
            format!("{name:<width$} | ")
        });
        let text = match &self.from {
            Source::Stream(_) => output_line(&self.text).into_owned(),
            Source::Level(level) if level == "info" => plain(&self.text).into_owned(),
            Source::Level(level) => format!("{level}: {}", plain(&self.text)),
        };
        format!("{time}{}{text}", step.unwrap_or_default())
    }

    fn object(&self) -> serde_json::Value {
        let mut object = json!({ "at": iso(self.at), "seq": self.seq, "step": self.step, "line": self.text });
        match &self.from {
            Source::Stream(stream) => object["stream"] = stream.as_str().into(),
            Source::Level(level) => object["level"] = level.as_str().into(),
        }
        object
    }
}
