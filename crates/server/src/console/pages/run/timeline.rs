//! A run's way through its lifecycle, and when it took it.

use std::collections::HashMap;

use maud::{Markup, html};
use waypost_kernel::lifecycle::Actor;
use waypost_kernel::{Lifecycle, Outcome, Phase, Span, StateId, Time};
use waypost_store::{EventRow, ItemFilter, ItemRow, RunRow};
use waypost_worker::in_order;

use super::attempts::attempts;
use crate::answer::Result;
use crate::call::Call;
use crate::console::draw::diagram::{Move, Walked, diagram};
use crate::console::draw::gantt::{Bar, Line, gantt};
use crate::console::parts::{list, text, tone};

const PAGE: usize = 500;
const MOST_ITEMS: usize = 200;

/// A run's events after one and before another. Read a page at a time, of which few are put together at once.
pub async fn events(call: &Call, row: &RunRow, after: u64, before: u64) -> Result<Vec<EventRow>> {
    let mut found: Vec<EventRow> = Vec::new();
    loop {
        let last = found.last().map_or(after, |event| event.seq);
        if last + 1 >= before {
            return Ok(found);
        }
        let _turn = call.page_turn().await;
        let page = call.store().events(row.id().to_owned(), last, PAGE).await?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page.into_iter().filter(|event| event.seq < before));
    }
}

/// Events that moved the run: of a long run among its first and its last.
pub async fn moves(call: &Call, row: &RunRow) -> Result<Vec<EventRow>> {
    let mut found = first_and_last(call, row).await?;
    found.retain(is_move);
    Ok(found)
}

pub fn is_move(event: &EventRow) -> bool {
    event.from.as_ref() != Some(&event.to)
}

async fn first_and_last(call: &Call, row: &RunRow) -> Result<Vec<EventRow>> {
    let page = PAGE as u64;
    let mut found = events(call, row, 0, page + 1).await?;
    if row.run.seq > page {
        let later = row.run.seq.saturating_sub(page).max(page);
        found.extend(events(call, row, later, row.run.seq + 1).await?);
    }
    Ok(found)
}

pub fn drawing(row: &RunRow, moves: &[EventRow]) -> Markup {
    let id = |name: &str| row.lifecycle.state_named(name);
    let edge = |event: &EventRow| {
        let (from, to) = (id(event.from.as_deref()?)?, id(&event.to)?);
        Some(Move { from, to, command: event.command.clone() })
    };
    let walked = Walked { current: row.run.state, moves: moves.iter().filter_map(edge).collect() };
    diagram(&row.lifecycle, Some(&walked), "run")
}

pub async fn tab(call: &Call, row: &RunRow, now: Time) -> Result<Markup> {
    let found = first_and_last(call, row).await?;
    let moves: Vec<&EventRow> = found.iter().filter(|event| is_move(event)).collect();
    // Waits between tries are drawn over what the run was meanwhile.
    let whole = bars(row, &moves).into_iter().chain(found.iter().filter_map(wait)).collect();
    let mut lines = vec![Line { label: "run".to_owned(), note: String::new(), is_part: false, bars: whole }];
    lines.extend(attempts(&row.lifecycle, &found, row.run.attempt.into()));
    // What is cut out of a long run's middle would look like time in one state.
    let is_whole = found.len() as u64 >= row.run.seq;
    let steps = if is_whole { item_moves(&found) } else { HashMap::new() };
    let filter = ItemFilter { run_id: row.id().to_owned(), limit: MOST_ITEMS, ..ItemFilter::default() };
    let turn = call.page_turn().await;
    let items = call.store().item_page(filter).await?;
    drop(turn);
    let began = in_order(row, &items.items).into_iter().filter(|(item, _)| item.started_at.is_some());
    lines.extend(began.filter_map(|(item, step)| line(row, item, step, &steps)));
    let drawn = |class: &str| lines.iter().flat_map(|line| &line.bars).any(|bar| bar.tone == class);
    Ok(html! {
        (gantt(&lines, now))
        @if items.next.is_some() { p.hint { "The first " (MOST_ITEMS) " items; the others are in their own list." } }
        p.legend {
            @for (class, word) in LEGEND.into_iter().filter(|(class, _)| drawn(class)) { span { span.swatch.(class) {} " " (word) } " " }
        }
    })
}

