-- Waypost on PostgreSQL (15 and later), version 1. Engine tables, their guards and what a raw write leaves behind.
-- Writes are in write.sql, verbs in verbs_ops.sql and verbs_born.sql, the seeds' interface in ops/.
--
-- `runs` is the truth and has no index on a column that moves, so that every move is a HOT update. `ready` is a queue
-- kept beside it (inserted and deleted, never updated), `watch` reminds the sweeper of leases, `events` only grows.
--
-- A state's number tells its phase: draft 1xxx, ready 2xxx, held 3xxx, parked 4xxx, settled well 5xxx, settled
-- otherwise 6xxx. Rules that hold for all lifecycles are written on it and need no lookup.

CREATE SCHEMA IF NOT EXISTS waypost;
REVOKE ALL ON SCHEMA waypost FROM PUBLIC;

CREATE TABLE waypost.meta(key text PRIMARY KEY, value text NOT NULL);

-- How far ahead of the server's clock tests and demonstrations are. Empty in earnest.
CREATE TABLE waypost.clock(ahead interval NOT NULL);

CREATE TABLE waypost.lifecycles(name text, version int, kind text NOT NULL, items text, items_version int,
  definition text NOT NULL, source text, PRIMARY KEY(name, version));
CREATE TABLE waypost.lifecycle_states(lifecycle text, version int, state text, phase text NOT NULL, outcome text,
  initial boolean NOT NULL,
  course text,                                    -- of items that stop their run: to come here 'begins' work, or 'ends' the run's course
  code smallint,                                  -- of a run's lifecycle; items keep their states' names
  claim_to smallint,                              -- where a claim leads, if nothing but has-items guards it
  claim_needs_items boolean NOT NULL DEFAULT false,
  claim_shifts boolean NOT NULL DEFAULT false,    -- items follow a claim
  start_to smallint,                              -- where the holder's first own event leads
  start_command text,
  lease_ms bigint,                                -- of a held state, when the claimer does not say
  deadline_ms bigint,                             -- to begin within: heartbeats do not extend it
  expires boolean NOT NULL DEFAULT false,         -- a time to live that ran out ends it
  ttl_ms bigint,
  keep_ms bigint,                                 -- how long a settled run stays
  PRIMARY KEY(lifecycle, version, state));
CREATE UNIQUE INDEX lifecycle_states_code ON waypost.lifecycle_states(code);
CREATE TABLE waypost.lifecycle_moves(lifecycle text, version int, src text, dst text, guards int, events int NOT NULL,
  command text NOT NULL, src_code smallint, dst_code smallint, PRIMARY KEY(lifecycle, version, src, dst, guards));
CREATE INDEX lifecycle_moves_codes ON waypost.lifecycle_moves(src_code, dst_code);

-- The table as it was declared, in its order: who may do what, and the error code that it leaves.
CREATE TABLE waypost.lifecycle_transitions(src smallint, place int, dst smallint NOT NULL, command text NOT NULL, actors text[] NOT NULL,
  guards int NOT NULL, error_code text, PRIMARY KEY(src, place));

