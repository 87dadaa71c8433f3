//! How executions of schedules end: in the words of seed 002.

use serde_json::{Value, json};
use tokio::time::Instant;
use waypost_kernel::backoff::Backoff;
use waypost_kernel::text::{MAX_ERROR_CHARS, MAX_RESULT_BYTES, clean_chars, clean_json};
use waypost_kernel::{Failure, Span};

use super::{Ending, Goal, Tries, Verdict, interpret};
use crate::execute::Answer;

/// `retry_in`: when the schedule tries again what failed.
pub(crate) fn ending_of(answer: &Answer, retry_in: Option<Span>) -> Ending {
    let outcome = answer.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
    let Verdict::Settle(settled) = interpret(answer, Tries { made: 1, retries: 0 }, &Backoff::step(), 0)
    else {
        return failed("handler_error", "it asked for another try", retry_in);
    };
    let mut ending = match settled.goal {
        Goal::Succeed | Goal::Skip => Ending::new(Goal::Succeed),
        Goal::Park => failed("handler_error", "it asked for a pause, and nobody is there", retry_in),
        Goal::Fail | Goal::Partial | Goal::Cancel => {
            let failure = settled.failure.unwrap_or_else(|| Failure::new("HANDLER_FAILED", "it failed"));
            let is_panic = &*failure.code == "HANDLER_PANIC";
            let code = if is_panic { "handler_panic" } else { "handler_error" };
            failed(code, &format!("{}: {}", failure.code, failure.message), retry_in)
        }
    };
    let Some(outcome) = outcome else { return ending };
    if outcome.permanent {
        ending.retry_in = None;
    }
    let mut result = outcome.output.clone();
    if let Some(rows) = result.get("rows_affected").and_then(Value::as_i64) {
        ending.metadata.insert("rows_affected".into(), json!(rows));
    }
    if let Some(reason) = outcome.reason.as_ref().filter(|_| settled.goal == Goal::Skip) {
        result = json!({ "skipped_reason": reason });
    }
    if !result.is_null() {
        ending.metadata.insert("result".into(), clean_json(result, MAX_RESULT_BYTES).0);
    }
    ending
}

pub(crate) fn timed_out(limit: Span, retry_in: Option<Span>) -> Ending {
    failed("run_timeout", &format!("not done within {limit}"), retry_in)
}

fn failed(code: &str, message: &str, retry_in: Option<Span>) -> Ending {
    let failure = Failure::new(code, &clean_chars(message, MAX_ERROR_CHARS).text);
    Ending { retry_in, ..Ending::failed(failure) }
}

/// How long it took, however it ended.
pub(crate) fn timed(mut ending: Ending, began: Instant) -> Ending {
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    ending.metadata.insert("duration_ms".into(), json!(ms));
    ending
}
