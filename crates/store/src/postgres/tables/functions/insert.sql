-- Writes new runs, in the order of their keys: two lists with the same keys would wait for each other. `p_place` is where each stood in
-- the caller's list, and gives its number. Whose idempotency key is taken is not among `made`. `p_known` is what the caller knows of
-- lifecycles, and `p_now` its clock, if they are to be checked: what was decided on old ground is not written (`made` is null).
CREATE FUNCTION waypost.insert(p_now timestamptz, p_exact boolean, p_known bigint, p_parents text[], p_gates text[], p_lane_tenants text[],
    p_lanes text[], p_priorities smallint[], p_late boolean[], p_place int[]{parameters}, p_items jsonb)
  RETURNS TABLE(at timestamptz, known bigint, made int[], before bigint, made_ready boolean) LANGUAGE plpgsql {settings} AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_known bigint := waypost.known();
  v_before bigint;
  v_base bigint;
  v_made int[];
  v_held bigint[];
  v_all boolean;
{constants}BEGIN
  IF NOT p_exact AND (p_now NOT BETWEEN v_now - interval '1 second' AND v_now + interval '1 second' OR p_known <> v_known) THEN
    RETURN QUERY SELECT v_now, v_known, NULL::int[], NULL::bigint, false;
    RETURN;
  END IF;
  IF cardinality(p_parents) > 0 THEN
    PERFORM waypost.expect_children(p_parents);
  END IF;
  IF cardinality(p_gates) > 0 THEN
    PERFORM waypost.enter_gates(p_gates);
  END IF;
  v_before := nextval('waypost.rids') << 16;
  LOCK TABLE waypost.events IN ROW EXCLUSIVE MODE;
  v_base := nextval('waypost.positions') << 16;
  -- A key is hardly ever taken, and to be ready for it costs a sixth of the whole.
  BEGIN
{born}  EXCEPTION WHEN unique_violation THEN
{born_if_free}  END;
  v_all := cardinality(v_made) = cardinality(p_place);
  -- own write
  INSERT INTO waypost.events(position, rid, seq, at, dst, command, actor, who, effect)
    SELECT v_base + u.place, v_before + u.place, 1, p_now, {state}, {command}, {actor}, {who}, {effect}
      FROM unnest(p_place, p_state, p_command, p_actor, p_who, p_effect) u(place, state, command, actor, who, effect)
      WHERE v_all OR u.place = ANY (v_made);
  IF p_items IS NOT NULL THEN
    PERFORM waypost.insert_items(p_items, v_before, v_made);
  END IF;
  IF v_held IS NOT NULL THEN
    INSERT INTO waypost.watch(due_at, abandoned, rids)
      SELECT r.stale_after, r.claimed_by IS NULL, ARRAY[r.rid] FROM unnest(v_held) u(rid) JOIN waypost.runs r ON r.rid = u.rid;
    PERFORM waypost.save_slots(v_held, NULL, NULL, true);
  END IF;
  RETURN QUERY SELECT v_now, v_known, v_made, v_before, waypost.save_lanes(p_lane_tenants, p_lanes, p_priorities, p_late, NULL, NULL);
END $$;
