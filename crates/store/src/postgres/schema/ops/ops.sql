-- Seed 000's interface: what people and scripts call from psql or any driver, by the seed's own names. It is made of
-- the verbs in verbs_ops.sql; nothing here writes a run or an event by itself but for updates by hand.
--
-- Functions run with their owner's rights and see no other schema. What is not in the seed is in schema waypost.
--
-- Every view shows the rows of the chosen tenant (tenants.sql), looked up once for each statement. They are barriers: a condition that could
-- tell somebody what it was asked about is not asked about other tenants' rows. Those of the indexes could not, and are asked first.

-- With none registered a tenant's runs are of any project and environment. Rows are the operator's: plain INSERT, UPDATE and DELETE of the views.
CREATE TABLE waypost.projects(
  tenant text NOT NULL DEFAULT waypost.tenant(),
  project_id text CHECK (octet_length(project_id) BETWEEN 1 AND 255),
  name text,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, project_id)
);
CREATE TABLE waypost.environments(
  tenant text NOT NULL DEFAULT waypost.tenant(),
  env_id text CHECK (octet_length(env_id) BETWEEN 1 AND 255),
  project_id text NOT NULL,
  env text NOT NULL CHECK (octet_length(env) BETWEEN 1 AND 255),
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, env_id),
  UNIQUE (tenant, project_id, env),
  FOREIGN KEY (tenant, project_id) REFERENCES waypost.projects ON DELETE CASCADE
);
CREATE VIEW ops.projects WITH (security_barrier, check_option = local) AS SELECT p.project_id, p.name, p.created_at, p.tenant
  FROM waypost.projects p WHERE coalesce(p.tenant = (SELECT waypost.seen_tenant()), true);
CREATE VIEW ops.environments WITH (security_barrier, check_option = local) AS SELECT e.env_id, e.project_id, e.env, e.created_at, e.tenant
  FROM waypost.environments e WHERE coalesce(e.tenant = (SELECT waypost.seen_tenant()), true);

-- The states come by way of WITH, which FOR UPDATE does not reach: claimers that lock runs through this view must not
-- meet at a state's row. Who had a settled run, and when a run changed last, is looked up only where it is asked for.
CREATE VIEW ops.runs WITH (security_barrier) AS
  WITH states AS (SELECT s.code, s.state FROM waypost.lifecycle_states s WHERE s.lifecycle = 'deploy')
  SELECT r.run_id, r.input ->> 'project_id' AS project_id, coalesce(r.input ->> 'env_id', r.input ->> 'env') AS env_id,
    r.input ->> 'git_sha' AS git_sha, r.input ->> 'git_ref' AS git_ref, s.state AS status,
    CASE WHEN r.state >= 5000 THEN (SELECT e.who FROM waypost.events e WHERE e.rid = r.rid AND e.actor = 'worker' ORDER BY e.seq DESC LIMIT 1)
      ELSE r.claimed_by END AS claimed_by,
    r.started_at, r.finished_at, r.queued_at, r.queued_at AS created_at,
    (SELECT e.at FROM waypost.events e WHERE e.rid = r.rid AND e.seq = r.seq) AS updated_at,
    r.idempotency_key, r.metadata, r.input ->> 'env' AS env, r.tenant, r.queue, r.priority, r.attempt, r.error_code, r.error_msg,
    coalesce(r.intent ->> 'want' = 'cancel', false) AS cancel_requested, r.stale_after AS lease_expires_at, r.correlation_id, r.playbook, r.title
  FROM waypost.runs r JOIN states s ON s.code = r.state WHERE coalesce(r.tenant = (SELECT waypost.seen_tenant()), true);

