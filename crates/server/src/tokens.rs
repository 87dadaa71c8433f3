//! Tokens as a server sees them: looked up once in a while, and each with its rate.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use waypost_kernel::Time;
use waypost_kernel::bucket::{Bucket, MILLI_PER_UNIT};
use waypost_store::{Secret, Store, TokenRow};

use crate::answer::Result;
use crate::problem::{Problem, RATE_LIMITED};

/// A token that is revoked counts no longer than this. Whoever waits or follows looks again as often.
pub const FRESH: Duration = Duration::from_secs(1);
/// What strangers make up must not fill the memory.
const MOST: usize = 10_000;

#[derive(Debug)]
pub struct Known {
    found: Mutex<HashMap<String, (Instant, Option<TokenRow>)>>,
    buckets: Mutex<HashMap<String, Bucket>>,
    began: Instant,
    rate: Rate,
}

/// Requests per second of one token, and how many at once.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub per_second: u64,
    pub burst: u64,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { per_second: 2_000, burst: 4_000 }
    }
}

impl Known {
    pub fn new(rate: Rate) -> Known {
        Known { found: Mutex::default(), buckets: Mutex::default(), began: Instant::now(), rate }
    }

    /// The token that this is the secret of, if it still counts.
    pub async fn find(&self, store: &dyn Store, secret: &Secret) -> Result<Option<TokenRow>> {
        let row = match self.recall(&secret.id) {
            Some(known) => known,
            None => {
                let row = store.tokens(Some(secret.id.clone())).await?.pop();
                self.remember(&secret.id, row.clone());
                row
            }
        };
        Ok(row.filter(|row| row.revoked_at.is_none() && secret.fits(&row.digest)))
    }

    /// This server is told at once what others learn within a moment.
    pub fn forget(&self, id: &str) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn recall(&self, id: &str) -> Option<Option<TokenRow>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(id).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, row)| row.clone())
    }

    fn remember(&self, id: &str, row: Option<TokenRow>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MOST {
            found.clear();
        }
        found.insert(id.to_owned(), (Instant::now(), row));
    }

    /// Only for tokens that are known: their number is bounded.
    pub fn check_rate(&self, id: &str) -> Result<()> {
        let now = Time::from_ms(self.began.elapsed().as_millis() as i64);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full = Bucket::full(self.rate.burst, self.rate.per_second, now);
        let bucket = buckets.entry(id.to_owned()).or_insert(full);
        match bucket.take(MILLI_PER_UNIT, now) {
            Ok(after) => {
                *bucket = after;
                Ok(())
            }
            Err(wait) => {
                let seconds = (wait.ms() as u64).div_ceil(1_000).max(1);
                let detail = format!("a token may make {} requests a second", self.rate.per_second);
                Err(Problem { retry_after_s: Some(seconds), ..Problem::new(&RATE_LIMITED, detail) })
            }
        }
    }
}
