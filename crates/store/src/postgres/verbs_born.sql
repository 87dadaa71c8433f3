-- New runs, one at a time, for callers in SQL.

-- By the lifecycle's template, as the engine makes them.
CREATE FUNCTION waypost.new_id(p_template text, p_now timestamptz) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_id text := p_template;
  v_part text;
BEGIN
  LOOP
    v_part := substring(v_id FROM '\{([a-z0-9]+)\}');
    EXIT WHEN v_part IS NULL;
    v_id := regexp_replace(v_id, '\{[a-z0-9]+\}', CASE v_part
      WHEN 'uuid7' THEN waypost.uuid7()::text
      WHEN 'uuid4' THEN gen_random_uuid()::text
      WHEN 'date' THEN to_char(p_now AT TIME ZONE 'UTC', 'YYYY-MM-DD')
      WHEN 'time' THEN to_char(p_now AT TIME ZONE 'UTC', 'HH24MISS')
      ELSE (SELECT string_agg(substr('0123456789abcdefghijklmnopqrstuvwxyz', 1 + get_byte(uuid_send(gen_random_uuid()), 0) % 36, 1), '')
        FROM generate_series(1, CASE v_part WHEN 'rand6' THEN 6 ELSE 12 END)) END);
  END LOOP;
  RETURN v_id;
END $$;

-- Members by name, as the engine's fingerprint writes them.
CREATE FUNCTION waypost.canonical(p_value jsonb) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN CASE jsonb_typeof(p_value)
    WHEN 'object' THEN '{' || coalesce((SELECT string_agg(to_json(m.key)::text || ':' || waypost.canonical(m.value) || ',', '' ORDER BY m.key COLLATE "C")
      FROM jsonb_each(p_value) m), '') || '}'
    WHEN 'array' THEN '[' || coalesce((SELECT string_agg(waypost.canonical(e.value) || ',', '' ORDER BY e.place)
      FROM jsonb_array_elements(p_value) WITH ORDINALITY e(value, place)), '') || ']'
    ELSE p_value::text END;
END $$;

-- Whether two requests under one idempotency key ask for the same. The engine's own digest, of a run without items.
CREATE FUNCTION waypost.fingerprint(p_lifecycle text, p_queue text, p_input jsonb, p_metadata jsonb, p_priority smallint DEFAULT 0) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
  RETURN encode(sha256(convert_to(waypost.canonical(jsonb_build_object('lifecycle', p_lifecycle, 'version', NULL, 'status', NULL, 'queue', p_queue,
    'priority', p_priority, 'input', p_input, 'metadata', p_metadata, 'schedule_at', NULL, 'concurrency_key', NULL, 'correlation_id', NULL,
    'playbook', NULL, 'carried', NULL, 'parent_run_id', NULL, 'items', '[]'::jsonb)), 'UTF8')), 'hex');

-- A new run without a concurrency key and without items, or with a first one. Its idempotency key, if it was used, gives the run that it
-- made; two that race for it make one run, because the second waits for the first to commit.
CREATE FUNCTION waypost.enqueue_one(p_lifecycle text, p_queue text, p_input json DEFAULT '{}', p_metadata jsonb DEFAULT '{}', p_by text DEFAULT 'client',
    p_idempotency_key text DEFAULT NULL, p_fingerprint text DEFAULT NULL, p_tenant text DEFAULT 'default', p_actor text DEFAULT 'client',
    p_run_id text DEFAULT NULL, p_version int DEFAULT NULL, p_priority smallint DEFAULT 0, p_schedule_at timestamptz DEFAULT NULL,
    p_ttl_ms bigint DEFAULT NULL, p_max_attempts int DEFAULT 1, p_reentrant boolean DEFAULT false, p_details jsonb DEFAULT '{}',
    p_correlation_id text DEFAULT NULL, p_parent_run_id text DEFAULT NULL, p_retry_of text DEFAULT NULL, p_playbook text DEFAULT NULL,
    p_carried json DEFAULT NULL, p_first_item text DEFAULT NULL)
  RETURNS waypost.written LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_lifecycle waypost.lifecycles;
  v_first waypost.lifecycle_states;
  v_run waypost.runs;
  v_expires_at timestamptz;
  v_effect jsonb;
