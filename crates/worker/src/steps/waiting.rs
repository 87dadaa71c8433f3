//! Waiting for a time: a short while in this worker's hands, longer in nobody's. Whoever comes first when the time has come goes
//! on, and meanwhile the run takes no slot of a worker.

use std::time::Duration;

use waypost_kernel::Time;
use waypost_store::Wait;

use super::PlaybookEnd;
use super::playbook_run::PlaybookRun;
use crate::pace;

/// A run that waits no longer is not given back: to take it up again costs two writes and a claim.
pub(crate) const WORTH_GIVING_BACK: Duration = Duration::from_secs(15);

impl PlaybookRun<'_> {
    /// If nothing is to be done before `until`, and that is worth it: the run is given back. It is looked at when it has taken as
    /// long as it may at the latest. Cleanups stay in hand: whatever is wanted of the run waits for them.
    pub fn gives_back(&self, until: Time, reason: &str, is_cleanup: bool) -> Option<PlaybookEnd> {
        let ends_first = self.deadlines.ends_at().filter(|end| *end < until);
        let (until, reason) = ends_first.map_or((until, reason), |end| (end, Wait::TIMEOUT));
        let waits = !is_cleanup && pace::duration(until - self.deadlines.now()) > WORTH_GIVING_BACK;
        waits.then(|| PlaybookEnd::Waits(Wait { until, reason: reason.to_owned() }))
    }
}
