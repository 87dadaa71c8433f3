//! The two functions that write runs, rendered from the table of columns. What is the same for all runs of a call is
//! sent once: an array of one stands for as many as there are runs.

use std::fmt::Write;

use crate::columns::{COLUMNS, Column, Kind};

/// What an event's row has beside the run's own columns. Of two moves at once, `via` is the state between them.
pub const EVENT_COLUMNS: [(&str, &str); 11] = [
    ("src", "smallint"),
    ("via", "smallint"),
    ("via_command", "text"),
    ("command", "text"),
    ("actor", "text"),
    ("who", "text"),
    ("level", "text"),
    ("message", "text"),
    ("payload", "text"),
    ("effect", "text"),
    ("key", "text"),
];

/// Columns that a save sets as they are; metadata and details get members, not wholes.
pub fn moving() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|column| column.moves && !is_patched(column))
}

pub fn is_patched(column: &Column) -> bool {
    matches!(column.name, "metadata" | "details")
}

/// A column's type as a parameter: JSON is sent as text.
fn sent(kind: Kind) -> &'static str {
    match kind {
        Kind::Json | Kind::Jsonb => "text",
        other => other.postgres(),
    }
}

fn cast(column: &Column) -> String {
    match column.kind {
        Kind::Json => format!("{}::json", folded(column.name)),
        Kind::Jsonb => format!("{}::jsonb", folded(column.name)),
        _ => folded(column.name),
    }
}

/// A value of the row at hand, or the one that stands for all.
fn folded(name: &str) -> String {
    format!("coalesce(u.{name}, c_{name})")
}

/// The parts of a function that has these columns as parameters.
struct Parts {
    parameters: String,
    constants: String,
    arrays: String,
    names: String,
}

fn parts<'a>(columns: impl Iterator<Item = (&'a str, &'a str)>) -> Parts {
    let mut parts = Parts {
        parameters: String::new(),
        constants: String::new(),
        arrays: String::new(),
        names: String::new(),
    };
    for (name, kind) in columns {
        let _ = write!(parts.parameters, ", p_{name} {kind}[]");
        let _ = writeln!(
            parts.constants,
            "  c_{name} {kind} := CASE cardinality(p_{name}) WHEN 1 THEN p_{name}[1] END;"
        );
        let _ = write!(parts.arrays, ", p_{name}");
        let _ = write!(parts.names, ", {name}");
    }
    parts
}

const SETTINGS: &str = "SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET enable_seqscan = off SET enable_hashjoin = off \
  SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off";

