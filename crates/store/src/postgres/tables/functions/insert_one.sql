-- Writes a new run that `waypost.enter` has brought to its first state. Its rid, or null if its idempotency key is taken.
CREATE FUNCTION waypost.insert_one(p_run waypost.runs, p_actor text, p_who text, p_effect jsonb DEFAULT '{}', p_items jsonb DEFAULT NULL)
  RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_made record;
BEGIN
  SELECT i.made, i.before INTO v_made FROM waypost.insert(p_now => p_run.queued_at, p_exact => true, p_known => NULL,
    p_parents => array_remove(ARRAY[p_run.parent_run_id], NULL), p_gates => CASE WHEN p_run.state / 1000 = 3 THEN ARRAY[waypost.gate(p_run.tenant, p_run.queue)] END,
    p_lane_tenants => ARRAY[p_run.tenant], p_lanes => CASE WHEN p_run.state / 1000 = 2 THEN ARRAY[p_run.queue] END, p_priorities => ARRAY[p_run.priority],
    p_late => ARRAY[p_run.available_at < p_run.queued_at], p_place => ARRAY[1], p_state => ARRAY[p_run.state], p_item_count => ARRAY[p_run.item_count], p_fingerprint => ARRAY[p_run.fingerprint],
    p_command => ARRAY[p_run.last_command], p_actor => ARRAY[p_actor], p_who => ARRAY[p_who],
    p_effect => ARRAY[waypost.effect(p_effect, p_run.metadata, p_run.details)::text]{columns}, p_items => p_items) i;
  PERFORM waypost.wake();
  RETURN CASE WHEN v_made.made = ARRAY[1] THEN v_made.before + 1 END;
END $$;
