//! Replays every run's log and compares it with what is stored.

use waypost_kernel::event::Event;
use waypost_kernel::fold::{fold, without_secrets};
use waypost_kernel::item::Item;
use waypost_kernel::tally::Tally;

use super::state::{Entry, Logged, State};
use crate::codec::{Found, event_from};
use crate::follow::follow;
use crate::verbs::Verified;

impl State {
    pub fn verify(&self, progress: &dyn Fn(u64, u64)) -> Verified {
        let total = self.runs.len() as u64;
        let mut verified = Verified::default();
        for entry in self.runs.values() {
            verified.runs += 1;
            verified.events += entry.events.len() as u64;
            if let Err(difference) = entry.verify() {
                verified.differences.push(format!("{}: {difference}", entry.row.id()));
            }
            progress(verified.runs, total);
        }
        verified
    }
}

impl Entry {
    fn verify(&self) -> Result<(), String> {
        let lifecycle = &self.row.lifecycle;
        let events: Option<Vec<Event>> = self.events.iter().map(|logged| self.read(logged)).collect();
        let events = events.ok_or("an event cannot be read")?;
        let folded = fold(lifecycle, &events).ok_or("its events have a gap")?;
        let stored = without_secrets(&self.row.run);
        if folded != stored {
            return Err(format!("the log makes it {folded:?}, but it is {stored:?}"));
        }
        let mut items: Vec<Item> = Vec::new();
        let mut tallies: Vec<Tally> = lifecycle.items.iter().map(|kind| Tally::new(kind)).collect();
        events.iter().for_each(|event| follow(lifecycle, &mut items, event));
        if items != self.items {
            return Err(format!("the log makes its items {items:?}, but they are {:?}", self.items));
        }
        for item in &items {
            let (kind, tally) = (usize::from(item.kind), &mut tallies[usize::from(item.kind)]);
            tally.add(item.state, 1);
            tally.staying[usize::from(item.state.0)] += u32::from(item.stays(&lifecycle.items[kind]));
        }
        if tallies != stored.tallies {
            return Err(format!("its items count {tallies:?}, but it says {:?}", stored.tallies));
        }
        Ok(())
    }

    fn read(&self, logged: &Logged) -> Option<Event> {
        let row = &logged.row;
        let found = Found {
            run_id: &row.run_id,
            seq: row.seq,
            at: row.at,
            command: &row.command,
            from: row.from.as_deref(),
            to: &row.to,
            actor: &row.actor,
            by: &row.by,
            effect: logged.effect.as_ref(),
        };
        event_from(found, &self.row.lifecycle)
    }
}
