//! The database, the servers on it, and the faults that they suffer.

use std::fs::{self, File, OpenOptions};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::task::block_in_place;
use waypost_testkit::Cluster;

use super::plan::Dice;
use super::record::LoggedError;
use super::shared::Shared;
use super::wire::request;
use crate::support::{Running, Shop, eventually};

const SOON: Duration = Duration::from_secs(60);
/// Characters of a statement that tell which one it is.
const STATEMENT: usize = 90;

pub struct Stage {
    pub shop: Shop,
    pub cluster: Option<Cluster>,
    servers: Mutex<Vec<Running>>,
    pub addresses: Vec<String>,
}

impl Stage {
    pub fn new(on_postgres: bool, servers: usize) -> Stage {
        let cluster = on_postgres.then(|| Cluster::start().unwrap());
        let shop = cluster.as_ref().map_or_else(Shop::new, |cluster| Shop::at(&cluster.url()));
        shop.ok(&["queue", "stats"]);
        let mut stage = Stage { shop, cluster, servers: Mutex::default(), addresses: Vec::new() };
        for number in 0..servers {
            let (server, address) = stage.serve(number, "127.0.0.1:0");
            stage.servers.lock().unwrap().push(server);
            stage.addresses.push(address);
        }
        stage
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.shop.path(&format!("server-{number}.log"))
    }

    /// Its log stays, over all that it is started again.
    fn serve(&self, number: usize, address: &str) -> (Running, String) {
        let log: File = OpenOptions::new().create(true).append(true).open(self.log(number)).unwrap();
        let before = fs::read_to_string(self.log(number)).unwrap().lines().count();
        let mut command = self.shop.command(&["serve", "--no-worker", "--listen", address]);
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut found = None;
        eventually("the server listens", SOON, || {
            let text = fs::read_to_string(self.log(number)).unwrap();
            let mut new = text.lines().skip(before);
            found = new.find_map(|line| Some(line.strip_prefix("listening on http://")?.to_owned()));
            found.is_some()
        });
        (Running(server), found.unwrap())
    }

    pub fn server_log(&self) -> Vec<String> {
        let logs = (0..self.addresses.len()).map(|number| fs::read_to_string(self.log(number)).unwrap());
        logs.flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// The errors in the database's log, each with the statements that it names.
    pub fn database_log(&self) -> Vec<LoggedError> {
        let Some(cluster) = &self.cluster else { return Vec::new() };
        let log = String::from_utf8_lossy(&fs::read(cluster.folder().join("log")).unwrap()).into_owned();
        let mut errors: Vec<LoggedError> = Vec::new();
        for line in log.lines() {
            let process = line.strip_prefix("\tProcess ").and_then(|rest| rest.split_once(": "));
            if let Some((_, message)) = line.split_once("ERROR:  ") {
                errors.push(LoggedError { message: message.to_owned(), statements: Vec::new() });
            } else if let (Some(error), Some((number, statement))) = (errors.last_mut(), process)
                && number.parse::<u32>().is_ok()
            {
                error.statements.push(statement.chars().take(STATEMENT).collect());
            }
        }
        errors
    }

    /// The servers end; the database stays.
    pub fn end_servers(&self) {
        self.servers.lock().unwrap().clear();
    }

    async fn answers(&self) {
        for address in &self.addresses {
            loop {
                let asked = request(address, "GET", "/readyz", "", &Value::Null).await;
                if asked.is_ok_and(|reply| reply.status == 200) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    fn kill(&self, number: usize) {
        block_in_place(|| {
            self.servers.lock().unwrap()[number].kill();
            let (server, _) = self.serve(number, &self.addresses[number]);
            self.servers.lock().unwrap()[number] = server;
        });
    }

    fn signal(&self, number: usize, name: &str) {
        block_in_place(|| self.servers.lock().unwrap()[number].signal(name));
    }

    fn psql(&self, sql: &str) {
        // It may be told that its own connection was cut.
        block_in_place(|| self.cluster.as_ref().map(|cluster| cluster.psql(sql)));
    }

    fn restart_database(&self) {
        block_in_place(|| self.cluster.as_ref().unwrap().restart().unwrap());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Stop,
    Restart,
    CutAll,
    CutListeners,
}

fn next_fault(dice: &mut Dice, on_postgres: bool) -> Fault {
    match dice.below(if on_postgres { 10 } else { 5 }) {
        0..=2 => Fault::Kill,
        3 | 4 => Fault::Stop,
        5..=7 => Fault::Restart,
        8 => Fault::CutAll,
        _ => Fault::CutListeners,
    }
}

const OTHERS: &str = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// One fault after the other, with some peace in between, until the history ends. All is well again then.
pub async fn torment(stage: Arc<Stage>, shared: Arc<Shared>) {
    let mut dice = Dice::new(shared.seed, "faults");
    // Between faults there has to be time in which everything is known.
    let peace_ms = (shared.seconds * 200).clamp(1_500, 8_000);
    while !shared.is_over() {
        shared.rest(800 + dice.below(peace_ms)).await;
        if shared.is_over() {
            break;
        }
        let number = dice.below(stage.addresses.len() as u64) as usize;
        let (fault, stopped_ms) = (next_fault(&mut dice, stage.cluster.is_some()), 300 + dice.below(3_000));
        let began = shared.recorder.now();
        match fault {
            Fault::Kill => stage.kill(number),
            Fault::Stop => {
                stage.signal(number, "STOP");
                shared.rest(stopped_ms).await;
                stage.signal(number, "CONT");
            }
            Fault::Restart => stage.restart_database(),
            Fault::CutAll => stage.psql(&format!("SELECT count(pg_terminate_backend(pid)) {OTHERS}")),
            Fault::CutListeners => {
                stage.psql(&format!(
                    "SELECT count(pg_terminate_backend(pid)) {OTHERS} AND query ILIKE 'listen%'"
                ));
            }
        }
        stage.answers().await;
        shared.recorder.fault(format!("{fault:?} {number}"), began);
    }
}
