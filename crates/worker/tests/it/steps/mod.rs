//! Playbooks, executed: real commands, a real store, workers that die.

mod again;
mod asking;
mod boundaries;
mod ends;
mod failing;
mod forward;
mod hours;
pub mod kit;
mod lost;
mod own_words;
mod parallel;
mod pauses;
mod waiting;
