-- Seed 003's tables: jobs, their steps and their tasks, by the seed's own names. They are views; what a write to one
-- means is in job_moves.sql and job_parts.sql.

-- Ids are UUIDs here. A job's is its run's; those of its parts follow from the run, the kind and the key.
CREATE FUNCTION waypost.as_uuid(p_text text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN p_text ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN p_text::uuid END;
CREATE FUNCTION waypost.part_id(p_run_id text, p_kind text, p_key text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN md5(p_run_id || chr(10) || p_kind || chr(10) || p_key)::uuid;
-- Runs of other forms of id are not in it, and pay a look at the length.
--
-- Conditions that hold for most rows are written with coalesce, here and in the views: the planner takes them for true in half of all rows. Of an
-- equation it expects one row in two hundred, or in as many as there are states, and joins views of that few rows by looking through one for
-- each row of the other.
CREATE INDEX runs_uuid ON waypost.runs(waypost.as_uuid(run_id)) WHERE coalesce(length(run_id) = 36, false);

-- While a job is paused, its reason is the run's: details keep what earlier pauses said.
CREATE VIEW ops.jobs WITH (security_barrier) AS
  WITH states AS (SELECT s.code, s.state, s.phase FROM waypost.lifecycle_states s WHERE s.lifecycle = 'job')
  SELECT waypost.as_uuid(r.run_id) AS id, regexp_replace(r.playbook, '@[^@]*$', '') AS job_type, s.state AS status,
    CASE WHEN s.phase = 'parked' THEN r.details || jsonb_build_object('pause_reason', r.reason) ELSE r.details END AS details,
    r.schedule_at, r.started_at, r.finished_at AS completed_at, r.queued_at AS created_at,
    (SELECT e.at FROM waypost.events e WHERE e.rid = r.rid AND e.seq = r.seq) AS updated_at,
    CASE WHEN r.state >= 5000 THEN (SELECT e.who FROM waypost.events e WHERE e.rid = r.rid AND e.actor = 'worker' ORDER BY e.seq DESC LIMIT 1)
      ELSE r.claimed_by END AS claimed_by,
    r.stale_after AS lease_expires_at, coalesce(r.intent ->> 'want' = 'cancel', false) AS cancel_requested,
    coalesce(r.intent ->> 'want' = 'pause', false) AS pause_requested, r.error_code, r.error_msg,
    (SELECT i.name FROM waypost.items i WHERE i.rid = r.rid AND i.kind = 'step' ORDER BY i.key = '(run)', i.place LIMIT 1) AS first_step,
    r.input::jsonb AS input, r.metadata, waypost.as_uuid(r.parent_run_id) AS parent_job_id, r.tenant, r.queue, r.priority, r.attempt,
    r.concurrency_key, r.correlation_id, r.playbook, r.run_id
  FROM waypost.runs r JOIN states s ON coalesce(s.code = r.state, false) WHERE coalesce(length(r.run_id) = 36, false) AND coalesce(r.tenant = (SELECT waypost.seen_tenant()), true);

CREATE FUNCTION waypost.as_int(p_value jsonb) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN jsonb_typeof(p_value) = 'number' AND p_value BETWEEN '-2147483648' AND '2147483647' THEN trunc(p_value::numeric)::int END;

-- The steps in the playbook's order; cleanups come last. Steps that were added by hand have the number that they were given; without
-- one they stand before, as they came; numbered by both columns that name a job, so that one job's are looked up alone. The one that a job without steps is made with is not shown once it has others.
CREATE VIEW ops.workflow_executions WITH (security_barrier) AS
  WITH states AS (SELECT s.code FROM waypost.lifecycle_states s WHERE s.lifecycle = 'job')
  SELECT waypost.part_id(r.run_id, i.kind, i.key) AS id, waypost.as_uuid(r.run_id) AS job_id,
    coalesce(waypost.as_int(i.details -> 'step_number'), (row_number() OVER (PARTITION BY waypost.as_uuid(r.run_id), r.run_id ORDER BY (i.details ->> 'order')::numeric NULLS FIRST,
      (i.details ->> 'number')::numeric NULLS FIRST, i.place))::int) AS step_number,
    i.name AS step_name, i.status AS step_status, i.started_at AS step_started_at, i.finished_at AS step_completed_at,
    i.details - '{item,pause,step_number}'::text[] || jsonb_strip_nulls(jsonb_build_object('current_step', i.details ->> 'does', 'progress_pct', i.progress,
      'host_name', coalesce(i.details -> 'item' ->> 'host_name', i.details -> 'item' ->> 'name', i.details -> 'item' ->> 'hostname', i.details ->> 'host_name',
        CASE jsonb_typeof(i.details -> 'item') WHEN 'string' THEN i.details ->> 'item' END),
      'management_ip', coalesce(i.details -> 'item' ->> 'management_ip', i.details -> 'item' ->> 'ip', i.details ->> 'management_ip'),
      'current_blockers', i.details -> 'pause' -> 'current_blockers', 'awaiting_resolution', i.details -> 'pause' -> 'awaiting_blocker_resolution',
      -- A step that ran again after a pause knows how long it ran.
      'duration_ms', coalesce(i.details -> 'duration_ms', to_jsonb(floor(extract(epoch FROM i.finished_at - i.started_at) * 1000))),
      'error_details', i.error_msg)) AS step_details,
    i.error_code || coalesce(': ' || nullif(i.error_msg, ''), '') AS step_error,
    waypost.as_uuid(coalesce(i.details -> 'item' ->> 'server_id', i.details ->> 'server_id', r.input ->> 'server_id')) AS server_id,
    waypost.as_uuid(coalesce(i.details -> 'item' ->> 'host_id', i.details -> 'item' ->> 'id', i.details ->> 'host_id', r.input ->> 'host_id')) AS host_id,
    waypost.as_uuid(coalesce(i.details -> 'item' ->> 'cluster_id', i.details ->> 'cluster_id', r.input ->> 'cluster_id', r.details ->> 'cluster_id')) AS cluster_id,
    regexp_replace(r.playbook, '@[^@]*$', '') AS workflow_type,
    -- The event that brought it: those that a job is born with are in its first.
    (SELECT e.at FROM waypost.events e WHERE e.rid = r.rid AND e.command IN ('create', 'items')
        AND e.effect::jsonb @> jsonb_build_object('moved', jsonb_build_array(jsonb_build_object('kind', i.kind, 'key', i.key)))
      ORDER BY e.seq LIMIT 1) AS created_at,
    i.key AS step_key, i.attempts, i.output, r.run_id, i.role AS step_role
  FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid JOIN states s ON coalesce(s.code = r.state, false) WHERE coalesce(length(r.run_id) = 36, false) AND i.kind = 'step'
    AND coalesce(r.tenant = (SELECT waypost.seen_tenant()), true)
    AND (i.key <> '(run)' OR NOT EXISTS (SELECT 1 FROM waypost.items o WHERE o.rid = i.rid AND o.kind = i.kind AND o.key <> i.key));

CREATE VIEW ops.job_tasks WITH (security_barrier) AS
  WITH states AS (SELECT s.code FROM waypost.lifecycle_states s WHERE s.lifecycle = 'job')
  SELECT waypost.part_id(r.run_id, i.kind, i.key) AS id, waypost.as_uuid(r.run_id) AS job_id,
    waypost.as_uuid(coalesce(i.details -> 'item' ->> 'server_id', i.details ->> 'server_id', r.input ->> 'server_id')) AS server_id,
    waypost.as_uuid(coalesce(i.details -> 'item' ->> 'vcenter_host_id', i.details -> 'item' ->> 'host_id', i.details -> 'item' ->> 'id',
      i.details ->> 'vcenter_host_id', r.input ->> 'host_id')) AS vcenter_host_id,
    i.status, i.progress::int AS progress, coalesce(i.details ->> 'log', i.error_msg) AS log, i.started_at, i.finished_at AS completed_at,
    (SELECT e.at FROM waypost.events e WHERE e.rid = r.rid AND e.command IN ('create', 'items')
        AND e.effect::jsonb @> jsonb_build_object('moved', jsonb_build_array(jsonb_build_object('kind', i.kind, 'key', i.key)))
      ORDER BY e.seq LIMIT 1) AS created_at,
    i.name AS task_name, i.key AS task_key, i.details ->> 'step' AS step_key, i.error_code, r.run_id
  FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid JOIN states s ON coalesce(s.code = r.state, false) WHERE coalesce(length(r.run_id) = 36, false) AND i.kind = 'task'
    AND coalesce(r.tenant = (SELECT waypost.seen_tenant()), true);
