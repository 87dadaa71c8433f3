//! Bulk changes of several runs against one shop that fails, throttles and loses its answers, while their workers are killed: in the
//! end every target is explained, the shop's ledger has no change twice, a rollback leaves the shop as it was, and a
//! reconciliation finds exactly what others changed.
//!
//! `./scripts/soak bulk` asks for more of everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waypost_simulate::Running as Served;
use waypost_simulate::shop::{CatalogueFlags, FAULTS, Options, Settings, Shop as Simulated};

use crate::support::{Running, Shop, eventually};

const WORKERS: usize = 3;
const RUNS: u64 = 3;
const ENDED: Duration = Duration::from_secs(1_800);

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
        let mut settings = Settings { rate: 2_000.0, burst: 200.0, ..Settings::default() };
        for fault in ["permanent=3%", "transient=10%", "lost=1%", "cut=1%"] {
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
        let mut site = Site { shop, simulated, workers: Vec::new(), before, ids, kills: 0 };
        site.workers = (0..WORKERS).map(|_| site.worker()).collect();
        site
    }

    fn worker(&self) -> Running {
        self.shop.spawn(&["worker", "--allow-commands", "--lease", "2s", "--slots", "4", "--grace", "1s"])
    }

    /// Until all of these have ended; meanwhile a worker is killed every few seconds, in turn.
    fn killed_until_ended(&mut self, ids: &[String], every: Duration) {
        let mut next = Instant::now() + every;
        eventually("every run ends", ENDED, || {
            if Instant::now() >= next {
                let victim = self.kills % WORKERS;
                self.workers[victim].kill();
                self.workers[victim] = self.worker();
                self.kills += 1;
                next = Instant::now() + every;
            }
            ids.iter().all(|id| self.shop.show(id)["phase"] == json!("settled"))
        });
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
        operations.iter().map(|id| self.shop.show(id)).collect()
    }
}

fn soaked(shop: Shop) {
    let (targets, every) = (of("WAYPOST_TARGETS", 600), Duration::from_millis(of("WAYPOST_KILL_MS", 1_500)));
    let mut site = Site::open(shop, targets);
    let ids = site.ids.clone();
    let began = Instant::now();
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
    println!(
        "{targets} targets in {RUNS} runs, {} refused, {} workers killed, {:?}",
        refused.len(),
        site.kills,
        began.elapsed()
    );

    site.simulated.state().heal();
    for id in &ids {
        site.shop.ok(&["run", "retry", id]);
    }
    site.killed_until_ended(&ids, every);
    for id in &ids {
        let counted = site.counted(id);
        assert!(counted.len() == 1 && counted.contains_key("APPLIED"), "{counted:?}");
    }
    assert_eq!(site.changed(":apply:"), all);

    let drifted: BTreeSet<u64> = all.iter().copied().filter(|id| id % 97 == 0).collect();
    site.simulated.state().drift_now(&drifted.iter().copied().collect::<Vec<_>>());
    let mut found = BTreeSet::new();
    for operation in site.operated(&["reconcile"], every) {
        assert_eq!(operation["status"], json!("completed"), "{}", operation["details"]);
        let list = operation["details"]["report"]["details"].as_array().unwrap().clone();
        found.extend(list.iter().map(|it| it["targetId"].as_str().unwrap().parse::<u64>().unwrap()));
    }
    assert_eq!(found, drifted, "exactly what drifted");

    let mut named = BTreeSet::new();
    for operation in site.operated(&["rollback", "--all"], every) {
        assert_eq!(operation["status"], json!("completed"), "{}", operation["details"]);
        let list = operation["details"]["report"]["drift"].as_array().unwrap().clone();
        named.extend(list.iter().map(|it| it["targetId"].as_str().unwrap().parse::<u64>().unwrap()));
    }
    assert_eq!(site.changed(":rollback:"), all);
    assert_eq!(named, drifted);
    assert_eq!(site.prices(), site.before, "the shop is as it was");
    for id in &ids {
        assert_eq!(site.shop.show(id)["status"], json!("ROLLED_BACK"));
    }
    println!(
        "{} workers killed in all, {:?}; 429: {}",
        site.kills,
        began.elapsed(),
        site.simulated.state().throttled()
    );
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
