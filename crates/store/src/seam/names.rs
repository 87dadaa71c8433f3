//! What tenants mean by the names in what they ask for.

use std::borrow::Cow;

use waypost_kernel::tenant::{may_mean, meanings};

use crate::seam::verbs::{Claim, Filter};

impl Filter {
    /// Stored names of the lifecycles that it asks for: what its tenant may mean by the name.
    pub(crate) fn lifecycles(&self) -> Option<Vec<Cow<'_, str>>> {
        self.lifecycle.as_deref().map(|name| meanings(&self.tenant, name))
    }
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
