//! Workers' events: repeats are known as such, the first own one starts the run, each one renews the lease.
// proves D4, D6

use super::kit::open;

#[test]
fn a_repeat_within_ten_seconds_gives_the_first_ones_id() {
    let ops = open();
    let run_id = ops.claimed();
    let say = |level: &str, message: &str, payload: &str| {
        ops.psql(&format!("SELECT ops.append_event('{run_id}', '{level}', '{message}', '{payload}')"))
    };
    let first = say("info", "step 1", r#"{"a": 1, "b": 2}"#);
    assert_eq!(say("info", "step 1", r#"{"b": 2, "a": 1}"#), first, "members have no order");
    for (level, message, payload) in [
        ("info", "step 1", r#"{"a": 1}"#),
        ("warn", "step 1", r#"{"a": 1, "b": 2}"#),
        ("info", "step 2", r#"{"a": 1, "b": 2}"#),
        ("info", "step 1", "{}"),
    ] {
        assert_ne!(say(level, message, payload), first, "{level} {message} {payload}");
    }
    ops.clock("9 seconds");
    assert_eq!(say("info", "step 1", r#"{"a": 1, "b": 2}"#), first);
    ops.clock("11 seconds");
    assert_ne!(say("info", "step 1", r#"{"a": 1, "b": 2}"#), first, "the window is over");
    assert_eq!(ops.events(&run_id).len(), 8);
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_key_is_known_for_ever() {
    let ops = open();
    let run_id = ops.claimed();
    let say = |message: &str, key: &str| {
        ops.psql(&format!(
            "SELECT ops.append_event('{run_id}', 'info', '{message}', p_idempotency_key := '{key}')"
        ))
    };
    let first = say("uploaded", "k1");
    assert_ne!(say("uploaded", "k2"), first, "another key is another event");
    ops.clock("50 minutes");
    assert_eq!(say("uploaded again", "k1"), first);
    let other = ops.running();
    let said = format!("SELECT ops.append_event('{other}', 'info', 'uploaded', p_idempotency_key := 'k1')");
    assert_ne!(ops.psql(&said), first, "a key is its run's");
    assert_eq!(ops.verify(), 2);
}

#[test]
fn the_claims_own_event_does_not_start_the_run_and_hides_no_event_of_the_workers() {
    let ops = open();
    let run_id = ops.claimed();
    assert_eq!(ops.status(&run_id), "claimed");
    let said = format!(
        r#"SELECT ops.append_event('{run_id}', 'info', 'Run claimed by worker', '{{"worker_id": "worker-001"}}')"#
    );
    ops.psql(&said);
    assert_eq!(ops.status(&run_id), "running");
    assert_eq!(ops.events(&run_id).len(), 3);
}

#[test]
fn the_five_minutes_count_from_the_claim_and_the_hour_from_the_last_sign() {
    let ops = open();
    let run_id = ops.claimed();
    let left = || ops.one(&run_id, "round(extract(epoch FROM lease_expires_at - now()) / 60)");
    assert_eq!(left(), "5");
    ops.clock("4 minutes");
    ops.psql(&format!("SELECT * FROM ops.heartbeat('{run_id}')"));
    assert_eq!(left(), "5", "a heartbeat does not extend a deadline");
    ops.psql(&format!("SELECT ops.append_event('{run_id}', 'info', 'begun')"));
    assert_eq!(left(), "64");
    ops.clock("10 minutes");
    let row = ops.psql(&format!("SELECT run_id, status, cancel_requested FROM ops.heartbeat('{run_id}')"));
    assert_eq!((row, left()), (format!("{run_id}|running|f"), "70".into()));
    ops.clock("20 minutes");
    ops.psql(&format!("SELECT ops.append_event('{run_id}', 'info', 'going on')"));
    assert_eq!(left(), "80");
    ops.clock("15 minutes");
    ops.psql(&format!("SELECT * FROM ops.heartbeat('{run_id}')"));
    assert_eq!(left(), "80", "nothing shortens a lease");
    assert_eq!(ops.psql("SELECT count(*) > 0 FROM waypost.watch"), "t", "the sweeper is reminded");
}

#[test]
fn what_would_move_a_terminals_cursor_is_replaced() {
    let ops = open();
    let run_id = ops.claimed();
    ops.psql(&format!(r"SELECT ops.append_event('{run_id}', 'info', E'a\b\x07b\tc\n\u009bd')"));
    let message = format!(
        "SELECT to_json(message) FROM ops.run_events WHERE run_id = '{run_id}' ORDER BY seq DESC LIMIT 1"
    );
    assert_eq!(ops.psql(&message), "\"a\u{fffd}\u{fffd}b\\tc\\n\u{fffd}d\"");
}

#[test]
fn events_are_append_only() {
    let ops = open();
    let run_id = ops.running();
    for sql in [
        "UPDATE ops.run_events SET message = 'other'",
        "DELETE FROM ops.run_events",
        "UPDATE waypost.events SET command = 'other'",
        "DELETE FROM waypost.events",
        "TRUNCATE waypost.events",
        "DELETE FROM ops.runs",
        "INSERT INTO ops.runs(run_id, status) VALUES ('run-1', 'queued')",
        "INSERT INTO ops.run_events(run_id, level, message) VALUES ('run-1', 'info', 'made up')",
    ] {
        ops.refused(sql).is("WP405", "APPEND_ONLY");
    }
    assert_eq!(ops.events(&run_id).len(), 3);
}
