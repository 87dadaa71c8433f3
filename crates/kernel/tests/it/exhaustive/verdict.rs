//! What came of a request, in words that the oracle and the kernel have in common.

use super::table::Row;
use waypost_kernel::{Change, Code, Lifecycle, Refusal, Run};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Moves of the table, by command and state.
    Moves(Vec<(&'a str, &'a str)>),
    Stays(Stay),
    Refused(Code),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stay {
    /// A repeat, or nothing to do: nothing is written.
    Nothing,
    Heartbeat,
    Noted,
    TakenOver,
    Released,
    Owes,
    Wanted,
    /// Given up, but its cleanup comes first: a vacant lease and a failure to come.
    CleanupFirst,
    OperationBegun,
    OperationOver,
}

impl<'a> Verdict<'a> {
    pub fn moves(row: &Row) -> Verdict<'static> {
        Verdict::Moves(vec![(row.how, row.to)])
    }

    /// What the kernel decided.
    pub fn of(lifecycle: &'a Lifecycle, before: &Run, decided: &'a Result<Change, Refusal>) -> Verdict<'a> {
        let change = match decided {
            Err(refusal) => return Verdict::Refused(refusal.code),
            Ok(change) => change,
        };
        let moves: Vec<(&str, &str)> = change
            .events
            .iter()
            .filter(|event| event.from != Some(event.to) || &*event.command == "steal")
            .map(|event| (&*event.command, &*lifecycle.state(event.to).name))
            .collect();
        if !moves.is_empty() {
            return Verdict::Moves(moves);
        }
        Verdict::Stays(match change.events.last() {
            None if change.after == *before => Stay::Nothing,
            None => Stay::Heartbeat,
            Some(event) => match &*event.command {
                "note" => Stay::Noted,
                "take-over" => Stay::TakenOver,
                "release" => Stay::Released,
                "require-cleanup" => Stay::Owes,
                "cancel" | "pause" => Stay::Wanted,
                "lose" | "expire" => Stay::CleanupFirst,
                "operation" => Stay::OperationOver,
                "rollback" | "reconcile" => Stay::OperationBegun,
                other => panic!("an event that nobody knows: {other}"),
            },
        })
    }
}
