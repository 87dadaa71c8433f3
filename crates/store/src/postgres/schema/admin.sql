-- What an operator does beside runs: queues that rest, runs that leave. The store calls the same writes; `waypost_admin` comes
-- in by the functions with words.

-- Nobody claims from a queue that is paused. Without a name it goes on. Claims that did not see the pause have ended, and those that come
-- will see it.
CREATE FUNCTION waypost.put_pause(p_tenant text, p_queue text, p_by text, p_reason text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_by IS NOT NULL THEN
    PERFORM waypost.shut_gate(p_tenant, p_queue);
  END IF;
  INSERT INTO waypost.queues(tenant, name, paused_by, pause_reason, paused_at) VALUES (p_tenant, p_queue, p_by, p_reason, CASE WHEN p_by IS NOT NULL
      THEN waypost.now() END)
    ON CONFLICT (name, tenant) DO UPDATE SET paused_by = excluded.paused_by, pause_reason = excluded.pause_reason, paused_at = excluded.paused_at;
END $$;

-- The gate for somebody in psql: claims go on between the tries, and who waits in vain is told so.
CREATE FUNCTION waypost.shut_gate_patiently(p_tenant text, p_queue text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  FOR v_try IN 1..50 LOOP
    BEGIN
      PERFORM waypost.shut_gate(p_tenant, p_queue);
      RETURN;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      NULL;
    END;
  END LOOP;
  PERFORM waypost.refuse('WP423', format('BUSY: claims from %s are under way in open transactions', quote_literal(p_queue)), 'Try again.');
END $$;

CREATE FUNCTION waypost.pause_queue(p_queue text, p_reason text) RETURNS TABLE(queue text, paused_by text, reason text, paused_at timestamptz)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_tenant text := waypost.tenant();
BEGIN
  PERFORM waypost.check_text('p_queue', p_queue);
  PERFORM waypost.check_text('p_reason', p_reason, 1024);
  PERFORM waypost.shut_gate_patiently(v_tenant, p_queue);
  PERFORM waypost.put_pause(v_tenant, p_queue, session_user::text, p_reason);
  INSERT INTO waypost.audit(at, tenant, who, action, subject, reason) VALUES (waypost.now(), v_tenant, session_user::text, 'queue.pause', p_queue,
      p_reason);
  RETURN QUERY SELECT q.name, q.paused_by, q.pause_reason, q.paused_at FROM waypost.queues q WHERE q.name = p_queue AND q.tenant = v_tenant;
END $$;

-- Says what is with it then: no pause. A queue that was not paused stays as it is.
CREATE FUNCTION waypost.resume_queue(p_queue text) RETURNS TABLE(queue text, paused_by text, reason text, paused_at timestamptz)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_tenant text := waypost.tenant();
BEGIN
  PERFORM waypost.check_text('p_queue', p_queue);
  IF NOT EXISTS (SELECT 1 FROM waypost.queues q WHERE q.name = p_queue AND q.tenant = v_tenant)
      AND NOT EXISTS (SELECT 1 FROM waypost.lanes l WHERE l.queue = p_queue AND l.tenant = v_tenant) THEN
    PERFORM waypost.refuse('WP404', format('NOT_FOUND: p_queue: there is no queue %s', quote_literal(p_queue)), 'There are: '
      || coalesce((SELECT left(string_agg(n.name, ', ' ORDER BY n.name), 500) FROM (SELECT l.queue AS name FROM waypost.lanes l WHERE l.tenant = v_tenant
          UNION SELECT q.name FROM waypost.queues q WHERE q.tenant = v_tenant) n),
        'none yet'), 'p_queue');
  END IF;
  PERFORM waypost.put_pause(v_tenant, p_queue, NULL, NULL);
  INSERT INTO waypost.audit(at, tenant, who, action, subject) VALUES (waypost.now(), v_tenant, session_user::text, 'queue.resume', p_queue);
  PERFORM waypost.wake();
  RETURN QUERY SELECT q.name, q.paused_by, q.pause_reason, q.paused_at FROM waypost.queues q WHERE q.name = p_queue AND q.tenant = v_tenant;
END $$;

-- Settled runs whose time is over leave, the oldest first, with their items and events, and are counted. Two thousand are
-- looked at in one go, whether they may leave or not; the next look begins behind them, and at the end again with the oldest.
-- One caller at a time: the place is a row.
CREATE FUNCTION waypost.prune_runs(p_limit int) RETURNS TABLE(runs bigint, events bigint, more boolean) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_look CONSTANT int := 2000;
  v_now timestamptz := waypost.now();
  v_after bigint;
  v_looked int;
  v_last bigint;
  v_over bigint[];
  v_seqs int[];
  v_gone bigint[];
BEGIN
  INSERT INTO waypost.meta VALUES ('pruned_to', '0') ON CONFLICT (key) DO UPDATE SET value = waypost.meta.value RETURNING value::bigint INTO v_after;
  WITH looked AS MATERIALIZED (SELECT r.rid, r.seq, r.state, r.finished_at, r.operating FROM waypost.runs r WHERE r.rid > v_after
      ORDER BY r.rid LIMIT v_look),
    past AS MATERIALIZED (SELECT l.rid, l.seq FROM looked l JOIN waypost.lifecycle_states s ON s.code = l.state
      WHERE NOT l.operating AND l.finished_at + waypost.keep_of(s) < v_now ORDER BY l.rid LIMIT p_limit + 1)
  SELECT (SELECT count(*) FROM looked), (SELECT max(l.rid) FROM looked l), coalesce(array_agg(p.rid ORDER BY p.rid), '{}'), array_agg(p.seq
      ORDER BY p.rid)
    INTO v_looked, v_last, v_over, v_seqs FROM past p;
  more := v_looked = v_look OR cardinality(v_over) > p_limit;
  UPDATE waypost.meta SET value = (CASE WHEN cardinality(v_over) > p_limit THEN v_over[p_limit + 1] - 1 WHEN v_looked = v_look THEN v_last
      ELSE 0 END)::text
    WHERE key = 'pruned_to';
  -- If they are still what they were when they were looked at. What leaves with a run, and the count of it, is its own trigger's (own.sql).
  v_gone := ARRAY(SELECT l.rid FROM (SELECT r.rid FROM unnest(v_over[:p_limit], v_seqs[:p_limit]) u(rid, seq) JOIN waypost.runs r ON r.rid = u.rid
      AND r.seq = u.seq ORDER BY r.rid FOR UPDATE OF r) l);
  SELECT cardinality(v_gone), count(*) + count(e.via) INTO runs, events FROM waypost.events e WHERE e.rid = ANY (v_gone);
  DELETE FROM waypost.runs r WHERE r.rid = ANY (v_gone);
  RETURN NEXT;
END $$;

CREATE FUNCTION waypost.prune(p_limit int DEFAULT 1000) RETURNS TABLE(runs bigint, events bigint, more boolean)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM waypost.check_installation('pruning');
  IF coalesce(p_limit NOT BETWEEN 1 AND 10000, true) THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: p_limit: is %s', coalesce(p_limit::text, 'null')),
        'Give 1 to 10000, and call again while `more` is true.', 'p_limit');
  END IF;
  RETURN QUERY SELECT p.runs, p.events, p.more FROM waypost.prune_runs(p_limit) p;
END $$;
