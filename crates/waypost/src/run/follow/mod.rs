//! Following a run: why it waits, its output as it appears, how its steps go, and the path that it took.

pub mod entries;
mod progress;
mod signals;
pub mod wait;

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;
use waypost_kernel::text::terminal::{indented, name, output_line, plain};
use waypost_kernel::waiting::Reason;
use waypost_kernel::{Phase, Time};
use waypost_store::{EventRow, RunRow, Store};

use entries::{Entry, EntryReader};
use progress::Progress;

use crate::output::{Failed, Format, INTERRUPTED, Result, TIMED_OUT, exit_code, print, tell};
use crate::run::ids::{explained, find, short};
use crate::run::look::events::all_events;
use crate::run::look::{operations, show, targets, waits, worked};
use crate::run::times::age;
use crate::worker::duration;

const PAGE: usize = 500;
/// Times arrive without an event: what the run waits for is looked at again.
pub const LOOK: Duration = Duration::from_secs(4);

#[derive(Debug, Args)]
#[command(
    after_help = "Exits with the run's result: 0 succeeded, 3 failed or cancelled, 6 waits for a person (or is a draft: nothing was asked of it yet), 124 not done in time.\n\nExamples:\n  waypost run watch @1\n  waypost run watch f9aac1c9 --timeout 10m"
)]
pub struct Watch {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Give up after this time. The run goes on.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
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
    tell(&header(&run, store.now().await?));
    let stopped = follower.follow_until(store, flags.timeout).await?;
    let run = explained(store, run.id()).await?;
    follower.tell_end(store, &run).await?;
    if flags.output != Format::Table {
        print(&flags.output.object(&run.object()))?;
    }
    Ok(match stopped {
        Stopped::AtRest => exit_code(&run),
        Stopped::TimedOut => TIMED_OUT,
        Stopped::Interrupted => INTERRUPTED,
    })
}

/// `f9aac1c9 shop-deploy: pending in default for 3.2s`.
pub fn header(run: &RunRow, now: Time) -> String {
    let title = run.title.as_deref().map(|title| format!(" {title}")).unwrap_or_default();
    let since = format!("queued {} ago", age(now - run.run.created_at));
    let head = format!("{}{title}: {} in {}, {since}", short(run.id()), run.status(), run.queue);
    name(&head).into_owned()
}

/// Nothing more happens to it by itself.
pub fn is_at_rest(run: &RunRow, now: Time) -> bool {
    matches!(run.phase(), Phase::Settled | Phase::Parked | Phase::Draft) && !is_on_its_way(run, now)
}

/// A draft that the engine takes on by itself, or a question that nobody answered in time: the run goes on without an answer.
pub fn is_on_its_way(run: &RunRow, now: Time) -> bool {
    run.lifecycle.acknowledgement(run.run.state).is_some() || is_unanswered(run, now)
}

/// Nobody is waited for any more: whoever looks at it next takes it up.
pub fn is_unanswered(run: &RunRow, now: Time) -> bool {
    run.phase() == Phase::Parked && run.run.expires_at.is_some_and(|until| until <= now)
}

/// Reads a run's events in order, prints what its commands said, and remembers the states that it went through.
#[derive(Debug)]
pub struct Follower {
    run_id: String,
    seq: u64,
    path: Vec<String>,
    /// Output lines are data: on stdout, unless that is for the run object.
    to_stdout: bool,
    entries: EntryReader,
    waits: Waits,
    progress: Progress,
    /// What went wrong when output was to be written: the run goes on, and the end tells of it.
    unwritten: Option<Failed>,
}

/// What the run waits for, since when that is known here, and which reason was shown last.
#[derive(Debug, Default)]
struct Waits {
    known: Option<(Reason, Instant)>,
    shown: Option<Reason>,
}

/// A wait that is no longer than this is not shown.
const A_MOMENT: Duration = Duration::from_millis(1_500);

