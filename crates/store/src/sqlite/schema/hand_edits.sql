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

CREATE TRIGGER events_update INSTEAD OF UPDATE ON events BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: events cannot be changed'); END;
CREATE TRIGGER events_delete INSTEAD OF DELETE ON events BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: events cannot be deleted'); END;
CREATE TRIGGER events_insert INSTEAD OF INSERT ON events BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: events are written by moves of their run'); END;
CREATE TRIGGER runs_delete INSTEAD OF DELETE ON runs
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: runs cannot be deleted; settled ones leave by pruning'); END;
CREATE TRIGGER runs_insert INSTEAD OF INSERT ON runs
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a run is born with its first event: waypost run start'); END;

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
-- into a state is not one of those that leave it. What a shift says is taken out of it once, and its chosen keys are one set: read again for each item,
-- a retry of 12,000 chosen ones took 85 seconds. LIMIT keeps the planner from merging the inner query into the outer one.
CREATE VIEW item_shifts AS SELECT NULL AS run_id, NULL AS seq, NULL AS at, NULL AS shifts WHERE false;
CREATE TRIGGER item_shifts_move INSTEAD OF INSERT ON item_shifts
BEGIN
  UPDATE items SET status = t.state, seq = NEW.seq, not_before = NULL,
      started_at = iif(t.phase = 'held', coalesce(started_at, NEW.at), started_at),
      finished_at = CASE WHEN t.phase = 'settled' THEN NEW.at WHEN s.phase = 'settled' THEN NULL ELSE finished_at END,
      attempts = iif(s.phase = 'settled' AND t.phase <> 'settled', 0, attempts),
      throttled = iif(s.phase = 'settled' AND t.phase <> 'settled', 0, throttled),
      waited_ms = iif(s.phase = 'settled' AND t.phase <> 'settled', 0, waited_ms),
      -- A target that was outside, and of which nothing was heard. Items that stop their run have a course.
      in_doubt = iif(s.phase = 'held' AND s.course IS NULL AND t.outcome IS NOT 'succeeded', 1, in_doubt),
      progress = CASE WHEN t.outcome = 'succeeded' THEN 100 WHEN s.phase = 'settled' AND t.phase <> 'settled' THEN 0 ELSE progress END,
      error_code = CASE WHEN t.outcome = 'succeeded' THEN NULL WHEN f.code IS NOT NULL THEN f.code
        WHEN s.phase = 'settled' AND t.phase <> 'settled' THEN NULL ELSE error_code END,
      error_msg = CASE WHEN t.outcome = 'succeeded' THEN NULL WHEN f.code IS NOT NULL THEN f.message
        WHEN s.phase = 'settled' AND t.phase <> 'settled' THEN NULL ELSE error_msg END
    FROM (SELECT e.key AS number, e.value ->> 'kind' AS kind, e.value ->> 'from' AS src, e.value ->> 'to' AS dst, e.value ->> 'chosen' IS NULL AS is_whole,
        e.value ->> '$.failure.code' AS code, e.value ->> '$.failure.message' AS message FROM json_each(NEW.shifts) e LIMIT -1) f, lifecycle_states s, lifecycle_states t
    WHERE items.run_id = NEW.run_id AND items.kind = f.kind AND items.status = f.src AND items.stays = 0
      AND (f.is_whole OR (f.number, items.key) IN (SELECT e.key, c.value FROM json_each(NEW.shifts) e, json_each(e.value, '$.chosen') c))
      AND s.lifecycle = items.kind AND s.version = items.version AND s.state = items.status
      AND t.lifecycle = items.kind AND t.version = items.version AND t.state = f.dst;
END;

-- Where in a run's details the decisions are that its lifecycle's pauses ask for, as paths. Lifecycles without any are not in it.
CREATE VIEW lifecycle_decisions AS SELECT name AS lifecycle, version, '$."' || (definition ->> '$.decisions.waiting') || '"' AS waiting,
    '$."' || (definition ->> '$.decisions.asked') || '"' AS asked, '$."' || (definition ->> '$.decisions.given') || '"' AS given
  FROM lifecycles WHERE definition ->> '$.decisions.given' IS NOT NULL;

