-- Moves one run at a time, for callers in SQL: `ops` is made of these. They lock, check and find the words; `waypost.enter` says what
-- becomes of the row, and `waypost.save_one` writes it. General over lifecycles: they look up what the kernel rendered.
--
-- A refusal is an exception: SQLSTATE `WP…`, `CODE: words` as its message, what to do next as its hint. A move that
-- needs a decision (items that follow, required cleanup, guards) is `WP501`, raised before any write.

-- What a verb leaves: the run as it is now, and the event that says so (of a repeat, the first one's).
CREATE TYPE waypost.written AS (run waypost.runs, status text, "position" bigint, seq int, repeated boolean);

CREATE FUNCTION waypost.refuse(p_errcode text, p_message text, p_hint text, p_field text DEFAULT '') RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = p_errcode, MESSAGE = p_message, HINT = p_hint, COLUMN = p_field;
END $$;

-- Listeners are woken at most once in 20 ms, whoever writes: a commit that notifies waits for all others that do. The
-- sequence is a clock that no transaction holds back. A wake-up that its transaction takes along into a rollback is
-- made good by the next write, or by the listener's own look.
CREATE SEQUENCE waypost.woken_ms MINVALUE 0 START 0;
CREATE FUNCTION waypost.wake() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
  IF abs(v_ms - (SELECT w.last_value FROM waypost.woken_ms w)) < 20 OR NOT pg_try_advisory_lock(hashtextextended('waypost.wake', 0)) THEN
    RETURN;
  END IF;
  IF abs(v_ms - (SELECT w.last_value FROM waypost.woken_ms w)) >= 20 THEN
    PERFORM setval('waypost.woken_ms', v_ms);
    PERFORM pg_notify('waypost', '');
  END IF;
  PERFORM pg_advisory_unlock(hashtextextended('waypost.wake', 0));
END $$;

-- An open lease has a token that can be worked out again, so that whoever comes without one can write under it, and
-- the same finish sent again is known. Nobody can guess it: it takes the database's secret.
INSERT INTO waypost.meta(key, value) VALUES ('open_lease_secret', gen_random_uuid()::text || gen_random_uuid()::text);
CREATE FUNCTION waypost.open_token(p_rid bigint, p_fence int) RETURNS uuid LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT encode(substring(sha256(convert_to(m.value || ':' || p_rid || ':' || p_fence, 'UTF8')) FOR 16), 'hex')::uuid
    FROM waypost.meta m WHERE m.key = 'open_lease_secret');
END $$;

-- `p_ends`: the run may leave its key's slot, whose lock comes before the run's.
CREATE FUNCTION waypost.locked_run(p_run_id text, p_ends boolean DEFAULT false) RETURNS waypost.runs LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs;
BEGIN
  IF p_ends THEN
    PERFORM waypost.lock_slots(r, false, true) FROM waypost.runs r
      WHERE r.run_id = p_run_id AND r.concurrency_key IS NOT NULL AND r.state < 5000;
  END IF;
  SELECT r.* INTO v_run FROM waypost.runs r WHERE r.run_id = p_run_id FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM waypost.refuse('WP404', format('NOT_FOUND: there is no run %s', quote_literal(left(p_run_id, 80))),
      'Look it up: SELECT run_id, status FROM ops.runs.');
  END IF;
  RETURN v_run;
END $$;

CREATE FUNCTION waypost.status_of(p_state smallint) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT s.state FROM waypost.lifecycle_states s WHERE s.code = p_state);
END $$;

CREATE FUNCTION waypost.no_such_move(p_run waypost.runs, p_status text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: no %s from %s, where %s is', p_status, waypost.status_of(p_run.state), p_run.run_id),
    'Allowed from there: ' || coalesce((SELECT string_agg(DISTINCT m.dst, ', ') FROM waypost.lifecycle_moves m
      WHERE m.src_code = p_run.state AND m.events = 1), 'nothing'));
END $$;

-- Every write of a holder: its token, or none for an open lease. The lease counts until somebody else has it.
CREATE FUNCTION waypost.check_lease(p_run waypost.runs, p_token uuid, p_by text) RETURNS uuid LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_open uuid := waypost.open_token(p_run.rid, p_run.fence);
  v_status text;
