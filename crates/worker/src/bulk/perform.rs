//! One holder's work on a command for many runs.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::Failure;
use waypost_kernel::request::Level;
use waypost_store::{Claimed, CommandWrite, Filter, StoreError};

use super::batch::{Asks, Member, of_stored, stored};
use super::{BulkCommand, Progress, REPORT, Which};
use crate::interpret::{Ending, Goal, Parting};
use crate::lease::Lease;
use crate::pipeline::{Shared, wanted};
use crate::report::journal::Journal;

/// Runs between two writes of how far it is.
const BATCH: usize = 50;
/// In an operation's details: which runs are asked now, and a list of where those after them begin, which is empty if there are none.
const ASKED: &str = "asked";
const CURSOR: &str = "cursor";

pub(crate) async fn perform(shared: &Shared, claimed: &Claimed, lease: &Arc<Lease>) -> Parting {
    let run = &claimed.run;
    let asked = match BulkCommand::of(run) {
        Some(Ok(asked)) => asked,
        Some(Err(problem)) => return unfit(&problem),
        None => return unfit("it is no command for many runs"),
    };
    // Who asked for the operation asks each of its runs.
    let by = match shared.store.events(run.id().to_owned(), 0, 1).await {
        Ok(events) => events.first().map(|event| event.by.clone()).unwrap_or_default(),
        Err(StoreError::Unavailable(_)) => return Parting::GiveBack(None),
        Err(error) => return unfit(&error.to_string()),
    };
    let reason = match asked.reason.as_deref().unwrap_or_default().trim() {
        "" => run.id().to_owned(),
        reason => format!("{reason} ({})", run.id()),
    };
    let write = CommandWrite {
        tenant: run.tenant.clone(),
        name: asked.command.clone(),
        by,
        reason: Some(reason),
        force: asked.force,
        ..CommandWrite::default()
    };
    let asks = Asks { store: shared.store.clone(), write, operation: run.id().to_owned() };
    let next = match run.details.get(CURSOR) {
        Some(cursor) => cursor[0].as_str().map(|place| Some(place.to_owned())),
        None => Some(None),
    };
    Pass {
        shared,
        lease,
        journal: Journal::new(shared.reporter.clone(), lease.clone(), &shared.options.name),
        asked,
        asks,
        progress: Progress::of(&run.details),
        next,
        left_over: of_stored(run.details.get(ASKED)),
    }
    .run()
    .await
}

fn unfit(problem: &str) -> Parting {
    Parting::End(Ending::failed(Failure::new("UNFIT", problem)))
}

struct Pass<'a> {
    shared: &'a Shared,
    lease: &'a Arc<Lease>,
    journal: Arc<Journal>,
    asked: BulkCommand,
    asks: Asks,
    progress: Progress,
    /// Where the next batch begins; none: there is none.
    next: Option<Option<String>>,
    /// An earlier holder's batch, of which some were asked.
    left_over: Vec<Member>,
}

impl Pass<'_> {
    async fn run(mut self) -> Parting {
        let left_over = std::mem::take(&mut self.left_over);
        if !left_over.is_empty()
            && let Some(parting) = self.ask(&left_over, true).await
        {
            return parting;
        }
        while let Some(place) = self.next.take() {
            let (members, next) = match self.batch(place).await {
                Ok(batch) => batch,
                Err(StoreError::Unavailable(_)) => return Parting::GiveBack(None),
                Err(error) => return unfit(&error.to_string()),
            };
            self.next = next;
            if members.is_empty() {
                continue;
            }
            let mut details = self.report();
            details.insert(ASKED.to_owned(), stored(&members));
            details.insert(CURSOR.to_owned(), json!(self.next.iter().collect::<Vec<_>>()));
            let words = format!("{} of {} asked", self.told(), self.total());
            if !self.journal.tell(Level::Info, &words, self.counts(), details).await {
                return Parting::GiveBack(None);
            }
            if let Some(parting) = self.ask(&members, false).await {
                return parting;
            }
        }
        Parting::End(self.ending())
    }

    fn told(&self) -> u64 {
        self.progress.told()
    }

    fn total(&self) -> String {
        self.asked.total.map_or_else(|| "all".to_owned(), |total| total.to_string())
    }

    fn counts(&self) -> Value {
        json!({ "done": self.progress.done, "unchanged": self.progress.unchanged, "refused": self.progress.refused })
    }

    fn report(&self) -> Map<String, Value> {
        Map::from_iter([(REPORT.to_owned(), self.progress.object())])
    }

    /// The runs from a place on, and where those after them begin.
    async fn batch(
        &self,
        place: Option<String>,
    ) -> waypost_store::Result<(Vec<Member>, Option<Option<String>>)> {
        match &self.asked.which {
            Which::Ids(ids) => {
                let from: usize = place.and_then(|place| place.parse().ok()).unwrap_or_default();
                let members = ids.iter().skip(from).take(BATCH);
                let members = members.map(|id| Member { run_id: id.clone(), seq: None }).collect();
                let next = from + BATCH;
                Ok((members, (next < ids.len()).then(|| Some(next.to_string()))))
            }
            Which::Fitting(filter) => {
                let filter = Filter { limit: BATCH, cursor: place, ..(**filter).clone() };
                let page = self.shared.store.runs(filter).await?;
                // An operation of this kind is asked about by itself.
                let others = page.runs.iter().filter(|run| run.id() != self.asks.operation);
                let members =
                    others.map(|run| Member { run_id: run.id().to_owned(), seq: Some(run.run.seq) });
                Ok((members.collect(), page.next.map(Some)))
            }
        }
    }

    /// Gives how it ends, if it does before all are asked.
    async fn ask(&mut self, members: &[Member], is_known: bool) -> Option<Parting> {
        let lease = self.lease;
        let may_go_on = || !lease.is_lost() && !lease.is_leaving() && lease.want().is_none();
        let answers = self.asks.all(members, is_known, may_go_on).await;
        let mut refusals = Vec::new();
        for (run_id, answer) in answers {
            if matches!(answer, Err(StoreError::Unavailable(_))) {
                return Some(Parting::GiveBack(None));
            }
            refusals.extend(self.progress.count(&run_id, answer));
        }
        if lease.is_lost() || lease.is_leaving() {
            return Some(Parting::GiveBack(None));
        }
        for refusal in refusals {
            let words = format!(
                "{}: {}",
                refusal["run_id"].as_str().unwrap_or_default(),
                refusal["message"].as_str().unwrap_or_default()
            );
            if !self.journal.note(Level::Warn, &words, refusal).await {
                return Some(Parting::GiveBack(None));
            }
        }
        let details = self.settled();
        wanted(lease).map(|ending| Parting::End(Ending { details, ..ending }))
    }

    /// The report of one that is at its end: no batch is under way any more.
    fn settled(&self) -> Map<String, Value> {
        let mut details = self.report();
        details.insert(ASKED.to_owned(), json!([]));
        details
    }

    fn ending(&self) -> Ending {
        let ending = match (&self.progress.refusals[..], self.progress.done + self.progress.unchanged) {
            ([], _) => Ending::new(Goal::Succeed),
            ([first, ..], 0) => {
                let message =
                    format!("all refused; the first: {}", first["message"].as_str().unwrap_or_default());
                Ending::failed(Failure::new("ALL_REFUSED", &message))
            }
            _ => Ending::new(Goal::Partial),
        };
        Ending { details: self.settled(), ..ending }
    }
}
