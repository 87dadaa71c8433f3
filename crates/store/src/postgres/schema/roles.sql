-- Who may do what. Runs last in every migration: functions are made with EXECUTE for everybody, and lose it here.
--
-- The roles are the cluster's, so that other databases, and migrations beside this one, may have made them already.
-- Whoever may not make roles gets the schema without them, and whoever owns it uses it.
--
-- Nobody writes waypost's tables by these roles, not even waypost_admin: there are verbs for it.

DO $$
DECLARE
  v_role text;
BEGIN
  FOREACH v_role IN ARRAY '{waypost_client,waypost_worker,waypost_admin}'::text[] LOOP
    BEGIN
      IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = v_role) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
      END IF;
    EXCEPTION
      WHEN duplicate_object OR unique_violation THEN
        NULL;
      WHEN insufficient_privilege THEN
        RAISE NOTICE 'role % is not there and % may not create it', v_role, current_user
          USING HINT = 'Let somebody who may create it, then migrate again.';
    END;
  END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA waypost, ops FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA waypost, ops FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA waypost, ops FROM PUBLIC;

DO $$
DECLARE
  v_grant text;
BEGIN
  FOREACH v_grant IN ARRAY ARRAY[
    -- Both look, and both end a run: a client by asking for it, a worker as its holder. ops.finish_run tells them apart
    -- by what it may call.
    'USAGE ON SCHEMA ops, waypost TO waypost_client, waypost_worker, waypost_admin',
    'SELECT ON ops.runs, ops.run_events, ops.projects, ops.environments, ops.jobs, ops.workflow_executions, ops.job_tasks, ops.rule_runs, ops.rule_targets TO waypost_client, waypost_worker, waypost_admin',
    'EXECUTE ON FUNCTION ops.finish_run(text, text, jsonb, text, text), waypost.ops_cancels(text),
      waypost.ops_cancel(text, jsonb) TO waypost_client, waypost_worker, waypost_admin',
    'EXECUTE ON FUNCTION ops.queue_run(text, text, text, text, jsonb, text) TO waypost_client, waypost_admin',
    'EXECUTE ON FUNCTION ops.claim_next_run(text), ops.heartbeat(text, text, text),
      ops.append_event(text, text, text, jsonb, text, text, text), waypost.ops_finish(text, text, jsonb, text, text)
      TO waypost_worker, waypost_admin',
    'SELECT, INSERT, UPDATE ON ops.sys_cron_executions TO waypost_worker, waypost_admin',
    'EXECUTE ON FUNCTION ops.claim_cron_execution(text, timestamptz, text, interval, text, text, int) TO waypost_worker, waypost_admin',
    'UPDATE ON ops.runs TO waypost_admin',
    'EXECUTE ON FUNCTION waypost.pause_queue(text, text), waypost.resume_queue(text), waypost.prune(int) TO waypost_admin',
    -- What views call is called by whoever looks.
    'EXECUTE ON FUNCTION waypost.as_uuid(text), waypost.as_int(jsonb), waypost.part_id(text, text, text), waypost.tenant(), waypost.seen_tenant(),
      waypost.tenant_of(text) TO waypost_client, waypost_worker, waypost_admin',
    'INSERT ON ops.jobs, ops.rule_runs, ops.rule_targets TO waypost_client, waypost_admin',
    'UPDATE ON ops.jobs TO waypost_admin',
    'INSERT, UPDATE ON ops.workflow_executions, ops.job_tasks TO waypost_admin',
    'UPDATE ON ops.rule_runs, ops.rule_targets TO waypost_admin',
    'INSERT, UPDATE, DELETE ON ops.projects, ops.environments TO waypost_admin'
  ] LOOP
    BEGIN
      EXECUTE 'GRANT ' || v_grant;
    EXCEPTION WHEN undefined_object THEN
      RAISE NOTICE 'left out, for want of a role: GRANT %', v_grant;
    END;
  END LOOP;
END $$;
