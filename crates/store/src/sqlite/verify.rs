//! Replays every run's log and compares it with its row and its items.

use rusqlite::params;

use crate::engine::{self, Stored};
use crate::rules::replay::Replay;
use crate::seam::verbs::{HOUSEKEEPING, Verified};
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::open;
use crate::sqlite::link::session::Tx;
use crate::sqlite::log;
use crate::sqlite::primitives::ready;
use crate::sqlite::row::{self, BOTH};

const PAGE: usize = 500;
/// Of one run's log and of its items, at once: an event may have moved hundreds of items.
const EVENTS: usize = 32;
const ITEMS: usize = 1_000;

pub fn verify(tx: &Tx<'_>, progress: &dyn Fn(u64, u64)) -> Result<Verified> {
    let total: u64 = tx.conn.query_row("SELECT count(*) FROM run_born", [], |row| row.get(0))?;
    let mut verified = Verified::default();
    let mut after = 0;
    loop {
        let from = format!("{BOTH} WHERE n.rid > ?1 ORDER BY n.rid LIMIT ?2");
        let page = row::select_with_unread(tx, &from, params![after, PAGE as i64])?;
        let Some((last, _)) = page.last() else { break };
        after = last.rid;
        for (stored, unread) in &page {
            let differs = unread.iter().map(|line| format!("{}: {line}", stored.row.id()));
            verified.differences.extend(differs);
            one(tx, stored, &mut verified)?;
            verified.runs += 1;
            verified.housekeeping += u64::from(stored.row.queue == HOUSEKEEPING);
        }
        progress(verified.runs, total);
    }
    let unread = total.saturating_sub(verified.runs);
    if unread > 0 {
        verified.differences.push(format!("{unread} runs have a lifecycle that this binary cannot read"));
    }
    for sql in BESIDE {
        let mut statement = tx.conn.prepare(sql)?;
        let lines = statement.query_map([], |row| row.get(0))?;
        verified.differences.extend(lines.collect::<rusqlite::Result<Vec<String>>>()?);
    }
    verified.unguarded = open::guards_amiss(tx.conn)?.into_iter().map(|it| format!("guard {it}")).collect();
    verified.differences.extend(ready(engine::unsound(&mut tx.engine()))?);
    Ok(verified)
}