-- A write to the view `runs`. What a hand may set are a status and what it asks for, metadata and details, and the end of a lease. A statement by
-- hand is done as a whole or not at all (ABORT): what is refused halfway leaves no row in `hand_edits` or `item_edits`.
CREATE TRIGGER runs_update INSTEAD OF UPDATE ON runs
BEGIN
  SELECT CASE
    WHEN (NEW.rid, NEW.run_id, NEW.tenant, NEW.lifecycle, NEW.version, NEW.queue, NEW.priority, NEW.seq, NEW.attempt, NEW.max_attempts, NEW.take_overs,
        NEW.fence, NEW.ended_by, NEW.last_command, NEW.intent, NEW.requires_cleanup, NEW.cleanup_failed, NEW.operating, NEW.reentrant, NEW.blocked,
        NEW.queued_at, NEW.schedule_at, NEW.available_at, NEW.expires_at, NEW.concurrency_key, {labels of NEW}, NEW.fingerprint, NEW.carried,
        NEW.last_event, NEW.item_count, NEW.input)
      IS NOT (OLD.rid, OLD.run_id, OLD.tenant, OLD.lifecycle, OLD.version, OLD.queue, OLD.priority, OLD.seq, OLD.attempt, OLD.max_attempts, OLD.take_overs,
        OLD.fence, OLD.ended_by, OLD.last_command, OLD.intent, OLD.requires_cleanup, OLD.cleanup_failed, OLD.operating, OLD.reentrant, OLD.blocked,
        OLD.queued_at, OLD.schedule_at, OLD.available_at, OLD.expires_at, OLD.concurrency_key, {labels of OLD}, OLD.fingerprint, OLD.carried,
        OLD.last_event, OLD.item_count, OLD.input)
      THEN RAISE(ABORT, 'IMMUTABLE: of a run a hand may set status, lease_token, claimed_by, lease_ms, stale_after, started_at, finished_at, reason, resolved, forced, error_code, error_msg, metadata and details')
    WHEN OLD.phase = 'settled' AND NEW.status IS OLD.status THEN RAISE(ABORT, 'SETTLED: a finished run cannot be rewritten')
    WHEN julianday(NEW.finished_at) IS NULL AND NEW.finished_at IS NOT NULL OR julianday(NEW.started_at) IS NULL AND NEW.started_at IS NOT NULL
      THEN RAISE(ABORT, 'SHAPE: times are written like 2026-02-14T08:00:00.000Z')
    WHEN NEW.status IS OLD.status AND (NEW.started_at, NEW.finished_at) IS NOT (OLD.started_at, OLD.finished_at)
      THEN RAISE(ABORT, 'IMMUTABLE: started_at and finished_at come with a move')
    END;
  SELECT RAISE(ABORT, 'SHAPE: held needs lease_token and stale_after, settled finished_at, parked a reason')
    FROM state_codes s WHERE s.lifecycle = NEW.lifecycle AND s.version = NEW.version AND s.state = NEW.status
      AND (s.phase = 'settled' AND NEW.finished_at IS NULL
        OR s.phase <> 'settled' AND OLD.phase <> 'settled' AND NEW.finished_at IS NOT NULL);
  INSERT INTO hand_edits(rid, seq, status, lease_token, claimed_by, lease_ms, stale_after, reason, error_code, error_msg, resolved, forced, metadata, details)
    VALUES (OLD.rid, OLD.seq, NEW.status, NEW.lease_token, NEW.claimed_by, NEW.lease_ms, NEW.stale_after, NEW.reason, NEW.error_code, NEW.error_msg,
      NEW.resolved, NEW.forced, NEW.metadata, NEW.details);
END;

