//! Workers are killed while they work: every run ends, the log agrees, and no process is left behind.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::support::{Process, Running, Shop, eventually, parent};

const WORKERS: usize = 3;
/// So many wait that no worker is idle.
const WAITING: u64 = 12;
const SOON: Duration = Duration::from_secs(30);
/// A lease of 2 s, a sweep each second, and what is left to work.
const DRAINED: Duration = Duration::from_secs(120);

/// Process, guardian, start; then it works, some runs for ever. Each beginning has a file of its own, which is there even if
/// the shell is killed before it has written to it.
const SCRIPT: &str = r#"echo $$ $PPID $(cut -d" " -f22 /proc/$$/stat) >pids/$WAYPOST_RUN_ID.$$; exec sleep "#;

/// `./scripts/soak kill-workers` asks for more.
fn kills() -> usize {
    std::env::var("WAYPOST_KILLS").map_or(20, |text| text.parse().unwrap())
}

/// The same numbers each time; which run they meet is up to the machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

struct Site {
    shop: Shop,
    workers: Vec<Running>,
    queued: usize,
}

impl Site {
    /// With the demo's lifecycle: who is killed between claim and start leaves a claim of 2 s, not of 5 min.
    async fn open(shop: Shop) -> Site {
        fs::create_dir(shop.path("pids")).unwrap();
        shop.ok(&["run", "list"]);
        let store = shop.store().await;
        store
            .add_lifecycle(include_str!("../../src/demo/demo.toml").to_owned(), "tests".into())
            .await
            .unwrap();
        let mut site = Site { shop, workers: Vec::new(), queued: 0 };
        site.workers = (0..WORKERS).map(|_| site.worker()).collect();
        site
    }

    fn worker(&self) -> Running {
        self.shop.spawn(&["worker", "--allow-commands", "--lease", "2s", "--slots", "2", "--grace", "1s"])
    }

    fn top_up(&mut self) {
        let stats = self.shop.json(&["queue", "stats"]);
        let waiting = stats.get(0).and_then(|queue| queue["ready"].as_u64()).unwrap_or(0);
        for _ in waiting..WAITING {
            let seconds = if self.queued.is_multiple_of(5) { "600" } else { "0.3" };
            self.shop.queue(&["--lifecycle", "demo"], &format!("{SCRIPT}{seconds}"));
            self.queued += 1;
        }
    }

    /// All processes that runs were, each with its worker's number if that is still alive.
    fn processes(&self) -> Vec<(Process, Option<u32>)> {
        let files = fs::read_dir(self.shop.path("pids")).unwrap().map(|file| file.unwrap().path());
        let texts: Vec<String> = files.map(|file| fs::read_to_string(file).unwrap()).collect();
        let mut found = Vec::new();
        // A line without its end is still being written.
        for line in texts.iter().flat_map(|text| text.split_inclusive('\n')).filter(|it| it.ends_with('\n')) {
            let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
            let process = Process { pid: numbers[0] as u32, started: numbers[2] };
            found.push((process, parent(numbers[1] as u32)));
        }
        found
    }

    fn at_work_for(&self, worker: u32) -> Vec<Process> {
        let own = |(process, of): (Process, Option<u32>)| {
            (of == Some(worker) && process.is_alive()).then_some(process)
        };
        self.processes().into_iter().filter_map(own).collect()
    }

    /// SIGKILL while it has runs under way; what they started is gone soon, though it would sleep on.
    fn kill(&mut self, victim: usize) -> usize {
        let pid = self.workers[victim].0.id();
        let mut under_way = Vec::new();
        eventually("the worker has a run under way", SOON, || {
            // The others may have taken all that waited before this one came.
            self.top_up();
            under_way = self.at_work_for(pid);
            !under_way.is_empty()
        });
        self.workers[victim].kill();
        eventually("a killed worker's processes are gone", SOON, || {
            under_way.iter().all(|it| !it.is_alive())
        });
        self.workers[victim] = self.worker();
        under_way.len()
    }

    /// Ends the runs that sleep for ever in the hands of living workers. The others are left to the sweeper.
    fn drain(&self) {
        let living: Vec<String> = self.workers.iter().map(|worker| format!("-{}-", worker.0.id())).collect();
        eventually("every run ends", DRAINED, || {
            let running = self.shop.json(&["run", "list", "--status", "running", "--limit", "1000"]);
            for run in running.as_array().unwrap().iter().filter(|run| run["cancel_requested"] == false) {
                let worker = run["claimed_by"].as_str().unwrap_or_default();
                let run_id = run["run_id"].as_str().unwrap();
                let command = &self.shop.show(run_id)["carried"]["command"];
                let is_endless = command[2].as_str().unwrap().ends_with("600");
                if is_endless && living.iter().any(|name| worker.contains(name)) {
                    // It may have ended meanwhile: then this is refused.
                    self.shop.run(&["run", "cancel", run_id]);
                }
            }
            let stats = self.shop.json(&["queue", "stats"]);
            stats.as_array().unwrap().iter().all(|queue| queue["ready"] == 0 && queue["held"] == 0)
        });
    }
}

// proves X5
#[tokio::test]
async fn killed_workers_leave_no_run_stuck_and_no_process_behind() {
    kill_and_look(Shop::new()).await;
}

#[tokio::test]
async fn killed_workers_on_postgres_leave_no_run_stuck_and_no_process_behind() {
    kill_and_look(Shop::on_postgres()).await;
}

async fn kill_and_look(shop: Shop) {
    let mut site = Site::open(shop).await;
    let mut dice = Dice(7);
    let mut cut_off = 0;
    for _ in 0..kills() {
        site.top_up();
        let victim = dice.below(WORKERS);
        cut_off += site.kill(victim);
    }
    site.drain();
    site.shop.verifies();
    let runs = site.shop.runs();
    assert_eq!(runs.len(), site.queued);
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for run in &runs {
        assert_eq!(run["phase"], "settled", "{run:#}");
        let code = run["error_code"].as_str().unwrap_or("success");
        *ends.entry(code.to_owned()).or_default() += 1;
    }
    let lost = ends.get("WORKER_LOST").copied().unwrap_or(0);
    assert!(lost > 0 && ends.contains_key("success"), "{ends:?}");
    let mut begun: BTreeMap<String, usize> = BTreeMap::new();
    for file in fs::read_dir(site.shop.path("pids")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        *begun.entry(name.rsplit_once('.').unwrap().0.to_owned()).or_default() += 1;
    }
    for (run_id, count) in begun {
        assert_eq!(count, 1, "a run of this lifecycle is begun once: {run_id}");
    }
    let left: Vec<_> = site.processes().into_iter().filter(|(process, _)| process.is_alive()).collect();
    assert!(left.is_empty(), "processes without a worker: {left:?}");
    println!(
        "{} kills cut off {cut_off} runs of {}; they ended: {ends:?}; verify is clean",
        kills(),
        runs.len()
    );
}