pub fn save() -> String {
    let columns = std::iter::once(("state", "smallint"))
        .chain(moving().map(|column| (column.name, sent(column.kind))))
        .chain([("item_count", "int"), ("metadata", "text"), ("details", "text")])
        .chain(EVENT_COLUMNS);
    let Parts { parameters, constants, arrays, names } = parts(columns);
    let sets: String = moving().map(|column| format!(", {} = {}", column.name, cast(column))).collect();
    let told: String =
        EVENT_COLUMNS.iter().map(|(name, _)| format!(", {} AS e_{name}", folded(name))).collect();
    format!(
        "
-- Writes what was decided about runs, each if it still has the seq and the lease's end that were decided on: items, run, events, queue,
-- reminders and slots. Locks gates, keys, runs and lanes, in this order and each in its own, so that nobody waits for whom it keeps waiting.
-- `p_exact`: the caller's clock is this transaction's. Else it is an estimate, and one that is off by more than a second writes nothing
-- (`won` is null). `whole` in `p_more`: metadata and details come as they will be, not as patches. Gives the places of those that were
-- written (from 1), and where the positions of their events count from.
CREATE FUNCTION waypost.save(p_now timestamptz, p_exact boolean, p_gates text[], p_keys text[], p_entries text[], p_rid bigint[], p_was_seq int[],
    p_was_stale timestamptz[], p_was_held boolean[], p_reminds boolean[], p_cancels boolean[], p_offset int[]{parameters}, p_more jsonb)
  RETURNS TABLE(at timestamptz, won int[], base bigint, made_ready boolean) LANGUAGE plpgsql {SETTINGS} AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_base bigint;
  v_won int[];
  v_bad bigint[] := '{{}}';
  v_taken bigint[];
  v_left bigint[];
  v_ready bigint[];
  v_cancelled text[];
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
    PERFORM waypost.lock_keys(p_keys);
  END IF;
  IF p_more IS NOT NULL THEN
    v_bad := waypost.save_items(p_rid, p_was_seq, p_was_stale, p_more, p_now);
  END IF;
  -- A position is drawn by who has locked the log: whoever sees a gap in it can look who may still fill it.
  LOCK TABLE waypost.events IN ROW EXCLUSIVE MODE;
  v_base := nextval('waypost.positions') << 16;
  WITH done AS (
      UPDATE waypost.runs r SET state = {state}{sets}, item_count = {item_count},
          metadata = CASE WHEN u.metadata IS NULL THEN r.metadata WHEN v_whole THEN u.metadata::jsonb ELSE r.metadata || u.metadata::jsonb END,
          details = CASE WHEN u.details IS NULL THEN r.details WHEN v_whole THEN u.details::jsonb
            ELSE waypost.patched(r.details, u.details::jsonb) END
        FROM unnest(p_rid, p_was_seq, p_was_stale, p_was_held, p_reminds, p_cancels, p_offset{arrays})
          WITH ORDINALITY u(rid, was_seq, was_stale, was_held, reminds, cancels, \"offset\"{names}, place)
        WHERE r.rid = u.rid AND r.seq = u.was_seq AND r.stale_after IS NOT DISTINCT FROM u.was_stale AND r.rid <> ALL (v_bad)
        RETURNING r.rid, r.run_id, r.seq, r.state, r.queue, r.priority, r.available_at, r.stale_after, r.claimed_by, u.was_held, u.reminds,
          u.cancels, u.\"offset\", u.place{told}),
    told AS (
      INSERT INTO waypost.events(position, rid, seq, at, src, dst, via, via_command, command, actor, who, level, message, payload, effect, key)
      SELECT v_base + d.\"offset\", d.rid, d.seq, p_now, d.e_src, d.state, d.e_via, d.e_via_command, d.e_command, d.e_actor, d.e_who, d.e_level,
          d.e_message, d.e_payload::jsonb, d.e_effect::json, d.e_key
        FROM done d WHERE d.e_command IS NOT NULL),
    queued AS (
      INSERT INTO waypost.ready(available_at, rid, seq, priority, state, queue)
      SELECT d.available_at, d.rid, d.seq, d.priority, d.state, d.queue FROM done d WHERE d.state / 1000 = 2 AND d.e_command IS NOT NULL),
    watched AS (
      INSERT INTO waypost.watch(due_at, adrift, rids)
      SELECT min(d.stale_after), false, array_agg(d.rid) FROM done d WHERE d.reminds AND d.claimed_by IS NOT NULL GROUP BY d.stale_after
      UNION ALL SELECT d.stale_after, true, ARRAY[d.rid] FROM done d WHERE d.reminds AND d.claimed_by IS NULL)
  SELECT coalesce(array_agg(d.place::int), '{{}}'), array_agg(d.rid) FILTER (WHERE d.state / 1000 = 3 AND NOT d.was_held),
      array_agg(d.rid) FILTER (WHERE d.was_held AND d.state / 1000 <> 3),
      array_agg(d.rid) FILTER (WHERE d.state / 1000 = 2 AND d.e_command IS NOT NULL), array_agg(d.run_id) FILTER (WHERE d.cancels)
    INTO v_won, v_taken, v_left, v_ready, v_cancelled FROM done d;
  IF p_more -> 'events' IS NOT NULL THEN
    PERFORM waypost.save_events(p_more -> 'events', v_base, v_won, p_now);
  END IF;
  IF cardinality(p_entries) > 0 THEN
    -- But for those whose run is still where they say: it was not won, or was committed while the claim looked.
    DELETE FROM waypost.ready w WHERE w.ctid = ANY (p_entries::tid[])
      AND NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = w.rid AND r.seq = w.seq AND r.state = w.state);
  END IF;
  PERFORM waypost.save_slots(v_taken, v_left);
  IF v_cancelled IS NOT NULL THEN
    PERFORM waypost.leave_behind(c.id, 'cancel') FROM (SELECT u.id FROM unnest(v_cancelled) u(id) ORDER BY u.id OFFSET 0) c;
  END IF;
  RETURN QUERY SELECT v_now, v_won, v_base, waypost.save_lanes(v_ready, p_keys, p_now);
END $$;
",
        state = folded("state"),
        item_count = folded("item_count"),
    )
}

/// One column of one run as a list.
fn single(column: &Column) -> String {
    let cast = match column.kind {
        Kind::Json | Kind::Jsonb => "::text",
        _ => "",
    };
    format!(", p_{name} => ARRAY[p_run.{name}{cast}]", name = column.name)
}

/// The same for one run that the caller has locked, in SQL: its row as it was and as it will be.
pub fn save_one() -> String {
    let columns: String = moving().map(single).collect();
    let event = EVENT_COLUMNS.iter().map(|(name, _)| match *name {
        "src" => ", p_src => ARRAY[p_was.state]".to_owned(),
        "payload" => ", p_payload => ARRAY[p_payload::text]".to_owned(),
        "effect" => ", p_effect => ARRAY[waypost.effect(p_effect, v_metadata, v_details)::text]".to_owned(),
        name => format!(", p_{name} => ARRAY[p_{name}]"),
    });
    let event: String = event.collect();
    format!(
        "
-- Writes one run that the caller has locked and moved by `waypost.enter`. `p_metadata` and `p_details` are laid over what is there; with
-- `p_whole` they are the row's own. Without a command there is no event: a heartbeat.
CREATE FUNCTION waypost.save_one(p_was waypost.runs, p_run waypost.runs, p_command text, p_actor text DEFAULT NULL, p_who text DEFAULT NULL,
    p_effect jsonb DEFAULT '{{}}', p_metadata jsonb DEFAULT '{{}}', p_details jsonb DEFAULT '{{}}', p_whole boolean DEFAULT false,
    p_via smallint DEFAULT NULL, p_via_command text DEFAULT NULL, p_level text DEFAULT NULL, p_message text DEFAULT NULL,
    p_payload jsonb DEFAULT NULL, p_key text DEFAULT NULL, p_more jsonb DEFAULT NULL)
  RETURNS waypost.written LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_run waypost.runs := p_run;
  v_metadata jsonb := CASE WHEN p_whole THEN '{{}}' ELSE p_metadata END;
  v_details jsonb := CASE WHEN p_whole THEN '{{}}' ELSE p_details END;
  v_was_held boolean := p_was.state / 1000 = 3;
  v_is_held boolean := p_run.state / 1000 = 3;
  v_position int := CASE WHEN p_via IS NULL THEN 1 ELSE 2 END;
  v_saved record;
BEGIN
  v_run.metadata := waypost.merged('metadata', p_run.metadata, v_metadata);
  v_run.details := waypost.merged_details(p_run.details, v_details);
  SELECT s.won, s.base INTO v_saved FROM waypost.save(p_now => waypost.now(), p_exact => true,
    p_gates => CASE WHEN v_is_held AND NOT v_was_held THEN ARRAY[p_run.queue] END,
    p_keys => CASE WHEN least(p_was.state / 1000, 5) <> least(p_run.state / 1000, 5) AND (v_was_held OR v_is_held OR p_was.state / 1000 = 2)
      THEN array_remove(ARRAY[p_run.concurrency_key], NULL) END,
    p_entries => CASE WHEN p_was.state / 1000 = 2 THEN waypost.entries_of(p_was) END,
    p_rid => ARRAY[p_run.rid], p_was_seq => ARRAY[p_was.seq], p_was_stale => ARRAY[p_was.stale_after], p_was_held => ARRAY[v_was_held],
    p_reminds => ARRAY[v_is_held AND NOT coalesce(p_was.lease_token = p_run.lease_token AND p_was.stale_after <= p_run.stale_after, false)],
    p_cancels => ARRAY[coalesce(p_command = 'cancel', false)], p_offset => ARRAY[v_position], p_state => ARRAY[p_run.state]{columns},
    p_item_count => ARRAY[p_run.item_count],
    p_metadata => ARRAY[CASE WHEN p_whole THEN p_run.metadata ELSE nullif(v_metadata, '{{}}') END::text],
    p_details => ARRAY[CASE WHEN p_whole THEN p_run.details ELSE nullif(v_details, '{{}}') END::text]{event},
    p_more => CASE WHEN p_whole THEN coalesce(p_more, '{{}}') || '{{\"whole\": true}}' ELSE p_more END) s;
  IF v_saved.won IS DISTINCT FROM ARRAY[1] THEN
    RAISE EXCEPTION '% changed meanwhile', p_run.run_id USING ERRCODE = 'serialization_failure', HINT = 'Send the statement again.';
  END IF;
  PERFORM waypost.wake();
  RETURN (v_run, waypost.status_of(p_run.state), CASE WHEN p_command IS NOT NULL THEN v_saved.base + v_position END, p_run.seq, false);
END $$;
"
    )
}

/// Columns that a new run brings.
pub fn born() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|column| column.name != "queued_at")
}