BEGIN
  IF p_run.state / 1000 = 3 AND p_run.claimed_by IS NOT NULL AND p_run.lease_token = coalesce(p_token, v_open)
      AND (p_token IS NOT NULL OR p_by IS NULL OR p_by = p_run.claimed_by) THEN
    RETURN p_run.lease_token;
  END IF;
  v_status := waypost.status_of(p_run.state);
  IF p_run.state < 3000 AND p_token IS NULL THEN
    PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s is %s: nobody holds it', p_run.run_id, v_status),
      'A worker has to claim it first: SELECT * FROM ops.claim_next_run(p_worker_id := …).');
  ELSIF p_run.state / 1000 = 3 AND p_token IS NULL AND p_run.lease_token <> v_open THEN
    PERFORM waypost.refuse('WP410', format('LEASE_LOST: %s was not claimed through ops.claim_next_run', p_run.run_id),
      'Give the token of its lease as p_lease_token.');
  ELSIF p_run.state / 1000 = 3 AND p_token IS NULL THEN
    PERFORM waypost.refuse('WP410', format('LEASE_LOST: %s is held by %s', p_run.run_id, coalesce(p_run.claimed_by, 'nobody')),
      'Stop working on it; claim another one.');
  END IF;
  PERFORM waypost.refuse('WP410', format('LEASE_LOST: the lease of %s is not yours (any more); it is %s', p_run.run_id, v_status),
    'Stop working on it; claim another one.');
END $$;

-- What only the engine can write together with a move: psql cannot decide about items that follow, nor tell a parent. `p_general` is what
-- items follow where they do not name the command.
CREATE FUNCTION waypost.check_plain(p_run waypost.runs, p_command text, p_general text) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_why text := CASE
    WHEN p_general IS NOT NULL AND p_run.parent_run_id IS NOT NULL AND EXISTS (SELECT 1 FROM waypost.lifecycle_states s
      WHERE s.code = p_run.state AND s.lifecycle = 'operation') THEN 'its parent has to be told'
    WHEN waypost.follows(p_run, p_command, p_general, NULL) <> '[]' THEN 'its items have to follow' END;
BEGIN
  IF v_why IS NOT NULL THEN
    PERFORM waypost.refuse('WP501', format('NOT_PLAIN: %s of %s takes the engine: %s', p_command, p_run.run_id, v_why),
      'Ask waypost for it: its command line, its HTTP interface or a worker of its own.');
  END IF;
END $$;

-- A patch laid over what is there, member by member. The bound is on the text as PostgreSQL writes it, which is never
-- shorter than what the engine counts: what passes here passes there.
CREATE FUNCTION waypost.merged(p_field text, p_into jsonb, p_patch jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_bytes int;
BEGIN
  IF coalesce(p_patch, '{}') = '{}' THEN
    RETURN p_into;
  END IF;
  v_bytes := octet_length((p_into || p_patch)::text);
  IF v_bytes > 1048576 THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: would be %s bytes long; at most 1048576 are allowed', p_field, v_bytes),
      'Keep large results elsewhere and put their address here.', p_field);
  END IF;
  RETURN p_into || p_patch;
END $$;

-- The same of a run's details: the members that the engine owns have room of their own, and a null takes one of them away.
CREATE FUNCTION waypost.merged_details(p_into jsonb, p_patch jsonb, p_state smallint) RETURNS jsonb LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_decisions jsonb;
  v_all jsonb;
  v_bytes int;
  v_member text;
BEGIN
  IF coalesce(p_patch, '{}') = '{}' THEN
    RETURN p_into;
  END IF;
  v_decisions := waypost.decisions(p_state);
  SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}') INTO v_all FROM jsonb_each(p_into || p_patch) m
    WHERE NOT (m.value = 'null' AND p_patch ? m.key AND waypost.engine_room(m.key, v_decisions) IS NOT NULL);
  SELECT octet_length(coalesce(jsonb_object_agg(m.key, m.value), '{}')::text) INTO v_bytes FROM jsonb_each(v_all) m
      WHERE waypost.engine_room(m.key, v_decisions) IS NULL;
  IF v_bytes > waypost.others_room() THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: details: would be %s bytes long; at most %s are allowed', v_bytes, waypost.others_room()),
      'Keep large results elsewhere and put their address here.', 'details');
  END IF;
  SELECT m.key, octet_length(m.value::text) INTO v_member, v_bytes FROM jsonb_each(p_patch) m
    WHERE octet_length(m.value::text) > waypost.engine_room(m.key, v_decisions) ORDER BY m.key LIMIT 1;
  IF FOUND THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: details.%s: is %s bytes long; at most %s are allowed', v_member, v_bytes,
        waypost.engine_room(v_member, v_decisions)),
      'Say it in fewer words.', 'details');
  END IF;
  RETURN v_all;
