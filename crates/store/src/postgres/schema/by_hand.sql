-- Moves by hand: an UPDATE of a view, or of the table itself. They get the event of a move of the lifecycle, and what follows from it,
-- and keep to what claims and ends keep to.

-- An UPDATE of the table that does not raise seq, after its guard has judged it: the row is written already, and what a statement cannot know
-- is written over it.
CREATE FUNCTION waypost.moved_by_hand(was waypost.runs, became waypost.runs) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_was waypost.runs := was;
BEGIN
  v_was.stale_after := became.stale_after;
  PERFORM waypost.lock_slots(was, became.state / 1000 = 3 AND was.state / 1000 <> 3);
  PERFORM waypost.move_by_hand(v_was, became);
END $$;

-- Locks a run for a move by hand, with the slots that the move may take or give back before it. Its statement may have others locked already.
CREATE FUNCTION waypost.locked_by_hand(p_run_id text, p_status text) RETURNS waypost.runs LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM waypost.lock_slots(r, r.state / 1000 <> 3 AND EXISTS (SELECT 1 FROM waypost.lifecycle_states s
      JOIN waypost.lifecycle_states d ON d.lifecycle = s.lifecycle AND d.version = s.version
      WHERE s.code = r.state AND d.state = p_status AND d.phase = 'held'))
    FROM waypost.runs r WHERE r.run_id = p_run_id;
  RETURN waypost.locked_run(p_run_id);
END $$;

-- What is refused of a failure's words. The sizes are the engine's (kernel/src/text.rs).
CREATE FUNCTION waypost.check_failure(p_code text, p_message text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_code IS NOT NULL THEN
    PERFORM waypost.check_text('error_code', p_code);
  END IF;
  PERFORM waypost.check_chars('error_msg', p_message, 4000);
END $$;

CREATE FUNCTION waypost.check_chars(p_field text, p_value text, p_most int) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF char_length(p_value) > p_most THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: is %s characters long; at most %s are allowed', p_field, char_length(p_value), p_most),
      'Say it in fewer words, and keep the rest elsewhere.', p_field);
  END IF;
END $$;

-- What a hand says of a run, judged once, whichever way it comes: sizes, numbers and times are those that the engine would take, and so are
-- decisions. Details are laid over those that are there, member by member (J7).
CREATE FUNCTION waypost.said_by_hand(was waypost.runs, became waypost.runs) RETURNS waypost.runs LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_patch jsonb;
BEGIN
  IF became.metadata IS DISTINCT FROM was.metadata THEN
    PERFORM waypost.check_json('metadata', coalesce(became.metadata, 'null'), 1048576, true);
  END IF;
  v_patch := CASE WHEN jsonb_typeof(became.details) = 'object' THEN (SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}')
      FROM jsonb_each(became.details) m WHERE was.details -> m.key IS DISTINCT FROM m.value)
    ELSE coalesce(became.details, 'null') END;
  PERFORM waypost.check_json('details', v_patch, 1048576, true);
  PERFORM waypost.check_failure(became.error_code, became.error_msg);
  PERFORM waypost.check_chars('reason', became.reason, 1024);
  PERFORM waypost.check_time('stale_after', became.stale_after);
  IF became.claimed_by IS NOT NULL THEN
    PERFORM waypost.check_text('claimed_by', became.claimed_by);
  END IF;
  IF became.lease_ms NOT BETWEEN 1 AND 31536000000000 THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: lease_ms: is %s', became.lease_ms), 'Give 1 to 31536000000000, which are a thousand years.',
        'lease_ms');
  END IF;
  became.details := waypost.merged_details(was.details, waypost.decided_by_hand(was, became, v_patch), was.state);
  RETURN became;
END $$;

-- Of `p_became`, a caller says where the run goes and what a person may say: its lease, words, failure, metadata, and the details that change.
-- The run is locked, with its slots.
-- `p_chosen`: the one item, by its key, that the move is about, where it could be about all of them.
CREATE FUNCTION waypost.move_by_hand(was waypost.runs, p_became waypost.runs, p_chosen text DEFAULT NULL) RETURNS waypost.written LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  became waypost.runs := waypost.said_by_hand(was, p_became);
  v_now timestamptz := waypost.now();
  v_way waypost.lifecycle_transitions;
  v_is_held boolean := became.state / 1000 = 3;
  v_begins boolean := v_is_held AND was.state / 1000 <> 3;
  -- Who writes a name into the lease takes it; else it is left to any worker.
  v_takes boolean := v_begins AND became.claimed_by IS NOT NULL;
  v_actor text := CASE WHEN v_takes THEN 'worker' ELSE 'operator' END;
  v_who text := CASE WHEN v_takes THEN became.claimed_by ELSE 'by hand' END;
  v_failure jsonb := CASE WHEN became.error_code IS NOT NULL
    THEN jsonb_build_object('code', became.error_code, 'message', coalesce(became.error_msg, '')) END;
  v_shifts jsonb;
  v_effect jsonb;
  v_was waypost.runs := was;
  v_run waypost.runs;
