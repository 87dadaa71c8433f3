//! The lifecycles that a process knows: those shipped in the binary, and any that users declare.

use std::path::Path;
use std::sync::Arc;

use super::{Lifecycle, Problems};

/// The shipped files, items first because runs refer to them.
pub const SHIPPED: [(&str, &str); 9] = [
    ("step", include_str!("../../../../lifecycles/step.toml")),
    ("task", include_str!("../../../../lifecycles/task.toml")),
    ("target", include_str!("../../../../lifecycles/target.toml")),
    ("deploy", include_str!("../../../../lifecycles/deploy.toml")),
    ("agent", include_str!("../../../../lifecycles/agent.toml")),
    ("cron", include_str!("../../../../lifecycles/cron.toml")),
    ("job", include_str!("../../../../lifecycles/job.toml")),
    ("rule", include_str!("../../../../lifecycles/rule.toml")),
    ("operation", include_str!("../../../../lifecycles/operation.toml")),
];

/// Every known version of every known lifecycle, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Vec<Arc<Lifecycle>>);

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

    /// Reads, checks and adds a lifecycle. The same name and version may come again only with the same meaning.
    pub fn add(&mut self, text: &str) -> Result<Arc<Lifecycle>, Problems> {
        let lifecycle = Arc::new(Lifecycle::load(text, self)?);
        match self.get(&lifecycle.name, lifecycle.version) {
            Some(known) if *known == lifecycle => return Ok(known.clone()),
            Some(_) => {
                let message =
                    format!("{} version {} means something else already", lifecycle.name, lifecycle.version);
                let hint = "raise `version`: runs keep the version that they were born with";
                return Err(Problems::one(Path::new(""), 1, "version-taken", &message, hint));
            }
            None => self.0.push(lifecycle.clone()),
        }
        Ok(lifecycle)
    }

    pub fn get(&self, name: &str, version: u32) -> Option<&Arc<Lifecycle>> {
        self.0.iter().find(|it| &*it.name == name && it.version == version)
    }

    pub fn latest(&self, name: &str) -> Option<&Arc<Lifecycle>> {
        self.0.iter().filter(|it| &*it.name == name).max_by_key(|it| it.version)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Lifecycle>> {
        self.0.iter()
    }
}
