//! The exhaustive test of each lifecycle, and that its table is covered: no dead row, no forbidden move.

use super::cases::{Seen, load, run_all};
use super::table::Table;

fn exhaust(name: &str, floor: u64) {
    let (table, lifecycle) = load(name);
    let seen = run_all(&table, &lifecycle);
    let [moves, stays, refused] = seen.verdicts;
    println!("{name}: {} combinations: {moves} moves, {stays} stays, {refused} refused", seen.combinations);
    let wrong: Vec<String> = seen.wrong.values().map(|(count, first)| format!("{count} × {first}")).collect();
    assert!(wrong.is_empty(), "{} kinds of difference:\n\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(seen.combinations > floor, "{name}: only {} combinations", seen.combinations);
    no_row_is_dead(&table, &seen);
    nothing_else_was_made(&table, &seen);
}

fn no_row_is_dead(table: &Table, seen: &Seen) {
    for row in &table.legal {
        let key = (row.from.to_owned(), row.to.to_owned(), row.who.name(), row.how.to_owned());
        assert!(seen.moves.contains(&key), "{}: no request makes {row:?}", table.name);
    }
}

/// The engine and the releasing worker carry out what others asked for, so only the actor may differ.
fn nothing_else_was_made(table: &Table, seen: &Seen) {
    for (from, to, actor, how) in &seen.moves {
        let legal = table.legal.iter().any(|row| row.from == from && row.to == to && row.how == how);
        assert!(legal, "{}: {from} → {to} by {how} of {actor} is in no table", table.name);
        assert!(!table.is_forbidden(from, to), "{}: {from} → {to} is forbidden", table.name);
    }
}

// proves X3, X5, X8, D4, D7, D8
#[test]
fn every_request_in_every_deploy_state_is_decided_as_the_tables_say() {
    exhaust("deploy", 400_000);
}

// proves X3, X5, X8, A7
#[test]
fn every_request_in_every_agent_state_is_decided_as_the_tables_say() {
    exhaust("agent", 210_000);
}

// proves X3, X5, X8, C3, C4, C7
#[test]
fn every_request_in_every_cron_state_is_decided_as_the_tables_say() {
    exhaust("cron", 850_000);
}

// proves X3, X5, X8, J2, J6
#[test]
fn every_request_in_every_job_state_is_decided_as_the_tables_say() {
    exhaust("job", 640_000);
}

// proves X3, X5, X8, R1, R2, R3, R8, R10
#[test]
fn every_request_in_every_rule_state_is_decided_as_the_tables_say() {
    exhaust("rule", 2_500_000);
}

// proves X3, X5, X8, R10
#[test]
fn every_request_in_every_operation_state_is_decided_as_the_tables_say() {
    exhaust("operation", 120_000);
}

// proves X3, X5, X8, A8
#[test]
fn every_request_in_every_proposal_state_is_decided_as_the_tables_say() {
    exhaust("proposal", 80_000);
}

// proves X3, A8
#[test]
fn every_request_in_every_inbox_state_is_decided_as_the_tables_say() {
    exhaust("inbox", 10_000);
}
