-- Waypost on SQLite, version 1. Readable and (legally) mendable with any sqlite3 from 3.40 on, with no functions of
-- ours: look at and update the views `runs` and `events` and the table `items`, where times are text in UTC and states
-- have names. The tables behind them hold times as milliseconds and states as codes, because a move rewrites its row.
-- `runs_judged`, `items_move`, `items_birth` and the view `counted_items` come from the kernel's rendering of the
-- lifecycles and are added after this file; `hand_edits.sql` says what a write to the views means.

CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE lifecycles(name TEXT, version INTEGER, kind TEXT NOT NULL, items TEXT, items_version INTEGER,
  definition TEXT NOT NULL, source TEXT, PRIMARY KEY(name, version)) WITHOUT ROWID;
CREATE TABLE lifecycle_states(lifecycle TEXT, version INTEGER, state TEXT, phase TEXT NOT NULL, outcome TEXT,
  initial INTEGER NOT NULL,
  course TEXT,                                    -- of items that stop their run: to come here 'begins' work, or 'ends' the run's course
  PRIMARY KEY(lifecycle, version, state)) WITHOUT ROWID;
CREATE TABLE lifecycle_moves(lifecycle TEXT, version INTEGER, src TEXT, dst TEXT, guards INTEGER, events INTEGER NOT NULL,
  command TEXT NOT NULL, PRIMARY KEY(lifecycle, version, src, dst, guards)) WITHOUT ROWID;
-- A state of a lifecycle's version as a number. Its last three bits are the phase: 0 draft, 1 ready, 2 held, 3 parked,
-- 4 settled. So a row's shape can be checked, and an index be partial, without looking anything up.
CREATE TABLE state_codes(code INTEGER PRIMARY KEY, lifecycle TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
  phase TEXT NOT NULL, initial INTEGER NOT NULL, UNIQUE(lifecycle, version, state));
CREATE TABLE starts(code INTEGER PRIMARY KEY);
-- What needs no closer look, the one thing that every change of a run looks up: the unguarded moves, and staying in a
-- state that is not settled, by both codes and the number of events that seq rises by (up to 3).
CREATE TABLE steps(step INTEGER PRIMARY KEY);

