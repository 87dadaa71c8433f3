-- The views that people look at and write to, and what their writes mean: a legal move gets its event and what follows
-- from the phases, all else is refused by name. The engine writes the tables behind them; both are judged by the
-- triggers of those.

CREATE VIEW runs AS SELECT b.rid, b.run_id, b.tenant, s.lifecycle, s.version, s.state AS status, s.phase, n.queue, n.priority, n.seq,
    n.attempt, b.max_attempts, n.take_overs, n.fence,
    CASE WHEN n.state & 7 = 2 THEN iif(typeof(n.token) = 'blob', lower(hex(n.token)), n.token) END AS lease_token,
    n.claimed_by, n.lease_ms, CASE WHEN n.state & 7 = 2 THEN strftime('%Y-%m-%dT%H:%M:%fZ', n.due_at / 1000.0, 'unixepoch') END AS stale_after,
    CASE WHEN n.state & 7 <> 2 THEN iif(typeof(n.token) = 'blob', lower(hex(n.token)), n.token) END AS ended_by,
    n.last_command, n.intent, n.flags & 1 AS requires_cleanup, n.flags >> 1 & 1 AS cleanup_failed, n.flags >> 2 & 1 AS operating,
    b.reentrant, n.flags >> 3 & 1 AS resolved, n.flags >> 4 & 1 AS forced, n.blocked, n.reason, n.error_code, n.error_msg,
    strftime('%Y-%m-%dT%H:%M:%fZ', b.at / 1000.0, 'unixepoch') AS queued_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', n.started_at / 1000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', n.finished_at / 1000.0, 'unixepoch') AS finished_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', b.schedule_at / 1000.0, 'unixepoch') AS schedule_at,
    CASE WHEN n.state & 7 <> 2 THEN strftime('%Y-%m-%dT%H:%M:%fZ', n.due_at / 1000.0, 'unixepoch') END AS available_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', n.expires_at / 1000.0, 'unixepoch') AS expires_at,
    n.concurrency_key, {labels of b}, b.fingerprint, b.carried,
    n.last AS last_event, n.items AS item_count, b.input, coalesce(n.metadata, b.metadata, '{}') AS metadata, coalesce(n.details, b.details, '{}') AS details
  FROM run_now n JOIN run_born b ON b.rid = n.rid JOIN state_codes s ON s.code = n.state;

CREATE VIEW events AS
  SELECT b.position, b.run_id, 1 AS seq, strftime('%Y-%m-%dT%H:%M:%fZ', b.at / 1000.0, 'unixepoch') AS at, b.command,
    NULL AS "from", s.state AS "to", b.actor, b.who AS "by", NULL AS level, NULL AS message, NULL AS payload,
    json_set(coalesce(b.effect, '{}'), '$.metadata', json(coalesce(b.metadata, '{}')), '$.details', json(coalesce(b.details, '{}'))) AS effect
  FROM run_born b JOIN state_codes s ON s.code = b.state
  UNION ALL SELECT e.position - 1, b.run_id, e.seq - 1, strftime('%Y-%m-%dT%H:%M:%fZ', e.at / 1000.0, 'unixepoch'), e.via_command,
    s.state, d.state, e.actor, e.who, NULL, NULL, NULL, NULL
  FROM run_events e JOIN run_born b ON b.rid = e.rid JOIN state_codes s ON s.code = e.src JOIN state_codes d ON d.code = e.via
  WHERE e.via IS NOT NULL
  UNION ALL SELECT e.position, b.run_id, e.seq, strftime('%Y-%m-%dT%H:%M:%fZ', e.at / 1000.0, 'unixepoch'), e.command,
    s.state, d.state, e.actor, e.who, e.level, e.message, e.payload, e.effect
  FROM run_events e JOIN run_born b ON b.rid = e.rid JOIN state_codes s ON s.code = coalesce(e.via, e.src) JOIN state_codes d ON d.code = e.dst;

CREATE TRIGGER events_update INSTEAD OF UPDATE ON events BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: events cannot be changed'); END;
CREATE TRIGGER events_delete INSTEAD OF DELETE ON events BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: events cannot be deleted'); END;
CREATE TRIGGER events_insert INSTEAD OF INSERT ON events BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: events are written by moves of their run'); END;
CREATE TRIGGER runs_delete INSTEAD OF DELETE ON runs
  BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: runs cannot be deleted; settled ones leave by pruning'); END;
