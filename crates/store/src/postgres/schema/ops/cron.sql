
-- Seed 002's table, by its own names: one row per job, scope and plan time, the lease and the audit entry at once.
-- Writes become moves of the lifecycle with their events; a runner that lost its lease matches no row. It is a view of one
-- table without expressions, so that INSERT … ON CONFLICT meets the table's own unique key: hence tenants' names are shown as they are
-- stored, and what is inserted is what is found.
CREATE VIEW ops.sys_cron_executions WITH (security_barrier) AS
  SELECT e.execution_id AS id, e.schedule AS job_name, e.kind AS scope_kind, e.id AS scope_id, e.plan_time, e.status, e.attempt, e.max_attempts,
    e.next_retry_at, e.runner_id, e.lease_token, e.heartbeat_at, e.stale_after, e.started_at, e.finished_at, e.duration_ms, e.rows_affected,
    e.result, e.error_code, e.error_msg, e.created_at, e.updated_at
  FROM waypost.executions e WHERE e.status IS NOT NULL AND coalesce(waypost.tenant_of(e.schedule) = (SELECT waypost.seen_tenant()), true);

-- The seed's CHECKs by its names, and two more: a time that every reader has, and a lease that ends.
ALTER TABLE waypost.executions ADD CONSTRAINT chk_sys_cron_status CHECK (status IN ('RUNNING', 'SUCCESS', 'FAILED')),
  ADD CONSTRAINT chk_sys_cron_attempt CHECK (attempt >= 1 AND max_attempts >= attempt),
  ADD CONSTRAINT chk_sys_cron_duration CHECK (duration_ms IS NULL OR duration_ms >= 0),
  ADD CONSTRAINT chk_sys_cron_plan_time CHECK (plan_time >= '0001-01-01 00:00:00+00' AND plan_time < '10000-01-01 00:00:00+00'),
  ADD CONSTRAINT chk_sys_cron_stale_after CHECK (status <> 'RUNNING' OR stale_after IS NOT NULL);
-- Of columns that a heartbeat leaves alone: it would have to be written into each index else.
CREATE INDEX executions_running ON waypost.executions(schedule, kind, id, plan_time DESC) WHERE status = 'RUNNING';
CREATE INDEX executions_failed ON waypost.executions(schedule, plan_time DESC) WHERE status = 'FAILED';

-- A number of the metadata, whatever somebody wrote there: an end is never lost because of what it carries.
CREATE FUNCTION waypost.cron_number(p_metadata jsonb, p_name text, p_least numeric, p_most numeric) RETURNS numeric LANGUAGE sql IMMUTABLE
  RETURN CASE WHEN jsonb_typeof(p_metadata -> p_name) = 'number' THEN least(greatest(trunc((p_metadata ->> p_name)::numeric), p_least), p_most) END;

-- The row follows its run.
CREATE FUNCTION waypost.cron_follows(was waypost.executions, run waypost.runs, p_status text) RETURNS waypost.executions LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- Executed again, it is another run and the same row.
  was.execution_id := coalesce(was.execution_id, run.run_id::uuid);
  was.status := p_status;
  was.attempt := was.tried + run.attempt;
  was.max_attempts := was.allowed + run.max_attempts;
  was.next_retry_at := CASE WHEN run.state >= 5000 THEN run.available_at END;
  was.runner_id := coalesce(run.claimed_by, was.runner_id);
  was.lease_token := coalesce(run.lease_token, run.ended_by, was.lease_token);
  was.heartbeat_at := coalesce(run.stale_after - run.lease_ms * interval '1 millisecond', was.heartbeat_at);
  was.stale_after := run.stale_after;
  was.started_at := run.started_at;
  was.finished_at := run.finished_at;
  was.duration_ms := waypost.cron_number(run.metadata, 'duration_ms', 0, 2147483647);
  was.rows_affected := waypost.cron_number(run.metadata, 'rows_affected', -9223372036854775808, 9223372036854775807);
  was.result := coalesce(run.metadata -> 'result', '{}');
  was.error_code := run.error_code;
  was.error_msg := run.error_msg;
  was.created_at := coalesce(was.created_at, run.queued_at);
  was.updated_at := waypost.now();
  RETURN was;
END $$;

