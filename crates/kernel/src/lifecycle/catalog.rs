//! The lifecycles that a process knows: those shipped in the binary, and any that users declare.

use std::path::Path;
use std::sync::Arc;

use super::{Lifecycle, Problems};
use crate::tenant::{DEFAULT, is_seen_by, meanings};

/// The shipped files, items first because runs refer to them.
pub const SHIPPED: [(&str, &str); 11] = [
    ("step", include_str!("../../../../lifecycles/step.toml")),
    ("task", include_str!("../../../../lifecycles/task.toml")),
    ("target", include_str!("../../../../lifecycles/target.toml")),
    ("deploy", include_str!("../../../../lifecycles/deploy.toml")),
    ("agent", include_str!("../../../../lifecycles/agent.toml")),
    ("cron", include_str!("../../../../lifecycles/cron.toml")),
    ("job", include_str!("../../../../lifecycles/job.toml")),
    ("rule", include_str!("../../../../lifecycles/rule.toml")),
    ("operation", include_str!("../../../../lifecycles/operation.toml")),
    ("proposal", include_str!("../../../../lifecycles/proposal.toml")),
    ("inbox", include_str!("../../../../lifecycles/inbox.toml")),
];

/// Every known version of every known lifecycle, in the order in which they were added. By itself it has all tenants' and takes
/// names as they are stored; `of_tenant` gives what one of them sees.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    known: Vec<Arc<Lifecycle>>,
    tenant: Option<Arc<str>>,
}

impl Catalog {
    /// What the binary carries. The files are checked by tests, so that an error here is a build mistake;
    /// it is still an error and not a panic.
    pub fn shipped() -> Result<Catalog, Problems> {
        let mut catalog = Catalog::default();
        for (_, text) in SHIPPED {
            catalog.add(text)?;
        }
        Ok(catalog)
    }

    /// What a tenant sees: the installation's and its own. A name means its own first, here and in what is added.
    #[must_use]
    pub fn of_tenant(&self, tenant: &str) -> Catalog {
        let seen = self.known.iter().filter(|it| is_seen_by(tenant, &it.name));
        Catalog { known: seen.cloned().collect(), tenant: Some(tenant.into()) }
    }

    /// Whose names these are.
    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(DEFAULT)
    }

    /// Reads, checks and adds a lifecycle of the tenant's own. The same name and version may come again only with the same
    /// meaning.
    pub fn add(&mut self, text: &str) -> Result<Arc<Lifecycle>, Problems> {
        let lifecycle = Lifecycle::load(text, self)?;
        self.put(lifecycle)
    }

    /// The same of a text that a database or another process has kept: all of its names are stored ones.
    pub fn add_stored(&mut self, text: &str) -> Result<Arc<Lifecycle>, Problems> {
        let lifecycle = Lifecycle::load_stored(text, self)?;
        self.put(lifecycle)
    }

    fn put(&mut self, lifecycle: Lifecycle) -> Result<Arc<Lifecycle>, Problems> {
        let lifecycle = Arc::new(lifecycle);
        match self.known.iter().find(|it| it.name == lifecycle.name && it.version == lifecycle.version) {
            Some(known) if *known == lifecycle => return Ok(known.clone()),
            Some(_) => {
                let message =
                    format!("{} version {} means something else already", lifecycle.name, lifecycle.version);
                let hint = "raise `version`: runs keep the version that they were born with";
                return Err(Problems::one(Path::new(""), 1, "version-taken", &message, hint));
            }
            None => self.known.push(lifecycle.clone()),
        }
        Ok(lifecycle)
    }

    pub fn get(&self, name: &str, version: u32) -> Option<&Arc<Lifecycle>> {
        self.find(name, Some(version))
    }

    pub fn latest(&self, name: &str) -> Option<&Arc<Lifecycle>> {
        self.find(name, None)
    }

    /// This version, or the latest.
    pub fn find(&self, name: &str, version: Option<u32>) -> Option<&Arc<Lifecycle>> {
        let stored = |stored: &str| {
            let fits = |it: &&Arc<Lifecycle>| {
                &*it.name == stored && version.is_none_or(|version| it.version == version)
            };
            self.known.iter().filter(fits).max_by_key(|it| it.version)
        };
        match &self.tenant {
            None => stored(name),
            Some(tenant) => meanings(tenant, name).iter().find_map(|name| stored(name)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Lifecycle>> {
        self.known.iter()
    }
}
