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
-- (`won` is null). Gives the places of those that were written (from 1), and where the positions of their events count from.
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
          metadata = CASE WHEN u.metadata IS NULL THEN r.metadata ELSE r.metadata || u.metadata::jsonb END,
          details = CASE WHEN u.details IS NULL THEN r.details ELSE waypost.patched(r.details, u.details::jsonb) END
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
    DELETE FROM waypost.ready w WHERE w.ctid = ANY (p_entries::tid[]);
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
