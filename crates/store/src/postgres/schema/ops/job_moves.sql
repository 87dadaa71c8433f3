-- What an UPDATE of ops.jobs means: a move of the lifecycle with its event, or other details with one. What a worker of
-- waypost's own holds is asked for, not taken from it: the worker cleans up first.

-- What an UPDATE of a job's details means is a patch, laid over what is there, member by member (J7).
-- The members in which a statement's details differ from those that it saw. What it leaves out stays.
CREATE FUNCTION waypost.job_patch(p_saw jsonb, p_says jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_patch jsonb;
  v_lines jsonb;
BEGIN
  PERFORM waypost.check_json('details', coalesce(p_says, 'null'), 1048576, true);
  SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}') INTO v_patch FROM jsonb_each(p_says) m WHERE p_saw -> m.key IS DISTINCT FROM m.value;
  v_lines := v_patch -> 'console_log';
  IF v_lines IS NULL THEN
    RETURN v_patch;
  ELSIF jsonb_typeof(v_lines) <> 'array' THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: details.console_log: is of type %s', jsonb_typeof(v_lines)), 'Give a list of lines.',
        'details');
  END IF;
  -- The last hundred lines.
  RETURN v_patch || jsonb_build_object('console_log', (SELECT coalesce(jsonb_agg(l.line ORDER BY l.place), '[]')
    FROM jsonb_array_elements(v_lines) WITH ORDINALITY l(line, place) WHERE l.place > jsonb_array_length(v_lines) - 100));
END $$;

-- Whether somebody works on it whose hold is not a row in a table: a worker with a token of its own, whose lease runs.
CREATE FUNCTION waypost.is_worked(p_run waypost.runs) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
  RETURN p_run.state / 1000 = 3 AND (p_run.requires_cleanup OR p_run.claimed_by IS NOT NULL AND p_run.stale_after >= waypost.now()
    AND p_run.lease_token <> waypost.open_token(p_run.rid, p_run.fence));

CREATE FUNCTION waypost.job_told(p_run waypost.runs, p_patch jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_became waypost.runs := p_run;
BEGIN
  IF p_patch <> '{}' THEN
    v_became.details := p_patch;
    PERFORM waypost.note_by_hand(p_run, v_became, 'Details changed by hand');
  END IF;
END $$;

-- An operator's pause of a run that somebody works on: stored, and carried out by the holder.
CREATE FUNCTION waypost.ask_to_pause(p_run waypost.runs, p_reason text, p_details jsonb) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_effect jsonb := jsonb_build_object('intent', jsonb_build_object('want', 'pause', 'by', session_user, 'reason', p_reason));
BEGIN
  IF p_run.intent ->> 'want' = 'cancel' THEN
    PERFORM waypost.refuse('WP412', format('CANCEL_REQUESTED: a cancel of %s came first', p_run.run_id), 'It ends as cancelled.');
  ELSIF p_run.intent ->> 'want' = 'fail' THEN
    PERFORM waypost.refuse('WP409', format('FAILURE_RECORDED: %s is failing already', p_run.run_id), 'It ends as failed, after its cleanup.');
  ELSIF p_run.intent ->> 'want' = 'pause' THEN
    RETURN;
  END IF;
  PERFORM waypost.save_one(p_run, waypost.enter(p_run, p_run.state, 'pause', 'operator', session_user::text, waypost.now(), v_effect), 'pause',
      'operator',
    session_user::text, v_effect, p_details => p_details);
END $$;

-- Invariant 3: paused → pending with decisions about every host that it waits for, one of this pause at least, or forced. What let it go on
-- is used up.
CREATE FUNCTION waypost.job_resumes(p_run waypost.runs, p_patch jsonb, OUT forced boolean, OUT patch jsonb) LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_details jsonb := p_run.details || p_patch;
  v_words jsonb := waypost.decisions(p_run.state);
  v_awaits boolean := coalesce(p_run.details -> 'awaiting_blocker_resolution' = 'true', false);
  v_hosts text[] := CASE WHEN v_awaits THEN waypost.undecided(p_run, v_details, v_words) ELSE '{}' END;
BEGIN
  forced := coalesce(v_details -> 'force_resumed' = 'true', false);
  IF NOT forced AND (v_hosts <> '{}' OR NOT waypost.decides_now(p_run, v_details, v_words)) THEN
    PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s waits for decisions%s', p_run.run_id, coalesce(' about '
        || nullif(array_to_string(v_hosts, ', '), ''), '')),
      'Save them in details.maintenance_blocker_resolutions, {"HOST": "skip"}, or set details.force_resumed to true.', 'details');
  END IF;
  patch := p_patch || CASE WHEN forced THEN '{"force_resumed": false}'::jsonb ELSE '{}' END;
