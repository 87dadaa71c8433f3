//! Every way to call the interface wrongly that we could think of: the SQLSTATE, the words, what to do next.
// proves X10

use super::kit::open;

/// Statement, SQLSTATE, the argument, and what the message says of it. `RUN` is a run that `w` has begun.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("ops.queue_run(NULL, 'e', 's', 'r')", "WP422", "p_project_id", "is null"),
    ("ops.queue_run('', 'e', 's', 'r')", "WP422", "p_project_id", "is empty"),
    ("ops.queue_run('p', NULL, 's', 'r')", "WP422", "p_env", "is null"),
    ("ops.queue_run('p', 'e', '', 'r')", "WP422", "p_git_sha", "is empty"),
    ("ops.queue_run('p', 'e', 's', NULL)", "WP422", "p_git_ref", "is null"),
    (
        "ops.queue_run('p', 'e', 's', repeat('é', 128))",
        "WP422",
        "p_git_ref",
        "is 256 bytes long; at most 255 are allowed",
    ),
    ("ops.queue_run('p', 'e', 's', 'r', '[]')", "WP422", "p_metadata", "is of type array, not an object"),
    ("ops.queue_run('p', 'e', 's', 'r', '\"text\"')", "WP422", "p_metadata", "is of type string"),
    (
        "ops.queue_run('p', 'e', 's', 'r', jsonb_build_object('a', repeat('x', 20 * 1024 * 1024)))",
        "WP422",
        "p_metadata",
        "is 20971529 bytes long; at most 1048576 are allowed",
    ),
    (
        "ops.queue_run('p', 'e', 's', 'r', ('{\"a\":' || repeat('[', 64) || repeat(']', 64) || '}')::jsonb)",
        "WP422",
        "p_metadata",
        "is nested deeper than 64 levels",
    ),
    (
        "ops.queue_run('p', 'e', 's', 'r', '{\"a\": [1, {\"b\": 1e400}]}')",
        "WP422",
        "p_metadata",
        "has a number out of range",
    ),
    (
        "ops.queue_run('p', 'e', 's', 'r', '{\"a\": \"\\u0000\"}')",
        "22P05",
        "",
        "unsupported Unicode escape sequence",
    ),
    (
        "ops.queue_run('p', 'e', 's', 'r', '{\"a\": \"\\ud800\"}')",
        "22P02",
        "",
        "invalid input syntax for type json",
    ),
    ("ops.queue_run('p', 'e', 's', 'r', '{}', '')", "WP422", "p_idempotency_key", "is empty"),
    (
        "ops.queue_run('p', 'e', 's', 'r', '{}', repeat('k', 256))",
        "WP422",
        "p_idempotency_key",
        "is 256 bytes long",
    ),
    ("ops.claim_next_run(NULL)", "WP422", "p_worker_id", "is null"),
    ("ops.claim_next_run('')", "WP422", "p_worker_id", "is empty"),
    ("ops.claim_next_run(repeat('w', 256))", "WP422", "p_worker_id", "is 256 bytes long"),
    ("ops.append_event(NULL, 'info', 'm')", "WP422", "p_run_id", "is null"),
    ("ops.append_event('run-unknown', 'info', 'm')", "WP404", "p_run_id", "there is no run 'run-unknown'"),
    ("ops.append_event('run'' OR true --', 'info', 'm')", "WP404", "p_run_id", "there is no run"),
    ("ops.append_event('RUN', 'fatal', 'm')", "WP422", "p_level", "there is no 'fatal'"),
    ("ops.append_event('RUN', 'INFO', 'm')", "WP422", "p_level", "there is no 'INFO'"),
    ("ops.append_event('RUN', NULL, 'm')", "WP422", "p_level", "is null"),
    ("ops.append_event('RUN', 'info', NULL)", "WP422", "p_message", "is null"),
    ("ops.append_event('RUN', 'info', '')", "WP422", "p_message", "is empty"),
    (
        "ops.append_event('RUN', 'info', repeat('m', 16385))",
        "WP422",
        "p_message",
        "is 16385 characters long; at most 16384 are allowed",
    ),
    ("ops.append_event('RUN', 'info', repeat('m', 20 * 1024 * 1024))", "WP422", "p_message", "bytes long"),
    ("ops.append_event('RUN', 'info', 'a' || chr(0))", "54000", "", "null character not permitted"),
    (
        "ops.append_event('RUN', 'info', 'm', to_jsonb(repeat('x', 65536)))",
        "WP422",
        "p_payload",
        "is 65538 bytes long; at most 65536 are allowed",
    ),
    ("ops.append_event('RUN', 'info', 'm', '{}', '')", "WP422", "p_worker_id", "is empty"),
    (
        "ops.append_event('RUN', 'info', 'm', '{}', 'w', 'no token')",
        "WP422",
        "p_lease_token",
        "is not a token",
    ),
    (
        "ops.append_event('RUN', 'info', 'm', p_idempotency_key := '')",
        "WP422",
        "p_idempotency_key",
        "is empty",
    ),
    ("ops.finish_run(NULL, 'success')", "WP422", "p_run_id", "is null"),
    ("ops.finish_run('run-unknown', 'success')", "WP404", "p_run_id", "there is no run 'run-unknown'"),
    ("ops.finish_run('run-unknown', 'cancelled')", "WP404", "p_run_id", "there is no run"),
    ("ops.finish_run('RUN', NULL)", "WP422", "p_status", "is null"),
    ("ops.finish_run('RUN', 'done')", "WP422", "p_status", "a run does not finish as 'done'"),
    ("ops.finish_run('RUN', 'queued')", "WP422", "p_status", "a run does not finish as 'queued'"),
    ("ops.finish_run('RUN', 'success', '7')", "WP422", "p_metadata", "is of type number"),
    (
        "ops.finish_run('RUN', 'success', jsonb_build_object('a', repeat('x', 20 * 1024 * 1024)))",
        "WP422",
        "p_metadata",
        "bytes long",
    ),
    ("ops.finish_run('RUN', 'success', p_worker_id := '')", "WP422", "p_worker_id", "is empty"),
    ("ops.finish_run('RUN', 'success', p_lease_token := 'x')", "WP422", "p_lease_token", "is not a token"),
    ("ops.heartbeat(NULL)", "WP422", "p_run_id", "is null"),
    ("ops.heartbeat('run-unknown')", "WP404", "p_run_id", "there is no run"),
];

