-- What no move is behind: a lease changes hands by a claim, details and reasons change with an event, and a run that was
-- begun stays begun. Only statements that name these columns come here, and one that raises seq is done with the first
-- comparison.
CREATE FUNCTION waypost.keeps() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'IMMUTABLE: of % lease, reason, times, metadata and details change with an event of its log', OLD.run_id
    USING ERRCODE = 'WP409', HINT = 'Update ops.jobs, ops.runs or waypost.board: they write the event.';
END $$;
CREATE TRIGGER runs_beside AFTER UPDATE OF lease_token, claimed_by, started_at, reason, metadata, details ON waypost.runs FOR EACH ROW
  WHEN (NEW.started_at IS NULL AND OLD.started_at IS NOT NULL
    OR NEW.seq = OLD.seq AND NEW.state = OLD.state AND OLD.finished_at IS NULL AND (NEW.lease_token IS DISTINCT FROM OLD.lease_token
      OR NEW.claimed_by IS DISTINCT FROM OLD.claimed_by OR NEW.started_at IS DISTINCT FROM OLD.started_at OR NEW.reason IS DISTINCT FROM OLD.reason
      OR NEW.metadata <> OLD.metadata OR NEW.details <> OLD.details))
  EXECUTE FUNCTION waypost.keeps();

-- Nor are items taken away from their run.
CREATE FUNCTION waypost.item_keeps() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'IMMUTABLE: item % stays its run''s', OLD.key USING ERRCODE = 'WP409', HINT = 'Add another one.';
END $$;
CREATE TRIGGER items_beside BEFORE UPDATE OF rid, kind, key, version ON waypost.items FOR EACH ROW EXECUTE FUNCTION waypost.item_keeps();
CREATE TRIGGER items_keep_all BEFORE TRUNCATE ON waypost.items FOR EACH STATEMENT EXECUTE FUNCTION waypost.keep();