BEGIN
  SELECT l.* INTO v_lifecycle FROM waypost.lifecycles l WHERE l.name = p_lifecycle AND l.version = coalesce(p_version, l.version) AND l.kind = 'run'
    ORDER BY l.version DESC LIMIT 1;
  IF NOT FOUND THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: lifecycle: there is no %s', quote_literal(p_lifecycle)),
      'There are: ' || (SELECT string_agg(DISTINCT l.name, ', ') FROM waypost.lifecycles l WHERE l.kind = 'run'), 'lifecycle');
  END IF;
  SELECT s.* INTO v_first FROM waypost.lifecycle_states s WHERE s.lifecycle = v_lifecycle.name AND s.version = v_lifecycle.version
    AND s.state = v_lifecycle.definition::jsonb -> 'initial' ->> 0;
  IF v_first.phase NOT IN ('ready', 'draft') OR v_first.claim_needs_items AND p_first_item IS NULL THEN
    PERFORM waypost.refuse('WP501', format('NOT_PLAIN: a new %s run takes the engine', p_lifecycle), 'Ask waypost for it: its command line or its HTTP interface.');
  END IF;
  IF p_ttl_ms IS NOT NULL AND NOT v_first.expires THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: ttl: a %s run does not expire as %s', p_lifecycle, v_first.state), 'Leave it out.', 'ttl');
  END IF;
  v_expires_at := v_now + coalesce(p_ttl_ms, v_first.ttl_ms) * interval '1 millisecond';
  v_effect := CASE WHEN p_schedule_at IS NULL OR v_first.phase <> 'ready' THEN '{}'
      ELSE jsonb_build_object('available_at', (extract(epoch FROM p_schedule_at) * 1000000)::bigint) END
    || CASE WHEN v_expires_at IS NULL THEN '{}' ELSE jsonb_build_object('expires_at', (extract(epoch FROM v_expires_at) * 1000000)::bigint) END
    || CASE WHEN greatest(p_max_attempts, 1) = 1 THEN '{}' ELSE jsonb_build_object('max_attempts', p_max_attempts) END
    || CASE WHEN p_reentrant THEN '{"reentrant": true}'::jsonb ELSE '{}' END;
  IF v_first.phase = 'ready' THEN
    INSERT INTO waypost.lanes(queue, priority) SELECT p_queue, p_priority
      WHERE NOT EXISTS (SELECT 1 FROM waypost.lanes l WHERE l.queue = p_queue AND l.priority = p_priority);
  END IF;
  FOR v_try IN 1..3 LOOP
    SELECT r.* INTO v_run FROM waypost.runs r WHERE p_idempotency_key IS NOT NULL AND r.tenant = p_tenant AND r.idempotency_key = p_idempotency_key;
    IF FOUND THEN
      IF p_fingerprint IS DISTINCT FROM v_run.fingerprint THEN
        PERFORM waypost.refuse('WP422', format('IDEMPOTENCY_KEY_REUSED: idempotency_key %s was used for %s with another body',
          quote_literal(p_idempotency_key), v_run.run_id), 'Use a new key, or send the same body.', 'idempotency_key');
      END IF;
      RETURN (v_run, waypost.status_of(v_run.state), (SELECT e.position FROM waypost.events e WHERE e.rid = v_run.rid AND e.seq = 1), 1, true);
    END IF;
    v_run := NULL;
    v_run.run_id := coalesce(p_run_id, waypost.new_id(v_lifecycle.definition::jsonb ->> 'ids', v_now));
    v_run.state := v_first.code;
    v_run.tenant := p_tenant;
    v_run.queue := p_queue;
    v_run.priority := p_priority;
    v_run.max_attempts := greatest(p_max_attempts, 1);
    v_run.idempotency_key := p_idempotency_key;
    v_run.fingerprint := p_fingerprint;
    v_run.input := p_input;
    v_run.metadata := p_metadata;
    IF v_first.phase = 'ready' AND v_expires_at IS NULL AND NOT p_reentrant AND p_details = '{}'
        AND num_nonnulls(p_schedule_at, p_correlation_id, p_parent_run_id, p_retry_of, p_playbook, p_carried, p_first_item) = 0 THEN
      v_run.rid := waypost.born_plain(v_run, p_actor, p_by, v_first.claim_to IS NOT NULL, waypost.effect(v_effect, p_metadata, '{}'));
    ELSE
      v_run.queued_at := v_now;
      v_run.available_at := CASE v_first.phase WHEN 'ready' THEN coalesce(p_schedule_at, v_now) END;
      v_run.expires_at := v_expires_at;
      v_run.reentrant := p_reentrant;
      v_run.schedule_at := p_schedule_at;
      v_run.correlation_id := p_correlation_id;
      v_run.parent_run_id := p_parent_run_id;
      v_run.retry_of := p_retry_of;
      v_run.playbook := p_playbook;
      v_run.carried := p_carried;
      v_run.details := p_details;
      v_run.rid := waypost.born_special(v_run, p_actor, p_by, v_first.claim_to IS NOT NULL, v_effect, v_lifecycle, p_first_item);
    END IF;
    IF v_run.rid IS NOT NULL THEN
      PERFORM waypost.wake();
      SELECT r.* INTO v_run FROM waypost.runs r WHERE r.rid = v_run.rid;
      RETURN (v_run, v_first.state, (SELECT e.position FROM waypost.events e WHERE e.rid = v_run.rid AND e.seq = 1), 1, false);
    END IF;
  END LOOP;
  -- In a transaction that sees an earlier instant only.
  RAISE EXCEPTION 'a run with idempotency_key % was queued meanwhile', quote_literal(p_idempotency_key)
    USING ERRCODE = 'serialization_failure', HINT = 'Roll back and send it again.';
