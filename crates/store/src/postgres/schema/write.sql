-- What `waypost.save` and `waypost.insert` do beside the runs themselves. See functions.rs for the two, and for the settings of a planner that
-- takes the indexes whatever it thinks of the tables' sizes, and plans once.

-- A number that rises with every lifecycle that is added: who knows it knows them all.
CREATE FUNCTION waypost.known() RETURNS bigint LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN coalesce((SELECT m.value::bigint FROM waypost.meta m WHERE m.key = 'lifecycles'), 0);
END $$;

CREATE FUNCTION waypost.lifecycle_added() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO waypost.meta VALUES ('lifecycles', '1') ON CONFLICT (key) DO UPDATE SET value = (waypost.meta.value::bigint + 1)::text;
  RETURN NULL;
END $$;
CREATE TRIGGER lifecycles_added AFTER INSERT OR UPDATE ON waypost.lifecycles FOR EACH STATEMENT EXECUTE FUNCTION waypost.lifecycle_added();

CREATE FUNCTION waypost.at(p_micros bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT
  RETURN 'epoch'::timestamptz + p_micros * interval '1 microsecond';

-- Members laid over what is there; a null takes one of the engine's away.
CREATE FUNCTION waypost.patched(p_into jsonb, p_patch jsonb, p_state smallint) RETURNS jsonb LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp
  RETURN (p_into || p_patch) - ARRAY(SELECT m.key FROM jsonb_each(p_patch) m
    WHERE CASE WHEN m.value = 'null' THEN waypost.engine_room(m.key, waypost.decisions(p_state)) IS NOT NULL END);

-- Takes the log's new blocks into the indexes that the feed is read by. It does not wait for a vacuum, which does the same at its end, and
-- gives up long before the server would end that vacuum for its sake.
CREATE FUNCTION waypost.index_log() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
  PERFORM brin_summarize_new_values('waypost.events_position'), brin_summarize_new_values('waypost.events_begun');
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

-- The gate of a tenant's queue: who begins runs of it shares it, who pauses or limits it has it alone. So a limit or a pause that was answered
-- is known to every claim that comes after. Nobody waits long: who finds it shut, or wants it alone, gives up after a while and tries again.
-- Who claims for all tenants enters one gate of a queue for all of them, which whoever shuts a tenant's shuts too: so one tenant's open
-- claims keep no other from its pause, and a claim for all needs no lock for each. Gates are called `tenant/queue`, and `*/queue`.
CREATE FUNCTION waypost.gate(p_tenant text, p_queue text) RETURNS text LANGUAGE sql IMMUTABLE
  RETURN p_tenant || '/' || p_queue;
CREATE FUNCTION waypost.enter_gates(p_gates text[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(g.gate) FROM (SELECT DISTINCT hashtextextended(u.name, 7004) AS gate FROM unnest(p_gates) u(name) ORDER BY 1 OFFSET 0) g;
END $$;
CREATE FUNCTION waypost.shut_gate(p_tenant text, p_queue text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(waypost.gate('*', p_queue), 7004));
  PERFORM pg_advisory_xact_lock(hashtextextended(waypost.gate(p_tenant, p_queue), 7004));
END $$;

-- The slots of keys, in one order, before any run is locked.
CREATE FUNCTION waypost.lock_keys(p_tenants text[], p_keys text[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(k.slot) FROM (SELECT DISTINCT waypost.slot(false, u.tenant, u.name) AS slot FROM unnest(p_tenants, p_keys) u(tenant, name)
    ORDER BY 1 OFFSET 0) k;
END $$;

-- The same for one run, for callers in SQL: who waits in vain is told so. Without patience where a run may be locked already, as in a
-- trigger: who has the slot may be waiting for that run.
CREATE FUNCTION waypost.lock_slots(p_run waypost.runs, p_begins boolean, p_patient boolean DEFAULT false) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET lock_timeout = '800ms' AS $$
BEGIN
  IF NOT p_begins AND p_run.concurrency_key IS NULL THEN
    RETURN;
  END IF;
  BEGIN
    IF p_patient THEN
      PERFORM set_config('lock_timeout', '5s', true);
    END IF;
    IF p_begins THEN
      PERFORM pg_advisory_xact_lock_shared(hashtextextended(waypost.gate(p_run.tenant, p_run.queue), 7004));
      PERFORM pg_advisory_xact_lock(waypost.slot(true, q.tenant, q.name)) FROM waypost.queues q
        WHERE q.name = p_run.queue AND q.tenant = p_run.tenant AND q.at_most IS NOT NULL;
    END IF;
    IF p_run.concurrency_key IS NOT NULL THEN
      PERFORM pg_advisory_xact_lock(waypost.slot(false, p_run.tenant, p_run.concurrency_key));
    END IF;
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    PERFORM waypost.refuse('WP423', format('BUSY: others are at the slots that %s needs', coalesce(p_run.run_id, 'queue ' || p_run.queue)),
      'Try again; nothing was written.');
  END;
END $$;

-- Whoever begins a run keeps to what claims keep to. The slots are locked.
CREATE FUNCTION waypost.check_begin(p_run waypost.runs) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_queue waypost.queues;
BEGIN
  IF p_run.state / 1000 = 2 AND p_run.available_at > v_now THEN
    PERFORM waypost.refuse('WP409', format('NOT_DUE: %s is not to be begun before %s', p_run.run_id, p_run.available_at), 'Begin it then.');
  ELSIF p_run.expires_at <= v_now AND EXISTS (SELECT 1 FROM waypost.lifecycle_states s WHERE s.code = p_run.state AND s.expires) THEN
    PERFORM waypost.refuse('WP409', format('NOT_DUE: %s was to be begun before %s', p_run.run_id, p_run.expires_at), 'Queue a new one.');
  END IF;
  SELECT q.* INTO v_queue FROM waypost.queues q WHERE q.name = p_run.queue AND q.tenant = p_run.tenant;
  IF v_queue.paused_at IS NOT NULL THEN
    PERFORM waypost.refuse('WP409', format('PAUSED: queue %s is paused', quote_literal(p_run.queue)), 'Begin it when the queue goes on.');
  ELSIF v_queue.at_most <= (SELECT count(*) FROM waypost.holders h WHERE h.of_queue AND h.name = p_run.queue AND h.tenant = p_run.tenant) THEN
    PERFORM waypost.refuse('WP409', format('NO_SLOT: queue %s is at its limit of %s', quote_literal(p_run.queue), v_queue.at_most),
      'Begin it when another one has ended.');
  ELSIF p_run.concurrency_key IS NOT NULL AND coalesce((SELECT k.at_most FROM waypost.key_limits k
        WHERE k.name = p_run.concurrency_key AND k.tenant = p_run.tenant), 1)
      <= (SELECT count(*) FROM waypost.holders h WHERE NOT h.of_queue AND h.name = p_run.concurrency_key AND h.tenant = p_run.tenant) THEN
    PERFORM waypost.refuse('WP409', format('NO_SLOT: concurrency key %s is at its limit', quote_literal(p_run.concurrency_key)),
      'Begin it when another one has ended.');
  END IF;
END $$;

-- A ready run's places in its queue that nobody is looking at.
CREATE FUNCTION waypost.entries_of(p_run waypost.runs) RETURNS text[] LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
  RETURN ARRAY(SELECT w.ctid::text FROM waypost.ready w WHERE w.queue = p_run.queue AND w.tenant = p_run.tenant AND w.priority = p_run.priority
    AND w.available_at = p_run.available_at AND w.rid = p_run.rid FOR UPDATE SKIP LOCKED);
END $$;

-- Who comes into somebody's hands takes slots of its key and of a queue with a limit; who leaves gives them back, and who is `p_vacated`
-- that of its queue. `p_keyed`: some of them have a key.
CREATE FUNCTION waypost.save_slots(p_taken bigint[], p_left bigint[], p_vacated bigint[], p_keyed boolean) RETURNS void LANGUAGE plpgsql {settings} AS $$
BEGIN
  IF p_left IS NOT NULL AND EXISTS (SELECT 1 FROM waypost.holders) THEN
    DELETE FROM waypost.holders h WHERE h.rid = ANY (p_left);
  END IF;
  IF p_vacated IS NOT NULL THEN
    DELETE FROM waypost.holders h WHERE h.of_queue AND h.rid = ANY (p_vacated);
  END IF;
  IF p_taken IS NOT NULL AND p_keyed THEN
    INSERT INTO waypost.holders(of_queue, tenant, name, rid)
      SELECT false, r.tenant, r.concurrency_key, r.rid FROM unnest(p_taken) u(rid) JOIN waypost.runs r ON r.rid = u.rid WHERE r.concurrency_key IS NOT NULL
      ON CONFLICT DO NOTHING;
  END IF;
  IF p_taken IS NOT NULL AND EXISTS (SELECT 1 FROM waypost.queues q WHERE q.at_most IS NOT NULL) THEN
    INSERT INTO waypost.holders(of_queue, tenant, name, rid)
      SELECT true, q.tenant, q.name, r.rid FROM unnest(p_taken) u(rid) JOIN waypost.runs r ON r.rid = u.rid
          JOIN waypost.queues q ON q.name = r.queue AND q.tenant = r.tenant
        WHERE q.at_most IS NOT NULL AND r.claimed_by IS NOT NULL ON CONFLICT DO NOTHING;
  END IF;
END $$;

-- Lanes come last, and in order: a row of theirs stays locked until the commit. Those in which runs became ready have to be there; what lies
-- where claimers may have been already, because it was due before or waited for a key, makes them look from the beginning. Says whether
-- there is something to claim.
CREATE FUNCTION waypost.save_lanes(p_lane_tenants text[], p_lanes text[], p_priorities smallint[], p_late boolean[], p_key_tenants text[], p_keys text[])
  RETURNS boolean LANGUAGE plpgsql {settings} AS $$
DECLARE
  v_tenants text[] := '{}';
  v_queues text[] := '{}';
  v_priorities smallint[] := '{}';
  v_key record;
  v_in record;
BEGIN
  IF cardinality(p_lanes) > 0 THEN
    INSERT INTO waypost.lanes(tenant, queue, priority) SELECT n.tenant, n.queue, n.priority FROM unnest(p_lane_tenants, p_lanes, p_priorities) n(tenant, queue, priority)
      WHERE NOT EXISTS (SELECT 1 FROM waypost.lanes l WHERE l.tenant = n.tenant AND l.queue = n.queue AND l.priority = n.priority);
    SELECT coalesce(array_agg(n.tenant), '{}'), coalesce(array_agg(n.queue), '{}'), coalesce(array_agg(n.priority), '{}') INTO v_tenants, v_queues, v_priorities
      FROM unnest(p_lane_tenants, p_lanes, p_priorities, p_late) n(tenant, queue, priority, late) WHERE n.late;
  END IF;
  IF cardinality(p_keys) > 0 THEN
    FOR v_key IN SELECT DISTINCT u.tenant, u.key FROM unnest(p_key_tenants, p_keys) u(tenant, key) LOOP
      FOR v_in IN SELECT DISTINCT c.queue, c.priority FROM waypost.let_in(v_key.tenant, v_key.key) c LOOP
        v_tenants := v_tenants || v_key.tenant;
        v_queues := v_queues || v_in.queue;
        v_priorities := v_priorities || v_in.priority;
      END LOOP;
    END LOOP;
  END IF;
  IF cardinality(v_queues) > 0 THEN
    PERFORM 1 FROM waypost.lanes l WHERE (l.tenant, l.queue, l.priority) IN (SELECT * FROM unnest(v_tenants, v_queues, v_priorities))
      ORDER BY l.tenant, l.queue, l.priority, l.ctid FOR UPDATE;
    UPDATE waypost.lanes l SET revision = l.revision + 1 WHERE (l.tenant, l.queue, l.priority) IN (SELECT * FROM unnest(v_tenants, v_queues, v_priorities));
  END IF;
  RETURN coalesce(cardinality(p_lanes), 0) > 0 OR cardinality(v_queues) > 0;
END $$;

-- Events that are not the last of their change; `place` is their run's, `offset` theirs in the log.
CREATE FUNCTION waypost.save_events(p_events jsonb, p_base bigint, p_won int[], p_now timestamptz) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- own write
  INSERT INTO waypost.events(position, rid, seq, at, src, dst, command, actor, who, level, message, payload, effect, key)
  SELECT p_base + e."offset", e.rid, e.seq, p_now, e.src, e.dst, e.command, e.actor, e.who, e.level, e.message, e.payload::jsonb, e.effect::json, e.key
    FROM jsonb_to_recordset(p_events) e(place int, "offset" int, rid bigint, seq int, src smallint, dst smallint, command text, actor text, who text,
      level text, message text, payload text, effect text, key text)
    WHERE e.place = ANY (p_won);
END $$;

-- The items of new runs.
CREATE FUNCTION waypost.insert_items(p_items jsonb, p_before bigint, p_made int[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- own write
  INSERT INTO waypost.items(rid, kind, key, version, place, name, status, max_retries, reruns, role, stays, details, seq, progress, not_before,
      attempts, try_no, throttled, waited_ms, in_doubt, error_code, error_msg, started_at, finished_at, output)
  SELECT p_before + b.run, b.kind, b.key, b.version, b.place, b.name, b.status, b.max_retries, b.reruns, b.role, b.stays, b.details, b.seq, b.progress,
      waypost.at(b.not_before), coalesce(c.attempts, 0), coalesce(c.try_no, 1), coalesce(c.throttled, 0), coalesce(c.waited_ms, 0), coalesce(c.in_doubt, false), c.error_code, c.error_msg, c.started_at, c.finished_at, c.output
    FROM jsonb_to_recordset(p_items) b(run int, kind text, key text, version int, place int, name text, status text, max_retries int, reruns boolean,
      role text, stays boolean, details jsonb, seq int, progress smallint, not_before bigint, copy_of bigint)
      -- What a copy has of the old run's item goes from row to row: nothing that it gave is written anew.
      LEFT JOIN waypost.items c ON c.rid = b.copy_of AND c.kind = b.kind AND c.key = b.key
    WHERE b.run = ANY (p_made);
END $$;

-- Items of runs that are to be written: added, changed, and moved along with their run. They come before the runs, whose guards count them,
-- and what was written cannot be taken back for one run of many: so the runs are locked first, if they are still what was decided on. Gives
-- those that are not.
CREATE FUNCTION waypost.save_items(p_rid bigint[], p_was_seq int[], p_was_stale timestamptz[], p_more jsonb, p_now timestamptz) RETURNS bigint[] LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
DECLARE
  v_asked bigint[];
  v_same bigint[];
  v_count int;
  v_shift record;
BEGIN
  SELECT coalesce(array_agg(DISTINCT (i.it ->> 'rid')::bigint), '{}') INTO v_asked
    FROM (SELECT jsonb_array_elements(coalesce(p_more -> 'born', '[]') || coalesce(p_more -> 'items', '[]') || coalesce(p_more -> 'shifts', '[]')) AS it) i;
  IF v_asked = '{}' THEN
    RETURN v_asked;
  END IF;
  SELECT coalesce(array_agg(s.rid), '{}') INTO v_same FROM (
    SELECT r.rid FROM unnest(p_rid, p_was_seq, p_was_stale) u(rid, seq, stale) JOIN waypost.runs r ON r.rid = u.rid
      WHERE u.rid = ANY (v_asked) AND r.seq = u.seq AND r.stale_after IS NOT DISTINCT FROM u.stale ORDER BY r.rid FOR UPDATE OF r) s;
  IF p_more -> 'born' IS NOT NULL THEN
    -- Who takes an item for new that is there has not seen it: that run is read again.
    v_same := ARRAY(SELECT u.rid FROM unnest(v_same) u(rid) WHERE NOT EXISTS (SELECT 1 FROM jsonb_to_recordset(p_more -> 'born') b(rid bigint, kind text, key text)
      JOIN waypost.items i ON i.rid = b.rid AND i.kind = b.kind AND i.key = b.key WHERE b.rid = u.rid));
    -- own write
    INSERT INTO waypost.items(rid, kind, key, version, place, name, status, max_retries, reruns, role, stays, details, seq, progress, not_before)
    SELECT b.rid, b.kind, b.key, b.version, b.place, b.name, b.status, b.max_retries, b.reruns, b.role, b.stays, b.details, b.seq, b.progress,
        waypost.at(b.not_before)
      FROM jsonb_to_recordset(p_more -> 'born') b(rid bigint, kind text, key text, version int, place int, name text, status text, max_retries int,
        reruns boolean, role text, stays boolean, details jsonb, seq int, progress smallint, not_before bigint)
      WHERE b.rid = ANY (v_same);
  END IF;
  -- own write
  UPDATE waypost.items i SET status = u.status, attempts = u.attempts, try_no = u.try_no, throttled = u.throttled, waited_ms = u.waited_ms, in_doubt = u.in_doubt, progress = u.progress, not_before = waypost.at(u.not_before),
      discarded = u.discarded, stays = coalesce(u.stays, i.stays), error_code = u.error_code, error_msg = u.error_msg, started_at = waypost.at(u.started_at),
      finished_at = waypost.at(u.finished_at), seq = coalesce(u.seq, i.seq), output = coalesce(u.output, i.output), details = i.details || coalesce(u.details, '{}')
    FROM jsonb_to_recordset(coalesce(p_more -> 'items', '[]')) u(rid bigint, kind text, key text, seq int, status text, attempts int, try_no int,
      throttled int, waited_ms int, in_doubt boolean,
      progress smallint, not_before bigint, discarded boolean, stays boolean, error_code text, error_msg text, started_at bigint, finished_at bigint,
      output jsonb, details jsonb)
    WHERE u.rid = ANY (v_same) AND i.rid = u.rid AND i.kind = u.kind AND i.key = u.key;
  FOR v_shift IN SELECT s.* FROM jsonb_to_recordset(coalesce(p_more -> 'shifts', '[]')) s(rid bigint, kind text, src text, dst text, seq int, count int,
      chosen jsonb, failure jsonb) WHERE s.rid = ANY (v_same)
  LOOP
    v_count := waypost.shift_items(v_shift.rid, v_shift.kind, v_shift.src, v_shift.dst, v_shift.seq, p_now, v_shift.chosen, v_shift.failure);
    IF v_count <> v_shift.count THEN
      RAISE EXCEPTION 'CHANGED: % of % items follow', v_count, v_shift.count USING ERRCODE = 'serialization_failure';
    END IF;
  END LOOP;
  RETURN ARRAY(SELECT a.rid FROM unnest(v_asked) a(rid) WHERE a.rid <> ALL (v_same));
END $$;

-- Whether nobody knows what came of an item that is moved so without its worker: it was outside. Items that stop their run have a course.
CREATE FUNCTION waypost.is_lost(p_src waypost.lifecycle_states, p_dst waypost.lifecycle_states) RETURNS boolean LANGUAGE sql IMMUTABLE
  SET search_path = pg_catalog, pg_temp RETURN p_src.phase = 'held' AND p_src.course IS NULL AND p_dst.outcome IS DISTINCT FROM 'succeeded';

-- Items that move because their run did (one that has this event's number already came from elsewhere by it): all of a kind and state that do not stay, or the chosen ones. The twin of the engine's `follow`.
CREATE FUNCTION waypost.shift_items(p_rid bigint, p_kind text, p_src text, p_dst text, p_seq int, p_at timestamptz, p_chosen jsonb, p_failure jsonb)
  RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_version int := (SELECT i.version FROM waypost.items i WHERE i.rid = p_rid AND i.kind = p_kind LIMIT 1);
  v_src waypost.lifecycle_states;
  v_dst waypost.lifecycle_states;
  v_revives boolean;
  v_is_lost boolean;
  v_count int;
BEGIN
  SELECT s.* INTO v_src FROM waypost.lifecycle_states s WHERE s.lifecycle = p_kind AND s.version = v_version AND s.state = p_src;
  SELECT s.* INTO v_dst FROM waypost.lifecycle_states s WHERE s.lifecycle = p_kind AND s.version = v_version AND s.state = p_dst;
  v_revives := v_src.phase = 'settled' AND v_dst.phase <> 'settled';
  v_is_lost := waypost.is_lost(v_src, v_dst);
  -- own write
  UPDATE waypost.items i SET status = p_dst, seq = p_seq, not_before = NULL,
      started_at = CASE WHEN v_dst.phase = 'held' THEN coalesce(i.started_at, p_at) ELSE i.started_at END,
      finished_at = CASE WHEN v_dst.phase = 'settled' THEN p_at WHEN v_revives THEN NULL ELSE i.finished_at END,
      attempts = CASE WHEN v_revives THEN 0 ELSE i.attempts END,
      throttled = CASE WHEN v_revives THEN 0 ELSE i.throttled END,
      waited_ms = CASE WHEN v_revives THEN 0 ELSE i.waited_ms END,
      in_doubt = i.in_doubt OR v_is_lost,
      progress = CASE WHEN v_dst.outcome = 'succeeded' THEN 100 WHEN v_revives THEN 0 ELSE i.progress END,
      error_code = CASE WHEN v_dst.outcome = 'succeeded' THEN NULL WHEN p_failure IS NOT NULL THEN p_failure ->> 'code' WHEN v_revives THEN NULL ELSE i.error_code END,
      error_msg = CASE WHEN v_dst.outcome = 'succeeded' THEN NULL WHEN p_failure IS NOT NULL THEN p_failure ->> 'message' WHEN v_revives THEN NULL ELSE i.error_msg END
    WHERE i.rid = p_rid AND i.kind = p_kind AND i.status = p_src AND NOT i.stays AND i.seq <> p_seq
      -- A set that is made once: `p_chosen ? i.key` would read all of the chosen for each.
      AND (p_chosen IS NULL OR i.key IN (SELECT c.key FROM jsonb_array_elements_text(p_chosen) c(key)));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- Of a run's targets those with these keys (`what` 0), at most `p_take` that are due (1), and the first that is ready behind them (2). Those
-- whose time has come go before those that were never tried: they have waited already. All nulls are alike, but the planner does not know it: only
-- with `not_before` before `place` does it read in the index's order. Else it reads and sorts all that is ready for each batch.
CREATE FUNCTION waypost.targets(p_rid bigint, p_kind text, p_keys text[], p_ready text, p_now timestamptz, p_take int)
  RETURNS TABLE(what int, it waypost.items) LANGUAGE plpgsql {settings} AS $$
DECLARE
  -- The index has them in order for each role; what that is does not matter here.
  c_roles CONSTANT text[] := '{step,optional,cleanup}';
  v_left int := p_take;
  v_met int;
  v_role text;
BEGIN
  RETURN QUERY SELECT 0, n.d FROM unnest(p_keys) u(key) CROSS JOIN LATERAL (SELECT i AS d FROM waypost.items i
    WHERE i.rid = p_rid AND i.kind = p_kind AND i.key = u.key OFFSET 0) n;
  FOREACH v_role IN ARRAY c_roles LOOP
    RETURN QUERY SELECT CASE WHEN row_number() OVER () > v_left THEN 2 ELSE 1 END, x.d FROM (SELECT i FROM waypost.items i WHERE i.rid = p_rid
      AND i.kind = p_kind AND i.status = p_ready AND i.role = v_role AND i.not_before <= p_now ORDER BY i.not_before, i.place LIMIT v_left + 1) x(d);
    GET DIAGNOSTICS v_met = ROW_COUNT;
    v_left := v_left - v_met;
    IF v_left < 0 THEN
      RETURN;
    END IF;
  END LOOP;
  FOREACH v_role IN ARRAY c_roles LOOP
    RETURN QUERY SELECT CASE WHEN row_number() OVER () > v_left THEN 2 ELSE 1 END, x.d FROM (SELECT i FROM waypost.items i WHERE i.rid = p_rid
      AND i.kind = p_kind AND i.status = p_ready AND i.role = v_role AND i.not_before IS NULL ORDER BY i.not_before, i.place LIMIT v_left + 1) x(d);
    GET DIAGNOSTICS v_met = ROW_COUNT;
    v_left := v_left - v_met;
    IF v_left < 0 THEN
      RETURN;
    END IF;
  END LOOP;
  FOREACH v_role IN ARRAY c_roles LOOP
    RETURN QUERY SELECT 2, i FROM waypost.items i WHERE i.rid = p_rid AND i.kind = p_kind AND i.status = p_ready AND i.role = v_role
      AND i.not_before > p_now ORDER BY i.not_before LIMIT 1;
  END LOOP;
END $$;

-- What claims of these queues find, of one tenant or of all: a row for each lane, and one for a queue without any. Enters their gates: what is
-- said here holds until the transaction ends. Those with a limit are counted by one claimer at a time. `repeated`: the worker has made a claim
-- with this key.
CREATE FUNCTION waypost.open_queues(p_tenant text, p_queues text[], p_worker text, p_key text) RETURNS TABLE(tenant text, queue text, paused boolean,
    room bigint, priority smallint, revision bigint, abandoned boolean, known bigint, repeated boolean) LANGUAGE plpgsql {settings} AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_abandoned boolean;
BEGIN
  -- Of two claims with one key, the second finds what the first took.
  IF p_key IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_worker || '/' || p_key, 7005));
  END IF;
  PERFORM waypost.enter_gates(ARRAY(SELECT waypost.gate(coalesce(p_tenant, '*'), u.name) FROM unnest(p_queues) u(name)));
  PERFORM pg_advisory_xact_lock(l.slot) FROM (SELECT waypost.slot(true, q.tenant, q.name) AS slot FROM waypost.queues q
    WHERE q.name = ANY (p_queues) AND (p_tenant IS NULL OR q.tenant = p_tenant) AND q.at_most IS NOT NULL AND q.paused_at IS NULL ORDER BY 1 OFFSET 0) l;
  v_abandoned := EXISTS (SELECT 1 FROM waypost.watch w WHERE NOT w.abandoned AND w.due_at < v_now)
    OR EXISTS (SELECT 1 FROM waypost.watch w WHERE w.abandoned AND w.due_at <= v_now);
  RETURN QUERY
    SELECT coalesce(l.tenant, p_tenant), u.name, coalesce(q.paused_at IS NOT NULL, false),
        CASE WHEN q.at_most IS NOT NULL THEN q.at_most - (SELECT count(*) FROM waypost.holders h WHERE h.of_queue AND h.name = q.name AND h.tenant = q.tenant) END,
        l.priority, l.revision, v_abandoned, waypost.known(),
        p_key IS NOT NULL AND EXISTS (SELECT 1 FROM waypost.claims c WHERE c.worker = p_worker AND c.key = p_key)
      FROM (SELECT DISTINCT n.name FROM unnest(p_queues) n(name)) u
        LEFT JOIN LATERAL (SELECT a.tenant, a.priority, sum(a.revision)::bigint AS revision FROM waypost.lanes a
          WHERE a.queue = u.name AND (p_tenant IS NULL OR a.tenant = p_tenant) GROUP BY a.tenant, a.priority) l ON true
        LEFT JOIN waypost.queues q ON q.name = u.name AND q.tenant = coalesce(l.tenant, p_tenant);
END $$;

-- How many more runs with each of these tenants' keys may be taken; keys that somebody else counts at the moment are left out. Counted after
-- they are locked, by a statement of its own. `p_worked`: for one that nobody has though it is held, so that only those count that somebody has.
CREATE FUNCTION waypost.free_slots(p_tenants text[], p_keys text[], p_worked boolean) RETURNS TABLE(tenant text, name text, free bigint) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_places int[];
BEGIN
  v_places := ARRAY(SELECT k.place FROM (SELECT u.place::int, waypost.slot(false, u.tenant, u.name) AS slot
      FROM unnest(p_tenants, p_keys) WITH ORDINALITY u(tenant, name, place) ORDER BY 2 OFFSET 0) k WHERE pg_try_advisory_xact_lock(k.slot));
  RETURN QUERY SELECT p_tenants[u.place], p_keys[u.place],
      greatest(coalesce((SELECT l.at_most FROM waypost.key_limits l WHERE l.name = p_keys[u.place] AND l.tenant = p_tenants[u.place]), 1), p_worked::int)
        - CASE WHEN p_worked THEN (SELECT count(r.claimed_by) FROM waypost.holders h JOIN waypost.runs r ON r.rid = h.rid
            WHERE NOT h.of_queue AND h.name = p_keys[u.place] AND h.tenant = p_tenants[u.place])
          ELSE (SELECT count(*) FROM waypost.holders h WHERE NOT h.of_queue AND h.name = p_keys[u.place] AND h.tenant = p_tenants[u.place]) END
    FROM unnest(v_places) u(place);
END $$;

-- No key waits while it has a free slot, whatever happened. One that somebody else is at is left to that one.
CREATE FUNCTION waypost.let_in_key(p_tenant text, p_key text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock(waypost.slot(false, p_tenant, p_key)) THEN
    RETURN false;
  END IF;
  RETURN waypost.save_lanes(NULL, NULL, NULL, NULL, ARRAY[p_tenant], ARRAY[p_key]);
END $$;

-- Who is held now counts from now on. Claims that did not see the limit have ended, and those that come will see it.
CREATE FUNCTION waypost.limit_queue(p_tenant text, p_queue text, p_at_most int) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_held bigint[];
BEGIN
  PERFORM waypost.shut_gate(p_tenant, p_queue);
  INSERT INTO waypost.queues(tenant, name, at_most) VALUES (p_tenant, p_queue, p_at_most) ON CONFLICT (name, tenant) DO UPDATE SET at_most = excluded.at_most;
  IF p_at_most IS NULL THEN
    DELETE FROM waypost.holders h WHERE h.of_queue AND h.name = p_queue AND h.tenant = p_tenant;
    RETURN;
  END IF;
  v_held := ARRAY(SELECT DISTINCT r.rid FROM waypost.watch w CROSS JOIN unnest(w.rids) u(rid) JOIN waypost.runs r ON r.rid = u.rid
    WHERE r.state / 1000 = 3 AND r.claimed_by IS NOT NULL AND r.queue = p_queue AND r.tenant = p_tenant);
  -- Locked, so that who leaves has left, or finds its slot to give back.
  v_held := ARRAY(SELECT l.rid FROM (SELECT r.rid FROM waypost.runs r WHERE r.rid = ANY (v_held) AND r.state / 1000 = 3 AND r.claimed_by IS NOT NULL ORDER BY r.rid FOR UPDATE) l);
  INSERT INTO waypost.holders(of_queue, tenant, name, rid) SELECT true, p_tenant, p_queue, u.rid FROM unnest(v_held) u(rid) ON CONFLICT DO NOTHING;
END $$;

-- Reminders of leases that are due. Gives how many there were.
CREATE FUNCTION waypost.look_at_reminders(p_now timestamptz, p_limit bigint) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  WITH due AS (SELECT w.ctid AS place, w.rids FROM waypost.watch w WHERE NOT w.abandoned AND w.due_at < p_now ORDER BY w.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM waypost.watch WHERE ctid = ANY (ARRAY(SELECT place FROM due))),
    held AS (SELECT DISTINCT r.rid, r.stale_after, r.claimed_by IS NULL OR r.stale_after < p_now AS abandoned
      FROM due CROSS JOIN unnest(due.rids) AS u(rid) JOIN waypost.runs r ON r.rid = u.rid WHERE r.state / 1000 = 3),
    kept AS (INSERT INTO waypost.watch(due_at, abandoned, rids)
      SELECT min(stale_after), false, array_agg(rid) FROM held WHERE NOT abandoned GROUP BY date_trunc('second', stale_after)
      UNION ALL SELECT stale_after, true, ARRAY[rid] FROM held WHERE abandoned)
  SELECT count(*) FROM due
$$;

-- What is said to be abandoned but has a holder again is reminded of as all are; what is not held is forgotten, and so are claims that
-- nobody asks for again.
CREATE FUNCTION waypost.tidy_reminders(p_now timestamptz) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM waypost.claims WHERE ctid = ANY (ARRAY(SELECT c.ctid FROM waypost.claims c WHERE c.until < p_now LIMIT 10000 FOR UPDATE SKIP LOCKED));
  WITH wrong AS (SELECT w.ctid AS place, w.rids[1] AS rid FROM waypost.watch w LEFT JOIN waypost.runs r ON r.rid = w.rids[1]
      WHERE w.abandoned AND w.due_at <= p_now AND NOT coalesce(r.state / 1000 = 3 AND (r.claimed_by IS NULL AND r.stale_after <= p_now OR r.stale_after < p_now), false)
      LIMIT 10000 FOR UPDATE OF w SKIP LOCKED),
    gone AS (DELETE FROM waypost.watch WHERE ctid = ANY (ARRAY(SELECT place FROM wrong)))
  INSERT INTO waypost.watch(due_at, rids) SELECT r.stale_after, ARRAY[r.rid] FROM wrong JOIN waypost.runs r ON r.rid = wrong.rid WHERE r.state / 1000 = 3
$$;

-- One run of a rule at a time. Whoever lets one loose has this lock, and looks at the others in a statement after it.
CREATE FUNCTION waypost.lock_rule(p_tenant text, p_rule text) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_advisory_xact_lock(hashtextextended(p_tenant || '/' || p_rule, 7006)) $$;

-- Runs of a rule that are ready or held, and operations on such runs that change something: one without a key only reads. They are found by the
-- states in which such runs begin, which are few among all runs.
CREATE FUNCTION waypost.live_of_rule(p_tenant text, p_lifecycle text, p_rule text) RETURNS SETOF text LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT r.run_id FROM (SELECT s.code, s.lifecycle FROM waypost.lifecycle_states s WHERE s.initial AND s.code IS NOT NULL AND s.lifecycle IN (p_lifecycle, 'operation')) s
    CROSS JOIN LATERAL (SELECT e.rid FROM waypost.events e WHERE e.dst = s.code AND e.seq = 1 OFFSET 0) e
    CROSS JOIN LATERAL (SELECT o.* FROM waypost.runs o WHERE o.rid = e.rid OFFSET 0) r
    WHERE r.state / 1000 IN (2, 3) AND r.tenant = p_tenant AND (r.playbook = p_rule OR starts_with(r.playbook, p_rule || '@'))
      AND (s.lifecycle <> 'operation' OR r.concurrency_key IS NOT NULL) ORDER BY r.rid LIMIT 20 $$;