-- The same, judged and done. Everything is looked up here: whoever asks says what he wants, not what there is.
CREATE TRIGGER hand_edits_judge BEFORE INSERT ON hand_edits
BEGIN
  SELECT RAISE(ABORT, 'NOT_FOUND: there is no such run, or it has moved on') WHERE NOT EXISTS (SELECT 1 FROM run_now n WHERE n.rid = NEW.rid AND n.seq = NEW.seq);
  SELECT CASE
    WHEN o.phase = 'settled' AND NEW.status = o.status THEN RAISE(ABORT, 'SETTLED: a finished run cannot be rewritten')
    WHEN julianday(NEW.stale_after) IS NULL AND NEW.stale_after IS NOT NULL
      THEN RAISE(ABORT, 'SHAPE: times are written like 2026-02-14T08:00:00.000Z')
    WHEN (NEW.resolved IN (0, 1)) + (NEW.forced IN (0, 1)) IS NOT 2 THEN RAISE(ABORT, 'SHAPE: resolved and forced are 0 or 1')
    WHEN typeof(NEW.lease_ms) NOT IN ('integer', 'null') OR NEW.lease_ms <= 0 THEN RAISE(ABORT, 'SHAPE: lease_ms is a number of milliseconds')
    WHEN 'blob' IN (typeof(NEW.status), typeof(NEW.claimed_by), typeof(NEW.stale_after), typeof(NEW.reason), typeof(NEW.error_code),
        typeof(NEW.error_msg), typeof(NEW.metadata), typeof(NEW.details)) THEN RAISE(ABORT, 'SHAPE: texts are text, not blobs: CAST(… AS TEXT)')
    WHEN length(CAST(NEW.claimed_by AS BLOB)) > 255 OR length(CAST(NEW.error_code AS BLOB)) > 255 OR length(NEW.error_msg) > 4000 OR length(NEW.reason) > 1024
      THEN RAISE(ABORT, 'SHAPE: at most 255 bytes of claimed_by and error_code, 4000 characters of error_msg, 1024 of a reason')
    WHEN length(CAST(NEW.metadata AS BLOB)) > 1048576 OR length(CAST(NEW.details AS BLOB)) > 1048576
      THEN RAISE(ABORT, 'SHAPE: metadata and details have at most 1048576 bytes each')
    WHEN NOT json_valid(NEW.metadata) OR NOT json_valid(NEW.details) THEN RAISE(ABORT, 'SHAPE: metadata and details are JSON')
    WHEN json_type(NEW.metadata) <> 'object' OR json_type(NEW.details) <> 'object' THEN RAISE(ABORT, 'SHAPE: metadata and details are objects')
    WHEN NEW.status <> o.status AND NOT EXISTS (SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = o.lifecycle
        AND m.version = o.version AND m.src = o.status AND m.dst = NEW.status AND m.events = 1)
      THEN RAISE(ABORT, 'INVALID_TRANSITION: the lifecycle has no such move')
    WHEN NEW.metadata IS NOT o.metadata AND NEW.metadata GLOB '*\u[dD][89a-fA-F]*' OR NEW.details IS NOT o.details AND NEW.details GLOB '*\u[dD][89a-fA-F]*'
      THEN RAISE(ABORT, 'SHAPE: metadata and details: characters are written as they are, not as halves such as \ud83d')
    -- Two backslashes are one, and what follows them is no escape.
    WHEN NEW.metadata IS NOT o.metadata AND replace(NEW.metadata, '\\', '') GLOB '*\u0000*'
        OR NEW.details IS NOT o.details AND replace(NEW.details, '\\', '') GLOB '*\u0000*'
      THEN RAISE(ABORT, 'SHAPE: metadata and details: no text or name has a NUL (\u0000)')
    WHEN NEW.status <> o.status AND o.phase = 'held' AND (NEW.lease_token, NEW.claimed_by, NEW.lease_ms) IS NOT (o.lease_token, o.claimed_by, o.lease_ms)
        AND EXISTS (SELECT 1 FROM state_codes s WHERE s.lifecycle = o.lifecycle AND s.version = o.version AND s.state = NEW.status AND s.phase = 'held')
      THEN RAISE(ABORT, 'IMMUTABLE: a lease changes hands by a claim')
    WHEN o.phase = 'parked' AND EXISTS (SELECT 1 FROM lifecycle_decisions d WHERE d.lifecycle = o.lifecycle AND d.version = o.version
          AND json_extract(o.details, d.waiting) = 1 AND (json_type(NEW.details, d.asked) IS NOT NULL AND NEW.details -> d.asked IS NOT o.details -> d.asked
            OR NEW.status = o.status AND json_type(NEW.details, d.waiting) IS NOT NULL AND json_extract(NEW.details, d.waiting) IS NOT 1))
      THEN RAISE(ABORT, 'IMMUTABLE: what a waiting run asks stays until it goes on')
    WHEN NEW.status <> o.status AND o.phase <> 'settled' AND EXISTS (SELECT 1 FROM lifecycle_states d WHERE d.lifecycle = o.lifecycle
          AND d.version = o.version AND d.state = NEW.status AND d.outcome = 'succeeded')
        AND (o.intent ->> '$.want' = 'fail' OR EXISTS (SELECT 1 FROM items i JOIN lifecycle_states f ON f.lifecycle = i.kind AND f.version = i.version
          AND f.state = i.status WHERE i.run_id = o.run_id AND i.role = 'step' AND f.course = 'ends'))
      THEN RAISE(ABORT, 'FAILURE_RECORDED: a step of the run has failed: end it as failed')
    WHEN NEW.status = o.status AND (NEW.lease_token, NEW.claimed_by, NEW.lease_ms, NEW.reason, NEW.error_code, NEW.error_msg, NEW.resolved, NEW.forced)
        IS NOT (o.lease_token, o.claimed_by, o.lease_ms, o.reason, o.error_code, o.error_msg, o.resolved, o.forced)
      THEN RAISE(ABORT, 'IMMUTABLE: a lease changes hands by a claim; reason, failure and decisions come with a move')
    WHEN NEW.status = o.status AND o.phase <> 'held' AND NEW.stale_after IS NOT NULL OR NEW.status = o.status AND o.phase = 'held' AND NEW.stale_after IS NULL
      THEN RAISE(ABORT, 'SHAPE: a held run has stale_after, and no other')
    WHEN o.phase = 'parked' AND NEW.status <> o.status AND NEW.resolved = 1 AND NEW.forced = 0
        AND EXISTS (SELECT 1 FROM lifecycle_decisions d CROSS JOIN json_each(o.details, d.asked) a
          WHERE d.lifecycle = o.lifecycle AND d.version = o.version AND json_extract(o.details, d.waiting) = 1
            AND a.type IS NOT NULL AND a.key IS NOT NULL
            -- A word, or an object with one; of the choices, if there are some. The answer to a question says of which pause it is, and comes in time.
            AND NOT EXISTS (SELECT 1 FROM (SELECT CASE g.type WHEN 'text' THEN g.value WHEN 'object' THEN g.value ->> '$.decision' END AS word,
                  iif(g.type = 'object', g.value ->> '$.attempt', NULL) AS attempt,
                  g.value IS (SELECT p.value FROM json_each(o.details, d.given) p WHERE p.key = a.key) AS is_kept
                FROM json_each(iif(json_type(NEW.details, d.given) IS NULL, o.details, NEW.details), d.given) g WHERE g.key = a.key) w
              WHERE trim(w.word) <> '' AND length(w.word) <= 255
                AND (json_type(iif(a.type = 'object', a.value, '{}'), '$.ask') IS NOT 'text' OR w.attempt IS o.attempt
                  AND (w.is_kept OR coalesce(a.value ->> '$.until' > (SELECT iso FROM clock), 1)))
                AND (trim(w.word) IN (SELECT c.value FROM json_each(iif(a.type = 'object', a.value, '{}'), '$.choices') c WHERE c.type = 'text')
                  OR NOT EXISTS (SELECT 1 FROM json_each(iif(a.type = 'object', a.value, '{}'), '$.choices') c WHERE c.type = 'text'))))
        AND EXISTS (SELECT 1 FROM state_codes s WHERE s.lifecycle = o.lifecycle AND s.version = o.version AND s.state = NEW.status AND s.phase = 'ready')
      THEN RAISE(ABORT, 'INVALID_TRANSITION: it waits for decisions: save them in its details, where its lifecycle says decisions.given, or set forced')
    END FROM runs o WHERE o.rid = NEW.rid;
  SELECT RAISE(ABORT, 'SHAPE: held needs lease_token and stale_after, settled finished_at, parked a reason')
    FROM runs o JOIN state_codes s ON s.lifecycle = o.lifecycle AND s.version = o.version AND s.state = NEW.status
    WHERE o.rid = NEW.rid AND (s.phase = 'held' AND (NEW.lease_token IS NULL OR NEW.stale_after IS NULL)
        OR s.phase = 'parked' AND trim(coalesce(NEW.reason, '')) = '');
  -- Whoever begins a run keeps to what claims keep to.
  SELECT CASE
    WHEN o.phase = 'ready' AND o.available_at > c.iso THEN RAISE(ABORT, 'NOT_DUE: it is not to be begun before its available_at')
    WHEN o.expires_at <= c.iso AND EXISTS (SELECT 1 FROM lifecycles l, json_each(l.definition, '$.transitions') t WHERE l.name = o.lifecycle
        AND l.version = o.version AND t.value ->> '$.from' = o.status AND t.value ->> '$.command' = 'expire')
      THEN RAISE(ABORT, 'NOT_DUE: it was to be begun before its expires_at: queue a new one')
    WHEN EXISTS (SELECT 1 FROM queues q WHERE q.tenant = o.tenant AND q.name = o.queue AND q.paused_at IS NOT NULL)
      THEN RAISE(ABORT, 'PAUSED: its queue is paused: begin it when the queue goes on')
    WHEN (SELECT q.at_most FROM queues q WHERE q.tenant = o.tenant AND q.name = o.queue) <= (SELECT count(*) FROM run_now n
        WHERE n.state & 7 = 2 AND n.claimed_by IS NOT NULL AND n.queue = o.queue AND n.tenant = iif(o.tenant = 'default', '', o.tenant))
      THEN RAISE(ABORT, 'NO_SLOT: its queue is at its limit: begin it when another one has ended')
    WHEN o.concurrency_key IS NOT NULL AND coalesce((SELECT k.at_most FROM key_limits k WHERE k.tenant = o.tenant AND k.name = o.concurrency_key), 1)
        <= (SELECT count(*) FROM run_now n WHERE n.state & 7 = 2 AND n.finished_at IS NULL AND n.concurrency_key = o.concurrency_key
          AND n.tenant = iif(o.tenant = 'default', '', o.tenant))
      THEN RAISE(ABORT, 'NO_SLOT: its concurrency key is at its limit: begin it when another one has ended')
    END FROM runs o JOIN state_codes s ON s.lifecycle = o.lifecycle AND s.version = o.version AND s.state = NEW.status JOIN clock c
    WHERE o.rid = NEW.rid AND o.phase <> 'held' AND s.phase = 'held';
  -- What no reader elsewhere can take.
  SELECT RAISE(ABORT, 'SHAPE: metadata and details have numbers up to 1.7e308 and at most 64 levels')
    FROM (SELECT NEW.metadata AS given UNION ALL SELECT NEW.details) j, json_tree(j.given) t
    WHERE t.type = 'real' AND abs(t.value) > 1.7e308 OR length(t.path) - length(replace(replace(t.path, '.', ''), '[', '')) > 64;
