//! Bulk changes of several runs against one shop that fails, throttles and loses its answers, while their workers are killed: in the
//! end every target is explained, the shop's ledger has no change twice, a rollback leaves the shop as it was, and a
//! reconciliation finds exactly what others changed.
//!
//! `./scripts/soak bulk` asks for more of everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waypost_simulate::shop::{CatalogueFlags, FAULTS, Options, Settings, Shop as Simulated};
use waypost_simulate::{RetryAfter, Running as Served};

use crate::support::{Running, Shop, eventually};

const WORKERS: usize = 3;
const RUNS: u64 = 3;
const ENDED: Duration = Duration::from_secs(1_800);
/// Leases of a run that are lost by kills. Five may expire, and the sixth ends it with WORKER_LOST, as it should: one is left for a machine
/// that stalls for longer than a lease.
const MOST_TAKE_OVERS: u64 = 4;
/// Whoever asks for as many has the time to wait for a shop that says at times that it is busy, and not for how long: then a target
/// waits for 16 seconds.
const MANY: u64 = 5_000;

fn of(name: &str, small: u64) -> u64 {
    std::env::var(name).map_or(small, |text| text.parse().unwrap())
}

struct Site {
    shop: Shop,
    simulated: Served<Simulated>,
    workers: Vec<Running>,
    before: Vec<i64>,
    ids: Vec<String>,
    kills: usize,
    /// Kills that were left out, since a run would have lost one lease too many.
    spared: usize,
    began: Instant,
}

fn playbook(number: u64) -> String {
    format!(
        r#"name = "prices-{number}"
lifecycle = "rule"

[inputs.shop]
type = "string"

[targets]
csv = "prices-{number}.csv"
after = "{{{{ target.before + 1 }}}}"

[apply]
http = {{ method = "PUT", url = "{{{{ inputs.shop }}}}/products/{{{{ target.id }}}}", json = {{ price = "{{{{ target.after }}}}" }}, allow_private = true }}
parallel = 20
timeout = "5s"

[limit]
rate = "1900/s"
burst = 100
destination = "shop"
"#
    )
}

impl Site {
    /// The products are shared out among the runs: no two change the same one.
    fn open(shop: Shop, targets: u64) -> Site {
        let (throttled, retry_after) = match targets > MANY {
            true => ("rate_limited=0.3%", RetryAfter::Mixed),
            false => ("rate_limited=1%", RetryAfter::Seconds),
        };
        let settings = Settings { rate: 2_000.0, burst: 200.0, hold_ms: 8_000, ..Settings::default() };
        let mut settings = Settings { retry_after, ..settings };
        let faults = ["permanent=3%", "transient=10%", "lost=1%", "cut=1%", "late=0.1%", "timeout=0.1%"];
        for fault in faults.into_iter().chain([throttled]) {
            settings.faults.set(fault, FAULTS).unwrap();
        }
        let catalogue =
            CatalogueFlags { products: Some(targets), free: Some(0.01), ..CatalogueFlags::default() };
        let simulated = Simulated::open(Options { catalogue, settings, ..Options::default() }).unwrap();
        let before: Vec<i64> = (1..=targets).map(|id| simulated.price_cents(id).unwrap()).collect();
        let simulated = simulated.serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut ids = Vec::new();
        for number in 0..RUNS {
            let mut csv = "id,before\n".to_owned();
            for id in (1..=targets).filter(|id| id % RUNS == number) {
                let cents = before[id as usize - 1];
                writeln!(csv, "{id},{}.{:02}", cents / 100, cents % 100).unwrap();
            }
            std::fs::write(shop.path(&format!("prices-{number}.csv")), csv).unwrap();
            let file = shop.path(&format!("prices-{number}.toml")).display().to_string();
            std::fs::write(&file, playbook(number)).unwrap();
            let input = format!("shop={}", simulated.url());
            let id = shop.ok(&["run", "start", &file, "--input", &input]).trim().to_owned();
            shop.ok(&["run", "queue", &id]);
            ids.push(id);
        }
        let (kills, spared, began) = (0, 0, Instant::now());
        let mut site = Site { shop, simulated, workers: Vec::new(), before, ids, kills, spared, began };
        site.workers = (0..WORKERS).map(|_| site.worker()).collect();
        site
    }

