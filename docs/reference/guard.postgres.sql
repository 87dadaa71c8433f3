-- Generated: the database's own guard. UPDATE=1 cargo nextest run generated

CREATE VIEW waypost.counted_items AS SELECT r.run_id, s.phase, s.outcome FROM waypost.runs r
  JOIN waypost.lifecycle_states own ON own.code = r.state
  JOIN waypost.lifecycles l ON l.name = own.lifecycle AND l.version = own.version
  JOIN waypost.lifecycle_states s ON s.lifecycle = l.items AND s.version = l.items_version
  JOIN waypost.items i ON i.rid = r.rid AND i.kind = s.lifecycle AND i.status = s.state;
-- Whether another one has failed that ends the course of this one's run. Looked up by index, however many there are.
CREATE FUNCTION waypost.course_ended(p_item waypost.items, p_seq int) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
  SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $guard$
BEGIN
  RETURN EXISTS (SELECT 1 FROM waypost.lifecycle_states f CROSS JOIN waypost.items i WHERE f.lifecycle = p_item.kind AND f.version = p_item.version
      AND f.course = 'ends' AND i.rid = p_item.rid AND i.kind = p_item.kind AND i.status = f.state AND i.role = 'step'
      AND (i.seq <> p_item.seq OR p_item.seq = p_seq));
END $guard$;
CREATE OR REPLACE FUNCTION waypost.items_move() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NOT EXISTS (SELECT 1 FROM waypost.lifecycle_states s WHERE s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status AND s.initial) THEN
      RAISE EXCEPTION 'INVALID_TRANSITION: a % does not start as %', NEW.kind, NEW.status USING ERRCODE = 'WP409';
    END IF;
  ELSIF NOT EXISTS (
    SELECT 1 FROM waypost.lifecycle_moves m WHERE m.lifecycle = OLD.kind AND m.version = OLD.version
      AND m.src = OLD.status AND m.dst = NEW.status
      AND (m.guards = 0 OR ((m.guards & 128 = 0 OR NEW.attempts <= NEW.max_retries)
        AND (m.guards & 1024 = 0 OR NOT (NEW.discarded))
        AND (m.guards & 2048 = 0 OR NEW.reruns)))) THEN
    RAISE EXCEPTION 'INVALID_TRANSITION: % has no such move from % to %, or its guard does not hold', OLD.kind, OLD.status, NEW.status
      USING ERRCODE = 'WP409';
  ELSIF NEW.role <> 'cleanup' AND EXISTS (SELECT 1 FROM waypost.lifecycle_states n CROSS JOIN waypost.lifecycle_states o
    WHERE n.lifecycle = NEW.kind AND n.version = NEW.version AND n.state = NEW.status AND n.course = 'begins'
      AND o.lifecycle = NEW.kind AND o.version = NEW.version AND o.state = OLD.status
      AND CASE o.phase WHEN 'held' THEN false WHEN 'settled' THEN n.phase = 'held' ELSE true END) THEN
    IF NEW.seq = OLD.seq THEN
      -- By hand: whoever fails another one at this moment goes before or after this.
      PERFORM 1 FROM waypost.runs r WHERE r.rid = NEW.rid FOR UPDATE;
    END IF;
    IF waypost.course_ended(NEW, OLD.seq) THEN
      RAISE EXCEPTION 'FAILURE_RECORDED: a % of the run has failed; nothing begins after it but cleanups', NEW.kind
        USING ERRCODE = 'WP409', HINT = 'End the run as failed.';
    END IF;
  END IF;
  RETURN NEW;
END $guard$;
CREATE FUNCTION waypost.item_owned() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
BEGIN
  RAISE EXCEPTION 'IMMUTABLE: an item stays its run''s, and what it is to it' USING ERRCODE = 'WP409';
END $guard$;
CREATE TRIGGER items_own BEFORE UPDATE OF rid, kind, key, version, role ON waypost.items FOR EACH ROW
  WHEN (NEW.rid <> OLD.rid OR NEW.kind <> OLD.kind OR NEW.key <> OLD.key OR NEW.version <> OLD.version OR NEW.role <> OLD.role)
  EXECUTE FUNCTION waypost.item_owned();
CREATE TRIGGER items_move BEFORE UPDATE OF status ON waypost.items FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status)
  EXECUTE FUNCTION waypost.items_move();
