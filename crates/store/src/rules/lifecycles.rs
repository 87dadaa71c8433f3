//! Lifecycles that tenants declare.

use std::borrow::Cow;
use std::sync::Arc;

use waypost_kernel::render::toml::toml;
use waypost_kernel::tenant::{DEFAULT, tenant_of};
use waypost_kernel::{Catalog, Lifecycle};

use crate::seam::error::{Result, StoreError};

/// A file's lifecycle, as the tenant's own. `known` has all that the database has.
pub(crate) fn added(known: &Catalog, tenant: &str, source: &str) -> Result<Arc<Lifecycle>> {
    let added = known.of_tenant(tenant).add(source);
    added.map_err(|problems| StoreError::invalid("lifecycle", problems.to_string()))
}

/// The text that is kept. The names in the installation's are stored names already; a tenant's are written out, since what they
/// mean must not change when the tenant adds another lifecycle.
pub(crate) fn stored_source<'s>(lifecycle: &Lifecycle, source: &'s str) -> Cow<'s, str> {
    if tenant_of(&lifecycle.name) == DEFAULT { source.into() } else { toml(lifecycle).into() }
}
