//! When what happened: bars over one axis of time.

use maud::{Markup, html};
use waypost_kernel::{Span, Time};
use waypost_store::iso;

use crate::console::parts::{lasted, shown};

/// The width of a bar's drawing, whatever the page makes of it.
const WIDTH: i64 = 10_000;
/// What is shorter is drawn as long as this: it is there.
const LEAST: i64 = 25;

/// Parts of the axis.
const TICKS: i64 = 4;

fn share(length: Span, tick: i64) -> Span {
    Span::from_micros(length.micros() / TICKS * tick)
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub from: Time,
    /// None: it goes on.
    pub to: Option<Time>,
    pub tone: String,
    pub words: String,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub label: String,
    /// Who did it, or of what it is a part.
    pub note: String,
    /// It belongs to a line above.
    pub is_part: bool,
    pub bars: Vec<Bar>,
}

pub fn gantt(lines: &[Line], now: Time) -> Markup {
    let bars = || lines.iter().flat_map(|line| &line.bars);
    let Some(start) = bars().map(|bar| bar.from).min() else { return html! {} };
    let end = bars().map(|bar| bar.to.unwrap_or(now)).max().unwrap_or(now).max(start);
    let length = (end - start).micros().max(1);
    let place = |at: Time| {
        ((at - start).micros().clamp(0, length) as i128 * i128::from(WIDTH) / i128::from(length)) as i64
    };
    html! {
        table.gantt {
            caption.unseen { "When what happened, from " (iso(start)) " to " (iso(end)) }
            thead { tr { th scope="col" { span.unseen { "What" } } th scope="col" { span.axis { @for tick in 0..=TICKS { span title=(iso(start + share(end - start, tick))) { @if tick == 0 { "0s" } @else { (lasted(share(end - start, tick))) } } } } } } }
            tbody {
                @for line in lines {
                    tr {
                        th.part[line.is_part] scope="row" title=(shown(&line.label)) {
                            (shown(&line.label)) @if !line.note.is_empty() { " " span.hint title=(shown(&line.note)) { (shown(&line.note)) } }
                        }
                        td {
                            svg viewBox={ "0 0 " (WIDTH) " 16" } preserveAspectRatio="none" role="img" aria-label=(spoken(line, now)) {
                                @for bar in &line.bars {
                                    @let from = place(bar.from).min(WIDTH - LEAST);
                                    @let to = place(bar.to.unwrap_or(now)).max(from + LEAST);
                                    rect class={ "bar " (bar.tone) @if bar.to.is_none() { " open" } } x=(from) y="1" width=(to - from) height="14" {
                                        title { (shown(&bar.words)) ", " (lasted(bar.to.unwrap_or(now) - bar.from)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn spoken(line: &Line, now: Time) -> String {
    let bars = line
        .bars
        .iter()
        .map(|bar| format!("{} for {}", shown(&bar.words), lasted(bar.to.unwrap_or(now) - bar.from)));
    bars.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stay_on_the_axis_whatever_the_clocks_say() {
        let at = |ms: i64| Time::from_ms(ms);
        let bar = |from: i64, to: Option<i64>| Bar {
            from: at(from),
            to: to.map(at),
            tone: "x".into(),
            words: "w".into(),
        };
        // The second ends before it begins; the third begins after all have ended.
        let bars = vec![bar(0, Some(1_000)), bar(500, Some(400)), bar(1_000, Some(1_000)), bar(900, None)];
        let drawn = gantt(&[Line { label: "<b>".into(), note: "<i>".into(), is_part: false, bars }], at(800))
            .into_string();
        assert!(!drawn.contains("<b>") && !drawn.contains("<i>") && !drawn.contains("\"-"), "{drawn}");
        for part in drawn.split(" x=\"").skip(1) {
            let x = part.split('"').next().and_then(|x| x.parse::<i64>().ok()).expect("a number");
            assert!((0..=WIDTH).contains(&x), "{x}");
        }
        assert!(gantt(&[], at(0)).into_string().is_empty());
    }
}