-- What a run is born with, and stays: its first event.
CREATE TABLE run_born(
  rid INTEGER PRIMARY KEY,                        -- in the order of creation
  position INTEGER NOT NULL,                      -- of that event in the log of all runs: it rises with rid
  run_id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  state INTEGER NOT NULL,
  at INTEGER NOT NULL,
  command TEXT NOT NULL,
  actor TEXT NOT NULL,
  who TEXT NOT NULL,
  max_attempts INTEGER NOT NULL DEFAULT 1,
  reentrant INTEGER NOT NULL DEFAULT 0,
  schedule_at INTEGER,
  correlation_id TEXT,
  idempotency_key TEXT,
  fingerprint TEXT,
  parent_run_id TEXT,
  retry_of TEXT,
  title TEXT,                                     -- what the run is, for people
  playbook TEXT,
  carried TEXT,
  effect TEXT,                                    -- what the event did beyond these columns
  metadata TEXT,                                  -- null: {}
  details TEXT,
  input TEXT NOT NULL DEFAULT '{}'
);
CREATE UNIQUE INDEX run_key ON run_born(tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- The state in which a run is born tells its lifecycle, and stays: runs of one that is hardly used are few among many.
CREATE INDEX run_births ON run_born(state);
CREATE INDEX run_children ON run_born(parent_run_id) WHERE parent_run_id IS NOT NULL;

-- What moves: small, because every move rewrites all of it. A statement that has a trigger and that SQLite thinks may
-- abort halfway copies every page it touches into a journal of its own, which took a sixth of a run's time. So what
-- this table's checks and triggers can reach calls no function, an insert does not name the rid (it might not be a
-- number), and the engine's copies of triggers say FAIL for ABORT.
CREATE TABLE run_now(
  rid INTEGER PRIMARY KEY,
  state INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  last INTEGER,                                   -- the position of its last event; null: it has but the first
  tenant TEXT NOT NULL DEFAULT '',                -- as run_born has it; '' is 'default', which costs no byte here
  queue TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 0,
  blocked INTEGER NOT NULL DEFAULT 0,             -- ready, but its concurrency key is at its limit
  due_at INTEGER,                                 -- from when a worker may take it: held, the lease's end, or, if it is vacant, what it waits for; null: never
  attempt INTEGER NOT NULL DEFAULT 0,
  take_overs INTEGER NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  token,                                          -- held: the lease's; else the one that settled or parked it
  ended_with BLOB,                                -- a digest of what that one brought along; null: nothing
  claimed_by TEXT,                                -- null in a held run: the lease is vacant
  lease_ms INTEGER,
  last_command TEXT NOT NULL,
  started_at INTEGER,
  finished_at INTEGER,
  expires_at INTEGER,
  concurrency_key TEXT,
  items INTEGER NOT NULL DEFAULT 0,
  tally TEXT,                                     -- how many of them are in which state, if they are many; null: they are counted
  flags INTEGER NOT NULL DEFAULT 0,               -- 1 requires cleanup, 2 cleanup failed, 4 operating, 8 resolved, 16 forced
  intent TEXT,
  reason TEXT,
  error_code TEXT,
  error_msg TEXT,
  metadata TEXT,                                  -- null: as born
  details TEXT,
  room BLOB DEFAULT x'000000000000000000000000000000000000000000000000000000000000000000000000',
    -- of a new run, as much as its claim will add: that would split every page of the table otherwise
  CONSTRAINT "SHAPE: held needs lease_token, stale_after and started_at" CHECK (state & 7 <> 2
    OR token IS NOT NULL AND due_at IS NOT NULL AND started_at IS NOT NULL),
  CONSTRAINT "SHAPE: settled needs finished_at, and nothing else has one" CHECK ((state & 7 = 4) = (finished_at IS NOT NULL)),
  CONSTRAINT "SHAPE: parked needs a reason" CHECK (state & 7 <> 3 OR reason IS NOT NULL AND reason <> '' COLLATE RTRIM)
);
-- Due work lies before now, deferred work behind it. Claims skip along it from tenant to tenant. Heartbeats do not touch this one.
CREATE INDEX run_ready ON run_now(queue, priority, tenant, due_at) WHERE state & 7 = 1 AND blocked = 0;
CREATE INDEX run_held ON run_now(due_at) WHERE state & 7 = 2;
-- What waits for a person, newest first: a list of few among many.
CREATE INDEX run_people ON run_now(rid) WHERE state & 7 IN (0, 3);
CREATE INDEX run_expiring ON run_now(expires_at) WHERE expires_at IS NOT NULL;
-- Of runs with a concurrency key: those that hold it, and those that wait for it, set aside or not. One index and not
-- one of each, because a move of any run opens every index that looks at its state.
CREATE INDEX run_keyed ON run_now(state & 7, blocked, concurrency_key, tenant, queue, state, priority, due_at)
  WHERE concurrency_key IS NOT NULL AND finished_at IS NULL;

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
  throttled INTEGER NOT NULL DEFAULT 0,           -- answers that made it wait, and for how long in all, of the present budget
  waited_ms INTEGER NOT NULL DEFAULT 0,
  in_doubt INTEGER NOT NULL DEFAULT 0,            -- an answer under this try_no was lost: it stays until an answer settles what came of it
  progress INTEGER NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
  not_before TEXT,
  discarded INTEGER NOT NULL DEFAULT 0,
  reruns INTEGER NOT NULL DEFAULT 0,
  role TEXT NOT NULL DEFAULT 'step' CHECK (role IN ('step', 'optional', 'cleanup')),  -- what its failure means to its run
  stays INTEGER NOT NULL DEFAULT 0,               -- when its run's command makes its state follow
  error_code TEXT,
  error_msg TEXT,
  started_at TEXT,
  finished_at TEXT,
  output TEXT,
  details TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY(run_id, kind, key)
) WITHOUT ROWID;
-- What is due of a run, in order; pages of what is in one state; whether any is in a state.
CREATE INDEX items_status ON items(run_id, kind, status, role, not_before, place);
-- Lists of a run's items, a page at a time.
CREATE INDEX items_place ON items(run_id, kind, place);
-- Dead letters: what has ended with a failure, by class, oldest first.
CREATE INDEX items_failed ON items(kind, error_code, finished_at) WHERE error_code IS NOT NULL AND finished_at IS NOT NULL;

