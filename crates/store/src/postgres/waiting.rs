//! What is around runs that wait.

use crate::engine::WaitTx;
use crate::postgres::tables::PgTx;

impl WaitTx for PgTx {
    const HELD_IN_QUEUES: &'static str = "SELECT h.tenant, h.name, r.run_id FROM waypost.holders h JOIN waypost.runs r ON r.rid = h.rid \
      WHERE h.of_queue AND h.name = ANY ($1) ORDER BY h.rid LIMIT 10000";
    const HELD_WITH_KEYS: &'static str = "SELECT h.tenant, h.name, r.run_id FROM waypost.holders h JOIN waypost.runs r ON r.rid = h.rid \
      WHERE NOT h.of_queue AND h.name = ANY ($1) ORDER BY h.rid LIMIT 10000";
    const WORKED_WITH_KEYS: &'static str = "SELECT h.tenant, h.name, r.run_id FROM waypost.holders h JOIN waypost.runs r ON r.rid = h.rid \
      WHERE NOT h.of_queue AND h.name = ANY ($1) AND r.claimed_by IS NOT NULL ORDER BY h.rid LIMIT 10000";
    const HELD_BY: &'static str = "SELECT r.claimed_by, count(*), min(r.stale_after) FROM (SELECT DISTINCT u.rid FROM waypost.watch w CROSS JOIN unnest(w.rids) AS u(rid)) h \
      JOIN waypost.runs r ON r.rid = h.rid WHERE r.state / 1000 = 3 AND r.claimed_by IS NOT NULL GROUP BY r.claimed_by";
    const BRINGING: &'static str =
        "SELECT r.run_id FROM waypost.runs r WHERE r.run_id = ANY ($1) AND r.carried IS NOT NULL";
    const DETAILS: &'static str =
        "SELECT r.run_id, coalesce(r.details, '{}')::text FROM waypost.runs r WHERE r.run_id = ANY ($1)";
    const BEFORE: &'static str = "WITH given_back AS MATERIALIZED (SELECT DISTINCT o.rid, o.queue, o.tenant, o.stale_after \
        FROM waypost.watch w CROSS JOIN unnest(w.rids) AS u(rid) JOIN waypost.runs o ON o.rid = u.rid \
        WHERE o.state / 1000 = 3 AND o.claimed_by IS NULL AND o.stale_after BETWEEN $2::timestamptz - interval '24 hours' AND $2) \
      SELECT r.run_id, (SELECT count(*) FROM ( \
          SELECT a.name, row_number() OVER (PARTITION BY a.name ORDER BY a.priority DESC, a.available_at, a.rid) AS nth FROM ( \
            SELECT o.concurrency_key AS name, q.priority, q.available_at, q.rid FROM waypost.ready q JOIN waypost.runs o ON o.rid = q.rid AND o.seq = q.seq \
            WHERE r.state / 1000 = 2 AND q.queue = r.queue AND q.tenant = r.tenant AND q.available_at <= $2 AND q.priority >= r.priority \
              AND (q.priority > r.priority OR (q.available_at, q.rid) < (r.available_at, r.rid)) LIMIT $3) a) c \
          WHERE c.name IS NULL OR c.nth <= coalesce((SELECT l.at_most FROM waypost.key_limits l WHERE l.name = c.name AND l.tenant = r.tenant), 1) \
            - (SELECT count(*) FROM waypost.holders h WHERE NOT h.of_queue AND h.name = c.name AND h.tenant = r.tenant)) \
        + (SELECT count(*) FROM (SELECT 1 FROM given_back g WHERE g.queue = r.queue AND g.tenant = r.tenant \
          AND (r.state / 1000 = 2 OR (g.stale_after, g.rid) < (r.stale_after, r.rid)) LIMIT $3) c) \
      FROM waypost.runs r WHERE r.run_id = ANY ($1)";
    const BEFORE_WITH_KEY: &'static str = "SELECT r.run_id, (SELECT count(*) FROM (SELECT 1 FROM (\
          SELECT q.rid, q.seq, q.priority, q.available_at FROM waypost.blocked q WHERE q.key = r.concurrency_key AND q.tenant = r.tenant \
          UNION ALL SELECT q.rid, q.seq, q.priority, q.available_at FROM waypost.ready q WHERE q.queue = r.queue AND q.tenant = r.tenant) q \
        JOIN waypost.runs o ON o.rid = q.rid AND o.seq = q.seq \
        WHERE r.state / 1000 = 2 AND o.concurrency_key = r.concurrency_key AND q.available_at <= $2 \
          AND (q.priority > r.priority OR q.priority = r.priority AND (q.available_at, q.rid) < (r.available_at, r.rid)) LIMIT $3) c) \
      FROM waypost.runs r WHERE r.run_id = ANY ($1)";
    const KEYS: &'static str = "SELECT u.tenant, u.name FROM ( \
        (SELECT DISTINCT h.name, h.tenant FROM waypost.holders h WHERE NOT h.of_queue AND (h.name, h.tenant) > ($1, $2) AND ($3 IS NULL OR h.tenant = $3) \
          ORDER BY h.name, h.tenant LIMIT $4) \
        UNION (SELECT l.name, l.tenant FROM waypost.key_limits l WHERE (l.name, l.tenant) > ($1, $2) AND ($3 IS NULL OR l.tenant = $3) \
          ORDER BY l.name, l.tenant LIMIT $4)) u ORDER BY u.name, u.tenant LIMIT $4";
    const WAITING_WITH_KEYS: &'static str = "SELECT r.tenant, r.concurrency_key, count(*) FROM ( \
        (SELECT a.rid, a.seq FROM waypost.blocked a WHERE a.key = ANY ($1) LIMIT 10000) UNION (SELECT q.rid, q.seq FROM waypost.ready q LIMIT 10000)) w \
      JOIN waypost.runs r ON r.rid = w.rid AND r.seq = w.seq WHERE r.concurrency_key = ANY ($1) AND r.available_at <= $2 GROUP BY r.tenant, r.concurrency_key";
    const MOVED: &'static str = "SELECT r.run_id, (SELECT max(e.at) FROM waypost.events e WHERE e.dst = r.state AND e.rid = r.rid AND e.src IS DISTINCT FROM e.dst \
        AND (e.dst < 2000 OR e.dst BETWEEN 4000 AND 4999 OR e.dst >= 6000)) FROM waypost.runs r WHERE r.run_id = ANY ($1)";
    const RELEASED: &'static str = "SELECT r.run_id, (SELECT e.at FROM waypost.events e WHERE e.rid = r.rid AND e.command = 'release' ORDER BY e.seq DESC LIMIT 1) \
      FROM waypost.runs r WHERE r.run_id = ANY ($1)";
}