END $$;

-- What an event did, and what was merged with it; nothing for the common ones.
CREATE FUNCTION waypost.effect(p_effect jsonb, p_metadata jsonb, p_details jsonb) RETURNS json LANGUAGE plpgsql IMMUTABLE
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN nullif(p_effect
    || CASE WHEN coalesce(p_metadata, '{}') = '{}' THEN '{}' ELSE jsonb_build_object('metadata', p_metadata) END
    || CASE WHEN coalesce(p_details, '{}') = '{}' THEN '{}' ELSE jsonb_build_object('details', p_details) END, '{}')::json;
END $$;

-- The best due run of a tenant's queue: higher priority first, then the oldest. One row is locked at a time, so that claimers
-- beside each other find one each. Nothing if there is none, or the queue is paused or at its limit. `p_open` makes the lease an open one:
-- whoever holds that cannot move items, and so could not end a run that has some. Runs with a key are left to those who may wait for it.
-- Without the compiler: the price of a scan that is off would call it in, for 100 ms.
CREATE FUNCTION waypost.claim_one(p_queue text, p_lifecycle text, p_worker text, p_lease_ms bigint DEFAULT NULL, p_open boolean DEFAULT false,
    p_tenant text DEFAULT 'default')
  RETURNS SETOF waypost.written LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_states smallint[] := ARRAY(SELECT s.code FROM waypost.lifecycle_states s
    WHERE s.claim_to IS NOT NULL AND (p_lifecycle IS NULL OR s.lifecycle = p_lifecycle));
  v_queue waypost.queues;
  v_priority smallint;
  v_after timestamptz;
  v_after_rid bigint;
  v_found record;
  v_run waypost.runs;
BEGIN
  -- Before the queue is looked at: who pauses or limits it waits for claims that did not see that. One with a limit is counted by one
  -- claimer at a time.
  v_run.tenant := p_tenant;
  v_run.queue := p_queue;
  PERFORM waypost.lock_slots(v_run, true, true);
  SELECT q.* INTO v_queue FROM waypost.queues q WHERE q.name = p_queue AND q.tenant = p_tenant;
  IF v_queue.paused_at IS NOT NULL OR v_queue.at_most <= (SELECT count(*) FROM waypost.holders h
      WHERE h.of_queue AND h.name = p_queue AND h.tenant = p_tenant) THEN
    RETURN;
  END IF;
  FOR v_priority IN SELECT DISTINCT l.priority FROM waypost.lanes l WHERE l.queue = p_queue AND l.tenant = p_tenant ORDER BY l.priority DESC LOOP
    v_after := '-infinity';
    v_after_rid := 0;
    LOOP
      SELECT w.ctid AS tid, w.rid, w.seq, w.available_at INTO v_found FROM waypost.ready w
        WHERE w.queue = p_queue AND w.tenant = p_tenant AND w.priority = v_priority AND (w.available_at, w.rid) > (v_after, v_after_rid) AND w.available_at <= v_now
          AND w.state = ANY (v_states)
        ORDER BY w.available_at, w.rid LIMIT 1 FOR UPDATE SKIP LOCKED;
      EXIT WHEN NOT FOUND;
      v_after := v_found.available_at;
      v_after_rid := v_found.rid;
      SELECT r.* INTO v_run FROM waypost.runs r WHERE r.rid = v_found.rid FOR UPDATE SKIP LOCKED;
      IF FOUND AND v_run.seq = v_found.seq THEN
        -- What has outlived its time is the sweeper's.
        CONTINUE WHEN v_run.expires_at <= v_now OR v_run.concurrency_key IS NOT NULL OR p_open AND v_run.item_count > 0 OR v_run.tenant <> p_tenant;
        CONTINUE WHEN EXISTS (SELECT 1 FROM waypost.lifecycle_states s WHERE s.code = v_run.state
          AND (s.claim_needs_items AND v_run.item_count = 0 OR s.claim_shifts AND waypost.follows(v_run, 'claim', NULL, NULL) <> '[]'));
        RETURN QUERY SELECT c.* FROM waypost.taken(v_run, p_worker, p_lease_ms, p_open) c;
        RETURN;
      ELSIF FOUND OR NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = v_found.rid) THEN
        DELETE FROM waypost.ready w WHERE w.ctid = v_found.tid;
      END IF;
    END LOOP;
  END LOOP;
