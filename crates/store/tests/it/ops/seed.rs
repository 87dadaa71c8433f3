//! Every SELECT and UPDATE of the seed as its callers write it, on a fresh run in the state of its section.
// proves D1, D2, D3, D4, D8

use super::kit::{Ops, open};

/// The seed's statement with a real run's id in the place of its example's.
fn of(run_id: &str, sql: &str) -> String {
    assert!(sql.contains("run-uuid-1234"), "{sql}");
    sql.replace("run-uuid-1234", run_id)
}

/// Queued, so that its claim is the seed's own statement.
fn fresh() -> (Ops, String) {
    let ops = open();
    let run_id = ops.queue();
    (ops, run_id)
}

const QUEUE_RUN: &str = r#"
SELECT * FROM ops.queue_run(
    p_project_id := 'proj-123',
    p_env := 'staging',
    p_git_sha := 'abc123def456',
    p_git_ref := 'main',
    p_metadata := '{"trigger": "webhook", "author": "john@example.com"}'::jsonb
);"#;

#[test]
fn queued() {
    let ops = open();
    assert_eq!(ops.columns(QUEUE_RUN), "run_id|status|queued_at");
    let row = ops.psql(QUEUE_RUN);
    let [run_id, status, queued_at] = row.split('|').collect::<Vec<_>>()[..] else { panic!("{row}") };
    assert!(waypost_kernel::id::IdFormat::parse("run-{uuid7}").unwrap().matches(run_id), "{run_id}");
    assert_eq!(status, "queued");
    assert_eq!(ops.one(run_id, "queued_at"), queued_at);
    let born = ops.one(run_id, "claimed_by IS NULL AND started_at IS NULL AND finished_at IS NULL");
    assert_eq!(born, "t", "the seed's characteristics of queued");
    let given = ops.one(run_id, "project_id, env_id, git_sha, git_ref, metadata->>'author'");
    assert_eq!(given, "proj-123|staging|abc123def456|main|john@example.com");
    assert_eq!(ops.events(run_id), ["info Run queued"]);
    assert_eq!(ops.verify(), 2);
}

