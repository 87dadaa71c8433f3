-- What writes to ops.workflow_executions and ops.job_tasks mean: items of the job's run, each with its event. They are for
-- whoever works a job from SQL; those of a job that a worker of waypost's own holds are that worker's.

CREATE FUNCTION waypost.locked_parts(p_job_id uuid) RETURNS waypost.runs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs;
BEGIN
  IF p_job_id IS NULL OR NOT EXISTS (SELECT 1 FROM ops.jobs j WHERE j.id = p_job_id) THEN
    PERFORM waypost.refuse('WP404', format('NOT_FOUND: job_id: there is no job %s', coalesce(p_job_id::text, 'null')),
        'Look it up: SELECT id, status FROM ops.jobs.', 'job_id');
  END IF;
  v_run := waypost.locked_run(p_job_id::text);
  IF v_run.state >= 5000 THEN
    PERFORM waypost.refuse('WP409', format('SETTLED: job %s is %s; its steps and tasks stay as they are', p_job_id, waypost.status_of(v_run.state)),
        'Queue a new job.');
  ELSIF waypost.is_worked(v_run) THEN
    PERFORM waypost.refuse('WP410', format('LEASE_LOST: job %s is held by %s', p_job_id, coalesce(v_run.claimed_by, 'nobody, and requires cleanup')),
      'Its worker writes its steps and tasks.');
  END IF;
  RETURN v_run;
END $$;

-- Adds an item, and moves it on if it is told to be further already.
CREATE FUNCTION waypost.part_born(p_run waypost.runs, p_kind text, p_key text, p_name text, p_status text, p_progress int, p_details jsonb,
    p_role text DEFAULT 'step') RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_first waypost.lifecycle_states;
BEGIN
  IF EXISTS (SELECT 1 FROM waypost.items i WHERE i.rid = p_run.rid AND i.kind = p_kind AND i.key = p_key) THEN
    PERFORM waypost.refuse('WP409', format('IMMUTABLE: job %s has a %s %s already', p_run.run_id, p_kind, quote_literal(p_key)),
        'Update that one, or choose another name.');
  END IF;
  SELECT s.* INTO v_first FROM waypost.lifecycle_states s WHERE s.lifecycle = p_kind AND s.initial ORDER BY s.version DESC LIMIT 1;
  -- own write
  INSERT INTO waypost.items(rid, kind, key, version, place, seq, name, status, details, role)
    VALUES (p_run.rid, p_kind, p_key, v_first.version, p_run.item_count, p_run.seq + 1, p_name, v_first.state, jsonb_strip_nulls(p_details), p_role);
  PERFORM waypost.item_told(p_run.rid, p_kind, p_key, NULL, false);
  PERFORM waypost.part_moved(p_run, p_kind, p_key, coalesce(p_status, v_first.state), p_progress, NULL, '{}');
END $$;

-- Another status is a move of the item's lifecycle; progress alone is told too; details are merged.
CREATE FUNCTION waypost.part_moved(p_run waypost.runs, p_kind text, p_key text, p_status text, p_progress int, p_error text,
    p_patch jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_was waypost.items;
  v_to waypost.lifecycle_states;
BEGIN
  SELECT i.* INTO v_was FROM waypost.items i WHERE i.rid = p_run.rid AND i.kind = p_kind AND i.key = p_key;
  SELECT s.* INTO v_to FROM waypost.lifecycle_states s WHERE s.lifecycle = p_kind AND s.version = v_was.version AND s.state = p_status;
  IF v_to.state IS NULL OR v_to.state <> v_was.status AND NOT EXISTS (SELECT 1 FROM waypost.lifecycle_moves m WHERE m.lifecycle = p_kind
      AND m.version = v_was.version
      AND m.src = v_was.status AND m.dst = p_status AND m.events = 1) THEN
    PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: no %s from %s, where %s %s is', coalesce(p_status, 'null'), v_was.status, p_kind,
        quote_literal(p_key)),
      'Allowed from there: ' || coalesce((SELECT string_agg(DISTINCT m.dst, ', ') FROM waypost.lifecycle_moves m WHERE m.lifecycle = p_kind
        AND m.version = v_was.version AND m.src = v_was.status AND m.events = 1), 'nothing'));
  ELSIF p_progress NOT BETWEEN 0 AND 100 THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: progress: is %s', p_progress), 'Give 0 to 100.', 'progress');
  ELSIF v_was.finished_at IS NOT NULL AND v_to.state = v_was.status AND (p_patch <> '{}' OR p_progress <> v_was.progress OR p_error IS NOT NULL) THEN
    PERFORM waypost.refuse('WP409', format('SETTLED: %s %s is %s', p_kind, quote_literal(p_key), v_was.status), 'What is finished stays as it is.');
  END IF;
  -- own write
  UPDATE waypost.items i SET status = p_status, details = waypost.merged('details', i.details, p_patch),
      progress = CASE WHEN v_to.outcome = 'succeeded' THEN 100 ELSE coalesce(p_progress, i.progress) END,
      error_code = CASE WHEN v_to.outcome = 'failed' THEN coalesce(i.error_code, 'FAILED') WHEN v_to.outcome = 'succeeded' THEN NULL
          ELSE i.error_code END,
      error_msg = CASE WHEN v_to.outcome = 'failed' THEN left(coalesce(p_error, ''), 4000) WHEN v_to.outcome = 'succeeded' THEN NULL
          ELSE i.error_msg END,
      -- Of progress alone the event is told next.
      seq = CASE WHEN p_status = v_was.status AND p_progress <> v_was.progress THEN (SELECT r.seq + 1 FROM waypost.runs r WHERE r.rid = v_was.rid)
          ELSE i.seq END
    WHERE i.rid = v_was.rid AND i.kind = p_kind AND i.key = p_key AND (p_status <> v_was.status OR p_patch <> '{}' OR p_progress <> v_was.progress);
  IF p_status = v_was.status AND p_progress <> v_was.progress THEN
    PERFORM waypost.item_told(v_was.rid, p_kind, p_key, p_status, v_was.stays);
  END IF;
  PERFORM waypost.wake();
