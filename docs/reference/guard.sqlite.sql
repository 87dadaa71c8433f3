-- Generated: the database's own guard. UPDATE=1 cargo nextest run generated

CREATE VIEW counted_items AS SELECT r.run_id, s.phase, s.outcome FROM runs r
  CROSS JOIN lifecycles l CROSS JOIN lifecycle_states s CROSS JOIN items i
  WHERE l.name = r.lifecycle AND l.version = r.version AND s.lifecycle = l.items AND s.version = l.items_version
    AND i.run_id = r.run_id AND i.kind = s.lifecycle AND i.status = s.state;
CREATE VIEW runs_judged AS SELECT NULL AS src, NULL AS dst, NULL AS rise, NULL AS run_id, NULL AS lifecycle, NULL AS version, NULL AS reason, NULL AS resolved, NULL AS forced, NULL AS attempt, NULL AS max_attempts, NULL AS reentrant, NULL AS operating WHERE false;
CREATE TRIGGER runs_judge INSTEAD OF INSERT ON runs_judged WHEN NOT EXISTS (
    SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = NEW.lifecycle AND m.version = NEW.version
      AND m.src = NEW.src AND m.dst = NEW.dst
      AND NEW.rise >= m.events
      AND (m.guards = 0 OR ((m.guards & 1 = 0 OR trim(coalesce(NEW.reason, ''), char(9, 10, 11, 12, 13, 32)) <> '')
        AND (m.guards & 2 = 0 OR (NEW.resolved = 1 OR NEW.forced = 1))
        AND (m.guards & 4 = 0 OR EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND true))
        AND (m.guards & 8 = 0 OR EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.phase IN ('ready', 'held', 'parked')))
        AND (m.guards & 16 = 0 OR (NOT EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.phase IN ('ready', 'held', 'parked')) AND NOT EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'failed') AND EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'succeeded')))
        AND (m.guards & 32 = 0 OR (NOT EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.phase IN ('ready', 'held', 'parked')) AND EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'failed') AND EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'succeeded')))
        AND (m.guards & 64 = 0 OR (NOT EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.phase IN ('ready', 'held', 'parked')) AND NOT EXISTS (SELECT 1 FROM counted_items i WHERE i.run_id = NEW.run_id AND i.outcome = 'succeeded')))
        AND (m.guards & 128 = 0 OR NEW.attempt <= NEW.max_attempts)
        AND (m.guards & 256 = 0 OR NEW.reentrant = 1)
        AND (m.guards & 512 = 0 OR NOT (NEW.operating = 1)))))
BEGIN
  SELECT RAISE(ABORT, 'INVALID_TRANSITION: the lifecycle has no such move, or its guard does not hold');
END;
CREATE VIEW items_judged AS SELECT NULL AS src, NULL AS dst, NULL AS rise, NULL AS kind, NULL AS version, NULL AS attempts, NULL AS max_retries, NULL AS discarded, NULL AS reruns WHERE false;
CREATE TRIGGER items_judge INSTEAD OF INSERT ON items_judged WHEN NOT EXISTS (
    SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = NEW.kind AND m.version = NEW.version
      AND m.src = NEW.src AND m.dst = NEW.dst
      AND (m.guards = 0 OR ((m.guards & 128 = 0 OR NEW.attempts <= NEW.max_retries)
        AND (m.guards & 1024 = 0 OR NOT (NEW.discarded = 1))
        AND (m.guards & 2048 = 0 OR NEW.reruns = 1))))
BEGIN
  SELECT RAISE(ABORT, 'INVALID_TRANSITION: the lifecycle has no such move, or its guard does not hold');
END;
CREATE TRIGGER items_move BEFORE UPDATE OF status ON items WHEN NEW.status <> OLD.status AND NOT EXISTS (
    SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = OLD.kind AND m.version = OLD.version
      AND m.src = OLD.status AND m.dst = NEW.status AND m.guards = 0)
BEGIN
  INSERT INTO items_judged(src, dst, rise, kind, version, attempts, max_retries, discarded, reruns) VALUES (OLD.status, NEW.status, 1, NEW.kind, NEW.version, NEW.attempts, NEW.max_retries, NEW.discarded, NEW.reruns);
END;
CREATE TRIGGER items_course BEFORE UPDATE OF status ON items WHEN NEW.status <> OLD.status AND NEW.role <> 'cleanup' AND EXISTS (SELECT 1 FROM lifecycle_states n CROSS JOIN lifecycle_states o
    WHERE n.lifecycle = NEW.kind AND n.version = NEW.version AND n.state = NEW.status AND n.course = 'begins'
      AND o.lifecycle = NEW.kind AND o.version = NEW.version AND o.state = OLD.status
      AND CASE o.phase WHEN 'held' THEN false WHEN 'settled' THEN n.phase = 'held' ELSE true END)
