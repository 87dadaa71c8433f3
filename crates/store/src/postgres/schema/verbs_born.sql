-- New runs, one at a time, for callers in SQL.

CREATE FUNCTION waypost.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
  RETURN encode(overlay(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6)
    PLACING set_byte('\x00'::bytea, 0, 112 + (get_byte(uuid_send(gen_random_uuid()), 0) & 15)) FROM 7 FOR 1), 'hex')::uuid;

-- By the lifecycle's template, as the engine makes them.
CREATE FUNCTION waypost.new_id(p_template text, p_now timestamptz) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_id text := p_template;
  v_part text;
BEGIN
  LOOP
    v_part := substring(v_id FROM '\{([a-z0-9]+)\}');
    EXIT WHEN v_part IS NULL;
    -- The common one, by itself: the other expression has a query in it.
    IF v_part = 'uuid7' THEN
      v_id := replace(v_id, '{uuid7}', waypost.uuid7()::text);
      CONTINUE;
    END IF;
    v_id := regexp_replace(v_id, '\{[a-z0-9]+\}', CASE v_part
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
    WHEN 'object' THEN '{' || coalesce((SELECT string_agg(to_json(m.key)::text || ':' || waypost.canonical(m.value) || ',', ''
        ORDER BY m.key COLLATE "C")
      FROM jsonb_each(p_value) m), '') || '}'
    WHEN 'array' THEN '[' || coalesce((SELECT string_agg(waypost.canonical(e.value) || ',', '' ORDER BY e.place)
      FROM jsonb_array_elements(p_value) WITH ORDINALITY e(value, place)), '') || ']'
    ELSE p_value::text END;
END $$;

-- Whether two requests under one idempotency key ask for the same. The engine's own digest, of a run without items.
CREATE FUNCTION waypost.fingerprint(p_lifecycle text, p_queue text, p_input jsonb, p_metadata jsonb, p_priority smallint DEFAULT 0) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
  RETURN encode(sha256(convert_to(waypost.canonical(jsonb_build_object('lifecycle', p_lifecycle, 'queue', p_queue,
    'priority', p_priority, 'input', p_input, 'metadata', p_metadata, 'items', '[]'::jsonb)), 'UTF8')), 'hex');

-- A new run without a concurrency key and without items, or with a first one. Its idempotency key, if it was used, gives the run that it
-- made; two that race for it make one run, because the second waits for the first to commit.
CREATE FUNCTION waypost.enqueue_one(p_lifecycle text, p_queue text, p_input json DEFAULT '{}', p_metadata jsonb DEFAULT '{}',
    p_by text DEFAULT 'client',
    p_idempotency_key text DEFAULT NULL, p_fingerprint text DEFAULT NULL, p_tenant text DEFAULT 'default', p_actor text DEFAULT 'client',
    p_run_id text DEFAULT NULL, p_version int DEFAULT NULL, p_priority smallint DEFAULT 0, p_schedule_at timestamptz DEFAULT NULL,
    p_ttl_ms bigint DEFAULT NULL, p_max_attempts int DEFAULT 1, p_reentrant boolean DEFAULT false, p_details jsonb DEFAULT '{}',
    p_correlation_id text DEFAULT NULL, p_parent_run_id text DEFAULT NULL, p_retry_of text DEFAULT NULL, p_playbook text DEFAULT NULL,
    p_carried json DEFAULT NULL, p_first_item text DEFAULT NULL)
  RETURNS waypost.written LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_lifecycle waypost.lifecycles;
  v_definition jsonb;
  v_first waypost.lifecycle_states;
  v_run waypost.runs;
  v_expires_at timestamptz;
  v_effect jsonb;
  v_items jsonb;
BEGIN
  PERFORM waypost.check_time('schedule_at', p_schedule_at);
  SELECT l.* INTO v_lifecycle FROM waypost.lifecycles l WHERE l.name = p_lifecycle AND l.version = coalesce(p_version, l.version) AND l.kind = 'run'
    ORDER BY l.version DESC LIMIT 1;
  IF NOT FOUND THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: lifecycle: there is no %s', quote_literal(p_lifecycle)),
      'There are: ' || (SELECT string_agg(DISTINCT l.name, ', ') FROM waypost.lifecycles l WHERE l.kind = 'run'), 'lifecycle');
  END IF;
  v_definition := v_lifecycle.definition;
  SELECT s.* INTO v_first FROM waypost.lifecycle_states s WHERE s.lifecycle = v_lifecycle.name AND s.version = v_lifecycle.version
    AND s.state = v_definition -> 'initial' ->> 0;
  IF v_first.phase NOT IN ('ready', 'draft') OR v_first.claim_needs_items AND p_first_item IS NULL THEN
    PERFORM waypost.refuse('WP501', format('NOT_PLAIN: a new %s run takes the engine', p_lifecycle),
        'Ask waypost for it: its command line or its HTTP interface.');
  END IF;
  IF p_ttl_ms IS NOT NULL AND NOT v_first.expires THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: ttl: a %s run does not expire as %s', p_lifecycle, v_first.state), 'Leave it out.', 'ttl');
  END IF;
  v_expires_at := v_now + coalesce(p_ttl_ms, v_first.ttl_ms) * interval '1 millisecond';
  v_effect := CASE WHEN p_schedule_at IS NULL OR v_first.phase <> 'ready' THEN '{}'
      ELSE jsonb_build_object('available_at', waypost.micros(p_schedule_at)) END
    || CASE WHEN v_expires_at IS NULL THEN '{}' ELSE jsonb_build_object('expires_at', waypost.micros(v_expires_at)) END
    || CASE WHEN greatest(p_max_attempts, 1) = 1 THEN '{}' ELSE jsonb_build_object('max_attempts', p_max_attempts) END
    || CASE WHEN p_reentrant THEN '{"reentrant": true}'::jsonb ELSE '{}' END;
  IF p_first_item IS NOT NULL THEN
    SELECT jsonb_build_array(jsonb_build_object('run', 1, 'kind', s.lifecycle, 'key', p_first_item, 'version', s.version, 'place', 0, 'name',
        CASE p_first_item WHEN '(run)' THEN 'run' ELSE p_first_item END,
        'status', s.state, 'max_retries', 3, 'reruns', false, 'role', 'step', 'stays', false, 'details', '{}'::jsonb, 'seq', 1, 'progress', 0)),
        v_effect || jsonb_build_object('moved', jsonb_build_array(jsonb_build_object('kind', s.lifecycle, 'key', p_first_item, 'to', s.state)))
      INTO v_items, v_effect FROM waypost.lifecycle_states s
      WHERE s.lifecycle = v_lifecycle.items AND s.version = v_lifecycle.items_version AND s.initial LIMIT 1;
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
    v_run := waypost.unborn(coalesce(p_run_id, waypost.new_id(v_definition ->> 'ids', v_now)), p_tenant, p_queue, v_now);
    v_run := waypost.enter(v_run, v_first.code, 'create', p_actor, p_by, v_now, v_effect);
    v_run.priority := p_priority;
    v_run.max_attempts := greatest(p_max_attempts, 1);
    v_run.reentrant := p_reentrant;
    v_run.item_count := (p_first_item IS NOT NULL)::int;
    v_run.schedule_at := p_schedule_at;
    v_run.correlation_id := p_correlation_id;
    v_run.idempotency_key := p_idempotency_key;
    v_run.fingerprint := p_fingerprint;
    v_run.parent_run_id := p_parent_run_id;
    v_run.retry_of := p_retry_of;
    v_run.playbook := p_playbook;
    v_run.carried := p_carried;
    v_run.input := p_input;
    v_run.metadata := p_metadata;
    v_run.details := p_details;
    v_run.rid := waypost.insert_one(v_run, p_actor, p_by, v_effect, v_items);
    IF v_run.rid IS NOT NULL THEN
      RETURN (v_run, v_first.state, (SELECT e.position FROM waypost.events e WHERE e.rid = v_run.rid AND e.seq = 1), 1, false);
    END IF;
  END LOOP;
  -- In a transaction that sees an earlier instant only.
  RAISE EXCEPTION 'a run with idempotency_key % was queued meanwhile', quote_literal(p_idempotency_key)
    USING ERRCODE = 'serialization_failure', HINT = 'Roll back and send it again.';
END $$;