/// Each gives a line for what is wrong, at most as many as people look at. A run's log is read from its last event back: what does not hang
/// on that is found here.
const BESIDE: &[&str] = &[
    "SELECT coalesce(b.run_id, 'run number ' || e.rid || ' is not there') || ': ' || (count(*) + count(e.via)) || ' events after the first are in the log' \
       || coalesce(', its row counts ' || (n.seq - 1), '') FROM run_events e LEFT JOIN run_now n ON n.rid = e.rid LEFT JOIN run_born b ON b.rid = e.rid \
     GROUP BY e.rid HAVING n.seq IS NULL OR b.rid IS NULL OR count(*) + count(e.via) <> n.seq - 1 LIMIT 1000",
    "SELECT b.run_id || ': its first event is in the log, and its row is not there' FROM run_born b WHERE b.rid NOT IN (SELECT rid FROM run_now) LIMIT 1000",
    "SELECT 'run number ' || n.rid || ': its row is there, and its first event is not in the log' FROM run_now n \
     WHERE n.rid NOT IN (SELECT rid FROM run_born) LIMIT 1000",
    "SELECT i.run_id || ': the run is not there, and its ' || i.kind || ' ' || i.key || ' is' FROM items i \
     WHERE NOT EXISTS (SELECT 1 FROM run_born b WHERE b.run_id = i.run_id) LIMIT 1000",
    // A step that its run was born with and that had ended by then is what it was in the run that is repeated, as long as that is there.
    "SELECT i.run_id || ': ' || i.kind || ' ' || i.key || ' was ' || i.status || ' from the beginning, and is no copy of one in ' \
       || coalesce(b.retry_of, 'another run') FROM items i CROSS JOIN run_born b ON b.run_id = i.run_id CROSS JOIN lifecycle_states s \
       ON s.lifecycle = i.kind AND s.version = i.version AND s.state = i.status \
     WHERE i.seq = 1 AND NOT s.initial AND (b.retry_of IS NULL OR EXISTS (SELECT 1 FROM run_born o JOIN run_now n ON n.rid = o.rid \
       WHERE o.run_id = b.retry_of AND n.finished_at <= b.at)) AND NOT EXISTS (SELECT 1 FROM items c WHERE c.run_id = b.retry_of AND c.kind = i.kind \
       AND c.key = i.key AND c.status = i.status AND coalesce(c.output, 'null') = coalesce(i.output, 'null')) LIMIT 1000",
    // Steps of the same name in another playbook are other steps.
    "SELECT i.run_id || ': ' || i.kind || ' ' || i.key || ' was ' || i.status || ' from the beginning, and ' || o.run_id || ' is a run of another playbook or lifecycle' \
     FROM items i CROSS JOIN lifecycle_states s ON s.lifecycle = i.kind AND s.version = i.version AND s.state = i.status \
       CROSS JOIN run_born b ON b.run_id = i.run_id CROSS JOIN run_now n ON n.rid = b.rid CROSS JOIN state_codes t ON t.code = n.state \
       CROSS JOIN run_born o ON o.run_id = b.retry_of CROSS JOIN run_now m ON m.rid = o.rid CROSS JOIN state_codes u ON u.code = m.state \
     WHERE i.seq = 1 AND NOT s.initial AND (b.playbook IS NOT o.playbook OR b.tenant <> o.tenant OR t.lifecycle <> u.lifecycle) LIMIT 1000",
    // What runs are judged by, in numbers.
    "SELECT 'runs may go from ' || coalesce(s.lifecycle || ' ' || s.state, 'nowhere') || ' to ' || coalesce(d.state, 'nowhere') || ', which is no move (steps ' || k.step || ')' \
     FROM steps k LEFT JOIN state_codes s ON s.code = k.step / 4194304 LEFT JOIN state_codes d ON d.code = k.step / 4 % 1048576 \
     WHERE NOT coalesce(s.code = d.code AND s.phase <> 'settled', false) AND NOT EXISTS (SELECT 1 FROM lifecycle_moves m WHERE m.lifecycle = s.lifecycle \
       AND m.version = s.version AND m.src = s.state AND d.lifecycle = s.lifecycle AND d.version = s.version AND m.dst = d.state AND m.guards = 0 AND m.events <= k.step % 4) LIMIT 1000",
    "SELECT 'state ' || c.code || ' (' || c.lifecycle || ' ' || c.state || ') is not what its lifecycle says' FROM state_codes c \
     WHERE NOT EXISTS (SELECT 1 FROM lifecycle_states s WHERE s.lifecycle = c.lifecycle AND s.version = c.version AND s.state = c.state AND s.phase = c.phase \
       AND s.initial = c.initial AND c.code & 7 = CASE s.phase WHEN 'draft' THEN 0 WHEN 'ready' THEN 1 WHEN 'held' THEN 2 WHEN 'parked' THEN 3 ELSE 4 END) LIMIT 1000",
    "SELECT 'runs may begin in state ' || t.code || ', where no lifecycle does' FROM starts t \
     WHERE NOT EXISTS (SELECT 1 FROM state_codes c WHERE c.code = t.code AND c.initial) LIMIT 1000",
    "SELECT 'execution ' || strftime('%Y-%m-%dT%H:%M:%SZ', x.plan_time / 1000.0, 'unixepoch') || ' of ' || x.schedule || ' has run ' || x.run_id \
       || ', which is not there' FROM executions x WHERE x.run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run_born b WHERE b.run_id = x.run_id) LIMIT 1000",
];

fn one(tx: &Tx<'_>, stored: &Stored, verified: &mut Verified) -> Result<()> {
    let row = &stored.row;
    let mut replay = Replay::new(&row.lifecycle, row.id());
    let mut after_seq = 0;
    loop {
        let page = log::page(tx, stored, after_seq, EVENTS)?;
        for written in &page {
            verified.events += 1;
            after_seq = after_seq.max(written.seq);
            replay.add(written);
        }
        if page.len() < EVENTS {
            break;
        }
    }
    let (mut kind, mut key) = (String::new(), String::new());
    loop {
        let condition = "WHERE run_id = ?1 AND (kind, key) > (?2, ?3) ORDER BY kind, key LIMIT ?4";
        let page = row::items(tx, stored, condition, params![row.id(), kind, key, ITEMS as i64])?;
        if let Some(last) = page.last() {
            (kind, key) = (last.row.kind.clone(), last.row.key.clone());
        }
        let count = page.len();
        let items: Vec<_> = page.into_iter().map(|found| found.item).collect();
        replay.compare(&items);
        if count < ITEMS {
            break;
        }
    }
    verified.differences.extend(replay.differences(row));
    Ok(())
}
