//! A leaky bucket, from the other side: what may still go in.

#[derive(Clone, Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    available: f64,
    filled_at_us: u64,
}

impl Bucket {
    pub fn new(per_second: f64, burst: f64) -> Bucket {
        Bucket { per_second, burst, available: burst, filled_at_us: 0 }
    }

    pub fn available(&mut self, now_us: u64) -> f64 {
        let passed_s = now_us.saturating_sub(self.filled_at_us) as f64 / 1e6;
        self.available = (self.available + passed_s * self.per_second).min(self.burst);
        self.filled_at_us = self.filled_at_us.max(now_us);
        self.available
    }

    /// If there is not enough, nothing is taken and this gives the seconds until there is.
    pub fn take(&mut self, amount: f64, now_us: u64) -> Result<(), f64> {
        let missing = amount - self.available(now_us);
        // A wait that was told to the microsecond is not refused for its rounding.
        if missing > 1e-6 {
            return Err(missing / self.per_second);
        }
        self.available -= amount;
        Ok(())
    }

    pub fn give_back(&mut self, amount: f64) {
        self.available = (self.available + amount).min(self.burst);
    }

    /// Another limit; what is in it stays, as far as it fits.
    pub fn resize(&mut self, per_second: f64, burst: f64, now_us: u64) {
        let used = self.burst - self.available(now_us);
        (self.per_second, self.burst) = (per_second, burst);
        self.available = (burst - used).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::Bucket;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = Bucket::new(2.0, 40.0);
        for _ in 0..40 {
            assert_eq!(bucket.take(1.0, 0), Ok(()));
        }
        assert_eq!(bucket.take(1.0, 0), Err(0.5));
        assert_eq!(bucket.take(1.0, SECOND / 2), Ok(()));
        assert!(bucket.take(1.0, SECOND / 2).is_err());
        // However long nobody came, no more than the burst.
        assert_eq!(bucket.available(1_000 * SECOND), 40.0);
    }

    #[test]
    fn another_limit_keeps_what_is_used() {
        let mut bucket = Bucket::new(2.0, 40.0);
        bucket.take(30.0, 0).unwrap_or_default();
        bucket.resize(5.0, 50.0, 0);
        assert_eq!(bucket.available(0), 20.0);
        assert_eq!(bucket.available(2 * SECOND), 30.0);
        bucket.give_back(100.0);
        assert_eq!(bucket.available(2 * SECOND), 50.0);
    }
}