#[test]
fn claimed() {
    let ops = open();
    ops.psql("INSERT INTO ops.projects VALUES ('proj-123'); INSERT INTO ops.environments VALUES ('env-stg-1', 'proj-123', 'staging')");
    let run_id = ops.psql(QUEUE_RUN).split('|').next().unwrap().to_owned();
    let sql = "SELECT * FROM ops.claim_next_run(p_worker_id := 'worker-001');";
    let row = ops.psql(sql);
    let metadata = r#"{"author": "john@example.com", "trigger": "webhook"}"#;
    assert_eq!(row, format!("{run_id}|proj-123|env-stg-1|abc123def456|main|{metadata}"));
    assert_eq!(ops.psql(sql), "", "nothing is queued any more");
    assert_eq!(ops.columns(sql), "run_id|project_id|env_id|git_sha|git_ref|metadata");
    let state = ops.psql(&of(
        &run_id,
        "SELECT run_id, status, claimed_by, started_at\nFROM ops.runs\nWHERE run_id = 'run-uuid-1234';",
    ));
    let [_, status, claimed_by, started_at] = state.split('|').collect::<Vec<_>>()[..] else {
        panic!("{state}")
    };
    assert_eq!((status, claimed_by, started_at.is_empty()), ("claimed", "worker-001", false));
    assert_eq!(ops.events(&run_id), ["info Run queued", "info Run claimed by worker"]);
    let payload = format!(
        "SELECT payload FROM ops.run_events WHERE run_id = '{run_id}' AND message = 'Run claimed by worker'"
    );
    assert_eq!(ops.psql(&payload), r#"{"worker_id": "worker-001"}"#);
    assert_eq!(ops.verify(), 1);
}

/// "Simplified version of ops.claim_next_run()", as somebody would type it: it locks, and what it writes is a claim.
#[test]
fn claimed_by_the_simplified_statements() {
    let (ops, run_id) = fresh();
    let v_run_id = ops.psql(
        "SELECT run_id\nFROM ops.runs\nWHERE status = 'queued'\nORDER BY queued_at\nLIMIT 1\nFOR UPDATE SKIP LOCKED;",
    );
    assert_eq!(v_run_id, run_id);
    ops.psql(&format!(
        "UPDATE ops.runs\nSET status = 'claimed',\n    claimed_by = 'worker-001',\n    started_at = NOW()\nWHERE run_id = '{run_id}';"
    ));
    assert_eq!(ops.one(&run_id, "status, claimed_by, started_at IS NOT NULL"), "claimed|worker-001|t");
    assert_eq!(ops.psql("SELECT * FROM ops.claim_next_run('worker-002')"), "", "it is taken");
    ops.psql(&format!("SELECT ops.append_event('{run_id}', 'info', 'Starting build process')"));
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success')"));
    assert_eq!(ops.verify(), 1);
}

#[test]
fn running() {
    let (ops, _) = fresh();
    let run_id = ops.psql("SELECT run_id FROM ops.claim_next_run('worker-001')");
    let sql = of(
        &run_id,
        r#"
SELECT ops.append_event(
    p_run_id := 'run-uuid-1234',
    p_level := 'info',
    p_message := 'Starting build process',
    p_payload := '{"step": "build", "docker_image": "odoo-ce:19.0"}'::jsonb
);"#,
    );
    let event_id = ops.psql(&sql);
    let state = ops.psql(&of(&run_id, "SELECT run_id, status FROM ops.runs WHERE run_id = 'run-uuid-1234';"));
    assert_eq!(state, format!("{run_id}|running"));
    let event = ops.psql(&format!(
        "SELECT run_id, level, message, payload->>'docker_image', created_at IS NOT NULL FROM ops.run_events WHERE event_id = '{event_id}'"
    ));
    assert_eq!(event, format!("{run_id}|info|Starting build process|odoo-ce:19.0|t"));
    assert_eq!(ops.columns(&sql), "append_event");
    assert_eq!(ops.verify(), 1);
}

/// "Automatic Transition Logic", by hand.
#[test]
fn running_by_the_seeds_update() {
    let (ops, _) = fresh();
    let run_id = ops.psql("SELECT run_id FROM ops.claim_next_run('worker-001')");
    let sql = format!(
        "UPDATE ops.runs\nSET status = 'running',\n    updated_at = NOW()\nWHERE run_id = '{run_id}'\n  AND status = 'claimed';"
    );
    ops.psql(&sql);
    assert_eq!(ops.status(&run_id), "running");
    ops.psql(&sql);
    assert_eq!(ops.events(&run_id).len(), 3, "only the first one moved it");
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success')"));
    assert_eq!(ops.verify(), 1);
}

#[test]
fn success() {
    let ops = open();
    let run_id = ops.running();
    ops.psql(&of(
        &run_id,
        r#"
SELECT ops.finish_run(
    p_run_id := 'run-uuid-1234',
    p_status := 'success',
    p_metadata := '{
        "exit_code": 0,
        "artifacts": [
            {"type": "image", "url": "ghcr.io/org/odoo-ce:abc123"},
            {"type": "sbom", "url": "s3://bucket/run-uuid-1234/sbom.json"}
        ],
        "deploy_url": "https://staging.example.com",
        "health_check": "passed"
    }'::jsonb
);"#,
    ));
    let state = ops.psql(&of(
        &run_id,
        "SELECT run_id, status, finished_at, metadata->'exit_code'\nFROM ops.runs\nWHERE run_id = 'run-uuid-1234';",
    ));
    let [_, status, finished_at, exit_code] = state.split('|').collect::<Vec<_>>()[..] else {
        panic!("{state}")
    };
    assert_eq!((status, finished_at.is_empty(), exit_code), ("success", false, "0"));
    assert_eq!(ops.one(&run_id, "jsonb_array_length(metadata->'artifacts')"), "2");
    assert_eq!(ops.events(&run_id).last().unwrap(), "info Run finished: success");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn failed() {
    let ops = open();
    let run_id = ops.running();
    ops.psql(&of(
        &run_id,
        r#"
SELECT ops.finish_run(
    p_run_id := 'run-uuid-1234',
    p_status := 'failed',
    p_metadata := '{
        "exit_code": 1,
        "error": "Docker build failed",
        "step": "build",
        "stderr": "ERROR: Cannot find Dockerfile",
        "retry_count": 0
    }'::jsonb
);"#,
    ));
    let state = ops.psql(&of(
        &run_id,
        "SELECT run_id, status, metadata->>'error' AS error_message\nFROM ops.runs\nWHERE run_id = 'run-uuid-1234';",
    ));
    assert_eq!(state, format!("{run_id}|failed|Docker build failed"));
    assert_eq!(ops.one(&run_id, "finished_at IS NOT NULL"), "t");
    assert_eq!(ops.verify(), 1);
}

const CANCEL: &str = r#"
SELECT ops.finish_run(
    p_run_id := 'run-uuid-1234',
    p_status := 'cancelled',
    p_metadata := '{
        "cancelled_by": "user-456",
        "reason": "Manual stop via console",
        "timestamp": "2026-02-14T10:35:00Z"
    }'::jsonb
);"#;