impl Follower {
    pub fn new(run_id: String, to_stdout: bool) -> Follower {
        let (entries, waits, progress) = (EntryReader::default(), Waits::default(), Progress::default());
        Follower { run_id, seq: 0, path: Vec::new(), to_stdout, entries, waits, progress, unwritten: None }
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
            asked = signals::asked_to_end() => asked.map(|()| Stopped::Interrupted),
        }
    }

    pub async fn follow(&mut self, store: &dyn Store) -> Result {
        loop {
            // The row first: what happened up to it is then in the events.
            let run = explained(store, &self.run_id).await?;
            self.catch_up(store).await?;
            let now = self.now(store, &run).await?;
            self.tell_waiting(&run, now);
            self.progress.show(store, &run).await;
            if is_at_rest(&run, now) {
                self.progress.end();
                return Ok(());
            }
            // The events may be ahead of the row, with its last one among them: nobody waits for another one then.
            if self.seq <= run.run.seq {
                store.event_after(&self.run_id, self.seq, LOOK).await;
            }
        }
    }

    /// Only a run that waits for a person until a time has to do with the database's.
    async fn now(&self, store: &dyn Store, run: &RunRow) -> Result<Time> {
        Ok(match run.phase() {
            Phase::Parked if run.run.expires_at.is_some() => store.now().await?,
            _ => Time::default(),
        })
    }

    /// Once for each reason, if it lasts.
    fn tell_waiting(&mut self, run: &RunRow, now: Time) {
        let is_told = |reason: &Reason| *reason != Reason::Person || is_unanswered(run, now);
        let reason = run.waiting().map(|waiting| waiting.reason).filter(is_told);
        let since = self.waits.known.filter(|(known, _)| Some(*known) == reason).map(|(_, since)| since);
        self.waits.known = reason.map(|reason| (reason, since.unwrap_or_else(Instant::now)));
        let lasts = since.is_some_and(|since| since.elapsed() >= A_MOMENT);
        if lasts && self.waits.shown != reason {
            self.waits.shown = reason;
            tell(&format!("waiting: {}", waits::in_full(run).unwrap_or_default()));
        }
    }

    pub async fn catch_up(&mut self, store: &dyn Store) -> Result {
        loop {
            let events = store.events(self.run_id.clone(), self.seq, PAGE).await?;
            if self.entries.needs_names(&events) {
                self.entries.learn(store.items(self.run_id.clone(), None).await?);
            }
            for event in &events {
                self.seq = event.seq;
                self.see(event);
            }
            // A page of large ones is short, and not the last.
            if events.is_empty() {
                return Ok(());
            }
        }
    }

    fn see(&mut self, event: &EventRow) {
        if self.path.last() != Some(&event.to) {
            self.path.push(event.to.clone());
        }
        for entry in self.entries.read(event) {
            match entry {
                Entry::Line { text, .. } if self.to_stdout => self.print_line(&text),
                entry => tell(&shown(&entry)),
            }
        }
    }

    /// A disk that is full is no reason to leave a run alone that may be worked here.
    fn print_line(&mut self, text: &str) {
        if self.unwritten.is_some() {
            return;
        }
        if let Err(failed) = print(&format!("{}\n", output_line(text))) {
            tell(&format!("{}; the run goes on", failed.message));
            self.unwritten = Some(failed);
        }
    }

    /// `run-… queued → claimed → running → success in 0.1s`, and why, if it did not go well; what is asked, if it waits.
    pub async fn tell_end(&self, store: &dyn Store, run: &RunRow) -> Result {
        let events = all_events(store, run.id(), 0).await?;
        let now = store.now().await?;
        let took = worked::worked(run, &events, now);
        let took = run.run.finished_at.and(run.run.started_at).map(|_| format!(" in {}", age(took)));
        tell(&format!("{} {}{}", run.id(), plain(&self.path.join(" → ")), took.unwrap_or_default()));
        if let Some(failure) = &run.run.failure {
            tell(&indented(&format!("{}: {}", failure.code, failure.message), 2));
        }
        if let Some(unclean) = show::unclean(run) {
            tell(&indented(&unclean, 2));
        }
        if let Some(summary) = operations::summary(run) {
            tell(&indented(&summary, 2));
        }
        if let Some(summary) = targets::summary(store, run).await? {
            tell(&summary);
        }
        if is_at_rest(run, now) && run.phase() != Phase::Settled {
            tell(&asked(run, now));
        }
        self.unwritten.clone().map_or(Ok(()), Err)
    }
}

