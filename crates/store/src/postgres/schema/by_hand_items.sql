-- The items of a run that somebody moves by hand, and items that somebody adds or moves: the same events as the engine's.

-- What a command of the run makes of its items, by the lifecycle's own words (`on_end` and the like), as an event tells it.
CREATE FUNCTION waypost.follows(p_run waypost.runs, p_command text, p_general text, p_failure jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_run.item_count = 0 THEN
    RETURN '[]';
  END IF;
  RETURN (SELECT coalesce(jsonb_agg(jsonb_build_object('kind', f.kind, 'from', f.src, 'to', t.state, 'count', f.count)
      || CASE WHEN t.outcome = 'failed' AND p_failure IS NOT NULL THEN jsonb_build_object('failure', p_failure) ELSE '{}' END
      ORDER BY f.kind, d.place), '[]')
    FROM (SELECT i.kind, i.version, i.status AS src, count(*) AS count FROM waypost.items i WHERE i.rid = p_run.rid AND NOT i.stays
        GROUP BY i.kind, i.version, i.status) f
      JOIN waypost.lifecycles l ON l.name = f.kind AND l.version = f.version
      CROSS JOIN LATERAL jsonb_array_elements(l.definition::jsonb -> 'states') WITH ORDINALITY d(own, place)
      JOIN waypost.lifecycle_states t ON t.lifecycle = f.kind AND t.version = f.version
        AND t.state = coalesce(d.own ->> ('on_' || replace(p_command, '-', '_')), d.own ->> ('on_' || p_general))
    WHERE d.own ->> 'name' = f.src AND t.state <> f.src);
END $$;

-- The same, as `waypost.save` takes it.
CREATE FUNCTION waypost.shifts_of(p_run waypost.runs, p_shifts jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
  RETURN CASE WHEN p_shifts <> '[]' THEN jsonb_build_object('shifts', (SELECT jsonb_agg(s.shift || jsonb_build_object('rid', p_run.rid,
    'seq', p_run.seq, 'src', s.shift -> 'from', 'dst', s.shift -> 'to')) FROM jsonb_array_elements(p_shifts) s(shift))) END;

-- An event of the run that tells of one item as it is now; `p_from` is absent for a new one.
CREATE FUNCTION waypost.item_told(p_rid bigint, p_kind text, p_key text, p_from text, p_was_staying boolean) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  was waypost.runs;
  run waypost.runs;
  it waypost.items;
  v_effect jsonb;
BEGIN
  SELECT r.* INTO was FROM waypost.runs r WHERE r.rid = p_rid FOR UPDATE;
  run := waypost.enter(was, was.state, 'items', 'operator', 'by hand', waypost.now());
  run.item_count := was.item_count + (p_from IS NULL)::int;
  -- own write
  UPDATE waypost.items i SET seq = run.seq WHERE i.rid = p_rid AND i.kind = p_kind AND i.key = p_key RETURNING * INTO it;
  v_effect := jsonb_build_object('by_hand', 1, 'moved', jsonb_build_array(jsonb_build_object('kind', it.kind, 'key', it.key,
    'from', p_from, 'to', it.status, 'attempts', it.attempts, 'max_retries', it.max_retries, 'try_no', it.try_no, 'throttled', it.throttled, 'waited_ms', it.waited_ms, 'in_doubt', it.in_doubt, 'progress', it.progress,
    'discarded', it.discarded, 'reruns', it.reruns, 'role', it.role, 'was_staying', p_was_staying, 'stays', it.stays,
    'not_before', waypost.micros(it.not_before), 'started_at', waypost.micros(it.started_at), 'finished_at', waypost.micros(it.finished_at),
    'failure', CASE WHEN it.error_code IS NOT NULL THEN jsonb_build_object('code', it.error_code, 'message', it.error_msg) END)));
  PERFORM waypost.save_one(was, run, 'items', 'operator', 'by hand', v_effect);
END $$;

-- An item's move by hand: what follows from its phase, and the event.
CREATE FUNCTION waypost.item_by_hand() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamptz := waypost.now();
  next_seq int;
  src waypost.lifecycle_states;
  dst waypost.lifecycle_states;
BEGIN
  PERFORM waypost.check_failure(NEW.error_code, NEW.error_msg);
  SELECT r.seq + 1 INTO next_seq FROM waypost.runs r WHERE r.rid = NEW.rid FOR UPDATE;
  SELECT * INTO src FROM waypost.lifecycle_states s WHERE s.lifecycle = OLD.kind AND s.version = OLD.version AND s.state = OLD.status;
  SELECT * INTO dst FROM waypost.lifecycle_states s WHERE s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status;
  -- own write
  UPDATE waypost.items i SET
      seq = next_seq,
      in_doubt = OLD.in_doubt OR waypost.is_lost(src, dst),
      stays = (SELECT s.stays FROM waypost.items_stay s WHERE s.rid = NEW.rid AND s.kind = NEW.kind AND s.key = NEW.key),
      started_at = CASE WHEN dst.phase = 'held' AND OLD.started_at IS NULL THEN at ELSE OLD.started_at END,
      finished_at = CASE WHEN dst.phase = 'settled' THEN at END,
      error_msg = CASE WHEN NEW.error_code IS NOT NULL THEN coalesce(NEW.error_msg, '') END
    WHERE i.rid = NEW.rid AND i.kind = NEW.kind AND i.key = NEW.key;
  PERFORM waypost.item_told(NEW.rid, NEW.kind, NEW.key, OLD.status, OLD.stays);
  RETURN NULL;
END $$;
CREATE TRIGGER items_by_hand AFTER UPDATE OF status ON waypost.items FOR EACH ROW
  WHEN (NEW.seq = OLD.seq AND NEW.status <> OLD.status) EXECUTE FUNCTION waypost.item_by_hand();

-- What no move is behind. The engine's writes raise seq, or leave alone what the log tells.
CREATE FUNCTION waypost.item_stays() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF OLD.finished_at IS NOT NULL THEN
    RAISE EXCEPTION 'SETTLED: % %, which is finished, cannot be rewritten', OLD.kind, quote_literal(OLD.key) USING ERRCODE = 'WP409';
  END IF;
  RAISE EXCEPTION 'IMMUTABLE: progress, failure and times of % % change with a move of it', OLD.kind, quote_literal(OLD.key) USING ERRCODE = 'WP409',
    HINT = 'Set its status with them, or update ops.workflow_executions or ops.job_tasks.';
END $$;
CREATE TRIGGER items_kept BEFORE UPDATE ON waypost.items FOR EACH ROW WHEN (NEW.status = OLD.status AND NEW.seq = OLD.seq
    AND (NEW.progress <> OLD.progress OR NEW.error_code IS DISTINCT FROM OLD.error_code OR NEW.error_msg IS DISTINCT FROM OLD.error_msg
      OR NEW.attempts <> OLD.attempts OR NEW.started_at IS DISTINCT FROM OLD.started_at OR NEW.finished_at IS DISTINCT FROM OLD.finished_at))
  EXECUTE FUNCTION waypost.item_stays();
