//! `--wait`: following a run to its end, and working it here if nobody else does.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use waypost_kernel::text::terminal;
use waypost_kernel::waiting::Reason;
use waypost_kernel::{Phase, Span, Time};
use waypost_store::{
    Claimed, CommandWrite, CommandedClaim, Enqueued, EnqueuedClaim, NewRun, RunRow, Store, StoreError, Take,
};
use waypost_worker::playbook::Playbooks;
use waypost_worker::{Options, PassedEnv, Stage, Worker};

use super::{Follower, Stopped, is_on_its_way};
use crate::output::{BAD_INPUT, Failed, Format, INTERRUPTED, Result, TIMED_OUT, exit_code, print, tell};
use crate::place::{Opened, named_tenant, suggested, tenant};
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

    /// What works the run in this process; with --here it has to be able to.
    pub fn worker(&self, new: &NewRun, own: Playbooks) -> Result<OwnWorker> {
        let worker = OwnWorker::of(own);
        if self.here {
            worker.check(new.playbook.as_deref(), new.carried.as_ref())?;
        }
        Ok(worker)
    }

    /// Starts a run. With --here it is this process's from its beginning: no other worker takes it first.
    pub async fn enqueue(
        &self,
        store: &dyn Store,
        new: NewRun,
        own: Playbooks,
    ) -> Result<(Enqueued, OwnWorker)> {
        let mut worker = self.worker(&new, own)?;
        if !self.here {
            return Ok((store.enqueue(vec![new]).await?.remove(0)?, worker));
        }
        let asked_at = Instant::now();
        let EnqueuedClaim { enqueued, claimed } = store.enqueue_claimed(new, worker.take()).await?;
        worker.first = claimed.map(|claimed| (claimed, asked_at));
        Ok((enqueued, worker))
    }

    /// Gives a command. With --here the run is this process's from then on: no other worker takes it first.
    pub async fn command(
        &self,
        store: &dyn Store,
        command: CommandWrite,
        mut worker: OwnWorker,
    ) -> std::result::Result<(RunRow, OwnWorker), StoreError> {
        if !self.here {
            return Ok((store.command(command).await?, worker));
        }
        let asked_at = Instant::now();
        let CommandedClaim { run, claimed } = store.command_claimed(command, worker.take()).await?;
        worker.first = claimed.map(|claimed| (claimed, asked_at));
        Ok((run, worker))
    }

    /// Follows the run, if asked to; what happened to it before is not told again.
    pub async fn go_on(self, opened: Opened, run: RunRow, worker: OwnWorker) -> Result<u8> {
        let follower = Follower::new(run.id().to_owned(), self.output == Format::Table).after(&run);
        self.follow_if_asked(opened, run, follower, worker).await
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

    /// To its end, which is told; gives the run as it is then, and the exit code.
    pub async fn followed(
        self,
        opened: Opened,
        follower: Follower,
        worker: OwnWorker,
    ) -> Result<(RunRow, u8)> {
        follow_and_work(opened, follower, self, worker).await
    }

    pub async fn follow(self, opened: Opened, follower: Follower, worker: OwnWorker) -> Result<u8> {
        let format = self.output;
        let (run, code) = self.followed(opened, follower, worker).await?;
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
    pub fn of(playbooks: Playbooks) -> OwnWorker {
        let tenant = named_tenant().map(str::to_owned);
        let options = Options { playbooks, tenant, passed_env: PassedEnv::of_person(), ..Options::default() };
        OwnWorker { options, first: None }
    }

    fn executes(&self, run: &RunRow) -> bool {
        self.options.executes(run.playbook.as_deref(), run.carried.as_ref())
    }

    /// Before a run is taken that this process could only give back.
    pub fn check(&self, playbook: Option<&str>, carried: Option<&Value>) -> Result {
        match playbook.filter(|_| !self.options.executes(playbook, carried)) {
            None => Ok(()),
            Some(playbook) => {
                let name = playbook.split_once('@').map_or(playbook, |(name, _)| name);
                let message = format!(
                    "here: the playbook {} is not here\n  --wait leaves it to a worker that has it; run start and run replay take --playbooks DIR, with this version of it",
                    terminal::name(name)
                );
                Err(Failed::new(BAD_INPUT, message))
            }
        }
    }

    /// How it takes a run.
    fn take(&self) -> Take {
        let Options { name, lease, .. } = &self.options;
        let lease = Some(Span::from_ms(lease.as_millis() as i64));
        Take { worker: name.clone(), lease, start: true }
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
    let is_on_its_way = is_on_its_way(&run, store.now().await?);
    let is_left = waiting.here || nobody_takes(&run) || (opened.has_loops() && is_on_its_way);
    let head_start = if is_left { Duration::ZERO } else { HEAD_START };
    worker.options.only = Some(run_id.clone());
    worker.options.projection = opened.projection()?;
    let may_work = worker.executes(&run);
    let (stage, shutdown) = watch::channel(Stage::Working);
    let (named, own_name) = watch::channel(None);
    let working = tokio::spawn(work_if_nobody_does(opened, (worker, may_work), head_start, shutdown, named));
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
            let watch = suggested(&format!("run watch {}", short(&run_id)));
            tell(&format!("{run_id} goes on: {watch}"));
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
    tell(&format!("{why}: the run is cancelled; a second signal (Ctrl-C) does not wait for that"));
    follower.follow_until(store, None).await
}

/// The run's last event, if nobody holds it and a worker may take it: it waits in its queue, was given back, or its worker is gone.
fn left_since(run: &RunRow, now: Time) -> Option<u64> {
    let is_due = match (run.phase(), &run.run.lease) {
        (Phase::Ready, _) => run.run.available_at.is_none_or(|due| due <= now),
        (Phase::Held, Some(lease)) if lease.is_vacant() => lease.until <= now,
        (Phase::Held, Some(lease)) => lease.is_expired(now),
        _ => false,
    };
    is_due.then_some(run.run.seq)
}

/// Gives others their head start, each time that the run is left to whoever takes it, and works it if it still waits then. Its worker's
/// name is told once there is one. What this process cannot execute it leaves alone: its loops are all that it does for it.
async fn work_if_nobody_does(
    opened: Opened,
    (own, may_work): (OwnWorker, bool),
    head_start: Duration,
    mut shutdown: watch::Receiver<Stage>,
    named: watch::Sender<Option<String>>,
) {
    let store = opened.store();
    // It waits since it was queued, for all that is known.
    let (mut left, mut is_first) = (None, true);
    while !head_start.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(head_start) => {}
            _ = shutdown.wait_for(|stage| *stage != Stage::Working) => return,
        }
        let run_id = own.options.only.as_deref().unwrap_or_default();
        let look = async { Ok::<_, Failed>(left_since(&find(&*store, run_id).await?, store.now().await?)) };
        let since = look.await.unwrap_or(None);
        if since.is_some() && (is_first || since == left) {
            break;
        }
        (left, is_first) = (since, false);
    }
    let name = own.options.name.clone();
    let worker = may_work.then(|| {
        let worker = Worker::new(store.clone(), own.options);
        match own.first {
            Some((claimed, asked_at)) => worker.holding(claimed, asked_at),
            None => worker,
        }
    });
    named.send_replace(worker.as_ref().map(|worker| worker.name().to_owned()));
    match opened.supervised(&name, None, shutdown).await {
        Ok(supervised) => {
            let _ = supervised.run(worker).await;
        }
        Err(failed) => failed.tell(),
    }
}
