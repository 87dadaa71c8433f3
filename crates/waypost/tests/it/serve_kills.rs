//! Two servers on one PostgreSQL, killed in turn while clients start runs and workers work them, all over HTTP: what was
//! answered is there, each key made one run, and each run was executed once.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::http::post;
use crate::support::{Running, Shop, eventually};

const SOON: Duration = Duration::from_secs(60);
const DRAINED: Duration = Duration::from_secs(240);
const CLIENTS: usize = 4;
/// Of each client, while one server is down.
const RUNS: usize = 8;

/// `./scripts/soak serve-kills` asks for more.
fn kills() -> usize {
    std::env::var("WAYPOST_SERVER_KILLS").map_or(4, |text| text.parse().unwrap())
}

/// Each run writes its id down and takes a moment, so that some are always under way.
fn new_run(shop: &Shop) -> Value {
    let script = "echo $WAYPOST_RUN_ID >> \"$0\"; sleep 0.05";
    let ledger = shop.path("ledger");
    json!({ "lifecycle": "job", "carried": { "command": ["sh", "-c", script, ledger.to_str().unwrap()] } })
}

/// Asks one server, then the other, until it is answered: the key makes that harmless.
fn start(urls: &[String; 2], first: usize, key: &str, run: &Value) -> (String, bool) {
    for turn in first.. {
        match post(&urls[turn % 2], "/v1/runs", &[("idempotency-key", key)], run) {
            Ok(answer) if answer.status < 300 => {
                let is_replay = answer.head.contains("idempotency-replayed: true");
                assert_eq!(is_replay, answer.status == 200);
                return (answer.body["run_id"].as_str().unwrap().to_owned(), is_replay);
            }
            Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.body),
            Err(_) => thread::yield_now(),
        }
    }
    unreachable!("it asks until it is answered")
}

/// One server is killed after the first answers; the clients go on at the other.
fn round(number: usize, urls: &[String; 2], run: &Value, kill: impl FnOnce()) -> Vec<(String, String, bool)> {
    let answered = AtomicUsize::new(0);
    let client = |client: usize| -> Vec<(String, String, bool)> {
        let one = |at: usize| {
            let key = format!("{number}-{client}-{at}");
            let (id, is_replay) = start(urls, client, &key, run);
            answered.fetch_add(1, Ordering::Relaxed);
            (key, id, is_replay)
        };
        (0..RUNS).map(one).collect()
    };
    let client = &client;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|it| scope.spawn(move || client(it))).collect();
        eventually("some are answered", SOON, || answered.load(Ordering::Relaxed) >= CLIENTS);
        kill();
        clients.into_iter().flat_map(|it| it.join().unwrap()).collect()
    })
}

fn worked(shop: &Shop) -> BTreeMap<String, usize> {
    let mut worked: BTreeMap<String, usize> = BTreeMap::new();
    for line in fs::read_to_string(shop.path("ledger")).unwrap_or_default().lines() {
        *worked.entry(line.to_owned()).or_default() += 1;
    }
    worked
}

fn work(shop: &Shop, url: &str) -> Running {
    shop.spawn(&["worker", "--allow-commands", "--slots", "4", "--lease", "20s", "--url", url])
}

#[test]
fn servers_that_are_killed_in_turn_lose_nothing_and_do_nothing_twice() {
    let shop = Shop::on_postgres();
    let serve = |address: &str| shop.serve_at(&["serve", "--no-worker", "--listen", address]);
    let ((one, first), (other, second)) = (serve("127.0.0.1:0"), serve("127.0.0.1:0"));
    let (mut servers, urls) = ([one, other], [first, second]);
    let _workers: Vec<Running> = urls.iter().map(|url| work(&shop, url)).collect();
    let run = new_run(&shop);
    let mut made = Vec::new();
    for number in 0..kills() {
        let (server, url) = (&mut servers[number % 2], &urls[number % 2]);
        made.extend(round(number, &urls, &run, || server.kill()));
        (*server, _) = serve(url.strip_prefix("http://").unwrap());
    }
    eventually("every run is worked", DRAINED, || {
        let stats = shop.json(&["queue", "stats"]);
        stats.as_array().unwrap().iter().all(|queue| queue["ready"] == 0 && queue["held"] == 0)
    });
    let runs = shop.runs();
    assert_eq!(runs.len(), made.len(), "each key made one run");
    let worked = worked(&shop);
    for (key, id, _) in &made {
        let run = runs.iter().find(|run| run["run_id"] == id.as_str());
        assert_eq!(run.map(|run| &run["status"]), Some(&json!("completed")), "{key} was answered with {id}");
        assert_eq!(worked.get(id), Some(&1), "{id}");
        assert_eq!(start(&urls, 0, key, &new_run(&shop)), (id.clone(), true), "{key} again");
    }
    shop.verifies();
    let repeated = made.iter().filter(|(.., is_replay)| *is_replay).count();
    let taken_over = runs.iter().filter(|run| run["take_overs"] != 0).count();
    println!(
        "{} kills, {} runs: all answered and executed once; {repeated} were stored before the server that took them died, and \
         were answered by their key; {taken_over} had a claim whose answer was lost, and were taken over; verify is clean",
        kills(),
        made.len()
    );
}