#[test]
fn cancelled_by_hand_before_anything_was_begun() {
    let ops = open();
    for run_id in [ops.claimed(), ops.queue()] {
        assert_eq!(ops.psql(&of(&run_id, CANCEL)), "cancelled");
        let row = ops.one(&run_id, "status, finished_at IS NOT NULL, metadata->>'cancelled_by', error_msg");
        assert_eq!(row, "cancelled|t|user-456|Manual stop via console");
    }
    assert_eq!(ops.verify(), 2);
}

// proves X8
#[test]
fn cancelled_by_hand_while_a_worker_is_at_it() {
    let ops = open();
    let run_id = ops.running();
    assert_eq!(ops.psql(&of(&run_id, CANCEL)), "running", "it is asked for");
    assert_eq!(ops.one(&run_id, "cancel_requested, metadata->>'cancelled_by'"), "t|user-456");
    assert_eq!(ops.psql(&format!("SELECT cancel_requested FROM ops.heartbeat('{run_id}')")), "t", "and told");
    let done = format!("SELECT ops.finish_run('{run_id}', 'cancelled', p_worker_id := 'worker-001')");
    assert_eq!(ops.psql(&done), "cancelled");
    assert_eq!(ops.one(&run_id, "error_msg"), "Manual stop via console");
    assert_eq!(ops.verify(), 1);
}

/// "Stale run auto-cancellation (via Edge Function cron)", as it stands in the seed.
#[test]
fn cancelled_by_the_seeds_stale_update() {
    let ops = open();
    ops.clock("-6 minutes");
    let stale = ops.claimed();
    ops.clock("0");
    let young = ops.claimed();
    ops.psql(
        r#"
UPDATE ops.runs
SET status = 'cancelled',
    finished_at = NOW(),
    metadata = metadata || '{
        "cancelled_by": "system",
        "reason": "Stale run (claimed for >5 minutes without events)"
    }'::jsonb
WHERE status = 'claimed'
  AND started_at < NOW() - INTERVAL '5 minutes';"#,
    );
    assert_eq!(
        ops.one(&stale, "status, finished_at IS NOT NULL, metadata->>'cancelled_by'"),
        "cancelled|t|system"
    );
    assert_eq!(ops.status(&young), "claimed");
    assert_eq!(ops.events(&stale).last().unwrap(), "error Run finished: cancelled");
    let refused = ops.refused(&format!("SELECT ops.append_event('{stale}', 'info', 'still here')"));
    refused.is("WP410", "LEASE_LOST");
    assert_eq!(ops.verify(), 2);
}

/// "Stale Run Detection": what the edge function asks by way of PostgREST.
#[test]
fn cancelled_by_the_seeds_edge_function() {
    let ops = open();
    ops.clock("-6 minutes");
    let run_id = ops.claimed();
    ops.clock("0");
    let found = ops.psql(
        "SELECT run_id, claimed_by FROM ops.runs WHERE status = 'claimed' AND started_at < now() - interval '5 minutes'",
    );
    assert_eq!(found, format!("{run_id}|worker-001"));
    ops.psql(&format!(
        r#"SELECT ops.finish_run(p_run_id => '{run_id}', p_status => 'cancelled', p_metadata => '{{"cancelled_by": "system",
        "reason": "Stale run (claimed for >5 minutes without events)", "original_worker": "worker-001"}}')"#
    ));
    assert_eq!(
        ops.one(&run_id, "status, metadata->>'original_worker', claimed_by"),
        "cancelled|worker-001|worker-001"
    );
    assert_eq!(ops.verify(), 1);
}

/// "Usage" of the idempotent creation: the CLI's call, by position, sent twice.
// proves D5
#[test]
fn a_script_that_runs_twice_makes_one_run() {
    let ops = open();
    let sql = "
SELECT * FROM ops.queue_run(
    'proj-123',
    'staging',
    '4b825dc642cb6eb9a060e54bf8d69288fbee4904',
    'main',
    '{}'::jsonb,
    'deploy-4b825dc642cb6eb9a060e54bf8d69288fbee4904-1771065000'
);
";
    let first = ops.psql(sql);
    assert_eq!(ops.psql(sql), first);
    assert_eq!(ops.psql("SELECT count(*) FROM ops.runs"), "1");
    assert_eq!(ops.psql("SELECT idempotency_key LIKE 'deploy-4b8%' FROM ops.runs"), "t");
    assert_eq!(ops.verify(), 1);
}