CREATE TRIGGER runs_insert INSTEAD OF INSERT ON runs
  BEGIN SELECT RAISE(FAIL, 'IMMUTABLE: a run is born with its first event: waypost run start'); END;

CREATE VIEW clock AS SELECT ms, strftime('%Y-%m-%dT%H:%M:%fZ', ms / 1000.0, 'unixepoch') AS iso FROM (
  SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
    + coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'clock_ahead_ms'), 0) AS ms);
-- The next of both tables that hold events.
CREATE VIEW next_position AS SELECT 1 + max(coalesce((SELECT position FROM run_born ORDER BY rid DESC LIMIT 1), 0),
    coalesce((SELECT max(position) FROM run_events), 0)) AS position;
-- What a move by hand is called: of several commands the one that asks for least.
CREATE VIEW moves_by_hand AS SELECT m.lifecycle, m.version, m.src, m.dst, s.code AS src_code, d.code AS dst_code, s.phase AS was,
    d.phase AS phase, min(m.guards) AS least, max(m.guards & 1) AS needs_reason, m.command
  FROM lifecycle_moves m JOIN state_codes s ON s.lifecycle = m.lifecycle AND s.version = m.version AND s.state = m.src
    JOIN state_codes d ON d.lifecycle = m.lifecycle AND d.version = m.version AND d.state = m.dst
  WHERE m.events = 1 GROUP BY m.lifecycle, m.version, m.src, m.dst;

-- Where the items of a run would follow, by its commands and, for those that do not name it, its end.
CREATE VIEW item_follows AS SELECT i.run_id, i.kind, i.status AS src, substr(f.key, 4) AS command, f.value AS dst, s.phase AS was, t.phase, t.outcome
  FROM items i JOIN lifecycles l ON l.name = i.kind AND l.version = i.version JOIN json_each(l.definition, '$.states') d JOIN json_each(d.value) f
    JOIN lifecycle_states s ON s.lifecycle = i.kind AND s.version = i.version AND s.state = i.status
    JOIN lifecycle_states t ON t.lifecycle = i.kind AND t.version = i.version AND t.state = f.value
  WHERE i.stays = 0 AND json_extract(d.value, '$.name') = i.status AND f.key GLOB 'on_*' AND f.value <> i.status;
-- Items that move because their run did, whoever moves it: the engine and the trigger below hand them in here, in the
-- words of the event's effect. What such a move makes of each is said once. All go at once, each from where it was: one that follows
-- into a state is not one of those that leave it.
CREATE VIEW item_shifts AS SELECT NULL AS run_id, NULL AS seq, NULL AS at, NULL AS shifts WHERE false;
CREATE TRIGGER item_shifts_move INSTEAD OF INSERT ON item_shifts
BEGIN
  UPDATE items SET status = t.state, seq = NEW.seq, not_before = NULL,
      started_at = iif(t.phase = 'held', coalesce(started_at, NEW.at), started_at),
      finished_at = CASE WHEN t.phase = 'settled' THEN NEW.at WHEN s.phase = 'settled' THEN NULL ELSE finished_at END,
      attempts = iif(s.phase = 'settled' AND t.phase <> 'settled', 0, attempts),
      progress = CASE WHEN t.outcome = 'succeeded' THEN 100 WHEN s.phase = 'settled' AND t.phase <> 'settled' THEN 0 ELSE progress END,
      error_code = CASE WHEN t.outcome = 'succeeded' THEN NULL WHEN f.value ->> '$.failure.code' IS NOT NULL THEN f.value ->> '$.failure.code'
        WHEN s.phase = 'settled' AND t.phase <> 'settled' THEN NULL ELSE error_code END,
      error_msg = CASE WHEN t.outcome = 'succeeded' THEN NULL WHEN f.value ->> '$.failure.code' IS NOT NULL THEN f.value ->> '$.failure.message'
        WHEN s.phase = 'settled' AND t.phase <> 'settled' THEN NULL ELSE error_msg END
    FROM json_each(NEW.shifts) f, lifecycle_states s, lifecycle_states t
    WHERE items.run_id = NEW.run_id AND items.kind = f.value ->> 'kind' AND items.status = f.value ->> 'from' AND items.stays = 0
      AND (f.value ->> 'chosen' IS NULL OR items.key IN (SELECT c.value FROM json_each(f.value, '$.chosen') c))
      AND s.lifecycle = items.kind AND s.version = items.version AND s.state = items.status
      AND t.lifecycle = items.kind AND t.version = items.version AND t.state = f.value ->> 'to';
