
-- Seed 002's table, by its own names: one row per job, scope and plan time, the lease and the audit entry at once.
-- Writes become moves of the lifecycle with their events; a runner that lost its lease matches no row.
CREATE VIEW ops.sys_cron_executions AS
  SELECT r.run_id::uuid AS id, e.schedule::text AS job_name, e.kind::text AS scope_kind, e.id::text AS scope_id, e.plan_time,
    s.state AS status, r.attempt, r.max_attempts, CASE WHEN r.state >= 5000 THEN r.available_at END AS next_retry_at,
    coalesce(r.claimed_by, (SELECT v.who FROM waypost.events v WHERE v.rid = r.rid AND v.actor = 'worker' ORDER BY v.seq DESC LIMIT 1)) AS runner_id,
    coalesce(r.lease_token, r.ended_by) AS lease_token, r.stale_after - r.lease_ms * interval '1 millisecond' AS heartbeat_at, r.stale_after,
    r.started_at, r.finished_at, (r.metadata ->> 'duration_ms')::int AS duration_ms, (r.metadata ->> 'rows_affected')::bigint AS rows_affected,
    coalesce(r.metadata -> 'result', '{}') AS result, r.error_code, r.error_msg, r.queued_at AS created_at,
    (SELECT v.at FROM waypost.events v WHERE v.rid = r.rid AND v.seq = r.seq) AS updated_at
  FROM waypost.executions e JOIN waypost.runs r ON r.run_id = e.run_id
    JOIN waypost.lifecycle_states s ON s.code = r.state AND s.lifecycle = 'cron';

CREATE FUNCTION waypost.cron_state(p_status text) RETURNS smallint LANGUAGE sql STABLE
  RETURN (SELECT s.code FROM waypost.lifecycle_states s WHERE s.lifecycle = 'cron' AND s.state = p_status ORDER BY s.version DESC LIMIT 1);

-- The seed's CHECKs, by the seed's names.
CREATE FUNCTION waypost.cron_checks(p_status text, p_attempt int, p_max_attempts int, p_duration_ms int, p_stale_after timestamptz)
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_broken text := CASE
    WHEN p_status IS NULL OR p_status NOT IN ('RUNNING', 'SUCCESS', 'FAILED') THEN 'chk_sys_cron_status'
    WHEN p_attempt < 1 OR p_max_attempts < p_attempt THEN 'chk_sys_cron_attempt'
    WHEN p_duration_ms < 0 THEN 'chk_sys_cron_duration'
    WHEN p_status = 'RUNNING' AND p_stale_after IS NULL THEN 'chk_sys_cron_stale_after' END;
BEGIN
  IF v_broken IS NOT NULL THEN
    RAISE EXCEPTION 'new row for relation "sys_cron_executions" violates check constraint "%"', v_broken
      USING ERRCODE = 'check_violation', CONSTRAINT = v_broken, TABLE = 'sys_cron_executions', SCHEMA = 'ops',
        HINT = 'status is RUNNING, SUCCESS or FAILED; 1 <= attempt <= max_attempts; duration_ms >= 0; stale_after is set while RUNNING.';
  END IF;
END $$;

-- One event of a row that the caller has locked, and the row after it.
CREATE FUNCTION waypost.cron_moved(was waypost.runs, p_command text, p_to smallint, p_who text, p_effect json) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO waypost.events(rid, seq, at, command, src, dst, actor, who, effect)
    VALUES (was.rid, was.seq + 1, waypost.now(), p_command, was.state, p_to, 'worker', p_who, p_effect)
$$;

