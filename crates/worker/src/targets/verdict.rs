//! What an answer means for a target: from its status and its codes, never from a part of its words. Pure.

use serde_json::Value;
use waypost_kernel::bucket::{MILLI_PER_UNIT, Reported};
use waypost_kernel::destination::CallAnswer;
use waypost_kernel::text::{MAX_ERROR_CHARS, clean_chars};
use waypost_kernel::{Failure, Span};

use crate::actions::http::Reply;
use crate::execute::{Answer, Exit};
use crate::interpret::{Judged, Tries, judge};
use crate::outcome::{Outcome, Word};
use crate::pace;
use waypost_kernel::backoff::Backoff;

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub said: Said,
    /// No other target would fare better: the run ends.
    pub is_critical: bool,
    /// What the destination says of its own limit.
    pub reported: Option<Reported>,
    /// What it gave.
    pub output: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Done,
    /// Another try may fare better. `answered`: it is known that this one was not carried out; of those before it the store knows.
    Retry {
        failure: Failure,
        wait: Option<Span>,
        answered: bool,
    },
    /// 429, or `THROTTLED` inside a 200.
    Throttled {
        failure: Failure,
        retry_after: Option<Span>,
    },
    Failed(Failure),
}

/// The class of a failure: what a report of failed targets groups by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    RateLimit,
    Timeout,
    NotFound,
    Authorization,
    Network,
    Validation,
    ServerError,
    Unknown,
}

impl Class {
    pub const ALL: [Class; 8] = [
        Class::RateLimit,
        Class::Timeout,
        Class::NotFound,
        Class::Authorization,
        Class::Network,
        Class::Validation,
        Class::ServerError,
        Class::Unknown,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Class::RateLimit => "RATE_LIMIT",
            Class::Timeout => "TIMEOUT",
            Class::NotFound => "NOT_FOUND",
            Class::Authorization => "AUTHORIZATION",
            Class::Network => "NETWORK",
            Class::Validation => "VALIDATION",
            Class::ServerError => "SERVER_ERROR",
            Class::Unknown => "UNKNOWN",
        }
    }

    fn may_be_repeated(self) -> bool {
        matches!(self, Class::RateLimit | Class::Timeout | Class::Network | Class::ServerError)
    }

    pub fn of_status(status: u16) -> Class {
        match status {
            429 => Class::RateLimit,
            408 => Class::Timeout,
            500..=599 => Class::ServerError,
            401 | 403 => Class::Authorization,
            404 | 410 => Class::NotFound,
            400..=499 => Class::Validation,
            _ => Class::Unknown,
        }
    }

    /// By the code as a whole: of our own, of Shopify's, of sockets, and of the usual ones of others.
    pub fn of_code(code: &str) -> Option<Class> {
        let own = Class::ALL.into_iter().find(|class| class.name() == code);
        own.or(match code {
            "THROTTLED" | "RATE_LIMITED" | "TOO_MANY_REQUESTS" => Some(Class::RateLimit),
            "ETIMEDOUT" | "DEADLINE_EXCEEDED" => Some(Class::Timeout),
            "PRODUCT_NOT_FOUND"
            | "PRODUCT_DOES_NOT_EXIST"
            | "PRODUCT_VARIANT_DOES_NOT_EXIST"
            | "VARIANT_NOT_FOUND" => Some(Class::NotFound),
            "ACCESS_DENIED" | "PERMISSION_DENIED" | "UNAUTHORIZED" | "FORBIDDEN" | "SHOP_INACTIVE" => {
                Some(Class::Authorization)
            }
            "ECONNRESET" | "ENOTFOUND" | "ECONNREFUSED" | "EPIPE" => Some(Class::Network),
            "INTERNAL_SERVER_ERROR" | "TEMPORARILY_UNAVAILABLE" | "SERVICE_UNAVAILABLE" => {
                Some(Class::ServerError)
            }
            "INVALID_PRICE" | "VARIANT_ARCHIVED" | "INVALID_INPUT" | "INVALID" | "BAD_REQUEST"
            | "MAX_COST_EXCEEDED" | "PARSE_ERROR" => Some(Class::Validation),
            _ => None,
        })
    }
}

