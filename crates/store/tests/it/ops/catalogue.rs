//! What PostgreSQL itself knows of our functions and tables.
// proves D1, D2

use super::kit::open;

#[test]
fn functions_pin_their_search_path_and_are_nobodys_by_default() {
    let ops = open();
    let unpinned = ops.psql(
        "SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('waypost', 'ops')
           AND p.prosecdef AND NOT coalesce(p.proconfig @> '{\"search_path=pg_catalog, pg_temp\"}', false)",
    );
    assert_eq!(unpinned, "", "SECURITY DEFINER without a fixed search_path");
    let public = ops.psql(
        "SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('waypost', 'ops')
           AND (p.proacl IS NULL OR EXISTS (SELECT 1 FROM aclexplode(p.proacl) a WHERE a.grantee = 0))",
    );
    assert_eq!(public, "", "executable by anybody");
    let unqualified = ops.psql(
        "SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'ops' AND p.proconfig IS NULL",
    );
    assert_eq!(unqualified, "", "of the caller's search_path");
}

#[test]
fn the_names_are_the_seeds() {
    let ops = open();
    let functions = ops.psql(
        "SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ') ' || pg_get_function_result(p.oid)
           FROM pg_proc p WHERE p.pronamespace = 'ops'::regnamespace ORDER BY p.proname",
    );
    assert_eq!(
        functions.lines().collect::<Vec<_>>(),
        [
            "append_event(p_run_id text, p_level text, p_message text, p_payload jsonb, p_worker_id text, p_lease_token text, p_idempotency_key text) text",
            "claim_cron_execution(p_job_name text, p_plan_time timestamp with time zone, p_runner_id text, p_stale interval, p_scope_kind text, p_scope_id text, p_max_attempts integer) TABLE(id uuid, attempt integer, lease_token uuid, stale_after timestamp with time zone)",
            "claim_next_run(p_worker_id text) TABLE(run_id text, project_id text, env_id text, git_sha text, git_ref text, metadata jsonb)",
            "finish_run(p_run_id text, p_status text, p_metadata jsonb, p_worker_id text, p_lease_token text) text",
            "heartbeat(p_run_id text, p_worker_id text, p_lease_token text) TABLE(run_id text, status text, lease_expires_at timestamp with time zone, cancel_requested boolean)",
            "queue_run(p_project_id text, p_env text, p_git_sha text, p_git_ref text, p_metadata jsonb, p_idempotency_key text) TABLE(run_id text, status text, queued_at timestamp with time zone)",
        ]
    );
    let defaults = ops.psql(
        "SELECT p.proname, pg_get_expr(p.proargdefaults, 0) FROM pg_proc p WHERE p.pronamespace = 'ops'::regnamespace AND p.pronargdefaults > 0 ORDER BY 1",
    );
    assert_eq!(
        defaults.lines().collect::<Vec<_>>(),
        [
            "append_event|'{}'::jsonb, NULL::text, NULL::text, NULL::text",
            "claim_cron_execution|'00:30:00'::interval, 'global'::text, 'global'::text, 3",
            "finish_run|'{}'::jsonb, NULL::text, NULL::text",
            "heartbeat|NULL::text, NULL::text",
            "queue_run|'{}'::jsonb, NULL::text",
        ]
    );
    let relations = ops.psql(
        "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = 'ops'::regnamespace AND relkind IN ('r', 'v', 'm', 'S', 'f', 'p')",
    );
    let expected = "environments job_tasks jobs projects rule_runs rule_targets run_events runs sys_cron_executions workflow_executions";
    assert_eq!(relations, expected);
}

#[test]
fn the_seeds_columns_have_the_seeds_types() {
    let ops = open();
    let columns = |table: &str| {
        ops.psql(&format!(
            "SELECT string_agg(column_name || ' ' || udt_name, ', ' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_schema = 'ops' AND table_name = '{table}'"
        ))
    };
    let runs = columns("runs");
    assert!(runs.starts_with(
        "run_id text, project_id text, env_id text, git_sha text, git_ref text, status text, claimed_by text, started_at timestamptz, \
         finished_at timestamptz, queued_at timestamptz, created_at timestamptz, updated_at timestamptz, idempotency_key text, metadata jsonb"
    ), "{runs}");
    let cron = columns("sys_cron_executions");
    assert_eq!(
        cron,
        "id uuid, job_name text, scope_kind text, scope_id text, plan_time timestamptz, status text, attempt int4, max_attempts int4, \
         next_retry_at timestamptz, runner_id text, lease_token uuid, heartbeat_at timestamptz, stale_after timestamptz, started_at timestamptz, \
         finished_at timestamptz, duration_ms int4, rows_affected int8, result jsonb, error_code text, error_msg text, created_at timestamptz, \
         updated_at timestamptz"
    );
    let events = columns("run_events");
    assert!(
        events.starts_with(
            "event_id text, run_id text, level text, message text, payload jsonb, created_at timestamptz"
        ),
        "{events}"
    );
    for (table, seed) in [
        (
            "jobs",
            "id uuid, job_type text, status text, details jsonb, schedule_at timestamptz, started_at timestamptz, completed_at timestamptz, created_at timestamptz, ",
        ),
        (
            "workflow_executions",
            "id uuid, job_id uuid, step_number int4, step_name text, step_status text, step_started_at timestamptz, step_completed_at timestamptz, \
             step_details jsonb, step_error text, server_id uuid, host_id uuid, cluster_id uuid, workflow_type text, created_at timestamptz, ",
        ),
        (
            "job_tasks",
            "id uuid, job_id uuid, server_id uuid, vcenter_host_id uuid, status text, progress int4, log text, started_at timestamptz, \
             completed_at timestamptz, created_at timestamptz, ",
        ),
    ] {
        assert!(columns(table).starts_with(seed), "{table}: {}", columns(table));
    }
}

/// A job by its id, and its parts by the job's, without reading all runs.
#[test]
fn jobs_are_found_by_their_ids() {
    let ops = open();
    ops.job();
    let plan = |sql: &str| ops.psql(&format!("SET enable_seqscan = off; SET jit = off; EXPLAIN {sql}"));
    let id = "'0190c5d2-7b5e-7000-8000-000000000001'";
    for sql in [
        format!("SELECT status FROM ops.jobs WHERE id = {id}"),
        format!("SELECT step_status FROM ops.workflow_executions WHERE job_id = {id}"),
        format!("SELECT status FROM ops.job_tasks WHERE job_id = {id}"),
    ] {
        let shown = plan(&sql);
        assert!(shown.contains("runs_uuid") && !shown.contains("Seq Scan on runs"), "{sql}: {shown}");
    }
}