END $$;

-- Moves that are written at once.
CREATE FUNCTION waypost.job_moves(p_run waypost.runs, p_to waypost.lifecycle_states, p_patch jsonb, p_by text, p_failure jsonb) RETURNS void
    LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_became waypost.runs := p_run;
  v_patch jsonb := p_patch;
BEGIN
  v_became.state := p_to.code;
  IF p_to.phase = 'held' THEN
    PERFORM waypost.check_text('claimed_by', p_by);
    v_became := waypost.opened(v_became, p_by, NULL);
  ELSE
    v_became.forced := false;
    IF p_to.phase = 'ready' AND p_run.state / 1000 = 4 THEN
      SELECT j.forced, j.patch INTO v_became.forced, v_patch FROM waypost.job_resumes(p_run, p_patch) j;
    END IF;
    v_became.resolved := p_to.phase = 'ready' AND NOT v_became.forced;
    v_became.reason := CASE WHEN p_to.phase = 'parked' THEN waypost.pause_reason(p_run, p_patch) END;
    v_became.error_code := CASE WHEN p_to.code >= 6000 THEN p_failure ->> 'code' END;
    v_became.error_msg := CASE WHEN p_to.code >= 6000 THEN p_failure ->> 'message' END;
  END IF;
  v_became.details := v_patch;
  PERFORM waypost.move_by_hand(p_run, v_became);
END $$;

-- Invariant 2: paused with a reason, or because blockers wait for decisions.
CREATE FUNCTION waypost.pause_reason(p_run waypost.runs, p_patch jsonb) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_details jsonb := p_run.details || p_patch;
  v_reason text := coalesce(nullif(btrim(CASE jsonb_typeof(v_details -> 'pause_reason') WHEN 'string' THEN v_details ->> 'pause_reason' END), ''),
    CASE WHEN v_details -> 'awaiting_blocker_resolution' = 'true' THEN 'awaiting blocker resolution' END);
BEGIN
  IF v_reason IS NULL THEN
    PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: a pause of %s needs a reason', p_run.run_id),
      'Set details.pause_reason, or details.awaiting_blocker_resolution to true.', 'details');
  END IF;
  RETURN left(v_reason, 1024);
END $$;

CREATE FUNCTION waypost.jobs_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c_changeable CONSTANT text[] := '{status,details,started_at,completed_at,updated_at,claimed_by,error_code,error_msg}';
  v_run waypost.runs := waypost.locked_by_hand(OLD.run_id, NEW.status);
  v_to waypost.lifecycle_states;
  v_patch jsonb := waypost.job_patch(OLD.details, NEW.details);
  v_failure jsonb;
