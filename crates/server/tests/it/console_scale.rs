//! What a page costs does not grow with the table: rows that its statements visit on PostgreSQL, steps of SQLite's machine, with few runs and
//! with many more; one of them has many events, another one many targets. PostgreSQL's planner
//! is left alone: a page that reads a table whole is seen by the rows that it visits. `./scripts/soak console-scale` does it with a million.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, json};
use waypost_kernel::Span;
use waypost_kernel::request::Level;
use waypost_server::Options;
use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_store::sqlite::{SqliteStore, count_steps, steps};
use waypost_store::{
    AddTargets, Claim, CommandWrite, DEFAULT_TENANT, Database, End, FinishWrite, Held, MOST_TARGETS, NewRun,
    NewTarget, NoteWrite, Repeat, Store, TargetResult, Tried, WorkTargets,
};
use waypost_testkit::Postgres;
use waypost_worker::Stage;

use crate::console::Person;
use crate::support::Server;

const BATCH: usize = 500;
const BY: &str = "scale";
const MOST_BYTES: usize = 300_000;
const LOOKS: usize = 9;
/// A page that is there within a moment is there within a moment.
const MOMENT: Duration = Duration::from_millis(5);

/// A page that was not full has some rows more, and a page's statements differ a little in how they are planned.
const FEW_ROWS: u64 = 500;

#[derive(Clone, Copy, Debug)]
struct Size {
    runs: usize,
    events: usize,
    targets: usize,
    /// Writes by which the targets come in, and twice as many by which they are worked: as many at any size, so that each is about more of them.
    writes: usize,
}

/// As many as the environment says: a million in the soak. All are more than a page reads of any: what it reads at most is not growth.
fn sizes() -> [Size; 2] {
    let runs: Option<usize> = std::env::var("WAYPOST_RUNS").ok().and_then(|runs| runs.parse().ok());
    let size =
        |runs: usize, events: usize, targets: usize, writes: usize| Size { runs, events, targets, writes };
    match runs {
        Some(runs) => {
            let writes = (runs / 10).div_ceil(MOST_TARGETS);
            [size(1_990, 1_200, 1_200, writes), size(runs, runs / 10, runs / 10, writes)]
        }
        None => [size(500, 1_200, 1_200, 12), size(4_000, 5_000, 12_000, 12)],
    }
}

/// Fewer runs are read for charts than there are at any size, as it is with a million: the same part of what may be read.
fn options() -> Options {
    match is_long() {
        true => Options::default(),
        false => Options { sampled_runs: 260, ..Options::default() },
    }
}

fn is_long() -> bool {
    std::env::var("WAYPOST_RUNS").is_ok()
}

/// Settled runs, as most are; one with events, one with targets. Gives the ids of these two. The only run of its lifecycle is the oldest of
/// all: who looks for it from the newest on would read every run.
async fn fill(store: &dyn Database, size: Size) -> [String; 2] {
    let targets = with_targets(store, size).await;
    // As many writes at any size: runs that came in by one write have one number on PostgreSQL.
    let each = size.runs.div_ceil(if is_long() { 2_000 } else { 500 }).min(BATCH);
    for from in (0..size.runs).step_by(each) {
        let count = each.min(size.runs - from);
        let new = |_| NewRun {
            lifecycle: "deploy".into(),
            title: Some("a deploy".into()),
            by: BY.into(),
            ..NewRun::default()
        };
        store.enqueue((0..count).map(new).collect()).await.unwrap();
        let claim = Claim {
            worker: BY.into(),
            queues: vec!["default".into()],
            limit: count,
            start: true,
            ..Claim::default()
        };
        let claimed = store.claim(claim).await.unwrap();
        assert_eq!(claimed.len(), count);
        let finish = |(at, claimed): (usize, &waypost_store::Claimed)| FinishWrite {
            run_id: claimed.run.id().to_owned(),
            token: Some(claimed.token),
            by: BY.into(),
            status: if (from + at) % 10 == 0 { "failed" } else { "success" }.into(),
            ..FinishWrite::default()
        };
        store.finish(claimed.iter().enumerate().map(finish).collect()).await.unwrap();
    }
    // What reminds the sweeper of leases goes when these would have ended.
    store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
    while store.sweep(BY.into(), 10_000).await.unwrap().more {}
    [with_events(store, size.events).await, targets]
}

