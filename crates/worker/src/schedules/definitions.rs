//! Definitions as this process reads them, each once.
//!
//! What it cannot read now it may read later: somebody adds the lifecycle that it names. Until then the store does not tell
//! this process of it, so that it is in nobody's way here; and whoever can read it, a newer binary perhaps, executes it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use waypost_kernel::backoff::Backoff;
use waypost_kernel::tenant::tenant_of;
use waypost_kernel::{Catalog, Span, Time};
use waypost_store::{Result, ScheduleFilter, ScheduleRow, Store};

use super::file;
use super::schedule::Schedule;
use crate::playbook::Problems;

/// Reading one is cheap, and whoever mends it looks at the clock.
const UNREAD: Backoff = Backoff::Exponential {
    base: Span::from_seconds(1),
    factor: 2,
    cap: Span::from_seconds(60),
    jitter_percent: 0,
};
/// Of one tick.
const READ_AGAIN: usize = 16;

pub(super) struct Definitions {
    store: Arc<dyn Store>,
    catalog: Catalog,
    /// By hash.
    read: HashMap<String, Arc<Schedule>>,
    unread: HashMap<String, Unread>,
}

struct Unread {
    name: String,
    tries: u32,
    next: Time,
}

impl Definitions {
    pub async fn new(store: Arc<dyn Store>, own: &[Schedule]) -> Result<Definitions> {
        let catalog = store.lifecycles().await?;
        let read = own.iter().map(|schedule| (schedule.hash.to_string(), Arc::new(schedule.clone())));
        Ok(Definitions { store, catalog, read: read.collect(), unread: HashMap::new() })
    }

    /// Hashes of those that cannot be read just now.
    pub fn unread(&self) -> Vec<String> {
        self.unread.keys().cloned().collect()
    }

    /// None: it is another one by now, or cannot be read.
    pub async fn find(&mut self, name: &str, hash: &str, now: Time) -> Result<Option<Arc<Schedule>>> {
        match self.read.get(hash) {
            Some(known) => Ok(Some(known.clone())),
            None if self.unread.contains_key(hash) => Ok(None),
            None => self.read(name, hash, 0, now).await,
        }
    }

    /// What could not be begun is read anew: its lifecycle may have another version by now.
    pub fn forget(&mut self, hash: &str) {
        self.read.remove(hash);
    }

    /// Tries once more those whose time has come; whether one of them can be read now.
    pub async fn read_again(&mut self, now: Time) -> Result<bool> {
        let is_due = self.unread.iter().filter(|(_, it)| it.next <= now);
        let due = is_due.map(|(hash, it)| (it.name.clone(), hash.clone(), it.tries));
        let mut found = false;
        for (name, hash, tries) in due.take(READ_AGAIN).collect::<Vec<_>>() {
            found |= self.read(&name, &hash, tries, now).await?.is_some();
        }
        Ok(found)
    }

    async fn read(&mut self, name: &str, hash: &str, tries: u32, now: Time) -> Result<Option<Arc<Schedule>>> {
        let rows = self.store.schedules(ScheduleFilter::named(name)).await?.into_iter();
        let Some(row) = rows.map(|it| it.row).find(|row| row.hash == hash) else {
            self.unread.remove(hash);
            return Ok(None);
        };
        // Lifecycles may have come since this process began, from any other.
        self.catalog = self.store.lifecycles().await?;
        match typed(&row, &self.catalog) {
            Ok(schedule) => {
                let schedule = Arc::new(schedule);
                self.unread.remove(hash);
                self.read.insert(hash.to_owned(), schedule.clone());
                Ok(Some(schedule))
            }
            Err(problems) => {
                let tries = tries.saturating_add(1);
                let wait = UNREAD.wait(tries, 0).unwrap_or(Span::from_seconds(60));
                tracing::error!(schedule = name, %problems, again_in = %wait, "not understood: left to others");
                let unread = Unread { name: name.to_owned(), tries, next: now + wait };
                self.unread.insert(hash.to_owned(), unread);
                Ok(None)
            }
        }
    }
}

/// A stored schedule, read as its tenant means it. `catalog` has all lifecycles.
pub(super) fn typed(row: &ScheduleRow, catalog: &Catalog) -> std::result::Result<Schedule, Problems> {
    let seen = catalog.of_tenant(tenant_of(&row.name));
    file::stored(&row.definition, Path::new(&row.folder), &seen)
}