    /// One slot each: every process has a run of its own, and its kill costs that one a lease.
    fn worker(&self) -> Running {
        self.shop.spawn(&["worker", "--allow-commands", "--lease", "3s", "--slots", "1", "--grace", "1s"])
    }

    /// Until all of these have ended; meanwhile a worker is killed every few seconds, in turn.
    fn killed_until_ended(&mut self, ids: &[String], every: Duration) {
        let mut next = Instant::now() + every;
        eventually("every run ends", ENDED, || {
            let shown: Vec<Value> = ids.iter().map(|id| self.shop.show(id)).collect();
            if Instant::now() >= next {
                self.kill_one(&shown);
                next = Instant::now() + every;
            }
            shown.iter().all(|run| run["phase"] == json!("settled"))
        });
    }

    /// Not one that holds a run which has lost its leases, or may take one up.
    fn kill_one(&mut self, runs: &[Value]) {
        let marks: Vec<String> = self.workers.iter().map(|worker| format!("-{}-", worker.0.id())).collect();
        let is_spared = |mark: &String| {
            runs.iter().filter(|run| run["phase"] == json!("held")).any(|run| {
                let holder = run["claimed_by"].as_str();
                let is_lost = holder.is_some_and(|name| !marks.iter().any(|mark| name.contains(mark)));
                let may_hold = is_lost || holder.is_none_or(|name| name.contains(mark));
                let take_overs = run["take_overs"].as_u64().unwrap() + u64::from(is_lost);
                may_hold && take_overs >= MOST_TAKE_OVERS
            })
        };
        let in_turn = (0..WORKERS).map(|offset| (self.kills + offset) % WORKERS);
        let Some(victim) = in_turn.into_iter().find(|at| !is_spared(&marks[*at])) else {
            self.spared += 1;
            return;
        };
        self.workers[victim].kill();
        self.workers[victim] = self.worker();
        self.kills += 1;
    }

    /// What happened since the last time, in a line of the record.
    fn tell(&mut self, what: &str, runs: &[Value]) {
        let take_overs: u64 = runs.iter().map(|run| run["take_overs"].as_u64().unwrap()).sum();
        println!(
            "{what}: {} workers killed, {} kills left out (a run had lost {MOST_TAKE_OVERS} leases), {take_overs} take-overs, {} s",
            std::mem::take(&mut self.kills),
            std::mem::take(&mut self.spared),
            std::mem::replace(&mut self.began, Instant::now()).elapsed().as_secs()
        );
    }

    fn shown(&self, ids: &[String]) -> Vec<Value> {
        ids.iter().map(|id| self.shop.show(id)).collect()
    }

    /// Targets of a run by status and class.
    fn counted(&self, id: &str) -> BTreeMap<String, usize> {
        let mut counted = BTreeMap::new();
        for line in self.shop.ok(&["run", "targets", id, "-o", "jsonl"]).lines() {
            let target: Value = serde_json::from_str(line).unwrap();
            let class = target["error_code"].as_str().map(|code| format!(" {code}")).unwrap_or_default();
            *counted.entry(format!("{}{class}", target["status"].as_str().unwrap())).or_default() += 1;
        }
        counted
    }

    fn prices(&self) -> Vec<i64> {
        let shop = self.simulated.state();
        (1..=self.before.len() as u64).map(|id| shop.price_cents(id).unwrap()).collect()
    }

    /// Products that were changed under keys with this word in them: each once.
    fn changed(&self, word: &str) -> BTreeSet<u64> {
        let mut changed = BTreeSet::new();
        for change in self.simulated.state().changes() {
            if change.key.as_deref().is_some_and(|key| key.contains(word)) {
                assert!(changed.insert(change.id), "{} was changed twice: {change:?}", change.id);
            }
        }
        changed
    }

    fn operated(&mut self, command: &[&str], every: Duration) -> Vec<Value> {
        let operations: Vec<String> = self
            .ids
            .iter()
            .map(|id| {
                self.shop.ok(&[&["run", command[0], id.as_str()], &command[1..]].concat()).trim().to_owned()
            })
            .collect();
        self.killed_until_ended(&operations, every);
        let shown = self.shown(&operations);
        self.tell(command[0], &shown);
        shown
    }

