//! The folder that holds a site, and the one way to act on it: faults first, then the act and its line in the ledger
//! under one lock.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::faults::{self, Do, Fault, When};
use super::ledger::{self, Entry};
use super::site::Site;

#[derive(Clone, Debug)]
pub struct World {
    folder: PathBuf,
}

/// What somebody asks for.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    pub via: &'a str,
    pub by: Option<String>,
    pub what: &'a str,
    pub on: &'a str,
    pub with: Value,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Refused {
        status: u16,
        message: String,
    },
    /// Nobody is told what became of it.
    Lost,
    Broken(String),
}

impl Trouble {
    pub fn refused(status: u16, message: impl Into<String>) -> Trouble {
        Trouble::Refused { status, message: message.into() }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Broken(error.to_string())
    }
}

/// What an act answers, whether it changed anything, and what followed from it.
pub(super) struct Done<T> {
    pub answer: T,
    pub changed: bool,
    pub followed: Vec<Entry>,
}

impl<T> Done<T> {
    pub fn looked(answer: T) -> Done<T> {
        Done { answer, changed: false, followed: Vec::new() }
    }

    pub fn changed(answer: T) -> Done<T> {
        Done { answer, changed: true, followed: Vec::new() }
    }
}

const LEDGER: &str = "ledger.jsonl";

