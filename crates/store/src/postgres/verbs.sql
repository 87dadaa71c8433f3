-- The moves that need no decision, as sets. What is not plain is left as it is for the store to decide on.
--
-- A call takes one number for all its events and one for all its runs, and counts from there. The events' is drawn
-- when the first of them is written, which is after the transaction's first write.
--
-- Plans: arrays of unknown length make the planner guess, so scans and joins that read whole tables are off.

CREATE FUNCTION waypost.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
  RETURN encode(overlay(overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
    FROM 1 FOR 6) PLACING set_byte('\x00'::bytea, 0, 112 + (get_byte(uuid_send(gen_random_uuid()), 0) & 15)) FROM 7 FOR 1), 'hex')::uuid;

-- New runs that are alike but for their ids and what they carry, to be had at once. Whoever calls has decided that they
-- may be born, and that there is a lane for them. The rid of the n-th (from 1) is `before` + n. One alone may have an idempotency key.
CREATE FUNCTION waypost.enqueue_alike(p_state smallint, p_plain boolean, p_tenant text, p_queue text, p_priority smallint, p_max_attempts int,
    p_actor text, p_who text, p_run_ids text[], p_inputs json[], p_metadata jsonb[], p_effects json[], p_key text DEFAULT NULL,
    p_fingerprint text DEFAULT NULL)
  RETURNS TABLE(at timestamptz, before bigint) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_before bigint := nextval('waypost.rids') << 16;
BEGIN
  RETURN QUERY
  WITH born AS (
      INSERT INTO waypost.runs(rid, run_id, state, tenant, queue, priority, queued_at, available_at, max_attempts, seq, last_command, input, metadata,
        idempotency_key, fingerprint)
      SELECT v_before + n.place, n.run_id, p_state, p_tenant, p_queue, p_priority, v_now, v_now, p_max_attempts, 1, 'create', n.input, n.metadata,
          p_key, p_fingerprint
        FROM unnest(p_run_ids, p_inputs, p_metadata) WITH ORDINALITY n(run_id, input, metadata, place)),
    told AS (
      INSERT INTO waypost.events(position, rid, seq, at, src, dst, command, actor, who, effect)
      SELECT (SELECT nextval('waypost.positions') << 16) + n.place, v_before + n.place, 1, v_now, NULL, p_state, 'create', p_actor, p_who, n.effect
        FROM unnest(p_effects) WITH ORDINALITY n(effect, place)),
    queued AS (
      INSERT INTO waypost.ready(available_at, rid, seq, priority, state, plain, queue)
      SELECT v_now, v_before + n.place, 1, p_priority, p_state, p_plain, p_queue FROM generate_series(1, cardinality(p_run_ids)) n(place))
  SELECT v_now, v_before;
END $$;

-- The best due runs of one queue, at most one for each of the tokens, which are the claimer's to draw (one here costs 1.7 µs). They are
-- met lane by lane from the claimer's marks on. Plain ones are taken up to
-- the first that is not; of the others the rid is told (token null), and their rows stay in `ready`. One row with a null rid says that the claim needs a decision: a
-- lease ran out or is vacant, the queue is paused or has a limit, or its lanes are not those that the marks are of.
-- Else the last row (rid 0) tells in `seq` how many were met. `p_decided`: whoever calls has looked at all that, and at the
-- runs between the marks and the limit.
CREATE FUNCTION waypost.claim(p_worker text, p_queue text, p_lanes bigint, p_revisions bigint, p_priorities smallint[], p_marks timestamptz[],
    p_mark_rids bigint[], p_states smallint[], p_playbooks text[], p_carried boolean, p_lease_ms bigint, p_tokens uuid[], p_decided boolean DEFAULT false)
  RETURNS TABLE(rid bigint, at timestamptz, stood_at timestamptz, token uuid, expires_at timestamptz, state smallint, seq int, fence int,
    attempt int, max_attempts int, priority smallint, item_count int, flags int, lease_ms bigint, queued_at timestamptz, started_at timestamptz,
    schedule_at timestamptz, run_id text, tenant text, correlation_id text, idempotency_key text, parent_run_id text, retry_of text,
    playbook text, carried text, input text, metadata text, details text)
  LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
  SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_limit int := cardinality(p_tokens);