END;

-- Where in a run's details the decisions are that its lifecycle's pauses ask for, as paths. Lifecycles without any are not in it.
CREATE VIEW lifecycle_decisions AS SELECT name AS lifecycle, version, '$."' || (definition ->> '$.decisions.waiting') || '"' AS waiting,
    '$."' || (definition ->> '$.decisions.asked') || '"' AS asked, '$."' || (definition ->> '$.decisions.given') || '"' AS given
  FROM lifecycles WHERE definition ->> '$.decisions.given' IS NOT NULL;

-- What a write to the view `runs` comes to, while it is made: merged details (J7), and the items that follow.
CREATE TABLE hand_edits(rid INTEGER PRIMARY KEY, details TEXT NOT NULL, shifts TEXT NOT NULL);
CREATE TRIGGER runs_update INSTEAD OF UPDATE ON runs
BEGIN
  SELECT CASE
    WHEN (NEW.rid, NEW.run_id, NEW.tenant, NEW.lifecycle, NEW.version, NEW.seq, NEW.max_attempts, NEW.reentrant, NEW.queued_at, NEW.schedule_at,
        {labels of NEW}, NEW.fingerprint, NEW.carried,
        NEW.last_event, NEW.item_count, NEW.input)
      IS NOT (OLD.rid, OLD.run_id, OLD.tenant, OLD.lifecycle, OLD.version, OLD.seq, OLD.max_attempts, OLD.reentrant, OLD.queued_at, OLD.schedule_at,
        {labels of OLD}, OLD.fingerprint, OLD.carried,
        OLD.last_event, OLD.item_count, OLD.input)
      OR NEW.fence < OLD.fence
      THEN RAISE(FAIL, 'IMMUTABLE: what a run was born with stays, seq is the log''s, the fence only rises')
    WHEN OLD.phase = 'settled' AND NEW.status IS OLD.status THEN RAISE(FAIL, 'SETTLED: a finished run cannot be rewritten')
    WHEN julianday(NEW.stale_after) IS NULL AND NEW.stale_after IS NOT NULL OR julianday(NEW.finished_at) IS NULL AND NEW.finished_at IS NOT NULL
        OR julianday(NEW.started_at) IS NULL AND NEW.started_at IS NOT NULL OR julianday(NEW.available_at) IS NULL AND NEW.available_at IS NOT NULL
        OR julianday(NEW.expires_at) IS NULL AND NEW.expires_at IS NOT NULL
      THEN RAISE(FAIL, 'SHAPE: times are written like 2026-02-14T08:00:00.000Z')
    WHEN (NEW.requires_cleanup IN (0, 1)) + (NEW.cleanup_failed IN (0, 1)) + (NEW.operating IN (0, 1)) + (NEW.resolved IN (0, 1))
        + (NEW.forced IN (0, 1)) IS NOT 5
      THEN RAISE(FAIL, 'SHAPE: requires_cleanup, cleanup_failed, operating, resolved and forced are 0 or 1')
    WHEN NOT json_valid(NEW.metadata) OR NOT json_valid(NEW.details) THEN RAISE(FAIL, 'SHAPE: metadata and details are JSON')
    WHEN json_type(NEW.metadata) <> 'object' OR json_type(NEW.details) <> 'object' THEN RAISE(FAIL, 'SHAPE: metadata and details are objects')
    WHEN NEW.status IS NOT OLD.status AND NOT EXISTS (SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = OLD.lifecycle
        AND m.version = OLD.version AND m.src = OLD.status AND m.dst = NEW.status AND m.events = 1)
      THEN RAISE(FAIL, 'INVALID_TRANSITION: the lifecycle has no such move')
    WHEN NEW.status IS OLD.status AND (NEW.lease_token, NEW.claimed_by, NEW.started_at, NEW.reason) IS NOT (OLD.lease_token, OLD.claimed_by, OLD.started_at, OLD.reason)
      THEN RAISE(FAIL, 'IMMUTABLE: a lease changes hands by a claim; started_at and reason come with a move')
    WHEN OLD.phase = 'parked' AND NEW.status IS NOT OLD.status AND NEW.resolved = 1 AND NEW.forced = 0
        AND EXISTS (SELECT 1 FROM lifecycle_decisions d CROSS JOIN json_each(OLD.details, d.asked) a
          WHERE d.lifecycle = OLD.lifecycle AND d.version = OLD.version AND json_extract(OLD.details, d.waiting) = 1
            AND a.type IS NOT NULL AND a.key IS NOT NULL
            AND a.key NOT IN (SELECT g.key FROM json_each(OLD.details, d.given) g WHERE g.key IS NOT NULL)
            AND a.key NOT IN (SELECT g.key FROM json_each(NEW.details, d.given) g WHERE g.key IS NOT NULL))
        AND EXISTS (SELECT 1 FROM state_codes s WHERE s.lifecycle = NEW.lifecycle AND s.version = NEW.version AND s.state = NEW.status AND s.phase = 'ready')
      THEN RAISE(FAIL, 'INVALID_TRANSITION: it waits for decisions: save them in its details, where its lifecycle says decisions.given, or set forced')
    END;
  SELECT RAISE(FAIL, 'SHAPE: held needs lease_token and stale_after, settled finished_at, parked a reason')
    FROM state_codes s WHERE s.lifecycle = NEW.lifecycle AND s.version = NEW.version AND s.state = NEW.status
      AND (s.phase = 'held' AND (NEW.lease_token IS NULL OR NEW.stale_after IS NULL)
        OR s.phase = 'settled' AND NEW.finished_at IS NULL
        OR s.phase = 'parked' AND trim(coalesce(NEW.reason, '')) = ''
        OR s.phase <> 'settled' AND OLD.phase <> 'settled' AND NEW.finished_at IS NOT NULL);
  -- What the guards see is what will be written. Then the row, then its event: if one is refused, nothing was written.
  INSERT INTO run_permits(rid, src, dst, seq, rise, reason, flags, attempt)
    SELECT OLD.rid, m.src_code, m.dst_code, OLD.seq + 1, 1, iif(m.phase = 'parked' OR m.needs_reason, NEW.reason, NULL),
      iif(m.phase = 'settled', 0, NEW.requires_cleanup) + 2 * NEW.cleanup_failed + 4 * NEW.operating
        + iif(m.phase = 'parked', 0, 8 * NEW.resolved + 16 * NEW.forced),
      NEW.attempt + (m.phase = 'held' AND m.was <> 'held')
    FROM moves_by_hand m WHERE NEW.status <> OLD.status
      AND m.lifecycle = OLD.lifecycle AND m.version = OLD.version AND m.src = OLD.status AND m.dst = NEW.status;
  INSERT OR REPLACE INTO hand_edits(rid, details, shifts) SELECT OLD.rid, iif(NEW.details IS OLD.details, NEW.details, (SELECT json_group_object(d.key, json(d.value))
      FROM (SELECT o.key, CASE o.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' WHEN 'object' THEN o.value WHEN 'array' THEN o.value ELSE json_quote(o.value) END AS value
          FROM json_each(OLD.details) o WHERE o.key NOT IN (SELECT n.key FROM json_each(NEW.details) n)
        UNION ALL SELECT n.key, CASE n.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' WHEN 'object' THEN n.value WHEN 'array' THEN n.value
          ELSE json_quote(n.value) END FROM json_each(NEW.details) n) d)),
    (SELECT json_group_array(json(g.shift)) FROM (SELECT json_object('kind', f.kind, 'from', f.src, 'to', f.dst, 'count', count(*),
        'failure', json(iif(f.outcome = 'failed' AND NEW.error_code IS NOT NULL, json_object('code', NEW.error_code, 'message', coalesce(NEW.error_msg, '')), 'null'))) AS shift
      FROM moves_by_hand m JOIN item_follows f ON f.run_id = OLD.run_id AND f.command = iif(EXISTS (SELECT 1 FROM item_follows own WHERE own.run_id = OLD.run_id
          AND own.kind = f.kind AND own.src = f.src AND own.command = m.command), m.command, iif(m.phase = 'settled' AND m.was <> 'settled', 'end', ''))
      WHERE NEW.status <> OLD.status AND m.lifecycle = OLD.lifecycle AND m.version = OLD.version AND m.src = OLD.status AND m.dst = NEW.status
      GROUP BY f.kind, f.src) g);
  INSERT INTO item_shifts(run_id, seq, at, shifts) SELECT OLD.run_id, OLD.seq + 1, c.iso, h.shifts FROM hand_edits h, clock c WHERE h.rid = OLD.rid;
  UPDATE run_now SET
      state = m.dst_code,
      seq = OLD.seq + 1,
      last = e.position,
      last_command = m.command,
      queue = NEW.queue,
      priority = NEW.priority,
      concurrency_key = NEW.concurrency_key,
      blocked = 0,
      room = NULL,
      due_at = CASE WHEN m.phase = 'held' THEN CAST(round((julianday(NEW.stale_after) - 2440587.5) * 86400000) AS INTEGER)
        WHEN m.phase = 'ready' THEN c.ms WHEN m.phase = 'settled' AND m.was = 'settled' THEN due_at END,
      attempt = p.attempt,
      fence = NEW.fence + (m.phase = 'held' AND m.was <> 'held' AND NEW.claimed_by IS NOT NULL),
      take_overs = iif(m.phase = 'held' AND m.was <> 'held', 0, NEW.take_overs),
      token = iif(m.phase = 'held', NEW.lease_token, NULL),
      claimed_by = iif(m.phase = 'held', NEW.claimed_by, NULL),
      lease_ms = iif(m.phase = 'held', coalesce(NEW.lease_ms, 60000), NULL),
      started_at = iif(m.phase = 'held' AND m.was <> 'held' AND (started_at IS NULL OR m.was <> 'ready'), c.ms, started_at),
      finished_at = CASE WHEN m.phase <> 'settled' THEN NULL WHEN m.was = 'settled' THEN finished_at ELSE c.ms END,
      expires_at = NULL,
      reason = p.reason,
      error_code = iif(m.phase = 'settled', NEW.error_code, NULL),
      error_msg = iif(m.phase = 'settled' AND NEW.error_code IS NOT NULL, coalesce(NEW.error_msg, ''), NULL),
      intent = iif(m.phase = 'held', NEW.intent, NULL),
      flags = p.flags,
      metadata = iif(NEW.metadata IS OLD.metadata, metadata, NEW.metadata),
      details = iif(NEW.details IS OLD.details, run_now.details, h.details)
    FROM moves_by_hand m, run_permits p, clock c, next_position e, hand_edits h
    WHERE run_now.rid = OLD.rid AND p.rid = OLD.rid AND h.rid = OLD.rid AND NEW.status <> OLD.status
      AND m.lifecycle = OLD.lifecycle AND m.version = OLD.version AND m.src = OLD.status AND m.dst = NEW.status;
  INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, effect)
    SELECT n.last, OLD.rid, OLD.seq + 1, OLD.last_event, c.ms, m.command, m.src_code, m.dst_code,
      iif(m.phase = 'held' AND m.was <> 'held' AND n.claimed_by IS NOT NULL, 'worker', 'operator'),
      iif(m.phase = 'held' AND m.was <> 'held' AND n.claimed_by IS NOT NULL, n.claimed_by, 'by hand'),
      json_object('by_hand', 1, 'metadata_is', json(NEW.metadata), 'details_is', json(h.details), 'shifts', json(h.shifts),
        'reason', n.reason, 'resolved', json(iif(n.flags & 8, 'true', 'false')), 'forced', json(iif(n.flags & 16, 'true', 'false')),
        'failure', CASE WHEN n.error_code IS NOT NULL THEN json_object('code', n.error_code, 'message', n.error_msg) END)
    FROM run_now n, moves_by_hand m, clock c, hand_edits h
    WHERE n.rid = OLD.rid AND h.rid = OLD.rid AND NEW.status <> OLD.status
      AND m.lifecycle = OLD.lifecycle AND m.version = OLD.version AND m.src = OLD.status AND m.dst = NEW.status;
  DELETE FROM run_permits WHERE rid = OLD.rid;
  INSERT OR IGNORE INTO cancelled_parents(run_id) SELECT OLD.run_id FROM moves_by_hand m WHERE NEW.status <> OLD.status AND m.command = 'cancel'
      AND m.lifecycle = OLD.lifecycle AND m.version = OLD.version AND m.src = OLD.status AND m.dst = NEW.status
      AND EXISTS (SELECT 1 FROM run_born c WHERE c.parent_run_id = OLD.run_id);
  -- No move: what somebody mends beside the lifecycle.
  UPDATE run_now SET queue = NEW.queue, priority = NEW.priority, concurrency_key = NEW.concurrency_key, blocked = NEW.blocked,
      due_at = CAST(round((julianday(iif(OLD.phase = 'held', NEW.stale_after, NEW.available_at)) - 2440587.5) * 86400000) AS INTEGER),
      attempt = NEW.attempt, take_overs = NEW.take_overs, fence = NEW.fence,
      lease_ms = NEW.lease_ms, last_command = NEW.last_command,
      expires_at = CAST(round((julianday(NEW.expires_at) - 2440587.5) * 86400000) AS INTEGER),
      flags = NEW.requires_cleanup + 2 * NEW.cleanup_failed + 4 * NEW.operating + 8 * NEW.resolved + 16 * NEW.forced,
      intent = NEW.intent, error_code = NEW.error_code, error_msg = NEW.error_msg
    WHERE rid = OLD.rid AND NEW.status = OLD.status;
  -- Other metadata or details have their event.
  UPDATE run_now SET seq = OLD.seq + 1, last = e.position, metadata = NEW.metadata, details = h.details FROM hand_edits h, next_position e
    WHERE run_now.rid = OLD.rid AND h.rid = OLD.rid AND NEW.status = OLD.status AND (NEW.metadata IS NOT OLD.metadata OR NEW.details IS NOT OLD.details);
  INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, level, message, effect)
    SELECT n.last, OLD.rid, n.seq, OLD.last_event, c.ms, 'note', n.state, n.state, 'operator', 'by hand', 'info',
      iif(NEW.details IS OLD.details, 'Metadata changed by hand', 'Details changed by hand'),
      json_object('by_hand', 1, 'metadata_is', json(NEW.metadata), 'details_is', json(h.details))
    FROM run_now n, hand_edits h, clock c WHERE n.rid = OLD.rid AND h.rid = OLD.rid AND NEW.status = OLD.status AND n.seq = OLD.seq + 1;
  DELETE FROM hand_edits WHERE rid = OLD.rid;