END $$;

-- A run that is locked comes into a worker's hands.
CREATE FUNCTION waypost.taken(p_run waypost.runs, p_worker text, p_lease_ms bigint, p_open boolean) RETURNS waypost.written LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_to waypost.lifecycle_states;
  v_run waypost.runs;
BEGIN
  SELECT h.* INTO v_to FROM waypost.lifecycle_states s JOIN waypost.lifecycle_states h ON h.code = s.claim_to WHERE s.code = p_run.state;
  v_run := waypost.enter(p_run, v_to.code, 'claim', 'worker', p_worker, v_now);
  v_run.lease_token := CASE WHEN p_open THEN waypost.open_token(v_run.rid, v_run.fence) ELSE gen_random_uuid() END;
  v_run.lease_ms := coalesce(p_lease_ms, v_to.lease_ms);
  v_run.stale_after := v_now + coalesce(v_to.deadline_ms, v_run.lease_ms) * interval '1 millisecond';
  RETURN waypost.save_one(p_run, v_run, 'claim', 'worker', p_worker);
END $$;

-- A heartbeat: never shortens, and leaves a deadline alone.
CREATE FUNCTION waypost.renew_one(p_run_id text, p_token uuid DEFAULT NULL, p_by text DEFAULT NULL) RETURNS waypost.written
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs := waypost.locked_run(p_run_id);
  v_after waypost.runs;
  v_state waypost.lifecycle_states;
BEGIN
  PERFORM waypost.check_lease(v_run, p_token, p_by);
  SELECT s.* INTO v_state FROM waypost.lifecycle_states s WHERE s.code = v_run.state;
  v_after := v_run;
  v_after.stale_after := greatest(v_run.stale_after, waypost.now() + v_run.lease_ms * interval '1 millisecond');
  IF v_state.deadline_ms IS NULL AND v_after.stale_after > v_run.stale_after THEN
    RETURN waypost.save_one(v_run, v_after, NULL);
  END IF;
  RETURN (v_run, v_state.state, NULL::bigint, v_run.seq, false);
END $$;

-- A holder's own event; the first one begins the work where the state waits for that. A repeat (the same key, or the
-- same words within the window) writes nothing and gives the first one.
CREATE FUNCTION waypost.note_one(p_run_id text, p_token uuid, p_by text, p_level text, p_message text, p_payload jsonb DEFAULT '{}',
    p_key text DEFAULT NULL, p_window_ms int DEFAULT NULL, p_metadata jsonb DEFAULT '{}', p_details jsonb DEFAULT '{}')
  RETURNS waypost.written LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_run waypost.runs := waypost.locked_run(p_run_id);
  v_payload jsonb := nullif(nullif(p_payload, '{}'), 'null');
  v_by text := coalesce(p_by, v_run.claimed_by);
  v_state waypost.lifecycle_states;
  v_after waypost.runs;
  v_position bigint;
  v_seq int;
BEGIN
  PERFORM waypost.check_lease(v_run, p_token, p_by);
  SELECT s.* INTO v_state FROM waypost.lifecycle_states s WHERE s.code = v_run.state;
  SELECT f.seq, f.position INTO v_seq, v_position FROM waypost.first_of(v_run.rid, p_key, p_window_ms, v_now, p_level, p_message, v_payload) f;
  IF v_seq IS NOT NULL THEN
    RETURN (v_run, v_state.state, v_position, v_seq, true);
  END IF;
  IF v_state.start_to IS NOT NULL THEN
    PERFORM waypost.check_plain(v_run, v_state.start_command, NULL);
    v_after := waypost.enter(v_run, v_state.start_to, v_state.start_command, 'worker', v_by, v_now);
    v_after.stale_after := v_now + v_run.lease_ms * interval '1 millisecond';
  ELSE
    v_after := waypost.enter(v_run, v_run.state, 'note', 'worker', v_by, v_now);
    IF v_state.deadline_ms IS NULL THEN
      v_after.stale_after := greatest(v_run.stale_after, v_now + v_run.lease_ms * interval '1 millisecond');
    END IF;
  END IF;
  RETURN waypost.save_one(v_run, v_after, coalesce(v_state.start_command, 'note'), 'worker', v_by, p_metadata => p_metadata, p_details => p_details,
    p_level => p_level, p_message => p_message, p_payload => v_payload, p_key => p_key);
