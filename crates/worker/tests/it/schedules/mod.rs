//! Schedules: files that are sound mean what they say, others are refused with file, line, field and mend.

mod agents;
mod bad;
mod by_hand;
mod design;
mod firing;
mod generated;
mod isolation;
mod queued;
mod requests;
mod simulated;
mod stage;
mod tenants;
mod traps;

use std::path::Path;

use waypost_kernel::Catalog;
use waypost_worker::playbook::{self, Problems};
use waypost_worker::schedules::{RULES, Schedule, parse};

pub const SOUND: &str = include_str!("../../data/schedules.toml");
const FILE: &str = "waypost.toml";

pub fn sound(text: &str) -> Vec<Schedule> {
    judge(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// Parses it, and checks that a refusal says all that a person needs.
pub fn judge(text: &str) -> Result<Vec<Schedule>, Problems> {
    let judged = parse(text, Path::new(FILE), Path::new("/srv/jobs"), &Catalog::shipped().unwrap());
    for problem in judged.as_ref().err().map(|problems| &problems.0).into_iter().flatten() {
        let mut rules = playbook::RULES.iter().chain(RULES.iter());
        let placed =
            problem.file == Path::new(FILE) && (1..=text.lines().count().max(1)).contains(&problem.line);
        let words = !problem.message.trim().is_empty() && !problem.hint.trim().is_empty();
        assert!(rules.any(|(rule, _)| *rule == problem.rule) && placed && words, "{problem:?} in:\n{text}");
        assert!(
            problem.rule == "syntax" || problem.rule == "too-large" || !problem.field.is_empty(),
            "{problem:?}"
        );
        assert!(problem.to_string().starts_with("waypost.toml:"), "{problem}");
    }
    judged
}
