-- Writes what was decided about runs, each if it still has the seq and the lease's end that were decided on: items, run, events, queue,
-- reminders and slots. Locks gates, keys, runs and lanes, in this order and each in its own, so that nobody waits for whom it keeps waiting.
-- `p_exact`: the caller's clock is this transaction's. Else it is an estimate, and one that is off by more than a second writes nothing
-- (`won` is null). `whole` in `p_more`: metadata and details come as they will be, not as patches; `tallies`: how many items are where, of the runs
-- that have many. Gives the places of those that were
-- written (from 1), and where the positions of their events count from.
--
-- `p_entries` are the places in queues that the runs leave, if all of them are written; of `p_orphans`, and if some are not, those whose run
-- is elsewhere. `p_lane_tenants`, `p_lanes` and `p_priorities` are where runs become ready, `p_late` where one of them was due before.
CREATE FUNCTION waypost.save(p_now timestamptz, p_exact boolean, p_gates text[], p_key_tenants text[], p_keys text[], p_entries text[],
    p_orphans text[], p_lane_tenants text[], p_lanes text[], p_priorities smallint[], p_late boolean[], p_rid bigint[], p_was_seq int[], p_was_stale timestamptz[], p_was_held boolean[],
    p_reminds boolean[], p_cancels boolean[], p_offset int[]{parameters}, p_more jsonb)
  RETURNS TABLE(at timestamptz, won int[], base bigint, made_ready boolean) LANGUAGE plpgsql {settings} AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_base bigint;
  v_won int[];
  v_bad bigint[] := '{}';
  v_taken bigint[];
  v_left bigint[];
  v_vacated bigint[];
  v_ready bigint[];
  v_cancelled text[];
  v_reminded bigint[];
  v_due timestamptz[];
  v_vacant boolean[];
  v_orphans text[] := p_orphans;
  v_whole boolean := coalesce(p_more ? 'whole', false);
{constants}BEGIN
  IF NOT p_exact AND p_now NOT BETWEEN v_now - interval '1 second' AND v_now + interval '1 second' THEN
    RETURN QUERY SELECT v_now, NULL::int[], NULL::bigint, false;
    RETURN;
  END IF;
  IF cardinality(p_gates) > 0 THEN
    PERFORM waypost.enter_gates(p_gates);
  END IF;
  IF cardinality(p_keys) > 0 THEN
    PERFORM waypost.lock_keys(p_key_tenants, p_keys);
  END IF;
  IF p_more IS NOT NULL THEN
    v_bad := waypost.save_items(p_rid, p_was_seq, p_was_stale, p_more, p_now);
  END IF;
  -- A position is drawn by who has locked the log: whoever sees a gap in it can look who may still fill it.
  LOCK TABLE waypost.events IN ROW EXCLUSIVE MODE;
  v_base := nextval('waypost.positions') << 16;
  -- own write
  WITH done AS (
      UPDATE waypost.runs r SET state = {state}{sets}, item_count = {item_count},
          tally = CASE WHEN p_more IS NULL THEN r.tally ELSE (p_more -> 'tallies' ->> r.rid::text)::json END,
          metadata = CASE WHEN u.metadata IS NULL THEN r.metadata WHEN v_whole THEN u.metadata::jsonb ELSE r.metadata || u.metadata::jsonb END,
          details = CASE WHEN u.details IS NULL THEN r.details WHEN v_whole THEN u.details::jsonb
            ELSE waypost.patched(r.details, u.details::jsonb, r.state) END
        FROM unnest(p_rid, p_was_seq, p_was_stale, p_was_held, p_reminds, p_cancels, p_offset{arrays})
          WITH ORDINALITY u(rid, was_seq, was_stale, was_held, reminds, cancels, "offset"{names}, place)
        WHERE r.rid = u.rid AND r.seq = u.was_seq AND r.stale_after IS NOT DISTINCT FROM u.was_stale AND r.rid <> ALL (v_bad)
          AND (coalesce(u.command, c_command) IS NOT NULL OR coalesce(u.seq, c_seq) = u.was_seq)
        RETURNING r.rid, r.run_id, r.seq, r.state, r.stale_after, r.claimed_by, u.was_held, u.reminds, u.cancels, u."offset", u.place{told}),
    told AS (
      INSERT INTO waypost.events(position, rid, seq, at, src, dst, via, via_command, command, actor, who, level, message, payload, effect, key)
      SELECT v_base + d."offset", d.rid, d.seq, p_now, d.e_src, d.state, d.e_via, d.e_via_command, d.e_command, d.e_actor, d.e_who, d.e_level,
          d.e_message, d.e_payload, d.e_effect, d.e_key
        FROM done d WHERE d.e_command IS NOT NULL)
  SELECT coalesce(array_agg(d.place::int), '{}'), array_agg(d.rid) FILTER (WHERE d.state / 1000 = 3 AND (NOT d.was_held OR d.reminds AND d.claimed_by IS NOT NULL)),
      array_agg(d.rid) FILTER (WHERE d.was_held AND d.state / 1000 <> 3),
      array_agg(d.rid) FILTER (WHERE d.was_held AND d.state / 1000 = 3 AND d.reminds AND d.claimed_by IS NULL),
      array_agg(d.rid) FILTER (WHERE d.state / 1000 = 2 AND d.e_command IS NOT NULL), array_agg(d.run_id) FILTER (WHERE d.cancels),
      array_agg(d.rid) FILTER (WHERE d.reminds), array_agg(d.stale_after) FILTER (WHERE d.reminds),
      array_agg(d.claimed_by IS NULL) FILTER (WHERE d.reminds)
    INTO v_won, v_taken, v_left, v_vacated, v_ready, v_cancelled, v_reminded, v_due, v_vacant FROM done d;
  IF p_more -> 'events' IS NOT NULL THEN
    PERFORM waypost.save_events(p_more -> 'events', v_base, v_won, p_now);
  END IF;
  IF v_ready IS NOT NULL THEN
    INSERT INTO waypost.ready(available_at, rid, seq, priority, state, tenant, queue)
      SELECT r.available_at, r.rid, r.seq, r.priority, r.state, r.tenant, r.queue FROM unnest(v_ready) u(rid) JOIN waypost.runs r ON r.rid = u.rid;
  END IF;
  IF v_reminded IS NOT NULL THEN
    -- One row for all of a claim; what is vacant has its own.
    INSERT INTO waypost.watch(due_at, abandoned, rids)
      SELECT u.due, u.vacant, array_agg(u.rid) FROM unnest(v_reminded, v_due, v_vacant) u(rid, due, vacant)
        GROUP BY u.due, u.vacant, CASE WHEN u.vacant THEN u.rid END;
  END IF;
  IF cardinality(p_entries) > 0 THEN
    IF cardinality(v_won) = cardinality(p_rid) THEN
      DELETE FROM waypost.ready w WHERE w.ctid = ANY (p_entries::tid[]);
    ELSE
      v_orphans := v_orphans || p_entries;
    END IF;
  END IF;
  IF cardinality(v_orphans) > 0 THEN
    -- But for those whose run is still where they say: it was not won, or was committed while the claim looked.
    DELETE FROM waypost.ready w WHERE w.ctid = ANY (v_orphans::tid[])
      AND NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = w.rid AND r.seq = w.seq AND r.state = w.state);
  END IF;
  PERFORM waypost.save_slots(v_taken, v_left, v_vacated, cardinality(p_keys) > 0);
  IF v_cancelled IS NOT NULL THEN
    PERFORM waypost.leave_behind(c.id, 'cancel') FROM (SELECT u.id FROM unnest(v_cancelled) u(id) ORDER BY u.id OFFSET 0) c;
  END IF;
  RETURN QUERY SELECT v_now, v_won, v_base, waypost.save_lanes(p_lane_tenants, p_lanes, p_priorities, p_late, p_key_tenants, p_keys);
END $$;