-- All events but the first of each run. A worker that finishes without having begun makes two moves at once: they are
-- one row, whose position and seq are the second one's; the first has the numbers before, and led to the state `via`.
CREATE TABLE run_events(
  position INTEGER PRIMARY KEY,                   -- in the order of commits, which is the order of writes
  rid INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  prev INTEGER,                                   -- the position of the run's event before; null: that is the first
  at INTEGER NOT NULL,
  command TEXT NOT NULL,
  src INTEGER NOT NULL,
  dst INTEGER NOT NULL,
  actor TEXT NOT NULL,
  who TEXT NOT NULL,
  via INTEGER,
  via_command TEXT,
  level TEXT,
  message TEXT,
  payload TEXT,
  effect TEXT,
  key TEXT
);
-- A run's events hang on one another, from its last one back. Only long logs need an index to be read from the middle.
CREATE UNIQUE INDEX run_events_run ON run_events(rid, seq) WHERE seq > 8;
CREATE UNIQUE INDEX run_events_key ON run_events(rid, key) WHERE key IS NOT NULL;

-- What claims with a key took, as [number, fence] each: asked again, they give the same.
CREATE TABLE claims(worker TEXT, key TEXT, taken TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY(worker, key)) WITHOUT ROWID;
CREATE INDEX claims_until ON claims(until);
CREATE TABLE queues(tenant TEXT, name TEXT, at_most INTEGER, paused_by TEXT, pause_reason TEXT, paused_at TEXT, PRIMARY KEY(tenant, name)) STRICT, WITHOUT ROWID;
CREATE TABLE key_limits(tenant TEXT, name TEXT, at_most INTEGER NOT NULL, PRIMARY KEY(tenant, name)) STRICT, WITHOUT ROWID;
CREATE TABLE pruned(day TEXT, lifecycle TEXT, runs INTEGER NOT NULL, events INTEGER NOT NULL, PRIMARY KEY(day, lifecycle)) WITHOUT ROWID;
-- Messages from outside, such as a webhook's deliveries: what has come lately.
CREATE TABLE messages(source TEXT, digest TEXT, id TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY(source, digest), UNIQUE(source, id)) WITHOUT ROWID;
CREATE INDEX messages_at ON messages(at);
-- How far the readers of the log have gone.
CREATE TABLE cursors(name TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
-- Who may ask a server for what: of a token only the digest of its secret half.
CREATE TABLE tokens(id TEXT PRIMARY KEY, digest TEXT NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL, tenant TEXT NOT NULL,
  created_at INTEGER NOT NULL, created_by TEXT NOT NULL, expires_at INTEGER, last_used_at INTEGER, revoked_at INTEGER,
  revoked_by TEXT) STRICT, WITHOUT ROWID;
-- Whoever may write the file may do anything; this is for hands that mean no harm. What takes a right away is left to them.
CREATE TRIGGER by_hand_token BEFORE INSERT ON tokens BEGIN SELECT RAISE(ABORT, 'BY_HAND: tokens are made by `waypost token create`'); END;
CREATE TRIGGER by_hand_token_move BEFORE UPDATE OF id, digest, role, tenant, expires_at ON tokens
  BEGIN SELECT RAISE(ABORT, 'BY_HAND: what a token may do is not changed: revoke it, and make another by `waypost token create`'); END;
CREATE TRIGGER by_hand_token_back BEFORE UPDATE OF revoked_at ON tokens WHEN OLD.revoked_at IS NOT NULL
  BEGIN SELECT RAISE(ABORT, 'BY_HAND: a token that was revoked stays so'); END;
-- For how long settled runs stay, where somebody says otherwise than their lifecycle.
CREATE TABLE retention(lifecycle TEXT PRIMARY KEY, success_ms INTEGER, failure_ms INTEGER,
  CONSTRAINT "RANGE: runs are kept for 1 ms to 100 years" CHECK (success_ms BETWEEN 1 AND 3155760000000 AND failure_ms BETWEEN 1 AND 3155760000000)) STRICT, WITHOUT ROWID;
-- Workers' signs of life. Lists are texts of JSON; tenant '*' is everybody's; playbooks and carried are null of one that executes anything.
CREATE TABLE workers(name TEXT, tenant TEXT, queues TEXT NOT NULL, lifecycles TEXT NOT NULL, playbooks TEXT, carried INTEGER, only_run TEXT,
  slots INTEGER NOT NULL, version TEXT NOT NULL, by_claims INTEGER NOT NULL, started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL,
  PRIMARY KEY(name, tenant)) STRICT, WITHOUT ROWID;
-- Playbooks that servers and workers have, by tenant ('*': for all), name and content; of a name the one that was offered last is started.
CREATE TABLE playbooks(tenant TEXT, name TEXT, hash TEXT, file TEXT NOT NULL, text TEXT NOT NULL, who TEXT NOT NULL, offered_at INTEGER NOT NULL,
  PRIMARY KEY(tenant, name, hash)) STRICT, WITHOUT ROWID;
-- Agents: what each is, whether people let it work, and how its last runs ended, as [run, time, failed] each.
CREATE TABLE agents(tenant TEXT, slug TEXT, playbook TEXT, concurrency INTEGER NOT NULL, enabled INTEGER NOT NULL, paused_by TEXT,
  pause_reason TEXT, paused_at INTEGER, archived_at INTEGER, reset_at INTEGER, ends TEXT NOT NULL, updated_at INTEGER NOT NULL,
  PRIMARY KEY(tenant, slug)) STRICT, WITHOUT ROWID;
-- Which proposal changes one revision of one target, of which there is one; `revision` is a digest of both.
CREATE TABLE approvals(tenant TEXT, revision TEXT, run_id TEXT NOT NULL UNIQUE, PRIMARY KEY(tenant, revision)) STRICT, WITHOUT ROWID;
-- What runs call outside: the rate limit and the breaker that all workers share. Instants are microseconds.
CREATE TABLE destinations(tenant TEXT, name TEXT, asked_capacity_milli INTEGER NOT NULL, asked_rate_milli_per_s INTEGER NOT NULL,
  capacity_milli INTEGER NOT NULL, rate_milli_per_s INTEGER NOT NULL, pace_percent INTEGER NOT NULL, available_milli INTEGER NOT NULL,
  at_us INTEGER NOT NULL, breaker_after INTEGER NOT NULL, pause_ms INTEGER NOT NULL, probe_ms INTEGER NOT NULL, consecutive INTEGER NOT NULL,
  since_us INTEGER, until_us INTEGER,               -- of the breaker: until alone, it is open; both, a probe is out
  calls INTEGER NOT NULL, throttled INTEGER NOT NULL, opened INTEGER NOT NULL, changed_us INTEGER NOT NULL, PRIMARY KEY(tenant, name)) STRICT, WITHOUT ROWID;
-- What people are told of: a row for each policy and what it is about. Samples and deliveries are texts of JSON; silenced_*: nobody is told.
CREATE TABLE alerts(tenant TEXT, name TEXT, subject TEXT, status TEXT NOT NULL, value_milli INTEGER, episode INTEGER NOT NULL, since INTEGER NOT NULL,
  well_since INTEGER, fired_at INTEGER, resolved_at INTEGER, evaluated_at INTEGER NOT NULL, summary TEXT NOT NULL, samples TEXT NOT NULL,
  deliveries TEXT NOT NULL, silenced_until INTEGER, silenced_by TEXT, silence_reason TEXT, updated_at INTEGER NOT NULL, revision INTEGER NOT NULL,
  PRIMARY KEY(tenant, name, subject)) STRICT, WITHOUT ROWID;
-- What people did, kept for good.
CREATE TABLE audit(number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, tenant TEXT NOT NULL, who TEXT NOT NULL,
  action TEXT NOT NULL, subject TEXT NOT NULL, reason TEXT);
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: audit cannot be changed'); END;
CREATE TRIGGER audit_insert BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE number = NEW.number)
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: audit cannot be changed'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: audit cannot be deleted'); END;
-- Parents that were cancelled, or asked to be, and whose children nobody has asked yet: empty but for a moment.
CREATE TABLE cancelled_parents(run_id TEXT PRIMARY KEY) WITHOUT ROWID;
-- Who writes. A trigger whose name begins with by_hand_ is for everybody but the engine: its connection obeys copies of all the others
-- (link/open.rs), so that what hands must not do costs a claim nothing. A hand asks: for a run in `hand_edits`, for an item in `item_edits` (a
-- write to the views comes there by itself). What is asked for is judged and done by a trigger of those tables, which takes the row away again:
-- so a hand that writes without a row there is refused, and no statement leaves a row behind.
CREATE TABLE hand_edits(rid INTEGER PRIMARY KEY, seq INTEGER NOT NULL, status TEXT NOT NULL, lease_token, claimed_by TEXT, lease_ms INTEGER,
  stale_after TEXT, reason TEXT, error_code TEXT, error_msg TEXT, resolved INTEGER NOT NULL, forced INTEGER NOT NULL, metadata TEXT NOT NULL,
  details TEXT NOT NULL,
  -- What it comes to, which the trigger finds out.
  prev INTEGER, src INTEGER, dst INTEGER, was TEXT, phase TEXT, command TEXT, needs_reason INTEGER, shifts TEXT);
