//! The playbooks that a worker was given, by what runs call them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use waypost_kernel::Catalog;

use super::{Playbook, Problems};

/// In a folder of its own a playbook has this name, and its scripts are beside it.
const OWN_FILE: &str = "playbook.toml";

#[derive(Clone, Default)]
pub struct Playbooks(BTreeMap<String, Arc<Playbook>>);

impl Playbooks {
    /// Every `*.toml` of a folder, and `playbook.toml` of the folders in it. All must be sound: a worker that
    /// leaves some of its work alone unnoticed is worse than one that does not start.
    pub fn load(folder: &Path, catalog: &Catalog) -> Result<Playbooks, Problems> {
        let files = Playbooks::files(folder).map_err(|error| {
            let mend = "name a folder that exists and that you may read";
            Problems::one(folder, 1, "unreadable", &format!("the folder cannot be read: {error}"), mend)
        })?;
        let mut playbooks = Playbooks::default();
        for file in files {
            let playbook = Playbook::load_with(&file, catalog)?;
            if let Some(other) = playbooks.iter().find(|other| other.name == playbook.name) {
                let message = format!("{} is {} already", playbook.name, other.file.display());
                return Err(Problems::one(&file, 1, "duplicate-name", &message, "rename one of them"));
            }
            playbooks = playbooks.with(playbook);
        }
        Ok(playbooks)
    }

    /// Those of a folder, in order.
    pub fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let own = path.join(OWN_FILE);
            if path.is_dir() && own.is_file() {
                files.push(own);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    #[must_use]
    pub fn with(mut self, playbook: Playbook) -> Playbooks {
        self.0.insert(playbook.pin(), Arc::new(playbook));
        self
    }

    #[must_use]
    pub fn and(self, playbooks: impl IntoIterator<Item = Playbook>) -> Playbooks {
        playbooks.into_iter().fold(self, Playbooks::with)
    }

    /// By name and hash, or by the name alone where a run does not care which version it gets.
    pub fn get(&self, name: &str) -> Option<&Arc<Playbook>> {
        self.0.get(name).or_else(|| self.0.values().find(|playbook| playbook.name == name))
    }

    /// By name and hash alone.
    pub fn pinned(&self, pin: &str) -> Option<&Arc<Playbook>> {
        self.0.get(pin)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Playbook>> {
        self.0.values()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Playbooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
