//! The preview of a bulk change: rows are read, judged and stored batch by batch. Nothing is changed outside.

use std::fmt;

use serde_json::{Map, Value, json};
use tokio::time::sleep;
use waypost_kernel::{Failure, Span};
use waypost_store::{AddTargets, NewTarget, Preview, RunRow, Store, StoreError, iso};

use super::fresh::VALID_UNTIL;
use super::row::{Made, Maker, Target};
use super::source::{Reader, Rows, Trouble};
use super::today::Today;
use super::totals::Totals;
use crate::pace;
use crate::playbook::{Guardrails, OnViolation, Playbook, Rule, Violation};

/// Targets of one write, and rows that one stands for.
const BATCH: usize = 1_000;
const BATCH_ROWS: u64 = 10_000;
/// Rows that are told of if they cannot be read.
const TOLD: usize = 20;
/// A store that does not answer is asked so often.
const TRIES: u32 = 8;

/// Where a target keeps what else its row said.
pub const ROW: &str = "row";

const ON_VIOLATION: &str = "on_violation";

/// Whether nothing would change, since a target is past a guardrail.
pub fn is_stopped(preview: &Preview) -> bool {
    preview.stopped > 0 && preview.totals.get(ON_VIOLATION).is_some_and(|it| it == "stop")
}

/// Why there is no preview.
#[derive(Clone, Debug)]
pub enum NotGathered {
    /// Rows that cannot be used, each in words, and how many more there are.
    Rows(Vec<String>, u64),
    /// The source cannot be read, or the inputs do not fit.
    Source(String),
    Store(StoreError),
}

impl fmt::Display for NotGathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotGathered::Source(words) => f.write_str(words),
            NotGathered::Store(error) => error.fmt(f),
            NotGathered::Rows(told, 0) => f.write_str(&told.join("\n")),
            NotGathered::Rows(told, more) => write!(f, "{}\nand {more} more", told.join("\n")),
        }
    }
}

impl From<StoreError> for NotGathered {
    fn from(error: StoreError) -> NotGathered {
        NotGathered::Store(error)
    }
}

/// Reads the targets of a run that is a draft, and stores them. Asked again after a crash, it goes on where it was.
pub async fn gather(
    store: &dyn Store,
    run: &RunRow,
    (playbook, rule): (&Playbook, &Rule),
    by: &str,
    reader: Reader,
) -> Result<Preview, NotGathered> {
    let inputs = accepted(playbook, &run.input)?;
    let run_seen = json!({ "id": run.id(), "tenant": run.tenant });
    let mut gathering = Gathering {
        store,
        run,
        by,
        maker: Maker::new(&rule.targets, &rule.guardrails, seen(playbook, &inputs, run_seen)),
        totals: Totals::default(),
        batch: Batch::default(),
        known: rows_of(run),
        retries: rule.apply.retries,
        today: Today::of(store, run, &rule.guardrails, store.now().await?).await?,
        guardrails: &rule.guardrails,
        valid_for: rule.targets.valid_for,
        told: Vec::new(),
        untold: 0,
    };
    let mut rows = Rows::open(playbook, rule, &inputs, reader);
    while let Some(read) = rows.next().await {
        match read {
            Ok(row) => match gathering.maker.make(row) {
                Ok(made) => gathering.take(made).await?,
                Err(problem) => gathering.bad(problem),
            },
            Err(Trouble::Row(problem)) => gathering.bad(problem),
            Err(Trouble::Source(problem)) => return Err(NotGathered::Source(problem)),
        }
    }
    gathering.end().await
}

/// What a preview would come to; nothing is written.
pub async fn look(
    (playbook, rule): (&Playbook, &Rule),
    input: &Value,
    reader: Reader,
) -> Result<Preview, NotGathered> {
    let inputs = accepted(playbook, input)?;
    let mut maker = Maker::new(&rule.targets, &rule.guardrails, seen(playbook, &inputs, json!({})));
    let (mut totals, mut preview) = (Totals::default(), Preview::default());
    let (mut told, mut untold) = (Vec::new(), 0);
    let mut rows = Rows::open(playbook, rule, &inputs, reader);
    while let Some(read) = rows.next().await {
        let problem = match read {
            Ok(row) => match maker.make(row) {
                Ok(made) => {
                    totals.count(&made);
                    preview.rows += 1;
                    match &made {
                        Made::Unchanged => preview.unchanged += 1,
                        Made::NoValue => {}
                        Made::Target(target) => {
                            preview.targets += 1;
                            preview.stopped += u64::from(target.violation.is_some());
                        }
                    }
                    continue;
                }
                Err(problem) => problem,
            },
            Err(Trouble::Row(problem)) => problem,
            Err(Trouble::Source(problem)) => return Err(NotGathered::Source(problem)),
        };
        if told.len() < TOLD {
            told.push(problem);
        } else {
            untold += 1;
        }
    }
    if !told.is_empty() {
        return Err(NotGathered::Rows(told, untold));
    }
    let mut totals = totals.to_json();
    say_if_stopped(&mut totals, &rule.guardrails);
    Ok(Preview { ready: true, totals, ..preview })
}