BEGIN
  IF waypost.status_of(v_run.state) <> OLD.status THEN
    RETURN NULL;                                  -- somebody was faster, and the statement's condition no longer holds
  ELSIF to_jsonb(NEW) - c_changeable <> to_jsonb(OLD) - c_changeable OR NEW.status = OLD.status AND (NEW.claimed_by, NEW.started_at,
      NEW.completed_at, NEW.error_code, NEW.error_msg) IS DISTINCT FROM (OLD.claimed_by, OLD.started_at, OLD.completed_at, OLD.error_code,
          OLD.error_msg) THEN
    PERFORM waypost.refuse('WP409', format('IMMUTABLE: of job %s only status and details can be changed by hand', OLD.id),
        'Queue a new job instead.');
  ELSIF v_run.state >= 5000 AND NEW.status = OLD.status AND NEW.details <> OLD.details THEN
    PERFORM waypost.refuse('WP409', format('SETTLED: job %s is %s; its details stay as they are', OLD.id, OLD.status),
        'Note it elsewhere, or queue a new job.', 'details');
  END IF;
  v_patch := waypost.take_decisions(v_run, v_patch);
  SELECT s.* INTO v_to FROM waypost.lifecycle_states w JOIN waypost.lifecycle_states s ON s.lifecycle = w.lifecycle AND s.version = w.version
    WHERE w.code = v_run.state AND s.state = NEW.status;
  v_failure := jsonb_build_object('code', CASE WHEN NEW.error_code IS DISTINCT FROM OLD.error_code THEN NEW.error_code END, 'message',
      left(coalesce(NEW.error_msg, v_patch ->> 'error', ''), 4000));
  IF NEW.status = OLD.status THEN
    PERFORM waypost.job_told(v_run, v_patch);
  ELSIF NOT EXISTS (SELECT 1 FROM waypost.lifecycle_moves m WHERE m.src_code = v_run.state AND m.dst_code = v_to.code
      AND m.events = 1) THEN
    PERFORM waypost.no_such_move(v_run, coalesce(NEW.status, 'null'));
  ELSIF waypost.ops_job_cancels(v_run, v_to) THEN
    IF waypost.is_worked(v_run) THEN
      PERFORM waypost.cancel_one(v_run.run_id, session_user, left(v_patch ->> 'cancel_reason', 1024), '{}', v_patch, 'operator',
        coalesce(v_patch -> 'graceful_cancel' = 'true', false));
    ELSE
      PERFORM waypost.job_moves(v_run, v_to, v_patch, NULL, jsonb_build_object('code', 'CANCELLED', 'message',
          coalesce(left(v_patch ->> 'cancel_reason', 1024), 'cancel by ' || session_user)));
    END IF;
  ELSIF NOT waypost.is_worked(v_run) THEN
    PERFORM waypost.job_moves(v_run, v_to, v_patch, NEW.claimed_by, v_failure || CASE WHEN v_failure ->> 'code' IS NULL
        THEN '{"code": "FAILED"}'::jsonb ELSE '{}' END);
  ELSIF v_to.phase = 'parked' THEN
    PERFORM waypost.ask_to_pause(v_run, waypost.pause_reason(v_run, v_patch), v_patch);
  ELSE
    PERFORM waypost.refuse('WP410', format('LEASE_LOST: job %s is held by %s', OLD.id, coalesce(v_run.claimed_by, 'nobody, and requires cleanup')),
      'Its worker ends it; pause or cancel it instead.');
  END IF;
  -- What RETURNING tells is what became of it.
  SELECT j.* INTO NEW FROM ops.jobs j WHERE j.run_id = OLD.run_id;
  RETURN NEW;
END $$;
CREATE TRIGGER jobs_update INSTEAD OF UPDATE ON ops.jobs FOR EACH ROW EXECUTE FUNCTION waypost.jobs_update();

CREATE FUNCTION waypost.ops_job_cancels(p_run waypost.runs, p_to waypost.lifecycle_states) RETURNS boolean LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
  RETURN EXISTS (SELECT 1 FROM waypost.lifecycle_moves m WHERE m.src_code = p_run.state AND m.dst_code = p_to.code
    AND m.command = 'cancel' AND m.events = 1);