END $$;

-- The event that this one would repeat. Looks back no further than the window: a run may have many events.
CREATE FUNCTION waypost.first_of(p_rid bigint, p_key text, p_window_ms int, p_now timestamptz, p_level text, p_message text, p_payload jsonb,
    OUT seq int, OUT "position" bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_event waypost.events;
  v_since timestamptz := p_now - p_window_ms * interval '1 millisecond';
BEGIN
  IF p_key IS NOT NULL THEN
    SELECT e.seq, e.position INTO seq, "position" FROM waypost.events e WHERE e.rid = p_rid AND e.key = p_key;
  ELSIF p_window_ms IS NOT NULL THEN
    FOR v_event IN SELECT e.* FROM waypost.events e WHERE e.rid = p_rid ORDER BY e.seq DESC LOOP
      -- Times within a run rise but for statements that waited for each other, hence the minute.
      EXIT WHEN v_event.at <= v_since - interval '1 minute';
      IF v_event.at > v_since AND v_event.level = p_level AND v_event.message = p_message AND v_event.payload IS NOT DISTINCT FROM p_payload THEN
        seq := v_event.seq;
        "position" := v_event.position;
      END IF;
    END LOOP;
  END IF;
END $$;

-- A digest of what a finish brings along, as the engine has it (`rules/finish.rs`): 32 bits for each of error, metadata, details and items. A
-- finish in SQL brings metadata, and what it says of an error stands there.
CREATE FUNCTION waypost.finish_brings(p_metadata jsonb) RETURNS uuid LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_digest text := left(encode(sha256(convert_to(waypost.canonical(p_metadata), 'UTF8')), 'hex'), 8);
BEGIN
  RETURN CASE WHEN p_metadata <> '{}' THEN (repeat('0', 8) || CASE v_digest WHEN '00000000' THEN '00000001' ELSE v_digest END || repeat('0', 16))::uuid END;
END $$;

-- Leaves a run's last event and its row settled; with `p_via` it is begun and ended at once. The run is locked, and its key's slot.
CREATE FUNCTION waypost.settle_one(p_run waypost.runs, p_via smallint, p_start_command text, p_dst smallint, p_command text, p_actor text, p_by text,
    p_failure jsonb, p_reason text, p_metadata jsonb, p_details jsonb, p_brings uuid DEFAULT NULL)
  RETURNS waypost.written LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_effect jsonb := CASE WHEN p_failure IS NULL OR p_dst < 6000 THEN '{}'::jsonb ELSE jsonb_build_object('failure', p_failure) END
    || CASE WHEN p_reason IS NULL THEN '{}' ELSE jsonb_build_object('reason', p_reason) END;
  v_run waypost.runs := p_run;
BEGIN
  IF p_via IS NOT NULL THEN
    PERFORM waypost.check_plain(p_run, p_start_command, NULL);
    v_run := waypost.enter(v_run, p_via, p_start_command, p_actor, p_by, v_now);
  END IF;
  PERFORM waypost.check_plain(p_run, p_command, 'end');
  v_run := waypost.enter(v_run, p_dst, p_command, p_actor, p_by, v_now, v_effect);
  -- A worker's end is known by its token.
  v_run.ended_by := CASE p_actor WHEN 'worker' THEN p_run.lease_token END;
  v_run.ended_with := p_brings;
  RETURN waypost.save_one(p_run, v_run, p_command, p_actor, p_by, v_effect, p_metadata, p_details, p_via => p_via, p_via_command => p_start_command);
END $$;

-- The ways of a command from a state for this actor, in the order of the lifecycle's table.
CREATE FUNCTION waypost.ways(p_state smallint, p_actor text) RETURNS SETOF waypost.lifecycle_transitions LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT t.* FROM waypost.lifecycle_transitions t WHERE t.src = p_state AND t.dst <> t.src
    AND (p_actor = ANY (t.actors) OR p_actor = 'operator' AND 'client' = ANY (t.actors)) ORDER BY t.place
$$;

-- Moves a held run to its end. The same finish sent again is answered as the first time, and one that brings other metadata is another finish;
-- a cancel that came first is final.
CREATE FUNCTION waypost.finish_one(p_run_id text, p_token uuid, p_by text, p_status text, p_error_code text DEFAULT NULL,
    p_error_msg text DEFAULT NULL,
    p_reason text DEFAULT NULL, p_metadata jsonb DEFAULT '{}', p_details jsonb DEFAULT '{}')
  RETURNS waypost.written LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs := waypost.locked_run(p_run_id, true);
  v_token uuid := coalesce(p_token, waypost.open_token(v_run.rid, v_run.fence));
  v_by text := coalesce(p_by, v_run.claimed_by);
  v_from waypost.lifecycle_states;
  v_to waypost.lifecycle_states;
  v_way waypost.lifecycle_transitions;
  v_via waypost.lifecycle_states;
  v_failure jsonb := CASE WHEN p_error_code IS NOT NULL THEN jsonb_build_object('code', p_error_code, 'message', coalesce(p_error_msg, '')) END;
  v_reason text := coalesce(p_reason, v_run.intent ->> 'reason');
  v_cancelling boolean := coalesce(v_run.intent ->> 'want' = 'cancel', false);
  v_brings uuid := waypost.finish_brings(p_metadata);
BEGIN
  SELECT s.* INTO v_from FROM waypost.lifecycle_states s WHERE s.code = v_run.state;
  SELECT s.* INTO v_to FROM waypost.lifecycle_states s WHERE s.lifecycle = v_from.lifecycle AND s.version = v_from.version AND s.state = p_status;
  IF NOT FOUND THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: status: there is no %s', quote_literal(left(p_status, 80))),
      'Allowed: ' || (SELECT string_agg(s.state, ', ') FROM waypost.lifecycle_states s WHERE s.lifecycle = v_from.lifecycle
          AND s.version = v_from.version AND s.phase = 'settled'), 'status');
  END IF;
  IF v_from.phase <> 'held' AND v_run.ended_by = v_token THEN
    IF v_to.code <> v_run.state THEN
      PERFORM waypost.no_such_move(v_run, p_status);
    ELSIF v_brings IS NOT NULL AND left(v_brings::text, 18) IS DISTINCT FROM '00000000' || substr(v_run.ended_with::text, 9, 10) THEN
      PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s ended as %s already, with other metadata', v_run.run_id, p_status),
        'A finish can be sent again as it was, or without metadata.');
    END IF;
    RETURN (v_run, p_status, (SELECT e.position FROM waypost.events e WHERE e.rid = v_run.rid AND e.seq = v_run.seq), v_run.seq, true);
  END IF;
  PERFORM waypost.check_lease(v_run, p_token, p_by);
  IF v_run.requires_cleanup THEN
    PERFORM waypost.refuse('WP409', format('CLEANUP_OWED: %s ends only after its cleanup', v_run.run_id), 'Run the cleanup first.');
  ELSIF v_run.intent ->> 'want' = 'fail' THEN
    PERFORM waypost.refuse('WP501', format('NOT_PLAIN: a failure of %s was recorded first', v_run.run_id), 'Finish it through waypost.');
  END IF;
  -- Only the first command that leads there: a guard that fails must not fall through to another meaning.
  SELECT w.* INTO v_way FROM waypost.ways(v_run.state, 'worker') w WHERE w.dst = v_to.code AND (w.command = 'cancel' OR NOT v_cancelling) LIMIT 1;
  IF NOT FOUND AND NOT v_cancelling AND v_from.start_to IS NOT NULL THEN
    v_via := v_from;
    SELECT w.* INTO v_way FROM waypost.ways(v_from.start_to, 'worker') w WHERE w.dst = v_to.code LIMIT 1;
  END IF;
  IF v_way.dst IS NULL AND v_cancelling THEN
    PERFORM waypost.refuse('WP412', format('CANCEL_REQUESTED: a cancel of %s came first', v_run.run_id), 'Finish it as '
      || coalesce((SELECT string_agg(waypost.status_of(w.dst), ' or ') FROM waypost.ways(v_run.state, 'worker') w WHERE w.command = 'cancel'), 'that')
      || ', with p_worker_id or p_lease_token.');
  ELSIF v_way.dst IS NULL THEN
    PERFORM waypost.no_such_move(v_run, p_status);
  ELSIF v_way.guards <> 0 OR v_to.phase <> 'settled' THEN
    PERFORM waypost.refuse('WP501', format('NOT_PLAIN: %s of %s takes the engine: it is guarded', p_status, v_run.run_id),
      'Finish it through waypost.');
  END IF;
  IF v_cancelling THEN
    v_failure := jsonb_build_object('code', v_way.error_code, 'message', coalesce(v_run.intent ->> 'reason', 'cancel by '
        || (v_run.intent ->> 'by')));
  ELSIF v_failure IS NULL AND v_way.error_code IS NOT NULL THEN
    v_failure := jsonb_build_object('code', v_way.error_code, 'message', coalesce(v_reason, v_way.command || ' by ' || v_by));
  END IF;
  RETURN waypost.settle_one(v_run, v_via.start_to, v_via.start_command, v_way.dst, v_way.command, 'worker', v_by, v_failure, v_reason,
    p_metadata, p_details, v_brings);
