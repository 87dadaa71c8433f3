//! For how long settled runs are kept where an installation says otherwise than their lifecycles.

use waypost_kernel::Span;
use waypost_kernel::lifecycle::Outcome;

use crate::rules::intake::check_name;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;

/// What is meant to stay longer is meant to stay for good; and a database can still count with it.
const MOST_KEPT: Span = Span::from_seconds(36_525 * 86_400);

/// Of one lifecycle, all versions of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Its stored name.
    pub lifecycle: String,
    /// Of runs that succeeded; as the lifecycle says if it is not given.
    pub success: Option<Span>,
    /// Of all others.
    pub failure: Option<Span>,
}

impl Retention {
    pub(crate) fn check(&self) -> Result<()> {
        check_name("lifecycle", &self.lifecycle)?;
        if ![self.success, self.failure].into_iter().flatten().all(Retention::is_sound) {
            return Err(StoreError::invalid(
                "retention",
                "runs are kept longer than nothing, and at most 100 years",
            ));
        }
        Ok(())
    }

    /// Whether runs can be kept for that long.
    pub(crate) fn is_sound(kept: Span) -> bool {
        kept.ms() > 0 && kept <= MOST_KEPT
    }

    /// Where one of these says so, else as the run's lifecycle does. Absent: for good.
    pub(crate) fn keep(rules: &[Retention], row: &RunRow) -> Option<Span> {
        let state = row.lifecycle.state(row.run.state);
        let own = rules.iter().find(|rule| *rule.lifecycle == *row.lifecycle.name);
        let own = own.and_then(|rule| match state.outcome {
            Some(Outcome::Succeeded) => rule.success,
            _ => rule.failure,
        });
        own.or(state.keep)
    }
}
