//! What a run's commands printed and its workers said. A page has the last lines; the whole is for downloading.

use maud::{Markup, html};
use waypost_kernel::Phase;
use waypost_kernel::text::terminal::{name, plain};
use waypost_store::log::{is_said, output_lines};
use waypost_store::{EventRow, RunRow, iso};

use super::timeline::events;
use crate::answer::{self, Result};
use crate::call::Call;
use crate::console::ask;
use crate::console::draw::ansi;
use crate::console::parts::{asked, run_path, shown};

const MOST_LINES: usize = 1_000;
/// Of a page's lines, with their markup: the page as a whole stays below 300 KB.
const MOST_PAGE_BYTES: usize = 200_000;
/// Lines that a link to one shows after it, and their bytes.
const MOST_AFTER: usize = 100;
const ROOM_AFTER: usize = 20_000;
/// Of one line; what is longer is cut on the page, and whole in the download.
const MOST_LINE_BYTES: usize = 16_000;
/// Read for a page: of a run of a hundred thousand events too.
const MOST_EVENTS: u64 = 1_000;
/// A run's output is cut at 16 MiB by whoever writes it; this is with all that stands around it.
const MOST_BYTES: usize = 32 * 1024 * 1024;

struct Line<'e> {
    event: &'e EventRow,
    /// Among those of its event.
    place: usize,
    /// `err`, or a level.
    kind: &'e str,
    text: &'e str,
}

impl Line<'_> {
    fn place(&self) -> (u64, usize) {
        (self.event.seq, self.place)
    }
}

fn lines(event: &EventRow) -> Vec<Line<'_>> {
    let line = |(place, (kind, text))| Line { event, place, kind, text };
    let printed: Vec<Line<'_>> = output_lines(&event.payload).enumerate().map(line).collect();
    if printed.is_empty() && event.payload["lines"].is_null() && is_said(event) {
        return vec![Line { event, place: 0, kind: &event.level, text: &event.message }];
    }
    printed
}

fn step(event: &EventRow) -> &str {
    event.payload["step"].as_str().unwrap_or_default()
}

pub async fn tab(call: &Call, row: &RunRow) -> Result<Markup> {
    let before = asked(call, "before").and_then(place).unwrap_or((row.run.seq + 1, 0));
    let first = before.0.saturating_sub(MOST_EVENTS);
    let found = events(call, row, first, before.0 + 1).await?;
    let wanted = asked(call, "q").unwrap_or_default().to_lowercase();
    let all = found.iter().flat_map(lines).filter(|line| line.place() < before);
    let all: Vec<Line<'_>> = all.filter(|line| line.text.to_lowercase().contains(&wanted)).collect();
    let has_steps = found.iter().any(|event| !step(event).is_empty());
    let (shown_lines, cut_at) = last_lines(&all, has_steps, wanted.is_empty());
    let is_at_rest = row.phase() == Phase::Settled && row.lifecycle.is_terminal(row.run.state);
    let older = cut_at.or((first > 0).then_some((first + 1, 0)));
    let path = run_path(row.id());
    Ok(html! {
        form.filter method="get" action=(path) role="search" {
            input type="hidden" name="tab" value="log";
            label.unseen for="q" { "Search in the log" }
            input #q type="search" name="q" value=(wanted) placeholder="search in the log" autocomplete="off";
            button type="submit" { "Search" }
            @if !is_at_rest { label.tick { input #follow type="checkbox" checked hidden; span.follow hidden { "follow" } } }
            a.button href={ (path) "/log" } download { "Download" }
        }
        @if let Some(older) = older {
            p.pager {
                a.button href={ (path) "?tab=log&before=" (older.0) "-" (older.1) "&q=" (ask::encoded(&wanted)) "#tab" } { "Older lines" }
                span.hint { "These are " (shown_lines.len()) " lines. " a href={ (path) "/log" } download { "Download the whole log" } "." }
            }
        }
        @if all.is_empty() {
            p.empty { @if wanted.is_empty() { "Nothing was printed yet." } @else { "No line of these matches." } }
        } @else {
            ol.log #log tabindex="0" aria-label="Log" { @for line in &shown_lines { (line) } }
        }
    })
}

/// `12-3`: the lines before the third one of event 12.
fn place(text: &str) -> Option<(u64, usize)> {
    let (seq, place) = text.split_once('-').unwrap_or((text, "0"));
    Some((seq.parse().ok()?, place.parse().ok()?))
}

/// As many of the last ones as a page has room for, and before which one it was cut.
fn last_lines(all: &[Line<'_>], has_steps: bool, is_whole: bool) -> (Vec<Markup>, Option<(u64, usize)>) {
    let mut found: Vec<Markup> = Vec::new();
    let mut bytes = 0;
    for (place, line) in all.iter().enumerate().rev() {
        let until = all[place..].iter().take(if is_whole { MOST_AFTER } else { 1 });
        let mut room = ROOM_AFTER;
        let fits = |line: &&Line<'_>| {
            room = room.saturating_sub(line.text.len().min(MOST_LINE_BYTES));
            room > 0
        };
        let until = until.take_while(fits).last().unwrap_or(line).place();
        let markup = shown_line(line, (until.0, until.1 + 1), has_steps);
        bytes += markup.0.len();
        if found.len() == MOST_LINES || bytes > MOST_PAGE_BYTES && !found.is_empty() {
            found.reverse();
            return (found, all.get(place + 1).map(Line::place));
        }
        found.push(markup);
    }
    found.reverse();
    (found, None)
}

/// `before`: the page on which it is found for good, however many lines follow.
fn shown_line(line: &Line<'_>, before: (u64, usize), has_steps: bool) -> Markup {
    let id = format!("L{}-{}", line.event.seq, line.place);
    let mut end = line.text.len().min(MOST_LINE_BYTES);
    while !line.text.is_char_boundary(end) {
        end -= 1;
    }
    html! {
        li id=(id) class={ "line-" (line.kind) } {
            a.at href={ "?tab=log&before=" (before.0) "-" (before.1) "#" (id) } title=(iso(line.event.at)) { (clock(&iso(line.event.at))) }
            @if has_steps { span.step title=(shown(step(line.event))) { (shown(step(line.event))) } }
            span.text {
                (ansi::line(&line.text[..end]))
                @if end < line.text.len() { " " span.hint { "cut: " (line.text.len()) " bytes in all; the download has the whole" } }
            }
        }
    }
}

/// `16:36:52` of `2026-11-16T16:36:52.696Z`.
fn clock(iso: &str) -> &str {
    iso.get(11..19).unwrap_or(iso)
}

pub async fn download(call: Call) -> Result {
    let row = call.run().await?;
    let mut text = String::new();
    let mut after = 0;
    loop {
        let page = events(&call, &row, after, after + MOST_EVENTS + 1).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for line in page.iter().flat_map(lines) {
            let step = Some(step(line.event)).filter(|step| !step.is_empty()).unwrap_or("-");
            let (at, kind) = (iso(line.event.at), line.kind);
            text.push_str(&format!("{at} {kind} {} {}\n", name(step), plain(line.text)));
        }
        if text.len() > MOST_BYTES {
            text.push_str("cut: the rest is in the run's events\n");
            break;
        }
    }
    let file_name: String =
        row.id().chars().filter(|it| it.is_ascii_alphanumeric() || "-_".contains(*it)).collect();
    let answer = answer::text(200, "text/plain; charset=utf-8", text);
    Ok(answer::with(answer, "content-disposition", &format!("attachment; filename=\"{file_name}.log\"")))
}
