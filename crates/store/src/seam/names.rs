//! What people mean by the names and ids in what they ask for.

use std::borrow::Cow;
use std::sync::Arc;

use waypost_kernel::lifecycle::Kind;
use waypost_kernel::tenant::{is_seen_by, local_name, may_mean, meanings};
use waypost_kernel::{Catalog, Lifecycle};
use waypost_schema::{instead_of, quoted};

use crate::engine::Stored;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::{Claim, Filter, HOUSEKEEPING};

impl Filter {
    /// Stored names of the lifecycles that it asks for: what its tenant may mean by the name.
    pub(crate) fn lifecycles(&self) -> Option<Vec<Cow<'_, str>>> {
        self.lifecycle.as_deref().map(|name| meanings(&self.tenant, name))
    }

    /// Refuses a lifecycle or a status that there is none of: a word that was typed wrongly must not look like an empty list.
    pub fn check(&self, catalog: &Catalog) -> Result<()> {
        let is_seen = |lifecycle: &&Arc<Lifecycle>| {
            lifecycle.kind == Kind::Run && is_seen_by(&self.tenant, &lifecycle.name)
        };
        let is_meant = |lifecycle: &Lifecycle| {
            self.lifecycle.as_deref().is_none_or(|asked| may_mean(&self.tenant, asked, &lifecycle.name))
        };
        let seen: Vec<&Arc<Lifecycle>> = catalog.iter().filter(is_seen).collect();
        let meant: Vec<&&Arc<Lifecycle>> = seen.iter().filter(|lifecycle| is_meant(lifecycle)).collect();
        let states = || meant.iter().flat_map(|lifecycle| lifecycle.states.iter().map(|state| &*state.name));
        match (&self.lifecycle, &self.status) {
            (Some(asked), _) if meant.is_empty() => {
                let names = seen.iter().map(|lifecycle| local_name(&lifecycle.name));
                Err(unknown("lifecycle", asked, names.collect()))
            }
            (_, Some(asked)) if !states().any(|state| state == asked) => {
                Err(unknown("status", asked, states().collect()))
            }
            _ => Ok(()),
        }
    }
}

fn unknown(field: &str, word: &str, mut known: Vec<&str>) -> StoreError {
    known.sort_unstable();
    known.dedup();
    StoreError::invalid(field, format!("there is no {}; {}", quoted(word), instead_of(word, &known)))
}

impl Claim {
    /// Whether it asks for runs of this lifecycle. A tenant's claim may mean its own by a name, and the installation's.
    pub(crate) fn names(&self, lifecycle: &str) -> bool {
        let is_meant = |name: &String| match &self.tenant {
            None => name == lifecycle,
            Some(tenant) => may_mean(tenant, name, lifecycle),
        };
        self.lifecycles.iter().any(is_meant)
    }
}

/// Whether a run's id can begin with this text.
pub(crate) fn may_begin_an_id(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !id.is_empty() && id.len() <= 512 && id.chars().all(fits)
}

/// The fewest characters of an id that are looked for elsewhere than at its beginning.
pub(crate) const LEAST_PART: usize = 4;

/// How many of the newest runs are looked at for those: there is no index for them.
pub(crate) const NEWEST: i64 = 1_000_000;

/// Whether there is one with exactly this id, or one that lists show: nothing else that the text is a part of is looked for then.
pub(crate) fn is_found(id: &str, found: &[Stored]) -> bool {
    found.iter().any(|stored| stored.row.id() == id || stored.row.queue != HOUSEKEEPING)
}

/// The run with exactly this id among those that it is a part of, or else the only one of them. What the engine does for itself, which
/// lists do not show, counts if there is nothing else.
pub(crate) fn only_one(id: &str, mut found: Vec<Stored>) -> Result<RunRow> {
    if let Some(at) = found.iter().position(|stored| stored.row.id() == id) {
        return Ok(Arc::unwrap_or_clone(found.swap_remove(at).row));
    }
    if is_found(id, &found) {
        found.retain(|stored| stored.row.queue != HOUSEKEEPING);
    }
    found.sort_by(|one, other| one.row.id().cmp(other.row.id()));
    found.dedup_by(|one, other| one.row.id() == other.row.id());
    match found.len() {
        0 => Err(StoreError::no_run(id)),
        1 => Ok(Arc::unwrap_or_clone(found.remove(0).row)),
        _ => {
            let some: Vec<&str> = found.iter().map(|stored| stored.row.id()).collect();
            let message = format!("{id:?} is a part of the ids of several: {}, …", some.join(", "));
            Err(StoreError::invalid("run_id", message))
        }
    }
}
