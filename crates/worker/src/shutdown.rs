//! How a process asks its loops to stop: a `tokio::sync::watch` of stages.

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    #[default]
    Working,
    /// Somebody else goes on: claim nothing more, and let what is under way end by itself, however long it takes.
    Finishing,
    /// The first signal: claim nothing more, let what is under way end, then stop it and give it back.
    Draining,
    /// The second signal: stop and give back at once.
    Now,
}

/// Returns when the stage has been reached. A sender that is gone will never ask.
pub(crate) async fn reached(shutdown: &mut watch::Receiver<Stage>, stage: Stage) {
    if shutdown.wait_for(|now| *now >= stage).await.is_err() {
        std::future::pending::<()>().await;
    }
}
