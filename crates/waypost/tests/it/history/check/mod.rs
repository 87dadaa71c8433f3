//! Judges a history from what was recorded alone. Nothing here knows the store: states, phases and limits are written
//! down once more, from the documentation.

mod answers;
mod around;
mod facts;
mod known;
mod log;
mod order;
mod readers;
mod register;
mod slots;
mod tests;

use super::record::History;
use facts::Facts;
pub use known::known;

type Check = fn(&Facts<'_>) -> Vec<String>;

/// Each with its name, by which the list of known failures speaks of it.
const CHECKS: &[(&str, Check)] = &[
    ("acknowledged runs exist", answers::runs_exist),
    ("runs taken back are absent", answers::runs_taken_back),
    ("acknowledged runs are found at once", answers::runs_are_found),
    ("keys one run each", answers::keys_one_run_each),
    ("acknowledged claims stand", answers::claims_stand),
    ("claims are told to their worker", answers::claims_are_told),
    ("acknowledged events stand", answers::events_stand),
    ("acknowledged items stand", answers::items_stand),
    ("acknowledged finishes stand", answers::finishes_stand),
    ("acknowledged cancels stand", answers::cancels_stand),
    ("acknowledged releases stand", answers::releases_stand),
    ("seq gap-free", log::seq_gap_free),
    ("moves are the lifecycle's", log::moves_are_declared),
    ("one end per run", log::one_end_per_run),
    ("no write of a former holder", log::no_former_holder),
    ("no fence twice", log::no_fence_twice),
    ("nothing begins past its time to live", order::time_to_live),
    ("priorities", order::priorities),
    ("children end with a cancelled parent", order::children),
    ("limits at every position", slots::limits),
    ("keys' slots at every position", slots::keys),
    ("no claim within an acknowledged pause", slots::pauses),
    ("SQL begins keep limits", slots::limits_by_hand),
    ("SQL begins keep keys' slots", slots::keys_by_hand),
    ("SQL begins keep pauses", slots::pauses_by_hand),
    ("SQL begins keep times to live", order::time_to_live_by_hand),
    ("SQL ends keep cancels", answers::cancels_by_hand),
    ("feed complete and in order for every reader", readers::feed),
    ("streams complete and in order for every reader", readers::streams),
    ("nothing stuck", around::nothing_stuck),
    ("verify clean", around::verify_clean),
    ("no deadlock", around::no_deadlock),
    ("SQL errors are documented", around::sql_errors),
    ("no panic in a server's log", around::no_panic),
    ("no 5xx but 503 around faults", around::server_errors),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub check: &'static str,
    pub violations: Vec<String>,
}

/// Every check with all its violations.
pub fn check(history: &History) -> Vec<Finding> {
    let facts = Facts::of(history);
    CHECKS.iter().map(|(name, check)| Finding { check: name, violations: check(&facts) }).collect()
}
