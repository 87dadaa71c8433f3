//! Somebody types an UPDATE on ops.runs: a legal one becomes a move with its event, any other is refused.
// proves X2, D8

use super::kit::open;
use waypost_kernel::lifecycle::Phase;

/// All pairs of states: what the lifecycle's table has is accepted and verifies, all else is refused.
#[test]
fn every_pair_of_states_is_judged() {
    let ops = open();
    let lifecycle = super::kit::deploy();
    let mut accepted = 0;
    for from in lifecycle.state_ids() {
        for to in lifecycle.state_ids().filter(|to| *to != from) {
            let (was, will) = (&*lifecycle.state(from).name, &*lifecycle.state(to).name);
            let run_id = match lifecycle.state(from).phase {
                Phase::Ready => ops.queue(),
                Phase::Held if lifecycle.state(from).deadline.is_some() => ops.claimed(),
                _ => ops.running(),
            };
            if lifecycle.phase(from) == Phase::Settled {
                let name = &lifecycle.state(from).name;
                ops.psql(&format!(
                    "SELECT ops.finish_run('{run_id}', '{name}', p_worker_id := 'worker-001')"
                ));
            }
            assert_eq!(ops.status(&run_id), was);
            let sql = format!(
                "UPDATE ops.runs SET status = '{will}', claimed_by = coalesce(claimed_by, 'me') WHERE run_id = '{run_id}'"
            );
            if lifecycle.transitions.iter().any(|row| row.from == from && row.to == to) {
                ops.psql(&sql);
                assert_eq!(ops.status(&run_id), will);
                accepted += 1;
            } else {
                ops.refused(&sql).is("WP409", "INVALID_TRANSITION");
                assert_eq!(ops.status(&run_id), was);
            }
            // Nothing may be left for the next one's claim.
            ops.psql("UPDATE ops.runs SET status = 'cancelled' WHERE status = 'queued'");
        }
    }
    assert_eq!(accepted, 7);
    assert_eq!(ops.verify(), 30);
}

#[test]
fn only_status_and_metadata_are_anybodys() {
    let ops = open();
    let run_id = ops.running();
    for set in [
        "run_id = 'run-other'",
        "project_id = 'other'",
        "env_id = 'other'",
        "git_sha = 'other'",
        "queued_at = now()",
        "created_at = now()",
        "idempotency_key = 'k'",
        "queue = 'default'",
        "priority = 9",
        "claimed_by = 'me'",
        "started_at = now()",
        "finished_at = now()",
        "lease_expires_at = now() + interval '1 year'",
    ] {
        ops.refused(&format!("UPDATE ops.runs SET {set}")).is("WP409", "IMMUTABLE");
    }
    ops.refused("UPDATE ops.runs SET status = 'nonsense'")
        .is("WP409", "INVALID_TRANSITION: no nonsense from running");
    ops.refused("UPDATE ops.runs SET status = NULL").is("WP409", "INVALID_TRANSITION");
    ops.refused("UPDATE ops.runs SET metadata = NULL").is("WP422", "metadata");
    ops.refused("UPDATE ops.runs SET metadata = '[]'").is("WP422", "metadata: is of type array");
    assert_eq!(ops.status(&run_id), "running");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn metadata_changed_by_hand_is_in_the_log() {
    let ops = open();
    let run_id = ops.running();
    ops.psql("UPDATE ops.runs SET metadata = metadata || '{\"ticket\": 7}'");
    ops.psql("UPDATE ops.runs SET metadata = metadata");
    assert_eq!(ops.events(&run_id).last().unwrap(), "info Metadata changed by hand");
    assert_eq!(ops.events(&run_id).len(), 4, "what changes nothing is no event");
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success', '{{\"exit_code\": 0}}')"));
    assert_eq!(ops.one(&run_id, "metadata"), r#"{"ticket": 7, "exit_code": 0}"#);
    ops.refused("UPDATE ops.runs SET metadata = '{}'").is_settled();
    assert_eq!(ops.verify(), 1);
}

impl super::kit::Refused {
    fn is_settled(&self) {
        assert!(self.sqlstate == "WP409" && self.message.starts_with("SETTLED"), "{self:?}");
    }
}
