//! When something fired, as a calendar: a cell for each day, or for each hour if it fires often.

use std::collections::BTreeMap;

use maud::{Markup, html};
use waypost_kernel::{Outcome, Time};
use waypost_store::iso;

/// One fire, and what came of it; none: it is not over.
#[derive(Clone, Copy, Debug)]
pub struct Fire {
    pub at: Time,
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    fires: u32,
    succeeded: u32,
    failed: u32,
}

const SIZE: i64 = 18;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// What spans more is shown by the day.
const BY_HOUR_DAYS: i64 = 4;
/// No drawing is wider, whatever clocks said.
const MOST_DAYS: i64 = 371;

pub fn heat(fires: &[Fire]) -> Markup {
    let Some(last) = fires.iter().map(|fire| fire.at.ms().div_euclid(DAY_MS)).max() else { return html! {} };
    let first = fires.iter().map(|fire| fire.at.ms().div_euclid(DAY_MS)).min().unwrap_or(last);
    let first = first.max(last - MOST_DAYS);
    let unit = if last - first < BY_HOUR_DAYS { HOUR_MS } else { DAY_MS };
    let mut cells: BTreeMap<i64, Cell> = BTreeMap::new();
    for fire in fires.iter().filter(|fire| fire.at.ms().div_euclid(DAY_MS) >= first) {
        let cell = cells.entry(fire.at.ms().div_euclid(unit)).or_default();
        cell.fires += 1;
        cell.succeeded += u32::from(fire.outcome == Some(Outcome::Succeeded));
        cell.failed += u32::from(fire.outcome == Some(Outcome::Failed));
    }
    // Hours stand in rows of a day, days in columns of a week that begins on Monday.
    let place = |cell: i64| match unit {
        HOUR_MS => (cell.rem_euclid(24), cell.div_euclid(24) - first),
        _ => ((cell + 3).div_euclid(7) - (first + 3).div_euclid(7), (cell + 3).rem_euclid(7)),
    };
    let (columns, rows) = match unit {
        HOUR_MS => (24, last - first + 1),
        _ => (place(last).0 + 1, 7),
    };
    let words = if unit == HOUR_MS { "each hour" } else { "each day" };
    let order = if unit == HOUR_MS { "a row is a day" } else { "a column is a week, from Monday" };
    html! {
        div.heat tabindex="0" role="group" aria-label="Past fires" {
            svg viewBox={ "0 0 " (columns * SIZE) " " (rows * SIZE) } width=(columns * SIZE) height=(rows * SIZE) role="img" {
                title { "Fires of " (words) ", in UTC, from " (day(first)) " to " (day(last)) }
                @for row in 0..rows { rect.band x="0" y=(row * SIZE + 1) width=(columns * SIZE) height=(SIZE - 2) rx="3" {} }
                @for (at, cell) in &cells {
                    @let (x, y) = place(*at);
                    g class={ "cell " (tone(*cell)) } {
                        title { (name(*at, unit)) ": " (told(*cell)) }
                        rect x=(x * SIZE + 1) y=(y * SIZE + 1) width=(SIZE - 2) height=(SIZE - 2) rx="3" {}
                        @if cell.failed > 0 { text x=(x * SIZE + SIZE / 2) y=(y * SIZE + 13) text-anchor="middle" { "✕" } }
                    }
                }
            }
        }
        p.hint { "The latest " (fires.len()) ": a cell for " (words) " (UTC), " (order) "; ✕: some failed." }
        details.alternative {
            summary { "The calendar as a table" }
            table {
                thead { tr { th scope="col" { "When (UTC)" } th scope="col" { "Fires" } th scope="col" { "Succeeded" } th scope="col" { "Failed" } } }
                tbody { @for (at, cell) in cells.iter().rev() { tr { td { (name(*at, unit)) } td.num { (cell.fires) } td.num { (cell.succeeded) } td.num { (cell.failed) } } } }
            }
        }
    }
}

fn day(number: i64) -> String {
    iso(Time::from_ms(number * DAY_MS)).chars().take(10).collect()
}

fn name(at: i64, unit: i64) -> String {
    let text = iso(Time::from_ms(at * unit));
    if unit == HOUR_MS { text.chars().take(16).collect::<String>().replace('T', " ") } else { day(at) }
}

fn told(cell: Cell) -> String {
    format!("{} fires, {} succeeded, {} failed", cell.fires, cell.succeeded, cell.failed)
}

fn tone(cell: Cell) -> &'static str {
    match cell {
        Cell { failed, fires, .. } if failed == fires => "outcome-failed",
        Cell { failed: 1.., .. } => "outcome-partial",
        Cell { succeeded, fires, .. } if succeeded == fires => "outcome-succeeded",
        _ => "phase-held",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fires(days: &[(i64, Option<Outcome>)]) -> Vec<Fire> {
        days.iter().map(|(at, outcome)| Fire { at: Time::from_ms(*at), outcome: *outcome }).collect()
    }

    #[test]
    fn many_are_shown_by_the_hour_and_few_by_the_day() {
        let hours =
            fires(&[(0, Some(Outcome::Succeeded)), (1_000, Some(Outcome::Failed)), (2 * HOUR_MS, None)]);
        let drawn = heat(&hours).into_string();
        assert!(drawn.contains("1970-01-01 00:00: 2 fires, 1 succeeded, 1 failed"), "{drawn}");
        assert!(drawn.contains("outcome-partial") && drawn.contains("phase-held"), "{drawn}");
        let days = fires(&[(0, Some(Outcome::Succeeded)), (30 * DAY_MS, Some(Outcome::Failed))]);
        let drawn = heat(&days).into_string();
        assert!(
            drawn.contains("1970-01-31: 1 fires, 0 succeeded, 1 failed") && drawn.contains("✕"),
            "{drawn}"
        );
        assert!(heat(&[]).into_string().is_empty());
    }

    #[test]
    fn no_calendar_is_wider_than_a_year() {
        let drawn = heat(&fires(&[(0, None), (20_000 * DAY_MS, None)])).into_string();
        let width = drawn.split("width=\"").nth(1).and_then(|it| it.split('"').next()?.parse::<i64>().ok());
        assert!(width.is_some_and(|width| width <= 54 * SIZE), "{width:?}");
    }
}
