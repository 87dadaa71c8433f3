//! What the `waypost` binary does with this crate, as small as the tests need it.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::sync::watch;
use waypost_store::sqlite::SqliteStore;
use waypost_worker::{Options, Stage, Worker, guardian};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let verb = words.next().unwrap_or_default();
    let second = words.next().unwrap_or_default();
    match verb.to_str() {
        Some("guardian") => guardian::main(words),
        Some("worker") => work(Path::new(&second)),
        _ => ExitCode::from(2),
    }
}

/// Works until it is killed.
fn work(database: &Path) -> ExitCode {
    let options = Options { allow_commands: true, ..Options::default() };
    let worked = SqliteStore::open(database).and_then(|store| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| waypost_worker::StoreError::Unavailable(error.to_string()))?;
        let (_never, shutdown) = watch::channel(Stage::Working);
        runtime.block_on(Worker::new(Arc::new(store), options).run(shutdown))
    });
    if worked.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
