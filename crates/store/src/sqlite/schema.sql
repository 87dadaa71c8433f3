-- Waypost on SQLite, version 1. Readable and (legally) mendable with any sqlite3 from 3.40 on: no functions of
-- ours, times as text in UTC, states by name. The triggers `runs_move`, `runs_birth`, `items_move`, `items_birth`
-- and the view `counted_items` come from the kernel's rendering of the lifecycles and are added after this file.

CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE lifecycles(name TEXT, version INTEGER, kind TEXT NOT NULL, items TEXT, items_version INTEGER,
  definition TEXT NOT NULL, source TEXT, PRIMARY KEY(name, version)) WITHOUT ROWID;
CREATE TABLE lifecycle_states(lifecycle TEXT, version INTEGER, state TEXT, phase TEXT NOT NULL, outcome TEXT,
  initial INTEGER NOT NULL, PRIMARY KEY(lifecycle, version, state)) WITHOUT ROWID;
CREATE TABLE lifecycle_moves(lifecycle TEXT, version INTEGER, src TEXT, dst TEXT, guards INTEGER, events INTEGER NOT NULL,
  command TEXT NOT NULL, PRIMARY KEY(lifecycle, version, src, dst, guards)) WITHOUT ROWID;

CREATE TABLE runs(
  rid INTEGER PRIMARY KEY,                        -- in the order of creation
  run_id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  lifecycle TEXT NOT NULL,
  version INTEGER NOT NULL,
  status TEXT NOT NULL,
  phase TEXT NOT NULL DEFAULT '',
  queue TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 0,
  seq INTEGER NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL DEFAULT 1,
  take_overs INTEGER NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  lease_token TEXT,
  claimed_by TEXT,                                -- null in a held run: the lease is vacant
  lease_ms INTEGER,
  stale_after TEXT,
  ended_by TEXT,                                  -- the token that settled or parked it
  last_command TEXT NOT NULL,
  intent TEXT,
  owes_cleanup INTEGER NOT NULL DEFAULT 0,
  cleanup_failed INTEGER NOT NULL DEFAULT 0,
  operating INTEGER NOT NULL DEFAULT 0,
  reentrant INTEGER NOT NULL DEFAULT 0,
  resolved INTEGER NOT NULL DEFAULT 0,
  forced INTEGER NOT NULL DEFAULT 0,
  blocked INTEGER NOT NULL DEFAULT 0,             -- ready, but its concurrency key is at its limit
  reason TEXT,
  error_code TEXT,
  error_msg TEXT,
  queued_at TEXT NOT NULL,
  started_at TEXT,
  finished_at TEXT,
  schedule_at TEXT,
  available_at TEXT,
  expires_at TEXT,
  concurrency_key TEXT,
  correlation_id TEXT,
  idempotency_key TEXT,
  fingerprint TEXT,
  parent_run_id TEXT,
  retry_of TEXT,
  playbook TEXT,
  carried TEXT,
  item_count INTEGER NOT NULL DEFAULT 0,
  input TEXT NOT NULL DEFAULT '{}',
  metadata TEXT NOT NULL DEFAULT '{}',
  details TEXT NOT NULL DEFAULT '{}'
);
CREATE UNIQUE INDEX runs_key ON runs(tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- Due work lies before now, deferred work behind it. Heartbeats do not touch this one.
CREATE INDEX runs_ready ON runs(queue, priority, available_at, rid) WHERE phase = 'ready' AND blocked = 0;
CREATE INDEX runs_held ON runs(stale_after) WHERE phase = 'held';
CREATE INDEX runs_expiring ON runs(expires_at) WHERE expires_at IS NOT NULL;
-- Those that hold a key, those that wait for it set aside, those that may be claimed: one index, only for runs with a key.
CREATE INDEX runs_by_key ON runs(concurrency_key, phase, blocked, queue, lifecycle, priority, available_at, rid)
  WHERE concurrency_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX runs_blocked ON runs(concurrency_key) WHERE blocked = 1;
CREATE INDEX runs_children ON runs(parent_run_id) WHERE parent_run_id IS NOT NULL;

CREATE TABLE items(
  run_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  place INTEGER NOT NULL,                         -- in the order in which they were added
  seq INTEGER NOT NULL,                           -- of the run's event that moved it last
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  max_retries INTEGER NOT NULL DEFAULT 3,
  try_no INTEGER NOT NULL DEFAULT 1,
  progress INTEGER NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
  not_before TEXT,
  discarded INTEGER NOT NULL DEFAULT 0,
  reruns INTEGER NOT NULL DEFAULT 0,
  stays INTEGER NOT NULL DEFAULT 0,               -- when its run's command makes its state follow
  error_code TEXT,
  error_msg TEXT,
  started_at TEXT,
  finished_at TEXT,
  output TEXT,
  details TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY(run_id, kind, key)
) WITHOUT ROWID;
CREATE INDEX items_status ON items(run_id, kind, status);

CREATE TABLE event_log(
  position INTEGER PRIMARY KEY,                   -- in the order of commits, which is the order of writes
  rid INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  at INTEGER NOT NULL,                            -- milliseconds
  command TEXT NOT NULL,
  src TEXT,
  dst TEXT NOT NULL,
  actor TEXT NOT NULL,
  who TEXT NOT NULL,
  level TEXT,
  message TEXT,
  payload TEXT,
  effect TEXT,
  key TEXT
);
CREATE UNIQUE INDEX event_log_run ON event_log(rid, seq);
CREATE UNIQUE INDEX event_log_key ON event_log(rid, key) WHERE key IS NOT NULL;
CREATE VIEW events AS SELECT e.position, r.run_id, e.seq, strftime('%Y-%m-%dT%H:%M:%fZ', e.at / 1000.0, 'unixepoch') AS at,
    e.command, e.src AS "from", e.dst AS "to", e.actor, e.who AS "by", e.level, e.message, e.payload, e.effect
  FROM event_log e JOIN runs r ON r.rid = e.rid;

CREATE TABLE queues(name TEXT PRIMARY KEY, at_most INTEGER, paused_by TEXT, pause_reason TEXT, paused_at TEXT) WITHOUT ROWID;
CREATE TABLE key_limits(name TEXT PRIMARY KEY, at_most INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE pruned(day TEXT, lifecycle TEXT, runs INTEGER NOT NULL, events INTEGER NOT NULL, PRIMARY KEY(day, lifecycle)) WITHOUT ROWID;
-- Holds a row while the prune verb deletes, and never after a commit.
CREATE TABLE pruning(run_id TEXT);

-- The log is append-only, and rows leave by pruning alone.
CREATE TRIGGER event_log_update BEFORE UPDATE ON event_log BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: events cannot be changed'); END;
CREATE TRIGGER event_log_delete BEFORE DELETE ON event_log WHEN NOT EXISTS (SELECT 1 FROM pruning)
  BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: events cannot be deleted; settled runs leave by pruning'); END;
CREATE TRIGGER events_update INSTEAD OF UPDATE ON events BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: events cannot be changed'); END;
CREATE TRIGGER events_delete INSTEAD OF DELETE ON events BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: events cannot be deleted'); END;
CREATE TRIGGER events_insert INSTEAD OF INSERT ON events BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: events are written by moves of their run'); END;
CREATE TRIGGER runs_delete BEFORE DELETE ON runs WHEN NOT EXISTS (SELECT 1 FROM pruning)
  BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: runs cannot be deleted; settled ones leave by pruning'); END;
CREATE TRIGGER items_delete BEFORE DELETE ON items WHEN NOT EXISTS (SELECT 1 FROM pruning)
  BEGIN SELECT RAISE(FAIL, 'APPEND_ONLY: items cannot be deleted; they leave with their run'); END;

-- What a run is born with stays, the fence and the log's length only rise. A settled run changes by a declared exit only
-- (what the engine keeps beside it raises seq). Held needs a lease, settled a time, parked a reason. Whoever writes.
-- One trigger, because each one costs every write.
CREATE TRIGGER runs_shape BEFORE UPDATE ON runs
BEGIN
  SELECT CASE
    WHEN NEW.run_id <> OLD.run_id OR NEW.rid <> OLD.rid OR NEW.tenant <> OLD.tenant OR NEW.lifecycle <> OLD.lifecycle
        OR NEW.version <> OLD.version OR NEW.queued_at <> OLD.queued_at OR NEW.input <> OLD.input
        OR NEW.fence < OLD.fence OR NEW.seq < OLD.seq
      THEN RAISE(FAIL, 'IMMUTABLE: id, tenant, lifecycle, input and time of birth stay; fence and seq only rise')
    WHEN s.phase = 'held' AND (NEW.lease_token IS NULL OR NEW.stale_after IS NULL)
        OR s.phase = 'settled' AND NEW.finished_at IS NULL
        OR s.phase = 'parked' AND trim(coalesce(NEW.reason, '')) = ''
        OR s.phase <> 'settled' AND NEW.finished_at IS NOT NULL AND NEW.phase <> 'settled'
      THEN RAISE(FAIL, 'SHAPE: held needs lease_token and stale_after, settled finished_at, parked a reason')
    WHEN s.phase = 'settled' AND OLD.finished_at IS NOT NULL AND NEW.status = OLD.status
        AND (NEW.seq = OLD.seq OR NEW.finished_at IS NOT OLD.finished_at OR NEW.started_at IS NOT OLD.started_at
          OR NEW.error_code IS NOT OLD.error_code OR NEW.error_msg IS NOT OLD.error_msg
          OR NEW.metadata IS NOT OLD.metadata OR NEW.details IS NOT OLD.details OR NEW.attempt <> OLD.attempt)
        -- but for what follows a legal move by hand, whose event is already there
        AND NOT EXISTS (SELECT 1 FROM event_log e WHERE e.rid = OLD.rid AND e.seq = OLD.seq + 1 AND e.seq = NEW.seq AND e.who = 'by hand')
      THEN RAISE(FAIL, 'SETTLED: a finished run cannot be rewritten')
    END
  FROM lifecycle_states s WHERE s.lifecycle = NEW.lifecycle AND s.version = NEW.version AND s.state = NEW.status;
END;
CREATE TRIGGER runs_shape_birth BEFORE INSERT ON runs
  WHEN EXISTS (SELECT 1 FROM lifecycle_states s WHERE s.lifecycle = NEW.lifecycle AND s.version = NEW.version AND s.state = NEW.status
    AND (s.phase <> NEW.phase OR s.phase = 'held' AND (NEW.lease_token IS NULL OR NEW.stale_after IS NULL)))
  BEGIN SELECT RAISE(FAIL, 'SHAPE: a new run has the phase of its status, and a lease if it is held'); END;
CREATE TRIGGER items_settled BEFORE UPDATE ON items
  WHEN OLD.finished_at IS NOT NULL AND NEW.status = OLD.status AND NEW.seq = OLD.seq
    AND (NEW.finished_at IS NOT OLD.finished_at OR NEW.error_code IS NOT OLD.error_code OR NEW.attempts <> OLD.attempts)
  BEGIN SELECT RAISE(FAIL, 'SETTLED: a finished item cannot be rewritten'); END;

-- A legal move by hand does not raise seq: it gets its event here, and what follows from the phases.
-- The trigger that every move looks at is small; the work is done by the view's.
CREATE VIEW moved_by_hand AS SELECT NULL AS rid, NULL AS src, NULL AS was, NULL AS started, NULL AS finished, NULL AS available WHERE false;
CREATE TRIGGER runs_by_hand AFTER UPDATE OF status ON runs WHEN NEW.seq = OLD.seq AND NEW.status <> OLD.status
BEGIN
  INSERT INTO moved_by_hand(rid, src, was, started, finished, available)
    VALUES (OLD.rid, OLD.status, OLD.phase, OLD.started_at, OLD.finished_at, OLD.available_at);
END;
CREATE TRIGGER moved_by_hand_follow INSTEAD OF INSERT ON moved_by_hand
BEGIN
  INSERT INTO event_log(rid, seq, at, command, src, dst, actor, who, effect)
    SELECT r.rid, r.seq + 1, c.ms, m.command, NEW.src, r.status,
      iif(s.phase = 'held' AND r.claimed_by IS NOT NULL AND NEW.was <> 'held', 'worker', 'operator'),
      iif(s.phase = 'held' AND r.claimed_by IS NOT NULL AND NEW.was <> 'held', r.claimed_by, 'by hand'),
      json_object('by_hand', 1, 'metadata_is', json(r.metadata), 'details_is', json(r.details),
        'reason', r.reason, 'resolved', json(iif(r.resolved, 'true', 'false')), 'forced', json(iif(r.forced, 'true', 'false')),
        'failure', CASE WHEN r.error_code IS NOT NULL THEN json_object('code', r.error_code, 'message', coalesce(r.error_msg, '')) END)
    FROM runs r
    JOIN lifecycle_moves m ON m.lifecycle = r.lifecycle AND m.version = r.version AND m.src = NEW.src AND m.dst = r.status AND m.events = 1
    JOIN lifecycle_states s ON s.lifecycle = m.lifecycle AND s.version = m.version AND s.state = m.dst
    CROSS JOIN (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
        + coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'clock_ahead_ms'), 0) AS ms) c
    WHERE r.rid = NEW.rid ORDER BY m.guards LIMIT 1;
  UPDATE runs SET
      seq = runs.seq + 1,
      last_command = e.command,
      phase = s.phase,
      attempt = attempt + (s.phase = 'held' AND NEW.was <> 'held'),
      fence = fence + (e.actor = 'worker'),
      take_overs = iif(s.phase = 'held' AND NEW.was <> 'held', 0, take_overs),
      lease_token = iif(s.phase = 'held', lease_token, NULL),
      claimed_by = iif(s.phase = 'held', claimed_by, NULL),
      lease_ms = iif(s.phase = 'held', coalesce(lease_ms, 60000), NULL),
      stale_after = iif(s.phase = 'held', stale_after, NULL),
      started_at = iif(s.phase = 'held' AND NEW.was <> 'held' AND (NEW.started IS NULL OR NEW.was <> 'ready'), e.iso, NEW.started),
      finished_at = CASE WHEN s.phase <> 'settled' THEN NULL WHEN NEW.was = 'settled' THEN NEW.finished ELSE e.iso END,
      available_at = CASE WHEN s.phase = 'ready' THEN e.iso WHEN NEW.was = 'settled' AND s.phase = 'settled' THEN NEW.available END,
      expires_at = NULL,
      reason = iif(s.phase = 'parked' OR EXISTS (SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = runs.lifecycle
        AND m.version = runs.version AND m.src = NEW.src AND m.dst = runs.status AND m.guards & 1), reason, NULL),
      error_code = iif(s.phase = 'settled', error_code, NULL),
      error_msg = iif(s.phase = 'settled', iif(error_code IS NULL, NULL, coalesce(error_msg, '')), NULL),
      intent = iif(s.phase = 'held', intent, NULL),
      owes_cleanup = iif(s.phase = 'settled', 0, owes_cleanup),
      resolved = iif(s.phase = 'parked', 0, resolved),
      forced = iif(s.phase = 'parked', 0, forced),
      blocked = 0
    FROM (SELECT l.rid AS of, l.command, l.actor, strftime('%Y-%m-%dT%H:%M:%fZ', l.at / 1000.0, 'unixepoch') AS iso
        FROM event_log l WHERE l.rid = NEW.rid ORDER BY l.seq DESC LIMIT 1) e,
      lifecycle_states s
    WHERE runs.rid = e.of AND s.lifecycle = runs.lifecycle AND s.version = runs.version AND s.state = runs.status;