CREATE FUNCTION waypost.cron_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_rid bigint := nextval('waypost.rids') << 16;
BEGIN
  NEW.id := coalesce(NEW.id, gen_random_uuid());
  NEW.scope_kind := coalesce(NEW.scope_kind, 'global');
  NEW.scope_id := coalesce(NEW.scope_id, 'global');
  NEW.attempt := coalesce(NEW.attempt, 1);
  NEW.max_attempts := coalesce(NEW.max_attempts, 3);
  NEW.lease_token := coalesce(NEW.lease_token, gen_random_uuid());
  NEW.runner_id := coalesce(NEW.runner_id, session_user::text);
  NEW.stale_after := coalesce(NEW.stale_after, v_now + interval '30 minutes');
  NEW.started_at := v_now;
  NEW.created_at := v_now;
  NEW.updated_at := v_now;
  PERFORM waypost.cron_checks(NEW.status, NEW.attempt, NEW.max_attempts, NEW.duration_ms, NEW.stale_after);
  IF NEW.status <> 'RUNNING' OR NEW.attempt <> 1 THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: an execution begins as RUNNING, with attempt 1' USING ERRCODE = 'WP409', HINT = 'Insert it so, then finish it.';
  END IF;
  IF NEW.job_name IS NULL OR NEW.plan_time IS NULL THEN
    RAISE EXCEPTION 'job_name and plan_time are needed' USING ERRCODE = 'not_null_violation', HINT = 'They are its key, with the scope.';
  END IF;
  BEGIN
    INSERT INTO waypost.executions(schedule, kind, id, plan_time, run_id) VALUES (NEW.job_name, NEW.scope_kind, NEW.scope_id, NEW.plan_time, NEW.id::text);
  EXCEPTION WHEN unique_violation THEN
    RAISE EXCEPTION 'duplicate key value violates unique constraint "uq_sys_cron_execution"'
      USING ERRCODE = 'unique_violation', CONSTRAINT = 'uq_sys_cron_execution', TABLE = 'sys_cron_executions', SCHEMA = 'ops',
        DETAIL = format('Key (job_name, scope_kind, scope_id, plan_time)=(%s, %s, %s, %s) already exists.', NEW.job_name, NEW.scope_kind, NEW.scope_id, NEW.plan_time),
        HINT = 'Somebody else runs this plan: ops.claim_cron_execution says so without an error.';
  END;
  INSERT INTO waypost.runs(rid, state, run_id, tenant, queue, attempt, max_attempts, fence, lease_token, claimed_by, lease_ms, stale_after,
      last_command, reentrant, queued_at, started_at, idempotency_key, input, seq)
    VALUES (v_rid, waypost.cron_state('RUNNING'), NEW.id::text, 'default', 'cron', 1, NEW.max_attempts, 1, NEW.lease_token, NEW.runner_id,
      greatest(1, (extract(epoch FROM NEW.stale_after - v_now) * 1000)::bigint), NEW.stale_after, 'claim', true, v_now, v_now,
      'schedule:sql:' || NEW.id, json_build_object('job_name', NEW.job_name, 'scope_kind', NEW.scope_kind, 'scope_id', NEW.scope_id,
        'plan_time', NEW.plan_time), 1);
  INSERT INTO waypost.events(rid, seq, at, command, dst, actor, who, effect) VALUES (v_rid, 1, v_now, 'claim', waypost.cron_state('RUNNING'),
    'worker', NEW.runner_id, json_build_object('max_attempts', NEW.max_attempts, 'reentrant', true));
  INSERT INTO waypost.watch(due_at, rids) VALUES (NEW.stale_after, ARRAY[v_rid]);
  RETURN NEW;
END $$;

-- Another lease of a row that is locked: a steal, or a retry.
CREATE FUNCTION waypost.cron_taken(was waypost.runs, p_command text, p_runner text, p_token uuid, p_stale_after timestamptz) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_running smallint := waypost.cron_state('RUNNING');
BEGIN
  PERFORM waypost.cron_moved(was, p_command, v_running, p_runner, NULL);
  UPDATE waypost.runs r SET state = v_running, seq = was.seq + 1, last_command = p_command, attempt = was.attempt + 1, fence = was.fence + 1,
      take_overs = 0, lease_token = p_token, claimed_by = p_runner, stale_after = p_stale_after,
      lease_ms = greatest(1, (extract(epoch FROM p_stale_after - waypost.now()) * 1000)::bigint), started_at = waypost.now(), finished_at = NULL,
      available_at = NULL, ended_by = NULL, error_code = NULL, error_msg = NULL
    WHERE r.rid = was.rid;
  INSERT INTO waypost.watch(due_at, rids) VALUES (p_stale_after, ARRAY[was.rid]);