CREATE TABLE item_edits(run_id TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL, progress INTEGER NOT NULL, error_code TEXT,
  error_msg TEXT,
  src TEXT, was_staying INTEGER, rid INTEGER, seq INTEGER,
  PRIMARY KEY(run_id, kind, key)) WITHOUT ROWID;

-- The log is append-only, and rows leave by pruning alone: a settled run first, then what it leaves behind.
CREATE TRIGGER run_events_update BEFORE UPDATE ON run_events BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: events cannot be changed'); END;
CREATE TRIGGER run_events_delete BEFORE DELETE ON run_events WHEN EXISTS (SELECT 1 FROM run_now WHERE rid = OLD.rid)
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: events cannot be deleted; settled runs leave by pruning'); END;
CREATE TRIGGER run_born_update BEFORE UPDATE ON run_born
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: what a run was born with stays'); END;
CREATE TRIGGER run_born_delete BEFORE DELETE ON run_born WHEN EXISTS (SELECT 1 FROM run_now WHERE rid = OLD.rid)
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: runs cannot be deleted; settled ones leave by pruning'); END;
CREATE TRIGGER run_now_delete BEFORE DELETE ON run_now WHEN OLD.state & 7 <> 4 OR OLD.flags & 4 <> 0
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: runs cannot be deleted; settled ones leave by pruning'); END;
CREATE TRIGGER items_delete BEFORE DELETE ON items
    WHEN EXISTS (SELECT 1 FROM run_born b JOIN run_now n ON n.rid = b.rid WHERE b.run_id = OLD.run_id)
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: items cannot be deleted; they leave with their run'); END;
CREATE TRIGGER items_own BEFORE UPDATE OF run_id, kind, key, version, place, name, max_retries, reruns, role ON items
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: an item stays its run''s, and what it is to it'); END;
CREATE TRIGGER run_now_birth BEFORE INSERT ON run_now WHEN NEW.state NOT IN (SELECT code FROM starts) OR NEW.seq <> 1
  BEGIN SELECT RAISE(ABORT, 'INVALID_TRANSITION: the lifecycle does not start there'); END;

