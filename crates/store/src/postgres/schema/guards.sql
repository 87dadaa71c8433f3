-- The guards of runs and items, and the function that makes the list of unguarded moves anew. What is in braces is the kernel's: what
-- its guards mean.
--
-- The trigger on runs carries the unguarded moves as a list of numbers in its condition, so that for those no function is called;
-- everything else, and every lifecycle that was added since the list was made, is judged by a function that looks the move up.

CREATE VIEW waypost.counted_items AS SELECT r.run_id, s.phase, s.outcome FROM waypost.runs r
  JOIN waypost.lifecycle_states own ON own.code = r.state
  JOIN waypost.lifecycles l ON l.name = own.lifecycle AND l.version = own.version
  JOIN waypost.lifecycle_states s ON s.lifecycle = l.items AND s.version = l.items_version
  JOIN waypost.items i ON i.rid = r.rid AND i.kind = s.lifecycle AND i.status = s.state;
-- Whether another one has failed that ends the course of this one's run. Looked up by index, however many there are.
CREATE FUNCTION waypost.course_ended(p_item waypost.items, p_seq int) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
  SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $guard$
BEGIN
  RETURN {course_ended};
END $guard$;
CREATE OR REPLACE FUNCTION waypost.items_move() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
DECLARE
  v_want text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NOT EXISTS (SELECT 1 FROM waypost.lifecycle_states s WHERE s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status
        AND s.initial) AND NOT ({item_is_copy}) THEN
      RAISE EXCEPTION 'INVALID_TRANSITION: a % does not start as %', NEW.kind, NEW.status USING ERRCODE = 'WP409';
    END IF;
  ELSIF NOT EXISTS (
    SELECT 1 FROM waypost.lifecycle_moves m WHERE m.lifecycle = OLD.kind AND m.version = OLD.version
      AND m.src = OLD.status AND m.dst = NEW.status AND (m.events = 1 OR NEW.seq > OLD.seq)
      AND {item_guards_hold}) THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: % has no such move from % to %, or its guard does not hold', OLD.kind, OLD.status, NEW.status
      USING ERRCODE = 'WP409', HINT = 'Allowed from there: ' || coalesce((SELECT string_agg(DISTINCT m.dst, ', ') FROM waypost.lifecycle_moves m
        WHERE m.lifecycle = OLD.kind AND m.version = OLD.version AND m.src = OLD.status AND m.events = 1), 'nothing');
  ELSIF NEW.role <> 'cleanup' AND {item_begins} THEN
    IF NEW.seq = OLD.seq THEN
      -- By hand: whoever fails another one at this moment, or wants something else of the run, goes before or after this.
      SELECT r.intent ->> 'want' INTO v_want FROM waypost.runs r WHERE r.rid = NEW.rid FOR UPDATE;
    END IF;
    IF waypost.course_ended(NEW, OLD.seq) THEN
      RAISE EXCEPTION 'FAILURE_RECORDED: a % of the run has failed; nothing begins after it but cleanups', NEW.kind
        USING ERRCODE = 'WP409', HINT = 'End the run as failed.';
    ELSIF v_want IN ('cancel', 'pause') AND EXISTS (SELECT 1 FROM waypost.lifecycle_states s WHERE s.lifecycle = NEW.kind AND s.version = NEW.version
        AND s.state = NEW.status AND s.phase = 'held') THEN
      RAISE EXCEPTION '%_REQUESTED: a % of the run was asked for; nothing begins but cleanups', upper(v_want), v_want
        USING ERRCODE = 'WP409', HINT = 'Let it end as that.';
    END IF;
  END IF;
  RETURN NEW;
END $guard$;
CREATE TRIGGER items_move BEFORE UPDATE OF status ON waypost.items FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status)
  EXECUTE FUNCTION waypost.items_move();
CREATE TRIGGER items_birth BEFORE INSERT ON waypost.items FOR EACH ROW EXECUTE FUNCTION waypost.items_move();
{items_stay}
CREATE FUNCTION waypost.judge_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $guard$
DECLARE
  was waypost.lifecycle_states;
  will waypost.lifecycle_states;