END $$;

CREATE FUNCTION waypost.cron_finished(was waypost.runs, p_to text, p_code text, p_message text, p_retry_at timestamptz, p_metadata jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_failed boolean := p_to = 'FAILED';
  v_code text := CASE WHEN v_failed THEN coalesce(p_code, 'handler_error') END;
  v_message text := CASE WHEN v_failed THEN left(coalesce(p_message, ''), 4000) END;
  v_retry timestamptz := CASE WHEN v_failed AND was.attempt < was.max_attempts THEN p_retry_at END;
  v_effect jsonb := '{}';
BEGIN
  IF v_failed THEN
    v_effect := v_effect || jsonb_build_object('failure', jsonb_build_object('code', v_code, 'message', v_message));
  END IF;
  IF v_retry IS NOT NULL THEN
    v_effect := v_effect || jsonb_build_object('available_at', (extract(epoch FROM v_retry) * 1000000)::bigint);
  END IF;
  IF p_metadata <> '{}' THEN
    v_effect := v_effect || jsonb_build_object('metadata', p_metadata);
  END IF;
  PERFORM waypost.cron_moved(was, CASE WHEN v_failed THEN 'fail' ELSE 'succeed' END, waypost.cron_state(p_to), was.claimed_by, nullif(v_effect, '{}')::json);
  UPDATE waypost.runs r SET state = waypost.cron_state(p_to), seq = was.seq + 1, last_command = CASE WHEN v_failed THEN 'fail' ELSE 'succeed' END,
      ended_by = was.lease_token, lease_token = NULL, claimed_by = NULL, stale_after = NULL, lease_ms = NULL, finished_at = waypost.now(),
      available_at = v_retry, error_code = v_code, error_msg = v_message, metadata = was.metadata || p_metadata
    WHERE r.rid = was.rid;
  UPDATE waypost.executions e SET wake_at = waypost.now() WHERE e.run_id = was.run_id AND e.wake_at IS NOT NULL;
END $$;

CREATE FUNCTION waypost.cron_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_kept CONSTANT text[] := '{id,job_name,scope_kind,scope_id,plan_time,created_at}';
  v_now timestamptz := waypost.now();
  v_metadata jsonb := '{}';
  was waypost.runs;
BEGIN
  IF EXISTS (SELECT 1 FROM unnest(v_kept) k WHERE to_jsonb(NEW) -> k IS DISTINCT FROM to_jsonb(OLD) -> k) THEN
    RAISE EXCEPTION 'IMMUTABLE: % stay', array_to_string(v_kept, ', ') USING ERRCODE = 'WP409', HINT = 'Another plan is another row.';
  END IF;
  PERFORM waypost.cron_checks(NEW.status, NEW.attempt, NEW.max_attempts, NEW.duration_ms, NEW.stale_after);
  SELECT * INTO was FROM waypost.runs r WHERE r.run_id = OLD.id::text FOR UPDATE;
  -- What it was when the statement looked at it is gone: no row is matched.
  IF was.state <> waypost.cron_state(OLD.status) OR coalesce(was.lease_token, was.ended_by) IS DISTINCT FROM OLD.lease_token THEN
    RETURN NULL;
  END IF;
  IF OLD.status = 'RUNNING' AND NEW.status = 'RUNNING' AND NEW.lease_token = OLD.lease_token THEN
    UPDATE waypost.runs r SET stale_after = NEW.stale_after, lease_ms = greatest(1, (extract(epoch FROM NEW.stale_after - v_now) * 1000)::bigint)
      WHERE r.rid = was.rid;
    RETURN NEW;
  END IF;
  IF OLD.status = 'RUNNING' AND NEW.status IN ('SUCCESS', 'FAILED') THEN
    v_metadata := jsonb_strip_nulls(jsonb_build_object('duration_ms', coalesce(NEW.duration_ms, extract(epoch FROM v_now - was.started_at)::int * 1000),
      'rows_affected', NEW.rows_affected, 'result', CASE WHEN length(NEW.result::text) > 16384 THEN '{"cut": true}' ELSE nullif(NEW.result, '{}') END));
    PERFORM waypost.cron_finished(was, NEW.status, NEW.error_code, NEW.error_msg, NEW.next_retry_at, v_metadata);
    RETURN NEW;
  END IF;
  IF NEW.status = 'RUNNING' AND NEW.attempt = OLD.attempt + 1 AND NEW.lease_token <> OLD.lease_token AND (OLD.status = 'FAILED' AND OLD.next_retry_at <= v_now
      OR OLD.status = 'RUNNING' AND OLD.stale_after < v_now AND was.reentrant) THEN
    PERFORM waypost.cron_taken(was, CASE OLD.status WHEN 'FAILED' THEN 'retry' ELSE 'steal' END, coalesce(NEW.runner_id, session_user::text),
      NEW.lease_token, NEW.stale_after);
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'INVALID_TRANSITION: % of attempt % does not become % of attempt %', OLD.status, OLD.attempt, NEW.status, NEW.attempt
    USING ERRCODE = 'WP409', HINT = 'A retry is due, a stolen lease has run out and both take a new lease_token and attempt + 1; SUCCESS stays.';
END $$;
CREATE TRIGGER sys_cron_insert INSTEAD OF INSERT ON ops.sys_cron_executions FOR EACH ROW EXECUTE FUNCTION waypost.cron_insert();
CREATE TRIGGER sys_cron_update INSTEAD OF UPDATE ON ops.sys_cron_executions FOR EACH ROW EXECUTE FUNCTION waypost.cron_update();
CREATE TRIGGER sys_cron_delete INSTEAD OF DELETE ON ops.sys_cron_executions FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Settled executions leave by pruning, with their events.');

-- The claim of seed 002 for any language: the insert wins; else a retry that is due, or a lease that ran out; else no row.
CREATE FUNCTION ops.claim_cron_execution(p_job_name text, p_plan_time timestamptz, p_runner_id text, p_stale interval DEFAULT '30 minutes',
    p_scope_kind text DEFAULT 'global', p_scope_id text DEFAULT 'global', p_max_attempts int DEFAULT 3)
  RETURNS TABLE(id uuid, attempt int, lease_token uuid, stale_after timestamptz) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_stale timestamptz := v_now + greatest(p_stale, interval '1 second');
  v_token uuid := gen_random_uuid();
BEGIN
  BEGIN
    RETURN QUERY INSERT INTO ops.sys_cron_executions AS x(job_name, scope_kind, scope_id, plan_time, status, runner_id, lease_token, stale_after, max_attempts)
      VALUES (p_job_name, p_scope_kind, p_scope_id, p_plan_time, 'RUNNING', p_runner_id, v_token, v_stale, p_max_attempts)
      RETURNING x.id, x.attempt, x.lease_token, x.stale_after;
    RETURN;
  EXCEPTION WHEN unique_violation THEN
    NULL;
  END;
  RETURN QUERY UPDATE ops.sys_cron_executions AS x SET status = 'RUNNING', attempt = x.attempt + 1, runner_id = p_runner_id, lease_token = v_token,
      stale_after = v_stale
    WHERE x.job_name = p_job_name AND x.scope_kind = p_scope_kind AND x.scope_id = p_scope_id AND x.plan_time = p_plan_time
      AND x.attempt < x.max_attempts AND (x.status = 'FAILED' AND x.next_retry_at <= v_now OR x.status = 'RUNNING' AND x.stale_after < v_now
        AND (SELECT r.reentrant FROM waypost.runs r WHERE r.run_id = x.id::text))
    RETURNING x.id, x.attempt, x.lease_token, x.stale_after;
END $$;
