//! Following a run: its output as it appears, and the path that it took.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;
use waypost_kernel::Phase;
use waypost_store::{EventRow, RunRow, Store};

use super::{age, find, output_lines};
use crate::output::{Format, INTERRUPTED, Result, TIMED_OUT, exit_code, print};
use crate::worker::duration;

const PAGE: usize = 500;
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
#[command(
    after_help = "Exits with the run's result: 0 succeeded (or a draft: nothing was asked of it yet), 3 failed or cancelled, 6 waits for a person, 124 not done in time.\n\nExamples:\n  waypost run watch run-0192"
)]
pub struct Watch {
    run: String,
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  waypost run logs run-0192\n  waypost run logs -f run-0192")]
pub struct Logs {
    run: String,
    /// Until the run is settled or waits for a person.
    #[arg(short, long)]
    follow: bool,
}

/// Why following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Settled, parked or a draft: nothing more happens by itself.
    AtRest,
    TimedOut,
    Interrupted,
}

pub async fn watch(store: &dyn Store, flags: Watch) -> Result<u8> {
    let run = find(store, &flags.run).await?;
    let mut follower = Follower::new(run.id().to_owned(), flags.output == Format::Table);
    let stopped = follower.follow_until(store, flags.timeout).await?;
    let run = find(store, run.id()).await?;
    follower.print_path(&run);
    if flags.output != Format::Table {
        print(&flags.output.object(&run.object()))?;
    }
    Ok(match stopped {
        Stopped::AtRest => exit_code(&run),
        Stopped::TimedOut => TIMED_OUT,
        Stopped::Interrupted => INTERRUPTED,
    })
}

pub async fn logs(store: &dyn Store, flags: Logs) -> Result {
    let run = find(store, &flags.run).await?;
    let mut follower = Follower::new(run.id().to_owned(), true);
    follower.quiet = true;
    if flags.follow {
        follower.follow_until(store, None).await?;
    } else {
        follower.catch_up(store).await?;
    }
    Ok(())
}

/// Reads a run's events in order, prints what its commands said, and remembers the states that it went through.
#[derive(Debug)]
pub struct Follower {
    run_id: String,
    seq: u64,
    path: Vec<String>,
    /// Output lines are data: on stdout, unless that is for the run object.
    to_stdout: bool,
    /// Only what commands printed.
    quiet: bool,
    /// Of steps, by their keys.
    names: HashMap<String, String>,
}

impl Follower {
    pub fn new(run_id: String, to_stdout: bool) -> Follower {
        Follower { run_id, seq: 0, path: Vec::new(), to_stdout, quiet: false, names: HashMap::new() }
    }

    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// What happened before is not told again.
    pub fn after(mut self, run: &RunRow) -> Follower {
        self.seq = run.run.seq;
        self.path.push(run.status().to_owned());
        self
    }

    pub async fn follow_until(&mut self, store: &dyn Store, timeout: Option<Duration>) -> Result<Stopped> {
        let ends_at = timeout.map(|timeout| Instant::now() + timeout);
        let timed_out = async {
            match ends_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            followed = self.follow(store) => followed.map(|()| Stopped::AtRest),
            () = timed_out => Ok(Stopped::TimedOut),
            _ = tokio::signal::ctrl_c() => Ok(Stopped::Interrupted),
        }
    }

    pub async fn follow(&mut self, store: &dyn Store) -> Result {
        loop {
            // The row first: what happened up to it is then in the events.
            let run = find(store, &self.run_id).await?;
            self.catch_up(store).await?;
            // A draft that the engine takes on by itself is on its way.
            let goes_on = run.lifecycle.acknowledgement(run.run.state).is_some();
            if matches!(run.phase(), Phase::Settled | Phase::Parked | Phase::Draft) && !goes_on {
                return Ok(());
            }
            store.changed(LOOK).await;
        }
    }

    pub async fn catch_up(&mut self, store: &dyn Store) -> Result {
        loop {
            let events = store.events(self.run_id.clone(), self.seq, PAGE).await?;
            if !self.quiet && events.iter().any(|event| event.payload["items"].is_array()) {
                let items = store.items(self.run_id.clone(), None).await?;
                self.names = items.into_iter().map(|item| (item.key, item.name)).collect();
            }
            for event in &events {
                self.seq = event.seq;
                self.see(event)?;
            }
            // A page of large ones is short, and not the last.
            if events.is_empty() {
                return Ok(());
            }
        }
    }

    fn see(&mut self, event: &EventRow) -> Result {
        if self.path.last() != Some(&event.to) {
            self.path.push(event.to.clone());
        }
        for (_, line) in output_lines(&event.payload) {
            if self.to_stdout {
                print(&format!("{line}\n"))?;
            } else {
                anstream::eprintln!("{line}");
            }
        }
        if !self.quiet {
            self.tell_steps(event);
        }
        let notable = event.level == "warn" || event.level == "error";
        if notable && !self.quiet && event.payload["lines"].is_null() {
            anstream::eprintln!("{}: {}", event.level, event.message);
        }
        Ok(())
    }

    /// The first kind of items alone: the parts of steps are for `run show`.
    fn tell_steps(&self, event: &EventRow) {
        for item in event.payload["items"].as_array().into_iter().flatten() {
            let text = |key: &str| item[key].as_str().unwrap_or_default();
            if text("kind") != "step" || text("from").is_empty() {
                continue;
            }
            let name = self.names.get(text("key")).map_or(text("key"), String::as_str);
            let why = item["error_code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
            anstream::eprintln!("{} {name}{why}", sign(text("to")));
        }
    }

    /// `run-… queued → claimed → running → success in 0.1s`, and why, if it did not go well.
    pub fn print_path(&self, run: &RunRow) {
        let times = run.run.finished_at.zip(run.run.started_at);
        let took = times.map(|(end, start)| format!(" in {}", age(end - start))).unwrap_or_default();
        anstream::eprintln!("{} {}{took}", run.id(), self.path.join(" → "));
        if run.phase() == Phase::Draft {
            let next = waypost_kernel::allowed(&run.lifecycle, &run.run).join(", ");
            anstream::eprintln!("nothing was executed yet: it is a draft; allowed now: {next}");
        }
        if let Some(failure) = &run.run.failure {
            anstream::eprintln!("{}: {}", failure.code, failure.message);
        }
    }
}

/// anstream leaves colours out where they are not wanted.
fn sign(status: &str) -> String {
    let (colour, sign) = match status {
        "running" => (36, "▶"),
        "completed" => (32, "✓"),
        "failed" => (31, "✗"),
        "skipped" => (90, "↷"),
        "paused" => (33, "⏸"),
        _ => return format!("· {status}"),
    };
    format!("\u{1b}[{colour}m{sign}\u{1b}[0m")
}
