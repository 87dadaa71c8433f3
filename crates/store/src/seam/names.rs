//! What tenants mean by the names in what they ask for.

use std::borrow::Cow;
use std::sync::Arc;

use waypost_kernel::lifecycle::Kind;
use waypost_kernel::tenant::{is_seen_by, local_name, may_mean, meanings};
use waypost_kernel::{Catalog, Lifecycle};
use waypost_schema::{instead_of, quoted};

use crate::seam::error::{Result, StoreError};
use crate::seam::verbs::{Claim, Filter};

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
