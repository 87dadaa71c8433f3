//! Three worker processes share what a shop allows: they use it, and do not flood it.
//!
//! `./scripts/soak bulk-rate` does it for minutes and looks at the rate; here it is seconds, and every target is changed once.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use waypost_simulate::shop::{CatalogueFlags, Options, Settings, Shop as Simulated};

use crate::support::{Running, Shop, eventually};

const WORKERS: usize = 3;
const RUNS: u64 = 3;
/// What the shop allows in a second, and at once.
const RATE: u64 = 50;
const BURST: u64 = 40;
/// The first calls may use what has gathered, and workers have to find each other.
const FIRST: u64 = 60;

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
parallel = 10

[limit]
rate = "{RATE}/s"
burst = {BURST}
destination = "shop"
"#
    )
}

fn shared(shop: &Shop) {
    // How long it goes on after the first minute.
    let measured: Option<u64> = std::env::var("WAYPOST_RATE_SECONDS").ok().map(|text| text.parse().unwrap());
    let targets = BURST + RATE * measured.map_or(2, |seconds| FIRST + seconds);
    let settings = Settings { rate: RATE as f64, burst: BURST as f64, ..Settings::default() };
    let catalogue = CatalogueFlags { products: Some(targets), ..CatalogueFlags::default() };
    let simulated = Simulated::open(Options { catalogue, settings, ..Options::default() }).unwrap();
    let simulated = simulated.serve("127.0.0.1:0".parse().unwrap()).unwrap();
    let input = format!("shop={}", simulated.url());
    let mut ids = Vec::new();
    for number in 0..RUNS {
        let mut csv = "id,before\n".to_owned();
        for id in (1..=targets).filter(|id| id % RUNS == number) {
            writeln!(csv, "{id},{id}").unwrap();
        }
        std::fs::write(shop.path(&format!("prices-{number}.csv")), csv).unwrap();
        let file = shop.path(&format!("prices-{number}.toml")).display().to_string();
        std::fs::write(&file, playbook(number)).unwrap();
        let id = shop.ok(&["run", "start", &file, "--input", &input]).trim().to_owned();
        shop.ok(&["run", "queue", &id]);
        ids.push(id);
    }
    // One slot each: every process has a run of its own.
    let worker = |_| shop.spawn(&["worker", "--allow-commands", "--slots", "1"]);
    let mut workers: Vec<Running> = (0..WORKERS).map(worker).collect();
    eventually("every run ends", Duration::from_secs(1_800), || {
        ids.iter().all(|id| shop.show(id)["phase"] == json!("settled"))
    });
    workers.iter_mut().for_each(Running::kill);
    for id in &ids {
        assert_eq!(shop.show(id)["status"], json!("APPLIED"));
    }
    let mut changed = BTreeSet::new();
    for change in simulated.state().changes() {
        assert!(changed.insert(change.id), "{} was changed twice", change.id);
    }
    assert_eq!(changed.len() as u64, targets);
    let stats = shop.curl(&simulated.url(), "/admin/stats");
    let after = &stats["after"];
    println!(
        "{targets} targets, {WORKERS} processes; of the whole: {} calls, {} were 429; after {FIRST} s: {after}",
        stats["calls"], stats["rate_limited"]
    );
    if measured.is_some() {
        let paced = shop.json(&["destination", "list"]);
        println!("destinations: {paced}");
        let share = |value: &serde_json::Value| value.as_f64().unwrap();
        assert!(share(&after["rate_limited_share"]) <= 0.01, "too many 429s");
        assert!(share(&after["rest_calls"]["used_share"]) >= 0.9, "the rate is not used");
    }
}

// proves R6
#[test]
fn three_processes_share_the_rate_of_a_shop() {
    shared(&Shop::new());
}

// proves R6
#[test]
fn three_processes_on_postgres_share_the_rate_of_a_shop() {
    shared(&Shop::on_postgres());
}
