-- Parents that were cancelled, or asked to be, and whose children nobody has asked yet: empty but for a moment.
CREATE TABLE waypost.cancelled_parents(run_id text COLLATE "C" PRIMARY KEY);

-- For moves that are made in SQL: the sweep asks the children, in any process.
CREATE FUNCTION waypost.leave_behind(p_run_id text, p_command text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_command = 'cancel' AND EXISTS (SELECT 1 FROM waypost.runs c WHERE c.parent_run_id = p_run_id) THEN
    INSERT INTO waypost.cancelled_parents(run_id) VALUES (p_run_id) ON CONFLICT (run_id) DO UPDATE SET run_id = EXCLUDED.run_id;
  END IF;
END $$;