END $$;

CREATE FUNCTION waypost.steps_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c_changeable CONSTANT text[] := '{step_status,step_details,step_error,step_started_at,step_completed_at}';
  v_run waypost.runs := waypost.locked_parts(NEW.job_id);
  v_key text := NEW.step_key;
BEGIN
  PERFORM waypost.check_json('step_details', coalesce(NEW.step_details, '{}'), 1048576, true);
  IF TG_OP = 'INSERT' THEN
    PERFORM waypost.check_text('step_name', NEW.step_name);
    v_key := coalesce(v_key, NEW.step_name);
    PERFORM waypost.check_text('step_key', v_key);
    IF NEW.step_role NOT IN ('step', 'optional', 'cleanup') THEN
      PERFORM waypost.refuse('WP422', format('INVALID_INPUT: step_role: is %s', quote_literal(NEW.step_role)), 'Give step, optional or cleanup.',
          'step_role');
    END IF;
    PERFORM waypost.part_born(v_run, 'step', v_key, NEW.step_name, NEW.step_status, NULL, coalesce(NEW.step_details, '{}')
      || jsonb_build_object('order', NEW.step_number, 'step_number', NEW.step_number, 'server_id', NEW.server_id, 'host_id', NEW.host_id, 'cluster_id', NEW.cluster_id),
      coalesce(NEW.step_role, 'step'));
  ELSE
    IF to_jsonb(NEW) - c_changeable <> to_jsonb(OLD) - c_changeable THEN
      PERFORM waypost.refuse('WP409', format('IMMUTABLE: of step %s only step_status, step_details and step_error can be changed by hand', OLD.id),
          'Add another step instead.');
    END IF;
    PERFORM waypost.part_moved(v_run, 'step', v_key, NEW.step_status, (coalesce(NEW.step_details, '{}') ->> 'progress_pct')::int,
      CASE WHEN NEW.step_error IS DISTINCT FROM OLD.step_error THEN NEW.step_error END,
      waypost.job_patch(OLD.step_details, coalesce(NEW.step_details, '{}')) - 'progress_pct');
  END IF;
  SELECT w.* INTO NEW FROM ops.workflow_executions w WHERE w.job_id = NEW.job_id AND w.step_key = v_key;
  RETURN NEW;
END $$;
CREATE TRIGGER workflow_executions_write INSTEAD OF INSERT OR UPDATE ON ops.workflow_executions FOR EACH ROW EXECUTE FUNCTION waypost.steps_write();
CREATE TRIGGER workflow_executions_delete INSTEAD OF DELETE ON ops.workflow_executions FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Steps leave with their job.');

CREATE FUNCTION waypost.tasks_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c_changeable CONSTANT text[] := '{status,progress,log,started_at,completed_at,error_code}';
  v_run waypost.runs := waypost.locked_parts(NEW.job_id);
  v_key text := NEW.task_key;
  v_log jsonb;
BEGIN
  PERFORM waypost.check_text('log', coalesce(nullif(NEW.log, ''), '-'), 1048576);
  IF TG_OP = 'INSERT' THEN
    v_key := coalesce(v_key, NEW.task_name, NEW.server_id::text, NEW.vcenter_host_id::text);
    PERFORM waypost.check_text('task_name', v_key);
    PERFORM waypost.part_born(v_run, 'task', v_key, coalesce(NEW.task_name, v_key), NEW.status, NEW.progress,
      jsonb_build_object('server_id', NEW.server_id, 'vcenter_host_id', NEW.vcenter_host_id, 'log', NEW.log, 'step', NEW.step_key));
  ELSE
    IF to_jsonb(NEW) - c_changeable <> to_jsonb(OLD) - c_changeable THEN
      PERFORM waypost.refuse('WP409', format('IMMUTABLE: of task %s only status, progress and log can be changed by hand', OLD.id),
          'Add another task instead.');
    END IF;
    v_log := CASE WHEN NEW.log IS DISTINCT FROM OLD.log THEN jsonb_build_object('log', NEW.log) ELSE '{}' END;
    PERFORM waypost.part_moved(v_run, 'task', v_key, NEW.status, NEW.progress, v_log ->> 'log', v_log);
  END IF;
  SELECT t.* INTO NEW FROM ops.job_tasks t WHERE t.job_id = NEW.job_id AND t.task_key = v_key;
  RETURN NEW;
END $$;
CREATE TRIGGER job_tasks_write INSTEAD OF INSERT OR UPDATE ON ops.job_tasks FOR EACH ROW EXECUTE FUNCTION waypost.tasks_write();
CREATE TRIGGER job_tasks_delete INSTEAD OF DELETE ON ops.job_tasks FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Tasks leave with their job.');
