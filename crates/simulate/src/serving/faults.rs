//! What goes wrong, and for whom: decided by a seed and a key, so that the same calls meet the same faults however fast
//! they come and in whatever order.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

/// What is drawn for: a product has its fate whoever asks, a request by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Product,
    Request,
}

/// A fault that a simulator knows, for its checks, its help and its page.
#[derive(Clone, Copy, Debug)]
pub struct FaultKind {
    pub name: &'static str,
    pub of: Subject,
    /// How many times it hits the same one if nothing is said; 0 is each time.
    pub times: u32,
    pub what: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chance {
    /// Of all products or requests, from 0 to 1.
    #[serde(default)]
    pub share: f64,
    /// How many times the same one is hit; 0 is each time. Absent: the fault's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// These are hit whatever the share is: numbers of products, or keys of requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
}

/// The chances by their faults' names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Faults(pub BTreeMap<String, Chance>);

impl Faults {
    pub fn check(&self, kinds: &[FaultKind]) -> Result<(), String> {
        for (name, chance) in &self.0 {
            kind(kinds, name)?;
            if !(0.0..=1.0).contains(&chance.share) {
                return Err(format!("{name}: a share is from 0 to 1, not {}", chance.share));
            }
        }
        Ok(())
    }

    /// `lost=2%`, `transient=0.1x2` (the first two times).
    pub fn set(&mut self, text: &str, kinds: &[FaultKind]) -> Result<(), String> {
        let (name, chance) =
            text.split_once('=').ok_or_else(|| format!("{text}: write NAME=SHARE, as in lost=2%"))?;
        kind(kinds, name)?;
        let (share, times) = match chance.split_once('x') {
            Some((share, times)) => {
                (share, Some(times.parse().map_err(|_| format!("{text}: {times} is no number of times"))?))
            }
            None => (chance, None),
        };
        let share = share_of(share).map_err(|problem| format!("{name}: {problem}"))?;
        self.0.insert(name.to_owned(), Chance { share, times, only: Vec::new() });
        Ok(())
    }

    /// Whether it is drawn, however often it hit before.
    pub fn is_drawn(&self, seed: u64, name: &str, subject: &str) -> bool {
        let Some(chance) = self.0.get(name) else { return false };
        let drawn = hash(seed, name, subject) as f64 / u64::MAX as f64;
        drawn < chance.share || chance.only.iter().any(|it| it == subject)
    }
}

fn kind<'a>(kinds: &'a [FaultKind], name: &str) -> Result<&'a FaultKind, String> {
    kinds.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
        format!("there is no fault {name}: {}", names.join(", "))
    })
}

/// `0.03` or `3%`.
pub fn share_of(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    let problem = || format!("a share is from 0 to 1 or from 0% to 100%, not {text:?}");
    number.ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(problem)
}

/// How often each fault hit whom.
#[derive(Debug, Default)]
pub struct Tally(HashMap<(&'static str, u64), u32>);

impl Tally {
    /// Whether it hits now; counts.
    pub fn hits(&mut self, faults: &Faults, seed: u64, kind: &FaultKind, subject: &str) -> bool {
        if !faults.is_drawn(seed, kind.name, subject) {
            return false;
        }
        let times = faults.0.get(kind.name).and_then(|chance| chance.times).unwrap_or(kind.times);
        let met = self.0.entry((kind.name, hash(seed, kind.name, subject))).or_default();
        *met = met.saturating_add(1);
        times == 0 || *met <= times
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The same on every machine: FNV-1a, then the finish of SplitMix64, since the low bits of the first are poor.
pub fn hash(seed: u64, name: &str, subject: &str) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name.bytes().chain([0]).chain(subject.bytes()) {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const KINDS: &[FaultKind] = &[
        FaultKind { name: "lost", of: Subject::Request, times: 1, what: "" },
        FaultKind { name: "permanent", of: Subject::Product, times: 0, what: "" },
    ];

    fn faults(text: &[&str]) -> Faults {
        let mut faults = Faults::default();
        for text in text {
            assert_eq!(faults.set(text, KINDS), Ok(()));
        }
        faults
    }

    #[test]
    fn shares_come_out() {
        let faults = faults(&["permanent=3%"]);
        for seed in [0, 1, 7, 1 << 40] {
            let hit =
                (0..10_000).filter(|id| faults.is_drawn(seed, "permanent", &format!("product {id}"))).count();
            assert!((220..380).contains(&hit), "{hit} of 10,000 with seed {seed}");
        }
        assert!(!faults.is_drawn(1, "lost", "any"));
    }

    #[test]
    fn the_first_times_alone_or_each() {
        let faults = faults(&["lost=1x2", "permanent=100%"]);
        let mut tally = Tally::default();
        let mut hits = |kind: &FaultKind, key| tally.hits(&faults, 1, kind, key);
        assert_eq!([1, 2, 3].map(|_| hits(&KINDS[0], "a")), [true, true, false]);
        assert!(hits(&KINDS[0], "b"));
        assert_eq!([1, 2, 3].map(|_| hits(&KINDS[1], "a")), [true; 3]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("lots=1", "there is no fault lots: lost, permanent"),
            ("lost", "write NAME=SHARE"),
            ("lost=101%", "from 0% to 100%"),
            ("lost=NaN", "a share is"),
            ("lost=-1", "a share is"),
            ("lost=1xtwo", "two is no number of times"),
        ] {
            let problem = Faults::default().set(text, KINDS).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }
}
