//! Kernels that misread the clock, or the row.

use waypost_kernel::{Ask, Change, Phase, Span};

use crate::model::judge::{Case, Ruling, kernel};

use super::{asks_claim, meeting, phase};

/// Decides on the lease as it was read, not as it is.
pub fn sweep_on_a_stale_read(case: &Case<'_>) -> Ruling {
    match (&case.request.ask, case.read) {
        (Ask::Sweep, Some(read)) => meeting(case, |run| {
            if let Some(lease) = &mut run.lease {
                lease.until = read;
            }
        }),
        _ => kernel(case),
    }
}

/// The sweeper's own clock, which is fast.
pub fn sweeper_with_a_fast_clock(case: &Case<'_>) -> Ruling {
    match case.request.ask {
        Ask::Sweep => kernel(&Case { now: case.now + Span::from_seconds(600), ..case.clone() }),
        _ => kernel(case),
    }
}

pub fn claim_of_a_live_lease(case: &Case<'_>) -> Ruling {
    if !asks_claim(case) {
        return kernel(case);
    }
    meeting(case, |run| {
        if let Some(lease) = &mut run.lease {
            lease.until = case.now - Span::from_seconds(1);
        }
    })
}

pub fn take_overs_unbounded(case: &Case<'_>) -> Ruling {
    meeting(case, |run| run.take_overs = 0)
}

/// Leases that ran out are nobody's business.
pub fn sweeper_asleep(case: &Case<'_>) -> Ruling {
    if case.request.ask == Ask::Sweep && phase(case, case.run) == Phase::Held {
        return Ok(Change { events: Vec::new(), after: case.run.clone() });
    }
    kernel(case)
}
