-- Parents that were cancelled, or asked to be, and whose children nobody has asked yet: empty but for a moment.
CREATE TABLE waypost.cancelled_parents(run_id text COLLATE "C" PRIMARY KEY);

-- A birth and a cancel of the parent do not see each other before they commit. So births share a lock, and who cancels tries to
-- have it alone: then the children that are there are all that there are, and later ones come after the cancel. If births are
-- under way, the parent stays on the list until they have ended. Some parents have one lock: a transaction may cancel thousands.
CREATE FUNCTION waypost.births_of(p_parent text) RETURNS int LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
  RETURN hashtext(p_parent) & 255;

-- Before any other lock of the birth: whoever asks children has the other one while it waits for theirs.
CREATE FUNCTION waypost.expect_children(p_parents text[]) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_advisory_xact_lock_shared(7003, b.place) FROM (SELECT DISTINCT waypost.births_of(p.id) AS place FROM unnest(p_parents) p(id) ORDER BY 1 OFFSET 0) b
$$;

-- Whether none is under way, nor will be until the end of this transaction. What is read next sees those that were.
CREATE FUNCTION waypost.births_ended(p_parent text) RETURNS boolean LANGUAGE sql SET search_path = pg_catalog, pg_temp
  RETURN pg_try_advisory_xact_lock(7003, waypost.births_of(p_parent)) AND current_setting('transaction_isolation') = 'read committed';

-- For every cancel, whoever writes it: the one who commanded it, or the next sweep in any process, asks the children.
CREATE FUNCTION waypost.leave_behind(p_run_id text, p_command text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_ended boolean;
BEGIN
  IF p_command <> 'cancel' THEN
    RETURN;
  END IF;
  v_ended := waypost.births_ended(p_run_id);
  IF NOT v_ended OR EXISTS (SELECT 1 FROM waypost.runs c WHERE c.parent_run_id = p_run_id) THEN
    -- Whoever asks them at this moment has not seen this: its row is waited for.
    INSERT INTO waypost.cancelled_parents(run_id) VALUES (p_run_id) ON CONFLICT (run_id) DO UPDATE SET run_id = EXCLUDED.run_id;
  END IF;
END $$;