END;
CREATE TRIGGER hand_edits_do AFTER INSERT ON hand_edits
BEGIN
  -- Details are merged (J7); the items follow.
  UPDATE hand_edits SET prev = o.last_event, src = s.code, dst = s.code, was = s.phase, phase = s.phase, command = NULL, needs_reason = 0, shifts = '[]',
      details = iif(NEW.details IS o.details, NEW.details, (SELECT json_group_object(d.key, json(d.value))
        FROM (SELECT m.key, iif(m.key GLOB '*["\\]*', CASE m.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' WHEN 'object' THEN m.value
            WHEN 'array' THEN m.value ELSE json_quote(m.value) END, o.details -> m.fullkey) AS value
            FROM json_each(o.details) m WHERE m.key NOT IN (SELECT n.key FROM json_each(NEW.details) n)
          UNION ALL SELECT n.key, iif(n.key GLOB '*["\\]*', CASE n.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' WHEN 'object' THEN n.value
            WHEN 'array' THEN n.value ELSE json_quote(n.value) END, NEW.details -> n.fullkey)
            FROM json_each(NEW.details) n) d))
    FROM runs o JOIN state_codes s ON s.lifecycle = o.lifecycle AND s.version = o.version AND s.state = o.status
    WHERE hand_edits.rid = NEW.rid AND o.rid = NEW.rid;
  UPDATE hand_edits SET dst = m.dst_code, phase = m.phase, command = m.command, needs_reason = m.needs_reason
    FROM runs o JOIN moves_by_hand m ON m.lifecycle = o.lifecycle AND m.version = o.version AND m.src = o.status
    WHERE hand_edits.rid = NEW.rid AND o.rid = NEW.rid AND o.status <> NEW.status AND m.dst = NEW.status;
  UPDATE hand_edits SET shifts = (SELECT json_group_array(json(g.shift)) FROM (SELECT json_object('kind', f.kind, 'from', f.src, 'to', f.dst, 'count', count(*),
        'failure', json(iif(f.outcome = 'failed' AND NEW.error_code IS NOT NULL, json_object('code', NEW.error_code, 'message', coalesce(NEW.error_msg, '')), 'null'))) AS shift
      FROM run_born b JOIN item_follows f ON f.run_id = b.run_id AND f.command = iif(EXISTS (SELECT 1 FROM item_follows own WHERE own.run_id = b.run_id
          AND own.kind = f.kind AND own.src = f.src AND own.command = hand_edits.command), hand_edits.command, iif(hand_edits.phase = 'settled' AND hand_edits.was <> 'settled', 'end', ''))
      WHERE b.rid = NEW.rid GROUP BY f.kind, f.src) g)
    WHERE rid = NEW.rid AND command IS NOT NULL;
  -- What the guards see is what will be written. Then the row, then its event: if one is refused, nothing was written.
  INSERT INTO run_permits(rid, src, dst, seq, rise, reason, flags, attempt)
    SELECT h.rid, h.src, h.dst, h.seq + 1, 1, iif(h.phase = 'parked' OR h.needs_reason, h.reason, NULL),
      iif(h.phase = 'settled', n.flags & 6, n.flags & 7)
        | CASE h.phase WHEN 'parked' THEN 0 WHEN 'ready' THEN n.flags & 24 | 8 * h.resolved | 16 * h.forced ELSE n.flags & 24 END,
      n.attempt + (h.phase = 'held' AND h.was <> 'held')
    FROM hand_edits h JOIN run_now n ON n.rid = h.rid WHERE h.rid = NEW.rid AND h.command IS NOT NULL;
  INSERT INTO item_shifts(run_id, seq, at, shifts) SELECT b.run_id, h.seq + 1, c.iso, h.shifts FROM hand_edits h JOIN run_born b ON b.rid = h.rid, clock c
    WHERE h.rid = NEW.rid AND h.shifts <> '[]';
  UPDATE run_now SET
      state = h.dst,
      tally = NULL,
      seq = h.seq + 1,
      last = e.position,
      last_command = h.command,
      blocked = 0,
      room = NULL,
      due_at = CASE WHEN h.phase = 'held' THEN CAST(round((julianday(h.stale_after) - 2440587.5) * 86400000) AS INTEGER)
        WHEN h.phase = 'ready' THEN c.ms WHEN h.phase = 'settled' AND h.was = 'settled' THEN due_at END,
      attempt = p.attempt,
      fence = fence + (h.phase = 'held' AND h.was <> 'held' AND h.claimed_by IS NOT NULL),
      take_overs = iif(h.phase = 'held' AND h.was <> 'held', 0, take_overs),
      token = CASE WHEN h.phase <> 'held' THEN NULL WHEN h.was = 'held' THEN token ELSE h.lease_token END,
      ended_with = NULL,
      claimed_by = iif(h.phase = 'held', h.claimed_by, NULL),
      lease_ms = iif(h.phase = 'held', coalesce(h.lease_ms, 60000), NULL),
      started_at = iif(h.phase = 'held' AND h.was <> 'held' AND (started_at IS NULL OR h.was <> 'ready'), c.ms, started_at),
      finished_at = CASE WHEN h.phase <> 'settled' THEN NULL WHEN h.was = 'settled' THEN finished_at ELSE c.ms END,
      expires_at = NULL,
      reason = p.reason,
      error_code = iif(h.phase = 'settled', h.error_code, NULL),
      error_msg = iif(h.phase = 'settled' AND h.error_code IS NOT NULL, coalesce(h.error_msg, ''), NULL),
      intent = iif(h.phase = 'held', intent, NULL),
      flags = p.flags,
      metadata = h.metadata,
      details = h.details
    FROM hand_edits h, run_permits p, clock c, next_position e
    WHERE run_now.rid = NEW.rid AND p.rid = NEW.rid AND h.rid = NEW.rid AND h.command IS NOT NULL;
  INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, effect)
    SELECT n.last, n.rid, n.seq, h.prev, c.ms, h.command, h.src, h.dst,
      iif(h.phase = 'held' AND h.was <> 'held' AND n.claimed_by IS NOT NULL, 'worker', 'operator'),
      iif(h.phase = 'held' AND h.was <> 'held' AND n.claimed_by IS NOT NULL, n.claimed_by, 'by hand'),
      json_object('by_hand', 1, 'metadata_is', json(h.metadata), 'details_is', json(h.details), 'shifts', json(h.shifts),
        'reason', n.reason, 'resolved', json(iif(n.flags & 8, 'true', 'false')), 'forced', json(iif(n.flags & 16, 'true', 'false')),
        'failure', CASE WHEN n.error_code IS NOT NULL THEN json_object('code', n.error_code, 'message', n.error_msg) END)
    FROM run_now n JOIN hand_edits h ON h.rid = n.rid, clock c WHERE n.rid = NEW.rid AND h.command IS NOT NULL;
  DELETE FROM run_permits WHERE rid = NEW.rid;
  INSERT OR IGNORE INTO cancelled_parents(run_id) SELECT b.run_id FROM hand_edits h JOIN run_born b ON b.rid = h.rid
    WHERE h.rid = NEW.rid AND h.command = 'cancel' AND EXISTS (SELECT 1 FROM run_born c WHERE c.parent_run_id = b.run_id);
  -- No move. The end of a lease is in no event; other metadata or details have theirs.
  UPDATE run_now SET due_at = CAST(round((julianday(h.stale_after) - 2440587.5) * 86400000) AS INTEGER) FROM hand_edits h
    WHERE run_now.rid = NEW.rid AND h.rid = NEW.rid AND h.command IS NULL AND h.phase = 'held';
  UPDATE run_now SET seq = h.seq + 1, last = e.position, metadata = h.metadata, details = h.details FROM hand_edits h, runs o, next_position e
    WHERE run_now.rid = NEW.rid AND h.rid = NEW.rid AND o.rid = NEW.rid AND h.command IS NULL AND (h.metadata IS NOT o.metadata OR h.details IS NOT o.details);
  INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, level, message, effect)
    SELECT n.last, n.rid, n.seq, h.prev, c.ms, 'note', n.state, n.state, 'operator', 'by hand', 'info', 'Metadata or details changed by hand',
      json_object('by_hand', 1, 'metadata_is', json(h.metadata), 'details_is', json(h.details))
    FROM run_now n JOIN hand_edits h ON h.rid = n.rid, clock c WHERE n.rid = NEW.rid AND h.command IS NULL AND n.seq = h.seq + 1;
  DELETE FROM hand_edits WHERE rid = NEW.rid;