-- Events without words of their own get the engine's, as everywhere else.
CREATE VIEW ops.run_events WITH (security_barrier) AS
  SELECT 'evt-' || e.position AS event_id, r.run_id,
    coalesce(e.level, CASE
      WHEN e.src = e.dst THEN CASE WHEN e.command IN ('take-over', 'steal', 'cancel', 'pause') THEN 'warn'
        WHEN e.command IN ('lose', 'expire') THEN 'error' WHEN e.command IN ('items', 'require-cleanup') THEN 'debug' ELSE 'info' END
      WHEN e.command = 'expire' AND e.dst >= 5000 OR e.dst / 1000 = 4 THEN 'warn'
      WHEN e.dst >= 6000 THEN 'error'
      ELSE 'info' END) AS level,
    coalesce(e.message, CASE
      WHEN e.src IS NULL THEN CASE e.dst / 1000 WHEN 2 THEN 'Run queued' WHEN 3 THEN 'Run claimed by worker' ELSE 'Run created: ' || t.state END
      WHEN e.src = e.dst THEN CASE e.command WHEN 'take-over' THEN 'Run taken over by worker' WHEN 'steal' THEN 'Run stolen from a stale worker'
        WHEN 'release' THEN 'Run released by worker' WHEN 'lose' THEN 'Worker lost; the run''s cleanup is left to another'
        WHEN 'expire' THEN 'Worker lost; the run''s cleanup is left to another' WHEN 'items' THEN 'Items moved' WHEN 'require-cleanup' THEN 'Cleanup noted'
        WHEN 'operation' THEN 'Operation ended' WHEN 'cancel' THEN 'Run asked to cancel by ' || e.who WHEN 'pause' THEN 'Run asked to pause by '
            || e.who
        WHEN 'decide' THEN 'Decided by ' || e.who || '; the run goes on waiting' ELSE e.command || ' by ' || e.who END
      WHEN e.dst >= 5000 THEN CASE e.command WHEN 'lose' THEN 'Run lost: ' WHEN 'expire' THEN 'Run expired: ' ELSE 'Run finished: ' END || t.state
      WHEN e.dst / 1000 = 3 AND e.src / 1000 = 3 THEN 'Run started by ' || e.who
      WHEN e.dst / 1000 = 3 AND e.command = 'claim' THEN 'Run claimed by worker'
      WHEN e.dst / 1000 = 3 THEN 'Run to be worked again: ' || e.command || ' by ' || e.who
      WHEN e.dst / 1000 = 4 THEN 'Run waits for a person: ' || t.state
      WHEN e.dst / 1000 = 2 THEN 'Run queued'
      ELSE 'Run is ' || t.state END) AS message,
    coalesce(e.payload, CASE WHEN e.command = 'claim' THEN jsonb_build_object('worker_id', e.who) ELSE '{}' END) AS payload,
    e.at AS created_at, e.seq, e.command, f.state AS from_status, t.state AS to_status, e.actor, e.who, e.position
  FROM waypost.log e JOIN waypost.runs r ON r.rid = e.rid
    JOIN waypost.lifecycle_states t ON t.code = e.dst AND t.lifecycle = 'deploy' LEFT JOIN waypost.lifecycle_states f ON f.code = e.src
  WHERE coalesce(r.tenant = (SELECT waypost.seen_tenant()), true);

-- Refusals of arguments: which one, what is wrong, what to do. The sizes are the engine's (kernel/src/text.rs).
CREATE FUNCTION waypost.check_text(p_field text, p_value text, p_max_bytes int DEFAULT 255) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_wrong text := CASE WHEN p_value IS NULL THEN 'is null' WHEN p_value = '' THEN 'is empty' WHEN octet_length(p_value) > p_max_bytes
    THEN format('is %s bytes long; at most %s are allowed', octet_length(p_value), p_max_bytes) END;
BEGIN
  IF v_wrong IS NOT NULL THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: %s', p_field, v_wrong), format('Give 1 to %s bytes of text as %s.', p_max_bytes,
        p_field), p_field);
  END IF;
END $$;

-- A time that every reader has: the years 1 to 9999.
CREATE FUNCTION waypost.check_time(p_field text, p_value timestamptz) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_value < '0001-01-01 00:00:00+00' OR p_value >= '10000-01-01 00:00:00+00' THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: is %s', p_field, p_value), 'Give a time of the years 1 to 9999.', p_field);
  END IF;
END $$;

CREATE FUNCTION waypost.check_json(p_field text, p_value jsonb, p_max_bytes int, p_object boolean) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_wrong text;
BEGIN
  IF p_object AND jsonb_typeof(p_value) <> 'object' THEN
    v_wrong := format('is of type %s, not an object', jsonb_typeof(p_value));
  ELSIF octet_length(p_value::text) > p_max_bytes THEN
    v_wrong := format('is %s bytes long; at most %s are allowed', octet_length(p_value::text), p_max_bytes);
  ELSIF jsonb_path_exists(p_value, 'strict $.**{64 to last} ? (@.type() == "object" || @.type() == "array")') THEN
    v_wrong := 'is nested deeper than 64 levels';
  -- PostgreSQL keeps any number; whoever reads it elsewhere has 64 bits.
  ELSIF jsonb_path_exists(p_value, 'strict $.** ? (@.type() == "number" && (@ > 1.7e308 || @ < -1.7e308))') THEN
    v_wrong := 'has a number out of range';
  END IF;
  IF v_wrong IS NOT NULL THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: %s', p_field, v_wrong), 'Keep large results elsewhere and put their address here.',
        p_field);
  END IF;
