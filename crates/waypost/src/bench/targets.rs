//! Targets of bulk changes that do nothing outside, from queued to applied by a worker, and the memory that it takes. Beside it what the store's verbs alone cost.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use waypost_kernel::Span;
use waypost_store::{
    AddTargets, CommandWrite, DEFAULT_TENANT, End, Held, MOST_TARGETS, NewRun, NewTarget, Store,
    TargetResult, Tried, WorkTargets,
};
use waypost_worker::playbook::{Playbook, Playbooks};
use waypost_worker::{Options, Outcome, TargetCall, TargetHandlers, Worker};

use super::{Bench, Pairs, Row, row};
use crate::output::{ERROR, Failed, Result};

const PAIRS: usize = 3;
const BY: &str = "bench";
/// What applies a target: nothing.
const HANDLER: &str = "nothing";
const PLAYBOOK: &str = "name = \"bench-targets\"\nlifecycle = \"rule\"\n[targets]\njsonl = \"none.jsonl\"\n[apply]\nhandler = \"nothing\"\nparallel = 100\n";

pub async fn measure(bench: &Bench, batch: usize, targets: usize) -> Result<Row> {
    let batch = batch.clamp(1, MOST_TARGETS);
    let store = bench.store("targets").await?;
    let mut raw = bench.raw("targets", 1).await?;
    bench.begin("targets", PAIRS + 1);
    // All of them are there before a tenth is worked: SQLite keeps up to 64 MiB of their pages, whoever works them. What a worker takes in memory
    // must not grow with them.
    let mut first = Some(drafted(&store, targets).await?);
    applied(&store, drafted(&store, targets / 10).await?).await?;
    let small = resident_kib();
    bench.bar.inc(1);
    let mut pairs = Pairs::new();
    let (mut gathered, mut queued, mut stored, mut large) = (0.0, 0.0, 0.0, None);
    for _ in 0..PAIRS {
        let draft = match first.take() {
            Some(draft) => draft,
            None => drafted(&store, targets).await?,
        };
        let by_worker = applied(&store, draft).await?;
        // Before raw has done anything: what that keeps in memory is not the worker's.
        large = large.or_else(resident_kib);
        let found = worked(&store, targets, batch).await?;
        let raw = raw.targets(targets, batch).await?;
        (gathered, queued, stored) = (found.gathered, found.queued, found.worked);
        pairs.add(raw, by_worker);
        bench.bar.inc(1);
    }
    let mut found = row("targets", pairs.fields());
    // A target takes the place of a run here.
    for (was, is) in [("runs_per_s", "targets_per_s"), ("raw_runs_per_s", "raw_targets_per_s")] {
        if let Some(rate) = found.remove(was) {
            found.insert(is.into(), rate);
        }
    }
    found.insert("targets".into(), targets.into());
    found.insert("batch".into(), batch.into());
    found.insert("verbs_per_s".into(), json!(stored.round()));
    found.insert("gathered_per_s".into(), json!(gathered.round()));
    found.insert("queued_per_s".into(), json!(queued.round()));
    if let (Some(small), Some(large)) = (small, large) {
        found.insert("rss_mib_tenth".into(), (small / 1_024).into());
        found.insert("rss_mib".into(), (large / 1_024).into());
    }
    Ok(found)
}

/// Targets per second.
struct Rates {
    gathered: f64,
    queued: f64,
    worked: f64,
}