CREATE TRIGGER items_birth BEFORE INSERT ON waypost.items FOR EACH ROW EXECUTE FUNCTION waypost.items_move();
CREATE VIEW waypost.items_stay AS SELECT i.rid, i.kind, i.key, EXISTS (
    SELECT 1 FROM waypost.lifecycles l CROSS JOIN LATERAL jsonb_array_elements(l.definition::jsonb -> 'states') d(value) CROSS JOIN LATERAL jsonb_each_text(d.value) f(key, value) WHERE d.value ->> 'name' = i.status AND starts_with(f.key, 'on_')
      AND l.name = i.kind AND l.version = i.version AND EXISTS (SELECT 1 FROM waypost.lifecycle_moves m
        WHERE m.lifecycle = i.kind AND m.version = i.version AND m.src = i.status AND m.dst = f.value AND NOT (m.guards = 0 OR ((m.guards & 128 = 0 OR i.attempts <= i.max_retries)
        AND (m.guards & 1024 = 0 OR NOT (i.discarded))
        AND (m.guards & 2048 = 0 OR i.reruns))))) AS stays
  FROM waypost.items i;

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
      AND (m.guards = 0 OR ((m.guards & 1 = 0 OR btrim(coalesce(NEW.reason, ''), E'\t\n\x0B\f\r ') <> '')
        AND (m.guards & 2 = 0 OR (NEW.resolved OR NEW.forced))
        AND (m.guards & 4 = 0 OR EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND true))
        AND (m.guards & 8 = 0 OR EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.phase IN ('ready', 'held', 'parked')))
        AND (m.guards & 16 = 0 OR (NOT EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.phase IN ('ready', 'held', 'parked')) AND NOT EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'failed') AND EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'succeeded')))
        AND (m.guards & 32 = 0 OR (NOT EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.phase IN ('ready', 'held', 'parked')) AND EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'failed') AND EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'succeeded')))
        AND (m.guards & 64 = 0 OR (NOT EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.phase IN ('ready', 'held', 'parked')) AND NOT EXISTS (SELECT 1 FROM waypost.counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'succeeded')))
        AND (m.guards & 128 = 0 OR NEW.attempt <= NEW.max_attempts)
        AND (m.guards & 256 = 0 OR NEW.reentrant)
        AND (m.guards & 512 = 0 OR NOT (NEW.operating))))) THEN
    SELECT * INTO was FROM waypost.lifecycle_states s WHERE s.code = OLD.state;
    SELECT * INTO will FROM waypost.lifecycle_states s WHERE s.code = NEW.state;
    RAISE EXCEPTION 'INVALID_TRANSITION: % has no such move from % to %, or its guard does not hold', was.lifecycle, was.state,
        coalesce(will.state, NEW.state::text) USING ERRCODE = 'WP409', HINT = 'Allowed from there: '
        || coalesce((SELECT string_agg(DISTINCT m.dst, ', ') FROM waypost.lifecycle_moves m WHERE m.src_code = OLD.state AND m.events = 1), 'nothing');
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
  SELECT coalesce(string_agg((m.events * 100000000::bigint + m.src_code * 10000 + m.dst_code)::text, ',' ORDER BY m.src_code, m.dst_code, m.events), '')
    INTO moves FROM waypost.lifecycle_moves m WHERE m.guards = 0 AND m.src_code IS NOT NULL;
  SELECT coalesce(string_agg(s.code::text, ',' ORDER BY s.code), '') INTO births FROM waypost.lifecycle_states s WHERE s.initial AND s.code IS NOT NULL;
  EXECUTE format($make$CREATE OR REPLACE TRIGGER runs_move AFTER UPDATE ON waypost.runs FOR EACH ROW WHEN (CASE WHEN NEW.state = OLD.state
      THEN OLD.finished_at IS NOT NULL OR NEW.fence < OLD.fence OR NEW.seq < OLD.seq
      ELSE NEW.fence < OLD.fence OR NOT ((NEW.seq - OLD.seq) * 100000000::bigint + OLD.state::int * 10000 + NEW.state = ANY ('{%s}'::bigint[])) END)
    EXECUTE FUNCTION waypost.judge_run()$make$, moves);
  EXECUTE format($make$CREATE OR REPLACE TRIGGER runs_birth AFTER INSERT ON waypost.runs FOR EACH ROW WHEN (NEW.seq <> 1 OR NOT (NEW.state = ANY ('{%s}'::smallint[])))
    EXECUTE FUNCTION waypost.judge_birth()$make$, births);
