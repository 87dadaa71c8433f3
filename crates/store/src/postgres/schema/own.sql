-- Who writes what. The columns that the log tells, the log itself, births and executions are written by the engine's own statements, and by
-- no others: not by a superuser, from within a trigger or whatever is set. What tells the engine from a hand is what the server itself says
-- of the statement at work: its text. The engine's are the ones marked as own writes in these scripts; whoever sends one of those, word by
-- word, does what the engine does. Asked once for each statement, not for each row.
--
-- Outside of this: who disables triggers (session_replication_role does), changes the schema or a lifecycle's rows, or calls the functions
-- of this schema with made-up arguments. `waypost verify` finds what they leave.
CREATE FUNCTION waypost.own_writes() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
DECLARE
  v_stack text;
  v_head text;
  v_line text;
  v_words text;
  v_begin text;
  v_own boolean;
BEGIN
  -- The first line is about this function. The second begins with the statement, if it is one of a function, behind some words in the server's
  -- language: none that would make a comment or a string of it.
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  v_head := left(v_stack, 200);
  v_line := split_part(v_head, E'\n', 2);
  v_words := left(v_line, least(nullif(strpos(v_line, 'WITH '), 0), nullif(strpos(v_line, 'INSERT '), 0), nullif(strpos(v_line, 'UPDATE '), 0)) - 1);
  v_begin := split_part(v_head, E'\n', 1) || E'\n' || v_words;
  -- A branch for each table: texts that are not looked at cost nothing.
{own_writes}
  IF v_own AND translate(v_words, '/*''$=;(', '') = v_words THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION USING ERRCODE = TG_ARGV[0], MESSAGE = TG_ARGV[1], HINT = TG_ARGV[2];
END $guard$;

CREATE TRIGGER runs_born BEFORE INSERT ON waypost.runs FOR EACH STATEMENT EXECUTE FUNCTION waypost.own_writes('WP409',
  'IMMUTABLE: a run is born with the first event of its log', 'Call ops.queue_run, insert into ops.jobs, or start it: waypost run start.');
CREATE TRIGGER events_told BEFORE INSERT ON waypost.events FOR EACH STATEMENT EXECUTE FUNCTION waypost.own_writes('WP405',
  'APPEND_ONLY: events are written by moves of their run', 'Call ops.append_event, or move the run: its event comes by itself.');
CREATE TRIGGER items_born BEFORE INSERT ON waypost.items FOR EACH STATEMENT EXECUTE FUNCTION waypost.own_writes('WP409',
  'IMMUTABLE: an item is added with an event of its run', 'Insert into ops.workflow_executions or ops.job_tasks.');

-- What a hand may name in an UPDATE, and then its row is judged by the other triggers. All other columns, those to come too, are the engine's.
DO $$
DECLARE
  v_table record;
BEGIN
  FOR v_table IN SELECT * FROM (VALUES
      ('runs', '{state,lease_token,claimed_by,lease_ms,stale_after,started_at,finished_at,reason,resolved,forced,error_code,error_msg,metadata,details}'::text[],
        'IMMUTABLE: what a run was born with stays, and what its log says of it changes with an event',
        'Of waypost.runs a hand may set, with a state: %s. Or update waypost.board, ops.runs or ops.jobs.'),
      ('items', '{status,progress,error_code,error_msg,started_at,finished_at}', 'IMMUTABLE: what an item was born with stays, and what the log says of it changes with an event',
        'Of waypost.items a hand may set, with a status: %s. Or update ops.workflow_executions or ops.job_tasks.'),
      ('executions', '{run_id,wake_at,failures,manual,who,tried,allowed}', 'INVALID_TRANSITION: an execution that is there is not taken by an insert, nor rewritten',
        'INSERT … ON CONFLICT DO NOTHING; if it gives no row, UPDATE ops.sys_cron_executions; or ask ops.claim_cron_execution for both.')
      ) t(name, by_hand, message, hint)
  LOOP
    EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE OF %s ON waypost.%I FOR EACH STATEMENT EXECUTE FUNCTION waypost.own_writes(%L, %L, %L)',
      v_table.name || '_own', (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = ('waypost.' || v_table.name)::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (v_table.by_hand)),
      v_table.name, 'WP409', v_table.message, replace(v_table.hint, '%s', array_to_string(v_table.by_hand[2:], ', ')));
  END LOOP;
END $$;

