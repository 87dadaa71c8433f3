//! What a try's answer means for its run: the same for commands and handlers. Pure.

use std::time::Duration;

use serde_json::{Map, Value, json};
use waypost_kernel::backoff::Backoff;
use waypost_kernel::text::{MAX_ERROR_CHARS, clean_chars};
use waypost_kernel::{Failure, Span, Time};
use waypost_store::{ItemWrite, Wait};

use crate::execute::{Answer, Exit};
use crate::outcome::{Outcome, Word};
use crate::pace;
use crate::summary::End;

/// `EX_TEMPFAIL` of sysexits.h.
const EXIT_RETRY: i32 = 75;

/// How many tries a run has had, and may have after the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tries {
    pub made: u32,
    pub retries: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Settle(Ending),
    /// `notice` is what the log says meanwhile, `error` why.
    Again {
        wait: Duration,
        notice: String,
        error: Failure,
    },
}

/// Where a run should go, in no lifecycle's words yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    Succeed,
    /// Some of it.
    Partial,
    Skip,
    Park,
    Fail,
    Cancel,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ending {
    pub goal: Goal,
    pub failure: Option<Failure>,
    pub reason: Option<String>,
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
    /// The last moves of its items, written with it.
    pub items: Vec<ItemWrite>,
    /// When what failed may be taken up again; none is never.
    pub retry_in: Option<Span>,
    /// When what waits for a person goes on without an answer; none is never.
    pub goes_on_at: Option<Time>,
}

/// What becomes of a run that its worker is done with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Parting {
    End(Ending),
    /// It goes on in other hands: at once, or when it has waited.
    GiveBack(Option<Wait>),
    /// It was ended with its last item, in one write.
    Ended(End),
}

/// In whose words an end is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndNames {
    OfRun,
    /// Of schedules.
    OfExecution,
}

impl Ending {
    pub fn new(goal: Goal) -> Ending {
        Ending {
            goal,
            failure: None,
            reason: None,
            metadata: Map::new(),
            details: Map::new(),
            items: Vec::new(),
            retry_in: None,
            goes_on_at: None,
        }
    }

    pub fn failed(failure: Failure) -> Ending {
        Ending { failure: Some(failure), ..Ending::new(Goal::Fail) }
    }

    pub fn has_failed_by(&self, code: &str) -> bool {
        self.goal == Goal::Fail && self.failure.as_ref().is_some_and(|failure| &*failure.code == code)
    }
}

/// What a try's answer says, whoever asked for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Judged {
    /// Anything but a failure.
    Said(Word, Outcome),
    Again {
        wait: Duration,
        failure: Failure,
    },
    Failed {
        failure: Failure,
        outcome: Outcome,
    },
}

pub(crate) fn judge(answer: &Answer, tries: Tries, backoff: &Backoff, random: u64) -> Judged {
    let outcome = match &answer.outcome {
        Some(Ok(outcome)) => outcome.clone(),
        Some(Err(problem)) => {
            let failure = Failure::new("BAD_OUTCOME", problem);
            return Judged::Failed { failure, outcome: Outcome::default() };
        }
        None => Outcome::default(),
    };
    let by_exit = word_of(answer.exit.as_ref());
    let word = outcome.word.unwrap_or(by_exit);
    let failure = match word {
        Word::Retry | Word::Fail => failure_of(answer, &outcome),
        // Whoever crashes after that has not done what it says; a pause asks a person in any case.
        Word::Done | Word::Skip | Word::Finish if by_exit != Word::Done => contradicted(answer, word),
        _ => return Judged::Said(word, outcome),
    };
    let planned = backoff.wait(tries.made, random).map(pace::duration);
    match planned.filter(|_| tries.made <= tries.retries && !outcome.permanent) {
        Some(planned) => Judged::Again { wait: outcome.retry_after.unwrap_or(planned), failure },
        None => Judged::Failed { failure, outcome },
    }
}

pub(crate) fn interpret(answer: &Answer, tries: Tries, backoff: &Backoff, random: u64) -> Verdict {
    let (word, outcome) = match judge(answer, tries, backoff, random) {
        Judged::Said(word, outcome) => (word, outcome),
        Judged::Again { wait, failure } => {
            let notice = format!("Retry {}/{} in {}", tries.made, tries.retries, in_words(wait));
            return Verdict::Again { wait, notice, error: failure };
        }
        Judged::Failed { failure, outcome } => {
            return Verdict::Settle(failed(answer, tries, &failure, &outcome));
        }
    };
    let goal = match word {
        Word::Skip => Goal::Skip,
        Word::Pause => Goal::Park,
        Word::Done | Word::Finish | Word::Retry | Word::Fail => Goal::Succeed,
    };
    let mut ending = carrying(Ending::new(goal), answer, &outcome);
    // A park needs a reason.
    ending.reason =
        outcome.reason.or(outcome.message).or((goal == Goal::Park).then(|| word.name().to_owned()));
    Verdict::Settle(ending)
}

