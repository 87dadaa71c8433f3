//! A preview shows what would be changed as it was when it was gathered: after a while nobody can say so any more.

use serde_json::Value;
use waypost_kernel::{Code, Phase, Refusal, Span};
use waypost_store::{Preview, RunRow, Store, StoreError, iso, parse_time};

use super::alone::{changes_targets, has_targets};

/// Among the totals of a preview: until when it may be queued.
pub(super) const VALID_UNTIL: &str = "valid_until";
/// Of a preview that does not say.
pub(crate) const VALID_FOR: Span = Span::from_seconds(24 * 3_600);

/// Refuses to let a draft of a rule loose whose preview is too old, unless that is meant.
pub(super) async fn check_fresh(
    store: &dyn Store,
    run: &RunRow,
    command: &str,
    is_meant: bool,
) -> waypost_store::Result<()> {
    let lets_loose = run.phase() == Phase::Draft && has_targets(run) && changes_targets(run, command);
    let Some(preview) = Preview::of(&run.details).filter(|it| it.ready && lets_loose && !is_meant) else {
        return Ok(());
    };
    let said = preview.totals.get(VALID_UNTIL).and_then(Value::as_str).and_then(parse_time);
    let until = said.unwrap_or(run.run.created_at + VALID_FOR);
    if store.now().await? <= until {
        return Ok(());
    }
    Err(StoreError::Refused(Box::new(Refusal {
        code: Code::OutOfDate,
        message: format!(
            "its preview was valid until {}: start a new run to look again; with force it is queued as it was",
            iso(until)
        ),
        current: run.status().into(),
        requested: command.to_owned(),
        allowed: waypost_kernel::allowed(&run.lifecycle, &run.run),
        guard: None,
        field: None,
    })))
}
