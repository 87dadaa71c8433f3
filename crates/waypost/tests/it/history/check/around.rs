//! What is left in the end, and what logs and answers say of faults.

use std::collections::{BTreeMap, BTreeSet};

use super::super::record::{Answer, Call, Moment, NOT_REACHED};
use super::facts::{Facts, Phase, phase};

/// After everything answers again: connections that broke are found out one by one.
pub const AFTERMATH: Moment = 10_000_000;

pub fn nothing_stuck(facts: &Facts<'_>) -> Vec<String> {
    let stuck = facts.history.tables.runs.iter().filter(|run| phase(&run.status) != Phase::Settled);
    let stuck = stuck.map(|run| format!("{} of {} is {}", run.run_id, run.queue, run.status));
    let left = facts.history.tables.left_over.iter();
    stuck.chain(left.map(|(table, run_id)| format!("{run_id} is left in {table}"))).collect()
}

pub fn verify_clean(facts: &Facts<'_>) -> Vec<String> {
    facts.history.differences.clone()
}

const DEADLOCK: &str = "40P01";

/// In the database's log, one for each set of statements that met; and as an answer.
pub fn no_deadlock(facts: &Facts<'_>) -> Vec<String> {
    let mut met: BTreeMap<BTreeSet<&str>, usize> = BTreeMap::new();
    for error in
        facts.history.database_log.iter().filter(|error| error.message.starts_with("deadlock detected"))
    {
        *met.entry(error.statements.iter().map(String::as_str).collect()).or_default() += 1;
    }
    let logged = met.iter().map(|(statements, times)| {
        let statements: Vec<&str> = statements.iter().copied().collect();
        format!("{times} times: {}", statements.join(" | "))
    });
    let told = |call: &Call| match &call.answer {
        Answer::Refused { code, .. } if code == DEADLOCK => {
            Some(format!("{} was told {code}: {:?}", call.client, call.ask))
        }
        _ => None,
    };
    logged.chain(facts.history.calls.iter().filter_map(told)).collect()
}

/// Of the documentation's table of refusals, or a deadlock, which is another check's.
pub fn sql_errors(facts: &Facts<'_>) -> Vec<String> {
    let is_documented =
        |code: &str| code.starts_with("WP") || [DEADLOCK, "40001", "55P03", NOT_REACHED].contains(&code);
    let check = |call: &Call| match &call.answer {
        Answer::Refused { code, .. } if call.server.is_none() && !is_documented(code) => {
            Some(format!("{} was told {code}: {:?}", call.client, call.ask))
        }
        _ => None,
    };
    facts.history.calls.iter().filter_map(check).collect()
}

pub fn no_panic(facts: &Facts<'_>) -> Vec<String> {
    facts.history.server_log.iter().filter(|line| line.contains("panicked")).cloned().collect()
}

pub fn server_errors(facts: &Facts<'_>) -> Vec<String> {
    let is_excused = |call: &Call| {
        let mut faults = facts.history.faults.iter();
        faults.any(|fault| call.invoked <= fault.ended + AFTERMATH && call.answered >= fault.began)
    };
    let check = |call: &Call| match &call.answer {
        Answer::Unknown { status: Some(503), .. } if is_excused(call) => None,
        Answer::Unknown { status: None, .. } if is_excused(call) => None,
        Answer::Refused { code, .. } if code == NOT_REACHED && !is_excused(call) => Some(format!(
            "{} did not reach {:?} at {} µs, no fault is near",
            call.client, call.server, call.invoked
        )),
        Answer::Unknown { status, why } => {
            let (client, at, ask) = (&call.client, call.invoked, &call.ask);
            Some(format!("{client} was answered {status:?} ({why}) at {at} µs, no fault is near: {ask:?}"))
        }
        _ => None,
    };
    facts.history.calls.iter().filter_map(check).collect()
}
