    -- own write
    WITH born AS (
        INSERT INTO waypost.runs(rid, state, queued_at, item_count, fingerprint{into})
        SELECT v_before + u.place, {state}, p_now, {item_count}, {fingerprint}{values} FROM unnest(p_place{arrays}) u(place{names}){conflict}
        RETURNING rid, state, seq, tenant, queue, priority, available_at),
      queued AS (
        INSERT INTO waypost.ready(available_at, rid, seq, priority, state, tenant, queue)
        SELECT b.available_at, b.rid, b.seq, b.priority, b.state, b.tenant, b.queue FROM born b WHERE b.state / 1000 = 2)
    SELECT coalesce(array_agg((b.rid - v_before)::int), '{}'), array_agg(b.rid) FILTER (WHERE b.state / 1000 = 3) INTO v_made, v_held FROM born b;