    /// That nobody was spared, and how often each fault hit: it is the record that shows it.
    fn tell_faults(&self, drifted: usize) {
        let shop = self.simulated.state();
        let met = shop.faults_met();
        println!("faults that hit: {met:?}; drift: {drifted}; 429 in all: {}", shop.throttled());
        let (frequent, rare) =
            (["rate_limited", "transient", "permanent", "lost", "cut"], ["late", "timeout"]);
        let is_long = self.before.len() as u64 > MANY;
        for fault in frequent.iter().chain(rare.iter().filter(|_| is_long)) {
            assert!(met.get(fault).is_some_and(|count| *count > 0), "{fault} did not happen: {met:?}");
        }
        assert!(!is_long || shop.throttled() >= 100, "it hardly throttled: {met:?}");
    }
}

fn soaked(shop: Shop) {
    let (targets, every) = (of("WAYPOST_TARGETS", 600), Duration::from_millis(of("WAYPOST_KILL_MS", 1_500)));
    let mut site = Site::open(shop, targets);
    let ids = site.ids.clone();
    site.killed_until_ended(&ids, every);
    let refused: BTreeSet<u64> = {
        let shop = site.simulated.state();
        (1..=targets).filter(|id| shop.is_hit("permanent", *id)).collect()
    };
    let all: BTreeSet<u64> = (1..=targets).collect();
    for id in &ids {
        let counted = site.counted(id);
        assert_eq!(site.shop.show(id)["status"], json!("PARTIAL"), "{counted:?}");
        let is_explained = |state: &String| state == "APPLIED" || state.starts_with("FAILED ");
        assert!(
            counted.keys().all(is_explained),
            "every target ends applied, or failed with its class: {counted:?}"
        );
    }
    assert_eq!(site.changed(":apply:"), &all - &refused, "no change twice, and none missing");
    let words = format!("apply {targets} targets in {RUNS} runs, of which {} are refused", refused.len());
    let shown = site.shown(&ids);
    site.tell(&words, &shown);

    // What was refused is not any more; all else goes on going wrong.
    site.simulated.state().cure("permanent");
    for id in &ids {
        site.shop.ok(&["run", "retry", id]);
    }
    site.killed_until_ended(&ids, every);
    for id in &ids {
        let counted = site.counted(id);
        assert!(counted.len() == 1 && counted.contains_key("APPLIED"), "{counted:?}");
    }
    assert_eq!(site.changed(":apply:"), all);
    let shown = site.shown(&ids);
    site.tell("retry", &shown);

    let drifted: BTreeSet<u64> = all.iter().copied().filter(|id| id % 97 == 0).collect();
    site.simulated.state().drift_now(&drifted.iter().copied().collect::<Vec<_>>());
    let mut found = BTreeSet::new();
    for operation in site.operated(&["reconcile"], every) {
        let why = [&operation["error_code"], &operation["take_overs"], &operation["details"]];
        assert_eq!(operation["status"], json!("completed"), "{why:?}");
        let list = operation["details"]["report"]["details"].as_array().unwrap().clone();
        found.extend(list.iter().map(|it| it["targetId"].as_str().unwrap().parse::<u64>().unwrap()));
    }
    assert_eq!(found, drifted, "exactly what drifted");

    let mut named = BTreeSet::new();
    for operation in site.operated(&["rollback", "--all"], every) {
        let why = [&operation["error_code"], &operation["take_overs"], &operation["details"]];
        assert_eq!(operation["status"], json!("completed"), "{why:?}");
        let list = operation["details"]["report"]["drift"].as_array().unwrap().clone();
        named.extend(list.iter().map(|it| it["targetId"].as_str().unwrap().parse::<u64>().unwrap()));
    }
    assert_eq!(site.changed(":rollback:"), all);
    assert_eq!(named, drifted);
    assert_eq!(site.prices(), site.before, "the shop is as it was");
    for id in &ids {
        assert_eq!(site.shop.show(id)["status"], json!("ROLLED_BACK"));
    }
    site.tell_faults(drifted.len());
    site.workers.iter_mut().for_each(Running::kill);
    site.shop.verifies();
}

// proves R2, R3, R8, R10, R11, X5
#[test]
fn bulk_changes_survive_the_kills_of_their_workers() {
    soaked(Shop::new());
}

// proves R2, R3, R8, R10, R11, X5
#[test]
fn bulk_changes_on_postgres_survive_the_kills_of_their_workers() {
    soaked(Shop::on_postgres());
}