-- Not even while somebody's edit is under way, by a trigger of his own: one event, the next one, which says that it is by hand.
CREATE TRIGGER by_hand_event BEFORE INSERT ON run_events WHEN NEW.effect ->> '$.by_hand' IS NOT 1
    OR NOT EXISTS (SELECT 1 FROM hand_edits WHERE rid = NEW.rid AND seq = NEW.seq - 1) AND NOT EXISTS (SELECT 1 FROM item_edits WHERE rid = NEW.rid AND seq = NEW.seq - 1)
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: events are written by moves of their run: update the view runs or the table items'); END;
CREATE TRIGGER by_hand_event_delete BEFORE DELETE ON run_events
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: events cannot be deleted; settled runs leave by pruning'); END;
CREATE TRIGGER by_hand_birth BEFORE INSERT ON run_born
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a run is born with its first event: waypost run start'); END;
CREATE TRIGGER by_hand_birth_now BEFORE INSERT ON run_now
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a run is born with its first event: waypost run start'); END;
CREATE TRIGGER by_hand_born_delete BEFORE DELETE ON run_born
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: runs cannot be deleted; settled ones leave by pruning'); END;
CREATE TRIGGER by_hand_now_delete BEFORE DELETE ON run_now
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: runs cannot be deleted; settled ones leave by pruning'); END;
CREATE TRIGGER by_hand_item BEFORE INSERT ON items
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: an item is added with an event of its run, by its worker'); END;
CREATE TRIGGER by_hand_item_delete BEFORE DELETE ON items
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: items cannot be deleted; they leave with their run'); END;
CREATE TRIGGER by_hand_move BEFORE UPDATE ON run_now WHEN (NEW.queue, NEW.priority, NEW.concurrency_key) IS NOT (OLD.queue, OLD.priority, OLD.concurrency_key)
    OR NOT EXISTS (SELECT 1 FROM hand_edits WHERE rid = OLD.rid AND seq >= NEW.seq - 1) AND NOT EXISTS (SELECT 1 FROM item_edits WHERE rid = OLD.rid AND seq >= NEW.seq - 1)
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: update the view runs: it judges the move and writes its event'); END;