/// Among the totals: that one target past a guardrail leaves all others as they are, too.
fn say_if_stopped(totals: &mut Map<String, Value>, guardrails: &Guardrails) {
    if guardrails.on_violation == OnViolation::Stop {
        totals.insert(ON_VIOLATION.to_owned(), json!("stop"));
    }
}

fn accepted(playbook: &Playbook, input: &Value) -> Result<Map<String, Value>, NotGathered> {
    playbook.accept(input).map_err(|problems| {
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        NotGathered::Source(told.join("\n"))
    })
}

/// What formulas see beside the target: no secrets.
fn seen(playbook: &Playbook, inputs: &Map<String, Value>, run: Value) -> Map<String, Value> {
    let is_open = |(name, _): &(&String, &Value)| playbook.input(name).is_none_or(|input| !input.secret);
    let inputs: Map<String, Value> =
        inputs.iter().filter(is_open).map(|(name, value)| (name.clone(), value.clone())).collect();
    Map::from_iter([("inputs".to_owned(), Value::Object(inputs)), ("run".to_owned(), run)])
}

/// How many rows are stored already.
fn rows_of(run: &RunRow) -> u64 {
    run.details.get("preview").and_then(|preview| preview["rows"].as_u64()).unwrap_or_default()
}

struct Gathering<'a> {
    store: &'a dyn Store,
    run: &'a RunRow,
    by: &'a str,
    maker: Maker<'a>,
    totals: Totals,
    batch: Batch,
    /// Rows that an earlier gatherer stored.
    known: u64,
    retries: u32,
    today: Today,
    guardrails: &'a Guardrails,
    valid_for: Span,
    told: Vec<String>,
    untold: u64,
}

#[derive(Default)]
struct Batch {
    /// Rows before it.
    at: u64,
    rows: u64,
    targets: Vec<NewTarget>,
    unchanged: u64,
}

impl Gathering<'_> {
    fn bad(&mut self, problem: String) {
        if self.told.len() < TOLD {
            self.told.push(problem);
        } else {
            self.untold += 1;
        }
    }

    async fn take(&mut self, mut made: Made) -> Result<(), NotGathered> {
        if let Made::Target(target) = &mut made {
            let today = || self.today.judge(self.guardrails, &target.key);
            target.violation = target.violation.take().or_else(today);
        }
        self.totals.count(&made);
        if self.batch.at + self.batch.rows < self.known {
            self.batch.at += 1;
            return Ok(());
        }
        self.batch.rows += 1;
        match made {
            Made::Target(target) => self.batch.targets.push(new_target(*target, self.retries)),
            Made::Unchanged => self.batch.unchanged += 1,
            Made::NoValue => {}
        }
        if self.batch.targets.len() >= BATCH || self.batch.rows >= BATCH_ROWS {
            self.store_batch(false).await?;
        }
        Ok(())
    }

    async fn end(mut self) -> Result<Preview, NotGathered> {
        if !self.told.is_empty() {
            return Err(NotGathered::Rows(self.told, self.untold));
        }
        self.store_batch(true).await
    }

    async fn store_batch(&mut self, last: bool) -> Result<Preview, NotGathered> {
        let Batch { at, rows, targets, unchanged } = std::mem::take(&mut self.batch);
        self.batch.at = at + rows;
        let mut totals = self.totals.to_json();
        say_if_stopped(&mut totals, self.guardrails);
        if last {
            let until = self.store.now().await? + self.valid_for;
            totals.insert(VALID_UNTIL.to_owned(), json!(iso(until)));
        }
        let write = AddTargets {
            tenant: self.run.tenant.clone(),
            run_id: self.run.id().to_owned(),
            by: self.by.to_owned(),
            at,
            rows,
            targets,
            unchanged,
            cursor: None,
            totals,
            last,
        };
        for retry in 1.. {
            match self.store.add_targets(write.clone()).await {
                Err(StoreError::Unavailable(_)) if retry < TRIES => sleep(pace::store_away(retry)).await,
                answer => return Ok(answer?),
            }
        }
        Err(NotGathered::Source("the store did not answer".to_owned()))
    }
}

fn new_target(target: Target, retries: u32) -> NewTarget {
    let Target { key, before, after, more, violation } = target;
    let details =
        if more.is_empty() { Map::new() } else { Map::from_iter([(ROW.to_owned(), Value::Object(more))]) };
    NewTarget {
        key,
        name: None,
        before,
        after,
        destination: None,
        violation: violation.map(|violation| Failure::new(Violation::CODE, &violation.message)),
        max_retries: Some(retries),
        details,
    }
}