fn per_second(count: usize, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

/// A run whose targets are gathered; how many in a second.
async fn gathered_run(store: &Arc<dyn Store>, new: NewRun, count: usize) -> Result<(String, f64)> {
    let id = match store.enqueue(vec![new]).await?.pop() {
        Some(made) => made?.run.id().to_owned(),
        None => return Err(Failed::new(ERROR, "the run was not made")),
    };
    let start = Instant::now();
    gather(store, &id, count).await?;
    Ok((id, per_second(count, start)))
}

async fn queue(store: &Arc<dyn Store>, id: &str) -> Result<()> {
    let queue = CommandWrite {
        tenant: DEFAULT_TENANT.into(),
        run_id: id.to_owned(),
        name: "queue".into(),
        by: BY.into(),
        ..CommandWrite::default()
    };
    store.command(queue).await?;
    Ok(())
}

fn unusable(problem: String) -> Failed {
    Failed::new(ERROR, problem)
}

/// A run that a worker can apply once it is queued.
struct Draft {
    id: String,
    playbook: Playbook,
    count: usize,
}

async fn drafted(store: &Arc<dyn Store>, count: usize) -> Result<Draft> {
    let catalog = store.lifecycles().await?;
    let playbook = Playbook::of_text(PLAYBOOK, Path::new("bench-targets.toml"), &catalog)
        .map_err(|problems| unusable(problems.to_string()))?;
    let new = playbook.new_run(&catalog, &json!({})).map_err(|problem| unusable(problem.to_string()))?;
    let (id, _) = gathered_run(store, NewRun { by: BY.into(), ..new }, count).await?;
    Ok(Draft { id, playbook, count })
}

/// Targets per second as a worker applies them, with a handler that does nothing.
async fn applied(store: &Arc<dyn Store>, draft: Draft) -> Result<f64> {
    let Draft { id, playbook, count } = draft;
    queue(store, &id).await?;
    let nothing = |_: TargetCall| async { Outcome::done() };
    let options = Options {
        playbooks: Playbooks::default().with(playbook),
        target_handlers: TargetHandlers::default().with(HANDLER, nothing),
        guardian: None,
        ..Options::default()
    };
    let start = Instant::now();
    let summary = Worker::new(store.clone(), options).run_once().await?;
    let rate = per_second(count, start);
    match summary.succeeded {
        1 => Ok(rate),
        _ => Err(unusable(format!("{id} did not end well"))),
    }
}

async fn worked(store: &Arc<dyn Store>, count: usize, batch: usize) -> Result<Rates> {
    let new = NewRun { lifecycle: "rule".into(), by: BY.into(), ..NewRun::default() };
    let (id, gathered) = gathered_run(store, new, count).await?;
    let start = Instant::now();
    queue(store, &id).await?;
    let queued = per_second(count, start);
    let claimed = store.claim_run(id, BY.into()).await?;
    let held = Held { run_id: claimed.run.id().to_owned(), token: claimed.token };
    let start = Instant::now();
    let mut results = Vec::new();
    loop {
        let write = WorkTargets {
            held: held.clone(),
            by: BY.into(),
            results: std::mem::take(&mut results),
            take: batch,
            give_up_after: Span::from_seconds(3_600),
            end: End::WhenDone,
        };
        let done = store.work_targets(write).await?;
        if let Some(row) = done.ended {
            let applied: u32 = done.counts.values().sum();
            return match done.counts.len() == 1 && applied as usize == count {
                true => Ok(Rates { gathered, queued, worked: per_second(count, start) }),
                false => Err(Failed::new(ERROR, format!("the run ended as {}", row.status()))),
            };
        }
        let applied = |it: waypost_store::ItemRow| TargetResult {
            key: it.key,
            try_no: it.try_no,
            tried: Tried::Applied,
            output: None,
        };
        results = done.taken.into_iter().map(applied).collect();
    }
}

async fn gather(store: &Arc<dyn Store>, run_id: &str, count: usize) -> Result<()> {
    let mut at = 0;
    while at < count {
        let rows = MOST_TARGETS.min(count - at);
        let target = |number: usize| NewTarget {
            key: format!("target-{number:06}"),
            before: json!({ "unit_amount": 1_000 }),
            after: json!({ "unit_amount": 900 }),
            ..NewTarget::default()
        };
        let write = AddTargets {
            tenant: DEFAULT_TENANT.into(),
            run_id: run_id.to_owned(),
            by: BY.into(),
            at: at as u64,
            rows: rows as u64,
            targets: (at..at + rows).map(target).collect(),
            last: at + rows == count,
            ..AddTargets::default()
        };
        store.add_targets(write).await?;
        at += rows;
    }
    Ok(())
}

/// What this process has in memory, where the system tells.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
