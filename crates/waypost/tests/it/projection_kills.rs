//! Readers of agents' documents beside a server, workers and projectors that are killed at any time: in a folder and in an S3 store, on
//! both databases.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use waypost_testkit::documents::{Documents, Judge, is_terminal};
use waypost_testkit::s3;
use waypost_worker::projection::objects::{Bucket, Objects};

use crate::agents::start;
use crate::support::{Running, Shop, eventually};

const BUCKET: &str = "runs-of-agents";
/// Runs that are not over: a kill meets somebody who writes.
const AT_ONCE: usize = 8;
const SOON: Duration = Duration::from_secs(60);
/// Leases of 2 s, and what is left to work.
const DRAINED: Duration = Duration::from_secs(600);

const PLAYBOOK: &str = r#"
name = "archivist"
lifecycle = "agent"

[[step]]
name = "load-context"
output = { notes = 3 }

[[step]]
name = "execute-agent"
exec = ["sh", "-c", "printf '{\"outcome\":\"done\",\"proposals\":[{\"title\":\"t\"}]}' > \"$WAYPOST_OUTPUT\""]

[[step]]
name = "persist-results"
exec = ["true"]

[[step]]
name = "finalize"
output = { done = true }
"#;

/// `./scripts/soak projection` asks for more.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A place for documents, and how those who know nothing of Waypost read it.
struct Place {
    kept: TempDir,
    /// Of an S3 store: its server, and somebody who asks it.
    s3: Option<(Runtime, String, Arc<dyn Objects>)>,
}

impl Place {
    fn folder() -> Place {
        Place { kept: TempDir::new().unwrap(), s3: None }
    }

    fn s3() -> Place {
        let kept = TempDir::new().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (url, _) = runtime.block_on(s3::serve(kept.path(), BUCKET));
        let builder = AmazonS3Builder::new()
            .with_endpoint(&url)
            .with_region("us-east-1")
            .with_access_key_id(s3::KEY)
            .with_secret_access_key(s3::SECRET)
            .with_allow_http(true);
        let bucket = Bucket::build(builder, BUCKET, "agents").unwrap();
        Place { kept, s3: Some((runtime, url, Arc::new(bucket))) }
    }

    /// What `waypost.toml` says of it.
    fn settings(&self) -> String {
        match &self.s3 {
            None => format!("object_store = \"file://{}\"", self.kept.path().join("objects").display()),
            Some((_, url, _)) => format!("object_store = \"s3://{BUCKET}/agents\"\nendpoint = \"{url}\""),
        }
    }

