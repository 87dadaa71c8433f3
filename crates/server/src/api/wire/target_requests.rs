//! What may be asked about targets and what they are sent to.

use serde_json::{Map, Value};
use waypost_kernel::text::MAX_PAGE;
use waypost_schema::{Kind, Shape, needed, optional, requests};
use waypost_store::MOST_TARGETS;
use waypost_store::wire::{ITEM, LISTED_RUN};

use super::kinds::{COUNT, KEY, LONG, LeaseToken, Limit, MS, NAME, PAGE, REASON, TIME, TOKEN, list};
use super::shapes::{RENEWED, shapes};

const TOKEN_TEXT: &str = "The lease's token, as the claim gave it.";
const BY_TEXT: &str = "Whom the request is made for.";
const MILLI: Kind = Kind::Integer(0, 1 << 53);
const TRIED: Kind = Kind::Choice(&["applied", "retry", "throttled", "error", "refused", "unsent"]);

requests! {
    NEW_TARGET "NewTarget" NewTargetBody {
        needed key: String = NAME, "The target's key, unique in its run: one that is there already is left alone.";
        optional name: Option<String> = NAME, "The target's name for people; the key if left out.";
        needed before: Value = Kind::Any, "What is there before the change.";
        needed after: Value = Kind::Any, "What should be there after it.";
        optional destination: Option<String> = KEY, "Where the change is sent.";
        optional violation_code: Option<String> = NAME, "A guardrail stops the target: it fails with this code instead of being tried.";
        optional violation_msg: Option<String> = LONG, "The same in words.";
        optional max_retries: Option<u32> = Kind::Integer(0, 1_000), "How often a failed try is repeated; 3 if left out.";
        optional details: Map<String, Value> = Kind::Object, "An object that is kept beside the target.";
    }
    ADD_TARGETS "AddTargets" AddTargetsBody {
        needed at: u64 = COUNT, "How many rows of the source came before. Fewer than are gathered already: nothing is written, and the answer says where to go on.";
        needed rows: u64 = COUNT, "How many rows of the source these are, whatever became of each.";
        optional targets: Vec<NewTargetBody> = list(&Kind::Of(&NEW_TARGET), MOST_TARGETS), "The targets among them.";
        optional unchanged: Option<u64> = COUNT, "How many of them would change nothing.";
        optional cursor: Option<Value> = Kind::Any, "Where to go on after a crash.";
        optional totals: Map<String, Value> = Kind::Object, "What was summed up so far, in place of what was said before.";
        optional last: bool = Kind::Boolean, "Whether the preview is complete: the run may be queued.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    TARGET_RESULT "TargetResult" TargetResultBody {
        needed key: String = NAME, "The target's key.";
        needed try_no: u32 = Kind::Integer(0, u32::MAX as i64), "The number of the try: a report of an earlier one changes nothing.";
        needed tried: String = TRIED, "What came of it. `retry` uses a retry, `throttled` and `unsent` do not; after an `error` it is not tried again. `refused` is about one that is ready: it fails without a try.";
        optional error_code: Option<String> = LONG, "Why it was not applied, as a code.";
        optional error_msg: Option<String> = LONG, "Why it was not applied, in words.";
        optional wait_ms: Option<i64> = MS, "When it is tried again, from now.";
        optional answered: Option<bool> = Kind::Boolean, "Of `retry` and `throttled`: whether there was an answer to this try. Without one the same idempotency key goes out again, until a try is `applied` or ends in an `error`. True if left out.";
        optional output: Option<Value> = Kind::Any, "What the target gave.";
    }
    WORK_TARGETS "WorkTargets" WorkTargetsBody {
        needed lease_token: LeaseToken = TOKEN, TOKEN_TEXT;
        optional results: Vec<TargetResultBody> = list(&Kind::Of(&TARGET_RESULT), MOST_TARGETS), "What came of tries.";
        optional take: Option<usize> = Kind::Integer(0, MOST_TARGETS as i64), "How many targets to take next, at most.";
        optional give_up_after_ms: Option<i64> = MS, "How long throttled answers may make a target wait in all; an hour if left out.";
        optional end: Option<String> = Kind::Choice(&["later", "when-done", "stop"]), "Whether the run ends: when no target is open any more, or now, and what is open fails. `later` if left out.";
        optional error_code: Option<String> = LONG, "With `stop`: why, as a code.";
        optional error_msg: Option<String> = LONG, "With `stop`: why, in words.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    DISCARD_TARGETS "DiscardTargets" DiscardTargetsBody {
        optional keys: Option<Vec<String>> = list(&NAME, 100_000), "Which of them; all that failed if left out.";
        optional error_code: Option<String> = NAME, "Only those that failed with this code.";
        needed reason: String = REASON, "Why they are given up; kept beside each, and in the audit log.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    ROLL_BACK_TARGETS "RollBackTargets" RollBackTargetsBody {
        needed lease_token: LeaseToken = TOKEN, TOKEN_TEXT;
        needed keys: Vec<String> = list(&NAME, MOST_TARGETS), "Targets of the operation's parent that are as they were before, outside.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    DEAD_LETTERS_QUERY "DeadLettersQuery" DeadLettersQuery {
        optional run_id: Option<String> = NAME, "Only those of one run.";
        optional error_code: Option<String> = NAME, "Only those that failed with this code.";
    }
    RETRY_DEAD_LETTERS "RetryDeadLetters" RetryDeadLettersBody {
        optional run_id: Option<String> = NAME, "Only those of one run; of all runs of the tenant if left out.";
        optional error_code: Option<String> = NAME, "Only those that failed with this code.";
        optional targets: Option<Vec<String>> = list(&NAME, 100_000), "Only these targets of the run.";
        optional reason: Option<String> = REASON, "Why: kept in the log of each run.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    DISCARD_DEAD_LETTERS "DiscardDeadLetters" DiscardDeadLettersBody {
        optional run_id: Option<String> = NAME, "Only those of one run; of all runs of the tenant if left out.";
        optional error_code: Option<String> = NAME, "Only those that failed with this code.";
        optional targets: Option<Vec<String>> = list(&NAME, 100_000), "Only these targets of the run.";
        needed reason: String = REASON, "Why they are given up; kept beside each, and in the audit log.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    RECONCILIATIONS_QUERY "ReconciliationsQuery" ReconciliationsQuery {
        optional run_id: Option<String> = NAME, "Only those of one run.";
        optional limit: Limit = PAGE, "How many at most; 50 if left out.";
        optional cursor: Option<String> = NAME, "From `next_cursor` of the page before.";
    }
    ADMIT "Admit" AdmitBody {
        needed capacity_milli: u64 = MILLI, "What an idle destination allows at once, in thousandths.";
        needed rate_milli_per_s: u64 = MILLI, "What comes back per second, in thousandths.";
        optional breaker_after: Option<u32> = Kind::Integer(0, u32::MAX as i64), "More than this many throttled answers in a row open the breaker; 5 if left out.";
        optional pause_ms: Option<i64> = MS, "How long the breaker stays open; a minute if left out.";
        optional probe_timeout_ms: Option<i64> = MS, "After how long a probe without an answer counts as lost; a minute if left out.";
        optional calls: Option<u32> = Kind::Integer(0, u32::MAX as i64), "How many calls to make; 1 if left out.";
        optional cost_milli: Option<u64> = MILLI, "What each call costs, in thousandths; 1,000 if left out.";
    }
    CALL_ANSWER "CallAnswer" CallAnswerBody {
        optional throttled: bool = Kind::Boolean, "Whether it was a 429, or says that it was throttled.";
        optional retry_after_ms: Option<i64> = MS, "When to ask again, from now, as the answer says.";
        optional available_milli: Option<u64> = MILLI, "What the destination says is left, in thousandths.";
        optional rate_milli_per_s: Option<u64> = MILLI, "What it says comes back per second.";
        optional capacity_milli: Option<u64> = MILLI, "What it says it allows at once.";
    }
    ANSWERS "Answers" AnswersBody {
        optional answers: Vec<CallAnswerBody> = list(&Kind::Of(&CALL_ANSWER), MOST_TARGETS), "What calls were answered, in the order in which the answers came.";
        optional unused_milli: Option<u64> = MILLI, "Permits that were not used, in thousandths.";
    }
    PACE "Pace" PaceBody {
        needed burst: bool = Kind::Boolean, "Whether throttled answers come in a burst: a tenth slower, down to half; else a twentieth faster.";
    }
}

