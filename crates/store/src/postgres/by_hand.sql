
-- What a legal move by hand (one that does not raise seq) leaves behind: its event, what follows from the phases, and the
-- run's place in the other tables. Called by the guard, after it has judged the move.
CREATE FUNCTION waypost.moved_by_hand(was waypost.runs, became waypost.runs) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamptz := waypost.now();
  src text := (SELECT s.phase FROM waypost.lifecycle_states s WHERE s.code = was.state);
  dst text := (SELECT s.phase FROM waypost.lifecycle_states s WHERE s.code = became.state);
  enters boolean := dst = 'held' AND src <> 'held';
  -- Who writes a name into the lease takes it; else it is left to any worker.
  takes boolean := enters AND became.claimed_by IS NOT NULL;
  way waypost.lifecycle_moves;
  keeps_reason boolean;
  failure json := CASE WHEN became.error_code IS NOT NULL THEN json_build_object('code', became.error_code, 'message', coalesce(became.error_msg, '')) END;
  merged jsonb := waypost.merged_by_hand(was, became, src, dst);
  again waypost.runs;
BEGIN
  SELECT * INTO way FROM waypost.lifecycle_moves m WHERE m.src_code = was.state AND m.dst_code = became.state AND m.events = 1
    ORDER BY m.guards LIMIT 1;
  keeps_reason := dst = 'parked' OR EXISTS (SELECT 1 FROM waypost.lifecycle_moves m
    WHERE m.src_code = was.state AND m.dst_code = became.state AND m.guards & 1 = 1);
  INSERT INTO waypost.events(rid, seq, at, command, src, dst, actor, who, effect) VALUES (became.rid, became.seq + 1, at, way.command,
    was.state, became.state, CASE WHEN takes THEN 'worker' ELSE 'operator' END, CASE WHEN takes THEN became.claimed_by ELSE 'by hand' END,
    json_build_object('by_hand', 1, 'metadata_is', became.metadata, 'details_is', merged, 'reason', became.reason,
      'resolved', became.resolved, 'forced', became.forced, 'failure', failure, 'shifts', waypost.follow_by_hand(became, became.seq + 1, way.command,
        CASE WHEN dst = 'settled' AND src <> 'settled' THEN 'end' END, failure, at)));
  UPDATE waypost.runs r SET
      seq = became.seq + 1,
      details = merged,
      last_command = way.command,
      attempt = was.attempt + enters::int,
      fence = was.fence + takes::int,
      take_overs = CASE WHEN enters THEN 0 ELSE was.take_overs END,
      claimed_by = CASE WHEN dst = 'held' THEN became.claimed_by END,
      lease_ms = CASE WHEN dst = 'held' THEN coalesce(became.lease_ms, 60000) END,
      started_at = CASE WHEN enters AND (was.started_at IS NULL OR src <> 'ready') THEN at ELSE was.started_at END,
      finished_at = CASE WHEN dst <> 'settled' THEN NULL WHEN src = 'settled' THEN was.finished_at ELSE at END,
      available_at = CASE WHEN dst = 'ready' THEN at WHEN dst = 'settled' AND src = 'settled' THEN was.available_at END,
      expires_at = NULL,
      reason = CASE WHEN keeps_reason THEN became.reason END,
      error_code = CASE WHEN dst <> 'settled' THEN NULL WHEN src = 'settled' THEN was.error_code ELSE became.error_code END,
      error_msg = CASE WHEN dst <> 'settled' THEN NULL WHEN src = 'settled' THEN was.error_msg
        WHEN became.error_code IS NOT NULL THEN coalesce(became.error_msg, '') END,
      intent = CASE WHEN dst = 'held' THEN became.intent END,
      owes_cleanup = dst <> 'settled' AND became.owes_cleanup,
      resolved = CASE WHEN dst = 'parked' THEN false WHEN dst = 'ready' THEN was.resolved OR became.resolved ELSE was.resolved END,
      forced = CASE WHEN dst = 'parked' THEN false WHEN dst = 'ready' THEN was.forced OR became.forced ELSE was.forced END,
      counted = CASE WHEN dst <> 'held' THEN false WHEN NOT enters THEN was.counted ELSE became.concurrency_key IS NOT NULL
        OR EXISTS (SELECT 1 FROM waypost.queues q WHERE q.name = became.queue AND q.at_most IS NOT NULL) END
    WHERE r.rid = became.rid RETURNING * INTO again;
  PERFORM waypost.placed_by_hand(was, again, src, dst);
  PERFORM waypost.leave_behind(again.run_id, way.command);