    fn read(&self, id: &str, name: &str) -> Option<Value> {
        let key = format!("runs/{id}/{name}");
        let bytes = match &self.s3 {
            None => fs::read(self.kept.path().join("objects").join(&key)).ok()?,
            Some((runtime, _, bucket)) => runtime.block_on(bucket.read(&key)).unwrap()?.bytes.to_vec(),
        };
        Some(serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{key} is whole: {error}")))
    }

    fn documents(&self, id: &str, status: Value) -> Documents {
        let step = |n| Some((n, self.read(id, &format!("steps/{n}.json"))?));
        let steps: BTreeMap<u64, Value> =
            (1..=status["steps_total"].as_u64().unwrap_or(0)).filter_map(step).collect();
        Documents { manifest: self.read(id, "manifest.json"), status, steps }
    }
}

/// Whoever polls the `status.json` of all runs that are not over, and looks at the rest whenever that changes.
#[derive(Default)]
struct Seen {
    judge: Judge,
    open: Vec<String>,
    ended: BTreeMap<String, String>,
    looks: usize,
    changes: usize,
    is_over: bool,
}

/// Readers at once: an answer of an S3 store takes its time while others write there.
const READERS: usize = 4;

/// Each has runs of its own: what one sees of a run it sees in order.
fn poll(place: &Arc<Place>, seen: &Arc<Mutex<Seen>>, reader: usize) -> JoinHandle<()> {
    let is_own = move |id: &&String| id.bytes().map(usize::from).sum::<usize>() % READERS == reader;
    let (place, seen) = (place.clone(), seen.clone());
    thread::spawn(move || {
        loop {
            let (open, is_over) = {
                let seen = seen.lock().unwrap();
                (seen.open.clone(), seen.is_over)
            };
            if is_over {
                return;
            }
            for id in open.iter().filter(is_own) {
                look(&place, &seen, id);
            }
            thread::park_timeout(Duration::from_millis(2));
        }
    })
}

fn look(place: &Place, seen: &Mutex<Seen>, id: &str) {
    let status = place.read(id, "status.json");
    let is_known = {
        let mut seen = seen.lock().unwrap();
        seen.looks += 1;
        assert!(status.is_some() || !seen.judge.has_seen(id), "{id}: status.json was there");
        status.as_ref().is_none_or(|status| seen.judge.knows(id, status))
    };
    let Some(status) = status.filter(|_| !is_known) else { return };
    let end = is_terminal(&status).then(|| status["status"].as_str().unwrap().to_owned());
    let documents = place.documents(id, status);
    let mut seen = seen.lock().unwrap();
    seen.changes += 1;
    seen.judge.look(id, documents);
    if let Some(end) = end {
        seen.open.retain(|open| open != id);
        seen.ended.insert(id.to_owned(), end);
    }
}

/// Numbers that look drawn, the same for the same seed.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// A server that works nothing, two workers, and a process that nobody asks, which does nothing but project.
struct Processes<'s> {
    shop: &'s Shop,
    server: (Running, String),
    others: Vec<(&'static [&'static str], Running)>,
    kills: usize,
}

const WORKER: &[&str] = &["worker", "--queue", "agents", "--lease", "2s", "--slots", "2", "--grace", "1s"];
const PROJECTOR: &[&str] = &["serve", "--no-worker", "--listen", "127.0.0.1:0"];

impl Processes<'_> {
    fn start(shop: &Shop) -> Processes<'_> {
        let server = serve(shop);
        let others = [WORKER, WORKER, PROJECTOR].map(|args| (args, shop.spawn(args))).into();
        Processes { shop, server, others, kills: 0 }
    }

    fn kill_one(&mut self, drawn: &mut Drawn) {
        self.kills += 1;
        match drawn.below(1 + self.others.len() as u64) as usize {
            0 => {
                self.server.0.kill();
                self.server = serve(self.shop);
            }
            at => {
                let (args, process) = &mut self.others[at - 1];
                process.kill();
                *process = self.shop.spawn(args);
            }
        }
    }
}

fn serve(shop: &Shop) -> (Running, String) {
    shop.serve(&["serve", "--no-worker"])
}

/// Starts a run, whoever is killed meanwhile: the same correlation id is the same run.
fn started(processes: &Processes<'_>, number: usize) -> String {
    let asked = json!({ "agent_slug": "violin", "correlationId": format!("c{number}") });
    let mut id = None;
    eventually("a run starts", SOON, || {
        let answer = start(&processes.server.1, &asked, false);
        // Runs whose workers died six times in a row are failures of the agent's.
        if answer.status == 409 {
            processes.shop.ok(&["agent", "reset", "violin"]);
        }
        id = answer.body["run_id"].as_str().filter(|_| answer.status == 202).map(str::to_owned);
        id.is_some()
    });
    id.unwrap()
}

