//! A lease as its holder sees it: until when it may act, and what is wanted of it.

mod boot_time;
pub(crate) mod heartbeat;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use waypost_kernel::run::Want;
use waypost_store::{Claimed, Held, Renewed};

use crate::pace;
use crate::shutdown::Stage;

pub(crate) use boot_time::BootTime;

/// Between two signs of life of a lease. Their answers bring what people want of a run, which is due within a
/// second (X8), the request's own time included.
pub(crate) const LONGEST_BEAT: Duration = Duration::from_millis(750);

/// How a lease is kept: how long it lasts without a sign of life, and how often there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    pub length: Duration,
    pub every: Duration,
}

impl Keeping {
    pub fn new(length: Duration, every: Duration) -> Keeping {
        Keeping { length, every: every.min(LONGEST_BEAT) }
    }

    /// A run is stopped this long before its lease can have run out.
    fn margin(&self) -> Duration {
        self.length / 5
    }
}

/// When a lease was asked for. What it is good for counts from then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub at: Instant,
    boot_time: BootTime,
}

impl Asked {
    pub fn now() -> Asked {
        Asked { at: Instant::now(), boot_time: BootTime::now() }
    }
}

impl From<Instant> for Asked {
    /// The machine is taken to have been awake since.
    fn from(at: Instant) -> Asked {
        Asked { at, boot_time: BootTime::now().before(at.elapsed()) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Status {
    /// By our own monotonic clock: the last confirmation counts from before it was asked for, less the margin.
    safe_until: Instant,
    /// What was taken off.
    margin: Duration,
    /// What is under way is killed then, by whoever is awake: another worker may begin soon after.
    killed_at: BootTime,
    lost: bool,
    want: Option<Want>,
    /// What is under way may end by itself.
    graceful: bool,
    stage: Stage,
}

#[derive(Debug)]
pub(crate) struct Lease {
    pub held: Held,
    pub fence: u64,
    length: Duration,
    margin: Duration,
    status: watch::Sender<Status>,
}

impl Status {
    fn from(asked: Asked) -> Status {
        Status {
            safe_until: asked.at,
            margin: Duration::ZERO,
            killed_at: asked.boot_time,
            lost: false,
            want: None,
            graceful: false,
            stage: Stage::Working,
        }
    }

    /// By either clock: only one goes on while the machine sleeps.
    fn is_past(&self) -> bool {
        self.safe_until <= Instant::now() || self.killed_at.has_come()
    }

    fn stops(&self) -> bool {
        self.lost || self.stage > Stage::Working || self.want.is_some() && !self.graceful
    }
}

impl Lease {
    pub fn new(claimed: &Claimed, asked_at: Instant, keeping: Keeping) -> Arc<Lease> {
        let asked = Asked::from(asked_at);
        let lease = Lease {
            held: Held { run_id: claimed.run.id().to_owned(), token: claimed.token },
            fence: claimed.fence,
            length: keeping.length,
            margin: keeping.margin(),
            status: watch::Sender::new(Status::from(asked)),
        };
        lease.confirm(asked, pace::duration(claimed.expires_at - claimed.now));
        if let Some(intent) = &claimed.run.run.intent {
            lease.wanted(intent.want, intent.graceful);
        }
        Arc::new(lease)
    }

    pub fn renewed(&self, asked: Asked, renewed: &Renewed) {
        // What was ended when its time had passed is not brought back by an answer that comes after all.
        self.fence_off();
        self.confirm(asked, pace::duration(renewed.expires_at - renewed.now));
        let want = [Want::Cancel, Want::Pause, Want::Fail];
        if let Some(want) = want.into_iter().find(|want| renewed.intent == Some(want.command())) {
            // A failure of a run that is held was recorded by its holder, who lets the other steps end.
            self.wanted(want, renewed.graceful || want == Want::Fail);
        }
    }

    /// `left` may be longer than the lease: a state with a deadline (deploy's first) has that until the run
    /// begins, and then the lease's length at once.
    ///
    /// Or shorter: the margin of a long lease must not eat up a short deadline, or every claim would be given
    /// up as it is made.
    fn confirm(&self, asked: Asked, left: Duration) {
        let left = left.min(self.length);
        let margin = self.margin.min(left / 5);
        let safe_until = asked.at + left - margin;
        self.status.send_if_modified(|status| {
            let later = safe_until > status.safe_until && !status.lost;
            if later {
                (status.safe_until, status.margin) = (safe_until, margin);
                status.killed_at = asked.boot_time + (left - margin / 2);
            }
            later
        });
    }

    pub fn wanted(&self, want: Want, graceful: bool) {
        self.status.send_if_modified(|status| {
            let new = status.want != Some(want) || status.graceful && !graceful;
            if new {
                (status.want, status.graceful) = (Some(want), graceful);
            }
            new
        });
    }

    /// The worker shuts down: end, and give the run back.
    pub fn stop(&self, stage: Stage) {
        self.status.send_if_modified(|status| {
            let later = stage > status.stage;
            status.stage = status.stage.max(stage);
            later
        });
    }

    pub fn lose(&self) {
        self.status.send_if_modified(|status| !std::mem::replace(&mut status.lost, true));
    }

    pub fn is_lost(&self) -> bool {
        self.status.borrow().lost
    }

    /// The run is left to others: the lease is lost, or the worker shuts down.
    pub fn is_leaving(&self) -> bool {
        let status = self.status.borrow();
        status.lost || status.stage > Stage::Working
    }

    /// Whether the holder must end what it does: see [`Lease::stopped`].
    pub fn is_stopped(&self) -> bool {
        self.status.borrow().stops()
    }

    /// What somebody wants of the run, graceful or not.
    pub fn want(&self) -> Option<Want> {
        self.status.borrow().want
    }

    /// Returns when the holder must end what it does.
    pub async fn stopped(&self) {
        self.when(Status::stops).await;
    }

    /// As [`Lease::stopped`], for a holder with nothing under way: a graceful cancel is meant for it too.
    pub async fn asked_to_end(&self) {
        let ends = |status: &Status| status.lost || status.stage > Stage::Working || status.want.is_some();
        self.when(ends).await;
    }

    /// As [`Lease::stopped`], for a cleanup: it is done whatever is wanted of the run.
    pub async fn leaving(&self) {
        self.when(|status| status.lost || status.stage > Stage::Working).await;
    }

    /// Returns when nothing more may be written.
    pub async fn lost(&self) {
        self.when(|status| status.lost).await;
    }

    /// Returns when nothing is worth waiting for: the lease is lost, or the worker must be gone.
    pub async fn given_up(&self) {
        self.when(|status| status.lost || status.stage == Stage::Now).await;
    }

    /// Returns when a process that was asked to end must be killed: its grace is over, or the worker must be
    /// gone, or the lease will have run out before long and another worker may begin.
    pub async fn kill_due(&self, grace: Duration) {
        let asked_at = Instant::now();
        let mut changes = self.status.subscribe();
        loop {
            let status = *changes.borrow_and_update();
            let due = (asked_at + grace).min(status.safe_until + status.margin / 2);
            if status.stage == Stage::Now || due <= Instant::now() {
                return;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// When what is under way is killed, if nobody does it before.
    pub fn killed_at(&self) -> BootTime {
        self.status.borrow().killed_at
    }

    /// Returns when [`Lease::killed_at`] is another one than this.
    pub async fn killed_later_than(&self, known: BootTime) -> BootTime {
        let mut changes = self.status.subscribe();
        let later = changes.wait_for(|status| status.killed_at != known).await.map(|status| status.killed_at);
        // There is always one who would tell: the lease itself.
        later.unwrap_or(known)
    }

    /// Whether what was under way has been killed since its time was over. The lease is lost then.
    pub fn is_killed(&self) -> bool {
        let is_killed = self.killed_at().has_come();
        if is_killed {
            self.fence_off();
        }
        is_killed
    }

    /// Waits for a status; the passing of `safe_until` is one that nobody sends.
    async fn when(&self, is: impl Fn(&Status) -> bool) {
        let mut changes = self.status.subscribe();
        loop {
            let status = *changes.borrow_and_update();
            if is(&status) {
                return;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(status.safe_until), if !status.lost => self.fence_off(),
            }
        }
    }

    fn fence_off(&self) {
        let passed = self.status.send_if_modified(|status| {
            let passed = !status.lost && status.is_past();
            status.lost |= passed;
            passed
        });
        if !passed {
            return;
        }
        let run_id = &self.held.run_id;
        match self.killed_at().has_come() {
            false => tracing::warn!(
                run_id,
                "the lease could not be confirmed in time: stopping the run before it runs out"
            ),
            // This process was stopped, or its machine slept, or was too busy.
            true => tracing::warn!(
                run_id,
                "the lease was not confirmed for as long as it lasts: the run was stopped, and another worker may have it"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::{Time, Token};

    fn lease(length: Duration) -> Lease {
        let now = Instant::now();
        let held = Held { run_id: "r".into(), token: Token(1) };
        let status = watch::Sender::new(Status::from(now.into()));
        let lease = Lease { held, fence: 1, length, margin: length / 5, status };
        lease.confirm(now.into(), length);
        lease
    }

    fn renewed(left_ms: i64, intent: Option<&'static str>, graceful: bool) -> Renewed {
        Renewed { expires_at: Time::from_ms(left_ms), now: Time::from_ms(0), intent, graceful }
    }

    // proves X5
    #[tokio::test(start_paused = true)]
    async fn an_unconfirmed_lease_is_given_up_before_it_can_have_run_out() {
        let began = Instant::now();
        let lease = lease(Duration::from_secs(60));
        lease.stopped().await;
        assert!(lease.is_lost());
        assert_eq!(began.elapsed().as_secs(), 48);
        lease.kill_due(Duration::from_secs(600)).await;
        assert_eq!(began.elapsed().as_secs(), 54, "killed within the margin, whatever the grace");
        lease.renewed(Asked::now(), &renewed(60_000, None, false));
        assert!(lease.is_lost(), "a late answer does not bring it back");
    }

    // proves X5
    #[tokio::test(start_paused = true)]
    async fn a_confirmation_counts_from_before_it_was_asked_for() {
        let began = Instant::now();
        let lease = lease(Duration::from_secs(60));
        let asked_at = Instant::now();
        tokio::time::advance(Duration::from_secs(40)).await;
        lease.renewed((asked_at + Duration::from_secs(5)).into(), &renewed(60_000, None, false));
        // An older answer that comes late, and a deadline that is longer than the lease, change nothing.
        lease.renewed(asked_at.into(), &renewed(300_000, None, false));
        lease.lost().await;
        assert_eq!(began.elapsed().as_secs(), 53);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_shorter_than_the_leases_margin_leaves_time_to_begin() {
        let began = Instant::now();
        let lease = Lease {
            status: watch::Sender::new(Status::from(began.into())),
            ..lease(Duration::from_secs(60))
        };
        lease.confirm(began.into(), Duration::from_secs(2));
        lease.lost().await;
        assert_eq!(began.elapsed().as_millis(), 1_600);
        lease.kill_due(Duration::from_secs(600)).await;
        assert_eq!(began.elapsed().as_millis(), 1_800);
    }

    // proves X8
    #[tokio::test(start_paused = true)]
    async fn a_graceful_cancel_lets_what_is_under_way_end_until_a_hard_one_follows() {
        let lease = lease(Duration::from_secs(60));
        lease.renewed(Asked::now(), &renewed(60_000, Some("cancel"), true));
        assert_eq!(lease.want(), Some(Want::Cancel));
        let soon = Duration::from_secs(30);
        assert!(tokio::time::timeout(soon, lease.stopped()).await.is_err());
        lease.renewed(Asked::now(), &renewed(60_000, Some("cancel"), false));
        lease.stopped().await;
        assert!(!lease.is_lost());
    }

    // proves U5
    #[tokio::test(start_paused = true)]
    async fn a_recorded_failure_stops_nothing_that_is_under_way_and_a_cancel_after_it_does() {
        let lease = lease(Duration::from_secs(60));
        lease.renewed(Asked::now(), &renewed(60_000, Some("fail"), false));
        assert_eq!((lease.want(), lease.is_stopped()), (Some(Want::Fail), false));
        lease.renewed(Asked::now(), &renewed(60_000, Some("cancel"), false));
        lease.stopped().await;
        assert!(lease.is_stopped() && !lease.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_leaves_no_grace() {
        let began = Instant::now();
        let lease = lease(Duration::from_secs(60));
        lease.stop(Stage::Draining);
        lease.stopped().await;
        lease.kill_due(Duration::from_secs(10)).await;
        assert_eq!(began.elapsed().as_secs(), 10);
        lease.stop(Stage::Now);
        lease.stop(Stage::Draining);
        lease.kill_due(Duration::from_secs(10)).await;
        assert_eq!(began.elapsed().as_secs(), 10);
    }
}