CREATE FUNCTION waypost.cron_moved_on() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_status text := (SELECT s.state FROM waypost.lifecycle_states s WHERE s.code = NEW.state AND s.lifecycle = 'cron');
  e waypost.executions;
BEGIN
  IF v_status IS NULL THEN
    RETURN NULL;
  END IF;
  FOR e IN SELECT x.* FROM waypost.executions x WHERE x.run_id = NEW.run_id LOOP
    e := waypost.cron_follows(e, NEW, v_status);
    -- own write
    UPDATE waypost.executions x SET status = e.status, attempt = e.attempt, max_attempts = e.max_attempts, next_retry_at = e.next_retry_at,
        runner_id = e.runner_id, lease_token = e.lease_token, heartbeat_at = e.heartbeat_at, stale_after = e.stale_after,
        started_at = e.started_at, finished_at = e.finished_at, duration_ms = e.duration_ms, rows_affected = e.rows_affected, result = e.result,
        error_code = e.error_code, error_msg = e.error_msg, updated_at = e.updated_at
      WHERE x.schedule = e.schedule AND x.kind = e.kind AND x.id = e.id AND x.plan_time = e.plan_time;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER runs_execution_follows AFTER UPDATE ON waypost.runs FOR EACH ROW WHEN (NEW.idempotency_key LIKE 'waypost:schedule:%')
  EXECUTE FUNCTION waypost.cron_moved_on();

-- The run of another lifecycle that a schedule queued: with that the execution has done what it was for.
CREATE FUNCTION waypost.cron_queued(was waypost.executions, run waypost.runs) RETURNS waypost.executions LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
BEGIN
  was.execution_id := coalesce(was.execution_id, gen_random_uuid());
  was.status := 'SUCCESS';
  was.attempt := was.tried + 1;
  was.max_attempts := was.allowed + 1;
  was.runner_id := (SELECT e.who FROM waypost.events e WHERE e.rid = run.rid AND e.seq = 1);
  was.lease_token := gen_random_uuid();
  was.started_at := v_now;
  was.finished_at := v_now;
  was.duration_ms := 0;
  was.result := jsonb_build_object('run_id', run.run_id);
  was.created_at := coalesce(was.created_at, v_now);
  was.updated_at := v_now;
  RETURN was;
END $$;

-- A scheduler has begun it: from now on the row is its run's. One that is to be executed again stays what it was until then.
CREATE FUNCTION waypost.cron_begun() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  run waypost.runs;
  v_status text;
BEGIN
  SELECT r.* INTO run FROM waypost.runs r WHERE r.run_id = NEW.run_id;
  IF NOT FOUND THEN
    RETURN NEW;
  END IF;
  SELECT s.state INTO v_status FROM waypost.lifecycle_states s WHERE s.code = run.state AND s.lifecycle = 'cron';
  RETURN CASE WHEN v_status IS NULL THEN waypost.cron_queued(NEW, run) ELSE waypost.cron_follows(NEW, run, v_status) END;
END $$;
CREATE TRIGGER executions_begun BEFORE UPDATE OF run_id ON waypost.executions FOR EACH ROW WHEN (NEW.run_id IS DISTINCT FROM OLD.run_id)
  EXECUTE FUNCTION waypost.cron_begun();

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