BEGIN
  IF NOT p_decided AND (EXISTS (SELECT 1 FROM waypost.watch w WHERE NOT w.adrift AND w.due_at < v_now) OR EXISTS (SELECT 1 FROM waypost.watch w WHERE w.adrift AND w.due_at <= v_now)
      OR EXISTS (SELECT 1 FROM waypost.queues q WHERE q.name = p_queue AND (q.paused_at IS NOT NULL OR q.at_most IS NOT NULL))
      OR (SELECT (count(*), coalesce(sum(l.revision), 0)::bigint) FROM waypost.lanes l WHERE l.queue = p_queue) <> (p_lanes, p_revisions)) THEN
    rid := NULL;
    at := v_now;
    RETURN NEXT;
    RETURN;
  END IF;
  RETURN QUERY
  WITH pick AS MATERIALIZED (
      SELECT l.*, row_number() OVER () AS place FROM unnest(p_priorities, p_marks, p_mark_rids) m(priority, at, rid)
        CROSS JOIN LATERAL (
          SELECT w.ctid AS tid, w.rid, w.seq, w.state, w.plain, w.available_at FROM waypost.ready w
            WHERE w.queue = p_queue AND w.priority = m.priority AND (w.available_at, w.rid) > (m.at, m.rid) AND w.available_at <= v_now
              AND (p_states IS NULL OR w.state = ANY (p_states))
              AND (p_playbooks IS NULL OR EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = w.rid
                AND (r.playbook = ANY (p_playbooks) OR p_carried AND r.carried IS NOT NULL)))
            ORDER BY w.available_at, w.rid LIMIT v_limit FOR UPDATE SKIP LOCKED) l
        LIMIT v_limit),
    -- What comes after the first that is not plain waits for it.
    until AS MATERIALIZED (SELECT coalesce(min(p.place), v_limit + 1) AS place FROM pick p WHERE NOT p.plain AND NOT p_decided),
    taken AS (DELETE FROM waypost.ready w WHERE w.ctid = ANY (ARRAY(SELECT p.tid FROM pick p WHERE p.place < (SELECT u.place FROM until u)))),
    kinds AS MATERIALIZED (
      SELECT s.code, s.claim_to, s.expires, coalesce(p_lease_ms, h.lease_ms) AS lease_ms,
          v_now + coalesce(h.deadline_ms, p_lease_ms, h.lease_ms) * interval '1 millisecond' AS until
        FROM waypost.lifecycle_states s JOIN waypost.lifecycle_states h ON h.code = s.claim_to
        WHERE s.code = ANY (ARRAY(SELECT DISTINCT p.state FROM pick p))),
    held AS (
      UPDATE waypost.runs r SET state = k.claim_to, seq = r.seq + 1, fence = r.fence + 1, attempt = r.attempt + 1, take_overs = 0,
          lease_token = p_tokens[p.place::int], claimed_by = p_worker, lease_ms = k.lease_ms, stale_after = k.until,
          started_at = coalesce(r.started_at, v_now), available_at = NULL, expires_at = NULL, last_command = 'claim', reason = NULL, ended_by = NULL
        FROM pick p JOIN kinds k ON k.code = p.state
        WHERE p.place < (SELECT u.place FROM until u) AND r.rid = p.rid AND r.seq = p.seq AND r.state = p.state
          AND NOT (k.expires AND r.expires_at IS NOT NULL AND r.expires_at <= v_now)
        RETURNING r.rid, p.place, p.state AS was, p.available_at AS stood_at, r.lease_token, r.stale_after, r.state, r.seq, r.fence, r.attempt,
          r.max_attempts, r.priority, r.item_count,
          r.reentrant::int + r.resolved::int * 2 + r.forced::int * 4 + r.owes_cleanup::int * 8 + r.cleanup_failed::int * 16 + r.operating::int * 32 AS flags,
          r.lease_ms, r.queued_at, r.started_at, r.schedule_at, r.run_id, r.tenant, r.correlation_id, r.idempotency_key, r.parent_run_id,
          r.retry_of, r.playbook, r.carried, r.input, r.metadata, r.details),
    told AS (
      INSERT INTO waypost.events(position, rid, seq, at, src, dst, command, actor, who)
      SELECT (SELECT nextval('waypost.positions') << 16) + h.place, h.rid, h.seq, v_now, h.was, h.state, 'claim', 'worker', p_worker FROM held h),
    watched AS (
      INSERT INTO waypost.watch(due_at, rids) SELECT min(h.stale_after), array_agg(h.rid) FROM held h HAVING count(*) > 0)
  SELECT h.rid, v_now, h.stood_at, h.lease_token, h.stale_after, h.state, h.seq, h.fence, h.attempt, h.max_attempts, h.priority, h.item_count,
      h.flags, h.lease_ms, h.queued_at, h.started_at, h.schedule_at, h.run_id, h.tenant, h.correlation_id, h.idempotency_key, h.parent_run_id,
      h.retry_of, h.playbook, h.carried::text, h.input::text, h.metadata::text, h.details::text
    FROM held h
  UNION ALL
  SELECT p.rid, v_now, p.available_at, NULL, NULL, p.state, p.seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
      NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM pick p WHERE p.place >= (SELECT u.place FROM until u)
  UNION ALL
  SELECT 0, v_now, NULL, NULL, NULL, NULL, (SELECT count(*) FROM pick)::int, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
      NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
