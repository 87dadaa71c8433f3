//! When the lease of what is guarded runs out, by a clock that no stop and no sleep of the machine holds up.

use std::io;

use crate::lease::BootTime;

#[cfg(target_os = "linux")]
mod timer {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::sync::Notify;

    use crate::lease::BootTime;

    /// A sleep of tokio's counts the time that the machine is awake.
    pub struct Timer {
        timer: Arc<OwnedFd>,
        rang: Arc<Notify>,
    }

    impl Timer {
        /// A thread waits for it: tokio has no safe way to.
        pub fn new() -> io::Result<Timer> {
            let timer = Arc::new(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?);
            let rang = Arc::new(Notify::new());
            let (waited_for, tell) = (timer.clone(), rang.clone());
            std::thread::Builder::new().spawn(move || {
                let mut count = [0; size_of::<u64>()];
                loop {
                    match rustix::io::read(&*waited_for, &mut count) {
                        Ok(_) => tell.notify_one(),
                        Err(rustix::io::Errno::INTR) => {}
                        Err(_) => return,
                    }
                }
            })?;
            Ok(Timer { timer, rang })
        }

        /// Returns then, or at once if that was before.
        pub async fn wait_until(&self, at: BootTime) -> io::Result<()> {
            // All zeros would disarm it.
            let at = at.since_boot().max(Duration::from_nanos(1));
            let value = Timespec { tv_sec: at.as_secs() as i64, tv_nsec: i64::from(at.subsec_nanos()) };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            timerfd_settime(&*self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
            self.rang.notified().await;
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use std::io;

    use crate::lease::BootTime;

    pub struct Timer;

    impl Timer {
        pub fn new() -> io::Result<Timer> {
            Ok(Timer)
        }

        pub async fn wait_until(&self, at: BootTime) -> io::Result<()> {
            let left = at.since_boot().saturating_sub(BootTime::now().since_boot());
            tokio::time::sleep(left).await;
            Ok(())
        }
    }
}

pub struct Alarm(timer::Timer);

impl Alarm {
    pub fn new() -> io::Result<Alarm> {
        timer::Timer::new().map(Alarm)
    }

    /// Returns when the time has come. May be dropped and asked again, for another time.
    pub async fn rings(&self, at: BootTime) {
        while !at.has_come() {
            if self.0.wait_until(at).await.is_err() {
                // Without a timer the time cannot be waited for, and nothing may run past it.
                return;
            }
        }
    }
}