BEGIN
  IF NEW.fence < OLD.fence OR NEW.seq < OLD.seq THEN
    RAISE EXCEPTION 'IMMUTABLE: fence and seq only rise' USING ERRCODE = 'WP409', HINT = 'Leave both alone: they are the engine''s.';
  END IF;
  IF NEW.state = OLD.state THEN
    -- What the engine keeps beside a settled run raises seq. What follows a legal move by hand has its event already.
    IF (NEW.seq = OLD.seq OR NEW.finished_at <> OLD.finished_at OR NEW.started_at IS DISTINCT FROM OLD.started_at
        OR NEW.error_code IS DISTINCT FROM OLD.error_code OR NEW.error_msg IS DISTINCT FROM OLD.error_msg
        OR NEW.metadata <> OLD.metadata OR NEW.details <> OLD.details OR NEW.attempt <> OLD.attempt)
      AND NOT EXISTS (SELECT 1 FROM waypost.events e WHERE e.rid = OLD.rid AND e.seq = OLD.seq + 1 AND e.seq = NEW.seq AND e.who = 'by hand') THEN
      RAISE EXCEPTION 'SETTLED: %, a finished run, cannot be rewritten', OLD.run_id USING ERRCODE = 'WP409';
    END IF;
    RETURN NULL;
  END IF;
  IF NOT EXISTS (SELECT 1 FROM waypost.lifecycle_moves m WHERE m.src_code = OLD.state AND m.dst_code = NEW.state
      AND (NEW.seq >= OLD.seq + m.events OR NEW.seq = OLD.seq AND m.events = 1)
      AND {run_guards_hold}) THEN
    SELECT * INTO was FROM waypost.lifecycle_states s WHERE s.code = OLD.state;
    SELECT * INTO will FROM waypost.lifecycle_states s WHERE s.code = NEW.state;
    RAISE EXCEPTION 'INVALID_TRANSITION: % has no such move from % to %, or its guard does not hold', was.lifecycle, was.state,
        coalesce(will.state, NEW.state::text) USING ERRCODE = 'WP409', HINT = 'Allowed from there: '
        || coalesce((SELECT string_agg(DISTINCT m.dst, ', ') FROM waypost.lifecycle_moves m WHERE m.src_code = OLD.state AND m.events = 1),
            'nothing');
  END IF;
  IF NEW.seq = OLD.seq THEN
    PERFORM waypost.moved_by_hand(OLD, NEW);
  END IF;
  RETURN NULL;
END $guard$;
CREATE FUNCTION waypost.judge_birth() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
BEGIN
  IF NEW.seq <> 1 OR NOT EXISTS (SELECT 1 FROM waypost.lifecycle_states s WHERE s.code = NEW.state AND s.initial) THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: a run does not start there' USING ERRCODE = 'WP409';
  END IF;
  RETURN NULL;
END $guard$;
CREATE FUNCTION waypost.list_moves() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
DECLARE
  moves text;
  births text;
BEGIN
  SELECT coalesce(string_agg((m.events * 100000000::bigint + m.src_code * 10000 + m.dst_code)::text, ',' ORDER BY m.src_code, m.dst_code, m.events),
      '')
    INTO moves FROM waypost.lifecycle_moves m WHERE m.guards = 0 AND m.src_code IS NOT NULL;
  SELECT coalesce(string_agg(s.code::text, ',' ORDER BY s.code), '') INTO births FROM waypost.lifecycle_states s WHERE s.initial
      AND s.code IS NOT NULL;
  EXECUTE format($make$CREATE OR REPLACE TRIGGER runs_move AFTER UPDATE ON waypost.runs FOR EACH ROW WHEN (CASE WHEN NEW.state = OLD.state
      THEN OLD.finished_at IS NOT NULL OR NEW.fence < OLD.fence OR NEW.seq < OLD.seq
      ELSE NEW.fence < OLD.fence OR NOT ((NEW.seq - OLD.seq) * 100000000::bigint + OLD.state::int * 10000 + NEW.state = ANY ('{%s}'::bigint[])) END)
    EXECUTE FUNCTION waypost.judge_run()$make$, moves);
  EXECUTE format($make$CREATE OR REPLACE TRIGGER runs_birth AFTER INSERT ON waypost.runs FOR EACH ROW WHEN (NEW.seq <> 1
      OR NOT (NEW.state = ANY ('{%s}'::smallint[])))
    EXECUTE FUNCTION waypost.judge_birth()$make$, births);
END $guard$;
