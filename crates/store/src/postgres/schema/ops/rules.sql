-- Seed 004's tables: runs of pricing rules and their targets, by the seed's own names. They are views; what a write to one means is below: a
-- move of the lifecycle with its event, judged like any other by hand.

-- A run that was given no `correlationId` is known by its own id: what comes of it (reconciliations, new runs for mismatches) has that.
CREATE VIEW ops.rule_runs WITH (security_barrier) AS
  WITH states AS (SELECT s.code, s.state FROM waypost.lifecycle_states s WHERE s.lifecycle = 'rule')
  SELECT r.run_id AS id, r.tenant AS "tenantId", regexp_replace(r.playbook, '@[^@]*$', '') AS "ruleId", s.state AS status, r.queued_at AS "queuedAt",
    r.started_at AS "startedAt", r.finished_at AS "finishedAt", coalesce(r.correlation_id, r.run_id) AS "correlationId", r.metadata, r.details,
    r.details -> 'preview' AS preview, r.item_count AS targets, r.claimed_by AS "claimedBy", coalesce(r.intent ->> 'want' = 'cancel', false) AS "cancelRequested",
    r.error_code AS "errorCode", r.error_msg AS "errorMessage", r.operating, r.parent_run_id AS "parentRunId", r.queue, r.priority, r.playbook
  FROM waypost.runs r JOIN states s ON coalesce(s.code = r.state, false) WHERE coalesce(r.tenant = (SELECT waypost.seen_tenant()), true);