-- A new job, with the step that it needs to be begun; the playbook's own come when a worker has it.
CREATE FUNCTION waypost.jobs_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_first text := (SELECT l.definition::jsonb -> 'initial' ->> 0 FROM waypost.lifecycles l WHERE l.name = 'job' ORDER BY l.version DESC LIMIT 1);
  v_seen text := waypost.seen_tenant();
  v_tenant text := coalesce(NEW.tenant, v_seen, 'default');
  v_written waypost.written;
BEGIN
  IF coalesce(NEW.status, v_first) <> v_first THEN
    PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: a job does not start as %s', quote_literal(left(NEW.status, 80))), 'Allowed: '
        || v_first, 'status');
  ELSIF num_nonnulls(NEW.started_at, NEW.completed_at, NEW.claimed_by, NEW.lease_expires_at, NEW.error_code, NEW.error_msg, NEW.attempt,
      NEW.concurrency_key) > 0
      OR NEW.cancel_requested OR NEW.pause_requested THEN
    PERFORM waypost.refuse('WP409', 'IMMUTABLE: times, lease, errors, attempts and keys are the engine''s',
      'Give job_type, details, input, metadata, schedule_at, first_step, priority, queue, correlation_id, parent_job_id.');
  ELSIF NEW.playbook IS NOT NULL AND regexp_replace(NEW.playbook, '@[^@]*$', '') <> coalesce(NEW.job_type, NEW.playbook) THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: playbook: is not of job_type %s', quote_literal(left(NEW.job_type, 80))),
        'Leave one of them out.', 'playbook');
  ELSIF v_tenant <> v_seen THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: tenant: is not the chosen one, %s', quote_literal(v_seen)),
        'Leave it out; SET waypost.tenant chooses.', 'tenant');
  END IF;
  PERFORM waypost.check_text('job_type', coalesce(NEW.playbook, NEW.job_type));
  PERFORM waypost.check_text('first_step', coalesce(NEW.first_step, 'run'));
  PERFORM waypost.check_text('queue', coalesce(NEW.queue, 'default'));
  PERFORM waypost.check_tenant('tenant', v_tenant);
  PERFORM waypost.check_text('correlation_id', coalesce(NEW.correlation_id, '-'));
  PERFORM waypost.check_time('schedule_at', NEW.schedule_at);
  PERFORM waypost.check_json('input', coalesce(NEW.input, '{}'), 1048576, true);
  PERFORM waypost.check_json('metadata', coalesce(NEW.metadata, '{}'), 1048576, true);
  IF NEW.parent_job_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.run_id = NEW.parent_job_id::text
      AND r.tenant = v_tenant) THEN
    PERFORM waypost.refuse('WP404', format('NOT_FOUND: parent_job_id: there is no job %s', NEW.parent_job_id),
        'Look it up: SELECT id, status FROM ops.jobs.', 'parent_job_id');
  END IF;
  v_written := waypost.enqueue_one('job', coalesce(NEW.queue, 'default'), coalesce(NEW.input, '{}')::json, coalesce(NEW.metadata, '{}'),
      session_user::text,
    p_tenant := v_tenant, p_run_id := NEW.id::text, p_priority := coalesce(NEW.priority, 0::smallint),
        p_schedule_at := NEW.schedule_at,
    p_details := waypost.job_patch('{}', coalesce(NEW.details, '{}')), p_correlation_id := NEW.correlation_id,
        p_parent_run_id := NEW.parent_job_id::text,
    p_playbook := coalesce(NEW.playbook, NEW.job_type), p_first_item := coalesce(NEW.first_step, '(run)'));
  SELECT j.* INTO NEW FROM ops.jobs j WHERE j.run_id = (v_written.run).run_id;
  RETURN NEW;
END $$;
CREATE TRIGGER jobs_insert INSTEAD OF INSERT ON ops.jobs FOR EACH ROW EXECUTE FUNCTION waypost.jobs_insert();
CREATE TRIGGER jobs_delete INSTEAD OF DELETE ON ops.jobs FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Settled jobs leave by pruning, with their events.');