-- What a scheduler inserts has a time to be looked at; what comes through the view has none, and begins here and now.
CREATE FUNCTION waypost.cron_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
BEGIN
  IF NEW.schedule IS NULL OR NEW.plan_time IS NULL THEN
    RAISE EXCEPTION 'job_name and plan_time are needed' USING ERRCODE = 'not_null_violation', HINT = 'They are its key, with the scope.';
  ELSIF waypost.own_name(NEW.schedule) <> NEW.schedule THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: job_name: names of tenant %s begin with it here', quote_literal(waypost.tenant())),
      format('Give %s, or call ops.claim_cron_execution.', quote_literal(waypost.own_name(NEW.schedule))), 'job_name');
  END IF;
  NEW.execution_id := coalesce(NEW.execution_id, gen_random_uuid());
  NEW.run_id := NEW.execution_id::text;
  NEW.kind := coalesce(NEW.kind, 'global');
  NEW.id := coalesce(NEW.id, 'global');
  NEW.attempt := coalesce(NEW.attempt, 1);
  NEW.max_attempts := coalesce(NEW.max_attempts, 3);
  NEW.lease_token := coalesce(NEW.lease_token, gen_random_uuid());
  NEW.runner_id := coalesce(NEW.runner_id, session_user::text);
  NEW.stale_after := coalesce(NEW.stale_after, v_now + interval '30 minutes');
  NEW.heartbeat_at := v_now;
  NEW.started_at := v_now;
  NEW.created_at := v_now;
  NEW.updated_at := v_now;
  PERFORM waypost.check_time('plan_time', NEW.plan_time);
  PERFORM waypost.check_time('stale_after', NEW.stale_after);
  PERFORM waypost.cron_checks(NEW.status, NEW.attempt, NEW.max_attempts, NEW.duration_ms, NEW.stale_after);
  IF NEW.status <> 'RUNNING' OR NEW.attempt <> 1 THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: an execution begins as RUNNING, with attempt 1' USING ERRCODE = 'WP409',
        HINT = 'Insert it so, then finish it.';
  END IF;
  NEW.next_retry_at := NULL;
  NEW.finished_at := NULL;
  NEW.duration_ms := NULL;
  NEW.rows_affected := NULL;
  NEW.result := '{}';
  NEW.error_code := NULL;
  NEW.error_msg := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER executions_by_sql BEFORE INSERT ON waypost.executions FOR EACH ROW WHEN (NEW.wake_at IS NULL)
  EXECUTE FUNCTION waypost.cron_insert();

-- After it, so that who loses the key has made no run.
CREATE FUNCTION waypost.cron_born() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_effect jsonb := jsonb_build_object('max_attempts', NEW.max_attempts, 'reentrant', true);
  v_run waypost.runs := waypost.unborn(NEW.run_id, waypost.tenant_of(NEW.schedule), 'cron', NEW.created_at);
BEGIN
  v_run := waypost.enter(v_run, waypost.cron_state('RUNNING'), 'claim', 'worker', NEW.runner_id, NEW.created_at, v_effect);
  v_run := waypost.cron_lease(v_run, NEW.lease_token, NEW.stale_after);
  v_run.max_attempts := NEW.max_attempts;
  v_run.reentrant := true;
  v_run.idempotency_key := 'waypost:schedule:sql:' || NEW.run_id;
  v_run.input := json_build_object('job_name', NEW.schedule, 'scope_kind', NEW.kind, 'scope_id', NEW.id, 'plan_time', NEW.plan_time);
  PERFORM waypost.insert_one(v_run, 'worker', NEW.runner_id, v_effect);
  RETURN NULL;
END $$;
CREATE TRIGGER executions_born AFTER INSERT ON waypost.executions FOR EACH ROW WHEN (NEW.wake_at IS NULL) EXECUTE FUNCTION waypost.cron_born();

CREATE FUNCTION waypost.cron_lease(p_run waypost.runs, p_token uuid, p_stale_after timestamptz) RETURNS waypost.runs LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  p_run.lease_token := p_token;
  p_run.stale_after := p_stale_after;
  p_run.lease_ms := greatest(1, (extract(epoch FROM p_stale_after - waypost.now()) * 1000)::bigint);
  RETURN p_run;
END $$;

-- Another lease of a row that is locked: a steal, or a retry.
CREATE FUNCTION waypost.cron_taken(was waypost.runs, p_command text, p_runner text, p_token uuid, p_stale_after timestamptz) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs := waypost.enter(was, waypost.cron_state('RUNNING'), p_command, 'worker', p_runner, waypost.now());
BEGIN
  PERFORM waypost.save_one(was, waypost.cron_lease(v_run, p_token, p_stale_after), p_command, 'worker', p_runner);
END $$;

