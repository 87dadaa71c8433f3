//! Replays every run's log and compares it with what is stored.

use std::sync::Arc;

use waypost_kernel::fold;
use waypost_store::{HOUSEKEEPING, Verified};

use super::rules::follow::follow;
use super::state::{Entry, State};

impl State {
    pub fn verify(&self, progress: &dyn Fn(u64, u64)) -> Verified {
        let total = self.runs.len() as u64;
        let mut verified = Verified::default();
        for entry in self.runs.values() {
            verified.runs += 1;
            verified.housekeeping += u64::from(entry.row.queue == HOUSEKEEPING);
            verified.events += entry.events.len() as u64;
            let problems =
                [entry.row_differs(), entry.members_differ(), entry.items_differ(), entry.miscount()];
            let told = problems.into_iter().flatten().map(|problem| format!("{}: {problem}", entry.row.id()));
            verified.differences.extend(told);
            progress(verified.runs, total);
        }
        verified
    }
}

impl Entry {
    fn row_differs(&self) -> Option<String> {
        let stored = fold::without_secrets(&self.row.run);
        match fold::fold(&self.row.lifecycle, self.events.iter().map(|logged| &logged.event)) {
            None => Some("its events do not follow one another".to_owned()),
            Some(folded) => {
                let folded = fold::without_secrets(&folded);
                (folded != stored).then(|| format!("the log says {folded:?}, the row says {stored:?}"))
            }
        }
    }

    fn members_differ(&self) -> Option<String> {
        let mut replayed = self.row.clone();
        replayed.metadata = Arc::new(self.asked.metadata.clone());
        replayed.details = Arc::new(self.asked.details.clone());
        self.events.iter().for_each(|logged| logged.patch.merge_into(&mut replayed));
        let is_same = replayed.metadata == self.row.metadata && replayed.details == self.row.details;
        (!is_same).then(|| "metadata or details are not what the log says".to_owned())
    }

    fn items_differ(&self) -> Option<String> {
        let mut replayed = Vec::new();
        self.events.iter().for_each(|logged| follow(&self.row.lifecycle, &mut replayed, &logged.event));
        (replayed != self.items).then(|| "items are not what the log says".to_owned())
    }

    /// The row counts its items instead of reading them: here they are read.
    fn miscount(&self) -> Option<String> {
        let lifecycle = &self.row.lifecycle;
        let mut counted = lifecycle.no_items.clone();
        for item in &self.items {
            let (kind, tally) = (usize::from(item.kind), &mut counted[usize::from(item.kind)]);
            tally.add(item.state, 1);
            tally.staying[usize::from(item.state.0)] += u32::from(item.stays(&lifecycle.items[kind]));
        }
        let says = &self.row.run.tallies;
        (counted != *says).then(|| format!("its items count {counted:?}, it says {says:?}"))
    }
}
