-- Schedules: what is planned, where planning got to, and which run belongs to which plan.

CREATE TABLE waypost.schedules(
  name text COLLATE "C" PRIMARY KEY,
  definition json NOT NULL,
  folder text NOT NULL,
  hash text NOT NULL,
  timing text NOT NULL,
  carried boolean NOT NULL,
  updated_at timestamptz NOT NULL,
  scopes_at timestamptz,                          -- when its scopes are to be listed anew; null: the file lists them
  scopes_failures int NOT NULL DEFAULT 0,         -- listings in a row that failed
  paused_by text,
  pause_reason text,
  paused_at timestamptz
);
-- Who fires schedules: hashes of its own ones, with blanks between; forgotten a minute after its last sign.
CREATE TABLE waypost.schedulers(name text PRIMARY KEY, carried boolean NOT NULL, tenant text, hashes text NOT NULL, seen_at timestamptz NOT NULL);

CREATE TABLE waypost.schedule_scopes(
  schedule text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  through timestamptz,                            -- every plan up to here is fired or counted
  since timestamptz,                              -- plans up to here do not count
  wake_at timestamptz,                            -- when there is something to plan; null: paused or retired
  waiting_at timestamptz,                         -- when to look at its plans that wait to begin; null: none does, or paused
  failures int NOT NULL DEFAULT 0,                -- plannings in a row that failed
  retired boolean NOT NULL DEFAULT false,
  hash text COLLATE "C" NOT NULL,                 -- as its schedule has them: a tick need not look there
  carried boolean NOT NULL,
  counts text NOT NULL DEFAULT '{}',
  last_plan timestamptz,
  last_status text,
  last_success timestamptz,
  PRIMARY KEY(schedule, kind, id)
);
CREATE INDEX schedule_scopes_wake ON waypost.schedule_scopes(wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX schedule_scopes_waiting ON waypost.schedule_scopes(waiting_at) WHERE waiting_at IS NOT NULL;

-- The unique key of seed 002, alone between two servers and a plan that runs twice.
CREATE TABLE waypost.executions(
  schedule text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  plan_time timestamptz NOT NULL,
  run_id text COLLATE "C",                        -- null: asked for by hand, and not begun
  manual text,
  who text,
  wake_at timestamptz,                            -- when to look at it; null: it has ended, or it is no scheduler's
  failures int NOT NULL DEFAULT 0,                -- beginnings in a row that failed
  tried int NOT NULL DEFAULT 0,                   -- attempts of earlier runs of this plan, and how many those had
  allowed int NOT NULL DEFAULT 0,
  -- What the run is, in seed 002's words: ops.sys_cron_executions shows these. They follow the run (ops/cron.sql); if a run of another
  -- lifecycle was queued, that is a success.
  execution_id uuid,
  status text,
  attempt int,
  max_attempts int,
  next_retry_at timestamptz,
  runner_id text,
  lease_token uuid,
  heartbeat_at timestamptz,
  stale_after timestamptz,
  started_at timestamptz,
  finished_at timestamptz,
  duration_ms int,
  rows_affected bigint,
  result jsonb,
  error_code text,
  error_msg text,
  created_at timestamptz,
  updated_at timestamptz,
  CONSTRAINT uq_sys_cron_execution PRIMARY KEY(schedule, kind, id, plan_time)
);
-- Those that have begun, and those that wait to begin, apart: however many wait, nobody else's retry is behind them.
CREATE INDEX executions_wake ON waypost.executions(wake_at) WHERE wake_at IS NOT NULL AND run_id IS NOT NULL;
CREATE INDEX executions_open ON waypost.executions(schedule, kind, id) WHERE wake_at IS NOT NULL AND run_id IS NOT NULL;
CREATE INDEX executions_waiting ON waypost.executions(schedule, kind, id, plan_time) WHERE wake_at IS NOT NULL AND run_id IS NULL;
CREATE INDEX executions_run ON waypost.executions(run_id) WHERE run_id IS NOT NULL;
CREATE INDEX executions_plan ON waypost.executions(plan_time DESC, schedule, kind, id);

CREATE FUNCTION waypost.execution_leaves() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM waypost.executions WHERE run_id = OLD.run_id;
  RETURN NULL;
END $$;
CREATE TRIGGER runs_execution AFTER DELETE ON waypost.runs FOR EACH ROW WHEN (OLD.idempotency_key LIKE 'waypost:schedule:%')
  EXECUTE FUNCTION waypost.execution_leaves();
