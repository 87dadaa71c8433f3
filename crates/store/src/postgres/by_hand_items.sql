-- The items of a run that somebody moves by hand, and items that somebody adds or moves: the same events as the engine's.

-- What a command of the run makes of its items, by the lifecycle's own words (`on_end` and the like). They are moved, and
-- the event's `shifts` given.
CREATE FUNCTION waypost.follow_by_hand(p_run waypost.runs, p_seq int, p_command text, p_general text, p_failure json, p_at timestamptz)
  RETURNS json LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_shift record;
  v_moved int;
  v_shifts json[] := '{}';
BEGIN
  IF p_run.item_count = 0 THEN
    RETURN NULL;
  END IF;
  FOR v_shift IN
    SELECT f.kind, f.src, t.state AS dst, t.phase, t.outcome, s.phase AS was, CASE WHEN t.outcome = 'failed' THEN p_failure END AS failure
      FROM (SELECT DISTINCT i.kind, i.version, i.status AS src FROM waypost.items i WHERE i.rid = p_run.rid AND NOT i.stays) f
        JOIN waypost.lifecycles l ON l.name = f.kind AND l.version = f.version
        CROSS JOIN LATERAL jsonb_array_elements(l.definition::jsonb -> 'states') WITH ORDINALITY d(own, place)
        JOIN waypost.lifecycle_states s ON s.lifecycle = f.kind AND s.version = f.version AND s.state = f.src
        JOIN waypost.lifecycle_states t ON t.lifecycle = f.kind AND t.version = f.version
          AND t.state = coalesce(d.own ->> ('on_' || replace(p_command, '-', '_')), d.own ->> ('on_' || p_general))
      WHERE d.own ->> 'name' = f.src AND t.state <> f.src ORDER BY f.kind, d.place
  LOOP
    UPDATE waypost.items i SET status = v_shift.dst, seq = p_seq, not_before = NULL,
        finished_at = CASE WHEN v_shift.phase = 'settled' THEN p_at WHEN v_shift.was = 'settled' THEN NULL ELSE i.finished_at END,
        started_at = CASE WHEN v_shift.phase = 'held' THEN coalesce(i.started_at, p_at) ELSE i.started_at END,
        attempts = CASE WHEN v_shift.was = 'settled' AND v_shift.phase <> 'settled' THEN 0 ELSE i.attempts END,
        progress = CASE WHEN v_shift.outcome = 'succeeded' THEN 100 WHEN v_shift.was = 'settled' AND v_shift.phase <> 'settled' THEN 0 ELSE i.progress END,
        error_code = CASE WHEN v_shift.outcome = 'succeeded' THEN NULL WHEN v_shift.failure IS NOT NULL THEN v_shift.failure ->> 'code'
          WHEN v_shift.was = 'settled' AND v_shift.phase <> 'settled' THEN NULL ELSE i.error_code END,
        error_msg = CASE WHEN v_shift.outcome = 'succeeded' THEN NULL WHEN v_shift.failure IS NOT NULL THEN v_shift.failure ->> 'message'
          WHEN v_shift.was = 'settled' AND v_shift.phase <> 'settled' THEN NULL ELSE i.error_msg END
      WHERE i.rid = p_run.rid AND i.kind = v_shift.kind AND i.status = v_shift.src AND NOT i.stays AND i.seq <> p_seq;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    v_shifts := v_shifts || json_build_object('kind', v_shift.kind, 'from', v_shift.src, 'to', v_shift.dst, 'count', v_moved, 'failure', v_shift.failure);
  END LOOP;
  RETURN CASE WHEN cardinality(v_shifts) > 0 THEN array_to_json(v_shifts) END;
END $$;

-- An event of the run that tells of one item as it is now; `p_from` is nothing for a new one. The run's seq rises with it,
-- and a ready run's place in the queue counts only with its seq.
CREATE FUNCTION waypost.item_told(p_rid bigint, p_kind text, p_key text, p_from text, p_was_staying boolean) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  run waypost.runs;
  it waypost.items;
  micros CONSTANT bigint := 1000000;
BEGIN
  UPDATE waypost.runs r SET seq = r.seq + 1, item_count = r.item_count + (p_from IS NULL)::int WHERE r.rid = p_rid RETURNING * INTO run;
  UPDATE waypost.items i SET seq = run.seq WHERE i.rid = p_rid AND i.kind = p_kind AND i.key = p_key RETURNING * INTO it;
  INSERT INTO waypost.events(rid, seq, at, command, src, dst, actor, who, effect) VALUES (run.rid, run.seq, waypost.now(), 'items', run.state,
    run.state, 'operator', 'by hand', json_build_object('by_hand', 1, 'moved', json_build_array(json_build_object('kind', it.kind, 'key', it.key,
      'from', p_from, 'to', it.status, 'attempts', it.attempts, 'max_retries', it.max_retries, 'try_no', it.try_no, 'progress', it.progress,
      'discarded', it.discarded, 'reruns', it.reruns, 'role', it.role, 'was_staying', p_was_staying, 'stays', it.stays,
      'not_before', (extract(epoch FROM it.not_before) * micros)::bigint, 'started_at', (extract(epoch FROM it.started_at) * micros)::bigint,
      'finished_at', (extract(epoch FROM it.finished_at) * micros)::bigint,
      'failure', CASE WHEN it.error_code IS NOT NULL THEN json_build_object('code', it.error_code, 'message', it.error_msg) END))));
  IF run.state / 1000 = 2 THEN
    PERFORM waypost.queued_by_hand(run);
  END IF;
END $$;

-- An item's move by hand: what follows from its phase, and the event.
CREATE FUNCTION waypost.item_by_hand() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamptz := waypost.now();
  next_seq int;
  dst waypost.lifecycle_states;
BEGIN
  SELECT r.seq + 1 INTO next_seq FROM waypost.runs r WHERE r.rid = NEW.rid FOR UPDATE;
  SELECT * INTO dst FROM waypost.lifecycle_states s WHERE s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status;
  UPDATE waypost.items i SET
      seq = next_seq,
      stays = (SELECT s.stays FROM waypost.items_stay s WHERE s.rid = NEW.rid AND s.kind = NEW.kind AND s.key = NEW.key),
      started_at = CASE WHEN dst.phase = 'held' AND NEW.started_at IS NULL THEN at ELSE NEW.started_at END,
      finished_at = CASE WHEN dst.phase = 'settled' THEN at END,
      error_msg = CASE WHEN NEW.error_code IS NOT NULL THEN coalesce(NEW.error_msg, '') END
    WHERE i.rid = NEW.rid AND i.kind = NEW.kind AND i.key = NEW.key;
  PERFORM waypost.item_told(NEW.rid, NEW.kind, NEW.key, OLD.status, OLD.stays);
  RETURN NULL;
END $$;
CREATE TRIGGER items_by_hand AFTER UPDATE OF status ON waypost.items FOR EACH ROW
  WHEN (NEW.seq = OLD.seq AND NEW.status <> OLD.status) EXECUTE FUNCTION waypost.item_by_hand();

CREATE FUNCTION waypost.item_stays() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'SETTLED: item %, which is finished, cannot be rewritten', OLD.key USING ERRCODE = 'WP409';
END $$;
CREATE TRIGGER items_settled BEFORE UPDATE ON waypost.items FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL AND NEW.status = OLD.status
    AND NEW.seq = OLD.seq AND (NEW.finished_at IS DISTINCT FROM OLD.finished_at OR NEW.error_code IS DISTINCT FROM OLD.error_code
      OR NEW.attempts <> OLD.attempts))
  EXECUTE FUNCTION waypost.item_stays();
