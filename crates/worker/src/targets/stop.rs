//! `on_violation = "stop"`: all that a pass would try is judged before its first call. If anything of it is past a guardrail, nothing is
//! changed: each of those fails with its guardrail, and the others say which those were.
//!
//! What was discarded, or is not retried, is not tried: a run goes on without it.

use waypost_kernel::item::Tried;
use waypost_kernel::{Failure, Phase};
use waypost_store::{ItemFilter, NewTarget, Preview, RunRow, Store, TargetResult};

use super::today::Today;
use crate::playbook::{Guardrails, OnViolation, Violation};

/// The code of a target that a stop left unchanged.
pub(super) const STOPPED: &str = "STOPPED";
const PAGE: usize = 500;
/// Of those that are past a guardrail, so many are named.
const NAMED: usize = 3;

/// What ends a pass before it begins.
pub(super) struct Stop {
    /// Each with what it is past.
    pub refused: Vec<TargetResult>,
    /// What the others fail with.
    pub failure: Failure,
}

/// None: nothing of what is to be tried is past a guardrail, or the others do not care.
pub(super) async fn judge(
    store: &dyn Store,
    run: &RunRow,
    guardrails: &Guardrails,
    today: &Today,
) -> waypost_store::Result<Option<Stop>> {
    let is_clean = Preview::of(&run.details).is_some_and(|preview| preview.stopped == 0);
    if guardrails.on_violation != OnViolation::Stop || is_clean && guardrails.per_day.is_none() {
        return Ok(None);
    }
    let Some(kind) = run.lifecycle.items.first() else { return Ok(None) };
    let ready = kind.states.iter().find(|state| state.phase == Phase::Ready);
    let mut filter = ItemFilter {
        run_id: run.id().to_owned(),
        kind: Some(kind.name.to_string()),
        status: ready.map(|state| state.name.to_string()),
        limit: PAGE,
        ..ItemFilter::default()
    };
    let mut refused = Vec::new();
    loop {
        let page = store.item_page(filter.clone()).await?;
        for item in page.items {
            let of_day = || {
                let violation = today.judge(guardrails, &item.key)?;
                Some(Failure::new(Violation::CODE, &violation.message))
            };
            if let Some(failure) = NewTarget::violation_of(&item.details).or_else(of_day) {
                let tried = Tried::Refused { failure };
                refused.push(TargetResult { key: item.key, try_no: item.try_no, tried, output: None });
            }
        }
        match page.next {
            Some(next) => filter.cursor = Some(next),
            None => break,
        }
    }
    let failure = Failure::new(STOPPED, &in_words(&refused));
    Ok(Some(Stop { refused, failure }).filter(|stop| !stop.refused.is_empty()))
}

fn in_words(refused: &[TargetResult]) -> String {
    let named: Vec<String> = refused.iter().take(NAMED).map(|it| format!("{:?}", it.key)).collect();
    let more = if refused.len() > NAMED { ", …" } else { "" };
    let count = refused.len();
    let (targets, are) = if count == 1 { ("target", "is") } else { ("targets", "are") };
    format!(
        "{count} {targets} ({}{more}) {are} past a guardrail, and on_violation is \"stop\": nothing was changed; \
         the others are changed by a retry of them alone, or once what is past it is discarded",
        named.join(", ")
    )
}
