//! What one token may have open at once, as a part of the server's connections: whoever has one token and many connections must
//! leave room for the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::answer::Result;
use crate::problem::{Problem, TOKEN_BUSY};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Anything that is asked and not yet answered.
    Request,
    /// Of these, those that wait for something to happen.
    Wait,
    /// Of these, those that follow events.
    Stream,
}

impl Use {
    /// One of so many parts of the connections.
    fn part(self) -> usize {
        match self {
            Use::Request => 2,
            Use::Wait | Use::Stream => 4,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Use::Request => "requests under way",
            Use::Wait => "requests that wait",
            Use::Stream => "streams",
        }
    }
}

#[derive(Debug)]
pub struct Shares {
    connections: usize,
    open: Mutex<HashMap<String, [usize; 3]>>,
}

/// One of a token's, for as long as this lives.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    token: String,
    kind: Use,
}

impl Shares {
    pub fn new(connections: usize) -> Arc<Shares> {
        Arc::new(Shares { connections, open: Mutex::default() })
    }

    pub fn take(self: &Arc<Shares>, token: &str, kind: Use) -> Result<Share> {
        let most = (self.connections / kind.part()).max(1);
        let mut open = self.lock();
        let count = &mut open.entry(token.to_owned()).or_default()[kind as usize];
        if *count >= most {
            let message = format!("the token has {count} {} here already, as many as one may", kind.words());
            return Err(Problem { retry_after_s: Some(1), ..Problem::new(&TOKEN_BUSY, message) });
        }
        *count += 1;
        Ok(Share { shares: self.clone(), token: token.to_owned(), kind })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, [usize; 3]>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.shares.lock();
        if let Some(counts) = open.get_mut(&self.token) {
            counts[self.kind as usize] -= 1;
            if *counts == [0; 3] {
                open.remove(&self.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_its_share_and_no_more() {
        let shares = Shares::new(8);
        let own: Vec<Share> = (0..2).map(|_| shares.take("a", Use::Wait).expect("a share")).collect();
        let refused = shares.take("a", Use::Wait).expect_err("no more");
        assert_eq!((refused.status, refused.code, refused.retry_after_s), (429, "TOKEN_BUSY", Some(1)));
        assert!(shares.take("b", Use::Wait).is_ok() && shares.take("a", Use::Request).is_ok());
        drop(own);
        assert!(shares.take("a", Use::Wait).is_ok());
        assert!(shares.lock().is_empty(), "who has nothing open is forgotten");
    }
}