async fn with_events(store: &dyn Store, count: usize) -> String {
    let new = NewRun {
        lifecycle: "deploy".into(),
        title: Some("many events".into()),
        by: BY.into(),
        ..NewRun::default()
    };
    let id = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned();
    let claimed = store.claim_run(id.clone(), BY.into()).await.unwrap();
    for from in (0..count).step_by(BATCH) {
        let note = |number: usize| NoteWrite {
            held: Held { run_id: id.clone(), token: claimed.token },
            by: BY.into(),
            level: Level::Info,
            message: format!("event {number}"),
            payload: json!({ "lines": [["out", format!("line {number}")]] }),
            repeat: Repeat::Never,
            metadata: Map::new(),
            details: Map::new(),
        };
        let written = store.note((from..count.min(from + BATCH)).map(note).collect()).await.unwrap();
        written.into_iter().for_each(|noted| drop(noted.unwrap()));
    }
    id
}

async fn with_targets(store: &dyn Store, Size { targets: count, writes, .. }: Size) -> String {
    let each = count.div_ceil(writes);
    let new = NewRun {
        lifecycle: "rule".into(),
        title: Some("many targets".into()),
        by: BY.into(),
        ..NewRun::default()
    };
    let run_id = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned();
    for at in (0..count).step_by(each) {
        let end = count.min(at + each);
        let target = |number: usize| NewTarget {
            key: format!("target-{number:06}"),
            before: json!(1_000),
            after: json!(900),
            ..NewTarget::default()
        };
        let write = AddTargets {
            tenant: DEFAULT_TENANT.into(),
            run_id: run_id.clone(),
            by: BY.into(),
            at: at as u64,
            rows: (end - at) as u64,
            targets: (at..end).map(target).collect(),
            last: end == count,
            ..AddTargets::default()
        };
        store.add_targets(write).await.unwrap();
    }
    let queue = CommandWrite {
        tenant: DEFAULT_TENANT.into(),
        run_id: run_id.clone(),
        name: "queue".into(),
        by: BY.into(),
        ..CommandWrite::default()
    };
    store.command(queue).await.unwrap();
    let claimed = store.claim_run(run_id.clone(), BY.into()).await.unwrap();
    let mut results = Vec::new();
    loop {
        let write = WorkTargets {
            held: Held { run_id: run_id.clone(), token: claimed.token },
            by: BY.into(),
            results: std::mem::take(&mut results),
            take: each / 2,
            give_up_after: Span::from_seconds(3_600),
            end: End::WhenDone,
        };
        let done = store.work_targets(write).await.unwrap();
        if done.ended.is_some() {
            return run_id;
        }
        let tried = |it: waypost_store::ItemRow| TargetResult {
            key: it.key,
            try_no: it.try_no,
            tried: Tried::Applied,
            output: None,
        };
        results = done.taken.into_iter().map(tried).collect();
    }
}

/// A database, and how often its rows were visited so far.
enum Base {
    Sqlite(tempfile::TempDir),
    Postgres(Postgres),
}

impl Base {
    async fn open(&self) -> Arc<dyn Database> {
        match self {
            Base::Sqlite(folder) => Arc::new(SqliteStore::open(&folder.path().join("waypost.db")).unwrap()),
            Base::Postgres(server) => Arc::new(PostgresStore::open(&server.url()).await.unwrap()),
        }
    }

    /// Of PostgreSQL what its connections have told when they ended.
    async fn visited(&self) -> u64 {
        let Base::Postgres(server) = self else { return steps() };
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        while server.psql(others).unwrap().trim() != "0" {
            tokio::task::yield_now().await;
        }
        let rows = "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)";
        server.psql(rows).unwrap().trim().parse().unwrap()
    }
}

struct Cost {
    visited: u64,
    bytes: usize,
}

/// What a page costs a server that has just been started.
async fn cost(base: &Base, path: &str) -> Cost {
    let before = base.visited().await;
    let server = Server::with(base.open().await, Box::new(()) as Box<dyn Any + Send + Sync>, options()).await;
    let page = Person::at(&server, "").get(path).await;
    assert_eq!(page.status, 200, "{path}: {}", page.text);
    let bytes = page.text.len();
    assert!(bytes < MOST_BYTES, "{path} has {bytes} bytes");
    close(server).await;
    Cost { visited: base.visited().await - before, bytes }
}