fn word_of(exit: Option<&Exit>) -> Word {
    match exit {
        None | Some(Exit::Code(0)) => Word::Done,
        Some(Exit::Code(EXIT_RETRY)) => Word::Retry,
        Some(Exit::Code(_) | Exit::Signal(_) | Exit::NotStarted(_)) => Word::Fail,
    }
}

const EXHAUSTED: &str = "Max retries exceeded";

/// Of a run whose tries were all made by workers that were lost.
pub(crate) fn all_lost(tries: Tries) -> Ending {
    let lost = Failure::new("WORKER_LOST", "the worker's lease ran out");
    failed(&Answer::default(), tries, &lost, &Outcome::default())
}

fn failed(answer: &Answer, tries: Tries, failure: &Failure, outcome: &Outcome) -> Ending {
    let mut ending = carrying(Ending::failed(failure.clone()), answer, outcome);
    let exhausted = tries.retries > 0 && tries.made > tries.retries;
    if exhausted {
        let last = format!("{}: {}", failure.code, failure.message);
        ending.failure =
            Some(Failure::new("MAX_RETRIES", &format!("{EXHAUSTED}: {last} ({} tries)", tries.made)));
        ending.metadata.insert("last_error".into(), json!(last));
    }
    // The seed's words for programs; for people the failure says what it was.
    let error = if exhausted { EXHAUSTED } else { &failure.message };
    ending.metadata.insert("error".into(), json!(error));
    let retry_count = if tries.retries > 0 { tries.made } else { 0 };
    ending.metadata.insert("retry_count".into(), json!(retry_count));
    ending
}

/// What any ending tells besides where it goes.
fn carrying(mut ending: Ending, answer: &Answer, outcome: &Outcome) -> Ending {
    let exit_code = match answer.exit {
        Some(Exit::Code(code)) => Some(code),
        Some(Exit::Signal(signal)) => Some(128 + signal),
        Some(Exit::NotStarted(_)) | None => None,
    };
    if let Some(code) = exit_code {
        ending.metadata.insert("exit_code".into(), json!(code));
    }
    ending.details.clone_from(&outcome.details);
    if !outcome.output.is_null() {
        ending.details.insert("output".into(), outcome.output.clone());
    }
    if !outcome.artifacts.is_empty() {
        ending.details.insert("artifacts".into(), Value::Array(outcome.artifacts.clone()));
    }
    ending
}

fn failure_of(answer: &Answer, outcome: &Outcome) -> Failure {
    let (code, message) = plain_failure(answer.exit.as_ref());
    let message =
        outcome.message.as_ref().or(outcome.reason.as_ref()).or(last_words(answer)).unwrap_or(&message);
    Failure::new(outcome.code.as_deref().unwrap_or(&code), &clean_chars(message, MAX_ERROR_CHARS).text)
}

/// Of a process whose Outcome says that all is well and whose end does not.
fn contradicted(answer: &Answer, word: Word) -> Failure {
    let (code, end) = plain_failure(answer.exit.as_ref());
    let words = last_words(answer).map(|words| format!(": {words}")).unwrap_or_default();
    let message = format!("it said {}, but then: {end}{words}", word.name());
    Failure::new(&code, &clean_chars(&message, MAX_ERROR_CHARS).text)
}

/// The code and the message of an end that nobody explains.
fn plain_failure(exit: Option<&Exit>) -> (String, String) {
    match exit {
        Some(Exit::Code(code)) => (format!("EXIT_{code}"), format!("exit code {code}")),
        Some(Exit::Signal(signal)) => ("SIGNAL".to_owned(), format!("killed by signal {signal}")),
        Some(Exit::NotStarted(problem)) => ("NOT_STARTED".to_owned(), problem.clone()),
        None => ("HANDLER_FAILED".to_owned(), "the handler failed and did not say why".to_owned()),
    }
}

/// Programs that a signal ends do not get to say why.
fn last_words(answer: &Answer) -> Option<&String> {
    answer.last_line.as_ref().filter(|_| matches!(answer.exit, Some(Exit::Code(_))))
}

pub(crate) fn in_words(wait: Duration) -> String {
    match wait.as_millis() {
        1_000 => "1 second".to_owned(),
        ms if ms % 1_000 == 0 => format!("{} seconds", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

pub(crate) mod execution;
#[cfg(test)]
mod tests;