-- A guarded move, judged before it is made: the permit is good for the very next event of the run and for the values
-- that the guards saw. Whoever makes the move asks for it; the guards need functions, which the trigger that sees every
-- move must not call.
CREATE TABLE run_permits(rid INTEGER PRIMARY KEY, src INTEGER NOT NULL, dst INTEGER NOT NULL, seq INTEGER NOT NULL, rise INTEGER NOT NULL,
  reason TEXT, flags INTEGER NOT NULL, attempt INTEGER NOT NULL);
CREATE TRIGGER run_permits_judge BEFORE INSERT ON run_permits
BEGIN
  SELECT RAISE(ABORT, 'INVALID_TRANSITION: the lifecycle has no such state, or the run is elsewhere') WHERE NOT EXISTS (
    SELECT 1 FROM run_now n JOIN state_codes s ON s.code = n.state
      JOIN state_codes d ON d.lifecycle = s.lifecycle AND d.version = s.version
    WHERE n.rid = NEW.rid AND n.state = NEW.src AND d.code = NEW.dst AND n.seq = NEW.seq - NEW.rise AND NEW.rise > 0);
  INSERT INTO runs_judged(src, dst, rise, run_id, lifecycle, version, reason, resolved, forced, attempt, max_attempts, reentrant, operating)
    SELECT s.state, d.state, NEW.rise, b.run_id, s.lifecycle, s.version, NEW.reason, NEW.flags & 8 <> 0, NEW.flags & 16 <> 0,
      NEW.attempt, b.max_attempts, b.reentrant, NEW.flags & 4 <> 0
    FROM run_born b, state_codes s, state_codes d WHERE b.rid = NEW.rid AND s.code = NEW.src AND d.code = NEW.dst;
END;
CREATE TRIGGER by_hand_permit BEFORE INSERT ON run_permits WHEN NOT EXISTS (SELECT 1 FROM hand_edits WHERE rid = NEW.rid)
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: whoever makes a move asks for its permit: update the view runs'); END;
CREATE TRIGGER run_permits_update BEFORE UPDATE ON run_permits BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a permit is good as it is'); END;

-- Every change of a run, whoever makes it: a move is one of the lifecycle's and raises seq by its events, the fence and
-- the log's length only rise, a lease changes hands with an event, a settled run changes by a declared exit only (what the engine keeps beside it raises
-- seq). One trigger, because each one costs every write; and a small one, because its program takes room for all that it
-- might do each time it is looked at: what is not plainly right is handed to a view whose own trigger knows more.
CREATE VIEW run_doubts AS SELECT NULL AS rid, NULL AS src, NULL AS dst, NULL AS seq, NULL AS rise, NULL AS higher, NULL AS reason,
  NULL AS flags, NULL AS attempt, NULL AS started_at, NULL AS finished_at, NULL AS handed WHERE false;