CREATE SEQUENCE waypost.rids;
CREATE TABLE waypost.runs(
  rid bigint NOT NULL DEFAULT nextval('waypost.rids') << 16 PRIMARY KEY,
  queued_at timestamptz NOT NULL,
  available_at timestamptz,
  started_at timestamptz,
  finished_at timestamptz,
  stale_after timestamptz,
  lease_ms bigint,
  schedule_at timestamptz,
  expires_at timestamptz,
  lease_token uuid,
  ended_by uuid,                                  -- the token that settled or parked it
  ended_with uuid,                                -- a digest of what that finish brought along; null: nothing
  seq int NOT NULL,
  fence int NOT NULL DEFAULT 0,
  attempt int NOT NULL DEFAULT 0,
  max_attempts int NOT NULL DEFAULT 1,
  take_overs int NOT NULL DEFAULT 0,
  item_count int NOT NULL DEFAULT 0,
  tally json,                                     -- how many of them are in which state, if they are many; null: they are counted
  state smallint NOT NULL,
  priority smallint NOT NULL DEFAULT 0,
  requires_cleanup boolean NOT NULL DEFAULT false,
  cleanup_failed boolean NOT NULL DEFAULT false,
  operating boolean NOT NULL DEFAULT false,
  reentrant boolean NOT NULL DEFAULT false,
  resolved boolean NOT NULL DEFAULT false,
  forced boolean NOT NULL DEFAULT false,
  run_id text COLLATE "C" NOT NULL,
  tenant text NOT NULL,
  queue text NOT NULL,
  last_command text NOT NULL,
  claimed_by text,                                -- null in a held run: the lease is vacant
  intent jsonb,
  reason text,
  error_code text,
  error_msg text,
  concurrency_key text,
  correlation_id text,
  idempotency_key text,
  fingerprint text,
  parent_run_id text,
  retry_of text,
  title text,
  playbook text,
  carried json,
  input json NOT NULL DEFAULT '{}',
  metadata jsonb NOT NULL DEFAULT '{}',
  details jsonb NOT NULL DEFAULT '{}',
  CONSTRAINT "SHAPE: held, and only that, has lease_token and stale_after" CHECK ((state / 1000 = 3) = (lease_token IS NOT NULL) AND (lease_token IS NULL) = (stale_after IS NULL)),
  CONSTRAINT "SHAPE: settled, and only that, has finished_at" CHECK ((state >= 5000) = (finished_at IS NOT NULL)),
  CONSTRAINT "SHAPE: parked needs a reason" CHECK (state / 1000 <> 4 OR reason IS NOT NULL AND btrim(reason) <> '')
) WITH (fillfactor = 28, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000);
CREATE UNIQUE INDEX runs_id ON waypost.runs(run_id);
CREATE UNIQUE INDEX runs_key ON waypost.runs(tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX runs_expiring ON waypost.runs(expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX runs_children ON waypost.runs(parent_run_id) WHERE parent_run_id IS NOT NULL;

-- Due work lies before now, deferred work behind it. A row counts while its run is ready and has this seq.
CREATE TABLE waypost.ready(available_at timestamptz NOT NULL, rid bigint NOT NULL, seq int NOT NULL, priority smallint NOT NULL,
  state smallint NOT NULL, tenant text NOT NULL, queue text NOT NULL)
  WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500000);
CREATE INDEX ready_order ON waypost.ready(queue, tenant, priority DESC, available_at, rid);
-- The tenants' queues and priorities that ever had a run, once or more. A new `revision` makes claimers look from the beginning.
CREATE TABLE waypost.lanes(tenant text NOT NULL, queue text NOT NULL, priority smallint NOT NULL, revision bigint NOT NULL DEFAULT 0);
CREATE INDEX lanes_of ON waypost.lanes(queue, tenant, priority);

-- Whose lease ends when, a row per claim. A vacant lease is due at once, or when the run has waited; what waits for another worker to
-- take it over is abandoned, and then the row has one run.
CREATE TABLE waypost.watch(due_at timestamptz NOT NULL, abandoned boolean NOT NULL DEFAULT false, rids bigint[] NOT NULL)
  WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
ALTER TABLE waypost.watch ALTER rids SET STORAGE EXTERNAL;
CREATE INDEX watch_due ON waypost.watch(due_at) WHERE NOT abandoned;
CREATE INDEX watch_abandoned ON waypost.watch(due_at) WHERE abandoned;

-- Who holds a slot of a tenant's concurrency key or of its queue with a limit; nothing for runs without either. A run whose lease is vacant
-- keeps its key, and not its place in the queue's limit.
CREATE TABLE waypost.holders(of_queue boolean NOT NULL, tenant text NOT NULL, name text NOT NULL, rid bigint NOT NULL,
  PRIMARY KEY(of_queue, name, tenant, rid));
CREATE INDEX holders_run ON waypost.holders(rid);
-- Ready runs whose key is at its limit, set aside from `ready`.
CREATE TABLE waypost.blocked(available_at timestamptz NOT NULL, rid bigint NOT NULL, seq int NOT NULL, priority smallint NOT NULL,
  state smallint NOT NULL, tenant text NOT NULL, queue text NOT NULL, key text NOT NULL);
CREATE INDEX blocked_order ON waypost.blocked(key, tenant, queue, state, priority DESC, available_at, rid);
-- What claims with a key took: asked again, they give the same.
CREATE TABLE waypost.claims(worker text NOT NULL, key text NOT NULL, rids bigint[] NOT NULL, fences int[] NOT NULL, until timestamptz NOT NULL,
  PRIMARY KEY(worker, key));
ALTER TABLE waypost.claims ALTER rids SET STORAGE EXTERNAL, ALTER fences SET STORAGE EXTERNAL;
CREATE INDEX claims_until ON waypost.claims(until);
CREATE TABLE waypost.queues(tenant text, name text, at_most int, paused_by text, pause_reason text, paused_at timestamptz, PRIMARY KEY(name, tenant));
CREATE TABLE waypost.key_limits(tenant text, name text, at_most int NOT NULL, PRIMARY KEY(name, tenant));

CREATE TABLE waypost.items(
  rid bigint NOT NULL,
  kind text NOT NULL,
  key text NOT NULL,
  version int NOT NULL,
  place int NOT NULL,                             -- in the order in which they were added
  seq int NOT NULL,                               -- of the run's event that moved it last
  name text NOT NULL,
  status text NOT NULL,
  attempts int NOT NULL DEFAULT 0,
  max_retries int NOT NULL DEFAULT 3,
  try_no int NOT NULL DEFAULT 1,
  throttled int NOT NULL DEFAULT 0,               -- answers that made it wait, and for how long in all, of the present budget
  waited_ms int NOT NULL DEFAULT 0,
  in_doubt boolean NOT NULL DEFAULT false,        -- an answer under this try_no was lost: it stays until an answer settles what came of it
  progress smallint NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
  not_before timestamptz,
  discarded boolean NOT NULL DEFAULT false,
  reruns boolean NOT NULL DEFAULT false,
  role text NOT NULL DEFAULT 'step' CHECK (role IN ('step', 'optional', 'cleanup')),  -- what its failure means to its run
  stays boolean NOT NULL DEFAULT false,           -- when its run's command makes its state follow
  error_code text,
  error_msg text,
  started_at timestamptz,
  finished_at timestamptz,
  output jsonb,
  details jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY(rid, kind, key)
);
-- What is due of a run, in order; pages of what is in one state; whether any is in a state. The status comes first: a planner that has no
-- statistics yet would else take this one for looking an item up by its key, and read all of the run's for each.
CREATE INDEX items_status ON waypost.items(status, rid, kind, role, not_before, place);
-- Lists of a run's items, a page at a time, in the order in which they are asked for. By its collation it is not taken for looking one up.
CREATE INDEX items_place ON waypost.items(rid, kind COLLATE "C", place, key COLLATE "C");
-- Dead letters: what has ended with a failure, by class, oldest first.
CREATE INDEX items_failed ON waypost.items(kind, error_code, finished_at) WHERE error_code IS NOT NULL AND finished_at IS NOT NULL;

-- A position is drawn in the transaction that writes the event and after its first write, so that whoever waits for
-- the transactions that were open when a gap was seen knows the gap to be final. One at a time for the same reason.
-- The lower 16 bits count the events of one statement.
--
-- A worker that finishes without having begun makes two moves at once. A set of those is one row each, whose position and
-- seq are the second one's; the first has the numbers before, and led to the state `via`. `log` shows them apart.
CREATE SEQUENCE waypost.positions CACHE 1;
CREATE TABLE waypost.events(
  rid bigint NOT NULL,
  position bigint NOT NULL DEFAULT nextval('waypost.positions') << 16,
  at timestamptz NOT NULL,
  seq int NOT NULL,
  src smallint,
  dst smallint NOT NULL,
  via smallint,
  command text NOT NULL,
  actor text NOT NULL,
  who text NOT NULL,
  via_command text,
  level text,
  message text,
  payload jsonb,
  effect json,
  key text,
  PRIMARY KEY(rid, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_insert_threshold = 100000);
-- The sweep takes new blocks into these (waypost.index_log): autosummarize would leave it to the autovacuum, whose list of 256 is full
-- within a second of heavy load. What it cannot take is left out, with a line in the server's log for each, and is read by every reader.
CREATE INDEX events_position ON waypost.events USING brin(position) WITH (pages_per_range = 16);
CREATE INDEX events_begun ON waypost.events USING brin((position - 1)) WITH (pages_per_range = 16) WHERE via IS NOT NULL;
CREATE UNIQUE INDEX events_key ON waypost.events(rid, key) WHERE key IS NOT NULL;
CREATE VIEW waypost.log AS
  SELECT e.rid, e.position, e.at, e.seq, coalesce(e.via, e.src) AS src, e.dst, e.command, e.actor, e.who, e.level, e.message, e.payload, e.effect, e.key
    FROM waypost.events e
  UNION ALL
  SELECT e.rid, e.position - 1, e.at, e.seq - 1, e.src, e.via, e.via_command, e.actor, e.who, NULL, NULL, NULL, NULL, NULL
    FROM waypost.events e WHERE e.via IS NOT NULL;
-- Lists of what people look for: drafts, parked, and whatever did not end well. The bulk, which did, is found by scanning.
CREATE INDEX events_unusual ON waypost.events(dst, rid) WHERE dst < 2000 OR dst BETWEEN 4000 AND 4999 OR dst >= 6000;

-- The state in which a run is born tells its lifecycle: runs of one that is hardly used are few among many.
CREATE INDEX events_births ON waypost.events(dst, rid) WHERE seq = 1;

-- Up to where the log is whole, as far as any process knows: one that begins while somebody writes for long need not look further back.
CREATE TABLE waypost.settled(is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only), position bigint NOT NULL);

CREATE TABLE waypost.pruned(day date, lifecycle text, runs bigint NOT NULL, events bigint NOT NULL, PRIMARY KEY(day, lifecycle));

-- Messages from outside, such as a webhook's deliveries: what has come lately.
CREATE TABLE waypost.messages(source text, digest text, id text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY(source, digest), UNIQUE(source, id));
CREATE INDEX messages_at ON waypost.messages(at);

-- How far the readers of the log have gone.
CREATE TABLE waypost.cursors(name text PRIMARY KEY, position bigint NOT NULL);

-- Playbooks that servers and workers have, by tenant ('*': for all), name and content; of a name the one that was offered last is started.
CREATE TABLE waypost.playbooks(tenant text, name text, hash text, file text NOT NULL, text text NOT NULL, who text NOT NULL, offered_at timestamptz NOT NULL CHECK (isfinite(offered_at)),
  PRIMARY KEY(name, tenant, hash));
-- Who may ask a server for what: of a token only the digest of its secret half.
CREATE TABLE waypost.tokens(id text PRIMARY KEY, digest text NOT NULL, name text NOT NULL, role text NOT NULL, tenant text NOT NULL,
  created_at timestamptz NOT NULL, created_by text NOT NULL, expires_at timestamptz, last_used_at timestamptz,
  revoked_at timestamptz, revoked_by text);
-- For how long settled runs stay, where somebody says otherwise than their lifecycle.
CREATE TABLE waypost.retention(lifecycle text COLLATE "C" PRIMARY KEY, success_ms bigint, failure_ms bigint,
  CONSTRAINT "RANGE: runs are kept for 1 ms to 100 years" CHECK (success_ms BETWEEN 1 AND 3155760000000 AND failure_ms BETWEEN 1 AND 3155760000000));
CREATE FUNCTION waypost.keep_of(p_state waypost.lifecycle_states) RETURNS interval LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  -- Beyond 100 years an interval cannot be counted with; what says less than nothing says nothing.
  SELECT CASE WHEN k.ms > 3155760000000 THEN 3155760000000 ELSE k.ms END * interval '1 millisecond'
  FROM (SELECT coalesce((SELECT o.ms FROM (SELECT CASE p_state.outcome WHEN 'succeeded' THEN r.success_ms ELSE r.failure_ms END AS ms
    FROM waypost.retention r WHERE r.lifecycle = p_state.lifecycle) o WHERE o.ms BETWEEN 1 AND 3155760000000), p_state.keep_ms) AS ms) k
$$;
-- Workers' signs of life. Lists are texts of JSON; tenant '*' is everybody's; playbooks and carried are null of one that executes anything.
CREATE TABLE waypost.workers(name text, tenant text, queues text NOT NULL, lifecycles text NOT NULL, playbooks text, carried boolean, only_run text,
  slots bigint NOT NULL, version text NOT NULL, by_claims boolean NOT NULL, started_at timestamptz NOT NULL CHECK (isfinite(started_at)), seen_at timestamptz NOT NULL CHECK (isfinite(seen_at)),
  PRIMARY KEY(name, tenant));
-- Agents: what each is, whether people let it work, and how its last runs ended, as [run, time, failed] each.
CREATE TABLE waypost.agents(tenant text, slug text, playbook text, concurrency bigint NOT NULL, enabled boolean NOT NULL, paused_by text,
  pause_reason text, paused_at timestamptz, archived_at timestamptz, reset_at timestamptz, ends text NOT NULL, updated_at timestamptz NOT NULL,
  PRIMARY KEY(tenant, slug));
-- Which proposal changes one revision of one target, of which there is one; `revision` is a digest of both.
CREATE TABLE waypost.approvals(tenant text, revision text, run_id text COLLATE "C" NOT NULL UNIQUE, PRIMARY KEY(tenant, revision));
-- What runs call outside: the rate limit and the breaker that all workers share. Instants are microseconds.
CREATE TABLE waypost.destinations(tenant text, name text, asked_capacity_milli bigint NOT NULL, asked_rate_milli_per_s bigint NOT NULL,
  capacity_milli bigint NOT NULL, rate_milli_per_s bigint NOT NULL, pace_percent bigint NOT NULL, available_milli bigint NOT NULL,
  at_us bigint NOT NULL, breaker_after bigint NOT NULL, pause_ms bigint NOT NULL, probe_ms bigint NOT NULL, consecutive bigint NOT NULL,
  since_us bigint, until_us bigint,               -- of the breaker: until alone, it is open; both, a probe is out
  calls bigint NOT NULL, throttled bigint NOT NULL, opened bigint NOT NULL, changed_us bigint NOT NULL, PRIMARY KEY(tenant, name)) WITH (fillfactor = 50);
-- What people are told of: a row for each policy and what it is about. Samples and deliveries are texts of JSON; silenced_*: nobody is told.
CREATE TABLE waypost.alerts(tenant text COLLATE "C", name text COLLATE "C", subject text COLLATE "C", status text NOT NULL, value_milli bigint, episode bigint NOT NULL, since timestamptz NOT NULL,
  well_since timestamptz, fired_at timestamptz, resolved_at timestamptz, evaluated_at timestamptz NOT NULL, summary text NOT NULL, samples text NOT NULL,
  deliveries text NOT NULL, silenced_until timestamptz, silenced_by text, silence_reason text, updated_at timestamptz NOT NULL, revision bigint NOT NULL,
  PRIMARY KEY(tenant, name, subject)) WITH (fillfactor = 50);
-- What people did, kept for good.
CREATE TABLE waypost.audit(number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL, tenant text NOT NULL,
  who text NOT NULL, action text NOT NULL, subject text NOT NULL, reason text);

-- Not in SQL, nor are the others that a move calls: the server plans a function in SQL anew with each call, which takes ten times as long.
CREATE FUNCTION waypost.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) coalesce((SELECT c.ahead FROM waypost.clock c), '0');
END $$;

