//! The tables as they are in the end, read with SQL and nothing of the store's.

use rusqlite::Connection;
use serde_json::Value;

use super::record::{EventRow, ItemRow, RunRow, Tables};
use super::stage::Stage;

const POSTGRES_RUNS: &str = "SELECT to_json(t) FROM (SELECT run_id, lifecycle, status, queue, priority, seq, fence, concurrency_key, idempotency_key, \
    parent_run_id FROM waypost.board) t";
const POSTGRES_EVENTS: &str = "SELECT to_json(t) FROM (SELECT e.position, r.run_id, e.seq, floor(extract(epoch FROM e.at) * 1000)::bigint AS at_ms, e.command, \
    f.state AS \"from\", s.state AS \"to\", e.actor, e.who AS \"by\", e.message FROM waypost.log e JOIN waypost.runs r ON r.rid = e.rid \
    JOIN waypost.lifecycle_states s ON s.code = e.dst LEFT JOIN waypost.lifecycle_states f ON f.code = e.src ORDER BY e.position) t";
const POSTGRES_ITEMS: &str = "SELECT to_json(t) FROM (SELECT r.run_id, i.key, i.status FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid) t";
/// What counts in `ready` and `blocked` is a row whose run has not moved on.
const POSTGRES_LEFT: &str = "SELECT to_json(t) FROM (SELECT 'ready' AS name, r.run_id FROM waypost.ready w JOIN waypost.runs r ON r.rid = w.rid AND r.seq = w.seq \
    UNION ALL SELECT 'blocked', r.run_id FROM waypost.blocked w JOIN waypost.runs r ON r.rid = w.rid AND r.seq = w.seq \
    UNION ALL SELECT 'holders of ' || h.name, r.run_id FROM waypost.holders h JOIN waypost.runs r ON r.rid = h.rid \
    UNION ALL SELECT 'cancelled_parents', run_id FROM waypost.cancelled_parents) t";

const SQLITE_RUNS: &str = "SELECT json_object('run_id', run_id, 'lifecycle', lifecycle, 'status', status, 'queue', queue, 'priority', priority, 'seq', seq, \
    'fence', fence, 'concurrency_key', concurrency_key, 'idempotency_key', idempotency_key, 'parent_run_id', parent_run_id) FROM runs";
const SQLITE_EVENTS: &str = "SELECT json_object('position', position, 'run_id', run_id, 'seq', seq, 'at_ms', \
    CAST(round((julianday(at) - 2440587.5) * 86400000) AS INTEGER), 'command', command, 'from', \"from\", 'to', \"to\", 'actor', actor, 'by', \"by\", \
    'message', message) FROM events ORDER BY position";
const SQLITE_ITEMS: &str = "SELECT json_object('run_id', run_id, 'key', key, 'status', status) FROM items";
const SQLITE_LEFT: &str = "SELECT json_object('name', 'blocked', 'run_id', run_id) FROM runs WHERE blocked = 1 AND finished_at IS NULL \
    UNION ALL SELECT json_object('name', 'cancelled_parents', 'run_id', run_id) FROM cancelled_parents";

fn text(row: &Value, name: &str) -> String {
    optional(row, name).unwrap_or_else(|| panic!("no {name} in {row}"))
}

fn optional(row: &Value, name: &str) -> Option<String> {
    row[name].as_str().map(str::to_owned)
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

fn run(row: &Value) -> RunRow {
    RunRow {
        run_id: text(row, "run_id"),
        lifecycle: text(row, "lifecycle"),
        status: text(row, "status"),
        queue: text(row, "queue"),
        priority: i16::try_from(row["priority"].as_i64().unwrap()).unwrap(),
        seq: number(row, "seq"),
        fence: number(row, "fence"),
        concurrency_key: optional(row, "concurrency_key"),
        idempotency_key: optional(row, "idempotency_key"),
        parent: optional(row, "parent_run_id"),
    }
}

fn event(row: &Value) -> EventRow {
    EventRow {
        position: number(row, "position"),
        run_id: text(row, "run_id"),
        seq: number(row, "seq"),
        at_ms: number(row, "at_ms"),
        command: text(row, "command"),
        from: optional(row, "from"),
        to: text(row, "to"),
        actor: text(row, "actor"),
        by: text(row, "by"),
        message: optional(row, "message"),
    }
}

fn item(row: &Value) -> ItemRow {
    ItemRow { run_id: text(row, "run_id"), key: text(row, "key"), status: text(row, "status") }
}

/// Each row is an object.
fn rows(stage: &Stage, on_postgres: &str, on_sqlite: &str) -> Vec<Value> {
    if let Some(cluster) = &stage.cluster {
        let lines = cluster.psql(on_postgres).unwrap();
        return lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    }
    let connection = Connection::open(stage.shop.database()).unwrap();
    let mut statement = connection.prepare(on_sqlite).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|row| serde_json::from_str(&row.unwrap()).unwrap()).collect()
}

pub fn read(stage: &Stage) -> Tables {
    let left = rows(stage, POSTGRES_LEFT, SQLITE_LEFT);
    Tables {
        runs: rows(stage, POSTGRES_RUNS, SQLITE_RUNS).iter().map(run).collect(),
        events: rows(stage, POSTGRES_EVENTS, SQLITE_EVENTS).iter().map(event).collect(),
        items: rows(stage, POSTGRES_ITEMS, SQLITE_ITEMS).iter().map(item).collect(),
        left_over: left.iter().map(|row| (text(row, "name"), text(row, "run_id"))).collect(),
    }
}