/// How often somebody who hangs looks whether they may go on.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl World {
    /// Makes the folder, or makes it anew.
    pub fn create(folder: &Path, site: &Site) -> io::Result<World> {
        fs::create_dir_all(folder.join("scp"))?;
        let world = World { folder: folder.to_owned() };
        let _alone = world.lock()?;
        world.replace("faults.json", b"[]")?;
        world.write(&Site { ledger_bytes: 0, ..site.clone() })?;
        Ok(world)
    }

    pub fn open(folder: &Path) -> io::Result<World> {
        let world = World { folder: folder.to_owned() };
        if !folder.join("site.json").is_file() {
            let message = format!("there is no simulated site in {}", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        Ok(world)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// As things are now.
    pub fn site(&self) -> io::Result<Site> {
        self.change(|site| site.clone())
    }

    /// Somebody's hand, without faults and without a line in the ledger.
    pub fn change<T>(&self, change: impl FnOnce(&mut Site) -> T) -> io::Result<T> {
        let _alone = self.lock()?;
        let mut site = self.read()?;
        let passed = site.pass(now_ms());
        let result = change(&mut site);
        self.keep(site, &passed)?;
        Ok(result)
    }

    pub fn ledger(&self) -> io::Result<Vec<Entry>> {
        let _alone = self.lock()?;
        ledger::read(&self.folder.join(LEDGER), self.read()?.ledger_bytes)
    }

    /// Instead of those that there were; what hangs because of one of those goes on.
    pub fn set_faults(&self, faults: &[Fault]) -> io::Result<()> {
        let _alone = self.lock()?;
        let mut site = self.read()?;
        site.faults_met.clear();
        self.write(&site)?;
        self.replace("faults.json", &serde_json::to_vec_pretty(faults)?)
    }

    pub fn faults(&self) -> io::Result<Vec<Fault>> {
        Ok(serde_json::from_slice(&fs::read(self.folder.join("faults.json"))?)?)
    }

    pub(super) fn act<T>(
        &self,
        request: &Request<'_>,
        act: impl FnOnce(&mut Site, u64) -> Result<Done<T>, Trouble>,
    ) -> Result<T, Trouble> {
        let fault = self.fault(request)?;
        match fault.as_ref().map(|fault| &fault.does) {
            Some(Do::Fail { status, message }) => {
                self.note(request, message)?;
                return Err(Trouble::refused(*status, message.clone()));
            }
            Some(Do::Delay { ms }) => thread::sleep(Duration::from_millis(*ms)),
            Some(Do::Hang(When::Before)) => {
                self.note(request, "hangs before it is done")?;
                self.hang(fault.as_ref())?;
                return Err(Trouble::Lost);
            }
            Some(Do::LoseAnswer | Do::Hang(When::After)) | None => {}
        }
        let answer = self.perform(request, fault.as_ref(), act)?;
        match fault.as_ref().map(|fault| &fault.does) {
            Some(Do::LoseAnswer) => Err(Trouble::Lost),
            Some(Do::Hang(When::After)) => {
                self.hang(fault.as_ref())?;
                Err(Trouble::Lost)
            }
            _ => Ok(answer),
        }
    }

    fn perform<T>(
        &self,
        request: &Request<'_>,
        fault: Option<&Fault>,
        act: impl FnOnce(&mut Site, u64) -> Result<Done<T>, Trouble>,
    ) -> Result<T, Trouble> {
        let _alone = self.lock()?;
        let (mut site, now_ms) = (self.read()?, now_ms());
        let mut entries = site.pass(now_ms);
        let done = act(&mut site, now_ms);
        let (words, changed) = match (&done, fault.map(|fault| &fault.does)) {
            (Err(Trouble::Refused { message, .. } | Trouble::Broken(message)), _) => {
                (message.as_str(), false)
            }
            (Ok(done), Some(Do::LoseAnswer)) => ("done, and nobody is told", done.changed),
            (Ok(done), Some(Do::Hang(_))) => ("hangs after it is done", done.changed),
            (Ok(done), _) => ("ok", done.changed),
            (Err(Trouble::Lost), _) => ("lost", false),
        };
        entries.push(entry(request, now_ms, words, changed));
        let answer = done.map(|done| {
            entries.extend(done.followed);
            done.answer
        });
        self.keep(site, &entries)?;
        answer
    }

    fn fault(&self, request: &Request<'_>) -> io::Result<Option<Fault>> {
        let faults = self.faults()?;
        if faults.is_empty() {
            return Ok(None);
        }
        let _alone = self.lock()?;
        let mut site = self.read()?;
        let words = format!("{} {}", request.by.as_deref().unwrap_or_default(), request.with);
        let met = faults::met(&faults, &mut site, request.what, request.on, &words);
        self.write(&site)?;
        Ok(met)
    }

    /// Whether something that happens later by itself should go wrong.
    pub(super) fn is_doomed(&self, site: &mut Site, what: &str, on: &str) -> bool {
        let faults = self.faults().unwrap_or_default();
        matches!(faults::met(&faults, site, what, on, ""), Some(Fault { does: Do::Fail { .. }, .. }))
    }

    fn note(&self, request: &Request<'_>, answer: &str) -> io::Result<()> {
        let _alone = self.lock()?;
        self.keep(self.read()?, &[entry(request, now_ms(), answer, false)])
    }

    fn hang(&self, fault: Option<&Fault>) -> io::Result<()> {
        while self.faults()?.iter().any(|known| Some(known) == fault) {
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn lock(&self) -> io::Result<File> {
        let file = File::options().create(true).append(true).open(self.folder.join("lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn read(&self) -> io::Result<Site> {
        Ok(serde_json::from_slice(&fs::read(self.folder.join("site.json"))?)?)
    }

    /// The ledger first; its lines count when the site is written.
    fn keep(&self, mut site: Site, entries: &[Entry]) -> io::Result<()> {
        if !entries.is_empty() {
            site.ledger_bytes = ledger::append(&self.folder.join(LEDGER), site.ledger_bytes, entries)?;
        }
        self.export(entries)?;
        self.write(&site)
    }

    /// The files that exports write, on a share in earnest.
    fn export(&self, entries: &[Entry]) -> io::Result<()> {
        for entry in entries.iter().filter(|entry| entry.what == "configuration.exported") {
            let Some(name) = entry.with["file"].as_str() else { continue };
            let name: String = name.chars().map(|c| if c == '/' { '_' } else { c }).collect();
            let text = format!("<SystemConfiguration Host=\"{}\"></SystemConfiguration>\n", entry.on);
            fs::write(self.folder.join("scp").join(name), text)?;
        }
        Ok(())
    }

    fn write(&self, site: &Site) -> io::Result<()> {
        self.replace("site.json", &serde_json::to_vec_pretty(site)?)
    }

    /// Whole or not at all, whenever this process is killed.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.folder.join(format!("{name}.new"));
        fs::write(&new, bytes)?;
        fs::rename(new, self.folder.join(name))
    }
}

fn entry(request: &Request<'_>, at_ms: u64, answer: &str, changed: bool) -> Entry {
    Entry {
        at_ms,
        by: request.by.clone(),
        via: request.via.to_owned(),
        what: request.what.to_owned(),
        on: request.on.to_owned(),
        with: request.with.clone(),
        answer: answer.to_owned(),
        changed,
    }
}

fn now_ms() -> u64 {
    UNIX_EPOCH.elapsed().map(|since| since.as_millis() as u64).unwrap_or_default()
}