#[test]
fn bad_input_is_refused_with_its_name_and_writes_nothing() {
    let ops = open();
    let run_id = ops.psql("SELECT run_id FROM ops.queue_run('p', 'e', 's', 'r')");
    ops.psql("SELECT * FROM ops.claim_next_run('w')");
    ops.psql(&format!("SELECT ops.append_event('{run_id}', 'info', 'begun')"));
    for (call, sqlstate, field, words) in CASES {
        let refused = ops.refused(&format!("SELECT * FROM {}", call.replace("RUN", &run_id)));
        assert!(refused.sqlstate == *sqlstate && refused.message.contains(words), "{call}: {refused:?}");
        if sqlstate.starts_with("WP") {
            assert!(refused.message.contains(&format!("{field}: ")), "{call}: {refused:?}");
            assert_eq!(
                (refused.field.as_str(), refused.hint.is_empty()),
                (*field, false),
                "{call}: {refused:?}"
            );
        }
    }
    assert_eq!(ops.events(&run_id).len(), 3);
    assert_eq!(ops.status(&run_id), "running");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn what_is_allowed_is_listed() {
    let ops = open();
    let run_id = ops.claimed();
    let hint = |call: &str| ops.refused(&format!("SELECT {}", call.replace("RUN", &run_id))).hint;
    assert_eq!(hint("ops.finish_run('RUN', 'done')"), "Allowed: cancelled, failed, success");
    assert_eq!(hint("ops.append_event('RUN', 'x', 'm')"), "Allowed: debug, info, warn, error");
}

#[test]
fn what_just_fits_is_taken() {
    let ops = open();
    ops.psql("SELECT ops.queue_run(repeat('p', 255), 'e', 's', 'r', jsonb_build_object('a', repeat('x', 1048576 - 9)), repeat('k', 255))");
    let run_id = ops.psql("SELECT run_id FROM ops.claim_next_run(repeat('w', 255))");
    ops.psql(&format!(
        "SELECT ops.append_event('{run_id}', 'info', repeat('é', 16384), to_jsonb(repeat('x', 65534)))"
    ));
    ops.psql(&format!("SELECT ops.append_event('{run_id}', 'info', 'no payload', NULL)"));
    let refused = ops.refused(&format!("SELECT ops.finish_run('{run_id}', 'success', '{{\"b\": 1}}')"));
    refused.is("WP422", "metadata: would be");
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success', NULL)"));
    assert_eq!(ops.verify(), 1);
}

/// Whatever is in a text is text.
#[test]
fn quotes_percents_and_backslashes_come_back_as_they_went() {
    let ops = open();
    let odd = r#"O''Hara; DROP TABLE ops.runs; -- %s %I \ $1 {"a"} 😀"#;
    ops.psql(&format!(
        "SELECT ops.queue_run('{odd}', '{odd}', '{odd}', '{odd}', jsonb_build_object('k', '{odd}'), '{odd}')"
    ));
    let run_id = ops.psql(&format!("SELECT run_id FROM ops.claim_next_run('{odd}')"));
    ops.psql(&format!("SELECT ops.append_event('{run_id}', 'info', '{odd}', to_jsonb('{odd}'::text), '{odd}', p_idempotency_key := '{odd}')"));
    let same = format!(
        "SELECT bool_and(x = '{odd}') FROM ops.runs r, unnest(ARRAY[project_id, env_id, git_sha, git_ref, idempotency_key, claimed_by, metadata->>'k']) x"
    );
    assert_eq!(ops.psql(&same), "t");
    assert_eq!(ops.psql(&format!("SELECT count(*) FROM ops.run_events WHERE message = '{odd}' AND payload = to_jsonb('{odd}'::text)")), "1");
    let refused = ops.refused(&format!("SELECT ops.finish_run('{run_id}', '{odd}')"));
    refused.is("WP422", "p_status");
    assert_eq!(ops.verify(), 1);
}
