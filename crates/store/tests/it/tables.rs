//! The lifecycles as SPEC.md writes them down (D, A, C, J, R, and "Steps, tasks and operations"), typed from there and from nowhere else:
//! what tests of the databases' own guard hold those to.

use std::collections::BTreeSet;

/// A lifecycle and, for each of its states, those that it may move to.
pub type Table = (&'static str, &'static [(&'static str, &'static [&'static str])]);

pub const RUNS: [Table; 8] = [
    (
        "deploy",
        &[
            ("queued", &["claimed", "cancelled"]),
            ("claimed", &["running", "cancelled"]),
            ("running", &["success", "failed", "cancelled"]),
            ("success", &[]),
            ("failed", &[]),
            ("cancelled", &[]),
        ],
    ),
    (
        "agent",
        &[
            ("requested", &["queued", "failed"]),
            ("queued", &["running", "failed"]),
            ("running", &["completed", "failed"]),
            ("completed", &[]),
            ("failed", &[]),
        ],
    ),
    ("cron", &[("RUNNING", &["SUCCESS", "FAILED"]), ("SUCCESS", &[]), ("FAILED", &["RUNNING"])]),
    (
        "job",
        &[
            ("pending", &["running", "cancelled"]),
            ("running", &["completed", "failed", "paused", "cancelled"]),
            ("paused", &["pending", "cancelled"]),
            ("completed", &[]),
            ("failed", &[]),
            ("cancelled", &[]),
        ],
    ),
    (
        "operation",
        &[
            ("queued", &["running", "cancelled"]),
            ("running", &["completed", "partial", "failed", "cancelled"]),
            ("completed", &[]),
            ("partial", &[]),
            ("failed", &[]),
            ("cancelled", &[]),
        ],
    ),
    (
        "rule",
        &[
            ("PREVIEW", &["QUEUED", "FAILED"]),
            ("QUEUED", &["APPLYING", "FAILED"]),
            ("APPLYING", &["APPLIED", "PARTIAL", "FAILED"]),
            ("APPLIED", &["ROLLED_BACK"]),
            ("PARTIAL", &["APPLYING", "ROLLED_BACK"]),
            ("FAILED", &["APPLYING"]),
            ("ROLLED_BACK", &[]),
        ],
    ),
    (
        "proposal",
        &[
            ("pending", &["approved", "rejected", "expired"]),
            ("approved", &["applying"]),
            ("applying", &["applied", "failed"]),
            ("applied", &[]),
            ("failed", &["applying", "rejected"]),
            ("rejected", &[]),
            ("expired", &[]),
        ],
    ),
    (
        "inbox",
        &[
            ("pending", &["processed", "rejected", "expired"]),
            ("processed", &[]),
            ("rejected", &[]),
            ("expired", &[]),
        ],
    ),
];

pub const ITEMS: [Table; 3] = [
    (
        "step",
        &[
            ("pending", &["running", "skipped", "failed"]),
            ("running", &["completed", "failed", "skipped", "paused", "pending"]),
            ("paused", &["pending", "skipped", "failed"]),
            ("completed", &["pending"]),
            ("failed", &[]),
            ("skipped", &[]),
        ],
    ),
    (
        "task",
        &[
            ("pending", &["running", "failed"]),
            ("running", &["completed", "failed"]),
            ("completed", &[]),
            ("failed", &[]),
        ],
    ),
    (
        "target",
        &[
            ("PREVIEW", &["QUEUED"]),
            ("QUEUED", &["APPLYING", "FAILED"]),
            ("APPLYING", &["APPLIED", "FAILED", "QUEUED"]),
            ("APPLIED", &["ROLLED_BACK"]),
            ("FAILED", &["QUEUED"]),
            ("ROLLED_BACK", &[]),
        ],
    ),
];

pub fn is_declared(tables: &[Table], name: &str, from: &str, to: &str) -> bool {
    let (_, states) = tables.iter().find(|(known, _)| *known == name).unwrap();
    let (_, next) = states.iter().find(|(state, _)| *state == from).unwrap();
    next.contains(&to)
}

/// The states on a shortest way from the first one.
pub fn way(table: &Table, to: &str) -> Vec<&'static str> {
    let (_, states) = table;
    let mut ways = vec![vec![states[0].0]];
    for at in 0.. {
        let way = ways[at].clone();
        let last = *way.last().unwrap();
        if last == to {
            return way[1..].to_vec();
        }
        let (_, next) = states.iter().find(|(state, _)| *state == last).unwrap();
        ways.extend(
            next.iter().filter(|state| !way.contains(state)).map(|state| [&way[..], &[state]].concat()),
        );
    }
    unreachable!()
}

/// Pairs of states; staying where one is (a steal) is no pair.
#[test]
fn the_shipped_lifecycles_have_these_states_and_moves_and_no_others() {
    let catalog = waypost_kernel::Catalog::shipped().unwrap();
    assert_eq!(catalog.iter().count(), RUNS.len() + ITEMS.len());
    for (name, states) in RUNS.iter().chain(&ITEMS) {
        let mut declared: Vec<&str> = states.iter().map(|(state, _)| *state).collect();
        let lifecycle = catalog.latest(name).unwrap();
        let mut shipped: Vec<&str> = lifecycle.states.iter().map(|state| &*state.name).collect();
        declared.sort_unstable();
        shipped.sort_unstable();
        assert_eq!(declared, shipped, "{name}");
        let pair = |from: &str, to: &str| format!("{from} → {to}");
        let declared: BTreeSet<String> =
            states.iter().flat_map(|(from, next)| next.iter().map(|to| pair(from, to))).collect();
        let moves = lifecycle.transitions.iter().filter(|row| row.from != row.to);
        let name_of = |id| &*lifecycle.state(id).name;
        let shipped: BTreeSet<String> = moves.map(|row| pair(name_of(row.from), name_of(row.to))).collect();
        assert_eq!(declared, shipped, "{name}");
    }
}
