//! Replays every run's log and compares it with what is stored.

use super::state::{Entry, Logged, State};
use crate::replay::{Replay, Written};
use crate::verbs::Verified;

impl State {
    pub fn verify(&self, progress: &dyn Fn(u64, u64)) -> Verified {
        let total = self.runs.len() as u64;
        let mut verified = Verified::default();
        for entry in self.runs.values() {
            verified.runs += 1;
            verified.events += entry.events.len() as u64;
            let mut replay = Replay::new(&entry.row.lifecycle, entry.row.id());
            entry.events.iter().for_each(|logged| replay.add(&written(logged)));
            verified.differences.extend(replay.differences(&entry.row, &entry.items));
            verified.differences.extend(entry.miscount());
            progress(verified.runs, total);
        }
        verified
    }
}

impl Entry {
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
        (counted != *says)
            .then(|| format!("{}: its items count {counted:?}, it says {says:?}", self.row.id()))
    }
}

fn written(logged: &Logged) -> Written {
    let row = &logged.row;
    Written {
        seq: row.seq,
        at: row.at,
        command: row.command.clone(),
        from: row.from.clone(),
        to: row.to.clone(),
        actor: row.actor.clone(),
        by: row.by.clone(),
        effect: logged.effect.clone(),
    }
}
