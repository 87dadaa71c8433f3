//! `--wait`: following a run to its end, and working it here if nobody else does.

use std::time::Duration;

use clap::Args;
use tokio::sync::watch;
use tokio::time::Instant;
use waypost_kernel::waiting::Reason;
use waypost_kernel::{Phase, Span};
use waypost_store::{Claimed, CommandWrite, Enqueued, EnqueuedClaim, NewRun, RunRow, Store, Take};
use waypost_worker::playbook::Playbooks;
use waypost_worker::{Options, PassedEnv, Stage, Worker};

use super::{Follower, Stopped, is_on_its_way};
use crate::output::{BAD_INPUT, Failed, Format, INTERRUPTED, Result, TIMED_OUT, exit_code, print, tell};
use crate::place::{Opened, named_tenant, tenant};
use crate::run::act::tell_of;
use crate::run::ids::{explained, find, short};
use crate::run::user;
use crate::worker::duration;

/// How long others have to take a run before it is worked here.
const HEAD_START: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct Waiting {
    /// Follow the run to its end, and exit with its result. If no worker takes it within 2 s, it is worked here.
    #[arg(long)]
    pub wait: bool,
    /// The same, and work the run here at once.
    #[arg(long)]
    pub here: bool,
    /// With --wait: give up waiting after this time. A run that is worked here is cancelled; another worker's goes on.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

impl Waiting {
    pub fn follows(&self) -> bool {
        self.wait || self.here
    }

    /// Before anything is done.
    pub fn check(&self) -> Result {
        if self.timeout.is_some() && !self.follows() {
            return Err(Failed::new(BAD_INPUT, "timeout: only with --wait or --here"));
        }
        Ok(())
    }

    /// Starts a run. With --here it is this process's from its beginning: no other worker takes it first.
    pub async fn enqueue(
        &self,
        store: &dyn Store,
        new: NewRun,
        own: Playbooks,
    ) -> Result<(Enqueued, OwnWorker)> {
        let mut worker = OwnWorker::of(own);
        if !self.here {
            return Ok((store.enqueue(vec![new]).await?.remove(0)?, worker));
        }
        let Options { name, lease, .. } = &worker.options;
        let lease = Some(Span::from_ms(lease.as_millis() as i64));
        let take = Take { worker: name.clone(), lease, start: true };
        let asked_at = Instant::now();
        let EnqueuedClaim { enqueued, claimed } = store.enqueue_claimed(new, take).await?;
        worker.first = claimed.map(|claimed| (claimed, asked_at));
        Ok((enqueued, worker))
    }

    /// Follows the run, if asked to; what happened to it before is not told again.
    pub async fn go_on(self, opened: Opened, run: RunRow) -> Result<u8> {
        let follower = Follower::new(run.id().to_owned(), self.output == Format::Table).after(&run);
        self.follow_if_asked(opened, run, follower, OwnWorker::of(Playbooks::default())).await
    }

    /// The same of a new run, from its beginning, with a worker that may hold it already.
    pub async fn go_on_with(self, opened: Opened, run: RunRow, worker: OwnWorker) -> Result<u8> {
        let follower = Follower::new(run.id().to_owned(), self.output == Format::Table);
        self.follow_if_asked(opened, run, follower, worker).await
    }

    async fn follow_if_asked(
        self,
        opened: Opened,
        run: RunRow,
        follower: Follower,
        worker: OwnWorker,
    ) -> Result<u8> {
        match self.follows() {
            true => self.follow(opened, follower, worker).await,
            false => tell_of(&run, self.output).map(|()| 0),
        }
    }

    pub async fn follow(self, opened: Opened, follower: Follower, worker: OwnWorker) -> Result<u8> {
        let format = self.output;
        let (run, code) = follow_and_work(opened, follower, self, worker).await?;
        if format != Format::Table {
            print(&format.object(&run.object()))?;
        }
        Ok(code)
    }
}

/// What works a run in this process, if nobody else does.
#[derive(Debug)]
pub struct OwnWorker {
    options: Options,
    /// The run, if it was claimed with its beginning, and when that was asked for.
    first: Option<(Claimed, Instant)>,
}

impl OwnWorker {
    fn of(playbooks: Playbooks) -> OwnWorker {
        let tenant = named_tenant().map(str::to_owned);
        let options = Options { playbooks, tenant, passed_env: PassedEnv::of_person(), ..Options::default() };
        OwnWorker { options, first: None }
    }
}

async fn follow_and_work(
    opened: Opened,
    mut follower: Follower,
    waiting: Waiting,
    mut worker: OwnWorker,
) -> Result<(RunRow, u8)> {
    let store = opened.store();
    let run_id = follower.run_id().to_owned();
    let run = explained(&*store, &run_id).await?;
    // What this process's loops acknowledge cannot be waited for before they run.
    let is_left = waiting.here || nobody_takes(&run) || (opened.has_loops() && is_on_its_way(&run));
    let head_start = if is_left { Duration::ZERO } else { HEAD_START };
    worker.options.only = Some(run_id.clone());
    worker.options.projection = opened.projection();
    let (stage, shutdown) = watch::channel(Stage::Working);
    let (named, own_name) = watch::channel(None);
    let working = tokio::spawn(work_if_nobody_does(opened, worker, head_start, shutdown, named));
    let gave_up = match follower.follow_until(&*store, waiting.timeout).await? {
        Stopped::AtRest => None,
        Stopped::TimedOut => Some((TIMED_OUT, "not done in time")),
        Stopped::Interrupted => Some((INTERRUPTED, "interrupted")),
    };
    if let Some((code, why)) = gave_up {
        let own_name = own_name.borrow().clone();
        if is_left_to(own_name.as_deref(), &find(&*store, &run_id).await?) {
            // This process is the run's worker: leaving without a word would leave it to nobody.
            if stop(&*store, &mut follower, &run_id, why).await? == Stopped::Interrupted {
                stage.send_replace(Stage::Now);
                return Ok((find(&*store, &run_id).await?, code));
            }
        } else {
            tell(&format!("{run_id} goes on: waypost run watch {}", short(&run_id)));
        }
    }
    stage.send_replace(Stage::Draining);
    let _ = working.await;
    let run = explained(&*store, &run_id).await?;
    follower.tell_end(&*store, &run).await?;
    let code = gave_up.map_or_else(|| exit_code(&run), |(code, _)| code);
    Ok((run, code))
}

/// Whether there is no worker that could take it.
fn nobody_takes(run: &RunRow) -> bool {
    let reason = run.waiting().map(|waiting| waiting.reason);
    matches!(reason, Some(Reason::NoWorker | Reason::NoPlaybook))
}

/// Whether nobody but this process's worker would go on with the run.
fn is_left_to(own_name: Option<&str>, run: &RunRow) -> bool {
    let holder = run.run.lease.as_ref().and_then(|lease| lease.worker.as_deref());
    own_name.is_some() && holder.is_none_or(|holder| Some(holder) == own_name)
}

/// Asks for a cancel, and follows that to its end; a second interrupt does not wait for it.
async fn stop(store: &dyn Store, follower: &mut Follower, run_id: &str, why: &str) -> Result<Stopped> {
    let cancel = CommandWrite {
        tenant: tenant().into(),
        run_id: run_id.to_owned(),
        name: "cancel".into(),
        by: user(),
        reason: Some(why.into()),
        ..CommandWrite::default()
    };
    if store.command(cancel).await.is_err() {
        return Ok(Stopped::AtRest);
    }
    tell(&format!("{why}: the run is cancelled; Ctrl-C again does not wait for that"));
    follower.follow_until(store, None).await
}

/// Gives others their head start, and works the run if it still waits then. Its worker's name is told once there is one.
async fn work_if_nobody_does(
    opened: Opened,
    own: OwnWorker,
    head_start: Duration,
    mut shutdown: watch::Receiver<Stage>,
    named: watch::Sender<Option<String>>,
) {
    let store = opened.store();
    let may_take =
        |run: RunRow, now| run.phase() == Phase::Ready && run.run.available_at.is_none_or(|due| due <= now);
    while !head_start.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(head_start) => {}
            _ = shutdown.wait_for(|stage| *stage != Stage::Working) => return,
        }
        let run_id = own.options.only.as_deref().unwrap_or_default();
        let look = async { Ok::<_, Failed>(may_take(find(&*store, run_id).await?, store.now().await?)) };
        if look.await.unwrap_or(false) {
            break;
        }
    }
    let worker = Worker::new(store.clone(), own.options);
    let worker = match own.first {
        Some((claimed, asked_at)) => worker.holding(claimed, asked_at),
        None => worker,
    };
    named.send_replace(Some(worker.name().to_owned()));
    match opened.supervised(worker.name(), None, shutdown).await {
        Ok(supervised) => {
            let _ = supervised.run(Some(worker)).await;
        }
        Err(failed) => failed.tell(),
    }
}