CREATE TRIGGER run_now_move BEFORE UPDATE ON run_now
  WHEN (OLD.state * 1048576 + NEW.state) * 4 + NEW.seq - OLD.seq NOT IN (SELECT step FROM steps)
    OR NEW.seq - OLD.seq NOT BETWEEN 0 AND 3 OR NEW.fence < OLD.fence OR NEW.rid <> OLD.rid
    OR coalesce(NEW.last, 0) < coalesce(OLD.last, 0)
    OR NEW.seq = OLD.seq AND (NEW.token IS NOT OLD.token OR NEW.claimed_by IS NOT OLD.claimed_by OR NEW.started_at IS NOT OLD.started_at)
BEGIN
  INSERT INTO run_doubts(rid, src, dst, seq, rise, higher, reason, flags, attempt, started_at, finished_at, handed)
    VALUES (OLD.rid, OLD.state, NEW.state, NEW.seq, NEW.seq - OLD.seq, NEW.fence >= OLD.fence AND NEW.rid = OLD.rid AND coalesce(NEW.last, 0) >= coalesce(OLD.last, 0),
      NEW.reason, NEW.flags, NEW.attempt, NEW.started_at, NEW.finished_at,
      NEW.token IS NOT OLD.token OR NEW.claimed_by IS NOT OLD.claimed_by OR NEW.started_at IS NOT OLD.started_at);
END;
CREATE TRIGGER run_doubts_judge INSTEAD OF INSERT ON run_doubts
BEGIN
  SELECT CASE
    WHEN NEW.rise < 0 OR NOT NEW.higher THEN RAISE(ABORT, 'IMMUTABLE: a run keeps its place; its fence, seq and last event only rise')
    WHEN NEW.src <> NEW.dst AND NOT EXISTS (SELECT 1 FROM run_permits p WHERE p.rid = NEW.rid AND p.src = NEW.src AND p.dst = NEW.dst
        AND p.seq = NEW.seq AND p.rise = NEW.rise AND p.reason IS NEW.reason AND p.flags = NEW.flags AND p.attempt = NEW.attempt)
      THEN RAISE(ABORT, 'INVALID_TRANSITION: no such move, or not judged: update the view runs, which asks for it and writes the event')
    WHEN NEW.src = NEW.dst AND NEW.src & 7 = 4 AND (NEW.rise = 0 OR NOT EXISTS (SELECT 1 FROM run_now n WHERE n.rid = NEW.rid
        AND n.started_at IS NEW.started_at AND n.finished_at IS NEW.finished_at AND n.attempt = NEW.attempt))
      THEN RAISE(ABORT, 'SETTLED: a finished run cannot be rewritten')
    WHEN NEW.rise = 0 AND NEW.handed
      THEN RAISE(ABORT, 'IMMUTABLE: a lease, who has it and when the run began change with an event of the log: a worker claims it')
    END;
END;
-- The rest of a settled run. No claim or finish names these columns, so this one costs them nothing.
CREATE TRIGGER run_now_settled BEFORE UPDATE OF error_code, error_msg, metadata, details ON run_now
  WHEN OLD.finished_at IS NOT NULL AND NEW.state = OLD.state AND (NEW.error_code IS NOT OLD.error_code
    OR NEW.error_msg IS NOT OLD.error_msg OR NEW.metadata IS NOT OLD.metadata OR NEW.details IS NOT OLD.details)
  BEGIN SELECT RAISE(ABORT, 'SETTLED: a finished run cannot be rewritten'); END;