fn documents_go_on_beside_kills(shop: &Shop, place: Place, what: &str) {
    let (runs, seed) = (number("WAYPOST_RUNS", 16), number("WAYPOST_SEED", 1) as u64);
    fs::write(shop.path("archivist.toml"), PLAYBOOK).unwrap();
    let file = format!(
        "[projection]\n{}\n[[agent]]\nslug = \"violin\"\nplaybook = \"archivist.toml\"\nconcurrency = 8\n",
        place.settings()
    );
    fs::write(shop.path("waypost.toml"), file).unwrap();
    let place = Arc::new(place);
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let readers: Vec<_> = (0..READERS).map(|reader| poll(&place, &seen, reader)).collect();
    let is_sound = || assert!(!readers.iter().any(JoinHandle::is_finished), "what a reader saw is wrong");
    let mut processes = Processes::start(shop);
    let mut drawn = Drawn(seed);
    let mut kill_at = 3;
    for run in 0..runs {
        eventually("runs end", DRAINED, || {
            is_sound();
            let (open, changes) = {
                let seen = seen.lock().unwrap();
                (seen.open.len(), seen.changes)
            };
            if changes >= kill_at {
                processes.kill_one(&mut drawn);
                kill_at = changes + 5 + drawn.below(25) as usize;
            }
            open < AT_ONCE
        });
        let id = started(&processes, run);
        seen.lock().unwrap().open.push(id);
    }
    eventually("every run has its last document", DRAINED, || {
        is_sound();
        seen.lock().unwrap().open.is_empty()
    });
    seen.lock().unwrap().is_over = true;
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    let mut seen = seen.lock().unwrap();
    let ids: Vec<String> = seen.ended.keys().cloned().collect();
    // What was written last is what is there.
    for id in &ids {
        let status = place.read(id, "status.json").unwrap();
        seen.judge.look(id, place.documents(id, status));
    }
    let count = |name: &str| seen.ended.values().filter(|end| *end == name).count();
    println!(
        "{what}: {} runs, {} kills of server, workers and projector (seed {seed}), {} looks at status.json, {} changes seen, {} completed, {} failed",
        ids.len(),
        processes.kills,
        seen.looks,
        seen.changes,
        count("completed"),
        count("failed")
    );
    assert_eq!(ids.len(), runs, "one run for each correlation id");
    assert!(
        seen.changes >= 2 * runs && seen.looks >= 3 * seen.changes,
        "a reader that hardly looks sees nothing"
    );
    assert!(count("completed") * 10 >= runs * 9 && processes.kills > 0);
    drop(processes);
    shop.verifies();
}

// proves A2, A4
#[test]
fn in_a_folder_no_document_goes_back_whoever_is_killed() {
    documents_go_on_beside_kills(&Shop::new(), Place::folder(), "a folder, SQLite");
}

/// Changes that are projected in a second, and how far behind the documents are at 500 a second. `./scripts/soak bench-project` asks for
/// more.
#[test]
fn what_is_projected_into_a_folder_and_an_s3_store_is_measured() {
    let runs = number("WAYPOST_RUNS", 50).to_string();
    let place = Place::s3();
    let shop = Shop::new().with_env("AWS_ACCESS_KEY_ID", s3::KEY);
    let shop = shop.with_env("AWS_SECRET_ACCESS_KEY", s3::SECRET);
    let bench = ["bench", "--scenario", "project", "--runs", &runs];
    for (settings, into) in [(String::new(), "folder"), (place.settings(), "object store")] {
        let file = if settings.is_empty() { settings } else { format!("[projection]\n{settings}\n") };
        fs::write(shop.path("waypost.toml"), file).unwrap();
        let measured = shop.json(&bench);
        println!("{measured}");
        let row = &measured[0];
        assert_eq!(
            (&row["into"], row["changes"].as_u64()),
            (&json!(into), Some(runs.parse::<u64>().unwrap() * 5))
        );
        assert!(row["changes_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(
            row["lag_p50_ms"].as_f64() <= row["lag_p99_ms"].as_f64() && row["lag_p99_ms"].is_number(),
            "{row}"
        );
    }
}

// proves A2, A4
#[test]
fn in_an_s3_store_no_document_goes_back_whoever_is_killed() {
    let shop = Shop::on_postgres().with_env("AWS_ACCESS_KEY_ID", s3::KEY);
    let shop = shop.with_env("AWS_SECRET_ACCESS_KEY", s3::SECRET);
    documents_go_on_beside_kills(&shop, Place::s3(), "an S3 store, PostgreSQL");
}