shapes! {
    PREVIEW "Preview" [
        needed("rows", COUNT, "How many rows of the source were read."),
        needed("targets", COUNT, "How many targets they gave."),
        needed("unchanged", COUNT, "How many would change nothing."),
        needed("stopped", COUNT, "How many targets a guardrail stops."),
        needed("ready", Kind::Boolean, "Whether the preview is complete: the run may be queued."),
        optional("cursor", Kind::Any, "Where a gatherer goes on."),
        needed("totals", Kind::Object, "What the gatherer has summed up."),
    ];
    WORKED "Worked" [
        needed("taken", list(&Kind::Of(&ITEM), MOST_TARGETS), "Targets to be tried now."),
        needed("ignored", list(&NAME, MOST_TARGETS), "Keys of results that came too late: nothing was changed."),
        optional("next_due", TIME, "When there is another target to be taken; not after `now`: at once. Null if none waits."),
        needed("counts", Kind::Object, "How many targets the run has in each state."),
        needed("open", COUNT, "How many targets are to be tried, or are being tried."),
        optional("run", Kind::Of(&LISTED_RUN), "The run, if it has ended."),
        optional("lease", Kind::Of(&RENEWED), "The lease as a heartbeat tells it; null if the run has ended."),
        needed("now", TIME, "The database's clock, to count from."),
    ];
    DISCARDED "Discarded" [needed("discarded", COUNT, "How many targets were discarded now.")];
    DEAD_LETTER_CLASS "DeadLetterClass" [
        needed("error_code", NAME, "Why these targets failed."),
        needed("count", COUNT, "How many there are."),
        needed("of_rolled_back_runs", COUNT, "How many of them are of runs that were rolled back: they cannot be retried, only discarded."),
        optional("oldest_at", TIME, "When the first of them failed."),
        needed("run_id", NAME, "The run of that one."),
        needed("key", NAME, "Its key."),
        needed("error_msg", LONG, "Why it failed, in words."),
        needed("advice", LONG, "What to do about this class."),
    ];
    DEAD_LETTERS "DeadLetters" [
        needed("total", COUNT, "How many there are in all."),
        needed("of_cancelled_runs", COUNT, "How many of them a cancel of their run ended: a retry of all runs leaves them out."),
        needed("classes", list(&Kind::Of(&DEAD_LETTER_CLASS), 100_000), "Failed targets by code, the one with the oldest first."),
    ];
    ACTED "ActedOnDeadLetters" [
        needed("run_id", NAME, "The run."),
        needed("targets", COUNT, "How many of its targets it is about."),
        optional("refused", LONG, "Why nothing was done about them; null if it was."),
    ];
    ALL_ACTED "DeadLettersActedOn" [
        needed("targets", COUNT, "How many targets were retried, or discarded."),
        needed("runs", list(&Kind::Of(&ACTED), 100_000), "The runs that had some."),
    ];
    MISMATCH "Mismatch" [
        needed("targetId", NAME, "The target's key."),
        needed("expected", Kind::Any, "What was applied."),
        needed("actual", Kind::Any, "What is there."),
        optional("difference", Kind::Any, "By how much it is more; null of what is no number."),
    ];
    DOUBT "TargetInDoubt" [
        needed("targetId", NAME, "The target's key."),
        needed("code", NAME, "What it failed with."),
        needed("found", Kind::Choice(&["made", "not made", "neither"]), "Whether it is what it was to become, or what it was before."),
        needed("actual", Kind::Any, "What is there."),
    ];
    RECONCILIATION "Reconciliation" [
        needed("operation_id", NAME, "The run that compares."),
        needed("run_id", NAME, "The run that is compared with what is outside."),
        needed("status", NAME, "How the operation is."),
        optional("due_at", TIME, "When it is due, if it comes by itself."),
        optional("finished_at", TIME, "When it ended."),
        optional("totalChecked", COUNT, "How many targets were compared."),
        optional("mismatches", COUNT, "How many are not what was applied."),
        optional("superseded", COUNT, "How many a later run of the same rule changed since, or is about to change: they are no mismatches."),
        optional("supersededBy", list(&NAME, 1_000), "Those runs."),
        optional("fetchErrors", COUNT, "How many could not be read."),
        optional("details", list(&Kind::Of(&MISMATCH), 1_000), "The mismatches; the first thousand. All are in the operation's log."),
        optional("failures", list(&Kind::Object, 1_000), "Why targets could not be read."),
        optional("inDoubt", COUNT, "How many failed targets may have been changed, since no answer came, and were looked at."),
        optional("made", COUNT, "How many of them were changed all the same."),
        optional("doubts", list(&Kind::Of(&DOUBT), 1_000), "What was found of them; the first thousand."),
        optional("retriedBy", NAME, "The new run that changes the mismatches again, if the playbook asks for that."),
    ];
    RECONCILIATIONS "Reconciliations" [
        needed("reconciliations", list(&Kind::Of(&RECONCILIATION), MAX_PAGE), "Newest first."),
        optional("next_cursor", NAME, "Where the next page begins; null after the last."),
    ];
    ADMITTED "Admitted" [
        needed("granted", COUNT, "How many calls may be made now."),
        needed("is_probe", Kind::Boolean, "Whether this is the one call that tries if a pause may end: its answer is to be told."),
        optional("until_us", COUNT, "When to ask again if none were granted, in microseconds since 1970."),
        needed("now_us", COUNT, "The database's clock, likewise."),
    ];
    DESTINATION "Destination" [
        needed("tenant", NAME, "The tenant whose destination it is."),
        needed("name", NAME, "The destination's name."),
        needed("capacity_milli", COUNT, "What it allows at once when idle, in thousandths."),
        needed("rate_milli_per_s", COUNT, "What comes back per second, in thousandths."),
        needed("pace_percent", COUNT, "How much of the rate is used: 100 unless it was slowed."),
        needed("available_milli", COUNT, "What was available at `at_us`."),
        needed("at_us", COUNT, "The instant that this is true of, in microseconds since 1970."),
        needed("breaker", Kind::Choice(&["closed", "open", "probing"]), "Whether calls are made."),
        needed("breaker_after", COUNT, "More than this many throttled answers in a row open the breaker."),
        needed("pause_ms", COUNT, "How long the breaker stays open."),
        needed("probe_timeout_ms", COUNT, "After how long a probe counts as lost."),
        needed("consecutive", COUNT, "Throttled answers in a row."),
        optional("since_us", COUNT, "When the probe went out."),
        optional("until_us", COUNT, "When the pause ends, or the probe counts as lost."),
        needed("calls", COUNT, "Answers that were told of."),
        needed("throttled", COUNT, "How many of them were throttled."),
        needed("opened", COUNT, "How often its breaker has opened."),
        needed("changed_us", COUNT, "When it was last changed."),
        optional("alert", Kind::Choice(&["opened", "closed"]), "What this report did to the breaker."),
    ];
    DESTINATIONS "Destinations" [needed("destinations", list(&Kind::Of(&DESTINATION), MAX_PAGE * 100), "Destinations by name.")];
}