-- What a scheduler plans has no run yet, and gets one once; what it is comes from that run. A plan whose run failed may wait for another one.
CREATE FUNCTION waypost.execution_planned() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF NEW.run_id IS NULL AND NEW.wake_at IS NOT NULL AND NEW.tried > OLD.tried
        AND EXISTS (SELECT 1 FROM waypost.runs r WHERE r.run_id = OLD.run_id AND r.state >= 6000) THEN
      RETURN NEW;
    END IF;
  END IF;
  RAISE EXCEPTION 'IMMUTABLE: what execution % of % is comes from its run, and it has one run', OLD.plan_time, OLD.schedule USING ERRCODE = 'WP409',
    HINT = 'Insert into ops.sys_cron_executions, or ask ops.claim_cron_execution.';
END $$;
CREATE TRIGGER executions_planned BEFORE INSERT ON waypost.executions FOR EACH ROW WHEN (NEW.wake_at IS NOT NULL AND (NEW.run_id IS NOT NULL
    OR NEW.execution_id IS NOT NULL OR NEW.status IS NOT NULL OR NEW.attempt IS NOT NULL OR NEW.runner_id IS NOT NULL
    OR NEW.lease_token IS NOT NULL OR NEW.result IS NOT NULL))
  EXECUTE FUNCTION waypost.execution_planned();
CREATE TRIGGER executions_keep_run BEFORE UPDATE OF run_id ON waypost.executions FOR EACH ROW WHEN (NEW.run_id IS DISTINCT FROM OLD.run_id
    AND OLD.run_id IS NOT NULL)
  EXECUTE FUNCTION waypost.execution_planned();

-- The log is append-only. Rows leave with their run, and a run leaves when it is settled and its time is over: whoever deletes one then has
-- pruned it. Judged at the end of the statement, all rows at once.
CREATE FUNCTION waypost.stays() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'APPEND_ONLY: % cannot be %', TG_TABLE_NAME, CASE TG_OP WHEN 'UPDATE' THEN 'changed' ELSE 'deleted' END
    USING ERRCODE = 'WP405', HINT = 'Settled runs leave by pruning, with their events.';
END $$;
CREATE TRIGGER events_keep BEFORE UPDATE OR TRUNCATE ON waypost.events FOR EACH STATEMENT EXECUTE FUNCTION waypost.stays();
CREATE TRIGGER runs_keep BEFORE TRUNCATE ON waypost.runs FOR EACH STATEMENT EXECUTE FUNCTION waypost.stays();
CREATE TRIGGER items_keep BEFORE TRUNCATE ON waypost.items FOR EACH STATEMENT EXECUTE FUNCTION waypost.stays();
CREATE TRIGGER executions_keep BEFORE TRUNCATE ON waypost.executions FOR EACH STATEMENT EXECUTE FUNCTION waypost.stays();

CREATE FUNCTION waypost.runs_leave() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_now timestamptz := waypost.now();
BEGIN
  IF EXISTS (SELECT 1 FROM gone g LEFT JOIN waypost.lifecycle_states s ON s.code = g.state
      WHERE coalesce(g.operating OR g.finished_at + waypost.keep_of(s) >= v_now, true)) THEN
    RAISE EXCEPTION 'APPEND_ONLY: runs cannot be deleted' USING ERRCODE = 'WP405',
      HINT = 'Settled runs leave by pruning, with their events, when the time that their lifecycle keeps them is over.';
  END IF;
  DELETE FROM waypost.items i USING gone g WHERE i.rid = g.rid;
  DELETE FROM waypost.approvals a USING gone g WHERE a.run_id = g.run_id;
  WITH left_log AS (DELETE FROM waypost.events e USING gone g WHERE e.rid = g.rid RETURNING g.state, e.via),
    counted AS (SELECT s.lifecycle, 0 AS runs, count(*) + count(l.via) AS events FROM left_log l JOIN waypost.lifecycle_states s ON s.code = l.state
      GROUP BY s.lifecycle UNION ALL SELECT s.lifecycle, count(*), 0 FROM gone g JOIN waypost.lifecycle_states s ON s.code = g.state GROUP BY s.lifecycle)
  INSERT INTO waypost.pruned AS p(day, lifecycle, runs, events)
    SELECT (v_now AT TIME ZONE 'UTC')::date, c.lifecycle, sum(c.runs), sum(c.events) FROM counted c GROUP BY c.lifecycle
    ON CONFLICT (day, lifecycle) DO UPDATE SET runs = p.runs + excluded.runs, events = p.events + excluded.events;
  RETURN NULL;
