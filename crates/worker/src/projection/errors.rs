//! The error table of seed 001: what a failure is called in `status.json`, and which HTTP status it has.

use waypost_kernel::Failure;

/// Beside those that are called so already.
pub const INTERNAL: &str = "INTERNAL_ERROR";
pub const TIMEOUT: &str = "AGENT_TIMEOUT";
pub const UPSTREAM: &str = "UPSTREAM_UNAVAILABLE";
pub const MODEL: &str = "NLM_UNAVAILABLE";
/// A cancel has no row of its own there.
pub const CANCELLED: &str = "CANCELLED";

/// Why a run is taken back that could not be shown: the reason of its cancel. Nobody has cancelled it as far as its readers know.
pub const NEVER_SHOWN: &str = "UPSTREAM_UNAVAILABLE: the object store could not be reached";

/// Codes as they stand, each with its HTTP status.
const TABLE: [(&str, u16); 5] =
    [(MODEL, 502), (UPSTREAM, 502), (TIMEOUT, 504), (INTERNAL, 500), (CANCELLED, 409)];

/// What workers call a step or a run that took too long.
const TIMEOUTS: [&str; 2] = ["TIMEOUT", "RUN_TIMEOUT"];

/// The code of a failure, its words, and its HTTP status. What has no row of its own is what retries could not mend; its own code stays
/// in its words.
pub fn told(failure: &Failure) -> (&'static str, String, u16) {
    if *failure.code == *CANCELLED && *failure.message == *NEVER_SHOWN {
        let words = NEVER_SHOWN.split_once(": ").map_or(NEVER_SHOWN, |(_, words)| words);
        return (UPSTREAM, words.to_owned(), 502);
    }
    let own = TABLE.into_iter().find(|(code, _)| *code == &*failure.code);
    if let Some((code, status)) = own {
        return (code, failure.message.to_string(), status);
    }
    let code = if TIMEOUTS.contains(&&*failure.code) { TIMEOUT } else { INTERNAL };
    let status = TABLE.into_iter().find(|(known, _)| *known == code).map_or(500, |(_, status)| status);
    let words = match code {
        TIMEOUT => failure.message.to_string(),
        _ => format!("{}: {}", failure.code, failure.message),
    };
    (code, words, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves A10
    #[test]
    fn every_failure_has_a_row_of_the_seeds_table() {
        for (code, expected, status) in [
            ("NLM_UNAVAILABLE", "NLM_UNAVAILABLE", 502),
            ("UPSTREAM_UNAVAILABLE", "UPSTREAM_UNAVAILABLE", 502),
            ("TIMEOUT", "AGENT_TIMEOUT", 504),
            ("RUN_TIMEOUT", "AGENT_TIMEOUT", 504),
            ("AGENT_TIMEOUT", "AGENT_TIMEOUT", 504),
            ("EXIT_1", "INTERNAL_ERROR", 500),
            ("WORKER_LOST", "INTERNAL_ERROR", 500),
            ("CANCELLED", "CANCELLED", 409),
        ] {
            let (told_code, _, told_status) = told(&Failure::new(code, "why"));
            assert_eq!((told_code, told_status), (expected, status), "{code}");
        }
        assert_eq!(told(&Failure::new("EXIT_1", "why")).1, "EXIT_1: why");
        let (code, words, status) = told(&Failure::new(CANCELLED, NEVER_SHOWN));
        assert_eq!((code, &*words, status), (UPSTREAM, "the object store could not be reached", 502));
        assert_eq!(told(&Failure::new("TIMEOUT", "why")).1, "why");
    }
}