BEGIN
  -- What whoever does it would command, if somebody may; else what it is called when others do it.
  SELECT t.* INTO v_way FROM waypost.lifecycle_transitions t WHERE t.src = was.state AND t.dst = became.state AND t.dst <> t.src
    ORDER BY t.actors && CASE WHEN v_takes THEN '{worker}'::text[] ELSE '{operator,client}' END DESC, t.guards, t.place LIMIT 1;
  IF NOT FOUND THEN
    PERFORM waypost.no_such_move(was, coalesce(waypost.status_of(became.state), 'null'));
  ELSIF was.intent ->> 'want' = 'cancel' AND NOT v_is_held AND NOT EXISTS (SELECT 1 FROM waypost.lifecycle_transitions t
      WHERE t.src = was.state AND t.dst = became.state AND t.command = 'cancel') THEN
    PERFORM waypost.refuse('WP412', format('CANCEL_REQUESTED: a cancel of %s came first', was.run_id), 'It ends as cancelled.');
  ELSIF v_begins THEN
    PERFORM waypost.check_begin(was);
  ELSIF v_is_held AND (became.lease_token, became.claimed_by, became.lease_ms) IS DISTINCT FROM (was.lease_token, was.claimed_by, was.lease_ms) THEN
    PERFORM waypost.refuse('WP409', format('IMMUTABLE: %s is held by %s, whose lease goes on with it', was.run_id, coalesce(was.claimed_by, 'nobody')),
      'Leave lease_token, claimed_by and lease_ms as they are: a lease changes hands by a claim.');
  END IF;
  PERFORM waypost.check_course(was, became.state);
  v_shifts := waypost.follows(was, v_way.command, CASE WHEN became.state >= 5000 AND was.state < 5000 THEN 'end' END, v_failure);
  IF p_chosen IS NOT NULL THEN
    v_shifts := (SELECT coalesce(jsonb_agg(s.shift || jsonb_build_object('count', 1, 'chosen', jsonb_build_array(p_chosen))), '[]')
      FROM jsonb_array_elements(v_shifts) s(shift) WHERE EXISTS (SELECT 1 FROM waypost.items i WHERE i.rid = was.rid AND i.key = p_chosen
        AND i.kind = s.shift ->> 'kind' AND i.status = s.shift ->> 'from' AND NOT i.stays));
  END IF;
  v_effect := jsonb_build_object('by_hand', 1, 'metadata_is', became.metadata, 'details_is', became.details, 'reason', became.reason,
    'resolved', became.resolved, 'forced', became.forced, 'failure', v_failure, 'shifts', nullif(v_shifts, '[]'));
  v_run := waypost.enter(was, became.state, v_way.command, v_actor, v_who, v_now, v_effect);
  IF v_is_held THEN
    v_run.lease_token := became.lease_token;
    v_run.lease_ms := coalesce(became.lease_ms, 60000);
    v_run.stale_after := became.stale_after;
  END IF;
  v_run.metadata := became.metadata;
  v_run.details := became.details;
  -- It is reminded of anew, whatever was done to its lease.
  v_was.lease_token := NULL;
  RETURN waypost.save_one(v_was, v_run, v_way.command, v_actor, v_who, v_effect, p_whole => true,
    p_more => waypost.shifts_of(v_run, v_shifts));
END $$;

-- The lease of whoever begins a run by hand and has no token: as ops.claim_next_run would give it, for an hour.
CREATE FUNCTION waypost.opened(p_run waypost.runs, p_by text, p_deadline_ms bigint) RETURNS waypost.runs LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  p_run.claimed_by := p_by;
  p_run.lease_ms := 3600000;
  p_run.lease_token := waypost.open_token(p_run.rid, p_run.fence + 1);
  p_run.stale_after := waypost.now() + coalesce(p_deadline_ms, p_run.lease_ms) * interval '1 millisecond';
  RETURN p_run;
END $$;

