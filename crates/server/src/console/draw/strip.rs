//! Bars over time: those of the list of runs lead to the runs of their time, those of the overview are small.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::{Outcome, Phase};

use crate::console::ask;
use crate::console::filter;
use crate::console::parts::{self, list, text, tone};

const HEIGHT: u64 = 56;
const WIDTH: u64 = 20;
/// From the ground up, so that what went wrong is seen first.
const TONES: [(Phase, Option<Outcome>); 11] = [
    (Phase::Settled, Some(Outcome::Failed)),
    (Phase::Settled, Some(Outcome::Partial)),
    (Phase::Parked, None),
    (Phase::Held, None),
    (Phase::Ready, None),
    (Phase::Draft, None),
    (Phase::Settled, Some(Outcome::Succeeded)),
    (Phase::Settled, Some(Outcome::Cancelled)),
    (Phase::Settled, Some(Outcome::Skipped)),
    (Phase::Settled, Some(Outcome::Reverted)),
    (Phase::Settled, None),
];

/// How many of some runs have each outcome, or are in each phase, as the API counts them.
fn counted(by: &Value) -> impl Iterator<Item = (&'static str, String, u64)> {
    TONES.into_iter().filter_map(|(phase, outcome)| {
        let name = outcome.map_or(phase.name(), |outcome| outcome.name());
        let count = by[name].as_u64().filter(|count| *count > 0)?;
        Some((name, tone(phase, outcome), count))
    })
}

/// What a bar is made of, in words.
fn told(bucket: &Value) -> String {
    let parts = counted(&bucket["by"]).map(|(name, _, count)| format!("{count} {name}"));
    let parts: Vec<String> = parts.collect();
    let runs = bucket["came_in"].as_u64().unwrap_or_default();
    let noun = if runs == 1 { "run" } else { "runs" };
    format!("{}: {runs} {noun}, {}", text(bucket, "at"), parts.join(", "))
}

/// One that is drawn: from where, how high, and in which colour.
fn pieces(bucket: &Value, most: u64) -> Vec<(u64, u64, String)> {
    let mut ground = HEIGHT;
    let mut pieces = Vec::new();
    for (_, class, count) in counted(&bucket["by"]) {
        // What is there is seen, however little it is of the whole.
        let height = (count * HEIGHT).div_ceil(most.max(1)).max(2).min(ground);
        ground -= height;
        pieces.push((ground, height, class));
    }
    pieces
}

/// Each bar is a link that narrows the list to its time.
pub fn brush(activity: &Value, typed: &str) -> Markup {
    let buckets = list(activity, "buckets");
    let most = buckets.iter().filter_map(|it| it["came_in"].as_u64()).max().unwrap_or(0);
    let ends = buckets.iter().skip(1).map(|it| text(it, "at")).chain([text(activity, "until")]);
    let width = WIDTH * buckets.len() as u64;
    let is_narrowed = filter::with(typed, &[("since", None), ("until", None)]) != typed;
    html! {
        @if most > 0 {
            figure.strip {
                svg viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="group" aria-label="Runs by when they came in; each bar leads to its runs" {
                    @for ((place, bucket), end) in buckets.iter().enumerate().zip(ends) {
                        @if bucket["came_in"].as_u64() > Some(0) {
                            @let narrowed = filter::with(typed, &[("since", Some(text(bucket, "at"))), ("until", Some(end))]);
                            a href={ "/runs?filter=" (ask::encoded(&narrowed)) } aria-label=(told(bucket)) {
                                title { (told(bucket)) }
                                rect.back x=(place as u64 * WIDTH) y="0" width=(WIDTH) height=(HEIGHT) {}
                                @for (top, height, class) in pieces(bucket, most) {
                                    rect class={ "bar " (class) } x=(place as u64 * WIDTH + 2) y=(top) width=(WIDTH - 4) height=(height) {}
                                }
                            }
                        }
                    }
                }
                figcaption {
                    time datetime=(text(activity, "from")) { (minute(text(activity, "from"))) }
                    span {
                        (parts::counted(activity["runs"].as_u64().unwrap_or_default(), "run"))
                        @if let Some(cut) = activity["cut_at"].as_str() { " of the newest, back to " (minute(cut)) }
                        @if is_narrowed { " · " a href={ "/runs?filter=" (ask::encoded(&filter::with(typed, &[("since", None), ("until", None)]))) } { "all times" } }
                    }
                    time datetime=(text(activity, "until")) { (minute(text(activity, "until"))) }
                }
            }
        }
    }
}

/// Of an instant as the API writes it, up to the minute.
fn minute(at: &str) -> String {
    at.get(..16).unwrap_or(at).replace('T', " ")
}

/// A line of small bars, with what it says in words.
pub fn spark(counts: &[u64], label: &str) -> Markup {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    html! {
        svg.spark viewBox={ "0 0 " (counts.len() * 4) " 16" } preserveAspectRatio="none" role="img" aria-label=(label) {
            title { (label) }
            rect.floor x="0" y="15" width=(counts.len() * 4) height="1" {}
            @for (place, count) in counts.iter().enumerate() {
                @let height = (count * 16).div_ceil(most);
                @if *count > 0 { rect x=(place * 4) y=(16 - height) width="3" height=(height) {} }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bar_is_as_high_as_its_runs_are_many_and_never_unseen() {
        let bucket = json!({ "at": "2026-01-01T00:00:00.000Z", "came_in": 10_000, "by": { "failed": 1, "succeeded": 9_999 } });
        let pieces = pieces(&bucket, 10_000);
        assert_eq!(pieces.iter().map(|(_, height, _)| height).sum::<u64>(), HEIGHT);
        assert_eq!(pieces[0], (HEIGHT - 2, 2, "outcome-failed".to_owned()));
        assert!(told(&bucket).ends_with("10000 runs, 1 failed, 9999 succeeded"));
    }

    #[test]
    fn a_bar_leads_to_its_time_whatever_was_typed() {
        let at = |minute: u32| format!("2026-01-01T00:{minute:02}:00.000Z");
        let buckets = [
            json!({ "at": at(0), "came_in": 1, "by": { "ready": 1 } }),
            json!({ "at": at(1), "came_in": 0, "by": {} }),
        ];
        let activity = json!({ "from": at(0), "until": at(2), "runs": 1, "buckets": buckets });
        let page = brush(&activity, "since:24h x").into_string();
        assert_eq!(page.matches("<a href").count(), 2, "one bar, and the way back: {page}");
        let narrowed = ask::encoded(&format!("since:{} until:{} x", at(0), at(1)));
        assert!(page.contains(&narrowed), "{page}");
        assert!(page.contains("class=\"bar phase-ready\""), "in its colour: {page}");
    }
}
