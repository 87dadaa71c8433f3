-- Writes one run that the caller has locked and moved by `waypost.enter`. `p_metadata` and `p_details` are laid over what is there; with
-- `p_whole` they are the row's own. Without a command there is no event: a heartbeat.
CREATE FUNCTION waypost.save_one(p_was waypost.runs, p_run waypost.runs, p_command text, p_actor text DEFAULT NULL, p_who text DEFAULT NULL,
    p_effect jsonb DEFAULT '{}', p_metadata jsonb DEFAULT '{}', p_details jsonb DEFAULT '{}', p_whole boolean DEFAULT false,
    p_via smallint DEFAULT NULL, p_via_command text DEFAULT NULL, p_level text DEFAULT NULL, p_message text DEFAULT NULL,
    p_payload jsonb DEFAULT NULL, p_key text DEFAULT NULL, p_more jsonb DEFAULT NULL)
  RETURNS waypost.written LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs := p_run;
  v_metadata jsonb := CASE WHEN p_whole THEN '{}' ELSE p_metadata END;
  v_details jsonb := CASE WHEN p_whole THEN '{}' ELSE p_details END;
  v_was_held boolean := p_was.state / 1000 = 3;
  v_is_held boolean := p_run.state / 1000 = 3;
  v_position int := CASE WHEN p_via IS NULL THEN 1 ELSE 2 END;
  v_saved record;
BEGIN
  v_run.metadata := waypost.merged('metadata', p_run.metadata, v_metadata);
  v_run.details := waypost.merged_details(p_run.details, v_details, p_run.state);
  SELECT s.won, s.base INTO v_saved FROM waypost.save(p_now => waypost.now(), p_exact => true,
    p_gates => CASE WHEN v_is_held AND NOT v_was_held THEN ARRAY[waypost.gate(p_run.tenant, p_run.queue)] END,
    p_key_tenants => ARRAY[p_run.tenant], p_keys => CASE WHEN least(p_was.state / 1000, 5) <> least(p_run.state / 1000, 5) AND (v_was_held OR v_is_held OR p_was.state / 1000 = 2)
      THEN array_remove(ARRAY[p_run.concurrency_key], NULL) END,
    p_entries => CASE WHEN p_was.state / 1000 = 2 THEN waypost.entries_of(p_was) END, p_orphans => NULL,
    p_lane_tenants => ARRAY[p_run.tenant], p_lanes => CASE WHEN p_run.state / 1000 = 2 AND p_command IS NOT NULL THEN ARRAY[p_run.queue] END, p_priorities => ARRAY[p_run.priority],
    p_late => ARRAY[p_run.available_at < waypost.now()], p_rid => ARRAY[p_run.rid], p_was_seq => ARRAY[p_was.seq], p_was_stale => ARRAY[p_was.stale_after], p_was_held => ARRAY[v_was_held],
    p_reminds => ARRAY[v_is_held AND NOT coalesce(p_was.lease_token = p_run.lease_token AND p_was.stale_after <= p_run.stale_after, false)],
    p_cancels => ARRAY[coalesce(p_command = 'cancel', false)], p_offset => ARRAY[v_position], p_state => ARRAY[p_run.state]{columns},
    p_item_count => ARRAY[p_run.item_count],
    p_metadata => ARRAY[CASE WHEN p_whole THEN p_run.metadata ELSE nullif(v_metadata, '{}') END::text],
    p_details => ARRAY[CASE WHEN p_whole THEN p_run.details ELSE nullif(v_details, '{}') END::text]{event},
    -- A run with items is counted anew when it is read: what became of them is not known here.
    p_more => CASE WHEN p_whole THEN coalesce(p_more, '{}') || '{"whole": true}' WHEN p_run.item_count > 0 THEN coalesce(p_more, '{}') ELSE p_more END) s;
  IF v_saved.won IS DISTINCT FROM ARRAY[1] THEN
    RAISE EXCEPTION '% changed meanwhile', p_run.run_id USING ERRCODE = 'serialization_failure', HINT = 'Send the statement again.';
  END IF;
  PERFORM waypost.wake();
  RETURN (v_run, waypost.status_of(p_run.state), CASE WHEN p_command IS NOT NULL THEN v_saved.base + v_position END, p_run.seq, false);
END $$;