-- What a playbook gathers is the amount itself: the seed reads and compares `unit_amount`. What somebody inserted stays as it was written.
CREATE FUNCTION waypost.as_amount(p_value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
  RETURN CASE WHEN jsonb_typeof(p_value) IN ('number', 'string', 'boolean') THEN jsonb_build_object('unit_amount', p_value) ELSE p_value END;

-- A target is known by its key. `attempts` are the retries used; `eventKey` is what goes outside with the next try, or went with the one under way.
CREATE VIEW ops.rule_targets WITH (security_barrier) AS
  WITH states AS (SELECT s.code FROM waypost.lifecycle_states s WHERE s.lifecycle = 'rule')
  SELECT i.key AS id, r.run_id AS "ruleRunId", r.tenant AS "tenantId", i.name, i.status, i.attempts, i.max_retries AS "maxRetries", i.try_no AS "tryNo",
    waypost.as_amount(i.details -> 'before') AS "beforeJson", waypost.as_amount(i.details -> 'after') AS "afterJson",
    CASE WHEN jsonb_typeof(waypost.as_amount(i.details -> 'after') -> 'unit_amount') = 'number'
      THEN (waypost.as_amount(i.details -> 'after') ->> 'unit_amount')::numeric END AS unit_amount,
    CASE WHEN i.status = 'APPLIED' THEN i.finished_at ELSE (i.details ->> 'applied_at')::timestamptz END AS "appliedAt", i.started_at AS "startedAt", i.finished_at AS "finishedAt",
    i.not_before AS "nextAttemptAt", i.throttled, i.error_code AS "errorCode", i.error_msg AS "errorMessage", i.details ->> 'destination' AS destination,
    i.discarded, (i.details ->> 'discarded_at')::timestamptz AS "discardedAt", i.output, r.run_id || ':' || i.key || ':apply:' || i.try_no AS "eventKey"
  FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid JOIN states s ON coalesce(s.code = r.state, false) WHERE i.kind = 'target'
    AND coalesce(r.tenant = (SELECT waypost.seen_tenant()), true);

-- A run that the caller sees, locked for a move by hand. One that a worker of waypost's own works on is that worker's.
CREATE FUNCTION waypost.locked_rule(p_id text, p_status text) RETURNS waypost.runs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs;
BEGIN
  IF p_id IS NULL OR NOT EXISTS (SELECT 1 FROM ops.rule_runs r WHERE r.id = p_id) THEN
    PERFORM waypost.refuse('WP404', format('NOT_FOUND: there is no rule run %s', coalesce(quote_literal(left(p_id, 80)), 'null')),
      'Look it up: SELECT id, status FROM ops.rule_runs.', 'id');
  END IF;
  v_run := waypost.locked_by_hand(p_id, p_status);
  IF waypost.is_worked(v_run) THEN
    PERFORM waypost.refuse('WP410', format('LEASE_LOST: %s is held by %s', p_id, v_run.claimed_by),
      'Its worker moves it and its targets; to stop it: waypost run cancel.');
  END IF;
  RETURN v_run;
END $$;

-- Before a run of a rule is let loose or taken up again by hand.
CREATE FUNCTION waypost.check_alone(p_id text, p_tenant text, p_rule text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_other waypost.runs;
BEGIN
  PERFORM waypost.lock_rule(p_tenant, p_rule);
  SELECT r.* INTO v_other FROM waypost.live_of_rule(p_tenant, 'rule', p_rule) l(id) JOIN waypost.runs r ON r.run_id = l.id
    WHERE r.run_id <> p_id AND r.parent_run_id IS DISTINCT FROM p_id LIMIT 1;
  IF FOUND THEN
    PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s has a run that is %s already, %s', p_rule, waypost.status_of(v_other.state), v_other.run_id),
      'Wait for it or cancel it; waypost run queue --force queues this one behind it.', 'status');
  END IF;
END $$;

CREATE FUNCTION waypost.rule_runs_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c_changeable CONSTANT text[] := '{status,errorCode,errorMessage,metadata,startedAt,finishedAt}';
  v_seen text := waypost.seen_tenant();
  v_tenant text := coalesce(NEW."tenantId", v_seen, 'default');
  v_written waypost.written;
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF coalesce(NEW.status, 'PREVIEW') <> 'PREVIEW' THEN
      PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: a rule run does not start as %s', quote_literal(left(NEW.status, 80))),
        'Insert it as PREVIEW, add its targets, and then set its status to QUEUED: a run without targets is not queued.', 'status');
    ELSIF num_nonnulls(NEW."startedAt", NEW."finishedAt", NEW."claimedBy", NEW."errorCode", NEW."errorMessage", NEW.targets, NEW.preview) > 0 THEN
      PERFORM waypost.refuse('WP409', 'IMMUTABLE: times, counts, errors and who claimed it are the engine''s',
        'Give ruleId, metadata, details, correlationId, queue, priority.');
    ELSIF v_tenant <> v_seen THEN
      PERFORM waypost.refuse('WP422', format('INVALID_INPUT: tenantId: is not the chosen one, %s', quote_literal(v_seen)),
        'Leave it out; SET waypost.tenant chooses.', 'tenantId');
    END IF;
    PERFORM waypost.check_tenant('tenantId', v_tenant);
    PERFORM waypost.check_text('ruleId', coalesce(NEW.playbook, NEW."ruleId", '-'));
    PERFORM waypost.check_text('queue', coalesce(NEW.queue, 'default'));
    PERFORM waypost.check_text('correlationId', coalesce(NEW."correlationId", '-'));
    PERFORM waypost.check_json('metadata', coalesce(NEW.metadata, '{}'), 1048576, true);
    PERFORM waypost.check_json('details', coalesce(NEW.details, '{}'), 1048576, true);
    v_written := waypost.enqueue_one('rule', coalesce(NEW.queue, 'default'), '{}'::json, coalesce(NEW.metadata, '{}'), session_user::text,
      p_tenant := v_tenant, p_priority := coalesce(NEW.priority, 0::smallint), p_details := coalesce(NEW.details, '{}'),
      p_correlation_id := NEW."correlationId", p_playbook := coalesce(NEW.playbook, NEW."ruleId"));
    SELECT r.* INTO NEW FROM ops.rule_runs r WHERE r.id = (v_written.run).run_id;
    RETURN NEW;
  END IF;
  IF to_jsonb(NEW) - c_changeable <> to_jsonb(OLD) - c_changeable THEN
    PERFORM waypost.refuse('WP409', format('IMMUTABLE: of %s only status, metadata, errorCode and errorMessage can be changed by hand', OLD.id),
      'Start a new run instead.');
  END IF;
  -- A transaction of a higher isolation would not see what the lock was waited for.
  IF OLD.playbook IS NOT NULL AND (OLD.status, NEW.status) IN (('PREVIEW', 'QUEUED'), ('PARTIAL', 'APPLYING'), ('FAILED', 'APPLYING')) THEN
    PERFORM waypost.check_alone(OLD.id, OLD."tenantId", OLD."ruleId");
  END IF;
  PERFORM waypost.locked_rule(OLD.id, NEW.status);
  UPDATE waypost.board b SET status = NEW.status, error_code = NEW."errorCode", error_msg = NEW."errorMessage", metadata = NEW.metadata WHERE b.run_id = OLD.id;
  SELECT r.* INTO NEW FROM ops.rule_runs r WHERE r.id = OLD.id;
  RETURN NEW;