-- The advisory lock under which the holders of a tenant's key, or of its queue with a limit, are counted.
CREATE FUNCTION waypost.slot(of_queue boolean, tenant text, name text) RETURNS bigint LANGUAGE sql IMMUTABLE
  RETURN hashtextextended(tenant || '/' || name, CASE WHEN of_queue THEN 7001 ELSE 7002 END);

-- A key's slots are free: as many as there are of each queue and state come back from `blocked`, so that whichever of them
-- workers ask for, its best is there. Gives the lanes in which claimers have to look from the beginning. Needs the slot.
CREATE FUNCTION waypost.let_in(whose text, which text) RETURNS TABLE(queue text, priority smallint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  free bigint := coalesce((SELECT k.at_most FROM waypost.key_limits k WHERE k.name = which AND k.tenant = whose), 1)
    - (SELECT count(*) FROM waypost.holders h WHERE NOT h.of_queue AND h.name = which AND h.tenant = whose);
  g record;
  came bigint;
  met bigint;
BEGIN
  IF free <= 0 THEN
    RETURN;
  END IF;
  FOR g IN
    WITH RECURSIVE groups AS (
      (SELECT a.queue AS of, a.state FROM waypost.blocked a WHERE a.key = which AND a.tenant = whose ORDER BY a.queue, a.state LIMIT 1)
      UNION ALL SELECT n.queue, n.state FROM groups CROSS JOIN LATERAL (SELECT a.queue, a.state FROM waypost.blocked a
        WHERE a.key = which AND a.tenant = whose AND (a.queue, a.state) > (groups.of, groups.state) ORDER BY a.queue, a.state LIMIT 1) n)
    SELECT * FROM groups
  LOOP
    came := 0;
    LOOP
      -- Those whose run has moved on leave without being let in.
      RETURN QUERY WITH best AS (SELECT a.ctid AS place, a.available_at, a.rid, a.seq, a.priority, a.state, a.queue,
            EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = a.rid AND r.seq = a.seq) AS counts FROM waypost.blocked a
          WHERE a.key = which AND a.tenant = whose AND a.queue = g.of AND a.state = g.state
          ORDER BY a.priority DESC, a.available_at, a.rid LIMIT free - came),
        gone AS (DELETE FROM waypost.blocked WHERE ctid = ANY (ARRAY(SELECT b.place FROM best b))),
        back AS (INSERT INTO waypost.ready(available_at, rid, seq, priority, state, tenant, queue)
          SELECT b.available_at, b.rid, b.seq, b.priority, b.state, whose, b.queue FROM best b WHERE b.counts)
        SELECT b.queue, b.priority FROM best b WHERE b.counts;
      GET DIAGNOSTICS met = ROW_COUNT;
      came := came + met;
      EXIT WHEN came >= free OR NOT EXISTS (SELECT 1 FROM waypost.blocked a WHERE a.key = which AND a.tenant = whose AND a.queue = g.of AND a.state = g.state);
    END LOOP;
  END LOOP;
END $$;

CREATE FUNCTION waypost.keep_audit() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'APPEND_ONLY: audit cannot be changed or deleted' USING ERRCODE = 'WP405';
END $$;
CREATE TRIGGER audit_keep BEFORE UPDATE OR DELETE ON waypost.audit FOR EACH ROW EXECUTE FUNCTION waypost.keep_audit();
CREATE TRIGGER audit_keep_all BEFORE TRUNCATE ON waypost.audit FOR EACH STATEMENT EXECUTE FUNCTION waypost.keep_audit();