END $guard$;

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('step', 1, 'item', NULL, NULL, '{"codes":{},"ids":null,"initial":["pending"],"items":[],"kind":"item","name":"step","operations":{},"states":[{"name":"pending","on_end":"skipped","phase":"ready"},{"name":"running","on_end":"failed","on_lost":"pending","on_pause":"paused","phase":"held"},{"name":"paused","on_end":"failed","on_resume":"pending","phase":"parked"},{"name":"completed","on_resume":"pending","outcome":"succeeded","phase":"settled"},{"name":"failed","outcome":"failed","phase":"settled"},{"name":"skipped","outcome":"skipped","phase":"settled"}],"stops_run":true,"transitions":[{"by":["worker"],"command":"start","from":"pending","guards":[],"to":"running"},{"by":["worker","engine"],"command":"skip","from":"pending","guards":[],"to":"skipped"},{"by":["worker"],"command":"fail","from":"pending","guards":[],"to":"failed"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker","engine"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["worker"],"command":"skip","from":"running","guards":[],"to":"skipped"},{"by":["worker","engine"],"command":"pause","from":"running","guards":[],"to":"paused"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"pending"},{"by":["worker"],"command":"retry","from":"running","guards":["attempts-left"],"to":"pending"},{"by":["worker","engine"],"command":"resume","from":"paused","guards":[],"to":"pending"},{"by":["worker"],"command":"skip","from":"paused","guards":[],"to":"skipped"},{"by":["worker","engine"],"command":"fail","from":"paused","guards":[],"to":"failed"},{"by":["engine"],"command":"resume","from":"completed","guards":["reruns"],"to":"pending"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'step', 1, 'pending', 'ready', NULL, true, NULL, NULL, false, NULL, NULL, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'step', 1, 'running', 'held', NULL, false, 60000, NULL, false, NULL, NULL, 'begins', NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'step', 1, 'paused', 'parked', NULL, false, NULL, NULL, false, NULL, NULL, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'step', 1, 'completed', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, 'begins', NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'step', 1, 'failed', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, 'ends', NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'step', 1, 'skipped', 'settled', 'skipped', false, NULL, NULL, false, NULL, 7776000000, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'pending', 'running', 0, 1, 'start');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'pending', 'skipped', 0, 1, 'skip');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'pending', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'running', 'completed', 0, 1, 'complete');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'running', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'running', 'skipped', 0, 1, 'skip');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'running', 'paused', 0, 1, 'pause');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'running', 'pending', 0, 1, 'lose');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'running', 'pending', 128, 1, 'retry');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'paused', 'pending', 0, 1, 'resume');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'paused', 'skipped', 0, 1, 'skip');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'paused', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'completed', 'pending', 2048, 1, 'resume');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'pending', 'completed', 0, 2, 'complete');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('step', 1, 'pending', 'paused', 0, 2, 'pause');

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('task', 1, 'item', NULL, NULL, '{"codes":{},"ids":null,"initial":["pending"],"items":[],"kind":"item","name":"task","operations":{},"states":[{"name":"pending","on_end":"failed","phase":"ready"},{"name":"running","on_end":"failed","on_lost":"running","phase":"held"},{"name":"completed","outcome":"succeeded","phase":"settled"},{"name":"failed","outcome":"failed","phase":"settled"}],"stops_run":false,"transitions":[{"by":["worker"],"command":"start","from":"pending","guards":[],"to":"running"},{"by":["worker","engine"],"command":"fail","from":"pending","guards":[],"to":"failed"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker","engine"],"command":"fail","from":"running","guards":[],"to":"failed"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'task', 1, 'pending', 'ready', NULL, true, NULL, NULL, false, NULL, NULL, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'task', 1, 'running', 'held', NULL, false, 60000, NULL, false, NULL, NULL, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'task', 1, 'completed', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'task', 1, 'failed', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('task', 1, 'pending', 'running', 0, 1, 'start');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('task', 1, 'pending', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('task', 1, 'running', 'completed', 0, 1, 'complete');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('task', 1, 'running', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('task', 1, 'pending', 'completed', 0, 2, 'complete');

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('target', 1, 'item', NULL, NULL, '{"codes":{},"ids":null,"initial":["PREVIEW","QUEUED"],"items":[],"kind":"item","name":"target","operations":{},"states":[{"name":"PREVIEW","on_queue":"QUEUED","phase":"draft"},{"name":"QUEUED","on_end":"FAILED","phase":"ready"},{"name":"APPLYING","on_end":"FAILED","on_lost":"QUEUED","phase":"held"},{"name":"APPLIED","outcome":"succeeded","phase":"settled"},{"name":"FAILED","on_retry":"QUEUED","outcome":"failed","phase":"settled"},{"name":"ROLLED_BACK","outcome":"reverted","phase":"settled"}],"stops_run":false,"transitions":[{"by":["client","engine"],"command":"queue","from":"PREVIEW","guards":[],"to":"QUEUED"},{"by":["worker"],"command":"apply","from":"QUEUED","guards":[],"to":"APPLYING"},{"by":["worker","engine"],"command":"fail","from":"QUEUED","guards":[],"to":"FAILED"},{"by":["worker"],"command":"succeed","from":"APPLYING","guards":[],"to":"APPLIED"},{"by":["worker"],"command":"retry","from":"APPLYING","guards":["attempts-left"],"to":"QUEUED"},{"by":["worker"],"command":"wait","from":"APPLYING","guards":[],"to":"QUEUED"},{"by":["engine"],"command":"lose","from":"APPLYING","guards":[],"to":"QUEUED"},{"by":["worker","engine"],"command":"fail","from":"APPLYING","guards":[],"to":"FAILED"},{"by":["client","engine"],"command":"retry","from":"FAILED","guards":["not-discarded"],"to":"QUEUED"},{"by":["engine"],"command":"rollback","from":"APPLIED","guards":[],"to":"ROLLED_BACK"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'target', 1, 'PREVIEW', 'draft', NULL, true, NULL, NULL, false, NULL, NULL, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'target', 1, 'QUEUED', 'ready', NULL, true, NULL, NULL, false, NULL, NULL, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'target', 1, 'APPLYING', 'held', NULL, false, 60000, NULL, false, NULL, NULL, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'target', 1, 'APPLIED', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'target', 1, 'FAILED', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'target', 1, 'ROLLED_BACK', 'settled', 'reverted', false, NULL, NULL, false, NULL, 7776000000, NULL, NULL::smallint;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'PREVIEW', 'QUEUED', 0, 1, 'queue');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'QUEUED', 'APPLYING', 0, 1, 'apply');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'QUEUED', 'FAILED', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'APPLYING', 'APPLIED', 0, 1, 'succeed');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'APPLYING', 'QUEUED', 128, 1, 'retry');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'APPLYING', 'QUEUED', 0, 1, 'wait');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'APPLYING', 'FAILED', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'FAILED', 'QUEUED', 1024, 1, 'retry');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'APPLIED', 'ROLLED_BACK', 0, 1, 'rollback');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('target', 1, 'QUEUED', 'APPLIED', 0, 2, 'succeed');

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('deploy', 1, 'run', 'step', 1, '{"codes":{},"ids":"run-{uuid7}","initial":["queued"],"items":["step"],"kind":"run","name":"deploy","operations":{},"states":[{"name":"queued","phase":"ready","terminal":false},{"deadline":"5m","name":"claimed","on_stale":"expire","phase":"held","terminal":false},{"lease":"1m","name":"running","on_stale":"lose","phase":"held","terminal":false},{"keep":"30d","name":"success","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"failed","outcome":"failed","phase":"settled","terminal":true},{"keep":"90d","name":"cancelled","outcome":"cancelled","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["worker"],"command":"claim","from":"queued","guards":[],"to":"claimed"},{"by":["client"],"command":"cancel","from":"queued","guards":[],"to":"cancelled"},{"by":["engine"],"command":"expire","from":"queued","guards":[],"to":"cancelled"},{"by":["worker"],"command":"start","from":"claimed","guards":[],"to":"running"},{"by":["engine"],"command":"expire","from":"claimed","guards":[],"to":"cancelled"},{"by":["client","worker"],"command":"cancel","from":"claimed","guards":[],"to":"cancelled"},{"by":["worker"],"command":"succeed","from":"running","guards":[],"to":"success"},{"by":["worker"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["client","worker"],"command":"cancel","from":"running","guards":[],"to":"cancelled"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"failed"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'deploy', 1, 'queued', 'ready', NULL, true, NULL, NULL, true, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 2000 AND 2999), 2000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'deploy', 1, 'claimed', 'held', NULL, false, 60000, 300000, true, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 3000 AND 3999), 3000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'deploy', 1, 'running', 'held', NULL, false, 60000, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 3000 AND 3999), 3000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'deploy', 1, 'success', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 5000 AND 5999), 5000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'deploy', 1, 'failed', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'deploy', 1, 'cancelled', 'settled', 'cancelled', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'queued', 'claimed', 0, 1, 'claim');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'queued', 'cancelled', 0, 1, 'cancel');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'claimed', 'running', 0, 1, 'start');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'claimed', 'cancelled', 0, 1, 'expire');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'running', 'success', 0, 1, 'succeed');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'running', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'running', 'cancelled', 0, 1, 'cancel');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'claimed', 'success', 0, 2, 'succeed');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('deploy', 1, 'claimed', 'failed', 0, 2, 'fail');
UPDATE waypost.lifecycle_states SET claim_to = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'claimed') WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'queued');
UPDATE waypost.lifecycle_states SET claim_needs_items = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'queued');
UPDATE waypost.lifecycle_states SET claim_shifts = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'queued');
UPDATE waypost.lifecycle_states SET start_to = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'running') WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'claimed');
UPDATE waypost.lifecycle_states SET start_command = 'start' WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'claimed');
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'claimed'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'success'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'running'), 'start', 'succeed') ON CONFLICT DO NOTHING;
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'claimed'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'failed'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'running'), 'start', 'fail') ON CONFLICT DO NOTHING;
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'success'), NULL, NULL, 'succeed') ON CONFLICT DO NOTHING;
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND version = 1 AND state = 'failed'), NULL, NULL, 'fail') ON CONFLICT DO NOTHING;
UPDATE waypost.lifecycle_moves m SET src_code = a.code, dst_code = b.code FROM waypost.lifecycle_states a, waypost.lifecycle_states b
  WHERE m.lifecycle = 'deploy' AND m.version = 1 AND a.lifecycle = m.lifecycle AND a.version = m.version AND a.state = m.src
    AND b.lifecycle = m.lifecycle AND b.version = m.version AND b.state = m.dst;

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('agent', 1, 'run', 'step', 1, '{"codes":{"expire":"UPSTREAM_UNAVAILABLE"},"ids":"run_{date}_{time}_{rand6}","initial":["requested"],"items":["step"],"kind":"run","name":"agent","operations":{},"states":[{"name":"requested","phase":"draft","terminal":false,"ttl":"1m"},{"name":"queued","phase":"ready","terminal":false},{"lease":"1m","max_take_overs":5,"name":"running","on_stale":"take-over","phase":"held","terminal":false},{"keep":"30d","name":"completed","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"failed","outcome":"failed","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["engine"],"command":"acknowledge","from":"requested","guards":[],"to":"queued"},{"by":["engine"],"command":"expire","from":"requested","guards":[],"to":"failed"},{"by":["client"],"command":"cancel","from":"requested","guards":[],"to":"failed"},{"by":["worker"],"command":"claim","from":"queued","guards":[],"to":"running"},{"by":["engine"],"command":"fail","from":"queued","guards":[],"to":"failed"},{"by":["client"],"command":"cancel","from":"queued","guards":[],"to":"failed"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["client","worker"],"command":"cancel","from":"running","guards":[],"to":"failed"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"failed"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'agent', 1, 'requested', 'draft', NULL, true, NULL, NULL, true, 60000, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 1000 AND 1999), 1000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'agent', 1, 'queued', 'ready', NULL, false, NULL, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 2000 AND 2999), 2000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'agent', 1, 'running', 'held', NULL, false, 60000, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 3000 AND 3999), 3000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'agent', 1, 'completed', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 5000 AND 5999), 5000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'agent', 1, 'failed', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('agent', 1, 'requested', 'queued', 0, 1, 'acknowledge');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('agent', 1, 'requested', 'failed', 0, 1, 'expire');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('agent', 1, 'queued', 'running', 0, 1, 'claim');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('agent', 1, 'queued', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('agent', 1, 'running', 'completed', 0, 1, 'complete');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('agent', 1, 'running', 'failed', 0, 1, 'fail');
UPDATE waypost.lifecycle_states SET claim_to = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'agent' AND version = 1 AND state = 'running') WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'agent' AND version = 1 AND state = 'queued');
UPDATE waypost.lifecycle_states SET claim_needs_items = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'agent' AND version = 1 AND state = 'queued');
UPDATE waypost.lifecycle_states SET claim_shifts = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'agent' AND version = 1 AND state = 'queued');
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'agent' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'agent' AND version = 1 AND state = 'completed'), NULL, NULL, 'complete') ON CONFLICT DO NOTHING;
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'agent' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'agent' AND version = 1 AND state = 'failed'), NULL, NULL, 'fail') ON CONFLICT DO NOTHING;
UPDATE waypost.lifecycle_moves m SET src_code = a.code, dst_code = b.code FROM waypost.lifecycle_states a, waypost.lifecycle_states b
  WHERE m.lifecycle = 'agent' AND m.version = 1 AND a.lifecycle = m.lifecycle AND a.version = m.version AND a.state = m.src
    AND b.lifecycle = m.lifecycle AND b.version = m.version AND b.state = m.dst;

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('cron', 1, 'run', NULL, NULL, '{"codes":{"cancel":"canceled","lose":"stale_timeout"},"ids":"{uuid7}","initial":["RUNNING"],"items":[],"kind":"run","name":"cron","operations":{},"states":[{"lease":"30m","name":"RUNNING","on_stale":"steal","phase":"held","terminal":false},{"keep":"30d","name":"SUCCESS","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"FAILED","outcome":"failed","phase":"settled","retry":true,"terminal":false}],"stops_run":null,"transitions":[{"by":["worker"],"command":"succeed","from":"RUNNING","guards":[],"to":"SUCCESS"},{"by":["worker"],"command":"fail","from":"RUNNING","guards":[],"to":"FAILED"},{"by":["worker"],"command":"steal","from":"RUNNING","guards":["attempts-left","reentrant"],"to":"RUNNING"},{"by":["engine"],"command":"lose","from":"RUNNING","guards":[],"to":"FAILED"},{"by":["client","worker"],"command":"cancel","from":"RUNNING","guards":[],"to":"FAILED"},{"by":["worker"],"command":"retry","from":"FAILED","guards":["attempts-left"],"to":"RUNNING"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'cron', 1, 'RUNNING', 'held', NULL, true, 1800000, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 3000 AND 3999), 3000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'cron', 1, 'SUCCESS', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 5000 AND 5999), 5000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'cron', 1, 'FAILED', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('cron', 1, 'RUNNING', 'SUCCESS', 0, 1, 'succeed');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('cron', 1, 'RUNNING', 'FAILED', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('cron', 1, 'FAILED', 'RUNNING', 128, 1, 'retry');
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'cron' AND version = 1 AND state = 'RUNNING'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'cron' AND version = 1 AND state = 'SUCCESS'), NULL, NULL, 'succeed') ON CONFLICT DO NOTHING;
UPDATE waypost.lifecycle_moves m SET src_code = a.code, dst_code = b.code FROM waypost.lifecycle_states a, waypost.lifecycle_states b
  WHERE m.lifecycle = 'cron' AND m.version = 1 AND a.lifecycle = m.lifecycle AND a.version = m.version AND a.state = m.src
    AND b.lifecycle = m.lifecycle AND b.version = m.version AND b.state = m.dst;

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('job', 1, 'run', 'step', 1, '{"codes":{},"ids":"{uuid7}","initial":["pending"],"items":["step","task"],"kind":"run","name":"job","operations":{},"states":[{"name":"pending","phase":"ready","terminal":false},{"lease":"1m","max_take_overs":5,"name":"running","on_stale":"take-over","phase":"held","terminal":false},{"name":"paused","phase":"parked","terminal":false},{"keep":"30d","name":"completed","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"failed","outcome":"failed","phase":"settled","terminal":true},{"keep":"90d","name":"cancelled","outcome":"cancelled","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["worker"],"command":"claim","from":"pending","guards":["has-items"],"to":"running"},{"by":["client"],"command":"cancel","from":"pending","guards":[],"to":"cancelled"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["operator","worker"],"command":"pause","from":"running","guards":["has-reason"],"to":"paused"},{"by":["client","worker"],"command":"cancel","from":"running","guards":[],"to":"cancelled"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"failed"},{"by":["operator"],"command":"resume","from":"paused","guards":["resolved-or-forced"],"to":"pending"},{"by":["client"],"command":"cancel","from":"paused","guards":[],"to":"cancelled"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'job', 1, 'pending', 'ready', NULL, true, NULL, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 2000 AND 2999), 2000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'job', 1, 'running', 'held', NULL, false, 60000, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 3000 AND 3999), 3000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'job', 1, 'paused', 'parked', NULL, false, NULL, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 4000 AND 4999), 4000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'job', 1, 'completed', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 5000 AND 5999), 5000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'job', 1, 'failed', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'job', 1, 'cancelled', 'settled', 'cancelled', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('job', 1, 'pending', 'running', 4, 1, 'claim');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('job', 1, 'pending', 'cancelled', 0, 1, 'cancel');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('job', 1, 'running', 'completed', 0, 1, 'complete');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('job', 1, 'running', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('job', 1, 'running', 'paused', 1, 1, 'pause');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('job', 1, 'running', 'cancelled', 0, 1, 'cancel');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('job', 1, 'paused', 'pending', 2, 1, 'resume');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('job', 1, 'paused', 'cancelled', 0, 1, 'cancel');
UPDATE waypost.lifecycle_states SET claim_to = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND version = 1 AND state = 'running') WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND version = 1 AND state = 'pending');
UPDATE waypost.lifecycle_states SET claim_needs_items = true WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND version = 1 AND state = 'pending');
UPDATE waypost.lifecycle_states SET claim_shifts = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND version = 1 AND state = 'pending');
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND version = 1 AND state = 'completed'), NULL, NULL, 'complete') ON CONFLICT DO NOTHING;
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND version = 1 AND state = 'failed'), NULL, NULL, 'fail') ON CONFLICT DO NOTHING;
UPDATE waypost.lifecycle_moves m SET src_code = a.code, dst_code = b.code FROM waypost.lifecycle_states a, waypost.lifecycle_states b
  WHERE m.lifecycle = 'job' AND m.version = 1 AND a.lifecycle = m.lifecycle AND a.version = m.version AND a.state = m.src
    AND b.lifecycle = m.lifecycle AND b.version = m.version AND b.state = m.dst;

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('rule', 1, 'run', 'target', 1, '{"codes":{},"ids":"rule-{uuid7}","initial":["PREVIEW","QUEUED"],"items":["target"],"kind":"run","name":"rule","operations":{"reconcile":["APPLIED","PARTIAL"],"rollback":["APPLIED","PARTIAL"]},"states":[{"name":"PREVIEW","phase":"draft","terminal":false,"ttl":"7d"},{"name":"QUEUED","phase":"ready","terminal":false},{"lease":"1m","max_take_overs":5,"name":"APPLYING","on_stale":"take-over","phase":"held","terminal":false},{"keep":"30d","name":"APPLIED","outcome":"succeeded","phase":"settled","terminal":false},{"keep":"90d","name":"PARTIAL","outcome":"partial","phase":"settled","terminal":false},{"keep":"90d","name":"FAILED","outcome":"failed","phase":"settled","terminal":false},{"keep":"90d","name":"ROLLED_BACK","outcome":"reverted","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["client","engine"],"command":"queue","from":"PREVIEW","guards":["has-items"],"to":"QUEUED"},{"by":["client"],"command":"cancel","from":"PREVIEW","guards":[],"to":"FAILED"},{"by":["engine"],"command":"expire","from":"PREVIEW","guards":[],"to":"FAILED"},{"by":["worker"],"command":"claim","from":"QUEUED","guards":[],"to":"APPLYING"},{"by":["client"],"command":"cancel","from":"QUEUED","guards":[],"to":"FAILED"},{"by":["worker"],"command":"complete","from":"APPLYING","guards":["all-items-ok"],"to":"APPLIED"},{"by":["worker"],"command":"settle","from":"APPLYING","guards":["some-item-failed"],"to":"PARTIAL"},{"by":["worker"],"command":"fail","from":"APPLYING","guards":["no-item-ok"],"to":"FAILED"},{"by":["client","worker"],"command":"cancel","from":"APPLYING","guards":["all-items-ok"],"to":"APPLIED"},{"by":["client","worker"],"command":"cancel","from":"APPLYING","guards":["some-item-failed"],"to":"PARTIAL"},{"by":["client","worker"],"command":"cancel","from":"APPLYING","guards":["no-item-ok"],"to":"FAILED"},{"by":["engine"],"command":"lose","from":"APPLYING","guards":["all-items-ok"],"to":"APPLIED"},{"by":["engine"],"command":"lose","from":"APPLYING","guards":["some-item-failed"],"to":"PARTIAL"},{"by":["engine"],"command":"lose","from":"APPLYING","guards":["no-item-ok"],"to":"FAILED"},{"by":["client"],"command":"retry","from":"PARTIAL","guards":["no-operation","some-item-open"],"to":"APPLYING"},{"by":["client"],"command":"retry","from":"FAILED","guards":["no-operation","some-item-open"],"to":"APPLYING"},{"by":["engine"],"command":"rollback","from":"APPLIED","guards":["no-item-ok"],"to":"ROLLED_BACK"},{"by":["engine"],"command":"rollback","from":"PARTIAL","guards":["no-item-ok"],"to":"ROLLED_BACK"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'rule', 1, 'PREVIEW', 'draft', NULL, true, NULL, NULL, true, 604800000, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 1000 AND 1999), 1000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'rule', 1, 'QUEUED', 'ready', NULL, true, NULL, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 2000 AND 2999), 2000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'rule', 1, 'APPLYING', 'held', NULL, false, 60000, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 3000 AND 3999), 3000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'rule', 1, 'APPLIED', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 5000 AND 5999), 5000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'rule', 1, 'PARTIAL', 'settled', 'partial', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'rule', 1, 'FAILED', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'rule', 1, 'ROLLED_BACK', 'settled', 'reverted', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'PREVIEW', 'QUEUED', 4, 1, 'queue');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'PREVIEW', 'FAILED', 0, 1, 'cancel');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'QUEUED', 'APPLYING', 0, 1, 'claim');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'QUEUED', 'FAILED', 0, 1, 'cancel');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'APPLYING', 'APPLIED', 16, 1, 'complete');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'APPLYING', 'PARTIAL', 32, 1, 'settle');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'APPLYING', 'FAILED', 64, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'PARTIAL', 'APPLYING', 520, 1, 'retry');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'FAILED', 'APPLYING', 520, 1, 'retry');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'APPLIED', 'ROLLED_BACK', 64, 1, 'rollback');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('rule', 1, 'PARTIAL', 'ROLLED_BACK', 64, 1, 'rollback');
UPDATE waypost.lifecycle_states SET claim_to = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'rule' AND version = 1 AND state = 'APPLYING') WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'rule' AND version = 1 AND state = 'QUEUED');
UPDATE waypost.lifecycle_states SET claim_needs_items = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'rule' AND version = 1 AND state = 'QUEUED');
UPDATE waypost.lifecycle_states SET claim_shifts = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'rule' AND version = 1 AND state = 'QUEUED');
UPDATE waypost.lifecycle_moves m SET src_code = a.code, dst_code = b.code FROM waypost.lifecycle_states a, waypost.lifecycle_states b
  WHERE m.lifecycle = 'rule' AND m.version = 1 AND a.lifecycle = m.lifecycle AND a.version = m.version AND a.state = m.src
    AND b.lifecycle = m.lifecycle AND b.version = m.version AND b.state = m.dst;