-- Other metadata or details, with an event that says so. What is finished stays as it is.
CREATE FUNCTION waypost.note_by_hand(was waypost.runs, p_became waypost.runs, p_message text) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  became waypost.runs := waypost.said_by_hand(was, p_became);
  v_effect jsonb := '{"by_hand": 1}'::jsonb
    || CASE WHEN became.metadata <> was.metadata THEN jsonb_build_object('metadata_is', became.metadata) ELSE '{}' END
    || CASE WHEN became.details <> was.details THEN jsonb_build_object('details_is', became.details) ELSE '{}' END;
  v_run waypost.runs := waypost.enter(was, was.state, 'note', 'operator', 'by hand', waypost.now(), v_effect);
BEGIN
  IF was.state >= 5000 THEN
    PERFORM waypost.refuse('WP409', format('SETTLED: %s, a finished run, cannot be rewritten', was.run_id), 'Note it elsewhere.');
  END IF;
  v_run.metadata := became.metadata;
  v_run.details := became.details;
  PERFORM waypost.save_one(was, v_run, 'note', 'operator', 'by hand', v_effect, p_whole => true, p_level => 'info', p_message => p_message);
END $$;

-- A run that has a failed step, or has recorded a failure, does not end well by hand either.
CREATE FUNCTION waypost.check_course(was waypost.runs, p_dst smallint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF was.state < 5000 AND EXISTS (SELECT 1 FROM waypost.lifecycle_states d WHERE d.code = p_dst AND d.outcome = 'succeeded')
      AND (was.intent ->> 'want' = 'fail' OR EXISTS (SELECT 1 FROM waypost.items i JOIN waypost.lifecycle_states f ON f.lifecycle = i.kind
        AND f.version = i.version AND f.state = i.status WHERE i.rid = was.rid AND i.role = 'step' AND f.course = 'ends')) THEN
    PERFORM waypost.refuse('WP409', format('FAILURE_RECORDED: a step of %s has failed', was.run_id), 'End it as failed.');
  END IF;
END $$;

-- All runs as people see them, and the way to mend one from psql: UPDATE waypost.board SET status = '…' WHERE run_id = '…'.
-- What a state asks for (a lease, an end, none of either) comes by itself.
CREATE VIEW waypost.board AS SELECT r.run_id, r.tenant, s.lifecycle, s.version, s.state AS status, s.phase, s.outcome, r.queue, r.priority,
    r.attempt, r.max_attempts, r.take_overs, r.seq, r.claimed_by, r.fence, r.stale_after, r.queued_at, r.started_at, r.finished_at, r.schedule_at,
    r.available_at, r.expires_at, r.concurrency_key, {labels of r}, r.carried,
    r.error_code, r.error_msg, r.reason, r.resolved, r.forced, r.intent ->> 'want' AS intent, r.input, r.metadata, r.details
  FROM waypost.runs r JOIN waypost.lifecycle_states s ON s.code = r.state;

CREATE FUNCTION waypost.board_moves() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  mendable CONSTANT text[] := '{status,claimed_by,stale_after,started_at,finished_at,error_code,error_msg,reason,resolved,forced,metadata,details}';
  dst waypost.lifecycle_states;
  at timestamptz := waypost.now();
  was waypost.runs;
  became waypost.runs;
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
  was := waypost.locked_by_hand(OLD.run_id, NEW.status);
  IF was.seq <> OLD.seq THEN
    RAISE EXCEPTION '% changed meanwhile: look again', OLD.run_id USING ERRCODE = '40001';
  END IF;
  became := was;
  became.state := dst.code;
  IF dst.phase = 'held' AND OLD.phase <> 'held' THEN
    became.lease_token := gen_random_uuid();
    became.lease_ms := dst.lease_ms;
    became.claimed_by := NEW.claimed_by;
    became.stale_after := CASE WHEN NEW.claimed_by IS NULL THEN at
      ELSE coalesce(NEW.stale_after, at + coalesce(dst.deadline_ms, dst.lease_ms) * interval '1 millisecond') END;
  ELSIF dst.phase = 'held' THEN
    became.claimed_by := NEW.claimed_by;
    became.stale_after := coalesce(NEW.stale_after, was.stale_after);
  END IF;
  became.error_code := NEW.error_code;
  became.error_msg := NEW.error_msg;
  became.reason := NEW.reason;
  became.resolved := NEW.resolved;
  became.forced := NEW.forced;
  became.metadata := NEW.metadata;
  became.details := NEW.details;
  PERFORM waypost.move_by_hand(was, became);
  RETURN NEW;
END $$;
CREATE TRIGGER board_update INSTEAD OF UPDATE ON waypost.board FOR EACH ROW EXECUTE FUNCTION waypost.board_moves();
