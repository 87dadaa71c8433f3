//! Pages of the reference that no single lifecycle owns.

use std::fmt::Write;

use waypost_schema::render::section;

use crate::guard::Guard;
use crate::lifecycle::RULES;
use crate::lifecycle::file::{DECISIONS, LIFECYCLE, STATE};
use crate::refusal::Code;

/// Why a request may be refused.
pub fn refusals() -> String {
    let mut out = String::from(
        "# Refusals\n\nEvery refusal has one of these codes, the run's current state, and the commands that would be\naccepted instead.\n\n| code | meaning | worth trying again |\n|---|---|---|\n",
    );
    for code in Code::ALL {
        let again = if code.is_retryable() { "yes, later" } else { "no" };
        let _ = writeln!(out, "| `{}` | {} | {again} |", code.name(), code.meaning());
    }
    out
}

/// What a lifecycle file may say.
pub fn keys() -> String {
    let mut out = "# Keys of a lifecycle\n".to_owned();
    section(&mut out, "A lifecycle", &LIFECYCLE);
    section(&mut out, "`[decisions]`", &DECISIONS);
    section(&mut out, "A state of `[states]`", &STATE);
    out
}

/// What a guard means.
pub fn guards() -> String {
    let mut out = String::from(
        "# Guards\n\nThe fifth word of a transition. Several are separated by commas; all must hold. They are asked about the run\nas it will be after the move.\n\n| guard | holds when |\n|---|---|\n",
    );
    for guard in Guard::ALL {
        let _ = writeln!(out, "| `{}` | {} |", guard.name(), guard.meaning());
    }
    out
}

/// What `lifecycle check` looks for.
pub fn rules() -> String {
    let mut out = String::from(
        "# Rules for lifecycle files\n\n`waypost lifecycle check FILE` names the line, one of these rules, and how to mend it.\n\n| rule | what it asks for |\n|---|---|\n",
    );
    for (rule, meaning) in RULES {
        let _ = writeln!(out, "| `{rule}` | {meaning} |");
    }
    out
}