CREATE FUNCTION waypost.cron_finished(was waypost.runs, p_to text, p_code text, p_message text, p_retry_at timestamptz, p_metadata jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_failed boolean := p_to = 'FAILED';
  v_code text := CASE WHEN v_failed THEN coalesce(nullif(left(p_code, 255), ''), 'handler_error') END;
  v_message text := CASE WHEN v_failed THEN left(coalesce(p_message, ''), 4000) END;
  v_retry timestamptz := CASE WHEN v_failed AND was.attempt < was.max_attempts THEN p_retry_at END;
  v_command text := CASE WHEN v_failed THEN 'fail' ELSE 'succeed' END;
  v_effect jsonb := '{}';
  v_run waypost.runs;
BEGIN
  IF v_failed THEN
    v_effect := v_effect || jsonb_build_object('failure', jsonb_build_object('code', v_code, 'message', v_message));
  END IF;
  IF v_retry IS NOT NULL THEN
    v_effect := v_effect || jsonb_build_object('available_at', waypost.micros(v_retry));
  END IF;
  v_run := waypost.enter(was, waypost.cron_state(p_to), v_command, 'worker', was.claimed_by, waypost.now(), v_effect);
  v_run.ended_by := was.lease_token;
  PERFORM waypost.save_one(was, v_run, v_command, 'worker', was.claimed_by, v_effect, p_metadata);
  UPDATE waypost.executions e SET wake_at = waypost.now() WHERE e.run_id = was.run_id AND e.wake_at IS NOT NULL;
END $$;

-- What RETURNING tells is what became of the row, not what the statement said.
CREATE FUNCTION waypost.cron_stored(p_was ops.sys_cron_executions) RETURNS ops.sys_cron_executions LANGUAGE sql
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT x.* FROM ops.sys_cron_executions x WHERE x.job_name = p_was.job_name AND x.scope_kind = p_was.scope_kind
    AND x.scope_id = p_was.scope_id AND x.plan_time = p_was.plan_time;
$$;

-- The run of a row.
CREATE FUNCTION waypost.cron_run(p_id uuid, p_job_name text, p_kind text, p_scope text, p_plan_time timestamptz) RETURNS text LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp
  RETURN (SELECT e.run_id FROM waypost.executions e WHERE e.schedule = p_job_name AND e.kind = p_kind AND e.id = p_scope
    AND e.plan_time = p_plan_time AND e.execution_id = p_id);

CREATE FUNCTION waypost.cron_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run_id text := waypost.cron_run(OLD.id, OLD.job_name, OLD.scope_kind, OLD.scope_id, OLD.plan_time);
  v_kept CONSTANT text[] := '{id,job_name,scope_kind,scope_id,plan_time,created_at}';
  v_now timestamptz := waypost.now();
  v_metadata jsonb := '{}';
  v_result jsonb;
  was waypost.runs;
BEGIN
  IF EXISTS (SELECT 1 FROM unnest(v_kept) k WHERE to_jsonb(NEW) -> k IS DISTINCT FROM to_jsonb(OLD) -> k) THEN
    RAISE EXCEPTION 'IMMUTABLE: % stay', array_to_string(v_kept, ', ') USING ERRCODE = 'WP409', HINT = 'Another plan is another row.';
  END IF;
  PERFORM waypost.check_time('stale_after', NEW.stale_after);
  PERFORM waypost.check_time('next_retry_at', NEW.next_retry_at);
  PERFORM waypost.cron_checks(NEW.status, NEW.attempt, NEW.max_attempts, NEW.duration_ms, NEW.stale_after);
  PERFORM waypost.lock_slots(r, NEW.status = 'RUNNING' AND r.state / 1000 <> 3) FROM waypost.runs r WHERE r.run_id = v_run_id;
  SELECT * INTO was FROM waypost.runs r WHERE r.run_id = v_run_id FOR UPDATE;
  -- What it was when the statement looked at it is gone: no row is matched.
  IF was.state <> waypost.cron_state(OLD.status) OR coalesce(was.lease_token, was.ended_by) IS DISTINCT FROM OLD.lease_token THEN
    RETURN NULL;
  END IF;
  IF OLD.status = 'RUNNING' AND NEW.status = 'RUNNING' AND NEW.lease_token = OLD.lease_token THEN
    PERFORM waypost.save_one(was, waypost.cron_lease(was, was.lease_token, NEW.stale_after), NULL);
    RETURN waypost.cron_stored(OLD);
  END IF;
  IF OLD.status = 'RUNNING' AND NEW.status IN ('SUCCESS', 'FAILED') THEN
    v_result := CASE WHEN length(NEW.result::text) > 16384 THEN '{"cut": true}' ELSE nullif(NEW.result, '{}') END;
    PERFORM waypost.check_json('result', v_result, 65536, false);
    v_metadata := jsonb_strip_nulls(jsonb_build_object('duration_ms', coalesce(NEW.duration_ms,
        least(greatest(round(extract(epoch FROM v_now - was.started_at) * 1000), 0), 2147483647)::int),
      'rows_affected', NEW.rows_affected, 'result', v_result));
    PERFORM waypost.cron_finished(was, NEW.status, NEW.error_code, NEW.error_msg, NEW.next_retry_at, v_metadata);
    RETURN waypost.cron_stored(OLD);
  END IF;
  IF NEW.status = 'RUNNING' AND NEW.attempt = OLD.attempt + 1 AND NEW.lease_token <> OLD.lease_token AND (OLD.status = 'FAILED'
      AND OLD.next_retry_at <= v_now
      OR OLD.status = 'RUNNING' AND OLD.stale_after < v_now AND was.reentrant) THEN
    PERFORM waypost.cron_taken(was, CASE OLD.status WHEN 'FAILED' THEN 'retry' ELSE 'steal' END, coalesce(NEW.runner_id, session_user::text),
      NEW.lease_token, NEW.stale_after);
    RETURN waypost.cron_stored(OLD);
  END IF;
  RAISE EXCEPTION 'INVALID_TRANSITION: % of attempt % does not become % of attempt %', OLD.status, OLD.attempt, NEW.status, NEW.attempt
    USING ERRCODE = 'WP409', HINT = 'A retry is due, a stolen lease has run out and both take a new lease_token and attempt + 1; SUCCESS stays.';
END $$;
CREATE TRIGGER sys_cron_update INSTEAD OF UPDATE ON ops.sys_cron_executions FOR EACH ROW EXECUTE FUNCTION waypost.cron_update();
CREATE TRIGGER sys_cron_delete INSTEAD OF DELETE ON ops.sys_cron_executions FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Settled executions leave by pruning, with their events.');

-- The claim of seed 002 for any language: the insert wins; else a retry that is due, or a lease that ran out; else no row.
CREATE FUNCTION ops.claim_cron_execution(p_job_name text, p_plan_time timestamptz, p_runner_id text, p_stale interval DEFAULT '30 minutes',
    p_scope_kind text DEFAULT 'global', p_scope_id text DEFAULT 'global', p_max_attempts int DEFAULT 3)
  RETURNS TABLE(id uuid, attempt int, lease_token uuid, stale_after timestamptz) LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_stale timestamptz;
  v_token uuid := gen_random_uuid();
  v_name text := waypost.own_name(p_job_name);
BEGIN
  IF p_stale > interval '1000 years' THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: p_stale: is %s', p_stale), 'Give 1 second to 1000 years.', 'p_stale');
  END IF;
  v_stale := v_now + greatest(p_stale, interval '1 second');
  RETURN QUERY INSERT INTO ops.sys_cron_executions AS x(job_name, scope_kind, scope_id, plan_time, status, runner_id, lease_token, stale_after,
      max_attempts)
    VALUES (v_name, p_scope_kind, p_scope_id, p_plan_time, 'RUNNING', p_runner_id, v_token, v_stale, p_max_attempts)
    ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO NOTHING RETURNING x.id, x.attempt, x.lease_token, x.stale_after;
  IF FOUND THEN
    RETURN;
  END IF;
  RETURN QUERY UPDATE ops.sys_cron_executions AS x SET status = 'RUNNING', attempt = x.attempt + 1, runner_id = p_runner_id, lease_token = v_token,
      stale_after = v_stale
    WHERE x.job_name = v_name AND x.scope_kind = p_scope_kind AND x.scope_id = p_scope_id AND x.plan_time = p_plan_time
      AND x.attempt < x.max_attempts AND (x.status = 'FAILED' AND x.next_retry_at <= v_now OR x.status = 'RUNNING' AND x.stale_after < v_now
        AND (SELECT r.reentrant FROM waypost.runs r
          WHERE r.run_id = waypost.cron_run(x.id, x.job_name, x.scope_kind, x.scope_id, x.plan_time)))
    RETURNING x.id, x.attempt, x.lease_token, x.stale_after;
END $$;
