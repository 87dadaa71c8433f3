//! Files that change while a server runs. What they say anew is worked by another generation of loops and worker; the one before takes
//! nothing more and ends with what it has under way, by what it was started with.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use waypost_store::Store;
use waypost_worker::Stage;
use waypost_worker::playbook::Playbooks;

use super::crew::{Crew, Files, Started};
use crate::lifecycle::add_file;
use crate::output::{BAD_INPUT, ERROR, Failed, Result, tell};
use crate::place::FILE;

/// How often files are compared: a person saved one and looks at the terminal.
const LOOK: Duration = Duration::from_secs(1);

/// Folders that are looked at, and what the files in them said last.
#[derive(Debug)]
pub struct Watched {
    playbooks: Option<PathBuf>,
    lifecycles: Option<PathBuf>,
    /// Files elsewhere, which `waypost.toml` names.
    named: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Vec<u8>>,
}

impl Watched {
    pub fn new(playbooks: Option<PathBuf>, lifecycles: Option<PathBuf>) -> Watched {
        let mut watched = Watched { playbooks, lifecycles, named: Vec::new(), seen: BTreeMap::new() };
        watched.seen = watched.contents();
        watched
    }

    /// All of the folder, each after those that it builds on.
    pub async fn add_lifecycles(&self, store: &dyn Store) -> Result {
        let Some(folder) = &self.lifecycles else { return Ok(()) };
        let found = toml_files(folder).map_err(|error| {
            Failed::new(BAD_INPUT, format!("{}: the folder cannot be read: {error}", folder.display()))
        })?;
        let mut left = found;
        while !left.is_empty() {
            let mut failed = Vec::new();
            for file in &left {
                if let Err(error) = add_file(store, file).await {
                    failed.push((file.clone(), error));
                }
            }
            if failed.len() == left.len() {
                let (_, error) = failed.swap_remove(0);
                return Err(error);
            }
            left = failed.into_iter().map(|(file, _)| file).collect();
        }
        Ok(())
    }

    /// Looks at what was read, too, wherever it lies.
    fn name(&mut self, playbooks: &Playbooks) {
        self.named.clear();
        let real = |file: &PathBuf| fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        let known: Vec<PathBuf> = self.contents().keys().map(real).collect();
        let named = playbooks.iter().map(|playbook| playbook.file.clone());
        self.named = named.filter(|file| !known.contains(&real(file))).collect();
        let known = std::mem::take(&mut self.seen);
        self.seen = self.contents();
        self.seen.extend(known);
    }

    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let playbooks = self.playbooks.as_deref().map(Playbooks::files);
        let lifecycles = self.lifecycles.as_deref().map(toml_files);
        let folders = playbooks.into_iter().chain(lifecycles).filter_map(std::io::Result::ok).flatten();
        let files = folders.chain(self.named.iter().cloned()).chain([PathBuf::from(FILE)]);
        files.filter_map(|file| fs::read(&file).ok().map(|bytes| (file, bytes))).collect()
    }

    /// Files that say something else than before, that are new, and that are gone.
    fn changed(&mut self) -> Vec<PathBuf> {
        let now = self.contents();
        let is_other = |file: &&PathBuf| now.get(*file) != self.seen.get(*file);
        let changed: Vec<PathBuf> = now.keys().filter(is_other).cloned().collect();
        let gone: Vec<PathBuf> = self.seen.keys().filter(|file| !now.contains_key(*file)).cloned().collect();
        self.seen = now;
        changed.into_iter().chain(gone).collect()
    }
}

fn toml_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// One after another, each with its own shutdown.
pub struct Generations {
    crew: Crew,
    watched: Option<Watched>,
    shutdown: watch::Receiver<Stage>,
    working: JoinSet<Result>,
    /// Of the one that takes runs.
    stage: Arc<watch::Sender<Stage>>,
}

impl Generations {
    pub async fn begin(
        crew: Crew,
        files: Files,
        watched: Option<Watched>,
        shutdown: watch::Receiver<Stage>,
    ) -> Result<Generations> {
        let mut watched = watched;
        if let Some(watched) = &mut watched {
            watched.name(&files.playbooks);
        }
        let (stage, first) = follow(shutdown.clone());
        let started = crew.start(files, first).await?;
        let mut it = Generations { crew, watched, shutdown, working: JoinSet::new(), stage };
        it.add(started);
        Ok(it)
    }

    fn add(&mut self, started: Started) {
        self.working.spawn(started.run());
    }

    /// Until the shutdown; a generation that cannot go on ends all.
    pub async fn run(mut self) -> Result {
        let mut shutdown = self.shutdown.clone();
        loop {
            let look = async {
                match &mut self.watched {
                    Some(watched) => changed(watched).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = self.working.join_next() => match ended {
                    Some(Ok(ended)) => ended?,
                    Some(Err(error)) => return Err(Failed::new(ERROR, error.to_string())),
                    None => return Ok(()),
                },
                () = wait_for_end(&mut shutdown) => break,
                files = look => self.take_up(&files).await,
            }
        }
        while let Some(ended) = self.working.join_next().await {
            ended.map_err(|error| Failed::new(ERROR, error.to_string()))??;
        }
        Ok(())
    }

    async fn take_up(&mut self, changed: &[PathBuf]) {
        let names: Vec<String> = changed.iter().map(|file| file.display().to_string()).collect();
        let names = names.join(", ");
        match self.next().await {
            Ok(()) => tell(&format!("reloaded: {names}")),
            Err(failed) => {
                tell(&format!(
                    "{}\nnot reloaded: {names}; what was loaded before stays in force",
                    failed.message
                ));
            }
        }
    }

    async fn next(&mut self) -> Result {
        if let Some(watched) = &self.watched {
            watched.add_lifecycles(&*self.crew.store).await?;
        }
        let files = Files::read(&*self.crew.store, &self.crew.flags).await?;
        if let Some(watched) = &mut self.watched {
            watched.name(&files.playbooks);
        }
        let (stage, own) = follow(self.shutdown.clone());
        let started = self.crew.start(files, own).await?;
        self.add(started);
        let before = std::mem::replace(&mut self.stage, stage);
        before.send_if_modified(|stage| {
            let is_working = *stage == Stage::Working;
            *stage = (*stage).max(Stage::Finishing);
            is_working
        });
        Ok(())
    }
}

/// A process that nobody can tell to end goes on.
async fn wait_for_end(shutdown: &mut watch::Receiver<Stage>) {
    if shutdown.wait_for(|stage| *stage != Stage::Working).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn changed(watched: &mut Watched) -> Vec<PathBuf> {
    loop {
        sleep(LOOK).await;
        let changed = watched.changed();
        if !changed.is_empty() {
            return changed;
        }
    }
}

/// A shutdown of its own, which comes with the process's at the latest.
fn follow(mut all: watch::Receiver<Stage>) -> (Arc<watch::Sender<Stage>>, watch::Receiver<Stage>) {
    let (stage, own) = watch::channel(*all.borrow());
    let stage = Arc::new(stage);
    let told = stage.clone();
    tokio::spawn(async move {
        while all.changed().await.is_ok() {
            let now = *all.borrow_and_update();
            told.send_modify(|stage| *stage = (*stage).max(now));
        }
    });
    (stage, own)
}