/// How soon each page is there with many runs, as a multiple of how soon it is with few: medians of looks at both in turn, so that
/// what else the machine does slows both.
async fn slowness(bases: &[(Base, Vec<(String, String)>)]) -> BTreeMap<String, (Duration, Duration)> {
    let mut servers = Vec::new();
    for (base, _) in bases {
        let lives = Box::new(()) as Box<dyn Any + Send + Sync>;
        servers.push(Server::with(base.open().await, lives, options()).await);
    }
    let mut found = BTreeMap::new();
    let [(_, few), (_, many)] = bases else { unreachable!("two sizes") };
    // Beside other tests that take all of the machine, what is there within a few moments differs by as much: only the pages of large runs are timed then.
    let is_timed = |what: &str| is_long() || what.contains(": ");
    for ((what, of_few), (_, of_many)) in few.iter().zip(many).filter(|((what, _), _)| is_timed(what)) {
        let mut looks = [Vec::new(), Vec::new()];
        for _ in 0..LOOKS {
            for (at, path) in [of_few, of_many].into_iter().enumerate() {
                looks[at].push(timed(&Person::at(&servers[at], ""), path).await);
            }
        }
        let [few, many] = looks.map(|mut looks| {
            looks.sort();
            looks[LOOKS / 2]
        });
        found.insert(what.clone(), (few, many));
    }
    for server in servers {
        close(server).await;
    }
    found
}

async fn timed(person: &Person<'_>, path: &str) -> Duration {
    let begun = Instant::now();
    person.get(path).await;
    begun.elapsed()
}

async fn close(server: Server) {
    let Server { stage, serving, .. } = server;
    stage.send_replace(Stage::Now);
    serving.await.unwrap();
}

fn pages([events, targets]: &[String; 2]) -> Vec<(String, String)> {
    let lists = waypost_server::console_paths().filter(|path| !path.contains('{') && *path != "/sign-in");
    let lists = lists.map(|path| (path.to_owned(), path.to_owned()));
    let filtered = ["status:failed", "lifecycle:deploy", "lifecycle:rule", "queue:default"].into_iter();
    let filtered = filtered
        .map(|filter| format!("/runs?filter={}", filter.replace(':', "%3A")))
        .map(|path| (path.clone(), path));
    let tabs = ["log", "timeline", "items", "targets", "events", "data", "lease"];
    let of = |what: &'static str, id: &str| {
        let id = id.to_owned();
        tabs.map(move |tab| (format!("{what} {tab}"), format!("/runs/{id}?tab={tab}")))
    };
    lists.chain(filtered).chain(of("events:", events)).chain(of("targets:", targets)).collect()
}

async fn does_not_grow(name: &str, base: impl Fn() -> Base) {
    let mut found: Vec<BTreeMap<String, Cost>> = Vec::new();
    let mut bases = Vec::new();
    let sizes = sizes();
    for size in sizes {
        let base = base();
        let store = base.open().await;
        let begun = Instant::now();
        let ids = fill(&*store, size).await;
        println!("{name}: {size:?}, filled in {} s", begun.elapsed().as_secs());
        drop(store);
        if let Base::Postgres(server) = &base {
            // What was written over is not read.
            server.psql("VACUUM ANALYZE").unwrap();
        }
        let mut costs = BTreeMap::new();
        let pages = pages(&ids);
        for (what, path) in &pages {
            costs.insert(what.clone(), cost(&base, path).await);
        }
        found.push(costs);
        bases.push((base, pages));
    }
    let grown = grown(name, &found, &slowness(&bases).await);
    assert!(grown.is_empty(), "{name}: what these pages cost grows with the table\n{}", grown.join("\n"));
}

/// Pages that cost more than they may, with a line for every page.
fn grown(
    name: &str,
    found: &[BTreeMap<String, Cost>],
    soon: &BTreeMap<String, (Duration, Duration)>,
) -> Vec<String> {
    let [small, large] = found else { unreachable!("two sizes") };
    let mut grown = Vec::new();
    println!(
        "{name}: page | visited, with few runs and with all | KB | ms until it is there, with few and with all"
    );
    for (what, large) in large {
        let small = &small[what];
        let (few, many) = soon.get(what).copied().unwrap_or_default();
        println!(
            "{what:<40} {:>9} {:>9} {:>5} {:>6.1} {:>6.1}",
            small.visited,
            large.visited,
            large.bytes / 1_000,
            few.as_secs_f64() * 1e3,
            many.as_secs_f64() * 1e3,
        );
        if many > 2 * few + MOMENT {
            grown.push(format!("{what}: there after {few:?}, then after {many:?}"));
        }
        if large.visited > small.visited + small.visited / 4 + FEW_ROWS {
            grown.push(format!("{what}: {} rows, then {}", small.visited, large.visited));
        }
    }
    grown
}

#[tokio::test(flavor = "multi_thread")]
async fn what_pages_visit_does_not_grow_with_the_table() {
    count_steps();
    does_not_grow("SQLite", || Base::Sqlite(tempfile::tempdir().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_pages_visit_does_not_grow_with_the_table_on_postgres() {
    does_not_grow("PostgreSQL", || Base::Postgres(Postgres::with_schema(&migration_sql()).unwrap())).await;
}
