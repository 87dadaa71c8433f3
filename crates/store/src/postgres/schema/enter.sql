-- What an event makes of its run: the twin of the kernel's `fold::apply`, for callers that have no kernel. Everything in SQL that moves a
-- run comes here, and a test holds it against the kernel. `p_effect` is what the event keeps, in the log's own words.

-- A run before its first event: it has no state yet.
CREATE FUNCTION waypost.unborn(p_run_id text, p_tenant text, p_queue text, p_at timestamptz) RETURNS waypost.runs LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs;
BEGIN
  v_run.run_id := p_run_id;
  v_run.tenant := p_tenant;
  v_run.queue := p_queue;
  v_run.queued_at := p_at;
  v_run.seq := 0;
  v_run.fence := 0;
  v_run.attempt := 0;
  v_run.max_attempts := 1;
  v_run.take_overs := 0;
  v_run.item_count := 0;
  v_run.priority := 0;
  v_run.requires_cleanup := false;
  v_run.cleanup_failed := false;
  v_run.operating := false;
  v_run.reentrant := false;
  v_run.resolved := false;
  v_run.forced := false;
  v_run.input := '{}';
  v_run.metadata := '{}';
  v_run.details := '{}';
  RETURN v_run;
END $$;

CREATE FUNCTION waypost.micros(p_at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
  RETURN (extract(epoch FROM p_at) * 1000000)::bigint;

-- What a lease is (its token, its length and its end) is the caller's to say, once this has said whose it is.
CREATE FUNCTION waypost.enter(p_run waypost.runs, p_dst smallint, p_command text, p_actor text, p_by text, p_at timestamptz,
    p_effect jsonb DEFAULT '{}')
  RETURNS waypost.runs LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs := p_run;
  v_effect jsonb := coalesce(p_effect, '{}');
  v_was_held boolean := coalesce(p_run.state / 1000 = 3, false);
  v_was_settled boolean := coalesce(p_run.state >= 5000, false);
  v_is_held boolean := p_dst / 1000 = 3;
  v_intends boolean := coalesce(jsonb_typeof(v_effect -> 'intent') = 'object', false);
  v_grants boolean := v_is_held AND p_actor = 'worker' AND (NOT v_was_held OR p_command IN ('take-over', 'steal'));
  v_vacates boolean := v_is_held AND NOT v_grants AND CASE p_actor WHEN 'worker' THEN p_command = 'release'
    WHEN 'engine' THEN NOT v_was_held OR v_intends ELSE NOT v_was_held END;
BEGIN
  v_run.seq := p_run.seq + 1;
  v_run.state := p_dst;
  IF v_grants THEN
    v_run.fence := v_run.fence + 1;
    v_run.claimed_by := p_by;
    IF v_was_held AND p_run.claimed_by IS NULL THEN
      v_run.reason := NULL;
    END IF;
  ELSIF v_vacates THEN
    v_run.claimed_by := NULL;
    -- What a run that nobody has waits for.
    v_run.reason := coalesce(v_effect ->> 'reason', v_run.reason);
  END IF;
  -- A steal stays where it is, but begins anew: it counts as entering.
  IF p_run.state IS DISTINCT FROM p_dst OR p_command = 'steal' THEN
    v_run.last_command := p_command;
    v_run.ended_by := NULL;
    v_run.ended_with := NULL;
    IF NOT v_is_held THEN
      v_run.lease_token := NULL;
      v_run.claimed_by := NULL;
      v_run.lease_ms := NULL;
      v_run.stale_after := NULL;
      v_run.intent := NULL;
    END IF;
    v_run.reason := CASE WHEN v_effect ->> 'reason' IS NULL THEN NULL WHEN p_dst / 1000 = 4 OR EXISTS (SELECT 1
      FROM waypost.lifecycle_transitions t WHERE t.src = p_run.state AND t.dst = p_dst AND t.command = p_command
        AND t.guards & 1 = 1) THEN v_effect ->> 'reason' END;
    -- What was settled is not any more, if it was.
    IF p_dst < 5000 AND NOT (v_is_held AND v_was_held AND p_command <> 'steal') THEN
      v_run.finished_at := NULL;
      v_run.error_code := NULL;
      v_run.error_msg := NULL;
    END IF;
    CASE
      WHEN p_dst / 1000 = 1 THEN
        v_run.expires_at := waypost.at((v_effect ->> 'expires_at')::bigint);
      WHEN p_dst / 1000 = 2 THEN
        v_run.available_at := coalesce(waypost.at((v_effect ->> 'available_at')::bigint), p_at);
        v_run.expires_at := waypost.at((v_effect ->> 'expires_at')::bigint);
        v_run.resolved := v_run.resolved OR coalesce((v_effect ->> 'resolved')::boolean, false);
        v_run.forced := v_run.forced OR coalesce((v_effect ->> 'forced')::boolean, false);
      WHEN v_is_held AND v_was_held AND p_command <> 'steal' THEN
        NULL;
      WHEN v_is_held THEN
        v_run.attempt := v_run.attempt + 1;
        v_run.take_overs := 0;
        -- A resumed run keeps its first start; one that had finished, or is stolen, starts again.
        IF p_run.started_at IS NULL OR p_run.state / 1000 IS DISTINCT FROM 2 THEN
          v_run.started_at := p_at;
        END IF;
        v_run.available_at := NULL;
        v_run.expires_at := NULL;
      WHEN p_dst / 1000 = 4 THEN
        v_run.available_at := NULL;
        v_run.expires_at := waypost.at((v_effect ->> 'expires_at')::bigint);
        v_run.resolved := false;
        v_run.forced := false;
      WHEN v_was_settled THEN
        NULL;
      ELSE
        v_run.finished_at := p_at;
        v_run.error_code := v_effect -> 'failure' ->> 'code';
        v_run.error_msg := v_effect -> 'failure' ->> 'message';
        v_run.available_at := waypost.at((v_effect ->> 'available_at')::bigint);
        v_run.expires_at := NULL;
        v_run.requires_cleanup := false;
        v_run.cleanup_failed := v_run.cleanup_failed OR coalesce((v_effect ->> 'cleanup_failed')::boolean, false);
    END CASE;
  END IF;
  v_run.take_overs := v_run.take_overs + coalesce((v_effect ->> 'expired')::boolean, false)::int;
  IF v_intends THEN
    v_run.intent := v_effect -> 'intent';
    IF v_vacates THEN
      -- Left for another worker's cleanup: that one gets a budget of its own.
      v_run.take_overs := 0;
    END IF;
    IF v_is_held AND v_run.claimed_by IS NULL THEN
      -- Whatever it waited for: it is to be cleaned up now.
      v_run.reason := NULL;
      v_run.stale_after := least(v_run.stale_after, p_at);
    END IF;
  END IF;
  v_run.requires_cleanup := coalesce((v_effect ->> 'requires_cleanup')::boolean, v_run.requires_cleanup);
  v_run.operating := coalesce((v_effect ->> 'operating')::boolean, v_run.operating);
  RETURN v_run;
END $$;