END $$;

-- Runs that end alike, if each still has the seq that was decided on. Gives those that had. Start and end are one row
-- of the log: a second one would cost a tenth of a run's whole way. A worker's end is known by its token. Whoever calls has given
-- slots back: a run that is counted is left, because a limit may have come since the caller looked.
CREATE FUNCTION waypost.settle_alike(p_rids bigint[], p_seqs int[], p_src smallint, p_via smallint, p_dst smallint, p_start_command text, p_command text,
    p_who text, p_error_code text, p_error_msg text, p_effect json, p_actor text DEFAULT 'worker', p_metadata jsonb DEFAULT NULL,
    p_details jsonb DEFAULT NULL)
  RETURNS TABLE(at timestamptz, rids bigint[]) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
  SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_events int := CASE WHEN p_via IS NULL THEN 1 ELSE 2 END;
BEGIN
  RETURN QUERY
  WITH done AS (
      UPDATE waypost.runs r SET state = p_dst, seq = r.seq + v_events, finished_at = v_now,
          ended_by = CASE p_actor WHEN 'worker' THEN r.lease_token END, lease_token = NULL, stale_after = NULL, lease_ms = NULL, claimed_by = NULL,
          available_at = NULL, expires_at = NULL, intent = NULL, reason = NULL, last_command = p_command,
          error_code = p_error_code, error_msg = p_error_msg,
          metadata = CASE WHEN p_metadata IS NULL THEN r.metadata ELSE waypost.merged('metadata', r.metadata, p_metadata) END,
          details = CASE WHEN p_details IS NULL THEN r.details ELSE waypost.merged_details(r.details, p_details) END
        FROM unnest(p_rids, p_seqs) WITH ORDINALITY u(rid, seq, place)
        WHERE r.rid = u.rid AND r.seq = u.seq AND r.state = p_src AND NOT r.counted
        RETURNING r.rid, r.seq, u.place),
    told AS (
      INSERT INTO waypost.events(position, rid, seq, at, src, dst, via, command, actor, who, via_command, effect)
      SELECT (SELECT nextval('waypost.positions') << 16) + 2 * d.place, d.rid, d.seq, v_now, p_src, p_dst, p_via, p_command, p_actor, p_who,
          p_start_command, p_effect
        FROM done d)
  SELECT v_now, coalesce(array_agg(d.rid), '{}') FROM done d;
END $$;