impl Verdict {
    /// What the destination's limiter and breaker are told of it.
    pub fn answer(&self) -> CallAnswer {
        let (throttled, retry_after) = match &self.said {
            Said::Throttled { retry_after, .. } => (true, *retry_after),
            _ => (false, None),
        };
        CallAnswer { throttled, retry_after, reported: self.reported }
    }

    fn of(said: Said) -> Verdict {
        Verdict { said, is_critical: false, reported: None, output: None }
    }

    /// It was not sent and never will be: what it is made of is wrong.
    pub fn unfit(message: &str) -> Verdict {
        Verdict::of(Said::Failed(failure(Class::Validation, None, message)))
    }

    /// A secret that is not there is not there for any target.
    pub fn no_secret(message: &str) -> Verdict {
        let said = Said::Failed(failure(Class::Authorization, Some("NO_SECRET"), message));
        Verdict { is_critical: true, ..Verdict::of(said) }
    }

    /// This worker lacks what the playbook names: no target would fare better.
    pub fn no_handler(name: &str) -> Verdict {
        let message = format!("this worker has no handler {name:?} of targets");
        Verdict { is_critical: true, ..Verdict::unfit(&message) }
    }

    /// Of one try that was stopped when its time was over.
    pub fn too_late(limit: Span) -> Verdict {
        let failure = failure(Class::Timeout, None, &format!("no answer within {limit}"));
        Verdict::of(Said::Retry { failure, wait: None, answered: false })
    }

    pub fn of_reply(reply: &Reply) -> Verdict {
        let outcome = match &reply.outcome {
            Ok(outcome) => outcome,
            Err(problem) => return Verdict::of(Said::Failed(failure(Class::Unknown, None, problem))),
        };
        match reply.status {
            Some(200..=299) => of_good(outcome),
            Some(status) => of_refusal(status, reply, outcome),
            None => of_silence(reply, outcome),
        }
    }

    /// Of a command, or a handler in Rust.
    pub fn of_answer(answer: &Answer) -> Verdict {
        if let Some(Exit::NotStarted(problem)) = &answer.exit {
            return Verdict { is_critical: true, ..Verdict::unfit(problem) };
        }
        let known = answer.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
        let code = known.and_then(|outcome| outcome.code.as_deref());
        let class = code.and_then(Class::of_code);
        // Whether it is tried again is counted elsewhere.
        let judged = judge(answer, Tries { made: 1, retries: 1 }, &Backoff::target(), 0);
        let classed = |told: &Failure| {
            let own = code.filter(|code| class.is_none_or(|class| class.name() != *code));
            failure(class.unwrap_or(Class::Unknown), own.or(Some(&told.code)), &told.message)
        };
        match judged {
            Judged::Said(_, outcome) => of_good(&outcome),
            Judged::Failed { failure, .. } => Verdict::of(Said::Failed(classed(&failure))),
            Judged::Again { failure, .. } => {
                let asked = known.and_then(|outcome| outcome.retry_after).map(pace::span);
                let is_retry = known.is_some_and(|outcome| outcome.word == Some(Word::Retry))
                    || matches!(answer.exit, Some(Exit::Code(75)));
                let failure = classed(&failure);
                Verdict::of(match class {
                    Some(Class::RateLimit) => Said::Throttled { failure, retry_after: asked },
                    Some(class) if is_retry || class.may_be_repeated() => {
                        Said::Retry { failure, wait: asked, answered: !answer.is_unknown }
                    }
                    None if is_retry => Said::Retry { failure, wait: asked, answered: !answer.is_unknown },
                    _ => Said::Failed(failure),
                })
            }
        }
    }
}

/// A good status, and what the answer says all the same.
fn of_good(outcome: &Outcome) -> Verdict {
    let said = match outcome.word {
        Some(Word::Retry | Word::Fail) => of_word(outcome),
        Some(Word::Pause) => {
            let why = outcome.reason.as_deref().unwrap_or("it asks for a person");
            Said::Failed(failure(Class::Unknown, Some("CANNOT_PAUSE"), why))
        }
        _ => of_graphql(&outcome.output),
    };
    let output = Some(&outcome.output).filter(|output| !output.is_null()).cloned();
    Verdict { reported: reported(&outcome.output), output, ..Verdict::of(said) }
}