BEGIN
  SELECT RAISE(ABORT, 'FAILURE_RECORDED: a step of the run has failed; nothing begins after it but cleanups') WHERE EXISTS (SELECT 1 FROM lifecycle_states f CROSS JOIN items i WHERE f.lifecycle = NEW.kind AND f.version = NEW.version
      AND f.course = 'ends' AND i.run_id = NEW.run_id AND i.kind = NEW.kind AND i.status = f.state AND i.role = 'step'
      AND (i.seq <> NEW.seq OR NEW.seq = OLD.seq));
END;
CREATE TRIGGER items_birth BEFORE INSERT ON items WHEN NOT EXISTS (
    SELECT 1 FROM lifecycle_states s WHERE s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status AND s.initial = 1)
BEGIN
  SELECT RAISE(ABORT, 'INVALID_TRANSITION: the lifecycle does not start there, and it is no copy of one that ended well') WHERE NOT (NEW.seq = 1 AND NEW.role <> 'cleanup' AND NEW.reruns = 0 AND EXISTS (
    SELECT 1 FROM runs r CROSS JOIN runs o CROSS JOIN items c CROSS JOIN lifecycle_states s
    WHERE r.run_id = NEW.run_id AND o.run_id = r.retry_of AND o.tenant = r.tenant AND o.playbook IS NOT DISTINCT FROM r.playbook
      AND o.finished_at IS NOT NULL AND c.run_id = o.run_id AND c.kind = NEW.kind
      AND c.key = NEW.key AND c.status = NEW.status AND coalesce(c.output, 'null') = coalesce(NEW.output, 'null')
      AND s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status AND s.outcome IN ('succeeded', 'skipped')
      AND EXISTS (SELECT 1 FROM lifecycle_states f WHERE f.lifecycle = NEW.kind AND f.version = NEW.version AND f.course = 'ends')));