/// What a birth's event and its key need beside the run's own columns.
pub const BIRTH_COLUMNS: [(&str, &str); 7] = [
    ("state", "smallint"),
    ("item_count", "int"),
    ("fingerprint", "text"),
    ("command", "text"),
    ("actor", "text"),
    ("who", "text"),
    ("effect", "text"),
];

/// One new run, in SQL.
pub fn insert_one() -> String {
    let columns: String = born().map(single).collect();
    format!(
        "
-- Writes a new run that `waypost.enter` has brought to its first state. Its rid, or null if its idempotency key is taken.
CREATE FUNCTION waypost.insert_one(p_run waypost.runs, p_actor text, p_who text, p_effect jsonb DEFAULT '{{}}', p_items jsonb DEFAULT NULL)
  RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_made record;
BEGIN
  SELECT i.made, i.before INTO v_made FROM waypost.insert(p_now => p_run.queued_at, p_exact => true, p_known => NULL,
    p_parents => array_remove(ARRAY[p_run.parent_run_id], NULL), p_gates => CASE WHEN p_run.state / 1000 = 3 THEN ARRAY[p_run.queue] END,
    p_place => ARRAY[1], p_state => ARRAY[p_run.state], p_item_count => ARRAY[p_run.item_count], p_fingerprint => ARRAY[p_run.fingerprint],
    p_command => ARRAY[p_run.last_command], p_actor => ARRAY[p_actor], p_who => ARRAY[p_who],
    p_effect => ARRAY[waypost.effect(p_effect, p_run.metadata, p_run.details)::text]{columns}, p_items => p_items) i;
  PERFORM waypost.wake();
  RETURN CASE WHEN v_made.made = ARRAY[1] THEN v_made.before + 1 END;
END $$;
"
    )
}

