//! What should go wrong, and when: `faults.json` is a list of these.

use serde::{Deserialize, Serialize};

use super::site::Site;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub id: String,
    /// The name of what is asked for, as the ledger has it, or `*`.
    pub what: String,
    /// Of one host, machine or cluster only.
    #[serde(default)]
    pub on: Option<String>,
    /// Only where all of these stand in who asks and what with.
    #[serde(default)]
    pub containing: Vec<String>,
    /// Only the n-th time that it fits, counted from 1; each time if it is not said.
    #[serde(default)]
    pub nth: Option<u64>,
    #[serde(rename = "do")]
    pub does: Do,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Do {
    /// Nothing is done. Over HTTP this is the status; `firmware.apply` fails the installation instead.
    Fail {
        status: u16,
        message: String,
    },
    /// It is done, and nobody is told.
    LoseAnswer,
    /// Nobody is told anything until the fault is taken out of the file. What hung before it was done is then not
    /// done any more.
    Hang(When),
    Delay {
        ms: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    Before,
    After,
}

impl Fault {
    pub fn new(what: &str, does: Do) -> Fault {
        Fault {
            id: what.to_owned(),
            what: what.to_owned(),
            on: None,
            containing: Vec::new(),
            nth: None,
            does,
        }
    }

    pub fn on(self, on: &str) -> Fault {
        Fault { on: Some(on.to_owned()), ..self }
    }

    pub fn nth(self, nth: u64) -> Fault {
        Fault { nth: Some(nth), ..self }
    }

    pub fn containing(self, containing: Vec<String>) -> Fault {
        Fault { containing, ..self }
    }

    /// Whether this is the time; counts.
    fn fits(&self, site: &mut Site, what: &str, on: &str, words: &str) -> bool {
        let is_meant = (self.what == "*" || self.what == what)
            && self.on.as_deref().is_none_or(|meant| meant == on)
            && self.containing.iter().all(|part| words.contains(part));
        if !is_meant {
            return false;
        }
        let met = site.faults_met.entry(self.id.clone()).or_default();
        *met += 1;
        self.nth.is_none_or(|nth| nth == *met)
    }
}

/// The first that fits; all of them count.
pub fn met(faults: &[Fault], site: &mut Site, what: &str, on: &str, words: &str) -> Option<Fault> {
    let mut first = None;
    for fault in faults {
        if fault.fits(site, what, on, words) && first.is_none() {
            first = Some(fault.clone());
        }
    }
    first
}