END $$;

CREATE FUNCTION waypost.check_token(p_token text) RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_token !~ '^[0-9a-fA-F]{32}$' AND p_token !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN
    PERFORM waypost.refuse('WP422', 'INVALID_INPUT: p_lease_token: is not a token', 'A token has 32 hexadecimal digits, as the claim gave it.',
        'p_lease_token');
  END IF;
  RETURN p_token::uuid;
END $$;

-- A run of this interface's lifecycle that the caller sees, and no other: one of another tenant is not there.
CREATE FUNCTION waypost.check_run(p_run_id text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_seen text := waypost.seen_tenant();
BEGIN
  PERFORM waypost.check_text('p_run_id', p_run_id);
  IF NOT EXISTS (SELECT 1 FROM waypost.runs r JOIN waypost.lifecycle_states s ON s.code = r.state AND s.lifecycle = 'deploy'
      WHERE r.run_id = p_run_id AND coalesce(r.tenant = v_seen, true)) THEN
    PERFORM waypost.refuse('WP404', format('NOT_FOUND: p_run_id: there is no run %s', quote_literal(p_run_id)),
      'Look it up: SELECT run_id, status FROM ops.runs.', 'p_run_id');
  END IF;
END $$;

CREATE FUNCTION waypost.env_id(p_tenant text, p_project_id text, p_env text) RETURNS text LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_env_id text;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM waypost.projects p WHERE p.tenant = p_tenant) THEN
    RETURN NULL;
  ELSIF NOT EXISTS (SELECT 1 FROM waypost.projects p WHERE p.tenant = p_tenant AND p.project_id = p_project_id) THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: p_project_id: there is no project %s', quote_literal(p_project_id)),
      'Registered in ops.projects: ' || (SELECT left(string_agg(p.project_id, ', ' ORDER BY p.project_id), 500) FROM waypost.projects p
        WHERE p.tenant = p_tenant), 'p_project_id');
  END IF;
  SELECT e.env_id INTO v_env_id FROM waypost.environments e WHERE e.tenant = p_tenant AND e.project_id = p_project_id AND e.env = p_env;
  IF NOT FOUND AND EXISTS (SELECT 1 FROM waypost.environments e WHERE e.tenant = p_tenant AND e.project_id = p_project_id) THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: p_env: project %s has no environment %s', p_project_id, quote_literal(p_env)),
      'Registered in ops.environments: ' || (SELECT left(string_agg(e.env, ', ' ORDER BY e.env), 500) FROM waypost.environments e
        WHERE e.tenant = p_tenant AND e.project_id = p_project_id), 'p_env');
  END IF;
  RETURN v_env_id;
END $$;

-- Within a transaction of the caller's own the run is there with its commit, and was never there with a rollback.
CREATE FUNCTION ops.queue_run(p_project_id text, p_env text, p_git_sha text, p_git_ref text, p_metadata jsonb DEFAULT '{}'::jsonb,
    p_idempotency_key text DEFAULT NULL)
  RETURNS TABLE(run_id text, status text, queued_at timestamptz) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_tenant text := waypost.tenant();
  v_input jsonb := jsonb_build_object('project_id', p_project_id, 'env', p_env, 'git_sha', p_git_sha, 'git_ref', p_git_ref);
  v_metadata jsonb := coalesce(p_metadata, '{}');
  v_env_id text;
  v_fingerprint text;
  v_written waypost.written;