END $$;
CREATE TRIGGER rule_runs_write INSTEAD OF INSERT OR UPDATE ON ops.rule_runs FOR EACH ROW EXECUTE FUNCTION waypost.rule_runs_write();
CREATE TRIGGER rule_runs_delete INSTEAD OF DELETE ON ops.rule_runs FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Settled runs leave by pruning, with their events and targets.');

-- A failed target of a run that has ended is queued again together with its run; others of the same statement follow into the run that is open then.
CREATE FUNCTION waypost.rule_targets_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c_changeable CONSTANT text[] := '{status,errorCode,errorMessage,appliedAt,startedAt,finishedAt}';
  v_run waypost.runs;
  v_became waypost.runs;
  v_open waypost.lifecycle_states;
BEGIN
  v_run := waypost.locked_rule(CASE TG_OP WHEN 'INSERT' THEN NEW."ruleRunId" ELSE OLD."ruleRunId" END, 'APPLYING');
  IF TG_OP = 'INSERT' THEN
    IF v_run.state / 1000 <> 1 THEN
      PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s is %s: targets are added while it is a preview', v_run.run_id,
        waypost.status_of(v_run.state)), 'Start a new run.');
    ELSIF coalesce(NEW.status, 'PREVIEW') <> 'PREVIEW' THEN
      PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: a target does not start as %s', quote_literal(left(NEW.status, 80))),
        'It is queued with its run.', 'status');
    END IF;
    PERFORM waypost.check_text('id', NEW.id);
    PERFORM waypost.check_text('name', coalesce(NEW.name, NEW.id));
    PERFORM waypost.part_born(v_run, 'target', NEW.id, coalesce(NEW.name, NEW.id), NULL, NULL, jsonb_build_object('before', NEW."beforeJson",
      'after', NEW."afterJson", 'destination', NEW.destination));
    SELECT t.* INTO NEW FROM ops.rule_targets t WHERE t."ruleRunId" = v_run.run_id AND t.id = NEW.id;
    RETURN NEW;
  END IF;
  IF to_jsonb(NEW) - c_changeable <> to_jsonb(OLD) - c_changeable THEN
    PERFORM waypost.refuse('WP409', format('IMMUTABLE: of target %s only status, errorCode and errorMessage can be changed by hand', quote_literal(OLD.id)),
      'What it is to change was gathered with it.');
  END IF;
  SELECT o.* INTO v_open FROM waypost.lifecycle_states s JOIN waypost.lifecycle_states o ON o.lifecycle = s.lifecycle AND o.version = s.version
      AND o.phase = 'held' WHERE s.code = v_run.state;
  IF v_run.state >= 5000 AND OLD.status = 'FAILED' AND NEW.status = 'QUEUED' THEN
    v_became := v_run;
    v_became.state := v_open.code;
    v_became.lease_token := gen_random_uuid();
    v_became.lease_ms := v_open.lease_ms;
    v_became.claimed_by := NULL;
    v_became.stale_after := waypost.now();
    PERFORM waypost.move_by_hand(v_run, v_became, OLD.id);
  ELSE
    UPDATE waypost.items i SET status = NEW.status, error_code = NEW."errorCode", error_msg = NEW."errorMessage"
      WHERE i.rid = v_run.rid AND i.kind = 'target' AND i.key = OLD.id;
  END IF;
  SELECT t.* INTO NEW FROM ops.rule_targets t WHERE t."ruleRunId" = OLD."ruleRunId" AND t.id = OLD.id;
  RETURN NEW;
END $$;
CREATE TRIGGER rule_targets_write INSTEAD OF INSERT OR UPDATE ON ops.rule_targets FOR EACH ROW EXECUTE FUNCTION waypost.rule_targets_write();
CREATE TRIGGER rule_targets_delete INSTEAD OF DELETE ON ops.rule_targets FOR EACH ROW
  EXECUTE FUNCTION waypost.ops_append_only('Targets leave with their run: what failed stays to be seen.');