END;
CREATE VIEW items_stay AS SELECT i.run_id, i.kind, i.key, EXISTS (
    SELECT 1 FROM lifecycles l CROSS JOIN json_each(l.definition, '$.states') d CROSS JOIN json_each(d.value) f WHERE json_extract(d.value, '$.name') = i.status AND f.key GLOB 'on_*'
      AND l.name = i.kind AND l.version = i.version AND EXISTS (SELECT 1 FROM lifecycle_moves m
        WHERE m.lifecycle = i.kind AND m.version = i.version AND m.src = i.status AND m.dst = f.value AND NOT (m.guards = 0 OR ((m.guards & 128 = 0 OR i.attempts <= i.max_retries)
        AND (m.guards & 1024 = 0 OR NOT (i.discarded = 1))
        AND (m.guards & 2048 = 0 OR i.reruns = 1))))) AS stays
  FROM items i;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('step', 1, 'item', NULL, NULL, '{"cancelled_metadata":{},"codes":{},"decisions":null,"description":"a step of a run","ids":null,"initial":["pending"],"items":[],"kind":"item","name":"step","operations":{},"projected":null,"states":[{"name":"pending","on_end":"skipped","phase":"ready"},{"name":"running","on_end":"failed","on_lost":"pending","on_pause":"paused","phase":"held"},{"name":"paused","on_end":"failed","on_resume":"pending","phase":"parked"},{"name":"completed","on_resume":"pending","outcome":"succeeded","phase":"settled"},{"name":"failed","outcome":"failed","phase":"settled"},{"name":"skipped","outcome":"skipped","phase":"settled"}],"stops_run":true,"transitions":[{"by":["worker"],"command":"start","from":"pending","guards":[],"to":"running"},{"by":["worker","engine"],"command":"skip","from":"pending","guards":[],"to":"skipped"},{"by":["worker"],"command":"fail","from":"pending","guards":[],"to":"failed"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker","engine"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["worker"],"command":"skip","from":"running","guards":[],"to":"skipped"},{"by":["worker","engine"],"command":"pause","from":"running","guards":[],"to":"paused"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"pending"},{"by":["worker"],"command":"retry","from":"running","guards":["attempts-left"],"to":"pending"},{"by":["worker","engine"],"command":"resume","from":"paused","guards":[],"to":"pending"},{"by":["worker"],"command":"skip","from":"paused","guards":[],"to":"skipped"},{"by":["worker","engine"],"command":"fail","from":"paused","guards":[],"to":"failed"},{"by":["engine"],"command":"resume","from":"completed","guards":["reruns"],"to":"pending"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('step', 1, 'pending', 'ready', NULL, 1, NULL),
  ('step', 1, 'running', 'held', NULL, 0, 'begins'),
  ('step', 1, 'paused', 'parked', NULL, 0, NULL),
  ('step', 1, 'completed', 'settled', 'succeeded', 0, 'begins'),
  ('step', 1, 'failed', 'settled', 'failed', 0, 'ends'),
  ('step', 1, 'skipped', 'settled', 'skipped', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('step', 1, 'pending', 'running', 0, 1, 'start'),
  ('step', 1, 'pending', 'skipped', 0, 1, 'skip'),
  ('step', 1, 'pending', 'failed', 0, 1, 'fail'),
  ('step', 1, 'running', 'completed', 0, 1, 'complete'),
  ('step', 1, 'running', 'failed', 0, 1, 'fail'),
  ('step', 1, 'running', 'skipped', 0, 1, 'skip'),
  ('step', 1, 'running', 'paused', 0, 1, 'pause'),
  ('step', 1, 'running', 'pending', 0, 1, 'lose'),
  ('step', 1, 'running', 'pending', 128, 1, 'retry'),
  ('step', 1, 'paused', 'pending', 0, 1, 'resume'),
  ('step', 1, 'paused', 'skipped', 0, 1, 'skip'),
  ('step', 1, 'paused', 'failed', 0, 1, 'fail'),
  ('step', 1, 'completed', 'pending', 2048, 1, 'resume'),
  ('step', 1, 'pending', 'completed', 0, 2, 'complete'),
  ('step', 1, 'pending', 'paused', 0, 2, 'pause')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('task', 1, 'item', NULL, NULL, '{"cancelled_metadata":{},"codes":{},"decisions":null,"description":"a part of a step whose progress is shown","ids":null,"initial":["pending"],"items":[],"kind":"item","name":"task","operations":{},"projected":null,"states":[{"name":"pending","on_end":"failed","phase":"ready"},{"name":"running","on_end":"failed","on_lost":"running","phase":"held"},{"name":"completed","outcome":"succeeded","phase":"settled"},{"name":"failed","outcome":"failed","phase":"settled"}],"stops_run":false,"transitions":[{"by":["worker"],"command":"start","from":"pending","guards":[],"to":"running"},{"by":["worker","engine"],"command":"fail","from":"pending","guards":[],"to":"failed"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker","engine"],"command":"fail","from":"running","guards":[],"to":"failed"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('task', 1, 'pending', 'ready', NULL, 1, NULL),
  ('task', 1, 'running', 'held', NULL, 0, NULL),
  ('task', 1, 'completed', 'settled', 'succeeded', 0, NULL),
  ('task', 1, 'failed', 'settled', 'failed', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('task', 1, 'pending', 'running', 0, 1, 'start'),
  ('task', 1, 'pending', 'failed', 0, 1, 'fail'),
  ('task', 1, 'running', 'completed', 0, 1, 'complete'),
  ('task', 1, 'running', 'failed', 0, 1, 'fail'),
  ('task', 1, 'pending', 'completed', 0, 2, 'complete')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('target', 1, 'item', NULL, NULL, '{"cancelled_metadata":{},"codes":{},"decisions":null,"description":"a target of a bulk change","ids":null,"initial":["PREVIEW","QUEUED"],"items":[],"kind":"item","name":"target","operations":{},"projected":null,"states":[{"name":"PREVIEW","on_queue":"QUEUED","phase":"draft"},{"name":"QUEUED","on_end":"FAILED","phase":"ready"},{"name":"APPLYING","on_end":"FAILED","on_lost":"QUEUED","phase":"held"},{"name":"APPLIED","outcome":"succeeded","phase":"settled"},{"name":"FAILED","on_retry":"QUEUED","outcome":"failed","phase":"settled"},{"name":"ROLLED_BACK","outcome":"reverted","phase":"settled"}],"stops_run":false,"transitions":[{"by":["client","engine"],"command":"queue","from":"PREVIEW","guards":[],"to":"QUEUED"},{"by":["worker"],"command":"apply","from":"QUEUED","guards":[],"to":"APPLYING"},{"by":["worker","engine"],"command":"fail","from":"QUEUED","guards":[],"to":"FAILED"},{"by":["worker"],"command":"succeed","from":"APPLYING","guards":[],"to":"APPLIED"},{"by":["worker"],"command":"retry","from":"APPLYING","guards":["attempts-left"],"to":"QUEUED"},{"by":["worker"],"command":"wait","from":"APPLYING","guards":[],"to":"QUEUED"},{"by":["engine"],"command":"lose","from":"APPLYING","guards":[],"to":"QUEUED"},{"by":["worker","engine"],"command":"fail","from":"APPLYING","guards":[],"to":"FAILED"},{"by":["client","engine"],"command":"retry","from":"FAILED","guards":["not-discarded"],"to":"QUEUED"},{"by":["engine"],"command":"rollback","from":"APPLIED","guards":[],"to":"ROLLED_BACK"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('target', 1, 'PREVIEW', 'draft', NULL, 1, NULL),
  ('target', 1, 'QUEUED', 'ready', NULL, 1, NULL),
  ('target', 1, 'APPLYING', 'held', NULL, 0, NULL),
  ('target', 1, 'APPLIED', 'settled', 'succeeded', 0, NULL),
  ('target', 1, 'FAILED', 'settled', 'failed', 0, NULL),
  ('target', 1, 'ROLLED_BACK', 'settled', 'reverted', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('target', 1, 'PREVIEW', 'QUEUED', 0, 1, 'queue'),
  ('target', 1, 'QUEUED', 'APPLYING', 0, 1, 'apply'),
  ('target', 1, 'QUEUED', 'FAILED', 0, 1, 'fail'),
  ('target', 1, 'APPLYING', 'APPLIED', 0, 1, 'succeed'),
  ('target', 1, 'APPLYING', 'QUEUED', 128, 1, 'retry'),
  ('target', 1, 'APPLYING', 'QUEUED', 0, 1, 'wait'),
  ('target', 1, 'APPLYING', 'FAILED', 0, 1, 'fail'),
  ('target', 1, 'FAILED', 'QUEUED', 1024, 1, 'retry'),
  ('target', 1, 'APPLIED', 'ROLLED_BACK', 0, 1, 'rollback'),
  ('target', 1, 'QUEUED', 'APPLIED', 0, 2, 'succeed')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('deploy', 1, 'run', 'step', 1, '{"cancelled_metadata":{"cancelled_by":"by","claimed_at":"claimed_at","original_worker":"worker","reason":"reason"},"codes":{},"decisions":null,"description":"build, deploy, backup: one command or playbook that nobody pauses; a lost worker fails it, unless retries are left","ids":"run-{uuid7}","initial":["queued"],"items":["step"],"kind":"run","name":"deploy","operations":{},"projected":false,"states":[{"name":"queued","phase":"ready","terminal":false},{"deadline":"5m","name":"claimed","on_stale":"expire","phase":"held","terminal":false},{"lease":"1m","name":"running","on_stale":"lose","phase":"held","terminal":false},{"keep":"30d","name":"success","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"failed","outcome":"failed","phase":"settled","terminal":true},{"keep":"90d","name":"cancelled","outcome":"cancelled","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["worker"],"command":"claim","from":"queued","guards":[],"to":"claimed"},{"by":["client"],"command":"cancel","from":"queued","guards":[],"to":"cancelled"},{"by":["engine"],"command":"expire","from":"queued","guards":[],"to":"cancelled"},{"by":["worker"],"command":"start","from":"claimed","guards":[],"to":"running"},{"by":["engine"],"command":"expire","from":"claimed","guards":[],"to":"cancelled"},{"by":["client","worker"],"command":"cancel","from":"claimed","guards":[],"to":"cancelled"},{"by":["worker"],"command":"succeed","from":"running","guards":[],"to":"success"},{"by":["worker"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["client","worker"],"command":"cancel","from":"running","guards":[],"to":"cancelled"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"failed"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('deploy', 1, 'queued', 'ready', NULL, 1, NULL),
  ('deploy', 1, 'claimed', 'held', NULL, 0, NULL),
  ('deploy', 1, 'running', 'held', NULL, 0, NULL),
  ('deploy', 1, 'success', 'settled', 'succeeded', 0, NULL),
  ('deploy', 1, 'failed', 'settled', 'failed', 0, NULL),
  ('deploy', 1, 'cancelled', 'settled', 'cancelled', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('deploy', 1, 'queued', 'claimed', 0, 1, 'claim'),
  ('deploy', 1, 'queued', 'cancelled', 0, 1, 'cancel'),
  ('deploy', 1, 'claimed', 'running', 0, 1, 'start'),
  ('deploy', 1, 'claimed', 'cancelled', 0, 1, 'expire'),
  ('deploy', 1, 'running', 'success', 0, 1, 'succeed'),
  ('deploy', 1, 'running', 'failed', 0, 1, 'fail'),
  ('deploy', 1, 'running', 'cancelled', 0, 1, 'cancel'),
  ('deploy', 1, 'queued', 'running', 0, 2, 'start'),
  ('deploy', 1, 'claimed', 'success', 0, 2, 'succeed'),
  ('deploy', 1, 'claimed', 'failed', 0, 2, 'fail')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('agent', 1, 'run', 'step', 1, '{"cancelled_metadata":{},"codes":{"expire":"UPSTREAM_UNAVAILABLE"},"decisions":null,"description":"a run of an agent: asked for, acknowledged, worked step by step, with proposals that people approve; a lost worker is taken over","ids":"run_{date}_{time}_{rand6}","initial":["requested"],"items":["step"],"kind":"run","name":"agent","operations":{},"projected":true,"states":[{"name":"requested","phase":"draft","terminal":false,"ttl":"1m"},{"name":"queued","phase":"ready","terminal":false},{"lease":"1m","max_take_overs":5,"name":"running","on_stale":"take-over","phase":"held","terminal":false},{"keep":"30d","name":"completed","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"failed","outcome":"failed","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["engine"],"command":"acknowledge","from":"requested","guards":[],"to":"queued"},{"by":["engine"],"command":"expire","from":"requested","guards":[],"to":"failed"},{"by":["client"],"command":"cancel","from":"requested","guards":[],"to":"failed"},{"by":["worker"],"command":"claim","from":"queued","guards":[],"to":"running"},{"by":["engine"],"command":"fail","from":"queued","guards":[],"to":"failed"},{"by":["client"],"command":"cancel","from":"queued","guards":[],"to":"failed"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["client","worker"],"command":"cancel","from":"running","guards":[],"to":"failed"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"failed"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('agent', 1, 'requested', 'draft', NULL, 1, NULL),
  ('agent', 1, 'queued', 'ready', NULL, 0, NULL),
  ('agent', 1, 'running', 'held', NULL, 0, NULL),
  ('agent', 1, 'completed', 'settled', 'succeeded', 0, NULL),
  ('agent', 1, 'failed', 'settled', 'failed', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('agent', 1, 'requested', 'queued', 0, 1, 'acknowledge'),
  ('agent', 1, 'requested', 'failed', 0, 1, 'expire'),
  ('agent', 1, 'queued', 'running', 0, 1, 'claim'),
  ('agent', 1, 'queued', 'failed', 0, 1, 'fail'),
  ('agent', 1, 'running', 'completed', 0, 1, 'complete'),
  ('agent', 1, 'running', 'failed', 0, 1, 'fail')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('cron', 1, 'run', NULL, NULL, '{"cancelled_metadata":{},"codes":{"cancel":"canceled","lose":"stale_timeout"},"decisions":null,"description":"one execution of a schedule: the row is its lease and its record; a stale one is stolen if the schedule says so","ids":"{uuid7}","initial":["RUNNING"],"items":[],"kind":"run","name":"cron","operations":{},"projected":false,"states":[{"lease":"30m","name":"RUNNING","on_stale":"steal","phase":"held","terminal":false},{"keep":"30d","name":"SUCCESS","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"FAILED","outcome":"failed","phase":"settled","retry":true,"terminal":false}],"stops_run":null,"transitions":[{"by":["worker"],"command":"succeed","from":"RUNNING","guards":[],"to":"SUCCESS"},{"by":["worker"],"command":"fail","from":"RUNNING","guards":[],"to":"FAILED"},{"by":["worker"],"command":"steal","from":"RUNNING","guards":["attempts-left","reentrant"],"to":"RUNNING"},{"by":["engine"],"command":"lose","from":"RUNNING","guards":[],"to":"FAILED"},{"by":["client","worker"],"command":"cancel","from":"RUNNING","guards":[],"to":"FAILED"},{"by":["worker"],"command":"retry","from":"FAILED","guards":["attempts-left"],"to":"RUNNING"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('cron', 1, 'RUNNING', 'held', NULL, 1, NULL),
  ('cron', 1, 'SUCCESS', 'settled', 'succeeded', 0, NULL),
  ('cron', 1, 'FAILED', 'settled', 'failed', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('cron', 1, 'RUNNING', 'SUCCESS', 0, 1, 'succeed'),
  ('cron', 1, 'RUNNING', 'FAILED', 0, 1, 'fail'),
  ('cron', 1, 'FAILED', 'RUNNING', 128, 1, 'retry')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('job', 1, 'run', 'step', 1, '{"cancelled_metadata":{},"codes":{},"decisions":{"asked":"current_blockers","asked_count":"hosts_with_blockers","critical_count":"total_critical_blockers","given":"maintenance_blocker_resolutions","waiting":"awaiting_blocker_resolution"},"description":"maintenance that may pause for a person: step by step, with cleanups; a lost worker is taken over in place","ids":"{uuid7}","initial":["pending"],"items":["step","task"],"kind":"run","name":"job","operations":{},"projected":false,"states":[{"name":"pending","phase":"ready","terminal":false},{"lease":"1m","max_take_overs":5,"name":"running","on_stale":"take-over","phase":"held","terminal":false},{"name":"paused","phase":"parked","terminal":false},{"keep":"30d","name":"completed","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"failed","outcome":"failed","phase":"settled","terminal":true},{"keep":"90d","name":"cancelled","outcome":"cancelled","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["worker"],"command":"claim","from":"pending","guards":["has-items"],"to":"running"},{"by":["client"],"command":"cancel","from":"pending","guards":[],"to":"cancelled"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["operator","worker"],"command":"pause","from":"running","guards":["has-reason"],"to":"paused"},{"by":["client","worker"],"command":"cancel","from":"running","guards":[],"to":"cancelled"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"failed"},{"by":["operator"],"command":"resume","from":"paused","guards":["resolved-or-forced"],"to":"pending"},{"by":["client"],"command":"cancel","from":"paused","guards":[],"to":"cancelled"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('job', 1, 'pending', 'ready', NULL, 1, NULL),
  ('job', 1, 'running', 'held', NULL, 0, NULL),
  ('job', 1, 'paused', 'parked', NULL, 0, NULL),
  ('job', 1, 'completed', 'settled', 'succeeded', 0, NULL),
  ('job', 1, 'failed', 'settled', 'failed', 0, NULL),
  ('job', 1, 'cancelled', 'settled', 'cancelled', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('job', 1, 'pending', 'running', 4, 1, 'claim'),
  ('job', 1, 'pending', 'cancelled', 0, 1, 'cancel'),
  ('job', 1, 'running', 'completed', 0, 1, 'complete'),
  ('job', 1, 'running', 'failed', 0, 1, 'fail'),
  ('job', 1, 'running', 'paused', 1, 1, 'pause'),
  ('job', 1, 'running', 'cancelled', 0, 1, 'cancel'),
  ('job', 1, 'paused', 'pending', 2, 1, 'resume'),
  ('job', 1, 'paused', 'cancelled', 0, 1, 'cancel')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('rule', 1, 'run', 'target', 1, '{"cancelled_metadata":{},"codes":{},"decisions":null,"description":"a bulk change: preview first, then queued and applied target by target, retried or rolled back","ids":"rule-{uuid7}","initial":["PREVIEW","QUEUED"],"items":["target"],"kind":"run","name":"rule","operations":{"reconcile":["APPLIED","PARTIAL","FAILED"],"rollback":["APPLIED","PARTIAL"]},"projected":false,"states":[{"name":"PREVIEW","phase":"draft","terminal":false,"ttl":"7d"},{"name":"QUEUED","phase":"ready","terminal":false},{"lease":"1m","max_take_overs":5,"name":"APPLYING","on_stale":"take-over","phase":"held","terminal":false},{"keep":"30d","name":"APPLIED","outcome":"succeeded","phase":"settled","terminal":false},{"keep":"90d","name":"PARTIAL","outcome":"partial","phase":"settled","terminal":false},{"keep":"90d","name":"FAILED","outcome":"failed","phase":"settled","terminal":false},{"keep":"90d","name":"ROLLED_BACK","outcome":"reverted","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["client","engine"],"command":"queue","from":"PREVIEW","guards":["has-items"],"to":"QUEUED"},{"by":["client"],"command":"cancel","from":"PREVIEW","guards":[],"to":"FAILED"},{"by":["engine"],"command":"expire","from":"PREVIEW","guards":[],"to":"FAILED"},{"by":["worker"],"command":"claim","from":"QUEUED","guards":[],"to":"APPLYING"},{"by":["client"],"command":"cancel","from":"QUEUED","guards":[],"to":"FAILED"},{"by":["worker"],"command":"complete","from":"APPLYING","guards":["all-items-ok"],"to":"APPLIED"},{"by":["worker"],"command":"settle","from":"APPLYING","guards":["some-item-failed"],"to":"PARTIAL"},{"by":["worker"],"command":"fail","from":"APPLYING","guards":["no-item-ok"],"to":"FAILED"},{"by":["client","worker"],"command":"cancel","from":"APPLYING","guards":["all-items-ok"],"to":"APPLIED"},{"by":["client","worker"],"command":"cancel","from":"APPLYING","guards":["some-item-failed"],"to":"PARTIAL"},{"by":["client","worker"],"command":"cancel","from":"APPLYING","guards":["no-item-ok"],"to":"FAILED"},{"by":["engine"],"command":"lose","from":"APPLYING","guards":["all-items-ok"],"to":"APPLIED"},{"by":["engine"],"command":"lose","from":"APPLYING","guards":["some-item-failed"],"to":"PARTIAL"},{"by":["engine"],"command":"lose","from":"APPLYING","guards":["no-item-ok"],"to":"FAILED"},{"by":["client"],"command":"retry","from":"PARTIAL","guards":["no-operation","some-item-open"],"to":"APPLYING"},{"by":["client"],"command":"retry","from":"FAILED","guards":["no-operation","some-item-open"],"to":"APPLYING"},{"by":["engine"],"command":"rollback","from":"APPLIED","guards":["no-item-ok"],"to":"ROLLED_BACK"},{"by":["engine"],"command":"rollback","from":"PARTIAL","guards":["no-item-ok"],"to":"ROLLED_BACK"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('rule', 1, 'PREVIEW', 'draft', NULL, 1, NULL),
  ('rule', 1, 'QUEUED', 'ready', NULL, 1, NULL),
  ('rule', 1, 'APPLYING', 'held', NULL, 0, NULL),
  ('rule', 1, 'APPLIED', 'settled', 'succeeded', 0, NULL),
  ('rule', 1, 'PARTIAL', 'settled', 'partial', 0, NULL),
  ('rule', 1, 'FAILED', 'settled', 'failed', 0, NULL),
  ('rule', 1, 'ROLLED_BACK', 'settled', 'reverted', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('rule', 1, 'PREVIEW', 'QUEUED', 4, 1, 'queue'),
  ('rule', 1, 'PREVIEW', 'FAILED', 0, 1, 'cancel'),
  ('rule', 1, 'QUEUED', 'APPLYING', 0, 1, 'claim'),
  ('rule', 1, 'QUEUED', 'FAILED', 0, 1, 'cancel'),
  ('rule', 1, 'APPLYING', 'APPLIED', 16, 1, 'complete'),
  ('rule', 1, 'APPLYING', 'PARTIAL', 32, 1, 'settle'),
  ('rule', 1, 'APPLYING', 'FAILED', 64, 1, 'fail'),
  ('rule', 1, 'PARTIAL', 'APPLYING', 520, 1, 'retry'),
  ('rule', 1, 'FAILED', 'APPLYING', 520, 1, 'retry'),
  ('rule', 1, 'APPLIED', 'ROLLED_BACK', 64, 1, 'rollback'),
  ('rule', 1, 'PARTIAL', 'ROLLED_BACK', 64, 1, 'rollback')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('operation', 1, 'run', NULL, NULL, '{"cancelled_metadata":{},"codes":{},"decisions":null,"description":"a rollback, a reconciliation or a bulk command that belongs to another run","ids":"op-{uuid7}","initial":["queued"],"items":[],"kind":"run","name":"operation","operations":{},"projected":false,"states":[{"name":"queued","phase":"ready","terminal":false},{"lease":"1m","max_take_overs":5,"name":"running","on_stale":"take-over","phase":"held","terminal":false},{"keep":"30d","name":"completed","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"90d","name":"partial","outcome":"partial","phase":"settled","terminal":true},{"keep":"90d","name":"failed","outcome":"failed","phase":"settled","terminal":true},{"keep":"90d","name":"cancelled","outcome":"cancelled","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["worker"],"command":"claim","from":"queued","guards":[],"to":"running"},{"by":["client"],"command":"cancel","from":"queued","guards":[],"to":"cancelled"},{"by":["worker"],"command":"complete","from":"running","guards":[],"to":"completed"},{"by":["worker"],"command":"settle","from":"running","guards":[],"to":"partial"},{"by":["worker"],"command":"fail","from":"running","guards":[],"to":"failed"},{"by":["client","worker"],"command":"cancel","from":"running","guards":[],"to":"cancelled"},{"by":["engine"],"command":"lose","from":"running","guards":[],"to":"failed"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('operation', 1, 'queued', 'ready', NULL, 1, NULL),
  ('operation', 1, 'running', 'held', NULL, 0, NULL),
  ('operation', 1, 'completed', 'settled', 'succeeded', 0, NULL),
  ('operation', 1, 'partial', 'settled', 'partial', 0, NULL),
  ('operation', 1, 'failed', 'settled', 'failed', 0, NULL),
  ('operation', 1, 'cancelled', 'settled', 'cancelled', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('operation', 1, 'queued', 'running', 0, 1, 'claim'),
  ('operation', 1, 'queued', 'cancelled', 0, 1, 'cancel'),
  ('operation', 1, 'running', 'completed', 0, 1, 'complete'),
  ('operation', 1, 'running', 'partial', 0, 1, 'settle'),
  ('operation', 1, 'running', 'failed', 0, 1, 'fail'),
  ('operation', 1, 'running', 'cancelled', 0, 1, 'cancel')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('proposal', 1, 'run', NULL, NULL, '{"cancelled_metadata":{},"codes":{"expire":"EXPIRED"},"decisions":null,"description":"what an agent proposes and a person decides; once approved it may be applied, as its agent''s playbook says","ids":"prop_{date}_{rand6}","initial":["pending"],"items":[],"kind":"run","name":"proposal","operations":{},"projected":false,"states":[{"name":"pending","phase":"draft","terminal":false,"ttl":"3d"},{"keep":"365d","name":"approved","outcome":"succeeded","phase":"settled","terminal":false},{"lease":"1m","max_take_overs":5,"name":"applying","on_stale":"take-over","phase":"held","terminal":false},{"keep":"365d","name":"applied","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"365d","name":"failed","outcome":"failed","phase":"settled","terminal":false},{"keep":"365d","name":"rejected","outcome":"cancelled","phase":"settled","terminal":true},{"keep":"365d","name":"expired","outcome":"cancelled","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["client"],"command":"approve","from":"pending","guards":[],"to":"approved"},{"by":["client"],"command":"reject","from":"pending","guards":["has-reason"],"to":"rejected"},{"by":["engine"],"command":"expire","from":"pending","guards":[],"to":"expired"},{"by":["client"],"command":"apply","from":"approved","guards":[],"to":"applying"},{"by":["worker"],"command":"complete","from":"applying","guards":[],"to":"applied"},{"by":["worker"],"command":"fail","from":"applying","guards":[],"to":"failed"},{"by":["client","worker"],"command":"cancel","from":"applying","guards":[],"to":"failed"},{"by":["engine"],"command":"lose","from":"applying","guards":[],"to":"failed"},{"by":["client"],"command":"retry","from":"failed","guards":[],"to":"applying"},{"by":["client"],"command":"reject","from":"failed","guards":["has-reason"],"to":"rejected"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('proposal', 1, 'pending', 'draft', NULL, 1, NULL),
  ('proposal', 1, 'approved', 'settled', 'succeeded', 0, NULL),
  ('proposal', 1, 'applying', 'held', NULL, 0, NULL),
  ('proposal', 1, 'applied', 'settled', 'succeeded', 0, NULL),
  ('proposal', 1, 'failed', 'settled', 'failed', 0, NULL),
  ('proposal', 1, 'rejected', 'settled', 'cancelled', 0, NULL),
  ('proposal', 1, 'expired', 'settled', 'cancelled', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('proposal', 1, 'pending', 'approved', 0, 1, 'approve'),
  ('proposal', 1, 'pending', 'rejected', 1, 1, 'reject'),
  ('proposal', 1, 'pending', 'expired', 0, 1, 'expire'),
  ('proposal', 1, 'approved', 'applying', 0, 1, 'apply'),
  ('proposal', 1, 'applying', 'applied', 0, 1, 'complete'),
  ('proposal', 1, 'applying', 'failed', 0, 1, 'fail'),
  ('proposal', 1, 'failed', 'applying', 0, 1, 'retry'),
  ('proposal', 1, 'failed', 'rejected', 1, 1, 'reject')
  ON CONFLICT DO NOTHING;

INSERT INTO lifecycles(name, version, kind, items, items_version, definition) VALUES ('inbox', 1, 'run', NULL, NULL, '{"cancelled_metadata":{},"codes":{"expire":"EXPIRED"},"decisions":null,"description":"what came in for a person to look at: processed, rejected, or expired after 72 hours","ids":"inbox_{date}_{rand6}","initial":["pending"],"items":[],"kind":"run","name":"inbox","operations":{},"projected":false,"states":[{"name":"pending","phase":"draft","terminal":false,"ttl":"3d"},{"keep":"365d","name":"processed","outcome":"succeeded","phase":"settled","terminal":true},{"keep":"365d","name":"rejected","outcome":"cancelled","phase":"settled","terminal":true},{"keep":"365d","name":"expired","outcome":"cancelled","phase":"settled","terminal":true}],"stops_run":null,"transitions":[{"by":["client","engine"],"command":"process","from":"pending","guards":[],"to":"processed"},{"by":["client","engine"],"command":"reject","from":"pending","guards":[],"to":"rejected"},{"by":["engine"],"command":"expire","from":"pending","guards":[],"to":"expired"}],"version":1}')
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_states(lifecycle, version, state, phase, outcome, initial, course) VALUES
  ('inbox', 1, 'pending', 'draft', NULL, 1, NULL),
  ('inbox', 1, 'processed', 'settled', 'succeeded', 0, NULL),
  ('inbox', 1, 'rejected', 'settled', 'cancelled', 0, NULL),
  ('inbox', 1, 'expired', 'settled', 'cancelled', 0, NULL)
  ON CONFLICT DO NOTHING;
INSERT INTO lifecycle_moves(lifecycle, version, src, dst, guards, events, command) VALUES
  ('inbox', 1, 'pending', 'processed', 0, 1, 'process'),
  ('inbox', 1, 'pending', 'rejected', 0, 1, 'reject'),
  ('inbox', 1, 'pending', 'expired', 0, 1, 'expire')
  ON CONFLICT DO NOTHING;