pub fn insert() -> String {
    let columns = BIRTH_COLUMNS.into_iter().chain(born().map(|column| (column.name, sent(column.kind))));
    let Parts { parameters, constants, arrays, names } = parts(columns);
    let into: String = born().map(|column| format!(", {}", column.name)).collect();
    let values: String = born().map(|column| format!(", {}", cast(column))).collect();
    format!(
        "
-- Writes new runs, in the order of their keys: two lists with the same keys would wait for each other. `p_place` is where each stood in
-- the caller's list, and gives its number. Whose idempotency key is taken is not among `made`. `p_known` is what the caller knows of
-- lifecycles, and `p_now` its clock, if they are to be checked: what was decided on old ground is not written (`made` is null).
CREATE FUNCTION waypost.insert(p_now timestamptz, p_exact boolean, p_known bigint, p_parents text[], p_gates text[], p_place int[]{parameters},
    p_items jsonb)
  RETURNS TABLE(at timestamptz, known bigint, made int[], before bigint, made_ready boolean) LANGUAGE plpgsql {SETTINGS} AS $$
DECLARE
  v_now timestamptz := waypost.now();
  v_known bigint := waypost.known();
  v_before bigint;
  v_base bigint;
  v_made int[];
  v_held bigint[];
  v_ready bigint[];
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
  WITH born AS (
      INSERT INTO waypost.runs(rid, state, queued_at, item_count, fingerprint{into})
      SELECT v_before + u.place, {state}, p_now, {item_count}, {fingerprint}{values} FROM unnest(p_place{arrays}) u(place{names})
      ON CONFLICT (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
      RETURNING rid, state, seq, queue, priority, available_at, stale_after, claimed_by),
    queued AS (
      INSERT INTO waypost.ready(available_at, rid, seq, priority, state, queue)
      SELECT b.available_at, b.rid, b.seq, b.priority, b.state, b.queue FROM born b WHERE b.state / 1000 = 2),
    watched AS (
      INSERT INTO waypost.watch(due_at, adrift, rids) SELECT b.stale_after, b.claimed_by IS NULL, ARRAY[b.rid] FROM born b WHERE b.state / 1000 = 3)
  SELECT coalesce(array_agg((b.rid - v_before)::int), '{{}}'), array_agg(b.rid) FILTER (WHERE b.state / 1000 = 3),
      array_agg(b.rid) FILTER (WHERE b.state / 1000 = 2)
    INTO v_made, v_held, v_ready FROM born b;
  v_all := cardinality(v_made) = cardinality(p_place);
  INSERT INTO waypost.events(position, rid, seq, at, dst, command, actor, who, effect)
    SELECT v_base + u.place, v_before + u.place, 1, p_now, {state}, {command}, {actor}, {who}, {effect}::json
      FROM unnest(p_place, p_state, p_command, p_actor, p_who, p_effect) u(place, state, command, actor, who, effect)
      WHERE v_all OR u.place = ANY (v_made);
  IF p_items IS NOT NULL THEN
    PERFORM waypost.insert_items(p_items, v_before, v_made);
  END IF;
  PERFORM waypost.save_slots(v_held, NULL);
  RETURN QUERY SELECT v_now, v_known, v_made, v_before, waypost.save_lanes(v_ready, NULL, p_now);
END $$;
",
        state = folded("state"),
        item_count = folded("item_count"),
        fingerprint = folded("fingerprint"),
        command = folded("command"),
        actor = folded("actor"),
        who = folded("who"),
        effect = folded("effect"),
    )
}