-- Writes of items whose runs stay where they are, if each run still has the seq that was decided on, under the lease that was. All
-- or nothing, and says which: false is "decide again". `p_now` is what the caller took the time to be; a second is what it may be late.
CREATE FUNCTION waypost.put_items(p_now timestamptz, p_rids bigint[], p_was int[], p_tokens uuid[], p_seqs int[], p_counts int[],
    p_until timestamptz[],
    b_rids bigint[], b_kinds text[], b_keys text[], b_versions int[], b_places int[], b_names text[], b_statuses text[], b_max_retries int[],
    b_reruns boolean[], b_roles text[], b_stays boolean[], b_seqs int[], b_progress smallint[],
    m_rids bigint[], m_kinds text[], m_keys text[], m_seqs int[], m_statuses text[], m_attempts int[], m_try_nos int[], m_progress smallint[],
    m_stays boolean[], m_error_codes text[], m_error_msgs text[], m_started_at timestamptz[], m_finished_at timestamptz[], m_outputs text[],
    m_were text[], m_details text[],
    e_rids bigint[], e_seqs int[], e_commands text[], e_whos text[], e_states smallint[], e_effects text[])
  RETURNS boolean LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
  SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_count bigint;
BEGIN
  IF p_now NOT BETWEEN v_now - interval '1 second' AND v_now + interval '1 second' THEN
    RETURN false;
  END IF;
  WITH held AS (
    SELECT 1 FROM unnest(p_rids, p_was, p_tokens) u(rid, seq, token) JOIN waypost.runs r ON r.rid = u.rid
      WHERE r.seq = u.seq AND r.lease_token = u.token ORDER BY r.rid FOR UPDATE OF r)
  SELECT count(*) INTO v_count FROM held;
  IF v_count < cardinality(p_rids) THEN
    RETURN false;
  END IF;
  INSERT INTO waypost.items(rid, kind, key, version, place, name, status, max_retries, reruns, role, stays, seq, progress)
    SELECT * FROM unnest(b_rids, b_kinds, b_keys, b_versions, b_places, b_names, b_statuses, b_max_retries, b_reruns, b_roles, b_stays, b_seqs, b_progress);
  UPDATE waypost.items i SET status = u.status, attempts = u.attempts, try_no = u.try_no, progress = u.progress, not_before = NULL,
      stays = u.stays, error_code = u.error_code, error_msg = u.error_msg, started_at = u.started_at, finished_at = u.finished_at, seq = u.seq,
      output = coalesce(u.output::jsonb, i.output), details = coalesce(u.details::jsonb, i.details)
    FROM unnest(m_rids, m_kinds, m_keys, m_seqs, m_statuses, m_attempts, m_try_nos, m_progress, m_stays, m_error_codes, m_error_msgs, m_started_at,
      m_finished_at, m_outputs, m_were, m_details)
      u(rid, kind, key, seq, status, attempts, try_no, progress, stays, error_code, error_msg, started_at, finished_at, output, were, details)
    WHERE i.rid = u.rid AND i.kind = u.kind AND i.key = u.key AND (u.were IS NULL OR i.details = u.were::jsonb);
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count < cardinality(m_rids) THEN
    RAISE EXCEPTION 'CHANGED: an item is not what it was' USING ERRCODE = 'serialization_failure';
  END IF;
  UPDATE waypost.runs r SET seq = u.seq, item_count = u.item_count, stale_after = greatest(r.stale_after, u.until)
    FROM unnest(p_rids, p_seqs, p_counts, p_until) u(rid, seq, item_count, until) WHERE r.rid = u.rid;
  INSERT INTO waypost.events(position, rid, seq, at, src, dst, command, actor, who, effect)
    SELECT (SELECT nextval('waypost.positions') << 16) + u.place, u.rid, u.seq, p_now, u.state, u.state, u.command, 'worker', u.who, u.effect::json
      FROM unnest(e_rids, e_seqs, e_commands, e_whos, e_states, e_effects) WITH ORDINALITY u(rid, seq, command, who, state, effect, place);
  RETURN true;
END $$;