END;

-- An item's move by hand: asked for in `item_edits`, which does it, with one event of its run. The statement's own write is left out.
CREATE TRIGGER by_hand_item_move BEFORE UPDATE ON items WHEN NOT EXISTS (SELECT 1 FROM hand_edits) AND NOT EXISTS (SELECT 1 FROM item_edits)
BEGIN
  SELECT CASE
    WHEN (NEW.run_id, NEW.kind, NEW.key, NEW.version, NEW.place, NEW.name, NEW.max_retries, NEW.reruns, NEW.role, NEW.seq, NEW.attempts, NEW.try_no, NEW.throttled, NEW.waited_ms, NEW.in_doubt,
        NEW.not_before, NEW.discarded, NEW.stays, NEW.output, NEW.details)
      IS NOT (OLD.run_id, OLD.kind, OLD.key, OLD.version, OLD.place, OLD.name, OLD.max_retries, OLD.reruns, OLD.role, OLD.seq, OLD.attempts, OLD.try_no, OLD.throttled, OLD.waited_ms, OLD.in_doubt,
        OLD.not_before, OLD.discarded, OLD.stays, OLD.output, OLD.details)
      THEN RAISE(ABORT, 'IMMUTABLE: of an item a hand may set status and, with it, progress, error_code, error_msg, started_at and finished_at')
    WHEN NEW.status IS OLD.status AND OLD.finished_at IS NOT NULL THEN RAISE(ABORT, 'SETTLED: a finished item cannot be rewritten')
    WHEN NEW.status IS OLD.status THEN RAISE(ABORT, 'IMMUTABLE: what an item has changes with a move of it: set its status too')
    END;
  INSERT INTO item_edits(run_id, kind, key, status, progress, error_code, error_msg)
    VALUES (OLD.run_id, OLD.kind, OLD.key, NEW.status, NEW.progress, NEW.error_code, NEW.error_msg);
  SELECT RAISE(IGNORE);