END;

-- The same for an item: one event of its run.
CREATE TRIGGER items_by_hand AFTER UPDATE OF status ON items WHEN NEW.seq = OLD.seq AND NEW.status <> OLD.status
BEGIN
  UPDATE items SET
      seq = (SELECT n.seq + 1 FROM run_born b JOIN run_now n ON n.rid = b.rid WHERE b.run_id = NEW.run_id),
      stays = (SELECT s.stays FROM items_stay s WHERE s.run_id = NEW.run_id AND s.kind = NEW.kind AND s.key = NEW.key),
      started_at = iif(s.phase = 'held' AND NEW.started_at IS NULL, c.iso, NEW.started_at),
      finished_at = iif(s.phase = 'settled', c.iso, NULL),
      error_msg = iif(NEW.error_code IS NULL, NULL, coalesce(NEW.error_msg, ''))
    FROM lifecycle_states s, (SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now',
        (coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'clock_ahead_ms'), 0) / 1000.0) || ' seconds') AS iso) c
    WHERE items.run_id = NEW.run_id AND items.kind = NEW.kind AND items.key = NEW.key
      AND s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status;
  INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, effect)
    SELECT p.position, n.rid, n.seq + 1, n.last, c.ms, 'items', n.state, n.state, 'operator', 'by hand',
      json_object('by_hand', 1, 'moved', json_array(json_object('kind', i.kind, 'key', i.key, 'from', OLD.status, 'to', i.status,
        'attempts', i.attempts, 'max_retries', i.max_retries, 'try_no', i.try_no, 'progress', i.progress,
        'discarded', json(iif(i.discarded, 'true', 'false')), 'reruns', json(iif(i.reruns, 'true', 'false')), 'role', i.role,
        'was_staying', json(iif(OLD.stays, 'true', 'false')), 'stays', json(iif(i.stays, 'true', 'false')),
        'not_before', CAST(round((julianday(i.not_before) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'started_at', CAST(round((julianday(i.started_at) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'finished_at', CAST(round((julianday(i.finished_at) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'failure', CASE WHEN i.error_code IS NOT NULL THEN json_object('code', i.error_code, 'message', i.error_msg) END)))
    FROM run_born b JOIN run_now n ON n.rid = b.rid JOIN items i ON i.run_id = b.run_id AND i.kind = NEW.kind AND i.key = NEW.key, clock c, next_position p
    WHERE b.run_id = NEW.run_id;
  UPDATE run_now SET seq = seq + 1, last = (SELECT max(position) FROM run_events) WHERE rid = (SELECT b.rid FROM run_born b WHERE b.run_id = NEW.run_id);
END;