BEGIN
  -- Each by itself only if one of them is wrong.
  IF (octet_length(p_project_id) BETWEEN 1 AND 255 AND octet_length(p_env) BETWEEN 1 AND 255 AND octet_length(p_git_sha) BETWEEN 1 AND 255
      AND octet_length(p_git_ref) BETWEEN 1 AND 255) IS NOT TRUE THEN
    PERFORM waypost.check_text('p_project_id', p_project_id);
    PERFORM waypost.check_text('p_env', p_env);
    PERFORM waypost.check_text('p_git_sha', p_git_sha);
    PERFORM waypost.check_text('p_git_ref', p_git_ref);
  END IF;
  IF v_metadata <> '{}' THEN
    PERFORM waypost.check_json('p_metadata', v_metadata, 1048576, true);
  END IF;
  IF p_idempotency_key IS NOT NULL THEN
    PERFORM waypost.check_text('p_idempotency_key', p_idempotency_key);
    IF starts_with(p_idempotency_key, 'waypost:') THEN
      PERFORM waypost.refuse('WP422', 'INVALID_INPUT: p_idempotency_key: begins with waypost:, as the engine''s own keys do',
        'Use a key that begins otherwise.', 'p_idempotency_key');
    END IF;
    v_fingerprint := waypost.fingerprint('deploy', 'ops', v_input, v_metadata);
  END IF;
  -- The same again is answered as the first time, also if its environment was removed since.
  IF p_idempotency_key IS NULL OR NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.tenant = v_tenant AND r.idempotency_key = p_idempotency_key) THEN
    v_env_id := waypost.env_id(v_tenant, p_project_id, p_env);
  END IF;
  IF v_env_id IS NOT NULL THEN
    v_input := v_input || jsonb_build_object('env_id', v_env_id);
  END IF;
  v_written := waypost.enqueue_one('deploy', 'ops', v_input::json, v_metadata, session_user::text, p_idempotency_key, v_fingerprint,
    v_tenant);
  RETURN QUERY SELECT (v_written.run).run_id, v_written.status, (v_written.run).queued_at;
END $$;

-- The oldest of the tenant's queue `ops`. Its lease is an open one of an hour: later calls need no token.
CREATE FUNCTION ops.claim_next_run(p_worker_id text)
  RETURNS TABLE(run_id text, project_id text, env_id text, git_sha text, git_ref text, metadata jsonb)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM waypost.check_text('p_worker_id', p_worker_id);
  RETURN QUERY SELECT (c.run).run_id, (c.run).input ->> 'project_id', coalesce((c.run).input ->> 'env_id', (c.run).input ->> 'env'),
      (c.run).input ->> 'git_sha', (c.run).input ->> 'git_ref', (c.run).metadata
    FROM waypost.claim_one('ops', 'deploy', p_worker_id, 3600000, true, waypost.tenant()) c;
END $$;

-- The first own event of a worker starts its run. The same again within ten seconds, or with the same key, gives the
-- first one's id.
CREATE FUNCTION ops.append_event(p_run_id text, p_level text, p_message text, p_payload jsonb DEFAULT '{}'::jsonb, p_worker_id text DEFAULT NULL,
    p_lease_token text DEFAULT NULL, p_idempotency_key text DEFAULT NULL)
  RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_payload jsonb := coalesce(p_payload, '{}');
  v_message text;
  v_written waypost.written;
BEGIN
  PERFORM waypost.check_text('p_level', p_level);
  IF p_level NOT IN ('debug', 'info', 'warn', 'error') THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: p_level: there is no %s', quote_literal(left(p_level, 80))),
      'Allowed: debug, info, warn, error', 'p_level');
  END IF;
  PERFORM waypost.check_text('p_message', p_message, 65536);
  IF char_length(p_message) > 16384 THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: p_message: is %s characters long; at most 16384 are allowed', char_length(p_message)),
      'Send it in parts, or keep it elsewhere and put its address here.', 'p_message');
  END IF;
  PERFORM waypost.check_json('p_payload', v_payload, 65536, false);
  IF p_worker_id IS NOT NULL THEN
    PERFORM waypost.check_text('p_worker_id', p_worker_id);
  END IF;
  IF p_idempotency_key IS NOT NULL THEN
    PERFORM waypost.check_text('p_idempotency_key', p_idempotency_key);
  END IF;
  PERFORM waypost.check_run(p_run_id);
  -- What would move the cursor of whoever reads it in a terminal is replaced, as in any worker's words.
  v_message := regexp_replace(p_message, '[\u0001-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f]', chr(65533), 'g');
  v_written := waypost.note_one(p_run_id, waypost.check_token(p_lease_token), p_worker_id, p_level, v_message, v_payload, p_idempotency_key, 10000);
  RETURN 'evt-' || v_written.position;