END $$;

-- Details are merged, never replaced (J7). Whoever says that a run is resolved has decided about every host that it waits for.
CREATE FUNCTION waypost.merged_by_hand(was waypost.runs, became waypost.runs, src text, dst text) RETURNS jsonb LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  merged jsonb := CASE WHEN became.details = was.details THEN was.details ELSE was.details || became.details END;
  hosts text[];
BEGIN
  IF src = 'parked' AND dst = 'ready' AND became.resolved AND NOT became.forced AND was.details -> 'awaiting_blocker_resolution' = 'true' THEN
    hosts := waypost.undecided(merged);
    IF hosts <> '{}' THEN
      RAISE EXCEPTION 'INVALID_TRANSITION: % waits for decisions about %', was.run_id, array_to_string(hosts, ', ')
        USING ERRCODE = 'WP409', HINT = 'Save them in details.maintenance_blocker_resolutions, or force it.';
    END IF;
  END IF;
  RETURN merged;
END $$;

-- The hosts that block a run and that nobody has decided about.
CREATE FUNCTION waypost.undecided(details jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
  RETURN ARRAY(SELECT h.host FROM jsonb_object_keys(CASE WHEN jsonb_typeof(details -> 'current_blockers') = 'object' THEN details -> 'current_blockers' ELSE '{}' END) h(host)
    WHERE coalesce(jsonb_typeof(details -> 'maintenance_blocker_resolutions') <> 'object', true)
      OR NOT details -> 'maintenance_blocker_resolutions' ? h.host ORDER BY h.host);

-- Slots, queue and reminders of a run that was moved by hand.
CREATE FUNCTION waypost.placed_by_hand(was waypost.runs, became waypost.runs, src text, dst text) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF became.concurrency_key IS NOT NULL AND src <> dst THEN
    PERFORM pg_advisory_xact_lock(waypost.slot(false, became.concurrency_key));
  END IF;
  IF dst = 'held' THEN
    INSERT INTO waypost.watch(due_at, adrift, rids) VALUES (became.stale_after, became.claimed_by IS NULL, ARRAY[became.rid]);
    INSERT INTO waypost.holders(of_queue, name, rid) SELECT false, became.concurrency_key, became.rid WHERE became.concurrency_key IS NOT NULL
      UNION ALL SELECT true, q.name, became.rid FROM waypost.queues q WHERE q.name = became.queue AND q.at_most IS NOT NULL
      ON CONFLICT DO NOTHING;
    RETURN;
  END IF;
  IF was.counted THEN
    DELETE FROM waypost.holders h WHERE h.rid = became.rid;
  END IF;
  IF dst = 'ready' THEN
    PERFORM waypost.queued_by_hand(became);
  END IF;
  IF became.concurrency_key IS NOT NULL AND src IN ('held', 'ready') THEN
    PERFORM waypost.give_back(became.concurrency_key);
  END IF;
END $$;

CREATE FUNCTION waypost.queued_by_hand(run waypost.runs) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- The place that it had, if nobody is looking at it: claimers lock that before the run.
  DELETE FROM waypost.ready w WHERE w.ctid = ANY (ARRAY(SELECT o.ctid FROM waypost.ready o WHERE o.queue = run.queue AND o.priority = run.priority
    AND o.available_at = run.available_at AND o.rid = run.rid FOR UPDATE SKIP LOCKED));
  INSERT INTO waypost.ready(available_at, rid, seq, priority, state, queue)
    VALUES (run.available_at, run.rid, run.seq, run.priority, run.state, run.queue);
  UPDATE waypost.lanes l SET revision = l.revision + 1 WHERE l.queue = run.queue AND l.priority = run.priority;
  IF NOT FOUND THEN
    INSERT INTO waypost.lanes(queue, priority) VALUES (run.queue, run.priority);
  END IF;
END $$;

-- All runs as people see them, and the way to mend one from psql: UPDATE waypost.board SET status = '…' WHERE run_id = '…'.
-- What a state asks for (a lease, an end, none of either) comes by itself.
CREATE VIEW waypost.board AS SELECT r.run_id, r.tenant, s.lifecycle, s.version, s.state AS status, s.phase, s.outcome, r.queue, r.priority,
    r.attempt, r.max_attempts, r.take_overs, r.seq, r.claimed_by, r.fence, r.stale_after, r.queued_at, r.started_at, r.finished_at, r.schedule_at,
    r.available_at, r.expires_at, r.concurrency_key, r.correlation_id, r.idempotency_key, r.parent_run_id, r.retry_of, r.playbook, r.carried,
    r.error_code, r.error_msg, r.reason, r.resolved, r.forced, r.intent ->> 'want' AS intent, r.input, r.metadata, r.details
  FROM waypost.runs r JOIN waypost.lifecycle_states s ON s.code = r.state;

CREATE FUNCTION waypost.board_moves() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  mendable CONSTANT text[] := '{status,claimed_by,stale_after,started_at,finished_at,error_code,error_msg,reason,resolved,forced,metadata,details}';
  dst waypost.lifecycle_states;
  at timestamptz := waypost.now();
BEGIN
  IF to_jsonb(NEW) - mendable <> to_jsonb(OLD) - mendable THEN
    RAISE EXCEPTION 'IMMUTABLE: of a run, these can be set by hand, together with its status: %', array_to_string(mendable[2:], ', ')
      USING ERRCODE = 'WP409';
  END IF;
  IF NEW.status = OLD.status THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: % is % already: a move by hand leads to another status', OLD.run_id, OLD.status USING ERRCODE = 'WP409';
  END IF;
  SELECT * INTO dst FROM waypost.lifecycle_states s WHERE s.lifecycle = OLD.lifecycle AND s.version = OLD.version AND s.state = NEW.status;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: % has no status %', OLD.lifecycle, NEW.status USING ERRCODE = 'WP409', HINT = 'It has: '
      || (SELECT string_agg(s.state, ', ') FROM waypost.lifecycle_states s WHERE s.lifecycle = OLD.lifecycle AND s.version = OLD.version);
  END IF;
  UPDATE waypost.runs r SET
      state = dst.code,
      lease_token = CASE WHEN dst.phase = 'held' THEN coalesce(r.lease_token, gen_random_uuid()) END,
      lease_ms = CASE WHEN dst.phase = 'held' THEN coalesce(r.lease_ms, dst.lease_ms) END,
      claimed_by = CASE WHEN dst.phase <> 'held' THEN NULL WHEN OLD.phase = 'held' THEN r.claimed_by ELSE NEW.claimed_by END,
      stale_after = CASE WHEN dst.phase <> 'held' THEN NULL WHEN OLD.phase = 'held' THEN r.stale_after WHEN NEW.claimed_by IS NULL THEN at
        ELSE coalesce(NEW.stale_after, at + coalesce(dst.deadline_ms, dst.lease_ms) * interval '1 millisecond') END,
      finished_at = CASE WHEN dst.phase = 'settled' THEN coalesce(r.finished_at, at) END,
      error_code = NEW.error_code,
      error_msg = NEW.error_msg,
      reason = NEW.reason,
      resolved = NEW.resolved,
      forced = NEW.forced,
      metadata = NEW.metadata,
      details = NEW.details
    WHERE r.run_id = OLD.run_id AND r.seq = OLD.seq;
  IF NOT FOUND THEN
    RAISE EXCEPTION '% changed meanwhile: look again', OLD.run_id USING ERRCODE = '40001';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER board_update INSTEAD OF UPDATE ON waypost.board FOR EACH ROW EXECUTE FUNCTION waypost.board_moves();