END;
CREATE TRIGGER item_edits_judge BEFORE INSERT ON item_edits
BEGIN
  SELECT RAISE(ABORT, 'SHAPE: progress is 0 to 100') WHERE typeof(NEW.progress) <> 'integer' OR NEW.progress NOT BETWEEN 0 AND 100;
  SELECT RAISE(ABORT, 'SHAPE: at most 255 bytes of error_code and 4000 characters of error_msg, as text')
    WHERE 'blob' IN (typeof(NEW.error_code), typeof(NEW.error_msg)) OR length(CAST(NEW.error_code AS BLOB)) > 255 OR length(NEW.error_msg) > 4000;
END;
CREATE TRIGGER item_edits_do AFTER INSERT ON item_edits
BEGIN
  UPDATE item_edits SET src = i.status, was_staying = i.stays, rid = b.rid, seq = n.seq
    FROM items i JOIN run_born b ON b.run_id = i.run_id JOIN run_now n ON n.rid = b.rid
    WHERE item_edits.run_id = NEW.run_id AND item_edits.kind = NEW.kind AND item_edits.key = NEW.key
      AND i.run_id = NEW.run_id AND i.kind = NEW.kind AND i.key = NEW.key;
  SELECT RAISE(ABORT, 'INVALID_TRANSITION: there is no such item, or its lifecycle has no such move') WHERE NOT EXISTS (SELECT 1 FROM items i
      JOIN lifecycle_moves m ON m.lifecycle = i.kind AND m.version = i.version AND m.src = i.status AND m.dst = NEW.status AND m.events = 1
    WHERE i.run_id = NEW.run_id AND i.kind = NEW.kind AND i.key = NEW.key);
  SELECT CASE n.intent ->> '$.want'
      WHEN 'cancel' THEN RAISE(ABORT, 'CANCEL_REQUESTED: a cancel of the run was asked for; nothing begins but cleanups')
      WHEN 'pause' THEN RAISE(ABORT, 'PAUSE_REQUESTED: a pause of the run was asked for; nothing begins but cleanups') END
    FROM item_edits e JOIN run_now n ON n.rid = e.rid JOIN items i ON i.run_id = e.run_id AND i.kind = e.kind AND i.key = e.key
      JOIN lifecycle_states s ON s.lifecycle = i.kind AND s.version = i.version AND s.state = NEW.status
    WHERE e.run_id = NEW.run_id AND e.kind = NEW.kind AND e.key = NEW.key AND s.course = 'begins' AND s.phase = 'held' AND i.role <> 'cleanup';
  UPDATE items SET status = NEW.status, progress = NEW.progress, error_code = NEW.error_code,
      error_msg = iif(NEW.error_code IS NULL, NULL, coalesce(NEW.error_msg, '')), seq = n.seq + 1,
      in_doubt = iif(f.phase = 'held' AND f.course IS NULL AND s.outcome IS NOT 'succeeded', 1, items.in_doubt),
      started_at = iif(s.phase = 'held' AND items.started_at IS NULL, c.iso, items.started_at), finished_at = iif(s.phase = 'settled', c.iso, NULL)
    FROM run_born b JOIN run_now n ON n.rid = b.rid, lifecycle_states f, lifecycle_states s, clock c
    WHERE items.run_id = NEW.run_id AND items.kind = NEW.kind AND items.key = NEW.key AND b.run_id = NEW.run_id
      AND f.lifecycle = NEW.kind AND f.version = items.version AND f.state = items.status
      AND s.lifecycle = NEW.kind AND s.version = items.version AND s.state = NEW.status;
  UPDATE items SET stays = (SELECT s.stays FROM items_stay s WHERE s.run_id = NEW.run_id AND s.kind = NEW.kind AND s.key = NEW.key)
    WHERE run_id = NEW.run_id AND kind = NEW.kind AND key = NEW.key;
  INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, effect)
    SELECT p.position, n.rid, n.seq + 1, n.last, c.ms, 'items', n.state, n.state, 'operator', 'by hand',
      json_object('by_hand', 1, 'moved', json_array(json_object('kind', i.kind, 'key', i.key, 'from', e.src, 'to', i.status,
        'attempts', i.attempts, 'max_retries', i.max_retries, 'try_no', i.try_no, 'throttled', i.throttled, 'waited_ms', i.waited_ms, 'in_doubt', json(iif(i.in_doubt, 'true', 'false')), 'progress', i.progress,
        'discarded', json(iif(i.discarded, 'true', 'false')), 'reruns', json(iif(i.reruns, 'true', 'false')), 'role', i.role,
        'was_staying', json(iif(e.was_staying, 'true', 'false')), 'stays', json(iif(i.stays, 'true', 'false')),
        'not_before', CAST(round((julianday(i.not_before) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'started_at', CAST(round((julianday(i.started_at) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'finished_at', CAST(round((julianday(i.finished_at) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'failure', CASE WHEN i.error_code IS NOT NULL THEN json_object('code', i.error_code, 'message', i.error_msg) END)))
    FROM item_edits e JOIN run_now n ON n.rid = e.rid JOIN items i ON i.run_id = e.run_id AND i.kind = e.kind AND i.key = e.key, clock c, next_position p
    WHERE e.run_id = NEW.run_id AND e.kind = NEW.kind AND e.key = NEW.key;
  UPDATE run_now SET seq = seq + 1, tally = NULL, last = (SELECT max(position) FROM run_events) WHERE rid = (SELECT b.rid FROM run_born b WHERE b.run_id = NEW.run_id);
  DELETE FROM item_edits WHERE run_id = NEW.run_id AND kind = NEW.kind AND key = NEW.key;
END;
