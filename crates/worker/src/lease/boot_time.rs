//! The machine's clock that goes on while the machine sleeps. A worker and its guardians have it in common.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Since the machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    /// A hundred years: what has no lease is not ended for the lack of one.
    pub const NEVER: BootTime = BootTime(Duration::from_secs(100 * 365 * 86_400));
    pub const BYTES: usize = size_of::<u64>();

    pub fn now() -> BootTime {
        // Elsewhere than on Linux there is none that counts the sleep too.
        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        let now = clock_gettime(clock);
        BootTime(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default()))
    }

    pub fn before(self, earlier: Duration) -> BootTime {
        BootTime(self.0.saturating_sub(earlier))
    }

    pub fn has_come(self) -> bool {
        self <= BootTime::now()
    }

    pub fn to_bytes(self) -> [u8; BootTime::BYTES] {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX).to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; BootTime::BYTES]) -> BootTime {
        BootTime(Duration::from_nanos(u64::from_be_bytes(bytes)))
    }

    pub fn since_boot(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;

    fn add(self, later: Duration) -> BootTime {
        BootTime(self.0.saturating_add(later))
    }
}