END $$;

-- A birth that needs no decision; its rid, or null if somebody else has its idempotency key. Only that is worth a savepoint.
CREATE FUNCTION waypost.born_plain(p_run waypost.runs, p_actor text, p_by text, p_plain boolean, p_effect json) RETURNS bigint LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_taken text;
BEGIN
  IF p_run.idempotency_key IS NULL THEN
    RETURN (SELECT e.before + 1 FROM waypost.enqueue_alike(p_run.state, p_plain, p_run.tenant, p_run.queue, p_run.priority, p_run.max_attempts, p_actor, p_by,
      ARRAY[p_run.run_id], ARRAY[p_run.input], ARRAY[p_run.metadata], ARRAY[p_effect]) e);
  END IF;
  BEGIN
    RETURN (SELECT e.before + 1 FROM waypost.enqueue_alike(p_run.state, p_plain, p_run.tenant, p_run.queue, p_run.priority, p_run.max_attempts, p_actor, p_by,
      ARRAY[p_run.run_id], ARRAY[p_run.input], ARRAY[p_run.metadata], ARRAY[p_effect], p_run.idempotency_key, p_run.fingerprint) e);
  EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS v_taken = CONSTRAINT_NAME;
    IF v_taken <> 'runs_key' THEN
      RAISE;
    END IF;
    RETURN NULL;
  END;
END $$;

-- One that is deferred, expires, has a first item or belongs to others: no set of these is ever made.
CREATE FUNCTION waypost.born_special(p_run waypost.runs, p_actor text, p_by text, p_plain boolean, p_effect jsonb, p_lifecycle waypost.lifecycles, p_first_item text)
  RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs;
  v_effect jsonb := p_effect;
BEGIN
  IF p_run.parent_run_id IS NOT NULL THEN
    PERFORM waypost.expect_children(ARRAY[p_run.parent_run_id]);
  END IF;
  INSERT INTO waypost.runs(run_id, state, tenant, queue, priority, queued_at, available_at, expires_at, max_attempts, reentrant, seq, last_command,
      item_count, schedule_at, correlation_id, idempotency_key, fingerprint, parent_run_id, retry_of, playbook, carried, input, metadata, details)
    VALUES (p_run.run_id, p_run.state, p_run.tenant, p_run.queue, p_run.priority, p_run.queued_at, p_run.available_at, p_run.expires_at, p_run.max_attempts,
      p_run.reentrant, 1, 'create', (p_first_item IS NOT NULL)::int, p_run.schedule_at, p_run.correlation_id, p_run.idempotency_key, p_run.fingerprint,
      p_run.parent_run_id, p_run.retry_of, p_run.playbook, p_run.carried, p_run.input, p_run.metadata, p_run.details)
    ON CONFLICT (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING * INTO v_run;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF v_run.available_at IS NOT NULL THEN
    INSERT INTO waypost.ready(available_at, rid, seq, priority, state, plain, queue)
      VALUES (v_run.available_at, v_run.rid, 1, v_run.priority, v_run.state, p_plain AND p_first_item IS NULL, v_run.queue);
  END IF;
  IF p_first_item IS NOT NULL THEN
    INSERT INTO waypost.items(rid, kind, key, version, place, seq, name, status) SELECT v_run.rid, s.lifecycle, p_first_item, s.version, 0, 1, p_first_item, s.state
      FROM waypost.lifecycle_states s WHERE s.lifecycle = p_lifecycle.items AND s.version = p_lifecycle.items_version AND s.initial LIMIT 1;
    v_effect := v_effect || jsonb_build_object('moved', (SELECT jsonb_agg(jsonb_build_object('kind', i.kind, 'key', i.key, 'to', i.status))
      FROM waypost.items i WHERE i.rid = v_run.rid));
  END IF;
  INSERT INTO waypost.events(rid, seq, at, src, dst, command, actor, who, effect)
    VALUES (v_run.rid, 1, v_run.queued_at, NULL, v_run.state, 'create', p_actor, p_by, waypost.effect(v_effect, v_run.metadata, v_run.details));
  RETURN v_run.rid;
END $$;
