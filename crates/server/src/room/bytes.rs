//! Memory that requests and answers may take together. A body is counted while it is read and worked on, and as what reading
//! makes of it; an answer until its client has taken it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::answer::Result;
use crate::problem::{BUSY, Problem};

/// Below this nothing is counted: there are only so many connections.
pub const SMALL: usize = 64 * 1024;

#[derive(Debug)]
pub struct Budget {
    most: usize,
    what: &'static str,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    all: usize,
    by_token: HashMap<String, usize>,
}

/// Bytes that are taken for as long as this lives.
#[derive(Debug)]
pub struct Bytes {
    budget: Arc<Budget>,
    /// None: the server asks for no tokens, and everybody is one.
    token: Option<String>,
    count: usize,
}

impl Budget {
    pub fn new(what: &'static str, most: usize) -> Arc<Budget> {
        Arc::new(Budget { most, what, spent: Mutex::default() })
    }

    pub fn open(self: &Arc<Budget>, token: Option<&str>) -> Bytes {
        Bytes { budget: self.clone(), token: token.map(str::to_owned), count: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bytes {
    /// Takes as many as are needed to have this many. One token has at most half of all.
    pub fn hold(&mut self, count: usize) -> Result<()> {
        let more = count.saturating_sub(self.count);
        if count <= SMALL || more == 0 {
            return Ok(());
        }
        let spent = self.budget.lock();
        let own = self.token.as_ref().map_or(0, |token| spent.by_token.get(token).copied().unwrap_or(0));
        let has_room = spent.all + more <= self.budget.most
            && (self.token.is_none() || own + more <= self.budget.most / 2);
        if !has_room {
            let message = format!("{} take as much memory as this server has for them", self.budget.what);
            return Err(Problem::new(&BUSY, message));
        }
        drop(spent);
        self.hold_anyway(count);
        Ok(())
    }

    /// The same of what is done already and has to be told, whatever there is.
    pub fn hold_anyway(&mut self, count: usize) {
        let more = count.saturating_sub(self.count);
        if count <= SMALL || more == 0 {
            return;
        }
        let mut spent = self.budget.lock();
        spent.all += more;
        if let Some(token) = &self.token {
            *spent.by_token.entry(token.clone()).or_default() += more;
        }
        self.count = count;
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut spent = self.budget.lock();
        spent.all -= self.count;
        let Some(token) = &self.token else { return };
        if let Some(own) = spent.by_token.get_mut(token) {
            *own -= self.count;
            if *own == 0 {
                spent.by_token.remove(token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_no_token_takes_all() {
        let budget = Budget::new("bodies", 1_000_000);
        let (mut one, mut other) = (budget.open(Some("a")), budget.open(Some("b")));
        assert!(one.hold(SMALL).is_ok() && budget.lock().all == 0, "small ones are not counted");
        assert!(one.hold(500_000).is_ok() && one.hold(400_000).is_ok(), "it has them already");
        let refused = one.hold(500_001).expect_err("half is the most");
        assert_eq!((refused.status, refused.code), (503, "BUSY"));
        assert!(other.hold(500_000).is_ok());
        assert!(budget.open(None).hold(100_000).is_err(), "all is taken");
        drop((one, other));
        assert!(budget.open(None).hold(1_000_000).is_ok());
        let spent = budget.lock();
        assert!(spent.all == 0 && spent.by_token.is_empty());
    }
}