/// What a handler says in so many words: the explicit flag.
fn of_word(outcome: &Outcome) -> Said {
    let code = outcome.code.as_deref();
    let class = code.and_then(Class::of_code).unwrap_or(Class::Unknown);
    let own = code.filter(|code| class.name() != *code);
    let message = outcome.message.as_deref().or(outcome.reason.as_deref()).unwrap_or("it failed");
    let failure = failure(class, own, message);
    let wait = outcome.retry_after.map(pace::span);
    match (outcome.word, class) {
        (Some(Word::Retry), Class::RateLimit) => Said::Throttled { failure, retry_after: wait },
        (Some(Word::Retry), _) => Said::Retry { failure, wait, answered: true },
        _ if outcome.permanent || !class.may_be_repeated() => Said::Failed(failure),
        _ => Said::Retry { failure, wait, answered: true },
    }
}

/// GraphQL refuses inside a 200: `errors` of the whole, `userErrors` of a mutation.
fn of_graphql(answer: &Value) -> Said {
    let is_error = |error: &&Value| error.get("message").is_some();
    let errors = answer.get("errors").and_then(Value::as_array).into_iter().flatten();
    if let Some(error) = errors.clone().find(is_error) {
        let code_of = |error: &Value| error.pointer("/extensions/code")?.as_str().map(str::to_owned);
        let throttled = errors.clone().find(|error| code_of(error).as_deref() == Some("THROTTLED"));
        return of_error(
            throttled.unwrap_or(error),
            code_of(throttled.unwrap_or(error)).as_deref(),
            Class::Unknown,
        );
    }
    let data = answer.get("data").and_then(Value::as_object).into_iter().flatten();
    let user_errors = data.filter_map(|(_, part)| part.get("userErrors")?.as_array()).flatten();
    match user_errors.clone().next() {
        Some(error) => of_error(error, error["code"].as_str(), Class::Validation),
        None => Said::Done,
    }
}

fn of_error(error: &Value, code: Option<&str>, otherwise: Class) -> Said {
    let class = code.and_then(Class::of_code).unwrap_or(otherwise);
    let own = code.filter(|code| class.name() != *code);
    let failure = failure(class, own, error["message"].as_str().unwrap_or_default());
    match class {
        Class::RateLimit => Said::Throttled { failure, retry_after: None },
        class if class.may_be_repeated() => Said::Retry { failure, wait: None, answered: true },
        _ => Said::Failed(failure),
    }
}

fn of_refusal(status: u16, reply: &Reply, outcome: &Outcome) -> Verdict {
    let class = Class::of_status(status);
    // A code says more than 400 or 422 do; what the status says of trying again stands.
    let by_code = reply.code.as_deref().and_then(Class::of_code);
    let class = by_code.filter(|_| matches!(class, Class::Validation | Class::Unknown)).unwrap_or(class);
    let own = reply.code.as_deref().filter(|code| class.name() != *code);
    let failure = failure(class, own, outcome.message.as_deref().unwrap_or_default());
    let wait = outcome.retry_after.map(pace::span);
    let said = match class {
        Class::RateLimit => Said::Throttled { failure, retry_after: wait },
        class if class.may_be_repeated() => Said::Retry { failure, wait, answered: true },
        _ => Said::Failed(failure),
    };
    Verdict { is_critical: status == 401, ..Verdict::of(said) }
}

/// No answer came. What was not sent at all is known not to have been done; the same key serves for both.
fn of_silence(reply: &Reply, outcome: &Outcome) -> Verdict {
    let code = outcome.code.as_deref();
    let class = code.and_then(Class::of_code).unwrap_or(Class::Unknown);
    let failure = failure(
        class,
        code.filter(|code| class.name() != *code),
        outcome.message.as_deref().unwrap_or_default(),
    );
    if outcome.word == Some(Word::Retry) {
        return Verdict::of(Said::Retry { failure, wait: None, answered: false });
    }
    // An address that may not be called, or no URL at all.
    Verdict {
        is_critical: reply.is_known && code == Some("ADDRESS_REFUSED"),
        ..Verdict::of(Said::Failed(failure))
    }
}