/// What a run that waits for a person asks, and the command that answers.
fn asked(run: &RunRow, now: Time) -> String {
    if let Some(decisions) = waits::decisions(run, now) {
        return decisions;
    }
    let draft = if run.phase() == Phase::Draft { "nothing was executed yet: it is " } else { "" };
    let allowed = waypost_kernel::allowed(&run.lifecycle, &run.run).join(", ");
    let waits = waits::in_full(run).map(|waits| format!("{waits}\n")).unwrap_or_default();
    format!("{draft}{waits}allowed now: {}", plain(&allowed))
}

/// As it is shown between the lines of output.
pub fn shown(entry: &Entry) -> String {
    match entry {
        Entry::Line { text, .. } => output_line(text).into_owned(),
        Entry::Message { level, text, .. } if level == "info" => plain(text).into_owned(),
        Entry::Message { level, text, .. } => format!("{level}: {}", plain(text)),
        Entry::Step { name: step, to, took, error } => {
            let took = took.map(|took| format!(" {}", age(took))).unwrap_or_default();
            let error = error.as_ref().map(|code| format!(" ({})", name(code))).unwrap_or_default();
            format!("{} {}{took}{error}", sign(to), name(step))
        }
        Entry::Task { name: task, to, percent } => {
            let far = if *percent > 0 { format!("{percent} %") } else { to.clone() };
            format!("  {} {}", name(task), name(&far))
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
        _ => return format!("· {}", plain(status)),
    };
    format!("\u{1b}[{colour}m{sign}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};

    use waypost_kernel::{Catalog, Lifecycle};
    use waypost_store::sqlite::SqliteStore;
    use waypost_store::*;

    use super::*;

    /// A store whose run ends just after its row was read.
    struct EndsMeanwhile {
        inner: SqliteStore,
        end: Mutex<Option<FinishWrite>>,
    }

    macro_rules! each {
        ($($(#[$_about:meta])* $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
            $(one! { $verb($($name: $type),*) -> $answer })*
        };
    }

    macro_rules! one {
        (explain $($_rest:tt)*) => {};
        ($verb:ident($($name:ident: $type:ty),*) -> $answer:ty) => {
            fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
                self.inner.$verb($($name),*)
            }
        };
    }

    impl Store for EndsMeanwhile {
        store_verbs!(each);

        fn explain(&self, runs: Vec<RunRow>) -> Reply<'_, Vec<RunRow>> {
            let end = self.end.lock().expect("no panic").take();
            Box::pin(async move {
                let explained = self.inner.explain(runs).await;
                if let Some(end) = end {
                    self.inner.finish(vec![end]).await?.remove(0)?;
                }
                explained
            })
        }

        fn changed(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            panic!("it has ended: there is nothing to wait for")
        }
    }

    // proves U9
    #[tokio::test]
    async fn who_has_seen_the_end_waits_for_nothing_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = SqliteStore::open(&folder.path().join("waypost.db")).expect("a store");
        let new = NewRun { lifecycle: "deploy".into(), ..NewRun::default() };
        let run = inner.enqueue(vec![new]).await.expect("a store").remove(0).expect("a run").run;
        let take = Take { worker: "w".into(), start: true, ..Take::default() };
        let claimed = inner.claim_run(run.id().to_owned(), take).await.expect("a lease");
        let end = FinishWrite {
            run_id: run.id().to_owned(),
            token: Some(claimed.token),
            by: "w".into(),
            status: "success".into(),
            ..FinishWrite::default()
        };
        let store = EndsMeanwhile { inner, end: Mutex::new(Some(end)) };
        let mut follower = Follower::new(run.id().to_owned(), false);
        follower.follow(&store).await.expect("it ends");
        assert_eq!(follower.path.last().map(String::as_str), Some("success"));
    }
}