-- Nor does any heartbeat: what is merged has an event.
CREATE TRIGGER run_now_merged BEFORE UPDATE OF metadata, details ON run_now
  WHEN NEW.seq = OLD.seq AND NEW.state = OLD.state AND (NEW.metadata IS NOT OLD.metadata OR NEW.details IS NOT OLD.details)
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: metadata and details change with an event: update the view runs, which writes it'); END;
-- Schedules: what is planned, where planning got to, and which run belongs to which plan. Times are milliseconds.
CREATE TABLE schedules(
  name TEXT PRIMARY KEY,
  definition TEXT NOT NULL,
  folder TEXT NOT NULL,
  hash TEXT NOT NULL,
  timing TEXT NOT NULL,
  carried INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  scopes_at INTEGER,                              -- when its scopes are to be listed anew; null: the file lists them
  scopes_failures INTEGER NOT NULL DEFAULT 0,     -- listings in a row that failed
  paused_by TEXT,
  pause_reason TEXT,
  paused_at INTEGER
) WITHOUT ROWID;
-- Who fires schedules: hashes of its own ones, with blanks between; forgotten a minute after its last sign.
CREATE TABLE schedulers(name TEXT PRIMARY KEY, carried INTEGER NOT NULL, tenant TEXT, hashes TEXT NOT NULL, seen_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE schedule_scopes(
  schedule TEXT NOT NULL,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  through INTEGER,                                -- every plan up to here is fired or counted
  since INTEGER,                                  -- plans up to here do not count
  wake_at INTEGER,                                -- when there is something to plan; null: paused or retired
  waiting_at INTEGER,                             -- when to look at its plans that wait to begin; null: none does, or paused
  failures INTEGER NOT NULL DEFAULT 0,            -- plannings in a row that failed
  retired INTEGER NOT NULL DEFAULT 0,
  hash TEXT NOT NULL,                             -- as its schedule has them: a tick need not look there
  carried INTEGER NOT NULL,
  counts TEXT NOT NULL DEFAULT '{}',
  last_plan INTEGER,
  last_status TEXT,
  last_success INTEGER,
  PRIMARY KEY(schedule, kind, id)
) WITHOUT ROWID;
CREATE INDEX schedule_scopes_wake ON schedule_scopes(wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX schedule_scopes_waiting ON schedule_scopes(waiting_at) WHERE waiting_at IS NOT NULL;
CREATE TABLE executions(
  schedule TEXT NOT NULL,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  plan_time INTEGER NOT NULL,
  run_id TEXT,                                    -- null: asked for by hand, and not begun
  manual TEXT,
  who TEXT,
  wake_at INTEGER,                                -- when to look at it; null: it has ended
  failures INTEGER NOT NULL DEFAULT 0,            -- beginnings in a row that failed
  tried INTEGER NOT NULL DEFAULT 0,               -- attempts of earlier runs of this plan, and how many those had
  allowed INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(schedule, kind, id, plan_time)
) WITHOUT ROWID;
-- Those that have begun, and those that wait to begin, apart: however many wait, nobody else's retry is behind them.
CREATE INDEX executions_wake ON executions(wake_at) WHERE wake_at IS NOT NULL AND run_id IS NOT NULL;
CREATE INDEX executions_open ON executions(schedule, kind, id) WHERE wake_at IS NOT NULL AND run_id IS NOT NULL;
CREATE INDEX executions_waiting ON executions(schedule, kind, id, plan_time) WHERE wake_at IS NOT NULL AND run_id IS NULL;
CREATE INDEX executions_run ON executions(run_id) WHERE run_id IS NOT NULL;
-- What a plan is comes from its run: nobody claims, ends or takes away one by hand.
CREATE TRIGGER by_hand_execution BEFORE INSERT ON executions
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: an execution comes with its plan: waypost schedule trigger, or backfill'); END;
CREATE TRIGGER by_hand_execution_move BEFORE UPDATE ON executions
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: what an execution is comes from its run: update the view runs'); END;
CREATE TRIGGER by_hand_execution_delete BEFORE DELETE ON executions
  BEGIN SELECT RAISE(ABORT, 'APPEND_ONLY: executions cannot be deleted; settled ones leave by pruning'); END;
CREATE TRIGGER executions_leave AFTER DELETE ON run_born WHEN OLD.idempotency_key GLOB 'waypost:schedule:*'
  BEGIN DELETE FROM executions WHERE run_id = OLD.run_id; END;