INSERT INTO waypost.lifecycles(name, version, kind, items, items_version, definition) VALUES ('operation', 1, 'run', NULL, NULL, '{"codes":{},"ids":"op-{uuid7}","initial":["queued"],"items":[],"kind":"run","name":"operation","operations":{},"states":[{"name":"queued","phase":"ready","terminal":false},{"lease":"1m","max_take_overs":5,"name":"running","on_stale":"take-over","phase":"held","terminal":false},{"keep":"30d","name":"completed","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"partial","outcome":"partial","phase":"settled","terminal":true},{"keep":"90d","name":"failed","outcome":"failed","phase":"settled","terminal":true},{"keep":"90d","name":"cancelled","outcome":"cancelled","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["worker"],"command":"claim","from":"queued","guards":[],"to":"running"},{"by":["client"],"command":"cancel","from":"queued","guards":[],"to":"cancelled"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker"],"command":"settle","from":"running","guards":[],"to":"partial"},{"by":["worker"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["client","worker"],"command":"cancel","from":"running","guards":[],"to":"cancelled"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"failed"}],"version":1}');
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'operation', 1, 'queued', 'ready', NULL, true, NULL, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 2000 AND 2999), 2000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'operation', 1, 'running', 'held', NULL, false, 60000, NULL, false, NULL, NULL, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 3000 AND 3999), 3000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'operation', 1, 'completed', 'settled', 'succeeded', false, NULL, NULL, false, NULL, 2592000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 5000 AND 5999), 5000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'operation', 1, 'partial', 'settled', 'partial', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'operation', 1, 'failed', 'settled', 'failed', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, outcome, initial, lease_ms, deadline_ms, expires, ttl_ms, keep_ms, course, code)
  SELECT 'operation', 1, 'cancelled', 'settled', 'cancelled', false, NULL, NULL, false, NULL, 7776000000, NULL, coalesce((SELECT max(code) FROM waypost.lifecycle_states WHERE code BETWEEN 6000 AND 6999), 6000 - 1) + 1;
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('operation', 1, 'queued', 'running', 0, 1, 'claim');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('operation', 1, 'queued', 'cancelled', 0, 1, 'cancel');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('operation', 1, 'running', 'completed', 0, 1, 'complete');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('operation', 1, 'running', 'partial', 0, 1, 'settle');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('operation', 1, 'running', 'failed', 0, 1, 'fail');
INSERT INTO waypost.lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES ('operation', 1, 'running', 'cancelled', 0, 1, 'cancel');
UPDATE waypost.lifecycle_states SET claim_to = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'running') WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'queued');
UPDATE waypost.lifecycle_states SET claim_needs_items = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'queued');
UPDATE waypost.lifecycle_states SET claim_shifts = false WHERE code = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'queued');
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'completed'), NULL, NULL, 'complete') ON CONFLICT DO NOTHING;
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'partial'), NULL, NULL, 'settle') ON CONFLICT DO NOTHING;
INSERT INTO waypost.plain_ends(src, dst, via, start_command, command) VALUES ((SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'running'), (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'operation' AND version = 1 AND state = 'failed'), NULL, NULL, 'fail') ON CONFLICT DO NOTHING;
UPDATE waypost.lifecycle_moves m SET src_code = a.code, dst_code = b.code FROM waypost.lifecycle_states a, waypost.lifecycle_states b
  WHERE m.lifecycle = 'operation' AND m.version = 1 AND a.lifecycle = m.lifecycle AND a.version = m.version AND a.state = m.src
    AND b.lifecycle = m.lifecycle AND b.version = m.version AND b.state = m.dst;