END $$;

CREATE FUNCTION ops.heartbeat(p_run_id text, p_worker_id text DEFAULT NULL, p_lease_token text DEFAULT NULL)
  RETURNS TABLE(run_id text, status text, lease_expires_at timestamptz, cancel_requested boolean)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_written waypost.written;
BEGIN
  IF p_worker_id IS NOT NULL THEN
    PERFORM waypost.check_text('p_worker_id', p_worker_id);
  END IF;
  PERFORM waypost.check_run(p_run_id);
  v_written := waypost.renew_one(p_run_id, waypost.check_token(p_lease_token), p_worker_id);
  RETURN QUERY SELECT p_run_id, v_written.status, (v_written.run).stale_after, coalesce((v_written.run).intent ->> 'want' = 'cancel', false);
END $$;

-- Whether a status is where `cancel` leads, which a person may ask for too. Refuses what is no end of a run.
CREATE FUNCTION waypost.ops_cancels(p_status text) RETURNS boolean
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_ends text[] := ARRAY(SELECT DISTINCT s.state FROM waypost.lifecycle_states s WHERE s.lifecycle = 'deploy' AND s.phase = 'settled'
      ORDER BY s.state);
BEGIN
  PERFORM waypost.check_text('p_status', p_status);
  IF p_status <> ALL (v_ends) THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: p_status: a run does not finish as %s', quote_literal(left(p_status, 80))),
      'Allowed: ' || array_to_string(v_ends, ', '), 'p_status');
  END IF;
  RETURN EXISTS (SELECT 1 FROM waypost.lifecycle_moves m WHERE m.lifecycle = 'deploy' AND m.command = 'cancel' AND m.dst = p_status);
END $$;

CREATE FUNCTION waypost.ops_cancel(p_run_id text, p_metadata jsonb) RETURNS text
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_metadata jsonb := coalesce(p_metadata, '{}');
BEGIN
  PERFORM waypost.check_json('p_metadata', v_metadata, 1048576, true);
  PERFORM waypost.check_run(p_run_id);
  RETURN (waypost.cancel_one(p_run_id, session_user::text, left(v_metadata ->> 'reason', 1024), v_metadata)).status;
END $$;

-- What a worker's metadata say of a failure, in the seed's words: {"error": "Docker build failed", "exit_code": 1}.
CREATE FUNCTION waypost.ops_error(p_metadata jsonb, OUT code text, OUT message text) LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(nullif(left(p_metadata ->> 'error_code', 255), ''), 'EXIT_' || CASE WHEN jsonb_typeof(p_metadata -> 'exit_code') = 'number'
      AND p_metadata -> 'exit_code' <> '0' THEN left(p_metadata ->> 'exit_code', 20) END, 'FAILED'),
    left(coalesce(p_metadata ->> 'error', p_metadata ->> 'stderr', ''), 4000)
$$;

CREATE FUNCTION waypost.ops_finish(p_run_id text, p_status text, p_metadata jsonb, p_worker_id text, p_lease_token text) RETURNS text
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_metadata jsonb := coalesce(p_metadata, '{}');
  v_cancels boolean := waypost.ops_cancels(p_status);
  v_reason text := CASE WHEN v_cancels THEN left(v_metadata ->> 'reason', 1024) END;
  v_code text;
  v_message text;
BEGIN
  PERFORM waypost.check_json('p_metadata', v_metadata, 1048576, true);
  IF NOT v_cancels THEN
    SELECT e.code, e.message INTO v_code, v_message FROM waypost.ops_error(v_metadata) e;
  END IF;
  IF p_worker_id IS NOT NULL THEN
    PERFORM waypost.check_text('p_worker_id', p_worker_id);
  END IF;
  PERFORM waypost.check_run(p_run_id);
  -- Of a success they are left out.
  RETURN (waypost.finish_one(p_run_id, waypost.check_token(p_lease_token), p_worker_id, p_status, v_code, v_message, v_reason, v_metadata)).status;
END $$;