/// The colour of what failed, or was told to wait, and will be tried again.
const AGAIN: &str = "tried-again";
const WAITS_TO_TRY: &str = "waits to be tried again";

const LEGEND: [(&str, &str); 11] = [
    ("phase-draft", "is a draft"),
    ("phase-ready", "waits for a worker"),
    ("phase-held", "is worked"),
    (AGAIN, WAITS_TO_TRY),
    ("phase-parked", "waits for a person"),
    ("outcome-succeeded", "done"),
    ("outcome-partial", "done in part"),
    ("outcome-failed", "did not succeed"),
    ("outcome-cancelled", "was cancelled"),
    ("outcome-skipped", "was skipped"),
    ("outcome-reverted", "was set back"),
];

/// From each move to the next. The last state of a run that is settled takes no time.
fn bars(row: &RunRow, moves: &[&EventRow]) -> Vec<Bar> {
    let state = |name: &str| row.lifecycle.state_named(name).map(|id| row.lifecycle.state(id));
    let phase = |name: &Option<String>| name.as_deref().and_then(state).map(|state| state.phase);
    let ends = moves.iter().skip(1).map(|event| Some(event.at)).chain([None]);
    let bar = |(event, end): (&&EventRow, Option<Time>)| {
        let state = state(&event.to)?;
        let is_over = end.is_none() && state.phase == Phase::Settled;
        let to = if is_over { Some(event.at) } else { end };
        if state.phase == Phase::Ready && matches!(phase(&event.from), Some(Phase::Held | Phase::Settled)) {
            let words = format!("{}, {WAITS_TO_TRY}", event.to);
            return Some(Bar { from: event.at, to, tone: AGAIN.to_owned(), words });
        }
        let is_workers = state.phase == Phase::Held && event.actor == Actor::Worker.name();
        let by = if is_workers { format!(" by {}", event.by) } else { String::new() };
        Some(Bar {
            from: event.at,
            to,
            tone: tone(state.phase, state.outcome),
            words: format!("{}{by}", event.to),
        })
    };
    moves.iter().zip(ends).filter_map(bar).collect()
}

/// A wait that the holder of a run noted before its next try.
fn wait(event: &EventRow) -> Option<Bar> {
    let ms = event.payload["wait_ms"].as_i64()?;
    let words = format!("{WAITS_TO_TRY}: {}", text(&event.payload, "message"));
    Some(Bar { from: event.at, to: Some(event.at + Span::from_ms(ms)), tone: AGAIN.to_owned(), words })
}

/// When each item came into which state, as events tell it, by kind and key.
fn item_moves(found: &[EventRow]) -> HashMap<(&str, &str), Vec<(Time, &str)>> {
    let mut moves: HashMap<(&str, &str), Vec<(Time, &str)>> = HashMap::new();
    for event in found {
        for item in list(&event.payload, "items") {
            if text(item, "from") != text(item, "to") {
                let of = (text(item, "kind"), text(item, "key"));
                moves.entry(of).or_default().push((event.at, text(item, "to")));
            }
        }
    }
    moves
}