/// Shopify's `extensions.cost.throttleStatus`.
fn reported(answer: &Value) -> Option<Reported> {
    let status = answer.pointer("/extensions/cost/throttleStatus")?;
    let milli = |name: &str| {
        let number = status.get(name)?.as_f64().filter(|number| (0.0..1e12).contains(number))?;
        Some((number * MILLI_PER_UNIT as f64) as u64)
    };
    Some(Reported {
        available_milli: milli("currentlyAvailable")?,
        rate_milli_per_s: milli("restoreRate"),
        capacity_milli: milli("maximumAvailable"),
    })
}

/// Its class is its code; what the destination itself calls it stands before the words.
fn failure(class: Class, own: Option<&str>, message: &str) -> Failure {
    let words = match own {
        Some(own) if !message.contains(own) => format!("{own}: {message}"),
        _ => message.to_owned(),
    };
    Failure::new(class.name(), &clean_chars(&words, MAX_ERROR_CHARS).text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good(body: Value) -> Verdict {
        let outcome = Ok(Outcome { output: body, ..Outcome::done() });
        Verdict::of_reply(&Reply { status: Some(200), code: None, outcome, is_known: true })
    }

    fn refused(status: u16, code: Option<&str>) -> Verdict {
        let outcome = Ok(Outcome {
            permanent: true,
            ..Outcome::fail("X", "PUT https://shop/4291 answered: 500 units at 429")
        });
        Verdict::of_reply(&Reply {
            status: Some(status),
            code: code.map(str::to_owned),
            outcome,
            is_known: true,
        })
    }

    fn shown(verdict: &Verdict) -> (&str, String) {
        match &verdict.said {
            Said::Done => ("done", String::new()),
            Said::Retry { failure, .. } => ("retry", failure.code.to_string()),
            Said::Throttled { failure, .. } => ("throttled", failure.code.to_string()),
            Said::Failed(failure) => ("failed", failure.code.to_string()),
        }
    }

    // proves R7
    #[test]
    fn classes_come_from_status_and_code_alone() {
        for (status, code, said, class) in [
            (429, None, "throttled", "RATE_LIMIT"),
            (408, None, "retry", "TIMEOUT"),
            (500, None, "retry", "SERVER_ERROR"),
            (503, Some("PRODUCT_NOT_FOUND"), "retry", "SERVER_ERROR"),
            (400, None, "failed", "VALIDATION"),
            (400, Some("THROTTLED"), "throttled", "RATE_LIMIT"),
            (401, None, "failed", "AUTHORIZATION"),
            (403, Some("PERMISSION_DENIED"), "failed", "AUTHORIZATION"),
            (404, Some("PRODUCT_NOT_FOUND"), "failed", "NOT_FOUND"),
            (410, None, "failed", "NOT_FOUND"),
            (422, Some("VARIANT_ARCHIVED"), "failed", "VALIDATION"),
            (422, Some("TEMPORARILY_UNAVAILABLE"), "retry", "SERVER_ERROR"),
            (302, None, "failed", "UNKNOWN"),
            (999, Some("what is this"), "failed", "UNKNOWN"),
        ] {
            let verdict = refused(status, code);
            assert_eq!(shown(&verdict), (said, class.to_owned()), "{status} {code:?}");
            assert_eq!(verdict.is_critical, status == 401, "{status}");
        }
    }

    // proves R5
    #[test]
    fn graphql_refuses_inside_a_200() {
        let error = |code: &str| json!({"errors": [{"message": "no", "extensions": {"code": code}}]});
        let user = |code: Value| json!({"data": {"productVariantsBulkUpdate": {"userErrors": [{"field": ["variants", "0", "price"], "message": "no", "code": code}]}}});
        for (body, said, class) in [
            (error("THROTTLED"), "throttled", "RATE_LIMIT"),
            (error("ACCESS_DENIED"), "failed", "AUTHORIZATION"),
            (error("INTERNAL_SERVER_ERROR"), "retry", "SERVER_ERROR"),
            (error("undefinedField"), "failed", "UNKNOWN"),
            (
                json!({"errors": [{"message": "a"}, {"message": "b", "extensions": {"code": "THROTTLED"}}]}),
                "throttled",
                "RATE_LIMIT",
            ),
            (user(json!("PRODUCT_VARIANT_DOES_NOT_EXIST")), "failed", "NOT_FOUND"),
            (user(json!("VARIANT_ARCHIVED")), "failed", "VALIDATION"),
            (user(json!("NEGATIVE_PRICE_VALUE")), "failed", "VALIDATION"),
            (user(Value::Null), "failed", "VALIDATION"),
            (json!({"data": {"productVariantsBulkUpdate": {"userErrors": []}}}), "done", ""),
            (json!({"errors": []}), "done", ""),
            (json!({"price": "429.00", "message": "THROTTLED 500"}), "done", ""),
            (json!("OK"), "done", ""),
            (Value::Null, "done", ""),
        ] {
            assert_eq!(shown(&good(body.clone())), (said, class.to_owned()), "{body}");
        }
    }

    #[test]
    fn the_shop_says_how_much_room_is_left() {
        let status = json!({"maximumAvailable": 2000.0, "currentlyAvailable": 1990, "restoreRate": 100.0});
        let verdict = good(json!({"data": {}, "extensions": {"cost": {"throttleStatus": status}}}));
        let expected = Reported {
            available_milli: 1_990_000,
            rate_milli_per_s: Some(100_000),
            capacity_milli: Some(2_000_000),
        };
        assert_eq!(verdict.reported, Some(expected));
        assert_eq!(
            good(json!({"extensions": {"cost": {"throttleStatus": {"currentlyAvailable": -1}}}})).reported,
            None
        );
    }

    // proves R7, R9
    #[test]
    fn silence_is_tried_again_under_the_same_key() {
        for (code, is_known) in [("TIMEOUT", false), ("NETWORK", false), ("NETWORK", true)] {
            let outcome = Ok(Outcome { code: Some(code.to_owned()), ..Outcome::retry("no answer") });
            let verdict = Verdict::of_reply(&Reply { status: None, code: None, outcome, is_known });
            assert!(
                matches!(&verdict.said, Said::Retry { failure, answered: false, .. } if &*failure.code == code),
                "{verdict:?}"
            );
        }
        assert!(matches!(Verdict::too_late(Span::from_seconds(3)).said, Said::Retry { answered: false, .. }));
    }

    // proves R7
    #[test]
    fn commands_say_it_by_their_outcome_or_exit() {
        let of = |exit: Option<Exit>, outcome: Option<Outcome>| {
            Verdict::of_answer(&Answer { exit, outcome: outcome.map(Ok), ..Answer::default() })
        };
        let code = |code: &str, outcome: Outcome| Outcome { code: Some(code.to_owned()), ..outcome };
        for (exit, outcome, said, class) in [
            (Exit::Code(0), None, "done", ""),
            (Exit::Code(0), Some(Outcome::skip("same")), "done", ""),
            (Exit::Code(75), None, "retry", "UNKNOWN"),
            (Exit::Code(1), None, "failed", "UNKNOWN"),
            (Exit::Signal(9), None, "failed", "UNKNOWN"),
            (Exit::Code(0), Some(code("THROTTLED", Outcome::retry("slow"))), "throttled", "RATE_LIMIT"),
            (Exit::Code(0), Some(code("NOT_FOUND", Outcome::fail("X", "gone"))), "failed", "NOT_FOUND"),
            (Exit::Code(1), Some(code("ECONNRESET", Outcome::fail("X", "cut"))), "retry", "NETWORK"),
            (
                Exit::Code(1),
                Some(Outcome { permanent: true, ..code("ECONNRESET", Outcome::fail("X", "cut")) }),
                "failed",
                "NETWORK",
            ),
            (Exit::Code(0), Some(Outcome::pause("look")), "failed", "UNKNOWN"),
        ] {
            let verdict = of(Some(exit.clone()), outcome.clone());
            assert_eq!(shown(&verdict), (said, class.to_owned()), "{exit:?} {outcome:?}");
        }
        let missing = of(Some(Exit::NotStarted("no such program".to_owned())), None);
        assert!(missing.is_critical && shown(&missing).0 == "failed");
    }
}