END $$;
CREATE TRIGGER runs_leave AFTER DELETE ON waypost.runs REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION waypost.runs_leave();

CREATE FUNCTION waypost.leaves_with_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM gone g JOIN waypost.runs r ON r.rid = g.rid) THEN
    RAISE EXCEPTION 'APPEND_ONLY: % cannot be deleted', TG_TABLE_NAME USING ERRCODE = 'WP405', HINT = 'Settled runs leave by pruning, with their events.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER events_leave AFTER DELETE ON waypost.events REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
  EXECUTE FUNCTION waypost.leaves_with_run();
CREATE TRIGGER items_leave AFTER DELETE ON waypost.items REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
  EXECUTE FUNCTION waypost.leaves_with_run();

CREATE FUNCTION waypost.executions_leave() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM gone g LEFT JOIN waypost.runs r ON r.run_id = g.run_id LEFT JOIN waypost.schedules s ON s.name = g.schedule
      WHERE CASE WHEN g.run_id IS NULL THEN s.name ELSE r.run_id END IS NOT NULL) THEN
    RAISE EXCEPTION 'APPEND_ONLY: executions cannot be deleted' USING ERRCODE = 'WP405', HINT = 'Settled executions leave by pruning, with their events.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER executions_leave AFTER DELETE ON waypost.executions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
  EXECUTE FUNCTION waypost.executions_leave();

-- A lifecycle that is there stays as it is: its runs were judged by it. Its rows come with it, in the transaction that adds it, and at no other time.
CREATE FUNCTION waypost.lifecycle_stays() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_row jsonb;
  v_name text;
  v_version int;
BEGIN
  IF TG_OP = 'INSERT' THEN
    v_row := to_jsonb(NEW);
  ELSE
    v_row := to_jsonb(OLD);
  END IF;
  v_name := coalesce(v_row ->> 'lifecycle', v_row ->> 'name');
  v_version := (v_row ->> 'version')::int;
  IF TG_TABLE_NAME = 'lifecycle_transitions' THEN
    SELECT s.lifecycle, s.version INTO v_name, v_version FROM waypost.lifecycle_states s WHERE s.code = (v_row ->> 'src')::smallint;
  END IF;
  IF TG_OP = 'DELETE' OR NOT EXISTS (SELECT 1 FROM waypost.lifecycles l
      WHERE l.name = v_name AND l.version = v_version AND l.xmin = pg_current_xact_id()::xid) THEN
    RAISE EXCEPTION 'IMMUTABLE: a lifecycle stays as it was added' USING ERRCODE = 'WP409', HINT = 'A new version comes by `waypost lifecycle add`.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER lifecycles_stay BEFORE UPDATE OR DELETE ON waypost.lifecycles FOR EACH ROW EXECUTE FUNCTION waypost.lifecycle_stays();
CREATE TRIGGER lifecycle_states_stay BEFORE INSERT OR UPDATE OR DELETE ON waypost.lifecycle_states FOR EACH ROW EXECUTE FUNCTION waypost.lifecycle_stays();
CREATE TRIGGER lifecycle_moves_stay BEFORE INSERT OR UPDATE OR DELETE ON waypost.lifecycle_moves FOR EACH ROW EXECUTE FUNCTION waypost.lifecycle_stays();
CREATE TRIGGER lifecycle_transitions_stay BEFORE INSERT OR UPDATE OR DELETE ON waypost.lifecycle_transitions
  FOR EACH ROW EXECUTE FUNCTION waypost.lifecycle_stays();
CREATE TRIGGER lifecycles_keep BEFORE TRUNCATE ON waypost.lifecycles FOR EACH STATEMENT EXECUTE FUNCTION waypost.stays();
CREATE TRIGGER lifecycle_states_keep BEFORE TRUNCATE ON waypost.lifecycle_states FOR EACH STATEMENT EXECUTE FUNCTION waypost.stays();
CREATE TRIGGER lifecycle_moves_keep BEFORE TRUNCATE ON waypost.lifecycle_moves FOR EACH STATEMENT EXECUTE FUNCTION waypost.stays();
CREATE TRIGGER lifecycle_transitions_keep BEFORE TRUNCATE ON waypost.lifecycle_transitions FOR EACH STATEMENT EXECUTE FUNCTION waypost.stays();
