//! Memory that requests and answers may take together. A body is counted while it is read and worked on, and as what reading
//! makes of it; an answer until its client has taken it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::seats::Seat;
use crate::answer::Result;
use crate::problem::{BUSY, Problem};

/// Below this nothing is counted: there are only so many connections.
pub const SMALL: usize = 64 * 1024;

/// One token has at most so many of so many parts.
const SHARE: (usize, usize) = (3, 4);
/// How long somebody waits for those to leave who take nothing of what they have.
const PATIENCE: Duration = Duration::from_millis(1_500);
const LOOK: Duration = Duration::from_millis(20);

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
    /// For whom they are, if it is known; by a number of each.
    holders: HashMap<u64, (Arc<Seat>, Option<String>)>,
    last_number: u64,
}

/// Bytes that are taken for as long as this lives.
#[derive(Debug)]
pub struct Bytes {
    budget: Arc<Budget>,
    /// None: the server asks for no tokens, and everybody is one.
    token: Option<String>,
    seat: Option<Arc<Seat>>,
    number: Option<u64>,
    count: usize,
}

impl Budget {
    pub fn new(what: &'static str, most: usize) -> Arc<Budget> {
        Arc::new(Budget { most, what, spent: Mutex::default() })
    }

    pub fn open(self: &Arc<Budget>, token: Option<&str>) -> Bytes {
        self.open_for(token, None)
    }

    /// The same for a client that can be asked to leave.
    pub fn open_for(self: &Arc<Budget>, token: Option<&str>, seat: Option<Arc<Seat>>) -> Bytes {
        let token = token.map(str::to_owned);
        Bytes { budget: self.clone(), token, seat, number: None, count: 0 }
    }

    /// Asks a client that takes nothing to leave: of this token, if it is the one who has too much. Whether there is one, or may be
    /// soon.
    fn make_room(&self, count: usize, token: Option<&str>) -> bool {
        let spent = self.lock();
        let is_full = spent.all + count > self.most;
        let holders = spent.holders.values().filter(|(_, of)| is_full || of.as_deref() == token);
        let stalled: Vec<&Arc<Seat>> =
            holders.map(|(seat, _)| seat).filter(|seat| seat.is_stalled()).collect();
        stalled.iter().any(|seat| seat.make_room()) || !stalled.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bytes {
    /// As [`Bytes::hold`], once clients who take nothing have made room for those who do.
    pub async fn hold_soon(&mut self, count: usize) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let Err(refused) = self.hold(count) else { return Ok(()) };
            if !self.budget.make_room(count, self.token.as_deref()) || Instant::now() >= until {
                return Err(refused);
            }
            sleep(LOOK).await;
        }
    }

    /// Takes as many as are needed to have this many. One token has at most three quarters of all.
    pub fn hold(&mut self, count: usize) -> Result<()> {
        let more = count.saturating_sub(self.count);
        if count <= SMALL || more == 0 {
            return Ok(());
        }
        let spent = self.budget.lock();
        let own = self.token.as_ref().map_or(0, |token| spent.by_token.get(token).copied().unwrap_or(0));
        let has_room = spent.all + more <= self.budget.most
            && (self.token.is_none() || own + more <= self.budget.most / SHARE.1 * SHARE.0);
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
        if let (Some(seat), None) = (&self.seat, self.number) {
            spent.last_number += 1;
            self.number = Some(spent.last_number);
            let number = spent.last_number;
            spent.holders.insert(number, (seat.clone(), self.token.clone()));
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
        self.number.map(|number| spent.holders.remove(&number));
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
    use crate::room::seats::Seats;

    #[test]
    fn no_more_is_taken_than_there_is_and_no_token_takes_all() {
        let budget = Budget::new("bodies", 1_000_000);
        let (mut one, mut other) = (budget.open(Some("a")), budget.open(Some("b")));
        assert!(one.hold(SMALL).is_ok() && budget.lock().all == 0, "small ones are not counted");
        assert!(one.hold(750_000).is_ok() && one.hold(400_000).is_ok(), "it has them already");
        let refused = one.hold(750_001).expect_err("that is the most");
        assert_eq!((refused.status, refused.code), (503, "BUSY"));
        assert!(other.hold(250_000).is_ok());
        assert!(budget.open(None).hold(100_000).is_err(), "all is taken");
        drop((one, other));
        assert!(budget.open(None).hold(1_000_000).is_ok());
        let spent = budget.lock();
        assert!(spent.all == 0 && spent.by_token.is_empty() && spent.holders.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_makes_room_for_who_does() {
        let seats = Seats::new(4);
        let (silent, reading) = (seats.take().expect("a seat"), seats.take().expect("a seat"));
        let budget = Budget::new("answers", 1_000_000);
        let mut held = budget.open_for(None, Some(silent.seat.clone()));
        held.hold(900_000).expect("there is room");
        let mut wanted = budget.open_for(None, Some(reading.seat.clone()));
        assert!(wanted.hold_soon(900_000).await.is_err(), "it is being taken");
        silent.seat.set_stalled(true);
        let leaves = async {
            silent.seat.asked_to_leave().await;
            drop(held);
        };
        let (wanted, ()) = tokio::join!(wanted.hold_soon(900_000), leaves);
        assert!(wanted.is_ok());
    }
}
