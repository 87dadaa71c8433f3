//! What the verbs ask for beyond the kernel's decisions.

pub mod birth;
pub mod decisions;
pub mod details;
pub mod follow;
pub mod intake;
pub mod item_writes;
pub mod messages;

use waypost_kernel::Time;
use waypost_kernel::time::Civil;

/// `2026-02-14T08:00:00.000Z`: always three decimals.
pub fn iso(time: Time) -> String {
    let Civil { year, month, day, hour, minute, second, micros } = Civil::of(time);
    let millis = micros / 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}
