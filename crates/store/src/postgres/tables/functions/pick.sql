
-- The next entries of lanes that are due, each lane in its order, at most `p_each` of one and `p_all` in all, with their runs, but for
-- those parts of them that are large. What somebody
-- else is given is skipped, and what is given here nobody else is until the transaction ends. Entry and run are of one snapshot: an entry
-- without a run is one whose run has moved on.
CREATE FUNCTION waypost.pick(p_lanes int[], p_tenants text[], p_queues text[], p_priorities smallint[], p_marks timestamptz[], p_mark_rids bigint[],
    p_now timestamptz, p_states smallint[], p_playbooks text[], p_carried boolean, p_each int, p_all int)
  RETURNS TABLE(o_lane int, o_due timestamptz, o_entry_rid bigint, o_entry text, o_rid bigint, o_state smallint{outputs}, o_items text, o_left_out int)
  LANGUAGE plpgsql {settings} AS $$
BEGIN
  RETURN QUERY
    SELECT m.lane, w.available_at, w.rid, w.entry::text, {selected}
      FROM unnest(p_lanes, p_tenants, p_queues, p_priorities, p_marks, p_mark_rids) m(lane, tenant, queue, priority, at, rid)
      CROSS JOIN LATERAL (SELECT w.ctid AS entry, w.available_at, w.rid, w.seq FROM waypost.ready w
        WHERE w.queue = m.queue AND w.tenant = m.tenant AND w.priority = m.priority AND (w.available_at, w.rid) > (m.at, m.rid) AND w.available_at <= p_now
          AND (p_states IS NULL OR w.state = ANY (p_states))
          AND (p_playbooks IS NULL OR EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = w.rid
            AND (r.playbook = ANY (p_playbooks) OR p_carried AND r.carried IS NOT NULL)))
        ORDER BY w.available_at, w.rid LIMIT p_each FOR UPDATE SKIP LOCKED) w
      LEFT JOIN waypost.runs r ON r.rid = w.rid AND r.seq = w.seq AND r.state / 1000 = 2
      LIMIT p_all;
END $$;