END $$;

-- What a person wants of a run. At once if nobody holds it or nothing was begun; else it is stored, delivered with the
-- holder's next heartbeat, and final even if the holder dies first.
CREATE FUNCTION waypost.cancel_one(p_run_id text, p_by text, p_reason text DEFAULT NULL, p_metadata jsonb DEFAULT '{}', p_details jsonb DEFAULT '{}',
    p_actor text DEFAULT 'client', p_graceful boolean DEFAULT false)
  RETURNS waypost.written LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_run waypost.runs := waypost.locked_run(p_run_id, true);
  v_from waypost.lifecycle_states;
  v_way waypost.lifecycle_transitions;
  v_intent jsonb := jsonb_build_object('want', 'cancel', 'by', p_by) || CASE WHEN p_reason IS NULL THEN '{}' ELSE jsonb_build_object('reason',
      p_reason) END
    || CASE WHEN p_graceful THEN '{"graceful": true}'::jsonb ELSE '{}' END;
  v_effect jsonb := jsonb_build_object('intent', v_intent);
BEGIN
  SELECT s.* INTO v_from FROM waypost.lifecycle_states s WHERE s.code = v_run.state;
  SELECT w.* INTO v_way FROM waypost.ways(v_run.state, p_actor) w WHERE w.command = 'cancel' LIMIT 1;
  IF NOT FOUND THEN
    IF v_run.last_command = 'cancel' AND EXISTS (SELECT 1 FROM waypost.lifecycle_states s
        CROSS JOIN LATERAL waypost.ways(s.code, p_actor) w
        WHERE s.lifecycle = v_from.lifecycle AND s.version = v_from.version AND w.dst = v_run.state AND w.command = 'cancel') THEN
      RETURN (v_run, v_from.state, (SELECT e.position FROM waypost.events e WHERE e.rid = v_run.rid AND e.seq = v_run.seq), v_run.seq, true);
    END IF;
    PERFORM waypost.no_such_move(v_run, 'cancel');
  END IF;
  IF v_run.intent ->> 'want' = 'cancel' AND (p_graceful OR v_run.intent -> 'graceful' IS NULL) THEN
    RETURN (v_run, v_from.state, NULL::bigint, v_run.seq, true);
  END IF;
  IF v_from.phase <> 'held' OR NOT v_run.requires_cleanup AND (v_from.deadline_ms IS NOT NULL OR v_run.claimed_by IS NULL OR v_run.stale_after < v_now)
      THEN
    IF v_way.guards <> 0 THEN
      PERFORM waypost.refuse('WP501', format('NOT_PLAIN: cancel of %s takes the engine: it is guarded', v_run.run_id),
          'Ask waypost for it: waypost run cancel.');
    END IF;
    RETURN waypost.settle_one(v_run, NULL, NULL, v_way.dst, 'cancel', p_actor, p_by,
      jsonb_build_object('code', v_way.error_code, 'message', coalesce(p_reason, 'cancel by ' || p_by)), p_reason, p_metadata, p_details);
  END IF;
  RETURN waypost.save_one(v_run, waypost.enter(v_run, v_run.state, 'cancel', p_actor, p_by, v_now, v_effect), 'cancel', p_actor, p_by, v_effect,
    p_metadata, p_details);
END $$;
