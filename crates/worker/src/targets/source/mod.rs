//! Rows of targets, read as they are needed: a file of a hundred thousand is never in memory as a whole.

mod command;
mod csv;
mod jsonl;
mod pages;

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use waypost_store::RunRow;

use crate::actions::Mask;
use crate::actions::http::Client;
use crate::execute::environment::{PassedEnv, own_secrets};
use crate::options::Options;
use crate::pipeline::Shared;
use crate::playbook::{Playbook, Rule, Scope, Source, Way};

/// Rows that were read and not asked for yet.
const AHEAD: usize = 256;
/// Of one row.
pub(super) const MAX_ROW_BYTES: usize = 64 * 1024;

/// What a source says of one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Where it stands, for messages: `prices.csv:17`.
    pub at: String,
    pub members: Map<String, Value>,
}

/// Why there is no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// This one cannot be read; those that follow can.
    Row(String),
    /// Nothing more can.
    Source(String),
}

type Sender = mpsc::Sender<Result<Row, Trouble>>;

/// The rows of a source, in order.
#[derive(Debug)]
pub struct Rows {
    receiver: mpsc::Receiver<Result<Row, Trouble>>,
    reader: JoinHandle<()>,
}

/// Who reads: what requests and commands are executed with.
#[derive(Clone, Debug)]
pub struct Reader {
    pub client: Client,
    pub passed_env: PassedEnv,
    /// See [`crate::Options::guardian`].
    pub guardian: Option<Vec<OsString>>,
    pub own_secrets: Mask,
    /// Whose the run is, for commands.
    pub tenant: String,
    pub run_id: String,
}

impl Reader {
    /// For a process that a person started: what it is given, commands see.
    pub fn of_person(tenant: &str, run_id: &str) -> Result<Reader, String> {
        let options = Options::default();
        let client = Client::new(options.allow_private)?;
        Ok(Reader::of(&options, client, PassedEnv::of_person(), (tenant, run_id)))
    }

    pub(crate) fn of_worker(shared: &Shared, run: &RunRow) -> Result<Reader, String> {
        let client = shared.client().map_err(str::to_owned)?.clone();
        let passed_env = shared.options.passed_env.clone();
        Ok(Reader::of(&shared.options, client, passed_env, (&run.tenant, run.id())))
    }

    fn of(
        options: &Options,
        client: Client,
        passed_env: PassedEnv,
        (tenant, run_id): (&str, &str),
    ) -> Reader {
        Reader {
            client,
            passed_env,
            own_secrets: Mask::new(own_secrets().iter().map(String::as_str)),
            guardian: options.guardian.clone(),
            tenant: tenant.to_owned(),
            run_id: run_id.to_owned(),
        }
    }
}

impl Rows {
    /// Begins to read.
    pub fn open(playbook: &Playbook, rule: &Rule, inputs: &Map<String, Value>, reader: Reader) -> Rows {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let reader = match &rule.targets.source {
            Source::Csv(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || csv::read(&path, &sender))
            }
            Source::Jsonl(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || jsonl::read(&path, &sender))
            }
            Source::Action(action) => {
                let scope = Scope { inputs: inputs.clone(), ..Scope::default() };
                let asked =
                    Asked { playbook: playbook.clone(), targets: rule.targets.clone(), scope, reader };
                match action.way {
                    Way::Exec(_) | Way::Output(_) => tokio::spawn(command::read(asked, sender)),
                    Way::Http(_) => tokio::spawn(pages::read(asked, sender)),
                }
            }
        };
        Rows { receiver, reader }
    }

    /// None at the end.
    pub async fn next(&mut self) -> Option<Result<Row, Trouble>> {
        self.receiver.recv().await
    }
}

/// Who reads no more does not keep a command or a request running.
impl Drop for Rows {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// What a reader of requests or commands is told.
struct Asked {
    playbook: Playbook,
    targets: crate::playbook::Targets,
    scope: Scope,
    reader: Reader,
}

fn unreadable(path: &Path, error: &std::io::Error) -> Trouble {
    Trouble::Source(format!("{}: the file cannot be read: {error}", path.display()))
}

/// The name of a file as messages have it.
fn shown(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// An object is a row.
fn row(at: String, value: Value) -> Result<Row, Trouble> {
    match value {
        Value::Object(members) => Ok(Row { at, members }),
        other => {
            let shown: String = other.to_string().chars().take(60).collect();
            Err(Trouble::Row(format!("{at}: a target is an object, and this is {shown}")))
        }
    }
}