END;

-- The same for an item: one event of its run.
CREATE TRIGGER items_by_hand AFTER UPDATE OF status ON items WHEN NEW.seq = OLD.seq AND NEW.status <> OLD.status
BEGIN
  UPDATE items SET
      seq = (SELECT r.seq + 1 FROM runs r WHERE r.run_id = NEW.run_id),
      started_at = iif(s.phase = 'held' AND NEW.started_at IS NULL, c.iso, NEW.started_at),
      finished_at = iif(s.phase = 'settled', c.iso, NULL),
      error_msg = iif(NEW.error_code IS NULL, NULL, coalesce(NEW.error_msg, ''))
    FROM lifecycle_states s, (SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now',
        (coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'clock_ahead_ms'), 0) / 1000.0) || ' seconds') AS iso) c
    WHERE items.run_id = NEW.run_id AND items.kind = NEW.kind AND items.key = NEW.key
      AND s.lifecycle = NEW.kind AND s.version = NEW.version AND s.state = NEW.status;
  INSERT INTO event_log(rid, seq, at, command, src, dst, actor, who, effect)
    SELECT r.rid, r.seq + 1, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
        + coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'clock_ahead_ms'), 0),
      'items', r.status, r.status, 'operator', 'by hand',
      json_object('by_hand', 1, 'moved', json_array(json_object('kind', i.kind, 'key', i.key, 'from', OLD.status, 'to', i.status,
        'attempts', i.attempts, 'max_retries', i.max_retries, 'try_no', i.try_no, 'progress', i.progress,
        'discarded', json(iif(i.discarded, 'true', 'false')), 'reruns', json(iif(i.reruns, 'true', 'false')),
        'was_staying', json(iif(OLD.stays, 'true', 'false')), 'stays', json(iif(i.stays, 'true', 'false')),
        'not_before', CAST(round((julianday(i.not_before) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'started_at', CAST(round((julianday(i.started_at) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'finished_at', CAST(round((julianday(i.finished_at) - 2440587.5) * 86400000) AS INTEGER) * 1000,
        'failure', CASE WHEN i.error_code IS NOT NULL THEN json_object('code', i.error_code, 'message', i.error_msg) END)))
    FROM runs r JOIN items i ON i.run_id = r.run_id AND i.kind = NEW.kind AND i.key = NEW.key WHERE r.run_id = NEW.run_id;
  UPDATE runs SET seq = seq + 1 WHERE run_id = NEW.run_id;
END;
