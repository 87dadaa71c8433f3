//! Kernels that let the wrong worker write.

use waypost_kernel::item::ItemAsk;
use waypost_kernel::{Ask, Request};

use crate::model::judge::{Case, ItemCase, Ruling, kernel, kernel_items};

use super::{answering, asks_claim, current, meeting, takes_over};

fn asking<'a>(case: &Case<'a>, ask: Ask<'a>) -> Ruling {
    kernel(&Case { request: Request { who: case.request.who, ask }, ..case.clone() })
}

pub fn finish_without_fence(case: &Case<'_>) -> Ruling {
    match case.request.ask {
        Ask::Finish { token, finish } => {
            asking(case, Ask::Finish { token: current(case.run, token), finish })
        }
        _ => kernel(case),
    }
}

pub fn heartbeat_without_fence(case: &Case<'_>) -> Ruling {
    match case.request.ask {
        Ask::Renew { token } => asking(case, Ask::Renew { token: current(case.run, token) }),
        _ => kernel(case),
    }
}

pub fn targets_without_fence(case: &ItemCase<'_>) -> Ruling {
    let token = case.token.map(|token| current(case.run, token));
    kernel_items(&ItemCase { token, ..case.clone() })
}

pub fn fence_stays_at_take_over(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if takes_over(case) {
            change.after.fence = case.run.fence;
        }
    })
}

pub fn steal_keeps_the_token(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if let Some((was, lease)) =
            case.run.lease.as_ref().zip(change.after.lease.as_mut()).filter(|_| takes_over(case))
        {
            lease.token = was.token;
        }
    })
}

/// A release gives the run back but leaves the token good.
pub fn vacant_lease_is_its_old_holders(case: &Case<'_>) -> Ruling {
    if let Ask::Release { token, .. } = case.request.ask {
        return answering(case, |change| {
            if let Some(lease) = &mut change.after.lease {
                lease.token = token;
            }
        });
    }
    if asks_claim(case) || !matches!(case.request.ask, Ask::Renew { .. } | Ask::Finish { .. }) {
        return kernel(case);
    }
    meeting(case, |run| {
        if let Some(lease) = run.lease.as_mut().filter(|lease| lease.is_vacant()) {
            lease.worker = Some("w0".into());
        }
    })
}

pub fn lease_outlives_its_run(case: &Case<'_>) -> Ruling {
    answering(case, |change| {
        if change.after.lease.is_none() {
            change.after.lease.clone_from(&case.run.lease);
        }
    })
}

/// A target that is begun counts as one that was answered.
pub fn try_counted_when_begun(case: &ItemCase<'_>) -> Ruling {
    let mut ruling = kernel_items(case);
    let begun = case.asks.iter().all(|(_, ItemAsk { answered, .. })| !answered);
    for event in ruling.iter_mut().flat_map(|change| &mut change.events).filter(|_| begun) {
        event.effect.moved.iter_mut().for_each(|moved| moved.item.try_no += 1);
    }
    ruling
}