/// Each try by itself, with the waits between them; nothing if events do not tell.
fn tries(lifecycle: &Lifecycle, moves: &[(Time, &str)]) -> Vec<Bar> {
    let state = |name: &str| lifecycle.state_named(name).map(|id| lifecycle.state(id));
    let mut bars: Vec<Bar> = Vec::new();
    let mut tries = 0;
    for (place, (from, name)) in moves.iter().enumerate() {
        let Some(now) = state(name) else { continue };
        tries += usize::from(now.phase == Phase::Held);
        let next = moves.get(place + 1);
        let then = next.and_then(|(_, name)| state(name));
        let tone = match (now.phase, then) {
            // Before its first try it has not begun.
            (Phase::Ready, _) if tries == 0 => continue,
            (Phase::Settled, _) => continue,
            (Phase::Held, Some(then)) if then.phase == Phase::Settled => tone(then.phase, then.outcome),
            (Phase::Held, Some(then)) if then.phase == Phase::Ready => {
                tone(Phase::Settled, Some(Outcome::Failed))
            }
            (Phase::Ready, _) => AGAIN.to_owned(),
            (phase, _) => tone(phase, None),
        };
        let words = match (now.phase, then) {
            (Phase::Ready, _) => WAITS_TO_TRY.to_owned(),
            (Phase::Held, Some(then)) if then.phase == Phase::Ready => format!("try {tries}, which failed"),
            (Phase::Held, Some(then)) if then.phase == Phase::Settled => {
                format!("try {tries}: {}", then.name)
            }
            (_, Some(then)) if then.phase == Phase::Settled => then.name.to_string(),
            _ => (*name).to_owned(),
        };
        bars.push(Bar { from: *from, to: next.map(|(at, _)| *at), tone, words });
    }
    bars
}

/// One that began.
fn line(
    row: &RunRow,
    item: &ItemRow,
    step: Option<&ItemRow>,
    steps: &HashMap<(&str, &str), Vec<(Time, &str)>>,
) -> Option<Line> {
    let (lifecycle, id) = state_of(row, item)?;
    let told = steps.get(&(item.kind.as_str(), item.key.as_str()));
    let mut bars = told.map(|moves| tries(lifecycle, moves)).unwrap_or_default();
    let note = if item.attempts > 0 { format!("{} tries", item.attempts + 1) } else { String::new() };
    if bars.is_empty() {
        let state = lifecycle.state(id);
        let to = item.finished_at.filter(|_| state.phase == Phase::Settled);
        let words = format!("{} {}", item.kind, item.status);
        bars = vec![Bar { from: item.started_at?, to, tone: tone(state.phase, state.outcome), words }];
    }
    Some(Line { label: item.name.clone(), note, is_part: step.is_some(), bars })
}

/// The state that an item is in, in the lifecycle of its kind.
pub fn state_of<'r>(row: &'r RunRow, item: &ItemRow) -> Option<(&'r Lifecycle, StateId)> {
    let (_, lifecycle) = row.lifecycle.item_named(&item.kind)?;
    Some((lifecycle, lifecycle.state_named(&item.status)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Catalog;

    #[test]
    fn tries_and_the_waits_between_them_are_bars_of_their_own() {
        let catalog = Catalog::shipped().expect("they are checked");
        let step = catalog.latest("step").expect("it is shipped");
        let at = |ms: i64| Time::from_ms(ms);
        let moves = [
            (at(0), "pending"),
            (at(10), "running"),
            (at(20), "pending"),
            (at(50), "running"),
            (at(60), "completed"),
        ];
        let bars = tries(step, &moves);
        let told: Vec<(i64, Option<i64>, &str)> =
            bars.iter().map(|bar| (bar.from.ms(), bar.to.map(Time::ms), bar.tone.as_str())).collect();
        assert_eq!(
            told,
            [(10, Some(20), "outcome-failed"), (20, Some(50), AGAIN), (50, Some(60), "outcome-succeeded")]
        );
        assert_eq!(tries(step, &moves[..3])[1].to, None, "it waits still");
        assert_eq!((&*bars[0].words, &*bars[2].words), ("try 1, which failed", "try 2: completed"));
        let target = catalog.latest("target").expect("it is shipped");
        let never_tried = [(at(0), "PREVIEW"), (at(10), "QUEUED"), (at(20), "CANCELLED")];
        assert!(tries(target, &never_tried).iter().all(|bar| bar.tone != AGAIN), "it was not tried before");
    }
}
