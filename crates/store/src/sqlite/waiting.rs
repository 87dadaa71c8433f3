//! What is around runs that wait. A default tenant is the empty text in `run_now`.

use crate::engine::WaitTx;
use crate::sqlite::primitives::Primitives;

impl WaitTx for Primitives<'_, '_> {
    const HELD_IN_QUEUES: &'static str = "SELECT b.tenant, n.queue, b.run_id FROM run_now n INDEXED BY run_held CROSS JOIN run_born b ON b.rid = n.rid \
      WHERE n.state & 7 = 2 AND n.claimed_by IS NOT NULL AND n.queue = ANY ($1) ORDER BY n.rid LIMIT 10000";
    const HELD_WITH_KEYS: &'static str = "SELECT b.tenant, n.concurrency_key, b.run_id FROM run_now n INDEXED BY run_keyed CROSS JOIN run_born b ON b.rid = n.rid \
      WHERE n.state & 7 = 2 AND n.blocked IN (0, 1) AND n.concurrency_key = ANY ($1) AND n.finished_at IS NULL ORDER BY n.rid LIMIT 10000";
    const WORKED_WITH_KEYS: &'static str = "SELECT b.tenant, n.concurrency_key, b.run_id FROM run_now n INDEXED BY run_keyed CROSS JOIN run_born b ON b.rid = n.rid \
      WHERE n.state & 7 = 2 AND n.blocked IN (0, 1) AND n.concurrency_key = ANY ($1) AND n.finished_at IS NULL AND n.claimed_by IS NOT NULL \
      ORDER BY n.rid LIMIT 10000";
    const HELD_BY: &'static str = "SELECT claimed_by, count(*), min(due_at) FROM run_now INDEXED BY run_held WHERE state & 7 = 2 AND claimed_by IS NOT NULL GROUP BY claimed_by";
    const BRINGING: &'static str =
        "SELECT b.run_id FROM @ids($1) CROSS JOIN run_born b ON b.run_id = i.id WHERE b.carried IS NOT NULL";
    const DETAILS: &'static str = "SELECT b.run_id, coalesce(n.details, b.details, '{}') FROM @ids($1) CROSS JOIN run_born b ON b.run_id = i.id \
        CROSS JOIN run_now n ON n.rid = b.rid";
    const BEFORE: &'static str = "SELECT b.run_id, (SELECT count(*) FROM ( \
          SELECT o.concurrency_key AS name, row_number() OVER (PARTITION BY o.concurrency_key ORDER BY o.priority DESC, o.due_at, o.rid) AS nth FROM ( \
            SELECT * FROM (SELECT o.concurrency_key, o.priority, o.due_at, o.rid FROM run_now o INDEXED BY run_ready WHERE n.state & 7 = 1 AND o.state & 7 = 1 \
              AND o.blocked = 0 AND o.queue = n.queue AND o.priority > n.priority AND o.tenant = n.tenant AND o.due_at <= $2 LIMIT $3) \
            UNION ALL SELECT * FROM (SELECT o.concurrency_key, o.priority, o.due_at, o.rid FROM run_now o INDEXED BY run_ready WHERE n.state & 7 = 1 AND o.state & 7 = 1 \
              AND o.blocked = 0 AND o.queue = n.queue AND o.priority = n.priority AND o.tenant = n.tenant AND o.due_at <= n.due_at \
              AND (o.due_at < n.due_at OR o.rid < n.rid) LIMIT $3)) o) q \
          WHERE q.name IS NULL OR q.nth <= coalesce((SELECT l.at_most FROM key_limits l WHERE l.name = q.name AND l.tenant = b.tenant), 1) \
            - (SELECT count(*) FROM run_now h INDEXED BY run_keyed WHERE h.state & 7 = 2 AND h.blocked IN (0, 1) AND h.concurrency_key = q.name \
              AND h.tenant = n.tenant AND h.finished_at IS NULL)) \
        + (SELECT count(*) FROM (SELECT 1 FROM run_now o INDEXED BY run_held WHERE o.state & 7 = 2 AND o.claimed_by IS NULL \
           AND o.due_at BETWEEN $2 - 86400000 AND $2 AND o.queue = n.queue AND o.tenant = n.tenant \
           AND (n.state & 7 = 1 OR (o.due_at, o.rid) < (n.due_at, n.rid)) LIMIT $3)) \
      FROM @ids($1) CROSS JOIN run_born b ON b.run_id = i.id CROSS JOIN run_now n ON n.rid = b.rid";
    const BEFORE_WITH_KEY: &'static str = "SELECT b.run_id, (SELECT count(*) FROM (SELECT 1 FROM run_now o INDEXED BY run_keyed \
        WHERE n.state & 7 = 1 AND o.state & 7 = 1 AND o.blocked IN (0, 1) AND o.concurrency_key = n.concurrency_key AND o.tenant = n.tenant \
          AND o.finished_at IS NULL AND o.due_at <= $2 AND (o.priority > n.priority OR o.priority = n.priority AND (o.due_at, o.rid) < (n.due_at, n.rid)) LIMIT $3)) \
      FROM @ids($1) CROSS JOIN run_born b ON b.run_id = i.id CROSS JOIN run_now n ON n.rid = b.rid";
    const KEYS: &'static str = "SELECT iif(tenant = '', 'default', tenant), name FROM ( \
        SELECT * FROM (SELECT DISTINCT concurrency_key AS name, tenant FROM run_now INDEXED BY run_keyed WHERE finished_at IS NULL AND concurrency_key IS NOT NULL \
          AND state & 7 = 2 AND blocked = 0 AND (concurrency_key, tenant) > ($1, iif($2 = 'default', '', $2)) AND ($3 IS NULL OR tenant = iif($3 = 'default', '', $3)) \
          ORDER BY concurrency_key, tenant LIMIT $4) \
        UNION SELECT * FROM (SELECT DISTINCT concurrency_key, tenant FROM run_now INDEXED BY run_keyed WHERE finished_at IS NULL AND concurrency_key IS NOT NULL \
          AND state & 7 = 2 AND blocked = 1 AND (concurrency_key, tenant) > ($1, iif($2 = 'default', '', $2)) AND ($3 IS NULL OR tenant = iif($3 = 'default', '', $3)) \
          ORDER BY concurrency_key, tenant LIMIT $4) \
        UNION SELECT name, iif(tenant = 'default', '', tenant) AS tenant FROM key_limits \
          WHERE (name, iif(tenant = 'default', '', tenant)) > ($1, iif($2 = 'default', '', $2)) AND ($3 IS NULL OR tenant = $3)) \
      ORDER BY name, tenant LIMIT $4";
    const WAITING_WITH_KEYS: &'static str = "SELECT iif(tenant = '', 'default', tenant), concurrency_key, count(*) FROM ( \
        SELECT tenant, concurrency_key FROM run_now INDEXED BY run_keyed WHERE finished_at IS NULL AND concurrency_key IS NOT NULL AND state & 7 = 1 \
          AND blocked IN (0, 1) AND concurrency_key = ANY ($1) AND due_at <= $2 LIMIT 10000) GROUP BY tenant, concurrency_key";
    const MOVED: &'static str = "WITH RECURSIVE back(run_id, born, position) AS ( \
        SELECT b.run_id, b.at, n.last FROM @ids($1) CROSS JOIN run_born b ON b.run_id = i.id CROSS JOIN run_now n ON n.rid = b.rid \
        UNION ALL SELECT k.run_id, k.born, e.prev FROM back k CROSS JOIN run_events e ON e.position = k.position WHERE e.src = e.dst) \
      SELECT k.run_id, coalesce(e.at, k.born) FROM back k LEFT JOIN run_events e ON e.position = k.position WHERE k.position IS NULL OR e.src <> e.dst";
    const RELEASED: &'static str = "WITH RECURSIVE back(run_id, position) AS ( \
        SELECT b.run_id, n.last FROM @ids($1) CROSS JOIN run_born b ON b.run_id = i.id CROSS JOIN run_now n ON n.rid = b.rid \
        UNION ALL SELECT k.run_id, e.prev FROM back k CROSS JOIN run_events e ON e.position = k.position WHERE e.command <> 'release') \
      SELECT k.run_id, e.at FROM back k CROSS JOIN run_events e ON e.position = k.position WHERE e.command = 'release'";
}
