//! Plan times: against an enumerator of another make, and the planner against a simulated world.

mod clocks;
mod golden;
mod planner;
mod simulated;

use waypost_kernel::schedule::{Cron, Timing, Zone};
use waypost_kernel::time::Civil;
use waypost_kernel::{Span, Time};

pub const MINUTE: Span = Span::from_seconds(60);
pub const HOUR: Span = Span::from_seconds(3_600);
pub const DAY: Span = Span::from_seconds(86_400);

/// `2026-02-14T08:15Z`
pub fn at(text: &str) -> Time {
    let number = |from: usize, to: usize| text[from..to].parse::<u32>().unwrap();
    let civil = Civil {
        year: i64::from(number(0, 4)),
        month: number(5, 7),
        day: number(8, 10),
        hour: number(11, 13),
        minute: number(14, 16),
        second: 0,
        micros: 0,
    };
    civil.time().unwrap()
}

pub fn cron(text: &str, zone: &str) -> Timing {
    Timing::Cron { cron: Cron::parse(text).unwrap(), zone: Zone::named(zone).unwrap() }
}

pub fn every(cadence: Span) -> Timing {
    Timing::Every { cadence, delay: Span::ZERO }
}
