-- What no move is behind: a lease changes hands by a claim, details and reasons change with an event, and a run that was
-- begun stays begun. Only statements that name these columns come here, and one that raises seq is done with the first
-- comparison. A hand that raises seq does not come this far (own.sql).
CREATE FUNCTION waypost.keeps() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'IMMUTABLE: of % lease, reason, failure, times, metadata and details change with an event of its log', OLD.run_id
    USING ERRCODE = 'WP409', HINT = 'Update ops.jobs, ops.runs or waypost.board: they write the event.';
END $$;
CREATE TRIGGER runs_beside AFTER UPDATE OF lease_token, claimed_by, started_at, reason, error_code, error_msg, resolved, forced, metadata, details ON waypost.runs FOR EACH ROW
  WHEN (NEW.started_at IS NULL AND OLD.started_at IS NOT NULL
    OR NEW.seq = OLD.seq AND NEW.state = OLD.state AND OLD.finished_at IS NULL AND (NEW.lease_token IS DISTINCT FROM OLD.lease_token
      OR NEW.claimed_by IS DISTINCT FROM OLD.claimed_by OR NEW.started_at IS DISTINCT FROM OLD.started_at OR NEW.reason IS DISTINCT FROM OLD.reason
      OR NEW.error_code IS DISTINCT FROM OLD.error_code OR NEW.error_msg IS DISTINCT FROM OLD.error_msg OR NEW.resolved <> OLD.resolved
      OR NEW.forced <> OLD.forced
      OR NEW.metadata <> OLD.metadata OR NEW.details <> OLD.details))
  EXECUTE FUNCTION waypost.keeps();

-- The end of a lease is in no event, and may be set by hand, to a time that every reader has. If it comes sooner than somebody was going to
-- look, somebody has to look then.
CREATE FUNCTION waypost.ends_sooner() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM waypost.check_time('stale_after', NEW.stale_after);
  INSERT INTO waypost.watch(due_at, rids) VALUES (NEW.stale_after, ARRAY[NEW.rid]);
  RETURN NULL;
END $$;
CREATE TRIGGER runs_sooner AFTER UPDATE OF stale_after ON waypost.runs FOR EACH ROW
  WHEN ((NEW.stale_after < OLD.stale_after OR NEW.stale_after >= '10000-01-01 00:00:00+00') AND NEW.seq = OLD.seq AND NEW.state = OLD.state) EXECUTE FUNCTION waypost.ends_sooner();
