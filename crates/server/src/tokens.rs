//! Tokens as a server sees them: looked up once in a while, and each with its rate.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use waypost_kernel::Time;
use waypost_kernel::bucket::{Bucket, MILLI_PER_UNIT};
use waypost_store::{Secret, Store, TokenRow, USE_NOTED_EVERY, iso};

use crate::answer::Result;
use crate::problem::{Problem, RATE_LIMITED, UNAUTHENTICATED};

/// A token that is revoked counts no longer than this. Whoever waits or follows looks again as often.
pub const FRESH: Duration = Duration::from_secs(1);
/// What strangers make up must not fill the memory.
const MOST: usize = 10_000;

#[derive(Debug)]
pub struct Known {
    found: Mutex<HashMap<String, Found>>,
    /// When this server last wrote that a token is used.
    used: Mutex<HashMap<String, Instant>>,
    buckets: Mutex<HashMap<String, Bucket>>,
    began: Instant,
    rate: Rate,
}

#[derive(Clone, Debug)]
struct Found {
    at: Instant,
    row: Option<TokenRow>,
    /// By the database's clock; none if it does not expire.
    expires: Option<Instant>,
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
        Known {
            found: Mutex::default(),
            used: Mutex::default(),
            buckets: Mutex::default(),
            began: Instant::now(),
            rate,
        }
    }

    /// The token that this is the secret of, if it still counts. Who knows the secret of one that expired is told so.
    pub async fn find(&self, store: &dyn Store, secret: &Secret) -> Result<Option<TokenRow>> {
        let found = match self.recall(&secret.id) {
            Some(known) => known,
            None => self.look_up(store, &secret.id).await?,
        };
        let row = found.row.filter(|row| row.revoked_at.is_none() && secret.fits(&row.digest));
        let is_expired = found.expires.is_some_and(|expires| expires <= Instant::now());
        match row.as_ref().and_then(|row| row.expires_at).filter(|_| is_expired) {
            Some(at) => {
                let detail = format!("the token expired at {}: ask for a new one", iso(at));
                Err(Problem::new(&UNAUTHENTICATED, detail))
            }
            None => Ok(row),
        }
    }

    async fn look_up(&self, store: &dyn Store, id: &str) -> Result<Found> {
        let row = store.tokens(Some(id.to_owned())).await?.pop();
        let expires = match row.as_ref().and_then(|row| row.expires_at) {
            Some(at) => {
                let left_ms = u64::try_from((at - store.now().await?).ms()).unwrap_or(0);
                Some(Instant::now() + Duration::from_millis(left_ms))
            }
            None => None,
        };
        let found = Found { at: Instant::now(), row, expires };
        self.remember(id, found.clone());
        Ok(found)
    }

    /// Whether the store should be told that the token is used: once a minute. Only for tokens that are known.
    pub fn is_use_news(&self, id: &str) -> bool {
        let every = Duration::from_millis(USE_NOTED_EVERY.ms().unsigned_abs());
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = used.get(id).is_none_or(|at| at.elapsed() >= every);
        if is_news {
            used.insert(id.to_owned(), Instant::now());
        }
        is_news
    }

    /// This server is told at once what others learn within a moment.
    pub fn forget(&self, id: &str) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn recall(&self, id: &str) -> Option<Found> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(id).filter(|found| found.at.elapsed() < FRESH).cloned()
    }

    fn remember(&self, id: &str, it: Found) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MOST {
            found.clear();
        }
        found.insert(id.to_owned(), it);
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