-- Ends a run and gives the status that it has then. Whoever says neither who they are nor which lease they have asks for
-- a cancel; all else is the holder's. Runs with the caller's rights: a client may do the one and not the other.
CREATE FUNCTION ops.finish_run(p_run_id text, p_status text, p_metadata jsonb DEFAULT '{}'::jsonb, p_worker_id text DEFAULT NULL,
    p_lease_token text DEFAULT NULL)
  RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF waypost.ops_cancels(p_status) AND p_worker_id IS NULL AND p_lease_token IS NULL THEN
    RETURN waypost.ops_cancel(p_run_id, p_metadata);
  END IF;
  RETURN waypost.ops_finish(p_run_id, p_status, p_metadata, p_worker_id, p_lease_token);
END $$;

-- An UPDATE of ops.runs by hand: a move of the lifecycle with its event, or other metadata with one. Times, lease and
-- all that follows from a status are the engine's, whatever the statement says.
CREATE FUNCTION waypost.ops_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_run waypost.runs := waypost.locked_by_hand(OLD.run_id, NEW.status);
  v_became waypost.runs := v_run;
  v_to waypost.lifecycle_states;
  v_changeable text[] := '{status,metadata,started_at,finished_at,updated_at,claimed_by}';
BEGIN
  IF waypost.status_of(v_run.state) <> OLD.status THEN
    RETURN NULL;                                  -- somebody was faster, and the statement's condition no longer holds
  ELSIF v_run.metadata <> OLD.metadata THEN
    RAISE EXCEPTION 'metadata of % changed meanwhile', OLD.run_id USING ERRCODE = 'serialization_failure', HINT = 'Send the statement again.';
  END IF;
  IF to_jsonb(NEW) - v_changeable <> to_jsonb(OLD) - v_changeable
      OR NEW.status = OLD.status AND (NEW.claimed_by, NEW.started_at, NEW.finished_at)
        IS DISTINCT FROM (OLD.claimed_by, OLD.started_at, OLD.finished_at) THEN
    PERFORM waypost.refuse('WP409', format('IMMUTABLE: of %s only status and metadata can be changed by hand', OLD.run_id),
        'Queue a new run instead.');
  END IF;
  v_became.metadata := NEW.metadata;
  IF NEW.status = OLD.status THEN
    IF NEW.metadata IS DISTINCT FROM v_run.metadata THEN
      PERFORM waypost.note_by_hand(v_run, v_became, 'Metadata changed by hand');
    END IF;
    RETURN NEW;
  END IF;
  SELECT s.* INTO v_to FROM waypost.lifecycle_states w JOIN waypost.lifecycle_states s ON s.lifecycle = w.lifecycle AND s.version = w.version
    WHERE w.code = v_run.state AND s.state = NEW.status;
  IF NOT FOUND THEN
    PERFORM waypost.no_such_move(v_run, coalesce(NEW.status, 'null'));
  ELSIF v_to.phase = 'held' AND v_run.state / 1000 <> 3 THEN
    PERFORM waypost.check_text('claimed_by', NEW.claimed_by);
    v_became := waypost.opened(v_became, NEW.claimed_by, v_to.deadline_ms);
  ELSIF v_to.phase = 'held' THEN
    v_became.stale_after := v_now + v_run.lease_ms * interval '1 millisecond';
  END IF;
  v_became.state := v_to.code;
  IF v_to.outcome = 'failed' THEN
    SELECT e.code, e.message INTO v_became.error_code, v_became.error_msg FROM waypost.ops_error(NEW.metadata) e;
  END IF;
  PERFORM waypost.move_by_hand(v_run, v_became);
  RETURN NEW;
END $$;
CREATE TRIGGER runs_update INSTEAD OF UPDATE ON ops.runs FOR EACH ROW EXECUTE FUNCTION waypost.ops_update();

CREATE FUNCTION waypost.ops_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM waypost.refuse('WP405', format('APPEND_ONLY: ops.%s takes no %s', TG_TABLE_NAME, TG_OP), TG_ARGV[0]);
END $$;
CREATE TRIGGER runs_insert INSTEAD OF INSERT ON ops.runs FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Queue a run: SELECT * FROM ops.queue_run(…).');
CREATE TRIGGER runs_delete INSTEAD OF DELETE ON ops.runs FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Settled runs leave by pruning, with their events.');
CREATE TRIGGER run_events_insert INSTEAD OF INSERT ON ops.run_events FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Append one: SELECT ops.append_event(…).');
CREATE TRIGGER run_events_keep INSTEAD OF UPDATE OR DELETE ON ops.run_events FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('What happened stays; append another event.');
